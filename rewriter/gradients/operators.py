"""The operators that training called for the placeholders of a file: where they are found, and how they are called."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from onnx import AttributeProto, helper

from rewriter.errors import UsageError
from rewriter.placeholder.discovery import load_module
from rewriter.torch.operator import PlaceholderFunction

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import ModuleType

    import torch
    from onnx import NodeProto

    from rewriter.placeholder.contract import Placeholder


class Operators:
    """Operators made by ``rewriter.torch.placeholder``, by their qualified names.

    ``items`` are operators, Python files and import paths of modules that define them.  UsageError where two of one
    name are given, or a module has none.
    """

    def __init__(self, items: Iterable[str | PlaceholderFunction] = ()) -> None:
        self._given: dict[str, PlaceholderFunction] = {}
        for item in items:
            if isinstance(item, PlaceholderFunction):
                self._add(item)
                continue
            found = _in_module(load_module(item))
            if not found:
                raise UsageError(
                    "no operator is defined in it",
                    where=item,
                    remedy="name the file in which functions are decorated with @rewriter.torch.placeholder",
                )
            for operator in found:
                self._add(operator)

    def _add(self, operator: PlaceholderFunction) -> None:
        name = operator.qualified_name
        if self._given.setdefault(name, operator) is not operator:
            raise UsageError(f"two operators are called '{name}'", remedy="give one of them another name")

    @property
    def given(self) -> tuple[PlaceholderFunction, ...]:
        return tuple(self._given.values())

    def find(self, qualified: str, placeholder: Placeholder) -> PlaceholderFunction | None:
        """The operator of that name: one that was given, else one in the module of the pass."""
        if qualified in self._given:
            return self._given[qualified]
        module = sys.modules.get(type(placeholder).__module__)
        found = [] if module is None else _in_module(module)
        return next((operator for operator in found if operator.qualified_name == qualified), None)


def _in_module(module: ModuleType) -> list[PlaceholderFunction]:
    found = [member for member in vars(module).values() if isinstance(member, PlaceholderFunction)]
    return list(dict.fromkeys(found))


def arguments_of(
    operator: PlaceholderFunction, node: NodeProto, tensors: Mapping[str, torch.Tensor]
) -> dict[str, Any]:
    """What ``operator`` was called with where it left ``node``; ``tensors`` are the node's inputs by value name.

    Attributes have the names of parameters; the inputs are the tensors among the others, in the function's order.
    UsageError where they do not fit.
    """
    attributes = {attribute.name: _plain(attribute) for attribute in node.attribute}
    names = list(operator.parameters.signature.parameters)
    unknown = [name for name in attributes if name not in names]
    if unknown:
        raise _misfit(operator, f"it has no parameter '{unknown[0]}'")
    free = [name for name in names if name not in attributes]
    if len(free) > len(node.input):
        # None and empty lists are no attributes, and have no input either.
        free = [name for name in free if _takes_input(operator, name)]
    if len(node.input) > len(free):
        raise _misfit(operator, f"the node has {len(node.input)} inputs, the function {len(free)} tensors")
    found: dict[str, Any] = dict(attributes)
    for name, value in zip(free, node.input, strict=False):
        if value:
            found[name] = tensors[value]
        elif operator.parameters.is_tensor(name):
            found[name] = None
    return {name: found[name] for name in names if name in found}


def _takes_input(operator: PlaceholderFunction, name: str) -> bool:
    parameters = operator.parameters
    return parameters.is_tensor(name) or (
        not parameters.annotation(name) and parameters.default(name) is parameters.signature.empty
    )


def _misfit(operator: PlaceholderFunction, what: str) -> UsageError:
    return UsageError(
        f"the operator {operator.qualified_name} is not the one that left this node: {what}",
        remedy="give the operator that the model was exported with",
    )


def _plain(attribute: AttributeProto) -> Any:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode()
    if attribute.type in (AttributeProto.INTS, AttributeProto.FLOATS, AttributeProto.STRINGS):
        return [item.decode() if isinstance(item, bytes) else item for item in value]
    return value
