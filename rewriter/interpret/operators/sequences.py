"""Sequences, as lists, and optionals, as the value or None."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rewriter.interpret.registry import Kernels

if TYPE_CHECKING:
    from rewriter.interpret.call import Call

KERNELS = Kernels()


@KERNELS.operator("SequenceEmpty")
def sequence_empty(_: Call) -> list[Any]:
    return []


@KERNELS.operator("SequenceConstruct")
def sequence_construct(_: Call, *items: Tensor) -> list[Tensor]:
    return list(items)


@KERNELS.operator("SequenceInsert")
def sequence_insert(call: Call, items: list[Any], item: Any, position: Tensor | None = None) -> list[Any]:
    at = len(items) if position is None else int(position.item())
    if not -len(items) <= at <= len(items):
        raise call.refused(f"position {at} in a sequence of {len(items)}")
    made = list(items)
    made.insert(at, item)
    return made


@KERNELS.operator("SequenceErase")
def sequence_erase(_: Call, items: list[Any], position: Tensor | None = None) -> list[Any]:
    made = list(items)
    made.pop(-1 if position is None else int(position.item()))
    return made


@KERNELS.operator("SequenceAt")
def sequence_at(_: Call, items: list[Any], position: Tensor) -> Any:
    return items[int(position.item())]


@KERNELS.operator("SequenceLength")
def sequence_length(_: Call, items: list[Any]) -> Tensor:
    return torch.tensor(len(items), dtype=torch.int64)


@KERNELS.operator("ConcatFromSequence")
def concat_from_sequence(call: Call, items: list[Tensor]) -> Tensor:
    return torch.stack(items, call["axis"]) if call["new_axis"] else torch.cat(items, call["axis"])


@KERNELS.operator("SplitToSequence")
def split_to_sequence(call: Call, x: Tensor, split: Tensor | None = None) -> list[Tensor]:
    """One by one (the axis then kept or not), in chunks of a size, or in given sizes."""
    axis = call["axis"]
    if split is None:
        parts = torch.split(x, 1, axis)
        return [part if call["keepdims"] else part.squeeze(axis) for part in parts]
    return list(torch.split(x, split.tolist() if split.ndim else int(split.item()), axis))


@KERNELS.operator("Optional")
def optional(_: Call, value: Any = None) -> Any:
    return value


@KERNELS.operator("OptionalHasElement")
def optional_has_element(_: Call, value: Any = None) -> Tensor:
    return torch.tensor(value is not None)


@KERNELS.operator("OptionalGetElement")
def optional_get_element(call: Call, value: Any) -> Any:
    if value is None:
        raise call.refused("the optional is empty")
    return value
