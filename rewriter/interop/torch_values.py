# ruff: noqa: N802  (the names are torch's)
"""The values, nodes and graph that a `torch.onnx` symbolic is handed.

They answer as torch's own do, so that `torch.onnx.symbolic_helper` works on them unchanged and nothing in torch has
to be patched: it asks ``isinstance(x, torch._C.Value)``, which Python answers by ``x.__class__``.  Whatever is not
listed here is refused, never guessed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import AttributeProto, TensorProto, defs, numpy_helper

from rewriter.errors import DecompositionFault, UnsupportedAtOpset
from rewriter.interop import attributes as attrs
from rewriter.interop.torch_types import TorchType
from rewriter.placeholder.value import Value
from rewriter.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rewriter.placeholder.builder import Builder

_SUFFIX = re.compile(r"^(.+)_(is|fs|ss|ts|[ifstz])$")
_SUPPORTED = (
    "supported: g.op, g.opset, x.type() with sizes(), dim(), scalarType(), x.node() with kind(), x.setType(), and "
    "those functions of symbolic_helper that need no more"
)


class PythonUse(DecompositionFault, TypeError):  # noqa: N818  (a refusal, and the TypeError that torch would raise)
    """A constant argument, handed over as a value, was used as a Python number or list."""


class TorchGraph:
    """What a symbolic calls ``g``: it records through the builder of the pass."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder

    @property
    def opset(self) -> int:
        return self._builder.opset

    def op(self, opname: str, *raw_args: Any, outputs: int = 1, **attributes: Any) -> Any:
        """One operator, as ``GraphContext.op`` makes it; a value, or a tuple of ``outputs`` of them."""
        domain, _, op_type = opname.rpartition("::")
        domain = "" if domain in ("onnx", "ai.onnx") else domain
        if domain == "prim":
            if op_type == "Constant" and not raw_args and not attributes:
                return TorchValue(self, None, TorchNode(self, opname, (), ()), omitted=True)
            raise self.refuse(f"g.op('{opname}')")
        made = [
            self._attribute(op_type, key, value) for key, value in attributes.items() if value is not None
        ]
        attrs.check_types(self._builder, op_type, domain, made)
        if op_type == "Constant" and not domain:
            return self._constant(made)
        inputs = self._inputs(op_type, domain, raw_args)
        # The suffix is the builder's business as well: it takes one off.
        named = {f"{attribute.name}_t": attribute for attribute in made}
        results = self._builder.op(op_type, *inputs, outputs=outputs, domain=domain, **named)
        node = TorchNode(self, f"{domain or 'onnx'}::{op_type}", made, raw_args)
        values = tuple(TorchValue(self, value, node) for value in (results if outputs != 1 else (results,)))
        node.results = values
        return values[0] if outputs == 1 else values

    def refuse(self, what: str, remedy: str = _SUPPORTED) -> DecompositionFault:
        return DecompositionFault(
            f"{what} is not supported in a symbolic used as a pass", where=self._builder.where, remedy=remedy
        )

    def fault(self, what: str, remedy: str | None = None) -> DecompositionFault:
        return DecompositionFault(what, where=self._builder.where, remedy=remedy)

    def argument(self, value: Value) -> TorchValue:
        """A tensor argument of the operator."""
        if value.constant is None:
            return TorchValue(self, value, TorchNode(self, "prim::Param", (), ()))
        return TorchValue(
            self, value, self._constant_node(numpy_helper.from_array(np.asarray(value.constant)))
        )

    def literal(self, value: Any) -> TorchValue:
        """A number, string or list among the arguments, as `register_custom_op_symbolic` hands it over."""
        if isinstance(value, str):
            node = TorchNode(self, "onnx::Constant", (attrs.make("value", AttributeProto.STRING, value),), ())
            return TorchValue(self, None, node, value)
        if isinstance(value, (list, tuple)) and any(isinstance(item, str) for item in value):
            raise self.fault("a list of strings has no constant value", 'declare constants="python"')
        # As torch: numbers are int64 and float64 until they meet a tensor.
        array = np.asarray(value)
        if array.size == 0:
            array = array.astype(np.int64)
        return TorchValue(self, None, self._constant_node(numpy_helper.from_array(array)), value)

    def builder_value(self, value: TorchValue, dtype: int | None = None) -> Value:
        """The value in the builder; a number among the arguments takes ``dtype``."""
        known = value.result
        if known is not None:
            return known
        literal = value.literal
        if isinstance(literal, str):
            raise self.fault("a string is used as a tensor")
        array = np.asarray(literal)
        if array.dtype.kind == "f":
            return self._builder.const(array, dtype if dtype in _FLOATING else TensorProto.FLOAT)
        if array.dtype.kind == "b":
            return self._builder.const(array)
        return self._builder.const(array, dtype if dtype is not None else TensorProto.INT64)

    # --- inside ---------------------------------------------------------------------------------------------

    def _inputs(self, op_type: str, domain: str, raw_args: Sequence[Any]) -> list[Value | None]:
        for position, item in enumerate(raw_args):
            if not _is_value(item) and item is not None and not hasattr(item, "detach"):
                raise self.fault(
                    f"input {position} of {op_type} is a {type(item).__name__}, not a value",
                    'make a constant of it: g.op("Constant", value_t=torch.tensor(…, dtype=…))',
                )
        made: list[Value | None] = []
        for position, item in enumerate(raw_args):
            if item is None or (_is_value(item) and item.omitted):
                made.append(None)
            elif _is_value(item):
                if item.graph is not self:
                    raise self.fault(f"input {position} of {op_type} belongs to another graph")
                made.append(self.builder_value(item, self._dtype_beside(op_type, domain, position, raw_args)))
            else:
                made.append(self._builder.const(attrs.tensor(item)))
        return made

    def _dtype_beside(self, op_type: str, domain: str, position: int, raw_args: Sequence[Any]) -> int | None:
        """Element type of the other tensors that have to have the same one, by the operator's schema."""
        if domain or not defs.has(op_type, self.opset, ""):
            return None
        formal = defs.get_schema(op_type, self.opset, "").inputs
        if not formal:
            return None

        def variable(index: int) -> str:
            return str(formal[min(index, len(formal) - 1)].type_str)

        for index, item in enumerate(raw_args):
            if index != position and variable(index) == variable(position) and _is_value(item):
                known = item.result
                if known is not None and known.type is not None:
                    return int(known.type.dtype)
        return None

    def _attribute(self, op_type: str, key: str, value: Any) -> AttributeProto:
        match = _SUFFIX.match(key)
        if match is None:
            raise self.fault(
                f"attribute '{key}' of {op_type} has no type suffix",
                "write e.g. axis_i, alpha_f, mode_s, value_t, axes_i=[…]",
            )
        name, kind = match[1], attrs.SUFFIXES[match[2]]
        if _is_value(value):
            if value.literal is None:
                raise self.fault(
                    f"attribute '{name}' of {op_type} is given a value that is not known",
                    "unwrap it, or make it a parameter",
                )
            raise value.python_use(f"attribute '{name}' of {op_type}")
        if (
            isinstance(value, (list, tuple, np.ndarray))
            and kind in attrs.PLURAL
            and kind != AttributeProto.TENSOR
        ):
            for item in value:
                if _is_value(item):
                    raise item.python_use(f"attribute '{name}' of {op_type}")
            kind = attrs.PLURAL[kind]
        try:
            return attrs.make(name, kind, value)
        except (TypeError, ValueError) as error:
            raise self.fault(f"attribute '{name}' of {op_type}: {error}") from error

    def _constant(self, made: Sequence[AttributeProto]) -> TorchValue:
        known = defs.get_schema("Constant", self.opset, "").attributes
        if len(made) != 1:
            raise self.fault(f"Constant takes one attribute, {len(made)} are given")
        attribute = made[0]
        if attribute.name not in known:
            raise UnsupportedAtOpset(
                f"Constant has no attribute '{attribute.name}' at opset {self.opset}",
                where=self._builder.where,
                remedy="write value_t=torch.tensor(…)",
            )
        value = attrs.constant_of(self._builder, attribute)
        if value is None:
            raise self.refuse(f"Constant with '{attribute.name}'")
        return TorchValue(
            self, value, self._constant_node(numpy_helper.from_array(np.asarray(value.constant)))
        )

    def _constant_node(self, tensor: TensorProto) -> TorchNode:
        return TorchNode(self, "onnx::Constant", (attrs.make("value", AttributeProto.TENSOR, tensor),), ())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self.refuse(f"g.{name}")


_FLOATING = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)


class TorchNode:
    """Answers as the ``torch._C.Node`` that made a value."""

    __slots__ = ("_attributes", "_graph", "_inputs", "_kind", "results")

    def __init__(
        self, graph: TorchGraph, kind: str, attributes: Sequence[AttributeProto], inputs: Sequence[Any]
    ) -> None:
        self._graph = graph
        self._kind = kind
        self._attributes = {attribute.name: attribute for attribute in attributes}
        self._inputs = inputs
        self.results: tuple[TorchValue, ...] = ()

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        from torch import _C

        return _C.Node

    def kind(self) -> str:
        return self._kind

    def mustBeNone(self) -> bool:
        return self._kind == "prim::Constant"

    def kindOf(self, name: str) -> str:
        kind = self._get(name).type
        return next(suffix for suffix, known in attrs.SUFFIXES.items() if known == kind)

    def hasAttribute(self, name: str) -> bool:
        return name in self._attributes

    def attributeNames(self) -> list[str]:
        return list(self._attributes)

    def i(self, name: str) -> int:
        return int(self._get(name).i)

    def f(self, name: str) -> float:
        return float(self._get(name).f)

    def s(self, name: str) -> str:
        return self._get(name).s.decode("utf-8", "surrogateescape")

    def t(self, name: str) -> Any:
        """The attribute as a ``torch.Tensor``."""
        from rewriter.verify.values import to_torch

        return to_torch(numpy_helper.to_array(self._get(name).t))

    def inputs(self) -> list[Any]:
        return list(self._inputs)

    def outputs(self) -> list[TorchValue]:
        return list(self.results)

    def output(self) -> TorchValue:
        return self.results[0]

    def sourceRange(self) -> str:
        return ""

    def _get(self, name: str) -> AttributeProto:
        if name not in self._attributes:
            raise self._graph.fault(f"the node '{self._kind}' has no attribute '{name}'")
        return self._attributes[name]

    def __str__(self) -> str:
        return self._kind

    def __getattr__(self, name: str) -> Any:
        if name == "is":
            return lambda key: list(self._get(key).ints)
        if name == "fs":
            return lambda key: list(self._get(key).floats)
        if name.startswith("__"):
            raise AttributeError(name)
        raise self._graph.refuse(f"node().{name}")


class TorchValue:
    """Answers as a ``torch._C.Value``.

    One of: a value of the builder; a number, string or list among the operator's arguments (``literal``), which becomes
    a constant where an operator takes it; an optional input that is not given (``omitted``).
    """

    __slots__ = ("_node", "graph", "literal", "omitted", "result")

    def __init__(
        self,
        graph: TorchGraph,
        result: Value | None,
        node: TorchNode,
        literal: Any = None,
        *,
        omitted: bool = False,
    ) -> None:
        self.graph = graph
        self.result = result
        self.literal = literal
        self.omitted = omitted
        self._node = node

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        from torch import _C

        return _C.Value

    def node(self) -> TorchNode:
        return self._node

    def type(self) -> TorchType:
        return TorchType(self._type(), lambda what: self.graph.refuse(what))

    def debugName(self) -> str:
        return "" if self.result is None else self.result.name

    def isCompleteTensor(self) -> bool:
        known = self._type()
        return known is not None and known.is_static

    def setType(self, given: Any) -> TorchValue:
        """A claim about the type: held against what is known, and believed where nothing is."""
        if self.omitted:
            return self
        if type(given) is not TorchType:
            raise self.graph.refuse(
                f"setType({given})", "give it x.type(), also .with_sizes() or .with_dtype()"
            )
        claimed, known = given.known, self._type()
        if claimed is None or self.result is None:
            return self
        if known is not None and not _compatible(claimed, known):
            raise self.graph.fault(f"setType() says {claimed}, the value is {known}")
        if known is None or (known.shape is None and claimed.shape is not None):
            self.result = self.result.builder.retyped(
                Value(
                    self.result.builder, self.result.name, claimed, self.result.constant, self.result.sizes
                ),
                claimed.shape,
            )
        return self

    def _type(self) -> TensorType | None:
        if self.result is not None:
            return self.result.builder.values[self.result.name].type
        if self.literal is None or isinstance(self.literal, str):
            return None
        tensor = self._node._get("value").t
        return TensorType(tensor.data_type, tuple(tensor.dims))

    # --- what a tensor cannot do before the model runs --------------------------------------------------------

    def python_use(self, what: str) -> DecompositionFault:
        if self.literal is not None:
            return PythonUse(
                f"{what} takes a Python value, and this argument is given as a constant value",
                where=self.graph._builder.where,
                remedy='declare constants="python", or unwrap it with symbolic_helper.parse_args or _get_const',
            )
        return self.graph.fault(
            f"{what} takes a Python value, and a tensor is given",
            "unwrap a constant with symbolic_helper._get_const",
        )

    def __bool__(self) -> bool:
        if self.literal is not None:
            raise self.python_use("a condition")
        return not self.omitted

    def __eq__(self, other: object) -> bool:
        if _is_value(other) or other is None:
            return self is other
        raise self.python_use("a comparison")

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = object.__hash__

    def __str__(self) -> str:
        return "None" if self.omitted else self.debugName() or repr(self.literal)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self.graph.refuse(f"Value.{name}")


def _python_method(name: str, what: str) -> Any:
    def method(self: TorchValue, *_: Any) -> Any:
        raise self.python_use(what)

    method.__name__ = name
    return method


for _name in ("int", "float", "index", "iter", "len", "getitem", "contains"):
    setattr(TorchValue, f"__{_name}__", _python_method(f"__{_name}__", f"{_name}()"))
for _name in ("lt", "le", "gt", "ge"):
    setattr(TorchValue, f"__{_name}__", _python_method(f"__{_name}__", "a comparison"))
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    for _side in ("", "r"):
        setattr(TorchValue, f"__{_side}{_name}__", _python_method(f"__{_side}{_name}__", "arithmetic"))
for _name in ("neg", "abs", "round", "trunc"):
    setattr(TorchValue, f"__{_name}__", _python_method(f"__{_name}__", "arithmetic"))


def _is_value(item: Any) -> bool:
    # By type: `isinstance` would say what `__class__` pretends.
    return type(item) is TorchValue


def _compatible(a: TensorType, b: TensorType) -> bool:
    if a.dtype != b.dtype:
        return False
    if a.shape is None or b.shape is None:
        return True
    return len(a.shape) == len(b.shape) and all(
        not (isinstance(x, int) and isinstance(y, int)) or x == y
        for x, y in zip(a.shape, b.shape, strict=True)
    )
