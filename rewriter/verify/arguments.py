"""Whether a region's arguments are what the placeholder in the model says.

The reference and the decomposition are given the same arguments, so a wrong one would show in neither.  They are read
from the node a second time here, by another way than :mod:`rewriter.placeholder.binding`: by the signature of the
reference, whose defaults are PyTorch's.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import AttributeProto, numpy_helper

from rewriter.placeholder.binding import Ref
from rewriter.placeholder.rules import Attribute, Fixed, Input

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.decompose import Region
    from rewriter.placeholder.binding import Site
    from rewriter.placeholder.registry import Match


def disagreement(region: Region) -> str | None:
    """What argument is not the one that the node gives, in a clause; None where all are, or where nothing is known."""
    if region.site is None or region.match is None or region.placeholder.is_standard:
        return None
    return _Reading(region, region.site, region.match).problem()


class _Reading:
    """The arguments of one node, and those that were bound."""

    def __init__(self, region: Region, site: Site, match: Match) -> None:
        self.node, self.match = site.node, match
        self.bound = region.bound.arguments
        self.constants = site.constants
        # Where libraries differ, shapes have told which order it is.
        self.order = region.bound.order or match.placeholder.schemas.get(match.qualified)
        self.names = {_plain(alias): target for alias, target in match.placeholder.aliases.items()}
        self.names |= {_plain(name): name for name in self.bound}
        self.defaults = _defaults(match)
        self.given: set[str] = set()

    def problem(self) -> str | None:
        for problem in (*self._by_rule(), *self._attributes(), *self._inputs(), *self._absent()):
            if problem is not None:
                return problem
        return None

    def _by_rule(self) -> Iterator[str | None]:
        attributes = {attribute.name: attribute for attribute in self.node.attribute}
        for name, source in (self.match.rule.sources if self.match.rule is not None else {}).items():
            if isinstance(source, Fixed):
                yield self._compare(name, source.value, "--bind")
            elif isinstance(source, Attribute) and source.name in attributes:
                yield self._compare(name, _value(attributes[source.name]), f"attribute '{source.name}'")
            elif isinstance(source, Input) and source.position < len(self.node.input):
                yield self._input(name, source.position)

    def _attributes(self) -> Iterator[str | None]:
        rule = self.match.rule
        taken = (
            {s.name for s in (*rule.sources.values(), *rule.ignored) if isinstance(s, Attribute)}
            if rule is not None
            else set()
        )
        taken |= {"inplace"} - set(self.bound)
        for attribute in self.node.attribute:
            if attribute.name in self.match.selectors or attribute.name in taken:
                continue
            name = self.names.get(_plain(attribute.name))
            if name is None:
                yield f"attribute '{attribute.name}' is no parameter"
            else:
                yield self._compare(name, _value(attribute), f"attribute '{attribute.name}'")

    def _inputs(self) -> Iterator[str | None]:
        """Each input is the next parameter that it can be; a library's own order says which."""
        schema = self.order
        rule = self.match.rule
        taken = (
            {s.position for s in (*rule.sources.values(), *rule.ignored) if isinstance(s, Input)}
            if rule is not None
            else set()
        )
        if schema is not None:
            slots = [slot for slot in schema if "=" not in slot]
            self.given |= {slot.partition("=")[0].partition(".")[0] for slot in schema}
            for position, slot in enumerate(slots[: len(self.node.input)]):
                if slot in self.bound and self.node.input[position]:
                    yield self._input(slot, position)
            return
        waiting = [name for name in self.bound if name not in self.given]
        for position, value in enumerate(self.node.input):
            if position in taken:
                continue
            if not value:
                del waiting[:1]  # omitted, which is an answer as well
                continue
            while waiting and not self._is(waiting[0], position):
                waiting.pop(0)
            if not waiting:
                yield f"input {position} ('{value}') is not where it belongs"
                return
            name = waiting[0]
            self.given.add(name)
            if not _is_variadic(self.bound[name]):
                waiting.pop(0)

    def _absent(self) -> Iterator[str | None]:
        for name, value in self.bound.items():
            if name in self.given or name not in self.defaults:
                continue
            if not _same(self.defaults[name], value):
                yield f"'{name}' is {value!r} where the node gives none, and by default {self.defaults[name]!r}"

    # --- one argument ---------------------------------------------------------------------------------------

    def _input(self, name: str, position: int) -> str | None:
        self.given.add(name)
        if self._is(name, position):
            return None
        return f"'{name}' is not input {position} ('{self.node.input[position]}')"

    def _is(self, name: str, position: int) -> bool:
        argument, value = self.bound[name], self.node.input[position]
        if _is_variadic(argument):
            return any(isinstance(item, Ref) and item.name == value for item in argument)
        if isinstance(argument, Ref):
            return bool(argument.name == value)
        return value in self.constants and _same(self.constants[value], argument)

    def _compare(self, name: str, value: Any, what: str) -> str | None:
        self.given.add(name)
        argument = self.bound[name]
        if isinstance(argument, Ref):
            argument = argument.constant
        return None if _same(value, argument) else f"'{name}' is {argument!r}, and {what} says {value!r}"


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter != "_")


def _defaults(match: Match) -> dict[str, Any]:
    """Of the reference's own parameters."""
    try:
        parameters = inspect.signature(match.placeholder.reference).parameters.values()
    except (TypeError, ValueError):
        return {}
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


def _is_variadic(argument: Any) -> bool:
    return isinstance(argument, tuple) and any(isinstance(item, Ref) for item in argument)


def _value(attribute: AttributeProto) -> Any:
    """What an attribute holds, read by its field rather than by onnx's helper."""
    kinds = AttributeProto
    if attribute.type == kinds.TENSOR:
        return numpy_helper.to_array(attribute.t)
    fields = {
        kinds.INT: "i",
        kinds.FLOAT: "f",
        kinds.STRING: "s",
        kinds.INTS: "ints",
        kinds.FLOATS: "floats",
        kinds.STRINGS: "strings",
    }
    if attribute.type not in fields:
        return None
    value = getattr(attribute, fields[attribute.type])
    return list(value) if fields[attribute.type].endswith("s") and attribute.type != kinds.STRING else value


def _same(given: Any, argument: Any) -> bool:
    """Whether both are the same numbers or texts; a number and a list of it are."""
    if given is None or argument is None:
        return given is argument
    a, b = _items(given), _items(argument)
    return len(a) == len(b) and all(
        x == y or (isinstance(x, float) and isinstance(y, float) and x != x and y != y)
        for x, y in zip(a, b, strict=True)
    )


def _items(value: Any) -> list[Any]:
    if isinstance(value, np.ndarray):
        return _items(value.reshape(-1).tolist())
    if isinstance(value, bytes):
        return [value.decode("utf-8", "surrogateescape")]
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        return [value]
    return [item for part in value for item in _items(part)]
