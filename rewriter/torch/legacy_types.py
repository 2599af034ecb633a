"""Types of a placeholder's results for the TorchScript exporter, which cannot infer them itself.

Without them the exporter forgets every size after the node, and refuses what needs one (a group norm its
channels).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from rewriter.torch.results import flatten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rewriter.torch.function import Application

Sizes = list[int | None]


def result_sizes(application: Application, known: Sequence[Sizes | None]) -> list[Sizes]:
    """Sizes of each result, None where they are not the same for every size that the exporter calls dynamic.

    ``known`` are the sizes of the given inputs as the exporter has them.  The ranks are those of the traced
    call.
    """
    unknown: list[Sizes] = [[None] * len(result.shape) for result in application.results]
    if application.numbers or any(sizes is None for sizes in known):
        return unknown
    environment = ShapeEnv(specialize_zero_one=False, duck_shape=False)
    mode = FakeTensorMode(shape_env=environment)
    fakes = []
    for index, sizes in enumerate(known):
        assert sizes is not None
        dims = [DimDynamic.DYNAMIC if size is None else DimDynamic.STATIC for size in sizes]
        traced = application.traced[index]
        fakes.append(
            mode.from_tensor(
                torch.empty(traced.shape, dtype=traced.dtype, device="meta"),
                source=ConstantSource(f"input{index}"),
                symbolic_context=StatelessSymbolicContext(dynamic_sizes=dims),
            )
        )
    try:
        with mode, torch.no_grad():
            results = flatten(
                application.operator.shape_function(**application.arguments(fakes)),
                application.operator.qualified_name,
            )
    except Exception:  # noqa: BLE001  (the user's function meets tensors without values: it may raise anything)
        return unknown
    if any(
        _is_specialised(fake, sizes) for fake, sizes in zip(fakes, known, strict=True) if sizes is not None
    ):
        return unknown
    return [[size if isinstance(size, int) else None for size in result.shape] for result in results]


def _is_specialised(fake: torch.Tensor, known: Sizes) -> bool:
    """Whether the function pinned a dynamic size to a number: its results then hold for that number only."""
    sizes: list[Any] = list(fake.shape)
    return any(
        size is None and (isinstance(actual, int) or actual.node.maybe_as_int() is not None)
        for actual, size in zip(sizes, known, strict=True)
    )
