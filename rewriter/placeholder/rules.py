"""What a user says of an operator's names and arguments: ``--bind "mylib::shift_op=roll(shifts=amount)"``."""

from __future__ import annotations

import ast
import difflib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rewriter.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class BindRule:
    """How a user said that an operator's attributes map to a pass: ``--bind "mylib::shift_op=roll(shifts=amount)"``.

    ``sources`` maps a parameter to an attribute name (``str``), an input position (``Input``) or a fixed value
    (``Fixed``).
    """

    domain: str
    op_type: str
    pass_name: str
    sources: Mapping[str, Attribute | Input | Fixed] = field(default_factory=dict)
    #: Attributes and inputs that are no arguments of the operator: ``-=plugin_version``, ``-=$3``.
    ignored: tuple[Attribute | Input, ...] = ()
    #: The rule as it was written.
    text: str = field(default="", compare=False)

    def check(self, parameters: Sequence[str]) -> None:
        """UsageError where the rule names a parameter that is none of the pass's ``parameters``."""
        for name in self.sources:
            if name in parameters:
                continue
            near = difflib.get_close_matches(name, parameters, n=1)
            hint = f"did you mean '{near[0]}'? " if near else ""
            raise UsageError(
                f"--bind '{self.text}' names a parameter '{name}' that pass '{self.pass_name}' does not have",
                remedy=f"{hint}its parameters are: {', '.join(parameters)}",
            )


@dataclass(frozen=True)
class Attribute:
    name: str


@dataclass(frozen=True)
class Input:
    position: int


@dataclass(frozen=True)
class Fixed:
    value: Any


_BIND = re.compile(r"^\s*(?P<op>[^=()]+?)\s*=\s*(?P<name>[\w.\-/:]+)\s*(?:\((?P<args>.*)\))?\s*$", re.DOTALL)


def parse_bind(text: str) -> BindRule:
    """``"mylib::shift_op=roll(shifts=amount, dims=[1])"`` as a rule.

    Right of each ``=``: the name of an attribute, ``$0`` for the first input, or a literal (number, list, "string").
    ``-`` in place of a parameter: an attribute or input that is to be ignored.
    UsageError where the text is none of that.
    """
    form = 'the form is "domain::Operator=pass(parameter=attribute, parameter=$0, parameter=[1, 2])"'
    match = _BIND.match(text)
    if match is None:
        raise UsageError(f"--bind '{text}' cannot be read", remedy=form)
    domain, separator, op_type = match["op"].rpartition("::")
    if not separator:
        domain = ""
    sources: dict[str, Attribute | Input | Fixed] = {}
    ignored: list[Attribute | Input] = []
    for part in _split_arguments(match["args"] or ""):
        name, separator, source = (piece.strip() for piece in part.partition("="))
        if separator and name == "-" and (source.isidentifier() or source[1:].isdigit()):
            ignored.append(Input(int(source[1:])) if source.startswith("$") else Attribute(source))
            continue
        if not separator or not name.isidentifier() or not source:
            raise UsageError(f"--bind '{text}': '{part.strip()}' cannot be read", remedy=form)
        if source.startswith("$") and source[1:].isdigit():
            sources[name] = Input(int(source[1:]))
        elif source.isidentifier() and source not in ("True", "False", "None"):
            sources[name] = Attribute(source)
        else:
            try:
                sources[name] = Fixed(literal(source))
            except (ValueError, SyntaxError) as error:
                raise UsageError(f"--bind '{text}': '{source}' cannot be read", remedy=form) from error
    return BindRule(domain, op_type, match["name"], sources, tuple(ignored), text.strip())


def _split_arguments(text: str) -> list[str]:
    """Split at the commas that stand in no bracket or quotes."""
    parts, depth, quote, current = [], 0, "", ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        if char == "," and depth == 0 and not quote:
            parts.append(current)
            current = ""
        else:
            current += char
    return [part for part in [*parts, current] if part.strip()]


def literal(text: str) -> Any:
    """A number, list or string as written in Python; ValueError or SyntaxError where it is none."""
    return ast.literal_eval(text)
