"""OpInfo's entries for the passes of passes/movement/; see the package's docstring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.oracles.table import Row, Unrun

if TYPE_CHECKING:
    from collections.abc import Mapping

_PAD = "nn.functional.pad"


def _without_mode(sample: Any) -> Mapping[str, Any]:
    given = dict(sample.kwargs)
    given.pop("mode", None)
    return {"x": sample.input, "pad": sample.args[0] if sample.args else given.pop("pad")} | given


def _constant(sample: Any) -> Mapping[str, Any]:
    """`constant_pad_nd` has the value where `pad` has the mode."""
    pad, *value = sample.args
    return {"x": sample.input, "pad": pad, "value": value[0] if value else sample.kwargs.get("value")}


ROWS: tuple[Row, ...] = (
    Row("roll", ("roll",)),
    Row("pad", ("constant_pad_nd",), _constant),
    Row(
        "pad",
        tuple(f"{_PAD}.{m}" for m in ("constant", "reflect", "replicate", "replicate_negative", "circular")),
    ),
    Row("circular_pad", (f"{_PAD}.circular",), _without_mode),
    Row("reflection_pad", (f"{_PAD}.reflect",), _without_mode),
    Row("replication_pad", (f"{_PAD}.replicate", f"{_PAD}.replicate_negative"), _without_mode),
    Row("pixel_shuffle", ("nn.functional.pixel_shuffle",)),
    Row("pixel_unshuffle", ("nn.functional.pixel_unshuffle",)),
    Row("unfold", ("nn.functional.unfold",)),
    Row("flip", ("flip",)),
    Row("rot90", ("rot90",)),
    Row("tril", ("tril",)),
    Row("triu", ("triu",)),
    Row("repeat_interleave", ("repeat_interleave",)),
)

UNRUN: tuple[Unrun, ...] = ()
