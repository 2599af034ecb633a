"""Makes torchvision_<operator>.npz beside this file: what torchvision itself gives, to hold the references against.

Needs an environment of its own, with torch 2.14.1 and torchvision 0.29.1: ``python torchvision_values.py``.  Each call
is stored as arrays ``<number>.<position>`` of its arguments in the operator's schema order, and its results as
``<number>.result.<position>``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torchvision

RNG = torch.Generator().manual_seed(0)

BOXES = torch.tensor(
    [
        [0, 0.5, 1.0, 4.5, 3.5],
        [1, -1.5, -2.0, 3.0, 9.0],
        [0, 2.0, 2.0, 2.25, 2.5],
        [1, 3.0, 1.0, 3.0, 4.0],
        [1, 20.0, 20.0, 30.0, 30.0],
        [0, 4.0, 3.0, 1.0, 0.5],
        [1, -0.5, -1.0, 6.0, 5.0],
        [0, 2.5, 1.5, 3.5, 4.5],
    ]
)


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=RNG)


def roi_align():
    x = drawn(2, 3, 5, 6)
    for aligned in (False, True):
        for ratio in (2, 1, 0, -1):
            yield x, BOXES, 0.75, 2, 3, ratio, aligned
    yield x, BOXES, 1.0, 1, 1, 3, True


def ps_roi_align():
    x = drawn(2, 12, 5, 6)
    for ratio in (2, -1):
        yield x, BOXES, 0.75, 2, 3, ratio
    yield x, BOXES, 1.0, 2, 2, 1


def roi_pool():
    x = drawn(2, 3, 5, 6)
    yield x, BOXES, 1.0, 2, 3
    yield x, BOXES, 0.5, 3, 2
    x = x.clone()
    x[0, 0, 1, 2], x[0, 1, 3, 3], x[1, 0] = float("nan"), float("inf"), float("-inf")
    yield x, BOXES, 1.0, 2, 2


def ps_roi_pool():
    x = drawn(2, 12, 5, 6)
    yield x, BOXES, 1.0, 2, 3
    yield x, BOXES, 0.5, 2, 2


def deform_conv2d():
    none = torch.zeros(2, 1)
    x = drawn(2, 4, 5, 6)
    offset, mask = drawn(2, 24, 3, 3) * 2, drawn(2, 12, 3, 3)
    yield x, drawn(4, 2, 3, 2), offset, mask, drawn(4), 2, 2, 1, 0, 1, 1, 2, 2, True
    yield x, drawn(3, 4, 3, 2), drawn(2, 12, 3, 5) * 2, none, torch.zeros(3), 1, 1, 0, 0, 1, 1, 1, 1, False
    yield x, drawn(3, 4, 2, 2), drawn(2, 8, 6, 3), none, drawn(3), 1, 2, 2, 1, 3, 2, 1, 1, False
    far = drawn(2, 12, 3, 5)
    far[0, 0, 0, 0], far[0, 1, 0, 1], far[0, 2, 0, 2] = 1e9, -1e9, -60.0
    yield x, drawn(3, 4, 3, 2), far, drawn(2, 6, 3, 5), torch.zeros(3), 1, 1, 0, 0, 1, 1, 1, 1, True


def main() -> None:
    assert torchvision.__version__.startswith("0.29.1"), torchvision.__version__
    for make in (roi_align, ps_roi_align, roi_pool, ps_roi_pool, deform_conv2d):
        operator = getattr(torch.ops.torchvision, make.__name__)
        stored = {}
        for number, arguments in enumerate(make()):
            results = operator(*arguments)
            for position, value in enumerate(arguments):
                stored[f"{number}.{position}"] = np.asarray(value)
            for position, value in enumerate(results if isinstance(results, tuple) else (results,)):
                stored[f"{number}.result.{position}"] = value.numpy()
        np.savez_compressed(Path(__file__).with_name(f"torchvision_{make.__name__}.npz"), **stored)


if __name__ == "__main__":
    main()
