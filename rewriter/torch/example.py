"""The example that a module is exported with: its tensors, what they are called, and which of their sizes are open."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from rewriter.errors import ExportError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from onnx import ModelProto


@dataclass(frozen=True)
class Input:
    """One tensor of the example."""

    name: str
    tensor: torch.Tensor
    #: The names of the sizes that are open, by axis.
    open: Mapping[int, str]


class Example:
    """``args`` and ``kwargs`` of one call of ``model``, with the ``dynamic_shapes`` of ``torch.export``.

    An open size may also be a name: ``{0: "batch"}``.  UsageError where they do not fit the model's ``forward``.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        dynamic_shapes: Any,
        input_names: Sequence[str] | None = None,
    ) -> None:
        self.model, self.args, self.kwargs = model, tuple(args), dict(kwargs)
        try:
            bound = inspect.signature(model.forward).bind(*self.args, **self.kwargs).arguments
        except TypeError as error:
            raise UsageError(f"the example does not fit the model's forward: {error}") from error
        self._values = _by_name(model, bound)
        self._shapes = _shapes_of(dynamic_shapes, list(self._values))
        found = [
            item
            for name, value in self._values.items()
            for item in _inputs(name, value, self._shapes.get(name))
        ]
        if input_names is not None and len(input_names) != len(found):
            raise UsageError(f"{len(input_names)} input names are given for {len(found)} tensors")
        names = [item.name for item in found] if input_names is None else list(input_names)
        self.inputs = [Input(name, item.tensor, item.open) for name, item in zip(names, found, strict=True)]

    @property
    def dynamic_shapes(self) -> dict[str, Any] | None:
        """For ``torch.export``: the trace itself finds out what each open size may be."""
        if not any(item.open for item in self.inputs):
            return None
        return {name: _automatic(value, self._shapes.get(name)) for name, value in self._values.items()}

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """The range of each integer tensor: what indices and tokens may be is not known otherwise."""
        return {
            item.name: (int(item.tensor.min()), int(item.tensor.max()))
            for item in self.inputs
            if item.tensor.dtype in _INTEGERS
            and item.tensor.numel()
            and bool(item.tensor.min() < item.tensor.max())
        }

    @property
    def called(self) -> torch.nn.Module:
        """The model as the example calls it: a number or a flag among the arguments is fixed in the file."""
        leaves = tree_leaves((self.args, self.kwargs))
        return self.model if all(isinstance(leaf, torch.Tensor) for leaf in leaves) else self.flat()

    def flat(self) -> torch.nn.Module:
        """The model as a function of its tensors in order, for an exporter that takes nothing else."""
        leaves, structure = tree_flatten((self.args, self.kwargs))
        where = [index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        model = self.model

        class Flat(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = model

            def forward(self, *tensors: torch.Tensor) -> Any:
                filled = list(leaves)
                for index, tensor in zip(where, tensors, strict=True):
                    filled[index] = tensor
                args, kwargs = tree_unflatten(filled, structure)
                results = tree_leaves(self.inner(*args, **kwargs))
                return tuple(item for item in results if isinstance(item, torch.Tensor))

        return Flat().eval()

    def name_sizes(self, model: ModelProto) -> None:
        """Give the open sizes of an exported ``model`` the names that were asked for.

        ExportError where the model fixes a size that was to be open.
        """
        symbols: dict[str, str] = {}
        by_name = {value.name: value for value in model.graph.input}
        for item in self.inputs:
            dims = by_name[item.name].type.tensor_type.shape.dim if item.name in by_name else ()
            for axis, name in item.open.items():
                if axis < len(dims) and dims[axis].HasField("dim_value"):
                    raise ExportError(
                        f"size {axis} of '{item.name}' was to be open, the model fixes it to {dims[axis].dim_value}",
                        remedy="leave it out of dynamic_shapes, or mend the line that fixes it",
                    )
                if axis < len(dims):
                    symbols.setdefault(dims[axis].dim_param, name)
        graph = model.graph
        for value in (*graph.input, *graph.output, *graph.value_info):
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param:
                    dim.dim_param = re.sub(r"\w+", lambda m: symbols.get(m[0], m[0]), dim.dim_param)


_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def _by_name(model: torch.nn.Module, bound: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by name, those of ``**kwargs`` by their own."""
    kinds = {p.name: p.kind for p in inspect.signature(model.forward).parameters.values()}
    found: dict[str, Any] = {}
    for name, value in bound.items():
        found |= value if kinds[name] is inspect.Parameter.VAR_KEYWORD else {name: value}
    return found


def _shapes_of(dynamic_shapes: Any, names: Sequence[str]) -> dict[str, Any]:
    if not dynamic_shapes:
        return {}
    if isinstance(dynamic_shapes, dict):
        unknown = [name for name in dynamic_shapes if name not in names]
        if unknown:
            raise UsageError(
                f"dynamic_shapes names '{unknown[0]}', which the example does not give",
                remedy=f"the example gives: {', '.join(names)}",
            )
        return dict(dynamic_shapes)
    return dict(zip(names, dynamic_shapes, strict=False))


def _inputs(name: str, value: Any, shape: Any) -> Iterator[Input]:
    """The tensors in ``value``, in the order in which PyTorch takes it apart."""
    if isinstance(value, torch.Tensor):
        yield Input(name, value, {axis: _label(dim, f"{name}_{axis}") for axis, dim in _axes(shape)})
    else:
        for key, part in _parts(value):
            yield from _inputs(f"{name}_{key}", part, _part(shape, key))


def _automatic(value: Any, shape: Any) -> Any:
    """``shape`` with each open size found out by the trace."""
    if isinstance(value, torch.Tensor):
        return {axis: torch.export.Dim.AUTO for axis, _ in _axes(shape)} or None
    parts = {key: _automatic(part, _part(shape, key)) for key, part in _parts(value)}
    if isinstance(value, dict):
        return parts
    return type(value)(parts.values()) if isinstance(value, (list, tuple)) else None


def _axes(shape: Any) -> list[tuple[int, Any]]:
    """The axes that are open, with what was given for each."""
    pairs = shape.items() if isinstance(shape, dict) else enumerate(shape or ())
    return [
        (axis, dim) for axis, dim in pairs if dim is not None and not isinstance(dim, int) and _is_open(dim)
    ]


def _is_open(dim: Any) -> bool:
    return dim is not torch.export.Dim.STATIC


def _label(dim: Any, otherwise: str) -> str:
    return dim if isinstance(dim, str) else str(getattr(dim, "__name__", otherwise))


def _parts(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, (list, tuple)) else []


def _part(shape: Any, key: Any) -> Any:
    if isinstance(shape, dict):
        return shape.get(key)
    return (
        shape[key] if isinstance(shape, (list, tuple)) and isinstance(key, int) and key < len(shape) else None
    )
