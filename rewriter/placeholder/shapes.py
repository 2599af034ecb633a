"""What an operator requires of the shapes of its tensors: ``"x: N C H W; rois: K 5"``.

A declaration lists parameters.  Each has one or more shapes, separated by ``|``.  A shape lists its dims:

``N``      any size; the same name is the same size wherever it stands
``5``      this size
``_``      any size
``2*_*K``  a multiple: of the number, and of every name whose size is known
``...``    any number of dims
``()``     no dims at all, when it stands alone
``=p``     the sizes that the list parameter ``p`` gives

Only what is known before the model runs is compared: numbers.  A size that is open fits everything.
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Any

from rewriter.placeholder.binding import Ref

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rewriter.placeholder.binding import Bound
    from rewriter.types import Dim

_REST = "..."


@functools.cache
def parse(text: str) -> Mapping[str, tuple[tuple[str, ...], ...]]:
    """Per parameter its possible shapes; ValueError for a declaration that cannot be read."""
    found: dict[str, tuple[tuple[str, ...], ...]] = {}
    for part in filter(None, (item.strip() for item in text.split(";"))):
        name, colon, shapes = part.partition(":")
        if not colon or not name.strip().isidentifier() or not shapes.strip():
            raise ValueError(f"'{part}' is not 'parameter: shape'")
        found[name.strip()] = tuple(
            tuple(dim for dim in shape.split() if dim != "()") for shape in shapes.split("|")
        )
        if any(shape.count(_REST) > 1 for shape in found[name.strip()]):
            raise ValueError(f"'{part}' holds '...' twice")
    return found


def misfit(declared: str, bound: Bound) -> tuple[str, str] | None:
    """The first parameter of ``bound`` that does not fit, and the shapes that it may have; None where all fit."""
    options = parse(declared)
    known: dict[str, int] = {}
    waiting: list[tuple[str, tuple[Dim, ...]]] = []
    for name in options:
        argument = bound.arguments.get(name)
        if isinstance(argument, Ref) and argument.type is not None and argument.type.shape is not None:
            waiting.append((name, argument.type.shape))
    # A product is compared when its names are known, whatever the order of the parameters.
    for name, shape in [*waiting, *waiting]:
        fitting = [
            sizes
            for option in options[name]
            if (sizes := _sizes(_spliced(option, bound), shape, known)) is not None
        ]
        if not fitting:
            return name, " or ".join(shown(option) for option in options[name])
        if len(fitting) == 1:
            known |= fitting[0]
    return None


def shown(shape: Sequence[str]) -> str:
    """``(N, C, H, W)``."""
    return f"({', '.join(shape)}{',' if len(shape) == 1 else ''})"


def _spliced(option: Sequence[str], bound: Bound) -> list[str]:
    dims: list[str] = []
    for dim in option:
        if not dim.startswith("="):
            dims.append(dim)
            continue
        given: Any = bound.arguments.get(dim[1:])
        dims += [str(item) for item in given] if isinstance(given, tuple) else [_REST]
    return dims


def _sizes(option: list[str], shape: tuple[Dim, ...], known: Mapping[str, int]) -> dict[str, int] | None:
    """The sizes of names that follow from ``shape`` under ``option``; None where it does not fit."""
    if _REST in option:
        at = option.index(_REST)
        missing = len(shape) - (len(option) - 1)
        if missing < 0:
            return None
        option = [*option[:at], *itertools.repeat("_", missing), *option[at + 1 :]]
    if len(option) != len(shape):
        return None
    found: dict[str, int] = {}
    for term, size in zip(option, shape, strict=True):
        if not isinstance(size, int) or term == "_":
            continue
        if "*" in term:
            factor = 1
            for value in _factors(term, {**known, **found}):
                factor *= value
            if factor and size % factor:
                return None
        elif term.isdigit():
            if size != int(term):
                return None
        elif {**known, **found}.setdefault(term, size) != size:
            return None
        else:
            found[term] = size
    return found


def _factors(term: str, known: Mapping[str, int]) -> Iterator[int]:
    for factor in term.split("*"):
        if factor.isdigit():
            yield int(factor)
        elif factor in known:
            yield known[factor]
