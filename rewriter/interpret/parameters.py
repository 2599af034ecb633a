"""Which initializers of a graph hold which parameters of the module that it was exported from.

Exporters and simplifiers rename, transpose, reshape and merge weights, and fold what is computed of them alone (a
table that is read at fixed indices).  The values tell where each came from, as long as they are not all alike: what
holds for a trained module does not for one whose biases are all zero.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from onnx import ModelProto

#: Axes up to which every order is tried.
_RANK = 5


@dataclass(frozen=True)
class Source:
    """How an initializer is made of a parameter: its axes in an order, then read at indices, then reshaped."""

    parameter: str
    shape: tuple[int, ...]
    order: tuple[int, ...] | None = None
    #: Positions in the flattened parameter, one for each element of the initializer.
    index: Tensor | None = None

    def __call__(self, parameter: Tensor) -> Tensor:
        """The initializer's value, as a differentiable function of the parameter's."""
        if self.index is not None:
            return parameter.reshape(-1)[self.index].reshape(self.shape)
        moved = parameter if self.order is None else parameter.permute(self.order)
        return moved.reshape(self.shape)


@dataclass
class Correspondence:
    """Initializers and parameters, by name."""

    sources: dict[str, Source] = field(default_factory=dict)
    #: Initializers that stand for several parameters, which were equal and therefore merged, or cannot be told apart.
    merged: dict[str, tuple[str, ...]] = field(default_factory=dict)
    #: Parameters that no initializer holds as they are: not used, or computed with before the graph was written.
    missing: tuple[str, ...] = ()
    #: Floating-point initializers that hold no parameter: constants, buffers, results of computations.
    others: tuple[str, ...] = ()

    def values(self, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Values of the initializers as functions of ``parameters``, through which gradients reach these.

        Put into ``interpreter.parameters`` before each step, they train the module by what the graph computes.
        """
        return {name: source(parameters[source.parameter]) for name, source in self.sources.items()}


def correspond(initializers: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> Correspondence:
    """Find the parameters of a module in the floating-point initializers of a graph.

    ``parameters`` are those that the graph was exported with, of any floating-point type: an initializer must be
    equal to one after rounding to the initializer's type.
    """
    exact = {name: value.detach() for name, value in parameters.items() if value.is_floating_point()}
    by_content: dict[object, list[str]] = {}
    for dtype in {value.dtype for value in initializers.values()}:
        for name, value in exact.items():
            by_content.setdefault(_content(value.to(dtype)), []).append(name)
    alike: dict[tuple[str, ...], dict[str, dict[str, Source]]] = {}
    remaining: list[str] = []
    for name, tensor in initializers.items():
        candidates = dict.fromkeys(by_content.get(_content(tensor.detach()), ()))
        equal = {
            source.parameter: source for source in _equal(tensor.detach(), {c: exact[c] for c in candidates})
        }
        if equal:
            alike.setdefault(tuple(sorted(equal)), {})[name] = equal
        else:
            remaining.append(name)
    found = Correspondence()
    for names, sources in alike.items():
        _assign(found, names, sources)
    held = {p for names in alike for p in names}
    left = {name: value for name, value in exact.items() if name not in held}
    others = []
    for name in remaining:
        read = _read(initializers[name].detach(), left)
        if read is None:
            others.append(name)
        else:
            found.sources[name] = read
            held.add(read.parameter)
    found.missing = tuple(name for name in exact if name not in held)
    found.others = tuple(others)
    return found


def _assign(
    found: Correspondence, parameters: tuple[str, ...], sources: Mapping[str, dict[str, Source]]
) -> None:
    """Initializers that equal the same parameters: by name, and the rest to the rest."""
    open_ones = [p for p in parameters if p not in sources]
    unnamed = [name for name in sources if name not in parameters]
    for name in sources:
        if name in parameters:
            found.sources[name] = sources[name][name]
            if open_ones and not unnamed:
                # Equal ones were merged into whichever came first.
                found.merged[name] = (name, *open_ones)
                open_ones = []
    for name in unnamed:
        found.sources[name] = sources[name][(open_ones or parameters)[0]]
        if len(open_ones) > 1:
            found.merged[name] = tuple(open_ones)


def with_parameters(model: ModelProto, parameters: Mapping[str, Tensor]) -> ModelProto:
    """A copy of ``model``, which is whole, with these values of its initializers, in the initializers' own types."""
    from onnx import ModelProto, helper, numpy_helper

    result = ModelProto()
    result.CopyFrom(model)
    for tensor in result.graph.initializer:
        if tensor.name in parameters:
            wide = parameters[tensor.name].detach().double().numpy()
            array = wide.astype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return result


def _content(value: Tensor) -> object:
    """What two tensors with the same elements in any order have in common."""
    bits = value.double().reshape(-1).view(torch.int64)
    return value.numel(), int(bits.sum()), int((bits * (bits >> 7)).sum())


def _equal(tensor: Tensor, candidates: Mapping[str, Tensor]) -> Iterator[Source]:
    """How the tensor is made of each candidate by moving axes."""
    shape = tuple(tensor.shape)
    for name, value in candidates.items():
        rounded = value.to(tensor.dtype)
        for order in _orders(rounded):
            moved = rounded if order is None else rounded.permute(order)
            if torch.equal(moved.reshape(shape), tensor):
                yield Source(name, shape, order)
                break


def _orders(value: Tensor) -> Iterable[tuple[int, ...] | None]:
    if value.ndim < 2:
        return (None,)
    axes = range(value.ndim)
    if value.ndim > _RANK:
        return (None, tuple(reversed(axes)))
    orders = itertools.permutations(axes)
    next(orders)  # the identity
    return itertools.chain((None,), orders)


def _read(tensor: Tensor, left: Mapping[str, Tensor]) -> Source | None:
    """The parameter of which every element of the tensor is one, and a single one.

    A tensor of one value is no evidence: it may be any constant.
    """
    flat = tensor.reshape(-1)
    distinct = torch.unique(flat)
    if len(distinct) < 2:
        return None
    for name, value in left.items():
        ordered, order = torch.sort(value.to(tensor.dtype).reshape(-1))
        if len(ordered) < 2:
            continue
        at = torch.searchsorted(ordered, flat).clamp(max=len(ordered) - 1)
        if not torch.equal(ordered[at], flat):
            continue
        used = torch.unique(at)
        twice = ordered[1:] == ordered[:-1]
        ambiguous = torch.zeros(len(ordered), dtype=torch.bool)
        ambiguous[1:] |= twice
        ambiguous[:-1] |= twice
        if bool(ambiguous[used].any()):
            continue
        return Source(name, tuple(tensor.shape), index=order[at])
    return None
