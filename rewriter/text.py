"""Text that comes from files, made fit for a terminal and for lines of a report."""

from __future__ import annotations

import unicodedata

#: Categories of characters that have no look of their own: controls, formats (the marks of direction among them),
#: surrogates, private use, unassigned, and the separators of lines and paragraphs.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str, *, keep: str = "") -> str:
    r"""``text`` in one line: each character that is not seen, or that moves what follows, is written out (``\x1b``).

    These are control characters (ESC, CR, LF), marks of direction and separators.  ``keep`` has those that stay.
    """
    if text.isprintable():
        return text
    return "".join(c if c in keep else _written_out(c) for c in text)


def _written_out(character: str) -> str:
    if unicodedata.category(character) not in _UNSEEN:
        return character
    if character in _SHORT:
        return _SHORT[character]
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
