"""Types of values, by onnx's own inference with the placeholders' types computed by their passes.

One C++ pass over a copy of the skeleton infers the main graph with all bodies, in time linear in the nodes.  A
placeholder, and a call of a function that holds one, carries its number as an attribute in that copy; a Python hook
(see :mod:`rewriter.graph.hooks`) is called for it with the types of its inputs, notes them, and answers with those
of its outputs: the pass's for a placeholder, for a call those of the function's own frame, inferred once for each
distinct set of attribute values and input types.

What differs in the copy:

- A withheld or external initializer of the main graph becomes a typed input; small integer ones (shapes) are loaded
  instead.
- Domains that are used without being imported are imported at version 1 (inference would raise).
- ``ai.onnx`` is spelt as the default domain (onnx's inference does not know that they are one).
- Negative sizes, which some exporters write for unknown ones, are left out, and types of unknown elements.
- Opsets 11 to 13 are read as 14 (see :mod:`rewriter.graph.lift`).
- Bodies have copies of the small constants that they read from the scopes around them (:mod:`rewriter.graph.outer`).
- Functions that hold a placeholder are left out, and all functions where following every call would take too long (see
  :mod:`rewriter.graph.nesting`); attribute references in a function's frame are resolved.
- Declared types of placeholders' outputs are left out: the hook merges them with what the pass infers.  Where the
  two contradict (an exporter was told a wrong shape), what is declared downstream is wrong as well, and inference
  is repeated without any declared intermediate type.

onnx's inference follows sizes through some operators only, not through the Mod of a padding.  While a placeholder's
input has unknown sizes, values that the inferred sizes make known become constants of the copy
(:mod:`rewriter.graph.folding`), and inference is repeated.

Data propagation (a Reshape to a shape computed from ``Shape``) is on where it can tell more, within the bounds of
:mod:`rewriter.graph.propagation`, and given up where onnx's inference fails with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onnx import FunctionProto, ModelProto, TensorProto, TypeProto, helper, shape_inference

from rewriter.domains import is_standard_domain
from rewriter.graph.hooks import hooked
from rewriter.graph.interface import dims_of
from rewriter.graph.lift import lift
from rewriter.graph.names import set_name, value_named
from rewriter.graph.nesting import is_nested_too_much
from rewriter.graph.outer import show_constants
from rewriter.graph.propagation import can_tell_more, hidden_operators, hide, infer_hidden
from rewriter.graph.scopes import Scope, graphs_of, text
from rewriter.graph.types import common
from rewriter.types import ELEMENT_TYPES, TensorType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from onnx import AttributeProto, GraphProto, NodeProto
    from onnx.shape_inference import InferenceContext

    from rewriter.storage import ModelFile

#: The attribute that carries a node's number in the copy.
SITE = "rewriter.site"

_DEFAULT = "ai.onnx"
_SMALL = 1024
_INTEGERS = frozenset({TensorProto.INT64, TensorProto.INT32})

#: From a node's number and the types of its inputs to those of its outputs.
Answer = Callable[[int, Sequence[TypeProto | None]], Sequence[TypeProto | None]]


@dataclass(eq=False)
class Copy:
    """A copy of one root (main graph or function) that can be inferred."""

    #: As it was made.
    source: ModelProto
    scope: Scope
    #: As it was inferred.
    inferred: ModelProto | None = None
    #: Why onnx's inference gave up, if it did.
    failure: str | None = None
    #: Values that were declared with a negative size, or an element type that onnx does not know.
    impossible: list[str] = field(default_factory=list)

    @property
    def model(self) -> ModelProto:
        return self.source if self.inferred is None else self.inferred

    def place(self, scope: Scope) -> GraphProto:
        """The copy of ``scope``."""
        found = scope.ref.descend(self.model.graph)
        assert not isinstance(found, FunctionProto)
        return found

    def mark(self, scope: Scope, index: int, number: int) -> None:
        """Give the node at ``index`` its number, and forget what is declared of its outputs."""
        self.place(scope).node[index].attribute.add(name=SITE, type=2, i=number)

    def forget(self, scope: Scope, names: set[str] | None = None) -> None:
        """Drop the declared types of ``names`` in ``scope``.

        None: of all values but the inputs, and the results of operators that inference does not know.
        """
        graph = self.place(scope)
        if names is None:
            unknown = _of_unknown_operators(graph)
            for value in graph.output:
                if value.name not in unknown:
                    value.ClearField("type")
            kept = [value for value in graph.value_info if value.name in unknown]
        else:
            kept = [value for value in graph.value_info if value.name not in names]
        if len(kept) != len(graph.value_info):
            copies = [value.SerializeToString() for value in kept]
            del graph.value_info[:]
            for raw in copies:
                graph.value_info.add().MergeFromString(raw)

    def outputs(self) -> list[TypeProto | None]:
        """Types of the root's outputs, as far as they were inferred."""
        return [value.type if value.type.WhichOneof("value") else None for value in self.model.graph.output]


def copy_main(
    file: ModelFile, scope: Scope, left_out: Iterable[tuple[str, str, str]], domains: Iterable[str]
) -> Copy:
    """The main graph of ``file``, without the functions ``left_out``."""
    source = file.model
    model = ModelProto(ir_version=source.ir_version)
    model.graph.CopyFrom(source.graph)
    _add_imports(model, scope.opsets, domains)
    _add_functions(model, source, left_out)
    inputs = {value.name for value in model.graph.input}
    kept: list[TensorProto] = []
    for tensor in model.graph.initializer:
        if tensor.data_location != TensorProto.EXTERNAL:
            kept.append(tensor)
        elif tensor.data_type in _INTEGERS and file.nbytes(tensor) <= _SMALL:
            kept.append(_loaded(file, tensor))
        elif tensor.name not in inputs:
            value = value_named(tensor.name)
            value.type.CopyFrom(TensorType(tensor.data_type, tuple(tensor.dims)).to_proto())
            model.graph.input.append(value)
    if len(kept) != len(model.graph.initializer):
        copies = [tensor.SerializeToString() for tensor in kept]
        del model.graph.initializer[:]
        for raw in copies:
            model.graph.initializer.add().MergeFromString(raw)
    _spell_default_domain(model)
    impossible = open_impossible_types(model)
    lift(model)
    return Copy(model, scope, impossible=impossible)


def copy_function(
    file: ModelFile,
    scope: Scope,
    inputs: Sequence[TypeProto | None],
    attributes: Mapping[str, AttributeProto],
    left_out: Iterable[tuple[str, str, str]],
    domains: Iterable[str],
) -> Copy:
    """A function as a graph of its own, with its inputs' types and its attributes' values."""
    function = scope.graph
    assert isinstance(function, FunctionProto)
    model = ModelProto(ir_version=file.model.ir_version)
    model.graph.name = "function"
    model.graph.node.extend(function.node)
    model.graph.value_info.extend(function.value_info)
    for name, known in zip(function.input, inputs, strict=False):
        value = value_named(name)
        if known is not None:
            value.type.CopyFrom(known)
        model.graph.input.append(value)
    model.graph.output.extend(map(value_named, function.output))
    for node in model.graph.node:
        resolve_attributes(node, attributes)
    _add_imports(model, scope.opsets, domains)
    _add_functions(model, file.model, left_out)
    _spell_default_domain(model)
    impossible = open_impossible_types(model)
    lift(model)
    return Copy(model, scope, impossible=impossible)


def resolve_attributes(node: NodeProto, values: Mapping[str, AttributeProto]) -> None:
    """Replace references to a function's attributes in ``node`` and its bodies by ``values``; drop those without
    one.
    """
    if any(attribute.ref_attr_name for attribute in node.attribute):
        resolved: list[AttributeProto] = []
        for attribute in node.attribute:
            if not attribute.ref_attr_name:
                resolved.append(attribute)
            elif attribute.ref_attr_name in values:
                value = type(attribute)()
                value.CopyFrom(values[attribute.ref_attr_name])
                value.name = attribute.name
                resolved.append(value)
        copies = [attribute.SerializeToString() for attribute in resolved]
        del node.attribute[:]
        for raw in copies:
            node.attribute.add().MergeFromString(raw)
    for _, _, graph in graphs_of(node):
        for inner in graph.node:
            resolve_attributes(inner, values)


def run(copy: Copy, hook_errors: list[BaseException], again: Callable[[], None]) -> list[str]:
    """Infer ``copy``; what onnx minds in the types of the nodes that it knows, one sentence of its own each.

    A fault of onnx's inference is noted in ``failure``, and the types stay as declared.  ``hook_errors`` are those that
    a hook caught and that must not be swallowed (an interrupt).  ``again`` is called before inference begins anew: what
    hooks have noted until then no longer holds.
    """
    show_constants(copy.scope, copy.source.graph)
    copy.inferred = None
    copy.failure = None
    faults: list[str] = []
    try:
        copy.inferred = infer(copy.source, hook_errors, again, faults)
    except Exception as error:  # noqa: BLE001  (onnx raises RuntimeError and others besides its own InferenceError)
        copy.failure = f"{type(error).__name__}: {error}".strip()
    if hook_errors:
        raise hook_errors[0]
    return faults


def infer(
    model: ModelProto,
    hook_errors: Sequence[BaseException] = (),
    again: Callable[[], None] = lambda: None,
    faults: list[str] | None = None,
) -> ModelProto:
    """``model`` with the types that onnx's inference finds, in time and memory that its nodes account for.

    Raises what onnx's inference raises.  ``hook_errors`` and ``again``: see :func:`run`.  ``faults``, if given, takes
    what strict inference says: it fails where a type is wrong, which others pass over.
    """
    if is_nested_too_much(model):  # calls that no hook knows stay without a type
        model = _without_functions(model)
    raw = model.SerializeToString()
    inferred = _strictly(raw, faults, again) if faults is not None else None
    if hook_errors and inferred is None:
        return model
    inferred = inferred or shape_inference.infer_shapes(raw)
    if hook_errors or not can_tell_more(inferred):
        return inferred
    bounded = ModelProto.FromString(raw)
    hidden = hide(bounded, inferred)
    again()
    try:
        with hooked(hidden_operators() if hidden else (), infer_hidden):
            return shape_inference.infer_shapes(bounded if hidden else raw, data_prop=True)
    except Exception:  # noqa: BLE001  (as above; data propagation refuses more)
        if hook_errors:
            return inferred
        again()
        return shape_inference.infer_shapes(raw)


def _strictly(raw: bytes, faults: list[str], again: Callable[[], None]) -> ModelProto | None:
    """The model with types; None, with the reason in ``faults``, where some node's inference fails."""
    try:
        return shape_inference.infer_shapes(raw, check_type=True, strict_mode=True)
    except Exception as error:  # noqa: BLE001  (as above)
        told = [line.rpartition("Inference error(s): ")[2].strip() for line in str(error).splitlines()]
        # What is unknown is not wrong.
        faults += [line for line in dict.fromkeys(told) if line and "instead is null" not in line]
        again()
        return None


def _without_functions(model: ModelProto) -> ModelProto:
    bare = ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    bare.graph.CopyFrom(model.graph)
    return bare


def types_in(graph: GraphProto) -> dict[str, TensorType]:
    """Every type that ``graph`` declares, inferred ones included."""
    found: dict[str, TensorType] = {}
    for values in (graph.input, graph.value_info, graph.output):
        for value in values:
            known = TensorType.from_proto(value.type)
            if known is not None:
                found[value.name] = known
    return found


def dtypes_in(graph: GraphProto | FunctionProto) -> dict[str, int]:
    """The element type of every tensor that ``graph`` declares, inferred ones included."""
    found: dict[str, int] = {}
    sources = (
        (graph.value_info,)
        if isinstance(graph, FunctionProto)
        else (
            graph.input,
            graph.value_info,
            graph.output,
        )
    )
    for values in sources:
        for value in values:
            dtype = value.type.tensor_type.elem_type
            if dtype:
                found[value.name] = dtype
    if not isinstance(graph, FunctionProto):
        found.update((tensor.name, tensor.data_type) for tensor in graph.initializer)
    return found


def merge_protos(a: TypeProto | None, b: TypeProto | None) -> TypeProto | None:
    """What two calls of one hook have in common."""
    if a is None or b is None:
        return None
    if a == b:
        return a
    known = common(TensorType.from_proto(a), TensorType.from_proto(b))
    return None if known is None else known.to_proto()


def context_types(context: InferenceContext) -> list[TypeProto | None]:
    """Types of a node's inputs, None where omitted or unknown."""
    found: list[TypeProto | None] = []
    for index in range(context.get_num_inputs()):
        proto = context.get_input_type(index)
        found.append(proto if isinstance(proto, TypeProto) and proto.WhichOneof("value") else None)
    return found


def _add_imports(model: ModelProto, opsets: Mapping[str, int], domains: Iterable[str]) -> None:
    versions = dict(opsets)
    for domain in sorted(domains):
        versions.setdefault(domain, 1)
    model.opset_import.extend(helper.make_opsetid(domain, version) for domain, version in versions.items())


def _add_functions(model: ModelProto, source: ModelProto, left_out: Iterable[tuple[str, str, str]]) -> None:
    absent = set(left_out)
    for function in source.functions:
        if (
            function.domain if function.domain != "ai.onnx" else "",
            function.name,
            function.overload,
        ) in absent:
            continue
        model.functions.add().CopyFrom(function)
        declared = {item.domain for item in function.opset_import}
        used = {node.domain for node in function.node}
        for domain in sorted(used - declared - {"", "ai.onnx"}):
            model.functions[-1].opset_import.add(domain=domain, version=1)


def open_impossible_types(model: ModelProto) -> list[str]:
    """Leave negative sizes and unknown element types out of every declared type of ``model``: inference would believe
    them.

    Returns the names of the values that had one.
    """
    found: list[str] = []
    waiting: list[GraphProto | FunctionProto] = [model.graph, *model.functions]
    while waiting:
        place = waiting.pop()
        values = [*place.value_info]
        if not isinstance(place, FunctionProto):
            values += [*place.input, *place.output]
        for value in values:
            if value.type.tensor_type.elem_type not in ELEMENT_TYPES:
                value.type.Clear()
                found.append(text(value.name))
            for _, dim in dims_of(value.type):
                if dim.dim_value < 0:
                    dim.Clear()
                    found.append(text(value.name))
        waiting += [graph for node in place.node for _, _, graph in graphs_of(node)]
    return list(dict.fromkeys(found))


def _of_unknown_operators(graph: GraphProto) -> set[str]:
    """The results of the nodes of ``graph`` that inference neither knows nor asks about."""
    return {
        name
        for node in graph.node
        if not is_standard_domain(node.domain) and all(item.name != SITE for item in node.attribute)
        for name in node.output
    }


def _spell_default_domain(model: ModelProto) -> None:
    """Write ``ai.onnx`` as the empty string on every node and function of ``model``."""
    waiting = [model.graph.node, *(function.node for function in model.functions)]
    for function in model.functions:
        for item in (function, *function.opset_import):
            if item.domain == _DEFAULT:
                item.domain = ""
    while waiting:
        for node in waiting.pop():
            if node.domain == _DEFAULT:
                node.domain = ""
            waiting += [graph.node for _, _, graph in graphs_of(node)]


def _loaded(file: ModelFile, tensor: TensorProto) -> TensorProto:
    from onnx import numpy_helper

    loaded = numpy_helper.from_array(file.array(tensor))
    set_name(loaded, tensor.name)
    return loaded
