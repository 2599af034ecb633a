"""What protobuf allows in a model and ONNX does not, refused at one place, before anything reads the model.

Refused with a :class:`ModelReadError` that names the place:

1. A domain, an operator, an attribute, a function or a size whose name is not UTF-8 (protobuf gives such a name as
   bytes).  A value may have one: see :mod:`rewriter.graph.utf8`.
2. An imported version that is negative, or does not fit in 32 bits, as onnx and the runtimes keep versions; two
   versions of one domain.
3. A tensor with negative dims, or with more bits than 64 bits count.  Whether the stored elements fit the dims is seen
   when they are loaded.
4. An attribute without a type, of an unknown one, or without the tensor or the graph that its type promises.  A tensor
   in an attribute without an element type, or of one that the installed onnx does not know.
5. A node without an operator.
6. A body of If, Loop or Scan that has not the results that its node gives.

An initializer or a declared type may be of an element type that the installed onnx does not know: it is kept as it is,
and taken for unknown.

What onnx.checker refuses besides (a value that two nodes make, a node before its inputs) does no harm here, and stays
as it is.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from onnx import AttributeProto, FunctionProto, TensorProto

from rewriter.domains import normal_domain
from rewriter.errors import ModelReadError
from rewriter.graph.interface import dims_of
from rewriter.graph.scopes import function_scope, graphs_of, main_scope, text, training_scopes
from rewriter.storage.dtypes import element_bits
from rewriter.types import ELEMENT_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onnx import GraphProto, ModelProto, NodeProto, OperatorSetIdProto, SparseTensorProto, TypeProto

    from rewriter.errors import Where
    from rewriter.graph.scopes import Scope

_DTYPES = ELEMENT_TYPES - {TensorProto.UNDEFINED}
_KINDS = frozenset(AttributeProto.AttributeType.values()) - {AttributeProto.UNDEFINED}
#: Of an attribute's type, the field that must be there.
_FIELDS = {
    AttributeProto.TENSOR: "t",
    AttributeProto.GRAPH: "g",
    AttributeProto.SPARSE_TENSOR: "sparse_tensor",
    AttributeProto.TYPE_PROTO: "tp",
}
#: Nodes with bodies, and how many results a body has beyond those of its node.
_ENDS = {"If": 0, "Loop": 1, "Scan": 0}
_NOT_UTF8 = "the file is damaged, or whoever wrote it must name it in UTF-8"


def validate(model: ModelProto) -> None:
    """ModelReadError where ``model``, complete or without its weights, breaks a rule; the first one found is told."""
    for owner in (model, *model.functions):
        for item in owner.opset_import:
            _check_name("a domain that is imported", item.domain)
            if not 0 <= item.version < 1 << 31:
                raise ModelReadError(
                    f"version {item.version} of the domain '{item.domain or 'ai.onnx'}' is imported: there is no such "
                    "version",
                    remedy="the file is damaged; export the model again",
                )
        _check_twice(owner.opset_import)
    for function in model.functions:
        for name in (function.domain, function.name, function.overload, *function.attribute):
            _check_name("a function, or an attribute of one,", name)
    for root in (main_scope(model), *map(function_scope, model.functions), *training_scopes(model)):
        for scope in root.walk():
            _check_scope(scope)


def _check_twice(imports: Iterable[OperatorSetIdProto]) -> None:
    versions: dict[str, int] = {}
    for item in imports:
        domain = normal_domain(item.domain)
        if versions.setdefault(domain, item.version) != item.version:
            raise ModelReadError(
                f"the domain '{domain or 'ai.onnx'}' is imported at the versions {versions[domain]} and {item.version}",
                remedy="only one can be meant; export the model again",
            )


def check_inputs(nodes: Iterable[tuple[Scope, NodeProto]]) -> None:
    """ModelReadError where one of ``nodes``, each with its scope, reads a value that nothing makes.

    Of other nodes that is left to whoever runs the model.
    """
    known: dict[Scope, set[str]] = {}
    for scope, node in nodes:
        for name in node.input:
            place: Scope | None = scope
            while name and place is not None:
                if place not in known:
                    known[place] = _values(place.graph)
                if name in known[place]:
                    break
                place = place.parent
            if name and place is None:
                raise _invalid(f"it reads '{text(name)}', which nothing makes", scope.where(node))


def _values(graph: GraphProto | FunctionProto) -> set[str]:
    """Every value that ``graph`` makes, holds or is given."""
    found = {name for node in graph.node for name in node.output}
    if isinstance(graph, FunctionProto):
        return found.union(graph.input)
    found.update(value.name for value in graph.input)
    found.update(tensor.name for tensor in graph.initializer)
    return found.union(sparse.values.name for sparse in graph.sparse_initializer)


def _check_scope(scope: Scope) -> None:
    graph = scope.graph
    values = [*graph.value_info]
    if isinstance(graph, FunctionProto):
        for attribute in graph.attribute_proto:
            _check_attribute(attribute, scope)
    else:
        values += [*graph.input, *graph.output]
        for tensor in graph.initializer:
            _check_tensor(tensor, scope.path)
        for sparse in graph.sparse_initializer:
            _check_sparse(sparse, scope.path)
    for value in values:
        proto = value.type
        plain = proto.HasField("tensor_type")  # most are; put into words only where one is wrong
        if not plain or not all(type(dim.dim_param) is str for dim in proto.tensor_type.shape.dim):
            _check_type(proto, f"the type of '{text(value.name)}'", scope.path)
    for node in graph.node:
        op_type = node.op_type
        if not (type(op_type) is type(node.domain) is type(node.overload) is str):
            where = scope.where(node)
            for what, name in (("domain", node.domain), ("operator", op_type), ("overload", node.overload)):
                _check_name(f"the {what} of a node", name, where)
        if not op_type:
            raise _invalid("the node has no operator", scope.where(node))
        if op_type in _ENDS:
            _check_bodies(node, scope)
        for attribute in node.attribute:
            _check_attribute(attribute, scope, node)


def _check_bodies(node: NodeProto, scope: Scope) -> None:
    if normal_domain(node.domain):
        return
    needed = len(node.output) + _ENDS[node.op_type]
    for attribute, _, graph in graphs_of(node):
        if len(graph.output) != needed:
            raise _invalid(
                f"'{attribute.name}' gives {len(graph.output)} results, and the node needs {needed}",
                scope.where(node),
            )


def _check_attribute(attribute: AttributeProto, scope: Scope, node: NodeProto | None = None) -> None:
    kind = attribute.type
    if type(attribute.name) is str and kind in _PLAIN and not attribute.ref_attr_name:
        return
    where = scope.path if node is None else scope.where(node)
    _check_name("an attribute", attribute.name, where)
    _check_name("the attribute that is referred to", attribute.ref_attr_name, where)
    what = f"attribute '{attribute.name}'"
    if kind not in _KINDS:
        raise _invalid(f"{what} has no type" if not kind else f"{what} has the unknown type {kind}", where)
    if attribute.ref_attr_name:
        return
    if kind in _FIELDS and not attribute.HasField(_FIELDS[kind]):
        name = AttributeProto.AttributeType.Name(kind).lower().replace("_", " ")
        raise _invalid(f"{what} is declared a {name} and holds none", where)
    for tensor in (attribute.t,) if kind == AttributeProto.TENSOR else attribute.tensors:
        _check_tensor(tensor, where, what)
    if kind == AttributeProto.SPARSE_TENSOR:
        _check_sparse(attribute.sparse_tensor, where, what)
    for sparse in attribute.sparse_tensors:
        _check_sparse(sparse, where, what)
    for proto in (attribute.tp,) if kind == AttributeProto.TYPE_PROTO else attribute.type_protos:
        _check_type(proto, what, where)


#: Attributes of these types hold nothing that could be wrong.
_PLAIN = frozenset(
    {
        AttributeProto.INT,
        AttributeProto.INTS,
        AttributeProto.FLOAT,
        AttributeProto.FLOATS,
        AttributeProto.STRING,
        AttributeProto.STRINGS,
    }
)


def _check_tensor(tensor: TensorProto, where: Where | str, what: str = "") -> None:
    in_attribute = bool(what)
    what = what or f"tensor '{text(tensor.name)}'"
    if in_attribute and tensor.data_type not in _DTYPES:
        unknown = f"of the element type {tensor.data_type}, which the installed onnx does not know"
        raise _invalid(f"{what} is {unknown if tensor.data_type else 'without an element type'}", where)
    dims = tensor.dims
    if dims and (min(dims) < 0 or prod(dims) * max(element_bits(tensor.data_type), 1) >= 1 << 63):
        raise _invalid(f"{what} has the impossible dims {list(dims)}", where)


def _check_sparse(sparse: SparseTensorProto, where: Where | str, what: str = "") -> None:
    _check_tensor(sparse.values, where, what)
    _check_tensor(sparse.indices, where, what)
    what = what or f"sparse tensor '{text(sparse.values.name)}'"
    if sparse.dims and (min(sparse.dims) < 0 or prod(sparse.dims) >= 1 << 63):
        raise _invalid(f"{what} has the impossible dims {list(sparse.dims)}", where)


def _check_type(proto: TypeProto, what: str, where: str | Where) -> None:
    for _, dim in dims_of(proto):
        _check_name(f"a size in {what}", dim.dim_param, where)


def _check_name(what: str, name: str | bytes, where: Where | str | None = None) -> None:
    if type(name) is bytes:
        raise ModelReadError(
            f"{what} is called '{text(name)}', which is not UTF-8", where=where, remedy=_NOT_UTF8
        )


def _invalid(what: str, where: Where | str) -> ModelReadError:
    return ModelReadError(
        f"{what}: this is not a valid ONNX model", where=where, remedy="export the model again"
    )
