"""Nodes that a symbolic made by calling ``g.op`` once for each result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewriter.errors import BindingError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rewriter.graph.survey import Found


def check_twins(found: Iterable[Found]) -> None:
    """BindingError where two nodes are equal and each has fewer outputs than its operator has results.

    ``values, indices = g.op("d::X", x), g.op("d::X", x)`` makes two nodes that both give the first result.
    Results that the pass calls ``auxiliary`` may be missing.
    """
    seen: dict[tuple[object, ...], Found] = {}
    for item in found:
        if item.match is None or item.match.rule is not None or not any(item.wanted):
            continue
        placeholder = item.match.placeholder
        expected = [name for name in placeholder.outputs if name not in placeholder.auxiliary]
        node = item.node
        if len(node.output) >= len(expected):
            continue
        attributes = sorted(attribute.SerializeToString(deterministic=True) for attribute in node.attribute)
        key = (id(item.scope), node.domain, node.op_type, tuple(node.input), tuple(attributes))
        first = seen.setdefault(key, item)
        if first is item:
            continue
        name = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        raise BindingError(
            f"{first.where} is the same node, and each has {len(node.output)} of the {len(expected)} results "
            f"({', '.join(expected)}): both would give '{expected[0]}'. A symbolic that calls g.op once for each "
            "result writes such nodes",
            where=item.where,
            remedy=f'write g.op("{name}", …, outputs={len(expected)}) once, and export again; if each node is meant to '
            f"give '{expected[0]}', say so: --bind \"{name}={placeholder.pass_name()}\"",
        )
