"""Expansions that are made once, for all placeholders between which a pass cannot tell.

A pass sees the types and the known values of its inputs, the attributes, and which outputs are used.  It must not
choose by the names of values or by the place of the node.  So two placeholders that are equal but for these have the
same expansion, which is placed under other names.

Two placeholders are not taken for equal where an input is a constant of more than 1 KiB: comparing such values would
cost more than it saves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from onnx import NodeProto

from rewriter.errors import RewriteError
from rewriter.graph.scopes import graphs_of
from rewriter.storage.wire import varint

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from rewriter.placeholder.binding import Site
    from rewriter.placeholder.expand import Expansion
    from rewriter.placeholder.registry import Match

#: Bytes of a constant that is compared by value.
_BY_VALUE = 1024
#: Entries of one table; it is emptied when it is full.
_MOST = 4096
#: Bytes of the constants of an expansion that is kept.
_KEPT_BYTES = 1 << 16

#: One byte for each short length: most names are short.
_LENGTHS = [bytes((length,)) for length in range(0x80)]
_INPUT, _OUTPUT, _NAME = b"\x0a", b"\x12", b"\x1a"

Value = TypeVar("Value")


class Piece(NamedTuple):
    """One node of an expansion: its inputs and outputs by local name, and the rest of it as it is serialised."""

    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    rest: bytes
    has_bodies: bool


@dataclass(eq=False)
class Template:
    """An expansion, and what is needed to place it."""

    expansion: Expansion
    #: The pass that made it.
    match: Match
    #: The inputs of the node that was expanded, as the expansion spells them, by position.
    inputs: tuple[str, ...]
    pieces: list[Piece] = field(default_factory=list)
    #: Values that the nodes make.
    made: frozenset[str] = frozenset()
    #: The operators that stand there in the end, where none of them is a placeholder; None: not known, or one is.
    plain: list[str] | None = None

    @classmethod
    def of(cls, expansion: Expansion, match: Match, inputs: Sequence[str]) -> Template:
        pieces = [_piece(node) for node in expansion.nodes]
        made = frozenset(name for piece in pieces for name in piece.outputs if name)
        return cls(expansion, match, tuple(inputs), pieces, made)

    @property
    def is_small(self) -> bool:
        size: int = sum(tensor.ByteSize() for tensor in self.expansion.initializers)
        return size <= _KEPT_BYTES


class Table(Generic[Value]):
    """What is known of placeholders by :func:`likeness`; no larger than some thousand entries."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Value] = {}

    def get(self, key: Hashable | None) -> Value | None:
        return None if key is None else self._known.get(key)

    def keep(self, key: Hashable | None, value: Value) -> None:
        if key is None:
            return
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[key] = value


def likeness(match: Match, site: Site) -> Hashable | None:
    """What is equal for two placeholders that a pass cannot tell apart; None where that is not known."""
    if match.placeholder.is_standard:
        return None  # made anew for each node
    node = site.node
    inputs = list(node.input)
    constants: list[Any] = []
    first: dict[str, int] = {}
    for position, name in enumerate(inputs):
        if not name or name in first:
            continue
        first[name] = position
        try:
            value = site.constants.get(name)
        except RewriteError:
            return None
        if value is None:
            constants.append(None)
        elif value.dtype == object or value.nbytes > _BY_VALUE:
            return None
        else:
            constants.append((value.dtype.str, value.dtype.name, value.shape, value.tobytes()))
    return (
        match.placeholder,
        match.qualified,
        id(match.rule),
        match.selectors,
        node.op_type,
        node.domain,
        tuple([attribute.SerializeToString(deterministic=True) for attribute in node.attribute]),
        tuple([first[name] if name else -1 for name in inputs]),
        tuple([bool(name) for name in node.output]),
        site.wanted,
        tuple([None if known is None else (known.dtype, known.shape) for known in site.inputs]),
        tuple(constants),
        site.opset,
        site.ir_version,
    )


def text_field(key: bytes, value: str | bytes) -> bytes:
    """A string field as it is serialised; protobuf gives a string that is not UTF-8 as bytes."""
    raw = value if isinstance(value, bytes) else value.encode()
    return key + (_LENGTHS[len(raw)] if len(raw) < 0x80 else varint(len(raw))) + raw


def assembled(
    heading: bytes, rest: bytes, inputs: Sequence[str], outputs: Sequence[str], name: str
) -> NodeProto:
    """A node of parts that are serialised already, under these names."""
    parts = [heading]
    parts += [text_field(_INPUT, value) for value in inputs]
    parts += [text_field(_OUTPUT, value) for value in outputs]
    parts += (rest, text_field(_NAME, name))
    node = NodeProto()
    node.MergeFromString(b"".join(parts))
    return node


def _piece(node: NodeProto) -> Piece:
    rest = NodeProto()
    rest.CopyFrom(node)
    for name in ("input", "output", "name"):
        rest.ClearField(name)
    return Piece(
        node.op_type,
        tuple(node.input),
        tuple(node.output),
        rest.SerializeToString(),
        any(True for _ in graphs_of(node)),
    )
