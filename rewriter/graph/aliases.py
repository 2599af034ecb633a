"""Names of inputs that a decomposition could mistake for its own, or cannot spell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from onnx import NodeProto

from rewriter.placeholder.binding import Bound, Ref, Site


def readable_names(site: Site) -> tuple[Site, dict[str, str]]:
    """``site`` with inputs named so that they cannot be taken for local names of an expansion, and what they stand for.

    Only for names that begin with ``%``, or are not UTF-8 (protobuf gives them as bytes).
    """
    odd = [name for name in site.node.input if isinstance(name, bytes) or name.startswith("%")]
    if not odd:
        return site, {}
    taken = set(site.node.input)
    aliases: dict[str, str] = {}
    back: dict[str, str] = {}
    for name in dict.fromkeys(odd):
        alias = f"input:{len(aliases)}"
        while alias in taken:
            alias += "'"
        aliases[alias] = name
        back[name] = alias
    node = NodeProto()
    node.CopyFrom(site.node)
    names = [back.get(name, name) for name in node.input]
    del node.input[:]
    node.input.extend(names)
    return replace(site, node=node, constants=_Renamed(site.constants, aliases)), aliases


class _Renamed(Mapping[str, Any]):
    def __init__(self, inner: Mapping[str, Any], names: Mapping[str, str]) -> None:
        self._inner, self._names = inner, names

    def __getitem__(self, name: str) -> Any:
        return self._inner[self._names.get(name, name)]

    def __contains__(self, name: object) -> bool:
        return (self._names.get(name, name) if isinstance(name, str) else name) in self._inner

    def __iter__(self) -> Iterator[str]:
        return iter([*self._names, *self._inner])

    def __len__(self) -> int:
        return len(self._names) + len(self._inner)


def with_real_names(bound: Bound, aliases: Mapping[str, str]) -> Bound:
    """``bound`` with the model's own names again."""
    if all(alias == name for alias, name in aliases.items()):
        return bound

    def real(argument: Any) -> Any:
        if isinstance(argument, Ref):
            return Ref(aliases.get(argument.name, argument.name), argument.type, argument.constant)
        return tuple(real(item) for item in argument) if isinstance(argument, tuple) else argument

    return Bound({name: real(argument) for name, argument in bound.arguments.items()}, bound.order)
