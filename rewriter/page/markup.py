"""HTML and SVG from functions, in which no text can become markup by accident.

Whatever is a plain string is escaped; only :class:`Markup`, which the functions here make, is not.  What comes from a
model is shown as it is but for characters that are not seen or that turn their surroundings about: those stand as
``\\u202e``.  The result is well-formed XML as well.
"""

from __future__ import annotations

import html
import re
import unicodedata
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from collections.abc import Iterable

Content = Union[str, "Markup", "Iterable[Content]", None]

#: Categories of characters that have no look of their own: controls, formats (the marks of direction among them),
#: surrogates, private use, unassigned, and the separators of lines and paragraphs.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
#: A source line with its folder, as exporters record it: folders tell whose machine it was.
_FOLDERS = re.compile(r"(?:[A-Za-z]:)?[^\s\"'()<>,;]*[/\\](?=[^/\\\s\"'()<>,;]+\.py:\d+)")


class Markup(str):
    """Finished markup."""

    __slots__ = ()


def visible(text: str) -> str:
    """``text`` with each character that is not seen written out, and source lines without their folders."""
    text = _FOLDERS.sub("", text)
    if text.isascii() and text.isprintable():
        return text
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    if character == "\n" or unicodedata.category(character) not in _UNSEEN:
        return character
    number = ord(character)
    return (
        f"\\x{number:02x}"
        if number < 0x100
        else f"\\u{number:04x}"
        if number < 0x10000
        else f"\\U{number:08x}"
    )


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
