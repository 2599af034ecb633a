"""Reading plain data that may be of another version, or of a manifest that anybody wrote: nothing here raises."""

from __future__ import annotations

import math
from typing import Any


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in listed(value) if isinstance(item, dict)]


def texts(value: Any) -> list[str]:
    return [str(item) for item in listed(value)]


def number(value: Any) -> float | None:
    """A figure; infinities and NaN stand as strings in strict JSON."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, (int, float)):
        return float(value)
    return float(value) if value in ("inf", "-inf", "nan") else None


def integer(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def figure(value: Any) -> str:
    """``"1.2e-07"``; a dash where there is none."""
    seen = number(value)
    if seen is None:
        return "–"
    if math.isnan(seen) or math.isinf(seen):
        return {"nan": "NaN", "inf": "∞", "-inf": "−∞"}[str(seen)]
    return "0" if seen == 0 else f"{seen:.2g}"


def largest(values: list[Any]) -> float | None:
    """The largest figure, NaN if there is one."""
    seen = [value for value in map(number, values) if value is not None]
    if any(math.isnan(value) for value in seen):
        return math.nan
    return max(seen, default=None)


def own_judges(proof: Any) -> list[str]:
    """Of each pass that judged its own results, what its judge accepts as well."""
    found = []
    for name, kinds in mapping(mapping(proof).get("own_judges")).items():
        accepted = " and ".join(texts(kinds))
        found.append(f"{name}: accepts {accepted} results as well" if accepted else f"{name}")
    return found


def sizes_text(sizes: Any) -> str:
    """``"batch=2, n=5"``."""
    return ", ".join(f"{name}={size}" for name, size in mapping(sizes).items())


def counted(count: int, noun: str, plural: str | None = None) -> str:
    return f"{count} {noun if count == 1 else plural or noun + 's'}"
