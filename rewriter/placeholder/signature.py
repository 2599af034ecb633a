"""The signature of a decomposition read as the operator's schema.

The parameters of ``def decompose(self, g, x: Value, shifts: Ints | Value, dims: Ints = ())`` are the operator's, in
its own argument order.  An annotation says what a parameter may be:

``Value``
    a tensor input (``Value | None`` where it may be omitted, ``*xs: Value`` for any number of them);
``int``, ``float``, ``bool``, ``str``, ``Ints``, ``Floats``, ``Strs``
    a number, flag, text or list that must be known before anything runs;
``Array``
    a tensor that must be known (a ``numpy.ndarray``);
``Ints | Value`` and the like
    a parameter that may also be computed at run time.

One decomposition of a pass declares them all; another may name those that it uses and end in ``**_: Any``.
"""

from __future__ import annotations

import inspect
import types
import typing
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from rewriter.errors import PassDefinitionError
from rewriter.placeholder.value import Array, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Ints = tuple[int, ...]
Floats = tuple[float, ...]
Strs = tuple[str, ...]


class Kind(Enum):
    TENSOR = "a tensor"
    INT = "an integer"
    FLOAT = "a number"
    BOOL = "a boolean"
    STR = "a string"
    INTS = "a list of integers"
    FLOATS = "a list of numbers"
    STRS = "a list of strings"
    ARRAY = "a constant tensor"


#: The kinds in the order in which an argument is tried: the narrowest first.
NARROWEST_FIRST = (
    Kind.BOOL,
    Kind.INT,
    Kind.INTS,
    Kind.FLOAT,
    Kind.FLOATS,
    Kind.STR,
    Kind.STRS,
    Kind.ARRAY,
    Kind.TENSOR,
)

_SIMPLE: Mapping[Any, Kind] = {
    int: Kind.INT,
    float: Kind.FLOAT,
    bool: Kind.BOOL,
    str: Kind.STR,
    Ints: Kind.INTS,
    Floats: Kind.FLOATS,
    Strs: Kind.STRS,
    Value: Kind.TENSOR,
    np.ndarray: Kind.ARRAY,
    Array: Kind.ARRAY,
}


#: What numpy calls the elements of which each kind is made.
_ELEMENTS: Mapping[Kind, str] = {
    **dict.fromkeys((Kind.INT, Kind.INTS, Kind.BOOL), "biu"),
    **dict.fromkeys((Kind.FLOAT, Kind.FLOATS), "biuf"),
    **dict.fromkeys((Kind.STR, Kind.STRS), "OSU"),
}


@dataclass(frozen=True)
class Parameter:
    name: str
    kinds: tuple[Kind, ...]
    #: ``inspect.Parameter.empty`` where there is none.
    default: Any = inspect.Parameter.empty
    nullable: bool = False
    variadic: bool = False
    #: Whether an input is a tensor even where it is constant; only an attribute gives another kind.
    prefers_tensor: bool = False

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty and not self.nullable and not self.variadic

    @property
    def is_tensor(self) -> bool:
        """Whether it may be computed at run time."""
        return Kind.TENSOR in self.kinds

    @property
    def is_constant(self) -> bool:
        """Whether it may be given as a Python value."""
        return any(kind is not Kind.TENSOR for kind in self.kinds)

    def may_hold(self, dtype: np.dtype[Any]) -> bool:
        """Whether a tensor of ``dtype`` can stand for it, where a Python value could too: its elements fit those."""
        allowed = [_ELEMENTS[kind] for kind in self.kinds if kind in _ELEMENTS]
        if not allowed or Kind.ARRAY in self.kinds:
            return True
        letter = dtype.kind
        if letter == "V":  # numpy knows neither int4 nor bfloat16
            letter = "i" if dtype.name.startswith(("int", "uint")) else "f"
        return any(letter in letters for letters in allowed)

    def agrees(self, whole: Parameter) -> bool:
        """Whether this is ``whole``, its default perhaps left out."""
        if (self.kinds, self.variadic) != (whole.kinds, whole.variadic):
            return False
        return self.default is inspect.Parameter.empty or self == whole

    def absent(self) -> Any:
        """What it is when the placeholder does not give it."""
        return None if self.default is inspect.Parameter.empty else self.default

    def __str__(self) -> str:
        return " or ".join(kind.value for kind in self.kinds)


@dataclass(frozen=True)
class Signature:
    parameters: tuple[Parameter, ...]

    def __getitem__(self, name: str) -> Parameter:
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        raise KeyError(name)

    def __contains__(self, name: str) -> bool:
        return any(parameter.name == name for parameter in self.parameters)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(parameter.name for parameter in self.parameters)

    def __str__(self) -> str:
        return ", ".join(
            f"*{p.name}"
            if p.variadic
            else p.name
            if p.default is inspect.Parameter.empty
            else f"{p.name}={p.default!r}"
            for p in self.parameters
        )


def is_partial(function: Callable[..., Any]) -> bool:
    """Whether ``function`` names some parameters of the operator, and takes the others as ``**_``."""
    parameters = inspect.signature(function).parameters.values()
    return any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)


def read_signature(function: Callable[..., Any], owner: str) -> Signature:
    """The operator's parameters as ``function(self, g, …)`` declares them; PassDefinitionError where unclear.

    Of a partial function, those that it names.
    """
    where = f"{owner}.{function.__name__}"
    try:
        hints = typing.get_type_hints(function, localns=_annotation_names())
    except (NameError, TypeError) as error:
        raise PassDefinitionError(
            f"an annotation cannot be read: {error}",
            where=where,
            remedy="annotate with Value, int, float, Ints, …",
        ) from error
    declared = list(inspect.signature(function).parameters.values())
    if len(declared) < 2:
        raise PassDefinitionError(
            "a decomposition takes self, the builder and the operator's arguments", where=where
        )
    parameters = []
    for parameter in declared[2:]:
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        if parameter.name not in hints:
            raise PassDefinitionError(
                f"parameter '{parameter.name}' has no annotation",
                where=where,
                remedy="say whether it is a tensor (Value) or a known parameter (int, float, bool, str, Ints, Floats)",
            )
        kinds, nullable = kinds_of(hints[parameter.name], parameter.name, where)
        parameters.append(
            Parameter(
                parameter.name,
                kinds,
                parameter.default,
                nullable or parameter.default is None,
                parameter.kind is inspect.Parameter.VAR_POSITIONAL,
            )
        )
    return Signature(tuple(parameters))


#: What a parameter of a reference may be that says nothing of itself.
_ANYTHING = (Kind.INT, Kind.INTS, Kind.FLOAT, Kind.FLOATS, Kind.STR, Kind.STRS, Kind.TENSOR)


def read_reference(function: Callable[..., Any], owner: str) -> Signature:
    """The operator's parameters as ``reference(x, …)`` declares them, for a pass without a decomposition.

    1. An annotation says what it says in a decomposition; ``torch.Tensor`` is a tensor.
    2. Without one, the default does: ``scale=1.0`` is a number, ``dims=(0, 1)`` a list of integers.
    3. Without either, it is a tensor where an input gives it, and whatever an attribute holds.
    """
    where = f"{owner}.{function.__name__}"
    parameters = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            raise PassDefinitionError(
                f"'**{parameter.name}' hides what the operator takes",
                where=where,
                remedy="name every parameter",
            )
        kinds, nullable = _reference_kinds(parameter)
        variadic = parameter.kind is inspect.Parameter.VAR_POSITIONAL
        default = tuple(parameter.default) if isinstance(parameter.default, list) else parameter.default
        parameters.append(
            Parameter(
                parameter.name,
                (Kind.TENSOR,) if variadic else kinds,
                default,
                nullable or default is None,
                variadic,
                prefers_tensor=kinds == _ANYTHING,
            )
        )
    return Signature(tuple(parameters))


def _reference_kinds(parameter: inspect.Parameter) -> tuple[tuple[Kind, ...], bool]:
    hint = parameter.annotation
    if hint is not inspect.Parameter.empty:
        text = hint if isinstance(hint, str) else inspect.formatannotation(hint)
        bare = text.replace("typing.", "").replace("Optional[", "").replace(" | None", "").rstrip("]")
        if bare.rpartition(".")[2] in ("Tensor", "Value"):
            return (Kind.TENSOR,), bare != text
        known = {**_annotation_names(), "int": int, "float": float, "bool": bool, "str": str}
        known |= {"tuple[int, ...": Ints, "list[int": Ints, "tuple[float, ...": Floats, "list[float": Floats}
        if bare in known and known[bare] in _SIMPLE:
            return (_SIMPLE[known[bare]],), bare != text
    default = parameter.default
    items = default if isinstance(default, (list, tuple)) else (default,)
    for python, one, many in (
        (bool, Kind.BOOL, Kind.INTS),
        (int, Kind.INT, Kind.INTS),
        (float, Kind.FLOAT, Kind.FLOATS),
        (str, Kind.STR, Kind.STRS),
    ):
        if items and all(isinstance(item, python) for item in items):
            return (many if items is default else one,), False
    if items is default:
        return (Kind.INTS, Kind.FLOATS), False
    return _ANYTHING, False


def _annotation_names() -> dict[str, Any]:
    """Names that a pass may have imported for the type checker only."""
    from rewriter.placeholder.builder import Builder

    return {
        "Value": Value,
        "Ints": Ints,
        "Floats": Floats,
        "Strs": Strs,
        "Builder": Builder,
        "Array": Array,
        "Any": Any,
    }


def kinds_of(hint: Any, name: str, where: str) -> tuple[tuple[Kind, ...], bool]:
    members = typing.get_args(hint) if isinstance(hint, types.UnionType) or _is_union(hint) else (hint,)
    kinds: set[Kind] = set()
    nullable = False
    for member in members:
        if member is type(None):
            nullable = True
        elif member in _SIMPLE:
            kinds.add(_SIMPLE[member])
        else:
            raise PassDefinitionError(
                f"parameter '{name}' is annotated {member!r}, which is no kind of operator argument",
                where=where,
                remedy="use Value, int, float, bool, str, Ints, Floats, Strs, Array or a union of them",
            )
    return tuple(kind for kind in NARROWEST_FIRST if kind in kinds), nullable


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) is typing.Union
