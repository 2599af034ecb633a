"""A pass made from a function instead of written as a class."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypedDict

from rewriter.errors import PassDefinitionError
from rewriter.placeholder.contract import Decomposition, Placeholder

if TYPE_CHECKING:
    from rewriter.placeholder.builder import Builder
    from rewriter.placeholder.case import Case
    from rewriter.placeholder.signature import Signature

Cases = Callable[[], Iterable["Case"]] | Iterable["Case"]


class Options(TypedDict, total=False):
    """What may be said of a pass besides its body; the same as the attributes of :class:`Placeholder`."""

    #: On the command line; by default the operator's name in snake_case.
    name: str
    #: Names of the results, or their number.
    outputs: Sequence[str] | int
    #: What a parameter may be, as in the signature of a decomposition: ``{"shifts": Ints, "beta": float | Value}``.
    parameters: Mapping[str, Any]
    aliases: Mapping[str, str]
    schemas: Mapping[str, tuple[str, ...]]
    domains: tuple[str, ...]
    dtypes: tuple[str, ...]
    tolerances: Mapping[str, tuple[float, float]]
    #: Lowest and highest opset that the body is written for.
    opset: int
    until: int | None
    portable: bool
    #: Types of the results, called with the operator's arguments in order.
    infer: Callable[..., Any]
    #: Called with the actual and the expected results (and the arguments, if it takes three); what is wrong, or None.
    compare: Callable[..., str | None]
    #: Called with the arguments by name and the results; why agreement on them would say little, or None.
    says_little: Callable[[Mapping[str, Any], tuple[Any, ...]], str | None]
    #: By ONNX operator, what its kernel's error is multiplied by; called with the operator's arguments in order.
    terms: Callable[..., Mapping[str, Any]]


class Body(Protocol):
    """How a body in some idiom is called."""

    def signature(self, owner: InteropPass) -> Signature:
        """The operator's parameters; PassDefinitionError where unclear."""

    def build(self, owner: InteropPass, g: Builder, arguments: dict[str, Any]) -> Any:
        """Build the results from the bound arguments, by parameter name (a variadic one as a tuple)."""


class InteropPass(Placeholder):
    """A pass whose body is not a method; made by :func:`declare`, never by hand."""

    body: ClassVar[Body]
    options: ClassVar[Options]
    list_cases: ClassVar[Callable[[], Iterable[Case]]]

    @functools.cached_property
    def decompositions(self) -> Sequence[Decomposition]:
        options = self.options
        form = Decomposition(
            "body", _build, options.get("opset", 11), options.get("until"), options.get("portable", True)
        )
        return (form,)

    @functools.cached_property
    def signature(self) -> Signature:
        return self.body.signature(self)

    def validate(self) -> None:
        super().validate()
        if not self.case_list:
            raise PassDefinitionError(
                "no cases: they say what the parameters are",
                where=self.pass_name(),
                remedy="give at least one Case",
            )

    def _check_parameters(self, item: Decomposition, owner: str) -> None:
        """Nothing: there is one body, which declares them in its own idiom."""

    @functools.cached_property
    def case_list(self) -> tuple[Case, ...]:
        """The cases, drawn once; they also tell what the parameters are."""
        if not hasattr(type(self), "list_cases"):
            return ()
        try:
            return tuple(type(self).list_cases())
        except Exception as error:
            raise PassDefinitionError(
                f"its cases cannot be listed: {type(error).__name__}: {error}", where=self.pass_name()
            ) from error


def declare(
    operator: str | Sequence[str],
    body: Body,
    *,
    summary: str,
    reference: Callable[..., Any] | None,
    cases: Cases | None,
    options: Options,
) -> InteropPass:
    """A pass for ``operator`` (``"mylib::square_plus_one"``, or several) with ``body``.

    Without ``reference`` or ``cases`` it does not load: it could not be proved.
    """
    matches = (operator,) if isinstance(operator, str) else tuple(operator)
    if not matches or not all(isinstance(item, str) and item.rpartition("::")[2] for item in matches):
        raise PassDefinitionError(f"{operator!r} names no operator", remedy='write "domain::Name"')
    bare = matches[0].rpartition("::")[2]
    unknown = set(options) - set(Options.__annotations__)
    if unknown:
        raise PassDefinitionError(
            f"no option is called {', '.join(sorted(unknown))}",
            where=matches[0],
            remedy=f"known: {', '.join(Options.__annotations__)}",
        )
    outputs = options.get("outputs", ("output",))
    if isinstance(outputs, int):
        outputs = tuple(f"output_{i}" for i in range(outputs)) if outputs != 1 else ("output",)
    members: dict[str, Any] = {
        "__doc__": summary,
        "name": options.get("name") or _snake(bare),
        "matches": matches,
        "outputs": (outputs,) if isinstance(outputs, str) else tuple(outputs),
        "body": body,
        "options": options,
    }
    for key in ("aliases", "schemas", "domains", "dtypes", "tolerances"):
        if key in options:
            members[key] = options[key]
    if reference is not None:
        members["reference"] = _in_order(reference)
    if cases is not None:
        members["list_cases"] = staticmethod(_lister(cases))
        members["cases"] = _cases
    if "infer" in options:
        members["infer"] = _in_order(options["infer"])
    if "terms" in options:
        members["terms"] = _in_order(options["terms"])
    if "compare" in options:
        members["compare"] = staticmethod(options["compare"])
    if "says_little" in options:
        members["says_little"] = staticmethod(options["says_little"])
    made: InteropPass = type(_camel(bare), (InteropPass,), members)()
    return made


def _build(owner: InteropPass, g: Builder, /, *positional: Any, **named: Any) -> Any:
    """Bound arguments as one dictionary; those before a variadic parameter, and its own, come by position."""
    arguments: dict[str, Any] = {}
    rest = list(positional)
    for parameter in owner.signature.parameters:
        if parameter.name in named:
            arguments[parameter.name] = named[parameter.name]
        elif parameter.variadic:
            arguments[parameter.name] = tuple(rest)
            rest = []
        else:
            arguments[parameter.name] = rest.pop(0)
    return owner.body.build(owner, g, arguments)


def _cases(self: InteropPass) -> Iterator[Case]:
    return iter(self.case_list)


def _lister(cases: Cases) -> Callable[[], Iterable[Case]]:
    if callable(cases):
        return cases
    listed = tuple(cases)
    return lambda: listed


def _in_order(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` as a method that takes its arguments by position: its own names may differ from the body's."""

    def call(self: InteropPass, /, *positional: Any, **named: Any) -> Any:
        given = list(positional)
        parameters = self.signature.parameters
        for index, parameter in enumerate(parameters):
            if index < len(positional) and not parameter.variadic:
                continue
            if parameter.name not in named:
                break
            value = named.pop(parameter.name)
            given += value if parameter.variadic else [value]
        return function(*given, **named)

    return call


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _camel(name: str) -> str:
    camel = "".join(part[:1].upper() + part[1:] for part in re.split(r"\W|_", name))
    return camel if camel.isidentifier() else "Pass"
