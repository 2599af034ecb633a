"""A standard operator as forms and passes are told of it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onnx import defs, helper

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnx import AttributeProto

    from rewriter.placeholder.value import Value
    from rewriter.types import TensorType


@functools.cache
def default(op_type: str, version: int, name: str) -> Any:
    """The default of an attribute at an opset; None where it has none."""
    found = defs.get_schema(op_type, version, "").attributes.get(name)
    if found is None or not found.default_value.type:
        return None
    return helper.get_attribute_value(found.default_value)


@dataclass(frozen=True)
class Call:
    """One operator that is to be written: what a form is told."""

    op_type: str
    #: The opset in which it is meant.
    version: int
    inputs: tuple[Value | None, ...]
    outputs: int
    #: As given, by name.
    attributes: Mapping[str, AttributeProto]
    #: Types of the results, as far as inference tells.
    types: tuple[TensorType | None, ...]
    #: Why the target does not take it as it is.
    reason: str
    #: Which results are read; all where empty.
    wanted: tuple[bool, ...] = ()

    def input(self, index: int) -> Value | None:
        """The input at ``index``; None where it is left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    @property
    def x(self) -> Value:
        """The first input, which every operator that a form takes has."""
        found = self.inputs[0]
        assert found is not None
        return found

    def has(self, name: str) -> bool:
        """Whether the attribute is written on the node."""
        return name in self.attributes

    def get(self, name: str, otherwise: Any = None) -> Any:
        """The attribute's value, or its default at the operator's version, or ``otherwise``; text as ``str``."""
        if name in self.attributes:
            value = helper.get_attribute_value(self.attributes[name])
        else:
            value = default(self.op_type, self.version, name)
        if value is None:
            return otherwise
        return value.decode() if isinstance(value, bytes) else value

    def given(self, *without: str) -> dict[str, Any]:
        """The attributes that are written, but those named."""
        return {name: value for name, value in self.attributes.items() if name not in without}

    def uses(self, index: int) -> bool:
        """Whether the result at ``index`` is read."""
        return index < self.outputs and (not self.wanted or (index < len(self.wanted) and self.wanted[index]))

    def known(self, index: int) -> Any:
        """The input at ``index``: its numbers where they are known, else the value."""
        value = self.input(index)
        return (
            value if value is None or value.constant is None else tuple(value.constant.reshape(-1).tolist())
        )

    def number(self, index: int, otherwise: Any = None) -> Any:
        """The input at ``index``, of one element: its number where it is known, else the value."""
        value = self.input(index)
        if value is None:
            return otherwise
        return value if value.constant is None else value.constant.reshape(-1)[0].item()
