"""Pieces that several sections are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rewriter.page.markup import code, tag

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rewriter.page.markup import Content, Markup

#: A state's symbol, so that it does not depend on colour.
_SYMBOLS = {"good": "✓", "bad": "✕", "warn": "!", "plain": "•"}


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


def operator(name: Any) -> Markup:
    return code(str(name), 60)
