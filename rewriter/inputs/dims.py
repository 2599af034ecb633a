"""Sizes for symbolic dims: what the model's inputs leave open, and numbers to try for it.

A dim is known by its name; one without a name is called after its place, ``x.0`` for the first axis of input ``x``.
Exporters also write expressions (``past_length + 1``), whose value follows from the names in them.
"""

from __future__ import annotations

import ast
import difflib
import itertools
import operator
from typing import TYPE_CHECKING

from rewriter.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rewriter.types import Dim, TensorType

#: How many drawings of sizes are tried for anything; for a whole model more (see :attr:`Sizes.attempts`).
ATTEMPTS = 12
#: What models that work on chunks of a signal ask for, along one axis only.
_CHUNKS = (512, 256, 576, 1024)
#: How many dims are tried as that axis.
_MOST = 4

#: Sizes of which none is a multiple of another; one from 16 to 33 that is odd; and how many dims get a size alone.
_COPRIME, _LONG, _SINGLY = (3, 7, 11, 13, 5), 33, 6

_OPERATORS: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
}


def key_of(owner: str, axis: int, dim: Dim) -> int | str:
    """A size, or the name under which it is drawn."""
    return f"{owner}.{axis}" if dim is None else dim


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``"did you mean 'batch'? "``, or nothing where no name of ``known`` is alike."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean '{near[0]}'? " if near else ""


def evaluate(text: str, sizes: Mapping[str, int]) -> int | None:
    """The value of a dim's name or expression; None where a name in it has no size, or it is no arithmetic."""
    if text in sizes:
        return sizes[text]
    try:
        return _value(ast.parse(text, mode="eval").body, sizes)
    except (SyntaxError, KeyError, TypeError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def names_in(text: str) -> list[str]:
    """The names that an expression is made of; ``[text]`` itself where it is none."""
    try:
        tree = ast.parse(text, mode="eval").body
        names = list(dict.fromkeys(node.id for node in ast.walk(tree) if isinstance(node, ast.Name)))
        if names and _value(tree, dict.fromkeys(names, 4)) is not None:
            return names
    except (SyntaxError, KeyError, TypeError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        pass
    return [text]


def _value(node: ast.AST, sizes: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return sizes[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left, sizes), _value(node.right, sizes))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, sizes)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("floor", "Max", "Min", "max", "min")
    ):
        values = [_value(item, sizes) for item in node.args]
        return max(values) if node.func.id.lower() == "max" else min(values)
    raise ValueError("no arithmetic of sizes")


class Sizes:
    """The open dims of a set of tensors, and sizes for them."""

    def __init__(
        self, types: Mapping[str, TensorType], fixed: Mapping[str, Sequence[int]] | None = None
    ) -> None:
        #: name → whether it is the first axis of an input (a batch, most often).
        self.names: dict[str, bool] = {}
        plain = {dim for kind in types.values() for dim in kind.shape or () if isinstance(dim, str)}
        for owner, kind in types.items():
            for axis, dim in enumerate(kind.shape or ()):
                key = key_of(owner, axis, dim)
                if isinstance(key, str):
                    names = names_in(key)
                    # "seq-len" is a name; "past + 1" is an expression where there is a dim called "past".
                    for name in names if dim is not None and plain.issuperset(names) else [key]:
                        self.names[name] = self.names.get(name, False) or axis == 0
        self.fixed = {name: tuple(values) for name, values in (fixed or {}).items()}
        for name, values in self.fixed.items():
            if name not in self.names:
                known = ", ".join(self.names) or "none: every size is fixed"
                raise UsageError(
                    f"--dim {name}: no input has a dim of that name",
                    remedy=f"{did_you_mean(name, self.names)}the open dims are: {known}",
                )
            if not values or any(value < 0 for value in values):
                raise UsageError(
                    f"--dim {name}: sizes are numbers of 0 or more", remedy=f"as in --dim {name}=1,3"
                )

    @property
    def attempts(self) -> int:
        """How many drawings are worth trying: the common ones, then one long axis among short ones that agree."""
        return ATTEMPTS + len(self._chunked)

    @property
    def _chunked(self) -> list[tuple[str, int, bool]]:
        """(the long dim, which of the sizes it gets, whether the others are 1), what is likely first."""
        open_ = [name for name in self.names if name not in self.fixed]
        open_.sort(key=lambda name: self.names[name])  # a batch last
        return [
            (name, chunk, single)
            for chunk in range(len(_CHUNKS))
            for single in (False, True)
            for name in open_[:_MOST]
        ]

    @property
    def is_static(self) -> bool:
        return not self.names

    def draw(self, sample: int, attempt: int) -> dict[str, int]:
        """Sizes for the ``sample``-th sample; another ``attempt`` tries sizes of another kind.

        The first try gives each dim a size of its own, all different and none of them 1: an exchange of axes shows.
        """
        sizes: dict[str, int] = {}
        chunked = self._chunked[attempt - ATTEMPTS] if attempt >= ATTEMPTS else None
        for position, (name, first) in enumerate(self.names.items()):
            if name in self.fixed:
                sizes[name] = self.fixed[name][sample % len(self.fixed[name])]
            elif chunked is not None:
                long, chunk, single = chunked
                short = 1 if single else 2 + sample
                sizes[name] = _CHUNKS[(chunk + sample) % len(_CHUNKS)] if name == long else short
            else:
                # The order turns from sample to sample: no dim is the larger one in all of them.
                turned = len(self.names) - 1 - position if sample % 2 else position
                sizes[name] = _candidate(turned, len(self.names), first, sample, attempt)
        return sizes

    def probes(self) -> list[tuple[str, dict[str, int]]]:
        """Sizes at which one operator is tried besides, each set with what is special about it.

        In each set the open dims have the first of these sizes, what is fixed its own.  Docs: docs/verification.md.
        """
        open_ = [name for name in self.names if name not in self.fixed]
        if not open_:
            return []
        rising = dict(zip(open_, itertools.cycle(_COPRIME), strict=False))
        falling = dict(zip(reversed(open_), itertools.cycle(_COPRIME), strict=False))
        small = dict(zip(open_, itertools.cycle((2, 3, 4, 5)), strict=False))
        single = open_[:_SINGLY]
        found = [("rising sizes", rising), ("falling sizes", falling)]
        found += [
            (f"{name} of 1", {**(rising if at % 2 else falling), name: 1}) for at, name in enumerate(single)
        ]
        found.append(("all of 1", dict.fromkeys(open_, 1)))
        found += [(f"{name} of {_LONG}", {**small, name: _LONG}) for name in single]
        found.append(
            ("multiples of 8", {**small, **dict(zip(reversed(single[-2:]), (16, 24), strict=False))})
        )
        sets: list[tuple[str, dict[str, int]]] = []
        for what, sizes in found:
            whole = {name: (sizes | {n: v[0] for n, v in self.fixed.items()})[name] for name in self.names}
            if all(whole != other for _, other in sets):
                sets.append((what, whole))
        return sets

    def shape(self, owner: str, kind: TensorType, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
        """The shape of one tensor; None where its rank is unknown or an expression comes out impossible."""
        if kind.shape is None:
            return None
        shape = []
        for axis, dim in enumerate(kind.shape):
            key = key_of(owner, axis, dim)
            size = key if isinstance(key, int) else sizes.get(key, evaluate(key, sizes))
            if size is None or size < 0:
                return None
            shape.append(size)
        return tuple(shape)


def _candidate(position: int, count: int, first: bool, sample: int, attempt: int) -> int:
    """What models are known to accept, the least constrained first.

    Small and different; all alike; then multiples that convolutions and windows ask for, with a small batch; at last
    a dim of 1, which an export may have fixed in secret.
    """
    small = 2 + sample
    table: tuple[Callable[[], int], ...] = (
        lambda: 2 + position + max(3, count) * sample,
        lambda: 3 + sample,
        lambda: small if first else 8 * (1 + sample) + position,
        lambda: small if first else 8 * (2 + sample),
        lambda: small if first else 32 * (1 + sample),
        lambda: small if first else 64 * (1 + sample),
        lambda: 16 * (1 + sample),
        lambda: small if first else 224 + 32 * sample,
        lambda: 1 if first else 5 + position + sample,
        lambda: 1 if first else 64 * (1 + sample),
        lambda: 1 if first else 224 + 32 * sample,
        lambda: 1,
    )
    return table[min(attempt, len(table) - 1)]()
