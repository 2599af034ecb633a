"""When a gap of a profile concerns a node: values of attributes, ranks and dtypes, inputs that must be constant."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onnx import TensorProto, defs, helper

from rewriter.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onnx import AttributeProto

    from rewriter.types import TensorType

_KEYS = ("attribute", "is", "not", "input", "output", "rank", "dtype", "constant", "given", "scan_outputs")


def _unknown(_: int) -> Any:
    return None


@dataclass(frozen=True)
class Use:
    """One node, as far as it is known: a type or whether an input is constant may be None."""

    op_type: str
    version: int
    attributes: Mapping[str, AttributeProto]
    inputs: tuple[bool, ...]
    outputs: tuple[bool, ...]
    type_of: Callable[[int], TensorType | None] = _unknown
    is_constant: Callable[[int], bool | None] = _unknown


@dataclass(frozen=True)
class Condition:
    """All that is given must hold.  What is not known of a node does not hold."""

    attribute: str | None = None
    #: The values that the attribute has, or has not.
    among: tuple[Any, ...] | None = None
    besides: tuple[Any, ...] | None = None
    input: int | None = None
    output: int | None = None
    ranks: tuple[int, ...] | None = None
    dtypes: tuple[str, ...] | None = None
    #: The input is not a constant.
    computed: bool = False
    #: A Loop gives more than what it carries.
    scan_outputs: bool = False
    _text: str = field(default="", compare=False)

    @classmethod
    def read(cls, data: Any, key: str, where: str) -> Condition:
        """What ``data``, the value of ``key``, says; UsageError that names what is wrong in it."""
        if not isinstance(data, dict) or not data:
            raise _wrong(where, key, data, 'write a table, such as {attribute = "mode", is = ["cubic"]}')
        for name in data:
            if name not in _KEYS:
                raise _wrong(where, f"{key}.{name}", data[name], f"the keys are {', '.join(_KEYS)}")
        if "attribute" in data and ("is" in data) == ("not" in data):
            raise _wrong(where, f"{key}.attribute", data["attribute"], "give either 'is' or 'not', a list")
        if ("rank" in data or "dtype" in data or "constant" in data) and "input" not in data:
            raise _wrong(where, key, data, "say of which 'input' it is, by its number")
        if data.get("constant") is True:
            raise _wrong(where, f"{key}.constant", True, "only false is a gap: the input must be constant")
        for name, kind in (("is", list), ("not", list), ("rank", list), ("dtype", list), ("attribute", str)):
            if name in data and not isinstance(data[name], kind):
                raise _wrong(where, f"{key}.{name}", data[name], f"write a {kind.__name__}")
        for name in ("input", "output"):
            if name in data and (not isinstance(data[name], int) or data[name] < 0):
                raise _wrong(where, f"{key}.{name}", data[name], "write its number, from 0")
        for dtype in data.get("dtype", ()):
            if str(dtype).upper() not in TensorProto.DataType.keys():  # noqa: SIM118  (an enum of protobuf)
                raise _wrong(where, f"{key}.dtype", dtype, "write float, float16, double, int64, …")
        return cls(
            data.get("attribute"),
            tuple(data["is"]) if "is" in data else None,
            tuple(data["not"]) if "not" in data else None,
            data.get("input"),
            data.get("output"),
            tuple(data["rank"]) if "rank" in data else None,
            tuple(str(item).lower() for item in data["dtype"]) if "dtype" in data else None,
            data.get("constant") is False,
            bool(data.get("scan_outputs")),
            _told(data),
        )

    def holds(self, use: Use) -> bool:
        """Whether it holds of ``use``."""
        return (
            self._attribute_holds(use)
            and self._input_holds(use)
            and (self.output is None or (self.output < len(use.outputs) and use.outputs[self.output]))
            and (not self.scan_outputs or len(use.outputs) > max(0, len(use.inputs) - 2))
        )

    def _attribute_holds(self, use: Use) -> bool:
        if self.attribute is None:
            return True
        value = _value(use, self.attribute)
        if self.among is not None:
            return value in self.among
        return value is not None and value not in (self.besides or ())

    def _input_holds(self, use: Use) -> bool:
        if self.input is None:
            return True
        if self.input >= len(use.inputs) or not use.inputs[self.input]:
            return False
        known = use.type_of(self.input) if self.ranks is not None or self.dtypes is not None else None
        if self.ranks is not None and (known is None or known.rank is None or known.rank not in self.ranks):
            return False
        if self.dtypes is not None and (
            known is None or TensorProto.DataType.Name(known.dtype).lower() not in self.dtypes
        ):
            return False
        return not self.computed or use.is_constant(self.input) is False

    def __str__(self) -> str:
        return self._text


def _value(use: Use, name: str) -> Any:
    """The attribute's value, the default of its schema included; strings as text."""
    found: Any = None
    if name in use.attributes:
        found = helper.get_attribute_value(use.attributes[name])
    elif defs.has(use.op_type, use.version, ""):
        declared = defs.get_schema(use.op_type, use.version, "").attributes.get(name)
        if declared is not None and declared.default_value.name:
            found = helper.get_attribute_value(declared.default_value)
    return found.decode("utf-8", "replace") if isinstance(found, bytes) else found


def _told(data: Mapping[str, Any]) -> str:
    """The condition in words, to come after "with"."""
    if data.get("scan_outputs"):
        return "scan outputs"
    parts = []
    if "attribute" in data:
        values = ", ".join(map(str, data.get("is", data.get("not"))))
        parts.append(f"{data['attribute']} {'' if 'is' in data else 'other than '}{values}")
    if "input" in data:
        words = []
        if "rank" in data:
            words.append(f"of rank {', '.join(map(str, data['rank']))}")
        if "dtype" in data:
            words.append(f"of {', '.join(data['dtype'])}")
        if "constant" in data:
            words.append("that is not constant")
        parts.append(" ".join([f"input {data['input']}", *words]))
    if "output" in data:
        parts.append(f"output {data['output']}")
    return " and ".join(parts)


def _wrong(where: str, key: str, value: Any, remedy: str) -> UsageError:
    return UsageError(f"{where}: '{key}' cannot be {value!r}", remedy=remedy)
