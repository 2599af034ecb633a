"""Makes `detection.npz`: what torchvision 0.29.1 (with torch 2.14.1) gives, for `tests/passes/test_detection.py`.

Run in an environment with torchvision, which does not install beside the torch that this project is tested with:

    python make_detection.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torchvision.models.detection._utils import BoxCoder
from torchvision.ops import batched_nms, nms

NAN, INF = float("nan"), float("inf")


def clusters(rng: np.random.Generator, count: int, low: float = 20, high: float = 80) -> np.ndarray:
    """Corner boxes around a few objects, in steps of 1/4 (small in the file)."""
    objects = max(1, count // 6)
    which = rng.integers(0, objects, count)
    centre = rng.uniform(low, high, (objects, 2))[which] + rng.normal(0, 4, (count, 2))
    size = rng.uniform(10, 40, (objects, 2))[which] * rng.uniform(0.7, 1.3, (count, 2))
    return np.round(np.concatenate([centre - size / 2, centre + size / 2], axis=1) * 4) / 4


def main() -> None:
    rng = np.random.default_rng(0)
    stored: dict[str, np.ndarray] = {}

    def put(name: str, **arrays: object) -> None:
        for key, value in arrays.items():
            array = value.numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
            stored[f"{name}/{key}"] = array

    def put_nms(name: str, boxes: np.ndarray, scores: np.ndarray, threshold: float) -> None:
        """Rows of four coordinates and the score; the threshold in the name."""
        kept = nms(torch.from_numpy(boxes), torch.from_numpy(scores), threshold)
        put(f"nms/{name}/{threshold}", rows=np.column_stack([boxes, scores]), kept=kept.to(torch.int16))

    for number, (dtype, threshold) in enumerate(
        [("float32", 0.5), ("float32", 0.3), ("float32", 0.0), ("float32", 1.0), ("float64", 0.45)]
    ):
        boxes = clusters(rng, 40).astype(dtype)
        put_nms(f"clusters{number}", boxes, rng.permutation(40).astype(dtype) / 41, threshold)
    ties = rng.integers(1, 4, 40).astype(np.float32)
    put_nms("ties", clusters(rng, 40).astype(np.float32), ties, 0.5)
    odd = clusters(rng, 24).astype(np.float32)
    odd[3:6] = odd[3:6][:, [2, 3, 0, 1]]
    odd[6:9, 2] = odd[6:9, 0]
    odd[9:12] -= 70
    odd[12:14] = odd[14]
    odd[15] = [-1e6, -1e6, 1e6, 1e6]
    odd[16:18] = [[0, 0, INF, 9], [0, 0, INF, 9]]
    odd[18, 1] = NAN
    put_nms("odd", odd, (rng.permutation(24) / 24).astype(np.float32), 0.25)
    unordered = np.array([0.5, NAN, INF, -INF, NAN, 0.0, -0.0, INF], dtype=np.float32)
    put_nms("unordered", clusters(rng, 8).astype(np.float32), unordered, 0.3)
    quarters = np.array(
        [[0, 0, 2, 1], [1, 0, 3, 1], [1, 0, 3, 2], [0, 0, 4, 1], [0, 0, 1, 1]], dtype=np.float32
    )
    put_nms("equal to the threshold", quarters, np.array([5, 4, 3, 2, 1], dtype=np.float32), 0.25)

    for name, count, low, high in [("few", 60, 20, 80), ("negative", 60, -90, 10), ("many", 1001, 20, 2000)]:
        boxes = clusters(rng, count, low, high).astype(np.float32)
        # Beyond 1000 boxes torchvision's sort is not stable: there, no two are equal.
        numerators = rng.permutation(count) if count > 1000 else rng.integers(1, count // 2, count)
        scores = numerators.astype(np.float32) / count
        classes = rng.integers(0, 5, count)
        kept = batched_nms(torch.from_numpy(boxes), torch.from_numpy(scores), torch.from_numpy(classes), 0.5)
        # Rows of four coordinates in quarters, the numerator of the score, and the class.
        rows = np.column_stack([boxes * 4, numerators, classes]).astype(np.int16)
        put(f"batched_nms/{name}/0.5", rows=rows, kept=kept.to(torch.int16))

    # As RoIHeads.postprocess_detections: every pair of box and class, above a threshold, the best of them.
    boxes, classes, limit = clusters(rng, 20).astype(np.float32), 3, 15
    scores = (rng.permutation(20 * classes).astype(np.float32) / (20 * classes)).reshape(20, classes)
    pairs = torch.from_numpy(scores).flatten()
    above = torch.where(pairs > 0.25)[0]
    places = torch.from_numpy(boxes)[above // classes]
    best = above[batched_nms(places, pairs[above], above % classes, 0.5)[:limit]]
    put("multiclass_nms/pairs/0.5", boxes=boxes, scores=scores, kept=best.to(torch.int16))

    for name, weights, classes in [
        ("plain", (1.0, 1.0, 1.0, 1.0), 1),
        ("weighted", (10.0, 10.0, 5.0, 5.0), 3),
    ]:
        anchors = torch.from_numpy(clusters(rng, 12).astype(np.float32))
        deltas = torch.from_numpy(rng.normal(0, 3, (12, 4 * classes)).astype(np.float32))
        deltas[0, 2] = 100.0  # beyond the clip
        decoded = BoxCoder(weights).decode_single(deltas, anchors)
        put(f"box_decode/{name}", deltas=deltas, anchors=anchors, weights=weights, boxes=decoded)

    np.savez_compressed(Path(__file__).with_name("detection.npz"), **stored)


if __name__ == "__main__":
    main()
