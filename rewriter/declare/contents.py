"""What a model holds, as far as it matters to whoever is to run it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onnx import TensorProto

from rewriter.domains import is_standard_domain, is_standard_operator, normal_domain, runtime_of
from rewriter.graph.scopes import called_function, function_key, function_scope, main_scope
from rewriter.types import TensorType

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

    from rewriter.graph.scopes import FunctionKey, Scope
    from rewriter.storage import ModelFile

#: Domain, name, and the version that the scope imports.
Operator = tuple[str, str, int]


@dataclass
class Contents:
    """The operators of a model, bodies and functions included, and what else a runtime may refuse."""

    #: ONNX's own, with the nodes and where they stand.
    standard: dict[Operator, list[tuple[NodeProto, Scope]]] = field(default_factory=dict)
    #: Operators of runtimes' own domains, and those that nobody is known to have.
    owned: Counter[Operator] = field(default_factory=Counter)
    custom: Counter[Operator] = field(default_factory=Counter)
    #: Functions of the model that are called.
    functions: Counter[FunctionKey] = field(default_factory=Counter)
    #: What some runtimes refuse (``"external data"``, …), as the table of runtimes calls it.
    features: set[str] = field(default_factory=set)

    @property
    def domains(self) -> set[str]:
        return {domain for domain, _, _ in (*self.owned, *self.custom)}


def contents_of(file: ModelFile, model: ModelProto | None = None) -> Contents:
    """Everything in ``model``, a skeleton of ``file`` (its own if None), functions that nobody calls included: loaders
    look at those too.
    """
    model = model or file.model
    found = Contents()
    functions = {function_key(function) for function in model.functions}
    for root in (main_scope(model), *map(function_scope, model.functions)):
        for scope in root.walk():
            for node in scope.graph.node:
                _add(found, node, scope, functions)
    shapes = [TensorType.from_proto(output.type) for output in model.graph.output]
    holds = {
        "overloads of functions": any(overload for _, _, overload in functions),
        "imports of other domains": not all(is_standard_domain(item.domain) for item in model.opset_import),
        "sparse tensors": bool(model.graph.sparse_initializer),
        "outputs without a shape": any(known is None or known.shape is None for known in shapes),
        "external data": any(
            tensor.data_location == TensorProto.EXTERNAL and not file.is_withheld(tensor)
            for tensor in model.graph.initializer
        ),
    }
    found.features |= {name for name, held in holds.items() if held}
    return found


def _add(found: Contents, node: NodeProto, scope: Scope, functions: set[FunctionKey]) -> None:
    domain = normal_domain(node.domain)
    if node.domain != domain:
        found.features.add("ai.onnx written on a node")
    key = called_function(node)
    operator = (domain, node.op_type, scope.opsets.get(domain, 1))
    if key in functions:
        found.functions[key] += 1
    elif is_standard_domain(domain) and is_standard_operator(node.op_type, operator[2], domain):
        found.standard.setdefault(operator, []).append((node, scope))
    elif runtime_of(domain) is not None:
        found.owned[operator] += 1
    else:
        found.custom[operator] += 1
