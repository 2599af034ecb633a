"""Einsum by products, and maxima and Relu of types that an old operator lacks."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING

from onnx import TensorProto as T

from rewriter.lower.forms.table import form

if TYPE_CHECKING:
    from rewriter.lower.writer import Writer
    from rewriter.placeholder.standard import Call
    from rewriter.placeholder.value import Value


@form("Einsum")
def einsum(g: Writer, call: Call) -> Value:
    """Operands over the labels of all, multiplied and summed; two of them by MatMul over what they share."""
    terms, result = _labels(call)
    operands = [_diagonal(g, x, term) for x, term in zip(call.inputs, terms, strict=True) if x is not None]
    value, labels = operands[0]
    for position, (other, others) in enumerate(operands[1:], 2):
        later = set(result).union(*(t for _, t in operands[position:]))
        value, labels = _product(g, (value, labels), (other, others), later)
    value, labels = _summed(g, value, labels, set(result))
    return g.transpose(value, [labels.index(label) for label in result])


def _labels(call: Call) -> tuple[list[str], str]:
    """A letter for each axis of every operand and of the result; the ellipsis gets letters of its own."""
    equation = call.get("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    parts = left.split(",")
    free = [c for c in string.ascii_letters if c not in equation]
    ranks = [
        x.rank - len(p.replace("...", "")) for x, p in zip(call.inputs, parts, strict=True) if x is not None
    ]
    dots = max((r for r, p in zip(ranks, parts, strict=True) if "..." in p), default=0)
    terms = [
        p.replace("...", "".join(free[dots - r : dots])) if "..." in p else p
        for r, p in zip(ranks, parts, strict=True)
    ]
    if arrow:
        return terms, right.replace("...", "".join(free[:dots]))
    letters = left.replace(",", "").replace(".", "")
    once = sorted(c for c in set(letters) if letters.count(c) == 1)
    return terms, "".join(free[:dots]) + "".join(once)


def _diagonal(g: Writer, x: Value, labels: str) -> tuple[Value, str]:
    """``x`` with each label once: of a label that stands twice, the elements whose two places are equal."""
    while len(set(labels)) < len(labels):
        label = next(c for c in labels if labels.count(c) > 1)
        first, second = (
            (i for i, c in enumerate(labels) if c == label)
            if labels.count(label) == 2
            else (
                labels.index(label),
                labels.index(label, labels.index(label) + 1),
            )
        )
        order = [i for i in range(len(labels)) if i not in (first, second)] + [first, second]
        moved = g.transpose(x, order)
        size = g.op("Reshape", g.sizes([g.dim(moved, -1)]), g.ints([]))
        places = g.op("Range", g.ints(0), size, g.ints(1))
        # Element k of the diagonal is number k · (n + 1) of the two axes made one.
        keep = [0] * (len(labels) - 2)
        flat = g.reshape_keeping(moved, [*keep, -1])
        x = g.gather(flat, places * (size + 1), len(labels) - 2)
        labels = "".join(labels[i] for i in order[:-1])
    return x, labels


def _summed(g: Writer, x: Value, labels: str, kept: set[str]) -> tuple[Value, str]:
    gone = [i for i, label in enumerate(labels) if label not in kept]
    if not gone:
        return x, labels
    return g.reduce_sum(x, gone, keepdims=False), "".join(c for c in labels if c in kept)


def _product(g: Writer, a: tuple[Value, str], b: tuple[Value, str], later: set[str]) -> tuple[Value, str]:
    """Two operands as one: batches first, then the axes of the first alone, then those of the second alone."""
    (x, left), (y, right) = a, b
    x, left = _summed(g, x, left, later | set(right))
    y, right = _summed(g, y, right, later | set(left))
    shared = [c for c in left if c in right]
    batch = [c for c in shared if c in later]
    inner = [c for c in shared if c not in later]
    rows, columns = [c for c in left if c not in shared], [c for c in right if c not in shared]
    dims = {c: g.dim(y, right.index(c)) for c in right} | {c: g.dim(x, left.index(c)) for c in left}
    if any(dims[c] == 1 or not isinstance(dims[c], int) for c in batch):
        return _broadcast(g, a, b, later)
    x = g.transpose(x, [left.index(c) for c in (*batch, *rows, *inner)])
    y = g.transpose(y, [right.index(c) for c in (*batch, *inner, *columns)])

    def size(labels: list[str]) -> int | Value:
        return g.product([dims[c] for c in labels])

    outer = [dims[c] for c in batch]
    x = g.reshape(x, [*outer, size(rows), size(inner)])
    y = g.reshape(y, [*outer, size(inner), size(columns)])
    made = g.matmul(x, y)
    return g.reshape(made, [*outer, *(dims[c] for c in rows), *(dims[c] for c in columns)]), "".join(
        (*batch, *rows, *columns)
    )


def _broadcast(g: Writer, a: tuple[Value, str], b: tuple[Value, str], later: set[str]) -> tuple[Value, str]:
    """Two operands over the labels of both: axes that one lacks, or has as one, are broadcast."""
    (x, left), (y, right) = a, b
    labels = left + "".join(c for c in right if c not in left)
    x = g.unsqueeze(x, [i for i, c in enumerate(labels) if c not in left])
    there = [c for c in labels if c in right]
    y = g.transpose(y, [right.index(c) for c in there])
    y = g.unsqueeze(y, [i for i, c in enumerate(labels) if c not in right])
    return _summed(g, x * y, labels, later)


@form("Max", "Min")
def extreme(g: Writer, call: Call) -> Value | None:
    """Of types that the operator lacks, pair by pair; the comparison knows them."""
    made = call.x
    if not call.reason.startswith("type ") or made.type is None or made.dtype in (1, 10, 11, 16):
        return None
    for other in call.inputs[1:]:
        assert other is not None
        less = g.less(made, other)
        made = g.where_(less, other, made) if call.op_type == "Max" else g.where_(less, made, other)
    return made


@form("Relu")
def relu(g: Writer, call: Call) -> Value | None:
    """Of integers that the operator lacks: what is below 0 becomes 0."""
    x = call.x
    if x.type is None or x.dtype not in (T.INT8, T.INT16, T.INT32, T.INT64):
        return None
    zero = g.const(0, x)
    return g.where_(g.less(x, zero), zero, x)


@form("OptionalHasElement", "OptionalGetElement")
def optional(g: Writer, call: Call) -> Value | None:
    """Of a tensor: it is there, and it is the element.  Of no input: it is not there."""
    held = call.input(0)
    if held is not None and held.type is None:
        return None
    if call.op_type == "OptionalHasElement":
        return g.const(held is not None, 9)
    return None if held is None else g.identity(held)
