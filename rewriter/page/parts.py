"""Pieces that several sections are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rewriter.page.data import figure
from rewriter.page.markup import code, short, table, tag

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rewriter.page.markup import Content, Markup

#: A state's symbol, so that it does not depend on colour.
_SYMBOLS = {"good": "✓", "bad": "✕", "warn": "!", "plain": "•"}
#: Most rows and columns of a table made from data that this version does not know, and its deepest level.
_ROWS, _COLUMNS, _DEPTH = 100, 9, 3


def badge(words: str, state: str) -> Markup:
    symbol = tag("span", _SYMBOLS[state], aria_hidden="true")
    return tag("span", symbol, " ", words, class_=f"badge {state}")


def section(title: str, *content: Content, id: str) -> Markup:  # noqa: A002
    return tag(
        "section", tag("h2", title, id=f"{id}-heading"), content, id=id, aria_labelledby=f"{id}-heading"
    )


def paragraphs(lines: Iterable[Content], class_: str | None = None) -> list[Markup]:
    return [tag("p", line, class_=class_) for line in lines if line]


def bullets(items: Sequence[Content], class_: str | None = None) -> Markup | None:
    return tag("ul", [tag("li", item) for item in items], class_=class_) if items else None


def facts(pairs: Iterable[tuple[str, Content]]) -> Markup | None:
    """Names with what is to be said of each; those without are left out."""
    rows = [(tag("dt", name), tag("dd", value)) for name, value in pairs if value not in (None, "", [])]
    return tag("dl", [part for row in rows for part in row]) if rows else None


def scroll(label: str, *content: Content) -> Markup:
    """What may be wider than the window; reached by keyboard as well."""
    return tag("div", content, class_="scroll", tabindex="0", role="region", aria_label=label)


def folded(summary: Content, *content: Content) -> Markup:
    return tag("details", tag("summary", summary), content)


def tree(value: Any, caption: str, depth: int = 0) -> Content:
    """Data of any form: names with values, tables for lists of alike things."""
    if isinstance(value, dict):
        return facts((_words(key), tree(item, _words(key), depth + 1)) for key, item in value.items())
    if isinstance(value, list):
        if value and all(isinstance(item, dict) for item in value) and depth < _DEPTH:
            return _table(value, caption)
        return ", ".join(_scalar(item) for item in value[:_ROWS]) + (", …" if len(value) > _ROWS else "")
    return short(_scalar(value), 400)


def _table(rows: list[dict[str, Any]], caption: str) -> Content:
    columns = list(
        dict.fromkeys(key for row in rows for key, item in row.items() if item not in (None, "", [], {}))
    )
    columns = columns[:_COLUMNS]
    shown = [[short(_scalar(row.get(key)), 80) for key in columns] for row in rows[:_ROWS]]
    more = tag("p", f"and {len(rows) - _ROWS} more") if len(rows) > _ROWS else None
    return [table(map(_words, columns), shown, caption=caption), more]


def _scalar(value: Any) -> str:
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return figure(value)
    if isinstance(value, dict):
        return ", ".join(
            f"{key}: {_scalar(item)}" for key, item in value.items() if item not in (None, "", [], {})
        )
    if isinstance(value, list):
        return ", ".join(map(_scalar, value))
    return str(value)


def _words(key: str) -> str:
    return str(key).replace("_", " ")


def operator(name: Any) -> Markup:
    return code(str(name), 60)
