"""The builder ``g`` that a decomposition is handed: it makes standard operators, and refuses what the opset lacks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import (
    AttributeProto,
    GraphProto,
    NodeProto,
    TensorProto,
    defs,
    helper,
    numpy_helper,
    shape_inference,
)

from rewriter.errors import DecompositionFault, UnsupportedAtOpset, UnsupportedParameter, Where
from rewriter.placeholder.legality import attribute_hint, check_counts, check_types, schema_of
from rewriter.placeholder.node_types import result_types
from rewriter.placeholder.operators import Operators
from rewriter.placeholder.value import Array, Scalar, Value
from rewriter.types import Dim, TensorType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Attribute suffixes as `torch.onnx` symbolics write them.
_SUFFIXES = ("_i", "_f", "_s", "_t", "_is", "_fs", "_ss", "_ts", "_g")

#: Operators that one decomposition may emit.
MAX_NODES = 20_000
#: Elements of constants that one decomposition may emit.
MAX_ELEMENTS = 1 << 25

#: What :meth:`Builder.mark` remembers.
Mark = tuple[int, int, int, dict[str, int], dict[str, Value], dict[tuple[int, tuple[int, ...], bytes], Value]]


class Builder(Operators):
    """Records the operators that replace one placeholder.

    It knows the opset and every value's dtype, rank and sizes.  ``g.op`` makes any operator as `torch.onnx` symbolics
    do; the methods of :class:`Operators` make the common ones and hide what differs between opsets.
    """

    def __init__(
        self,
        opset: int,
        *,
        ir_version: int = 8,
        where: Where | None = None,
        domains: Mapping[str, int] | None = None,
        wanted: Mapping[str, bool] | None = None,
    ) -> None:
        #: Version of the default domain.
        self.opset = opset
        self.where = where or Where()
        self.nodes: list[NodeProto] = []
        self.initializers: list[TensorProto] = []
        self.values: dict[str, Value] = {}
        #: What must hold of sizes that are not known here, for what was built to be right.
        self.conditions: list[str] = []
        #: Domains that this decomposition uses besides the default one.
        self.domains: dict[str, int] = dict(domains or {})
        self._wanted = dict(wanted or {})
        self._imports = [helper.make_opsetid("", opset)]
        self._ir_version = ir_version
        self._constants: dict[tuple[int, tuple[int, ...], bytes], Value] = {}
        self._counter = 0
        self._elements = 0

    # --- values ---------------------------------------------------------------------------------------------

    def input(self, name: str, type: TensorType | None, constant: Array | None = None) -> Value:  # noqa: A002
        """A value of the surrounding graph."""
        value = self.values.get(name)
        if value is None:
            sizes = _sizes_of(constant)
            value = self.values[name] = Value(self, name, type, constant, sizes)
        return value

    def wants(self, output: str) -> bool:
        """Whether the placeholder's result of that name is used."""
        return self._wanted.get(output, True)

    def const(self, value: Any, dtype: int | Value | None = None) -> Value:
        """A constant of ``dtype`` (a ``TensorProto.DataType``, or that of another value; by default numpy's own,
        where Python ints are int64 and Python floats must be given one)."""
        if isinstance(dtype, Value):
            dtype = dtype.dtype
        if isinstance(value, TensorProto):
            array = numpy_helper.to_array(value)
            dtype = value.data_type
        elif isinstance(value, np.ndarray) and dtype is None:
            array = value
            dtype = int(helper.np_dtype_to_tensor_dtype(array.dtype))
        else:
            if dtype is None:
                raw = np.asarray(value)
                if raw.dtype.kind == "f":
                    raise self.fault(
                        f"constant {value!r} needs a dtype", "write g.const(value, x) to take the dtype of x"
                    )
                dtype = int(helper.np_dtype_to_tensor_dtype(raw.dtype))
            array = np.asarray(value).astype(helper.tensor_dtype_to_np_dtype(dtype))
        if array.size > MAX_ELEMENTS:  # the table below holds its bytes
            self.afford(array.size)
        # Strings have no fixed-width bytes to compare by.
        key = (
            dtype,
            array.shape,
            array.tobytes() if array.dtype != object else repr(array.tolist()).encode(),
        )
        known = self._constants.get(key)
        if known is not None:
            return known
        self.afford(array.size)
        tensor = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name=self._fresh())
        tensor.data_type = dtype
        self.initializers.append(tensor)
        self._elements += array.size
        result = Value(self, tensor.name, TensorType(dtype, array.shape), array, _sizes_of(array))
        self.values[tensor.name] = self._constants[key] = result
        return result

    def ints(self, values: Sequence[int] | int) -> Value:
        """An int64 constant: 1-D from a sequence, 0-D from a number."""
        if not isinstance(values, int):
            self.afford(len(values))
        return self.const(np.asarray(values, dtype=np.int64))

    def afford(self, elements: int) -> None:
        """UnsupportedParameter where a table of ``elements`` is more than a decomposition may emit.

        To be called before the table is made, where a parameter or a size decides how large it is.
        """
        if self._elements + elements > MAX_ELEMENTS:
            raise UnsupportedParameter(
                f"the decomposition needs constants of {self._elements + elements} elements, "
                f"and may have {MAX_ELEMENTS}",
                where=self.where,
                remedy="a parameter or a size of the input is too large; check what the exporter wrote",
            )

    def retyped(
        self, value: Value, shape: Sequence[Dim] | None, sizes: tuple[Dim, ...] | None = None
    ) -> Value:
        """``value`` with a shape that is known better than inference could tell (symbolic sizes that stay)."""
        type_ = TensorType(value.dtype, None if shape is None else tuple(shape))
        better = Value(self, value.name, type_, value.constant, sizes or value.sizes)
        self.values[value.name] = better
        return better

    def declared(self, value: Value, type: TensorType) -> Value:  # noqa: A002
        """``value``, the result of another placeholder, with the type that it is known to have."""
        better = self.values[value.name] = Value(self, value.name, type, value.constant, value.sizes)
        return better

    # --- operators ------------------------------------------------------------------------------------------

    def op(
        self, op_type: str, *inputs: Value | None, outputs: int = 1, domain: str = "", **attributes: Any
    ) -> Any:
        """One operator; a :class:`Value`, or a tuple of them for ``outputs > 1``.

        ``op_type`` may be qualified (``"com.example::Roll"``: another placeholder).  Attribute names may carry the type
        suffix of `torch.onnx` symbolics (``axis_i=1``, ``value_t=…``); None leaves an attribute out.  Raises
        UnsupportedAtOpset where the opset lacks the operator or an attribute, DecompositionFault where the inputs do
        not fit it.
        """
        if "::" in op_type:
            domain, _, op_type = op_type.rpartition("::")
        if domain == "ai.onnx":
            domain = ""
        attrs = {_strip_suffix(k): _plain(v) for k, v in attributes.items() if v is not None}
        for position, item in enumerate(inputs):
            if item is not None and not isinstance(item, Value):
                raise self.fault(
                    f"input {position} of {op_type} is a {type(item).__name__}, not a value",
                    "make constants with g.const(value, dtype_or_value)",
                )
        if len(self.nodes) >= MAX_NODES:
            raise UnsupportedParameter(
                f"the decomposition needs more than {MAX_NODES} operators",
                where=self.where,
                remedy="a parameter or a size of the input is too large; check what the exporter wrote",
            )
        made = self.write(op_type, inputs, outputs, domain, attrs)
        return made[0] if outputs == 1 else made

    def write(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        outputs: int,
        domain: str,
        attrs: Mapping[str, Any],
    ) -> tuple[Value, ...]:
        """One operator whose arguments :meth:`op` has checked; its results."""
        node = NodeProto(op_type=op_type, domain=domain)
        node.input.extend(item.name if item is not None else "" for item in inputs)
        while node.input and not node.input[-1]:
            del node.input[-1]
        node.output.extend(self._fresh() for _ in range(outputs))
        schema = self._schema(op_type, domain)
        known = None if schema is None else schema.attributes
        for name in attrs:
            if known is not None and name not in known:
                raise UnsupportedAtOpset(
                    f"{op_type} has no attribute '{name}' at opset {self.opset}",
                    where=self.where,
                    remedy=attribute_hint(op_type, name, self.opset),
                )
        node.attribute.extend(attribute_of(name, value) for name, value in attrs.items())
        if schema is not None and op_type != "Constant":
            check_counts(schema, node, self.opset, self.where)
            check_types(schema, inputs, self.opset, self.where)
        types = {} if schema is None else self._types(schema, node, inputs)
        self.nodes.append(node)
        made = tuple(Value(self, name, types.get(name), *_known(node)) for name in node.output)
        self.values.update((value.name, value) for value in made)
        return made

    def binary(self, op_type: str, left: Value | Scalar, right: Value | Scalar) -> Value:
        """An arithmetic operator of two operands, of which a Python number takes the other's dtype."""
        if isinstance(left, Value):
            other = right if isinstance(right, Value) else self.const(right, left)
            result = self.op(op_type, left, other)
        else:
            assert isinstance(right, Value)
            result = self.op(op_type, self.const(left, right), right)
        assert isinstance(result, Value)
        return result

    def mark(self) -> Mark:
        """The state to :meth:`rewind` to, where a body is tried in one way and then in another."""
        return (
            len(self.nodes),
            len(self.initializers),
            self._counter,
            dict(self.domains),
            dict(self.values),
            dict(self._constants),
        )

    def rewind(self, mark: Mark) -> None:
        """Forget what was built since ``mark``."""
        nodes, initializers, self._counter, domains, values, constants = mark
        del self.nodes[nodes:], self.initializers[initializers:]
        self._elements = sum(math.prod(tensor.dims) for tensor in self.initializers)
        self.domains, self.values, self._constants = dict(domains), dict(values), dict(constants)

    def fresh_input(self, type: TensorType | None) -> Value:  # noqa: A002
        """In a :meth:`body`: an input of it (what an iteration of Loop or Scan is given)."""
        return self.input(self._fresh(), type)

    def subgraph(
        self, name: str, body: Builder, inputs: Sequence[Value], outputs: Sequence[Value]
    ) -> GraphProto:
        """What ``body`` built, as the body of an If, Loop or Scan; see :meth:`body`."""
        graph = GraphProto(name=name)
        graph.node.extend(body.nodes)
        graph.initializer.extend(body.initializers)
        for values, target in ((inputs, graph.input), (outputs, graph.output)):
            for value in values:
                if value.type is None:
                    raise value._unknown("type")
                target.add(name=value.name).type.CopyFrom(value.type.to_proto())
        return graph

    def body(self) -> Builder:
        """A builder for the body of an If, Loop or Scan that may read this one's values."""
        inner = Builder(self.opset, ir_version=self._ir_version, where=self.where)
        inner._counter = self._counter + 1_000_000 * (
            1 + sum(1 for n in self.nodes if n.op_type in ("If", "Loop", "Scan"))
        )
        inner.values = dict(self.values)
        return inner

    # --- inside ---------------------------------------------------------------------------------------------

    def fault(self, what: str, remedy: str | None = None) -> DecompositionFault:
        return DecompositionFault(what, where=self.where, remedy=remedy)

    def _fresh(self) -> str:
        name = f"%{self._counter}"
        self._counter += 1
        return name

    def _schema(self, op_type: str, domain: str) -> defs.OpSchema | None:
        if not domain:
            return schema_of(op_type, self.opset, self.where)
        version = self.domains.setdefault(domain, 1)
        return defs.get_schema(op_type, version, domain) if defs.has(op_type, version, domain) else None

    def _types(
        self, schema: defs.OpSchema, node: NodeProto, inputs: Sequence[Value | None]
    ) -> dict[str, TensorType | None]:
        try:
            return result_types(schema, node, inputs, self._imports, self._ir_version)
        except shape_inference.InferenceError as error:
            reason = " ".join(str(error).split())
            raise self.fault(f"{node.op_type} does not fit its inputs: {reason}") from error


def _known(node: NodeProto) -> tuple[Array | None, tuple[Dim, ...] | None]:
    """What is known of the result's elements: constants, and lists of sizes."""
    if node.op_type == "Constant":
        attribute = node.attribute[0]
        value = helper.get_attribute_value(attribute)
        array: Any = None
        if attribute.type == AttributeProto.TENSOR:
            array = numpy_helper.to_array(value)
        elif attribute.type in (AttributeProto.INT, AttributeProto.INTS):
            array = np.asarray(value, dtype=np.int64)
        elif attribute.type in (AttributeProto.FLOAT, AttributeProto.FLOATS):
            array = np.asarray(value, dtype=np.float32)
        return array, _sizes_of(array)
    return None, None


def attribute_of(name: str, value: Any) -> AttributeProto:
    """``value`` as an attribute; one that is an attribute already (its type decided elsewhere) under ``name``."""
    if not isinstance(value, AttributeProto):
        return helper.make_attribute(name, value)
    copied = AttributeProto()
    copied.CopyFrom(value)
    copied.name = name
    return copied


def _strip_suffix(name: str) -> str:
    for suffix in sorted(_SUFFIXES, key=len, reverse=True):
        if name.endswith(suffix) and len(name) > len(suffix):
            return name[: -len(suffix)]
    return name


def _plain(value: Any) -> Any:
    """Attribute values that `make_attribute` takes: tensors of torch and numpy become TensorProto."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, np.ndarray):
        return numpy_helper.from_array(value)
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(value, "detach") and hasattr(value, "numpy"):  # a torch.Tensor, without importing torch
        return numpy_helper.from_array(value.detach().cpu().numpy())
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _sizes_of(array: Array | None) -> tuple[Dim, ...] | None:
    if array is None or array.ndim > 1 or array.dtype.kind not in "iu" or array.size > 64:
        return None
    return tuple(int(item) for item in array.reshape(-1))
