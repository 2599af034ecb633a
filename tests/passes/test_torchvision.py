"""The references of passes for torchvision's operators, against what torchvision gave (data/torchvision_values.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rewriter.placeholder.registry import resolve

DATA = Path(__file__).with_name("data")
OPERATORS = sorted(path.stem.removeprefix("torchvision_") for path in DATA.glob("torchvision_*.npz"))


def calls(operator: str) -> list[tuple[list[Any], list[Any]]]:
    """Arguments and results of each stored call."""
    with np.load(DATA / f"torchvision_{operator}.npz") as stored:
        arrays = {tuple(name.split(".")): stored[name] for name in stored.files}
    found = []
    for number in sorted({key[0] for key in arrays}, key=int):
        own = {key[1:]: array for key, array in arrays.items() if key[0] == number}
        arguments = [own[(str(i),)] for i in range(sum(len(key) == 1 for key in own))]
        results = [own[("result", str(i))] for i in range(sum(len(key) == 2 for key in own))]
        found.append((arguments, results))
    return found


def as_reference(operator: str, arguments: list[Any]) -> dict[str, Any]:
    """The arguments by the pass's own names; torchvision has no None, and a number for each axis."""
    import torch

    given = [torch.from_numpy(np.array(a)) if np.ndim(a) else a.item() for a in arguments]
    placeholder = resolve(operator)[0]
    schema = placeholder.schemas.get(f"torchvision::{operator}", placeholder.signature.names)
    named: dict[str, Any] = {}
    for slot, value in zip(schema, given, strict=False):
        name, _, position = slot.partition(".")
        if position:
            named.setdefault(name, []).append(value)
        else:
            named[name] = value
    return named


def test_every_operator_is_compared() -> None:
    assert OPERATORS == ["deform_conv2d", "ps_roi_align", "ps_roi_pool", "roi_align", "roi_pool"]


@pytest.mark.parametrize("operator", OPERATORS)
def test_reference_gives_what_torchvision_gave(operator: str) -> None:
    for number, (arguments, expected) in enumerate(calls(operator)):
        made = resolve(operator)[0].reference(**as_reference(operator, arguments))
        made = made if isinstance(made, tuple) else (made,)
        assert len(made) == len(expected)
        for got, want in zip(made, expected, strict=True):
            assert got.numpy().dtype == want.dtype
            # A convolution sums some dozen products of size 1, in an order of its own.
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=5e-6, err_msg=f"call {number}")
