"""The main graph, or one specialisation of a function: what is known of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onnx import FunctionProto, TypeProto

from rewriter.graph import inference
from rewriter.graph.constants import Constants
from rewriter.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onnx import AttributeProto, NodeProto

    from rewriter.errors import RewriteError
    from rewriter.graph.scopes import FunctionKey, Scope
    from rewriter.graph.survey import Call, Found, Root
    from rewriter.storage import ModelFile

Types = list[TypeProto | None]


@dataclass(eq=False)
class Frame:
    """The main graph, or one specialisation of a function."""

    root: Root
    #: Values of the function's attributes, defaults included.
    attributes: Mapping[str, AttributeProto] = field(default_factory=dict)
    inputs: Types = field(default_factory=list)
    #: Inputs that are constant at the call, and values that inferred sizes make known.
    given: Mapping[str, Any] = field(default_factory=dict)
    #: Types of the inputs of each placeholder and call, as seen by the hook.
    seen: dict[Found | Call, Types] = field(default_factory=dict)
    #: The inferred copy; types are read from it when they are asked for.
    copy: inference.Copy | None = None
    outputs: Types = field(default_factory=list)
    #: Errors of a pass's type inference; expanding raises them again, or shows that they did not matter.
    errors: dict[Found, RewriteError] = field(default_factory=dict)
    #: Placeholders whose declared type contradicts what their pass infers.
    contradicted: list[Found] = field(default_factory=list)
    #: Whether any other declared type may be wrong.
    contradictory: bool = False
    #: What onnx minds in the types of the nodes that it knows.
    faults: list[str] = field(default_factory=list)
    #: The sizes that were declared wrongly there: those of one traced call, likely, and as wrong elsewhere.
    wrong_sizes: set[int] = field(default_factory=set)
    _constants: dict[Scope, Constants] = field(default_factory=dict)
    _declared: dict[Scope, dict[str, TensorType]] = field(default_factory=dict)
    _no_tensors: dict[Scope, set[str]] = field(default_factory=dict)
    _types: dict[Scope, dict[str, TensorType]] = field(default_factory=dict)
    _dtypes: dict[Scope, dict[str, int]] = field(default_factory=dict)

    @property
    def is_main(self) -> bool:
        return self.root.scope.ref.function is None

    def sites(self, holding: frozenset[FunctionKey]) -> list[Found | Call]:
        """What inference must ask us about."""
        calls = [call for call in self.root.calls if call.callee in holding]
        return [*(found for found in self.root.found if found.match is not None), *calls]

    def constants(self, file: ModelFile, scope: Scope) -> Constants:
        if scope not in self._constants:
            outer = self.constants(file, scope.parent) if scope.parent is not None else None
            self._constants[scope] = Constants(
                file, scope, outer, None if scope.parent is not None else self.given
            )
        return self._constants[scope]

    def know(self, values: Mapping[str, Any]) -> None:
        """Values of the outermost scope that are known from inferred sizes."""
        self.given = {**self.given, **values}
        self._constants.clear()

    def forget(self, given: Mapping[str, Any]) -> None:
        """Back to the constants ``given``, before any was known from sizes."""
        self.given = given
        self._constants.clear()

    def declared(self, scope: Scope) -> dict[str, TensorType]:
        """The types that the model itself declares in ``scope``, by value name."""
        if scope not in self._declared:
            self._declared[scope] = _declared(scope)
        return self._declared[scope]

    def no_tensors(self, scope: Scope) -> set[str]:
        """The values that the model declares in ``scope`` as sequences, optionals, maps or sparse tensors."""
        if scope not in self._no_tensors:
            self._no_tensors[scope] = {
                value.name
                for value in scope.graph.value_info
                if value.type.WhichOneof("value") not in (None, "tensor_type")
            }
        return self._no_tensors[scope]

    def types(self, scope: Scope) -> dict[str, TensorType]:
        """The types in ``scope`` after inference; the declared ones before."""
        if self.copy is None:
            return self.declared(scope)
        if scope not in self._types:
            self._types[scope] = inference.types_in(self.copy.place(scope))
        return self._types[scope]

    def dtypes(self, scope: Scope) -> Callable[[str], int | None]:
        """A function that tells the element type of a value as seen from ``scope``."""
        tables: list[dict[str, int]] = []
        place: Scope | None = scope
        while place is not None:
            if place not in self._dtypes:
                graph = place.graph if self.copy is None else self.copy.place(place)
                self._dtypes[place] = inference.dtypes_in(graph)
            tables.append(self._dtypes[place])
            place = place.parent
        if len(tables) == 1:
            return tables[0].get
        return lambda name: next((table[name] for table in tables if name in table), None)

    def resolved(self, node: NodeProto) -> NodeProto:
        """A copy of ``node`` with attribute references replaced by the call's values."""
        copy = type(node)()
        copy.CopyFrom(node)
        if self.attributes or not self.is_main:
            inference.resolve_attributes(copy, self.attributes)
        return copy


def _declared(scope: Scope) -> dict[str, TensorType]:
    graph = scope.graph
    values = [*graph.value_info]
    if not isinstance(graph, FunctionProto):
        values += [*graph.input, *graph.output]
    found: dict[str, TensorType] = {}
    for value in values:
        known = TensorType.from_proto(value.type)
        if known is not None:
            found[value.name] = known
    return found
