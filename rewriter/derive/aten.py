"""Operators that PyTorch itself defines, bound by PyTorch's own schemas.

``aten::X`` and the operators of torchvision and torchaudio become passes whose signature is the operator's schema and
whose reference is the operator.  Which overload a node means shows only in its inputs, so a pass is made for each node
(:meth:`AtenOperator.at`).  The exporters' fall-through writes all arguments of the schema as inputs, in order, defaults
and keyword-only ones as well; an overload whose count of arguments fits exactly comes first.
"""

from __future__ import annotations

import functools
import inspect
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from rewriter.errors import BindingError, DerivationError, UnsupportedParameter
from rewriter.placeholder.binding import Ref, Site, bind
from rewriter.placeholder.contract import Placeholder
from rewriter.placeholder.signature import Kind, Parameter, Signature

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rewriter.placeholder.binding import Bound
    from rewriter.placeholder.case import Case

#: Namespaces whose operators a model file may name.  Others may do anything when they are called.
NAMESPACES = ("aten", "torchvision", "torchaudio")

#: Types of arguments with which an operator reaches beyond its tensors.
_UNSAFE = re.compile(r"\b(Storage|Stream|Generator|__torch__)\b")

#: Operators of ``aten`` that open what a string argument names.
_OPENS = frozenset({"from_file"})

#: Of a schema's type, without ``?``: what a parameter may be.
_KINDS: dict[str, tuple[Kind, ...]] = {
    "Tensor": (Kind.TENSOR,),
    "int": (Kind.INT,),
    "SymInt": (Kind.INT,),
    "float": (Kind.FLOAT,),
    "bool": (Kind.BOOL,),
    "str": (Kind.STR,),
    "Scalar": (Kind.INT, Kind.FLOAT),
    "ScalarType": (Kind.INT,),
    "Layout": (Kind.INT,),
    "MemoryFormat": (Kind.INT,),
    "Device": (Kind.STR,),
    "int[]": (Kind.INTS,),
    "SymInt[]": (Kind.INTS,),
    "float[]": (Kind.FLOATS,),
    "bool[]": (Kind.INTS,),
    "Scalar[]": (Kind.FLOATS,),
}


def is_bound(namespace: str, name: str) -> bool:
    """Whether PyTorch, as it is installed here, defines an operator of that name that a model file may name."""
    return namespace in NAMESPACES and bool(_overloads(namespace, name))


@functools.cache
def operator(namespace: str, name: str) -> AtenOperator:
    """The pass of ``namespace::name``, which :func:`is_bound`."""
    body = {"name": name, "matches": (f"{namespace}::{name}",)}
    made: AtenOperator = type("AtenOperator", (AtenOperator,), body)(namespace, name)
    return made


class AtenOperator(Placeholder):
    """An operator of PyTorch whose overload is not chosen yet."""

    def __init__(self, namespace: str, name: str) -> None:
        self.namespace = namespace
        self.operator = name

    def __reduce__(self) -> Any:
        return operator, (self.namespace, self.operator)

    def at(self, site: Site, ignored: Sequence[str] = ()) -> Placeholder:
        """The pass of the overload that ``site`` means; BindingError where none takes its inputs."""
        fitting: list[tuple[float, int, AtenOverload]] = []
        refusals: list[BindingError] = []
        for order, overload in enumerate(_overloads(self.namespace, self.operator)):
            made = _pass_of(overload)
            try:
                bound = bind(made.signature, site, ignored=ignored)
            except BindingError as error:
                refusals.append(error)
                continue
            fitting.append((-_fit(made, bound, site), order, made))
        if not fitting:
            raise refusals[0]
        return min(fitting, key=lambda item: item[:2])[2]

    @property
    def signature(self) -> Signature:
        return _pass_of(_overloads(self.namespace, self.operator)[0]).signature


class AtenOverload(Placeholder):
    """One overload of an operator of PyTorch; made by :func:`_pass_of`."""

    overload: Any

    def __reduce__(self) -> Any:
        return _named, (self.name, str(self.overload._schema.name), str(self.overload._overloadname))

    @functools.cached_property
    def signature(self) -> Signature:
        return Signature(tuple(_parameter(item) for item in self.overload._schema.arguments))

    @property
    def summary(self) -> str:
        return f"PyTorch's own {self.overload._schema}"

    def cases(self) -> Iterator[Case]:
        return iter(())

    def at(self, site: Site, ignored: Sequence[str] = ()) -> Placeholder:  # noqa: ARG002
        return self


def _fit(made: AtenOverload, bound: Bound, site: Site) -> float:
    """How well an overload fits: the count of its arguments first, then their types."""
    schema = made.overload._schema
    given = sum(1 for name in site.node.input if name) + len(site.node.attribute)
    missing = abs(len(schema.arguments) - max(given, len(site.node.input)))
    points = -100.0 * missing - (50.0 if schema.is_mutable else 0.0)
    for argument in bound.arguments.values():
        if isinstance(argument, Ref) and argument.constant is not None:
            value = np.asarray(argument.constant)
            # A number of Python looks like this, and an overload that takes one comes first.
            points += 1 if value.ndim == 0 and value.dtype.name in ("int64", "float64", "bool") else 3
        elif argument is not None:
            points += 2
    return points


# --- schemas --------------------------------------------------------------------------------------------------


@functools.cache
def _overloads(namespace: str, name: str) -> tuple[Any, ...]:
    """The overloads of an operator that may be called for a model file, functional ones first."""
    import torch

    packet = getattr(getattr(torch.ops, namespace), name, None)
    if not isinstance(packet, torch._ops.OpOverloadPacket) or name in _OPENS:
        return ()
    every = [getattr(packet, key) for key in packet.overloads()]  # type: ignore[no-untyped-call]
    return tuple(sorted(filter(_is_safe, every), key=lambda overload: bool(overload._schema.is_mutable)))


def _is_safe(overload: Any) -> bool:
    import torch

    schema = overload._schema
    return (
        not any(argument.is_out for argument in schema.arguments)
        and torch.Tag.nondeterministic_seeded not in overload.tags
        and all(_optional(item) if _reaches_out(item) else _kinds(item) for item in schema.arguments)
    )


def _reaches_out(argument: Any) -> bool:
    return _UNSAFE.search(str(argument.real_type)) is not None


def _optional(argument: Any) -> bool:
    return str(argument.real_type).startswith("Optional[") or argument.has_default_value()


def _kinds(argument: Any) -> tuple[Kind, ...]:
    """What the argument may be; empty where a node cannot give it."""
    text = str(argument.real_type)
    while text.startswith("Optional["):
        text = text.removeprefix("Optional[")[:-1]
    text = re.sub(r"^List\[(.*)\]$", r"\1[]", text)
    return _KINDS.get(text.replace("number", "Scalar"), ())


def _parameter(argument: Any) -> Parameter:
    default = argument.default_value if argument.has_default_value() else inspect.Parameter.empty
    if isinstance(default, list):
        default = tuple(default)
    nullable = str(argument.type).startswith("Optional[")
    # What a node cannot give (a generator) is always absent.
    return Parameter(_name(argument), _kinds(argument) or (Kind.STR,), default, nullable or default is None)


def _name(argument: Any) -> str:
    """What Python's own functions call the argument."""
    return "input" if argument.name == "self" else str(argument.name)


@functools.cache
def _pass_of(overload: Any) -> AtenOverload:
    namespace, _, name = overload._schema.name.partition("::")
    count = len(overload._schema.returns)
    body = {
        "name": name,
        "matches": (f"{namespace}::{name}",),
        "overload": overload,
        "reference": _reference(overload),
        "outputs": tuple(item.name or f"output{index}" for index, item in enumerate(overload._schema.returns))
        if count > 1
        else ("output",),
    }
    made: AtenOverload = type("AtenOverload", (AtenOverload,), body)()
    return made


def _named(name: str, qualified: str, overload: str) -> AtenOverload:
    """The pass of an overload, where another process named it."""
    namespace = qualified.partition("::")[0]
    for found in _overloads(namespace, name):
        if (found._schema.name, found._overloadname) == (qualified, overload):
            return _pass_of(found)
    raise DerivationError(
        f"PyTorch has no operator {qualified}.{overload} here", remedy="report this as a fault"
    )


def _reference(overload: Any) -> Callable[..., Any]:
    arguments = overload._schema.arguments
    changed = {_name(item) for item in arguments if item.alias_info is not None and item.alias_info.is_write}

    def reference(self: Placeholder, *positional: Any, **named: Any) -> Any:  # noqa: ARG001
        given = dict(zip(map(_name, arguments), positional, strict=False)) | named
        values = [_argument(item, given[_name(item)], _name(item) in changed) for item in arguments]
        pairs = list(zip(arguments, values, strict=True))
        ordered = [value for item, value in pairs if not item.kwarg_only]
        result = overload(*ordered, **{item.name: value for item, value in pairs if item.kwarg_only})
        return tuple(result) if isinstance(result, (list, tuple)) else result

    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    parameters += [
        inspect.Parameter(
            _name(item),
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=item.default_value if item.has_default_value() else inspect.Parameter.empty,
        )
        for item in arguments
    ]
    reference.__signature__ = inspect.Signature(_ordered(parameters))  # type: ignore[attr-defined]
    return reference


def _ordered(parameters: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """Keyword-only where a parameter without a default follows one with a default, which Python does not allow."""
    seen = False
    made: list[inspect.Parameter] = []
    for parameter in parameters:
        has_default = parameter.default is not inspect.Parameter.empty
        late = bool(made) and made[-1].kind is inspect.Parameter.KEYWORD_ONLY
        seen |= has_default
        keyword = late or (seen and not has_default)
        made.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) if keyword else parameter)
    return made


def _argument(formal: Any, value: Any, changed: bool) -> Any:
    """A bound argument as the operator takes it."""
    import torch

    if value is None:
        return None
    kind = str(formal.real_type)
    if isinstance(value, torch.Tensor):
        return value.clone() if changed else value
    for name, table in _tables().items():
        if name in kind:
            if value not in table:
                raise UnsupportedParameter(
                    f"'{formal.name}' is {value}, which is no {name} that can be written in ONNX"
                )
            return table[value]
    if "Device" in kind:
        return torch.device("cpu")
    return list(value) if isinstance(value, tuple) else value


@functools.cache
def _tables() -> dict[str, dict[int, Any]]:
    """What the exporters write as a number: element types, layouts and memory formats of c10."""
    import torch

    types = (
        torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64,
        torch.complex32, torch.complex64, torch.complex128, torch.bool,
    )  # fmt: skip
    formats = (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)
    return {
        "ScalarType": {**dict(enumerate(types)), 15: torch.bfloat16},
        "Layout": {0: torch.strided},
        "MemoryFormat": dict(enumerate(formats)),
    }


def number_of(dtype: Any) -> int:
    """What the exporters write for an element type."""
    return next(number for number, known in _tables()["ScalarType"].items() if known == dtype)


def refuse_without_torch(qualified: str, error: ImportError) -> DerivationError:
    """What to raise where an operator of PyTorch has no pass and torch is not installed."""
    return DerivationError(
        f"no pass takes {qualified}, and PyTorch, whose definition of it could be used, is not installed ({error})",
        remedy="pip install onnx-rewrite[torch], or write a pass",
    )
