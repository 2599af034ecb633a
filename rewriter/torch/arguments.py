"""One call of an operator, split the way ONNX splits it: tensors are inputs, the rest attributes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rewriter.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

Attribute = int | float | str | list[int] | list[float] | list[str]


class Parameters:
    """The parameters of an operator's Python function, and what its annotations say of them.

    Annotations are read as text, so that names imported for the type checker only, or not at all, do no harm.
    """

    def __init__(self, function: Any, operator: str) -> None:
        self.signature = inspect.signature(function)
        self.operator = operator
        for parameter in self.signature.parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise UsageError(
                    f"parameter '{parameter}' is any number of arguments, which an operator does not have",
                    where=operator,
                    remedy="name each of them",
                )

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by parameter name, defaults filled in; TypeError as Python itself raises it."""
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)

    def annotation(self, name: str) -> str:
        annotation = self.signature.parameters[name].annotation
        return "" if annotation is inspect.Parameter.empty else inspect.formatannotation(annotation)

    def default(self, name: str) -> Any:
        return self.signature.parameters[name].default

    def is_tensor(self, name: str) -> bool:
        return re.search(r"\bTensor\b", self.annotation(name)) is not None

    def is_float(self, name: str) -> bool:
        text = self.annotation(name)
        return re.search(r"\bfloat\b", text) is not None and re.search(r"\bint\b", text) is None

    def is_list(self, name: str) -> bool:
        """Whether it is a list and nothing but a list, so that a single number means a list of one."""
        text = re.sub(r"\|\s*None|\bOptional\b|\bNoneType\b", "", self.annotation(name))
        members = re.sub(r"\[[^\[\]]*\]", "", text.replace("typing.Union", "")).strip(" []").split("|")
        return all(re.search(r"([Ll]ist|[Tt]uple|Sequence|Size)\b", member) for member in members)


@dataclass(frozen=True)
class Call:
    """What an operator is called with.

    ``arguments`` are the function's own; ``inputs`` names the parameters that are ONNX inputs, in order, and
    ``attributes`` holds the others that are present.
    """

    arguments: dict[str, Any]
    inputs: dict[str, torch.Tensor | None]
    attributes: dict[str, Attribute]

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """The inputs that are given."""
        return {name: value for name, value in self.inputs.items() if value is not None}


def split(parameters: Parameters, arguments: dict[str, Any]) -> Call:
    """Sort ``arguments`` into inputs and attributes; UsageError for what neither can carry."""
    inputs: dict[str, torch.Tensor | None] = {}
    attributes: dict[str, Attribute] = {}
    undecided: list[str] = []
    for name, value in arguments.items():
        tensor = value if isinstance(value, torch.Tensor) else _computed(value)
        if tensor is not None or (value is None and parameters.is_tensor(name)):
            if tensor is not None and undecided:
                raise UsageError(
                    f"parameter '{undecided[0]}' is None and has no annotation: it could be an omitted input "
                    f"before '{name}' or an absent attribute",
                    where=parameters.operator,
                    remedy=f"annotate it, as in '{undecided[0]}: torch.Tensor | None'",
                )
            inputs[name] = tensor
        elif _is_absent(parameters, name, value):
            if value is None and not parameters.annotation(name):
                undecided.append(name)
        else:
            attributes[name] = _attribute(parameters, name, value)
    while inputs and next(reversed(inputs.values())) is None:
        inputs.popitem()
    return Call(arguments, inputs, attributes)


def _computed(value: Any) -> torch.Tensor | None:
    """``value`` as an int64 tensor where a size of the traced model enters it: no attribute could hold it."""
    if isinstance(value, torch.SymInt):
        return _scalar_tensor(value)
    if isinstance(value, (list, tuple)) and any(
        isinstance(item, (torch.SymInt, torch.Tensor)) for item in value
    ):
        if not all(isinstance(item, (int, torch.SymInt)) or _is_index(item) for item in value):
            return None
        return torch.stack(
            [
                item.to(torch.int64) if isinstance(item, torch.Tensor) else _scalar_tensor(item)
                for item in value
            ]
        )
    return None


def _scalar_tensor(value: int | torch.SymInt) -> torch.Tensor:
    # torch's annotations do not know that it takes symbolic sizes.
    return torch.scalar_tensor(value, dtype=torch.int64)  # type: ignore[arg-type]


def _is_index(item: Any) -> bool:
    return (
        isinstance(item, torch.Tensor)
        and item.ndim == 0
        and not item.is_floating_point()
        and not item.is_complex()
    )


def _is_absent(parameters: Parameters, name: str, value: Any) -> bool:
    """Whether ``value`` is written by leaving the attribute out: None and the empty list have no ONNX
    attribute.

    Whoever reads the node then takes the parameter's default, so a default that means something else is
    refused.
    """
    if value is not None and not (
        isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 0
    ):
        return False
    default = parameters.default(name)
    if default is inspect.Parameter.empty or default is None or default == value:
        return True
    if isinstance(default, Sequence) and len(default) == 0:
        return True
    raise UsageError(
        f"parameter '{name}' is {value!r}, which ONNX writes by leaving the attribute out; left out it is "
        f"{default!r}",
        where=parameters.operator,
        remedy=f"give '{name}' the default None or (), and its meaning inside the function",
    )


def _attribute(parameters: Parameters, name: str, value: Any) -> Attribute:
    if parameters.is_list(name) and not isinstance(value, (str, Sequence, np.ndarray)):
        value = [value]
    as_float = parameters.is_float(name)
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, Sequence) and not isinstance(value, str):
        items = [_scalar(parameters, name, item, as_float) for item in value]
        kinds = {type(item) for item in items}
        if kinds == {int, float}:
            return [float(item) for item in items]
        if len(kinds) != 1:
            raise _refused(parameters, name, value, "holds both text and numbers")
        return items  # type: ignore[return-value]
    return _scalar(parameters, name, value, as_float)


def _scalar(parameters: Parameters, name: str, value: Any, as_float: bool) -> int | float | str:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (bool, int)):
        return float(value) if as_float else int(value)
    if isinstance(value, (float, str)):
        return value
    if isinstance(value, (torch.SymFloat, torch.SymBool)):
        raise _refused(parameters, name, value, "depends on a dynamic size")
    raise _refused(parameters, name, value, f"is a {type(value).__name__}")


def _refused(parameters: Parameters, name: str, value: Any, why: str) -> UsageError:
    return UsageError(
        f"parameter '{name}' ({value!r}) {why}, which no ONNX attribute holds",
        where=parameters.operator,
        remedy="pass a tensor, an int, float, bool, str, or a list of one of these",
    )
