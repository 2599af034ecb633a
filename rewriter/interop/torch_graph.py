"""The graph that a `torch.onnx` symbolic is handed: ``g.op`` records through the builder of the pass."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import AttributeProto, TensorProto, defs, numpy_helper

from rewriter.errors import DecompositionFault, UnsupportedAtOpset, Where
from rewriter.interop import attributes as attrs
from rewriter.interop.torch_values import TorchNode, TorchValue, is_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rewriter.placeholder.builder import Builder
    from rewriter.placeholder.value import Value

_SUFFIX = re.compile(r"^(.+)_(is|fs|ss|ts|[ifstz])$")
_SUPPORTED = (
    "supported: g.op, g.opset, x.type() with sizes(), dim(), scalarType(), x.node() with kind(), x.setType(), and "
    "those functions of symbolic_helper that need no more"
)
_FLOATING = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)


class TorchGraph:
    """What a symbolic calls ``g``: it records through the builder of the pass."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder

    @property
    def opset(self) -> int:
        return self._builder.opset

    @property
    def where(self) -> Where:
        return self._builder.where

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
            f"{what} is not supported in a symbolic used as a pass", where=self.where, remedy=remedy
        )

    def fault(self, what: str, remedy: str | None = None) -> DecompositionFault:
        return DecompositionFault(what, where=self.where, remedy=remedy)

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
            if not is_value(item) and item is not None and not hasattr(item, "detach"):
                raise self.fault(
                    f"input {position} of {op_type} is a {type(item).__name__}, not a value",
                    'make a constant of it: g.op("Constant", value_t=torch.tensor(…, dtype=…))',
                )
        made: list[Value | None] = []
        for position, item in enumerate(raw_args):
            if item is None or (is_value(item) and item.omitted):
                made.append(None)
            elif is_value(item):
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
            if index != position and variable(index) == variable(position) and is_value(item):
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
        if is_value(value):
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
                if is_value(item):
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
                where=self.where,
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
