"""What the parameters of an operator are, where the body does not declare it in the vocabulary of a pass.

Told, in this order, by the pass's own ``parameters=``, by an annotation, by ``symbolic_helper.parse_args``, and
else by the cases, which show what each parameter is given.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rewriter.errors import PassDefinitionError
from rewriter.placeholder.case import TensorSpec
from rewriter.placeholder.signature import NARROWEST_FIRST, Kind, Parameter, Signature, kinds_of

if TYPE_CHECKING:
    from rewriter.placeholder.case import Case

#: The descriptors of `torch.onnx.symbolic_helper.parse_args`.
DESCRIPTORS: Mapping[str, Kind] = {
    "v": Kind.TENSOR,
    "i": Kind.INT,
    "is": Kind.INTS,
    "f": Kind.FLOAT,
    "fs": Kind.FLOATS,
    "b": Kind.BOOL,
    "s": Kind.STR,
    "t": Kind.ARRAY,
}

_ELEMENTS = {int: Kind.INTS, float: Kind.FLOATS, str: Kind.STRS}
_SCALARS = {int: Kind.INT, float: Kind.FLOAT, bool: Kind.BOOL, str: Kind.STR}


def infer_signature(
    declared: Sequence[inspect.Parameter],
    *,
    owner: str,
    cases: Sequence[Case],
    explicit: Mapping[str, Any],
    hints: Mapping[str, Any] | None = None,
    descriptors: Mapping[str, str] | None = None,
) -> Signature:
    """The signature of an operator whose body has the parameters ``declared``."""
    for parameter in declared:
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            raise PassDefinitionError(f"'**{parameter.name}' is not a parameter of an operator", where=owner)
    names = [parameter.name for parameter in declared]
    for name in explicit:
        if name not in names:
            raise PassDefinitionError(
                f"parameters= names '{name}', which is none of: {', '.join(names)}", where=owner
            )
    seen, omitted = _from_cases(cases, names, owner)
    made = []
    for parameter in declared:
        name, default = parameter.name, parameter.default
        nullable = default is None or (name in omitted and default is inspect.Parameter.empty)
        hint = (hints or {}).get(name)
        descriptor = (descriptors or {}).get(name)
        if name in explicit:
            kinds, may_be_none = kinds_of(explicit[name], name, owner)
            nullable |= may_be_none
        else:
            kinds, may_be_none = kinds_of_hint(hint)
            nullable |= may_be_none
            if not kinds:
                kinds = _undeclared(descriptor, seen.get(name, set()), default)
        variadic = parameter.kind is inspect.Parameter.VAR_POSITIONAL
        made.append(Parameter(name, kinds, default, nullable and not variadic, variadic))
    return Signature(tuple(made))


def kinds_of_hint(hint: Any) -> tuple[tuple[Kind, ...], bool]:
    """The kinds that an annotation in Python's own terms names (``list[int]``, ``float | None``), empty where it names
    anything else; and whether None is among them."""
    members = (
        typing.get_args(hint)
        if typing.get_origin(hint) is typing.Union or isinstance(hint, types.UnionType)
        else (hint,)
    )
    kinds: set[Kind] = set()
    nullable = False
    for member in members:
        if member is type(None):
            nullable = hint is not None and len(members) > 1
            continue
        kind = _kind_of_hint(member)
        if kind is None:
            return (), nullable
        kinds.add(kind)
    return _ordered(kinds), nullable


def _kind_of_hint(hint: Any) -> Kind | None:
    if isinstance(hint, type) and hint in _SCALARS:
        return _SCALARS[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (list, tuple, Sequence, Iterable) and arguments and arguments[0] in _ELEMENTS:
        return _ELEMENTS[arguments[0]]
    if isinstance(hint, type) and (hint.__module__, hint.__qualname__) in (
        ("torch", "Value"),
        ("torch._C", "Value"),
        ("torch", "Tensor"),
        ("rewriter.placeholder.value", "Value"),
    ):
        return Kind.TENSOR
    return None


def _undeclared(descriptor: str | None, seen: set[Kind], default: Any) -> tuple[Kind, ...]:
    if descriptor == "none":
        # The body does not look at it: it may be anything.
        return NARROWEST_FIRST
    if descriptor is not None and descriptor != "v":
        return (DESCRIPTORS[descriptor],)
    kinds = set(seen)
    if descriptor == "v":
        kinds.add(Kind.TENSOR)
    from_default = None if default is inspect.Parameter.empty or default is None else _kind_of_value(default)
    if from_default is not None:
        kinds.add(from_default)
    if not kinds:
        kinds = {Kind.TENSOR}
    if Kind.FLOAT in kinds:
        kinds.discard(Kind.INT)  # 2 is also a number
    if Kind.FLOATS in kinds:
        kinds.discard(Kind.INTS)
    return _ordered(kinds)


def _ordered(kinds: set[Kind]) -> tuple[Kind, ...]:
    return tuple(kind for kind in NARROWEST_FIRST if kind in kinds)


def _from_cases(
    cases: Sequence[Case], names: Sequence[str], owner: str
) -> tuple[dict[str, set[Kind]], set[str]]:
    """The kinds of each parameter that the cases give, and the parameters that some case does without."""
    seen: dict[str, set[Kind]] = {}
    omitted: set[str] = set()
    for case in cases:
        given = case.arguments(names)
        for name, value in given.items():
            if name not in names:
                raise PassDefinitionError(
                    f"{case!r} gives '{name}', which is no parameter",
                    where=owner,
                    remedy=f"known: {', '.join(names)}",
                )
            if value is None:
                omitted.add(name)
                continue
            kind = _kind_of_value(value)
            if kind is None:
                raise PassDefinitionError(
                    f"{case!r}: '{name}' is a {type(value).__name__}, no operator argument", where=owner
                )
            seen.setdefault(name, set()).add(kind)
        omitted |= {name for name in names if name not in given}
    return seen, omitted


def _kind_of_value(value: Any) -> Kind | None:
    if isinstance(value, TensorSpec):
        return Kind.TENSOR
    if isinstance(value, np.ndarray):
        return Kind.ARRAY
    if isinstance(value, (bool, int, float, str)):
        return _SCALARS[type(value)]
    if isinstance(value, (list, tuple)):
        if any(isinstance(item, TensorSpec) for item in value):
            return Kind.TENSOR
        if all(isinstance(item, (bool, int)) for item in value):
            return Kind.INTS
        if all(isinstance(item, (int, float)) for item in value):
            return Kind.FLOATS
        if all(isinstance(item, str) for item in value):
            return Kind.STRS
    return None


def parameters_of(function: Callable[..., Any], skip: int, owner: str) -> list[inspect.Parameter]:
    """The parameters of ``function`` after its first ``skip``."""
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise PassDefinitionError(
            f"the parameters of {function!r} cannot be read",
            where=owner,
            remedy="list them all, in order, in parameters={…}, or wrap it in a def",
        ) from error
    if len(found) < skip:
        raise PassDefinitionError(
            f"the function takes {len(found)} parameters, at least {skip} are needed", where=owner
        )
    return found[skip:]


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of ``function`` as far as they can be evaluated: nothing depends on those that cannot."""
    function = inspect.unwrap(function)
    try:
        return typing.get_type_hints(function)
    except Exception:  # noqa: BLE001  (names imported for a type checker only, and whatever else people write)
        return {}
