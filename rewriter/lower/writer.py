"""A builder that writes any standard operator, of any opset, in the forms that a target has.

A node is tried in this order:

1. Its form is the same at the target: written as it is, later attributes at their defaults dropped.
2. A form of :mod:`rewriter.lower.forms` serves: it writes other operators, which are tried in turn.
3. Only a type is missing: computed through one that holds every value.
4. A pass takes the operator (``standard`` of :class:`~rewriter.placeholder.Placeholder`): its decompositions are tried.
5. ONNX defines the operator by a body: its nodes are tried in turn.

What is left raises :class:`~rewriter.errors.UnsupportedAtOpset`.  Every value's type is inferred once, when its node is
written, so the work is linear in the nodes that are made.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import zip_longest
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import AttributeProto, NodeProto, defs, helper, numpy_helper

from rewriter.errors import DecompositionError, NeedsRank, UnsupportedAtOpset, UnsupportedParameter
from rewriter.graph.arithmetic import evaluate
from rewriter.lower import schemas
from rewriter.lower.absent import Absent
from rewriter.lower.bodies import replay, write_body
from rewriter.lower.forms import forms_of
from rewriter.lower.passes import by_pass
from rewriter.lower.through import through
from rewriter.placeholder.builder import Builder, attribute_of
from rewriter.placeholder.legality import clashing
from rewriter.placeholder.node_types import result_types
from rewriter.placeholder.standard import Call
from rewriter.placeholder.value import Value
from rewriter.profiles import conditions
from rewriter.types import dtype_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rewriter.placeholder.contract import Placeholder
    from rewriter.types import TensorType

#: Deepest chain of operators that are written by one another.
_MAX_CHAIN = 24
#: Largest constant that is computed with, in elements.
_SMALL = 4096


class Writer(Builder):
    """Builds what stands for one standard operator at the target's opset."""

    #: Operators that may not be written, whatever the opset has.
    absent: Absent = Absent()
    #: Passes that take standard operators, by operator.
    passes: Mapping[str, Sequence[Placeholder]] = MappingProxyType({})
    _chain: tuple[tuple[Any, ...], ...] = ()

    @classmethod
    @contextmanager
    def into(cls, g: Builder) -> Iterator[Writer]:
        """A writer that records in ``g`` while this lasts."""
        made = cls(g.opset, ir_version=g._ir_version, where=g.where)
        made.nodes, made.initializers, made.conditions = g.nodes, g.initializers, g.conditions
        made.values, made._constants, made.domains, made._counter = (
            g.values,
            g._constants,
            g.domains,
            g._counter,
        )
        yield made
        g.values, g._constants, g.domains, g._counter = (
            made.values,
            made._constants,
            made.domains,
            made._counter,
        )

    def write(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        outputs: int,
        domain: str,
        attrs: Mapping[str, Any],
    ) -> tuple[Value, ...]:
        if domain:
            return super().write(op_type, inputs, outputs, domain, attrs)
        protos = {name: attribute_of(name, value) for name, value in attrs.items()}
        return self.emit(op_type, inputs, outputs, protos, self._meant_at(op_type, protos, len(inputs)))

    def newer(self, version: int, op_type: str, *inputs: Value | None, **attributes: Any) -> Value:
        """An operator of one result as opset ``version`` writes it, in the form that the target has."""
        protos = {name: attribute_of(name, value) for name, value in attributes.items() if value is not None}
        return self.emit(op_type, inputs, 1, protos, version)[0]

    def one(self, op_type: str, *inputs: Value | None, **attributes: Any) -> Value:
        """:meth:`op`, of one result."""
        made: Value = self.op(op_type, *inputs, **attributes)
        return made

    def _meant_at(self, op_type: str, attributes: Mapping[str, AttributeProto], count: int) -> int:
        """The opset in which a form writes: the target's, or the newest where that lacks what is written."""
        here = schemas.schema(op_type, self.opset)
        fits = here is not None and count <= here.max_input and all(a in here.attributes for a in attributes)
        return self.opset if fits else int(defs.onnx_opset_version())

    def emit(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        outputs: int,
        attributes: Mapping[str, AttributeProto],
        version: int,
        wanted: tuple[bool, ...] = (),
        known: Sequence[TensorType | None] = (),
    ) -> tuple[Value, ...]:
        """One operator, meant as opset ``version`` does; its results.  UnsupportedAtOpset where it has no form.

        ``known`` are types of the results that the model tells.
        """
        given = [None if item is None else self._own(item) for item in inputs]
        while given and given[-1] is None:
            given.pop()
        if op_type == "Constant":
            constant = constant_of(attributes)
            if constant is not None:
                return (self.const(constant),)
        self._check_agreement(op_type, given, version)
        node = self._node(op_type, given, outputs, attributes)
        types = _better(self._inferred(node, given, version), known)
        folded = self._folded(node, given, types)
        if folded is not None:
            return (folded,)
        use = schemas.Use(
            op_type,
            attributes,
            tuple(item is not None for item in given),
            outputs,
            tuple(None if item is None else item.type for item in given),
            types,
        )
        same = self._lacking(node, given, attributes) or schemas.same_form(use, version, self.opset)
        if not isinstance(same, str):
            return self._record(node, types, same)
        return self._otherwise(Call(op_type, version, tuple(given), outputs, attributes, types, same, wanted))

    def _lacking(
        self, node: NodeProto, given: Sequence[Value | None], attributes: Mapping[str, AttributeProto]
    ) -> str | None:
        """Why the target does not have the node, whatever its opset has; None where it has it."""
        if not self.absent.concerns(node.op_type):
            return None

        def type_of(index: int) -> TensorType | None:
            item = given[index]
            return None if item is None else item.type

        def is_constant(index: int) -> bool | None:
            item = given[index]
            return None if item is None else item.constant is not None

        inputs, outputs = tuple(item is not None for item in given), tuple(map(bool, node.output))
        use = conditions.Use(node.op_type, self.opset, attributes, inputs, outputs, type_of, is_constant)
        return self.absent.reason(use)

    def _otherwise(self, call: Call) -> tuple[Value, ...]:
        """The operator in another form: see the numbered rules of the module."""
        link = (
            call.op_type,
            call.version,
            tuple(sorted((k, v.SerializeToString(deterministic=True)) for k, v in call.attributes.items())),
            tuple(None if item is None else item.name for item in call.inputs),
        )
        if link in self._chain or len(self._chain) >= _MAX_CHAIN:
            raise UnsupportedAtOpset(f"{call.reason}, and its forms lead back to it", where=self.where)
        outer, self._chain = self._chain, (*self._chain, link)
        first: DecompositionError | None = None
        try:
            for way in self._ways(call):
                mark = self.mark()
                try:
                    made = way(self, call)
                except (NeedsRank, UnsupportedAtOpset, UnsupportedParameter) as error:
                    first = first or error
                    self.rewind(mark)
                    continue
                if made is not None:
                    results = tuple(made) if isinstance(made, (tuple, list)) else (made,)
                    return self._typed(results, call.types)
                self.rewind(mark)
        finally:
            self._chain = outer
        raise first or UnsupportedAtOpset(
            f"{call.reason}, and there is no other form of it", where=self.where
        )

    def _ways(self, call: Call) -> list[Callable[[Writer, Call], Any]]:
        """How the operator may be written.  Where the target has it in another form, that is tried before passes."""
        forms = [*forms_of(call.op_type), through]
        absent = call.op_type in self.absent or schemas.schema(call.op_type, self.opset) is None
        return [by_pass, *forms, write_body] if absent else [*forms, by_pass, write_body]

    def replay(self, nodes: Sequence[NodeProto], names: dict[str, Value | None], version: int) -> None:
        """Write ``nodes``, meant at ``version``; ``names`` maps their names to values and grows by their results."""
        replay(self, nodes, names, version)

    def body(self) -> Writer:
        inner = Writer(self.opset, ir_version=self._ir_version, where=self.where)
        inner._counter = self._counter + 1_000_000 * (
            1 + sum(1 for n in self.nodes if n.op_type in ("If", "Loop", "Scan"))
        )
        inner.values = dict(self.values)
        inner.absent, inner.passes, inner._chain = self.absent, self.passes, self._chain
        return inner

    # --- inside ---------------------------------------------------------------------------------------------

    def _own(self, value: Value) -> Value:
        """A value of an outer builder as one that this builder goes on with."""
        if value.builder is self:
            return value
        return Value(self, value.name, value.type, value.constant, value.sizes)

    def _node(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        outputs: int,
        attributes: Mapping[str, AttributeProto],
    ) -> NodeProto:
        node = NodeProto(op_type=op_type)
        node.input.extend("" if item is None else item.name for item in inputs)
        node.output.extend(self._fresh() for _ in range(outputs))
        node.attribute.extend(attributes.values())
        return node

    def _check_agreement(self, op_type: str, inputs: Sequence[Value | None], version: int) -> None:
        """UnsupportedParameter where inputs that must be of one dtype are not: no form makes that right."""
        found = schemas.schema(op_type, version)
        clash = None if found is None else clashing(found, inputs)
        if clash is not None:
            one, other = map(dtype_name, clash)
            raise UnsupportedParameter(f"{op_type} is given {one} and {other}", where=self.where)

    def _inferred(
        self, node: NodeProto, inputs: Sequence[Value | None], version: int
    ) -> tuple[TensorType | None, ...]:
        found = schemas.schema(node.op_type, version)
        if found is None:
            return (None,) * len(node.output)
        try:
            types = result_types(
                found, node, inputs, [helper.make_opsetid("", version)], max(self._ir_version, 10)
            )
        except Exception:  # noqa: BLE001  (inference raises on models that are right; types then stay unknown)
            return (None,) * len(node.output)
        return tuple(types.get(name) for name in node.output)

    def _folded(
        self, node: NodeProto, inputs: Sequence[Value | None], types: Sequence[TensorType | None]
    ) -> Value | None:
        """A constant for what can be computed now: sizes, and small arithmetic on them."""
        if len(node.output) != 1:
            return None
        if node.op_type == "Shape" and inputs and inputs[0] is not None and inputs[0].is_static:
            at = {a.name: a.i for a in node.attribute}
            sizes = [int(d) for d in inputs[0].shape if d is not None]
            return self.ints(sizes[at.get("start", 0) : at.get("end", len(sizes))])
        known = types[0]
        if known is None or not inputs or any(item is not None and item.constant is None for item in inputs):
            return None
        arrays = [None if item is None else item.constant for item in inputs]
        if any(a is not None and (a.size > _SMALL or a.dtype.kind not in "iub") for a in arrays):
            return None
        result = evaluate(node, arrays)
        if result is None or result.dtype == object:
            return None
        wanted = helper.tensor_dtype_to_np_dtype(known.dtype)
        if result.dtype != wanted or not _fits(result.shape, known):
            return None
        return self.const(np.ascontiguousarray(result).reshape(result.shape))

    def _record(
        self, node: NodeProto, types: Sequence[TensorType | None], attributes: Mapping[str, AttributeProto]
    ) -> tuple[Value, ...]:
        """The node as it is, with these attributes."""
        del node.attribute[:]
        node.attribute.extend(attributes[name] for name in attributes)
        self.nodes.append(node)
        made = tuple(Value(self, name, known) for name, known in zip(node.output, types, strict=True))
        self.values.update((value.name, value) for value in made)
        return made

    def _typed(
        self, results: tuple[Value | None, ...], types: Sequence[TensorType | None]
    ) -> tuple[Value, ...]:
        """Results with the operator's own types where their forms told less."""
        found: list[Any] = []
        for position, value in enumerate(results):
            known = types[position] if position < len(types) else None
            if value is not None and known is not None and not value.is_static and value.name.startswith("%"):
                told = value.type
                if told is None or (
                    told.dtype == known.dtype
                    and known.shape is not None
                    and (told.shape is None or sum(_is_open(told)) > sum(_is_open(known)))
                ):
                    value = self.declared(value, known)
            found.append(value)
        return tuple(found)


def _better(
    types: Sequence[TensorType | None], known: Sequence[TensorType | None]
) -> tuple[TensorType | None, ...]:
    """The inferred types, with those that the model tells where these say more."""

    def one(a: TensorType | None, b: TensorType | None) -> TensorType | None:
        if a is None or b is None or a.dtype != b.dtype:
            return a or b
        return (
            b if a.shape is None or (b.shape is not None and a.shape.count(None) > b.shape.count(None)) else a
        )

    return tuple(one(a, b) for a, b in zip_longest(types, known[: len(types)]))


def _is_open(known: TensorType) -> list[bool]:
    return [not isinstance(dim, int) for dim in known.shape or ()]


def _fits(shape: tuple[int, ...], known: TensorType) -> bool:
    return known.shape is None or (
        len(shape) == len(known.shape)
        and all(not isinstance(b, int) or a == b for a, b in zip(shape, known.shape, strict=True))
    )


def constant_of(attributes: Mapping[str, AttributeProto]) -> Any:
    """The value of a Constant as an array or a TensorProto; None where it is sparse."""
    (name, attribute), *_ = attributes.items() or [("", None)]
    if attribute is None:
        return None
    if name == "value":
        return attribute.t
    value = helper.get_attribute_value(attribute)
    kinds: dict[str, Any] = {
        "value_int": np.int64,
        "value_ints": np.int64,
        "value_float": np.float32,
        "value_floats": np.float32,
    }
    if name in kinds:
        return np.asarray(value, kinds[name])
    if name in ("value_string", "value_strings"):
        return numpy_helper.from_array(np.asarray(value, dtype=object))
    return None
