"""HTML and SVG from functions, in which no text can become markup by accident.

Whatever is a plain string is escaped; only :class:`Markup`, which the functions here make, is not.  What comes from a
model is shown as it is but for characters that are not seen or that turn their surroundings about: those stand as
``\\u202e``.  The result is well-formed XML as well.
"""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Union

from rewriter.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

Content = Union[str, "Markup", "Iterable[Content]", None]

#: The end of a source line, and what may stand before a path without being part of it.
_LINE = re.compile(r"\.py:\d+")
_DELIMITERS = " \t\n\"'()<>,;"
_ABSOLUTE = re.compile(r"(?:[A-Za-z]:)?[/\\]")


class Markup(str):
    """Finished markup."""

    __slots__ = ()


def visible(text: str) -> str:
    """``text`` with each character that is not seen written out, and source lines without their folders."""
    text = without_folders(text)
    return printable(text, keep="\n")


def without_folders(text: str) -> str:
    """``text`` with its source lines by the names of their files alone: exporters record the folders of somebody's
    machine.
    """
    parts: list[str] = []
    last = 0
    for match in _LINE.finditer(text):
        head = text[last : match.start()]
        slash = max(head.rfind("/"), head.rfind("\\"))
        start = _path_start(head, slash, is_all=not last and match.end() == len(text)) if slash >= 0 else None
        parts.append(head if start is None else head[:start] + head[slash + 1 :])
        parts.append(match[0])
        last = match.end()
    return "".join(parts) + text[last:]


def _path_start(head: str, slash: int, *, is_all: bool) -> int | None:
    """Where in ``head`` the path begins whose last folder ends at ``slash``; None where that is another path."""
    opened = head.rfind("(", 0, slash) + 1
    for start in [opened] if opened and ")" not in head[opened:] else [0] if is_all else []:
        if _ABSOLUTE.match(head, start):
            return start  # alone or in parentheses; blanks belong to it
    if any(character in head[slash:] for character in _DELIMITERS):
        return None
    return max(head.rfind(character, 0, slash) for character in _DELIMITERS) + 1


def escape(text: str) -> Markup:
    return Markup(html.escape(visible(text), quote=True))


def join(*content: Content) -> Markup:
    """The contents one after another; plain strings are escaped, None is nothing."""
    parts: list[str] = []
    for item in content:
        if item is None:
            continue
        if isinstance(item, Markup):
            parts.append(item)
        elif isinstance(item, str):
            parts.append(escape(item))
        else:
            parts.append(join(*item))
    return Markup("".join(parts))


def tag(name: str, /, *content: Content, **attributes: str | float | None) -> Markup:
    """An element; attributes that are None are left out, ``class_`` is ``class``, ``aria_label`` is ``aria-label``."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_number(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = join(*content)
    if not inner and name in _EMPTY:
        return Markup(f"<{name}{given} />")
    return Markup(f"<{name}{given}>{inner}</{name}>")


def _number(value: str | float) -> str:
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return str(value)


#: Elements that may be closed at once, void ones of HTML and those of SVG.
_EMPTY = frozenset({"meta", "br", "col", "path", "rect", "circle", "line", "polygon"})


def table(
    head: Iterable[Content], rows: Iterable[Iterable[Content]], *, caption: str, numeric: int = 0
) -> Markup:
    """A table whose last ``numeric`` columns hold numbers; the first cell of a row is its heading."""
    titles = list(head)
    first_number = len(titles) - numeric
    body = []
    for row in rows:
        cells = [
            tag("th", cell, scope="row")
            if not at
            else tag("td", cell, class_="number" if at >= first_number else None)
            for at, cell in enumerate(row)
        ]
        body.append(tag("tr", cells))
    heads = [
        tag("th", title, scope="col", class_="number" if at >= first_number else None)
        for at, title in enumerate(titles)
    ]
    return tag(
        "div",
        tag("table", tag("caption", caption), tag("thead", tag("tr", heads)), tag("tbody", body)),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=caption,
    )


def short(text: str, length: int = 60) -> Markup:
    """``text`` cut to ``length`` characters in the middle; pointing at it shows more of it."""
    text = visible(text)
    if len(text) <= length:
        return escape(text)
    return tag("span", cut(text, length), title=cut(text, 600))


def cut(text: str, length: int) -> str:
    """``text`` without its middle where it is too long: the end of a node's name tells it from others."""
    if len(text) <= length:
        return text
    head = (length - 1) // 3
    return f"{text[:head]}…{text[-(length - 1 - head) :]}"


def code(text: str, length: int = 60) -> Markup:
    return tag("code", short(text, length))
