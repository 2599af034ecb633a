"""From a node's attributes and inputs to the arguments of its operator.

Exporters write parameters in two ways: as attributes, or (the fall-through forms) as positional inputs in the
operator's schema order, constants among them.  Both are bound by the same rules, in this order:

1. An attribute goes to the parameter of that name or alias, whatever its case and underscores.
2. The inputs go to the parameters that are left, in order.  A parameter with a default that must be known is passed
   over by an input that cannot be it (it is computed, or of another element type).
3. What remains takes its default.  Anything missing, left over or of the wrong kind is a :class:`BindingError`.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import AttributeProto, helper

from rewriter.errors import BindingError, ModelReadError, Where
from rewriter.placeholder.conversion import as_kind, kind_of, plain, short
from rewriter.placeholder.rules import Attribute, Fixed, literal
from rewriter.placeholder.signature import Kind
from rewriter.storage.arrays import from_message
from rewriter.types import TensorType, dtype_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from onnx import NodeProto

    from rewriter.placeholder.rules import BindRule
    from rewriter.placeholder.signature import Parameter, Signature
    from rewriter.placeholder.value import Array


@dataclass(frozen=True)
class Site:
    """What a pass may know of the node that it replaces."""

    node: NodeProto
    #: Types of the node's inputs, by position; None where omitted or unknown.
    inputs: tuple[TensorType | None, ...]
    #: Values known before anything runs, by value name.
    constants: Mapping[str, Array] = field(default_factory=dict)
    #: Version of the default domain in the node's scope.
    opset: int = 11
    ir_version: int = 8
    where: Where = field(default_factory=Where)
    #: Which of the node's outputs are used; empty: all that have a name.
    wanted: tuple[bool, ...] = ()
    #: Types of the node's outputs, by position, where the node is one of ONNX itself; empty: unknown.
    outputs: tuple[TensorType | None, ...] = ()

    def type_of(self, index: int) -> TensorType | None:
        return self.inputs[index] if index < len(self.inputs) else None


@dataclass(frozen=True)
class Ref:
    """A tensor argument: the name of the value, its type as inferred, and the value itself where it is known."""

    name: str
    type: TensorType | None = None
    constant: Array | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Bound:
    """The arguments of one placeholder: Python values, :class:`Ref` for tensors, None where omitted.

    A variadic parameter holds a tuple of refs.
    """

    arguments: Mapping[str, Any]
    #: The order of the inputs, where it is not the pass's own.
    order: tuple[str, ...] | None = field(default=None, compare=False)

    def refs(self) -> list[Ref]:
        """The tensor arguments, in order, each as often as it is given."""
        found: list[Ref] = []
        for argument in self.arguments.values():
            if isinstance(argument, Ref):
                found.append(argument)
            elif isinstance(argument, tuple):
                found += [item for item in argument if isinstance(item, Ref)]
        return found

    def describe(self) -> str:
        """The parameters that are not tensors: ``"shifts=(1,), dims=(2,)"``."""
        return ", ".join(
            f"{name}={short(value)}"
            for name, value in self.arguments.items()
            if value is not None and not isinstance(value, Ref) and not _holds_refs(value)
        )


def _holds_refs(value: Any) -> bool:
    return isinstance(value, tuple) and any(isinstance(item, Ref) for item in value)


def normal(name: str) -> str:
    """Names match whatever their case and underscores: ``my_swish``, ``MySwish``."""
    return name.replace("_", "").lower()


def bind(
    signature: Signature,
    site: Site,
    *,
    aliases: Mapping[str, str] | None = None,
    schema: Sequence[str] | None = None,
    rule: BindRule | None = None,
    ignored: Iterable[str] = (),
) -> Bound:
    """The arguments of ``site`` for ``signature``; BindingError where they do not fit.

    ``schema`` is a library's own argument order for the inputs (see ``Placeholder.schemas``), ``ignored`` are
    attributes that select the operator and are no arguments of it (``operator`` of ``org.pytorch.aten::ATen``).
    """
    return _Binder(signature, site, aliases or {}, rule, frozenset(ignored)).bind(schema)


class _Binder:
    def __init__(
        self,
        signature: Signature,
        site: Site,
        aliases: Mapping[str, str],
        rule: BindRule | None,
        ignored: frozenset[str],
    ) -> None:
        self.signature = signature
        self.site = site
        self.attributes = {a.name: a for a in site.node.attribute if a.name not in ignored}
        if "inplace" not in signature:
            # A node has its results for itself: where torch would write them changes nothing.
            self.attributes.pop("inplace", None)
        self.inputs = list(site.node.input)
        while self.inputs and not self.inputs[-1]:
            self.inputs.pop()
        self.names = {normal(name): name for name in signature.names}
        self.names |= {normal(alias): target for alias, target in aliases.items()}
        self.rule = rule
        self.bound: dict[str, Any] = {}

    def bind(self, schema: Sequence[str] | None) -> Bound:
        free = [(index, name) for index, name in enumerate(self.inputs)]
        if self.rule is not None:
            free = self._apply_rule(self.rule, free)
        self._attributes()
        if schema is not None:
            self._by_schema(schema, free)
        else:
            self._by_position(free)
        for parameter in self.signature.parameters:
            if parameter.name not in self.bound:
                if parameter.required:
                    raise self._missing(parameter)
                self.bound[parameter.name] = () if parameter.variadic else parameter.absent()
        return Bound({name: self.bound[name] for name in self.signature.names})

    # --- the three sources ----------------------------------------------------------------------------------

    def _apply_rule(self, rule: BindRule, free: list[tuple[int, str]]) -> list[tuple[int, str]]:
        for ignored in rule.ignored:
            if isinstance(ignored, Attribute):
                self.attributes.pop(ignored.name, None)
            else:
                free = [item for item in free if item[0] != ignored.position]
        for name, source in rule.sources.items():
            parameter = self.signature[name]
            if isinstance(source, Fixed):
                self.bound[name] = self._convert(
                    parameter, plain(source.value), f"the value bound to '{name}'"
                )
            elif isinstance(source, Attribute):
                if source.name in self.attributes:
                    self.bound[name] = self._from_attribute(parameter, self.attributes.pop(source.name))
                elif parameter.required:
                    raise self._error(
                        f"the node has no attribute '{source.name}', which --bind gives to '{name}'", None
                    )
            else:
                taken = [item for item in free if item[0] == source.position]
                if taken:
                    free = [item for item in free if item[0] != source.position]
                    self.bound[name] = self._from_input(parameter, *taken[0])
                elif parameter.required:
                    raise self._error(
                        f"the node has no input {source.position}, which --bind gives to '{name}'", None
                    )
        return free

    def _attributes(self) -> None:
        for attribute in self.attributes.values():
            target = self.names.get(normal(attribute.name))
            if target is None:
                near = difflib.get_close_matches(normal(attribute.name), list(self.names), n=1)
                hint = f"did you mean '{self.names[near[0]]}'? " if near else ""
                raise self._error(
                    f"attribute '{attribute.name}' is not a parameter of this operator",
                    f'{hint}its parameters are: {self.signature}; --bind "…=pass(parameter={attribute.name})" gives '
                    f'a parameter another name, --bind "…=pass(-={attribute.name})" ignores the attribute',
                )
            if target in self.bound:
                raise self._error(
                    f"'{target}' is given twice, the second time by attribute '{attribute.name}'", None
                )
            self.bound[target] = self._from_attribute(self.signature[target], attribute)

    def _by_position(self, free: list[tuple[int, str]]) -> None:
        waiting = [p for p in self.signature.parameters if p.name not in self.bound]
        passed_over: list[tuple[Parameter, BindingError]] = []
        for index, name in free:
            while waiting:
                parameter = waiting[0]
                if parameter.variadic:
                    have = self.bound.get(parameter.name, ())
                    self.bound[parameter.name] = (*have, self._from_input(parameter, index, name))
                    break
                waiting.pop(0)
                try:
                    self.bound[parameter.name] = self._from_input(parameter, index, name)
                except BindingError as error:
                    if parameter.required or not waiting:
                        raise
                    passed_over.append((parameter, error))
                    continue
                break
            else:
                if passed_over:
                    raise passed_over[0][1]
                if not name:
                    continue
                raise self._error(
                    f"input {index} ('{name}') is left over",
                    f"the operator's parameters are: {self.signature}",
                )

    def _by_schema(self, schema: Sequence[str], free: list[tuple[int, str]]) -> None:
        elements: dict[str, dict[int, Any]] = {}
        slots = [slot for slot in schema if "=" not in slot]
        for slot in schema:
            if "=" in slot:
                name, _, text = slot.partition("=")
                if name not in self.bound:
                    self.bound[name] = self._convert(
                        self.signature[name], literal(text), f"'{slot}' in the schema"
                    )
        for index, name in free:
            if index >= len(slots):
                raise self._error(f"input {index} ('{name}') is left over", f"expected: {', '.join(slots)}")
            slot = slots[index]
            if slot == "-":
                continue
            if "." in slot:
                owner, _, position = slot.partition(".")
                constant = self._constant(name)
                if constant is None:
                    raise self._not_constant(self.signature[owner], index, name)
                elements.setdefault(owner, {})[int(position)] = constant.item()
            elif slot not in self.bound:
                self.bound[slot] = self._from_input(self.signature[slot], index, name)
        for owner, items in elements.items():
            self.bound[owner] = self._convert(
                self.signature[owner], [items[i] for i in sorted(items)], f"the inputs of '{owner}'"
            )

    # --- one argument ---------------------------------------------------------------------------------------

    def _from_input(self, parameter: Parameter, index: int, name: str) -> Any:
        if not name:
            if parameter.required and not parameter.variadic:
                raise self._missing(parameter)
            return parameter.absent()
        constant = self._constant(name)
        if constant is not None and parameter.is_constant and not parameter.prefers_tensor:
            try:
                return self._convert(parameter, constant, f"input {index} ('{name}')")
            except BindingError:
                # One of another shape is a tensor all the same, one of other elements is not.
                if not parameter.is_tensor or not parameter.may_hold(constant.dtype):
                    raise
        if not parameter.is_tensor:
            raise self._not_constant(parameter, index, name)
        kind = self.site.type_of(index) or _type_of(constant)
        if (
            kind is not None
            and kind.dtype
            and not parameter.may_hold(helper.tensor_dtype_to_np_dtype(kind.dtype))
        ):
            raise self._error(
                f"input {index} ('{name}') is a {dtype_name(kind.dtype)} tensor, and '{parameter.name}' must be "
                f"{parameter}",
                None,
            )
        return Ref(name, kind, constant)

    def _from_attribute(self, parameter: Parameter, attribute: AttributeProto) -> Any:
        what = f"attribute '{attribute.name}'"
        if attribute.ref_attr_name:
            raise self._error(
                f"{what} refers to '{attribute.ref_attr_name}' of a function whose calls do not give it", None
            )
        if attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS, AttributeProto.SPARSE_TENSOR):
            raise self._error(
                f"{what} is a {AttributeProto.AttributeType.Name(attribute.type).lower()}, not {parameter}",
                None,
            )
        value = helper.get_attribute_value(attribute)
        if attribute.type == AttributeProto.TENSOR:
            try:
                value = from_message(attribute.t)
            except ModelReadError as error:
                raise self._error(f"{what}: {error.what}", error.remedy) from None
        if isinstance(value, np.ndarray) and parameter.is_tensor:
            # `value_t=` on a tensor parameter: a constant tensor given in place.
            return Ref("", TensorType(attribute.t.data_type, value.shape), value)
        if not parameter.is_constant:
            raise self._error(
                f"{what} is given where the operator takes a tensor input '{parameter.name}'", None
            )
        return self._convert(parameter, plain(value), what)

    def _constant(self, name: str) -> Array | None:
        return self.site.constants.get(name)

    def _convert(self, parameter: Parameter, value: Any, what: str) -> Any:
        kinds = parameter.kinds
        if parameter.prefers_tensor and isinstance(value, (list, tuple)):
            kinds = (Kind.INTS, Kind.FLOATS, Kind.STRS)  # a list stays one, also of one element
        for kind in kinds:
            try:
                return as_kind(kind, value)
            except (TypeError, ValueError):
                continue
        raise self._error(f"{what} is {kind_of(value)}, and '{parameter.name}' must be {parameter}", None)

    # --- errors ---------------------------------------------------------------------------------------------

    def _error(self, what: str, remedy: str | None) -> BindingError:
        return BindingError(what, where=self.site.where, remedy=remedy)

    def _missing(self, parameter: Parameter) -> BindingError:
        given = ", ".join(self.attributes) or "none"
        return self._error(
            f"'{parameter.name}' ({parameter}) is missing; attributes given: {given}",
            f"the operator's parameters are: {self.signature}; --bind gives a parameter another name",
        )

    def _not_constant(self, parameter: Parameter, index: int, name: str) -> BindingError:
        return self._error(
            f"'{parameter.name}' must be known before the model runs ({parameter}), "
            f"but input {index} ('{name}') is computed",
            "export with a constant for it",
        )


def _type_of(constant: Array | None) -> TensorType | None:
    if constant is None:
        return None
    return TensorType(int(helper.np_dtype_to_tensor_dtype(constant.dtype)), constant.shape)
