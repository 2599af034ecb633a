"""What the cases of a pass say of its inputs: boxes that overlap rather than noise, shifts of either sign.

A case draws a tensor argument in a way of its own or gives its values as they stand; either serves as an example for
whatever else that argument is in a model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import helper

from rewriter.placeholder.binding import Ref
from rewriter.placeholder.case import TensorSpec
from rewriter.types import dtype_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onnx import ModelProto

    from rewriter.decompose import Region
    from rewriter.execution.numbers import Array
    from rewriter.placeholder.case import Draw
    from rewriter.types import Dim, TensorType

#: Cases that are taken as examples.
_MOST = 3
#: Operators that hand on values as they are.
_SAME = frozenset({"Identity", "Cast"})

#: By the name of a tensor, how to draw it.
Example = dict[str, "Draw"]


def examples(region: Region) -> list[Example]:
    """Ways to draw the region's tensor arguments, by name, those of its pass's first cases to begin with.

    The second one draws integers from the whole range that the cases span.  Empty where the types say it all.
    """
    placeholder = region.placeholder
    wanted = {
        name: argument
        for name, argument in region.bound.arguments.items()
        if isinstance(argument, Ref) and argument.name and argument.constant is None
    }
    if not wanted:
        return []
    cases = [case.arguments(placeholder.signature.names) for case in placeholder.cases()]
    ways: dict[str, list[Draw | None]] = {}
    for name, ref in wanted.items():
        specs = [
            spec
            for case in cases
            if isinstance(spec := case.get(name), TensorSpec)
            and 0 not in spec.shape  # of nothing no values say anything
            and _is_of(spec, ref.type)
        ]
        own = _ways(specs, None if ref.type is None else ref.type.shape)
        if any(way is not None for way in own):
            ways[ref.name] = own
    count = max(map(len, ways.values()), default=0)
    found = [
        {name: way for name, own in ways.items() if (way := own[number % len(own)]) is not None}
        for number in range(min(count, _MOST))
    ]
    return found if any(found) else []


def constrained(region: Region) -> frozenset[str]:
    """The region's tensors whose values mean something: the cases of its pass draw them, or state them, always.

    A case that is content with values of the type says that any serve; one of a single number says nothing of that.
    """
    placeholder = region.placeholder
    cases = [case.arguments(placeholder.signature.names) for case in placeholder.cases()]
    found: set[str] = set()
    for name, argument in region.bound.arguments.items():
        specs = [
            spec
            for case in cases
            for spec in _several(case.get(name))
            if isinstance(spec, TensorSpec) and 0 not in spec.shape
        ]
        for ref in _several(argument):
            if not isinstance(ref, Ref) or not ref.name:
                continue
            own = [spec for spec in specs if _is_of(spec, ref.type)]
            drawn = [spec for spec in own if spec.draw is not None or spec.value is not None]
            plain = [spec for spec in own if spec.draw is None and spec.value is None]
            if drawn and not any(np.prod(spec.shape) > 1 for spec in plain):
                found.add(ref.name)
    return frozenset(found)


def _several(item: Any) -> tuple[Any, ...]:
    return item if isinstance(item, tuple) else (item,)


def _ways(specs: list[TensorSpec], shape: tuple[Dim, ...] | None) -> list[Draw | None]:
    """The ways to draw one argument, None for that of its type, in the order of the cases.

    Values as they stand serve where no case is content with the type: where one is, they are special ones.
    """
    found: dict[tuple[Any, str], Draw | None] = {}
    plain = any(spec.value is None and spec.draw is None for spec in specs)
    integers = [spec for spec in specs if spec.dtype.startswith(("int", "uint"))]
    for spec in specs:
        if spec.value is None:
            found.setdefault((spec.draw, ""), spec.draw)
        elif integers or not plain:
            rows = _rows(spec, shape)
            if rows is not None:
                found.setdefault((None, str(spec.value)), rows)
    ways = list(found.values())
    # Where a case is content with any integer, the cases span no range.
    limits = None if plain else _range(integers)
    if limits is not None:
        ways.insert(1, _between(*limits))
    return ways


def of_inputs(regions: Iterable[Region], model: ModelProto) -> list[Example]:
    """The same for the inputs of the main graph that reach regions as they are."""
    inputs = {value.name for value in model.graph.input}
    sources = {
        node.output[0]: node.input[0]
        for node in model.graph.node
        if node.op_type in _SAME and not node.domain and node.input
    }

    def source(name: str) -> str:
        while name in sources:
            name = sources[name]
        return name

    found: list[Example] = []
    claimed: set[str] = set()
    for region in regions:
        own = {ref.name: source(ref.name) for ref in region.bound.refs()}
        free = {name for name in own.values() if name in inputs and name not in claimed}
        if not region.scope.is_main or not free:
            continue
        for number, example in enumerate(examples(region)):
            if number == len(found):
                found.append({})
            found[number] |= {own[n]: draw for n, draw in example.items() if own.get(n) in free}
        claimed |= free
    return [example for example in found if example]


def drawn_as(draw: Draw, rng: np.random.Generator, dtype: int, shape: tuple[int, ...]) -> Array | None:
    """Values of ``dtype`` and ``shape`` by ``draw``; None where it has none of that shape."""
    try:
        values = np.asarray(draw(rng, shape)).reshape(shape)
    except Exception:  # noqa: BLE001  (a pass is anybody's code)
        return None
    return values.astype(helper.tensor_dtype_to_np_dtype(dtype))


def _is_of(spec: TensorSpec, kind: TensorType | None) -> bool:
    return spec.varies or (kind is not None and dtype_name(kind.dtype) == spec.dtype)


def _rows(spec: TensorSpec, shape: tuple[Dim, ...] | None) -> Draw | None:
    """The rows of its values again and again, where those fit."""
    values = np.asarray(spec.value)
    if values.size == 0 or values.dtype.kind not in "biuf" or not np.isfinite(values).all():
        return None
    values = values.reshape(spec.shape)
    if shape is not None and not _fits(values.shape, shape):
        return None

    def rows(rng: np.random.Generator, wanted: tuple[int, ...]) -> Array:  # noqa: ARG001
        if not _fits(values.shape, wanted):
            raise ValueError("rows of another shape")
        return values if not wanted else values[np.arange(wanted[0]) % len(values)]

    return rows


def _fits(own: tuple[int, ...], shape: tuple[Dim, ...]) -> bool:
    """Whether rows of shape ``own`` make up a tensor of ``shape``."""
    return len(own) == len(shape) and all(
        not isinstance(b, int) or a == b for a, b in zip(own[1:], shape[1:], strict=True)
    )


def _range(specs: list[TensorSpec]) -> tuple[int, int] | None:
    """The least and the greatest integer of the cases."""
    samples = [spec.sample(np.random.default_rng(0)) for spec in specs]
    values = [int(end) for sample in samples if sample.size for end in (sample.min(), sample.max())]
    return (min(values), max(values)) if values else None


def _between(low: int, high: int) -> Draw:
    return lambda rng, shape: rng.integers(low, high, shape, endpoint=True)
