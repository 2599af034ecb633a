"""What trains: a pass's reference, or the operator that the model was trained with, as a side to be differentiated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from onnx import helper

from rewriter.errors import CannotInterpretError
from rewriter.execution.reference import call_reference
from rewriter.execution.values import to_torch
from rewriter.gradients.operators import arguments_of
from rewriter.gradients.sides import Raised, Side, custom_backwards
from rewriter.placeholder.binding import Ref
from rewriter.torch.results import flatten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rewriter.decompose import Region
    from rewriter.gradients.sides import Point
    from rewriter.placeholder.contract import Placeholder
    from rewriter.torch.operator import PlaceholderFunction


def wide(array: Any) -> torch.Tensor:
    """An array as a tensor, in float64 where it is of floating point; CannotInterpretError where PyTorch has none."""
    try:
        made: torch.Tensor = to_torch(np.asarray(array))
    except TypeError as error:
        raise CannotInterpretError(str(error)) from error
    return made.double() if made.is_floating_point() else made


def no_tensor(dtype: int) -> str:
    """Why PyTorch has no tensors of this ``TensorProto.DataType``; "" where it has."""
    try:
        to_torch(np.zeros(0, helper.tensor_dtype_to_np_dtype(dtype)))
    except TypeError as error:
        return str(error)
    return ""


def reference_side(placeholder: Placeholder, arguments: Mapping[str, Any], outputs: Sequence[str]) -> Side:
    """The reference; tensors of its arguments are :class:`Ref` (by their names, or their constants) or arrays."""

    def call(given: Mapping[str, torch.Tensor]) -> list[torch.Tensor | None]:
        def value(item: Any) -> Any:
            if isinstance(item, Ref):
                return given[item.name] if item.name in given else wide(item.constant)
            if isinstance(item, tuple):
                return tuple(value(part) for part in item)
            return wide(item) if isinstance(item, np.ndarray) else item

        made = call_reference(placeholder, {name: value(item) for name, item in arguments.items()})
        return _by_position(made, outputs)

    return Side(f"the reference of pass '{placeholder.pass_name()}'", call)


def operator_side(
    operator: PlaceholderFunction,
    region: Region,
    constants: Mapping[str, torch.Tensor],
    outputs: Sequence[str],
) -> Side:
    """The operator called as it was where it left the region's placeholder.

    ``constants`` are the node's inputs that are not among those the side is called with, by name.
    """

    def call(given: Mapping[str, torch.Tensor]) -> list[torch.Tensor | None]:
        arguments = arguments_of(operator, region.node, {**constants, **given})
        made = operator(*operator.parameters.bind((), arguments).values())
        return _by_position(flatten(made, operator.qualified_name), outputs)

    name = f"the backward of {operator.qualified_name}" if operator.has_backward else operator.qualified_name
    return Side(name, call)


def _by_position(made: Any, outputs: Sequence[str]) -> list[torch.Tensor | None]:
    found = list(made) if isinstance(made, (tuple, list)) else [made]
    return [
        torch.as_tensor(found[at]) if name and at < len(found) and found[at] is not None else None
        for at, name in enumerate(outputs)
    ]


def written_by_hand(side: Side, point: Point) -> tuple[list[str], str]:
    """Whose backward functions are behind the side's results, and why they are no derivatives where that is so.

    Both are empty where autograd does it all.
    """
    given = {
        name: value.clone().requires_grad_(name in point.moving) for name, value in point.tensors.items()
    }
    try:
        with torch.enable_grad():
            nodes = custom_backwards(side.call(given))
    except Exception as error:
        raise Raised(error, backward=False) from error
    names: list[str] = []
    surrogates: list[str] = []
    for node in nodes:
        operator = getattr(getattr(node, "application", None), "operator", None)
        if operator is None:
            names.append(type(node).__name__.removesuffix("Backward"))
            continue
        names.append(operator.qualified_name)
        if operator.surrogate:
            surrogates.append(f"{operator.qualified_name}: {operator.surrogate}")
    return list(dict.fromkeys(names)), "; ".join(dict.fromkeys(surrogates))
