"""What one runtime takes: the newest opset and IR version, and what it lacks of ONNX."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from rewriter.domains import standard_operators
from rewriter.errors import UsageError
from rewriter.profiles.conditions import Condition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rewriter.profiles.conditions import Use

#: What a model may hold besides operators, and a runtime may refuse.
FEATURES: Final = (
    "ai.onnx written on a node",
    "external data",
    "imports of other domains",
    "outputs without a shape",
    "overloads of functions",
    "sparse tensors",
)
#: How an operator is lacking: when the model is loaded, when it is run, or by what it computes.
HOWS: Final = ("refused", "fails", "wrong", "inexact")
_COVERS = ("opset", "listed")
_EVIDENCE = ("measured", "cited")

#: The keys of a profile, and the types of their values.
_KEYS: Final[Mapping[str, type | tuple[type, ...]]] = {
    "name": str,
    "version": str,
    "max_opset": int,
    "max_ir": int,
    "max_ml": int,
    "covers": str,
    "functions": bool,
    "custom": bool,
    "refuses": list,
    "lacks": list,
    "has": list,
    "tried": list,
    "not_tried": list,
    "evidence": str,
    "source": str,
    "date": str,
    "runs_as": str,
    "package": str,
}
_GAP_KEYS: Final[Mapping[str, type | tuple[type, ...]]] = {
    "operator": str,
    "how": str,
    "since": int,
    "until": int,
    "when": dict,
    "note": str,
}


@dataclass(frozen=True)
class Gap:
    """An operator that a runtime lacks, between two opsets, for some of its nodes."""

    operator: str
    how: str = "refused"
    since: int = 1
    until: int | None = None
    when: Condition | None = None
    note: str = ""
    #: The runtime that lacks it, where several are meant.
    runtime: str = ""

    def is_at(self, opset: int) -> bool:
        return self.since <= opset and (self.until is None or opset <= self.until)

    def concerns(self, use: Use) -> bool:
        """Whether it is about this node."""
        return self.is_at(use.version) and (self.when is None or self.when.holds(use))

    def __str__(self) -> str:
        notes = [] if self.how == "refused" else [self.how]
        notes += [f"with {self.when}"] if self.when is not None else []
        notes += [self.note] if self.note else []
        return f"{self.operator} ({': '.join(notes)})" if notes else self.operator

    @classmethod
    def read(cls, data: Any, key: str, where: str) -> Gap:
        if isinstance(data, str):
            data = {"operator": data}
        if not isinstance(data, dict):
            raise _wrong(where, key, data, "write the operator's name, or a table with 'operator'")
        _check(data, _GAP_KEYS, where, f"{key}.")
        if "operator" not in data:
            raise _wrong(where, key, data, "it needs 'operator'")
        operator = _operator(data["operator"], f"{key}.operator", where)
        if data.get("how", "refused") not in HOWS:
            raise _wrong(where, f"{key}.how", data["how"], f"one of {', '.join(HOWS)}")
        when = Condition.read(data["when"], f"{key}.when", where) if "when" in data else None
        return cls(
            operator,
            data.get("how", "refused"),
            data.get("since", 1),
            data.get("until"),
            when,
            data.get("note", ""),
        )


@dataclass(frozen=True)
class Profile:
    """One runtime at one version."""

    name: str
    version: str = ""
    #: The newest that it takes; None where that is not known.
    max_opset: int | None = None
    max_ir: int | None = None
    #: Newest version of ``ai.onnx.ml``.
    max_ml: int | None = None
    #: ``"opset"``: all of its opsets but for ``lacks``; ``"listed"``: of operators outside ``tried`` nothing is known.
    covers: str = "listed"
    functions: bool = False
    #: Whether it runs operators of a library of one's own.
    custom: bool = False
    refuses: tuple[str, ...] = ()
    lacks: tuple[Gap, ...] = ()
    #: The only operators that it has, where its own table lists those.
    has: frozenset[str] | None = None
    tried: frozenset[str] = frozenset()
    #: ``"measured"`` where models were run on it, ``"cited"`` where it is what its own documentation says.
    evidence: str = "cited"
    source: str = ""
    date: str = ""
    #: Its name in ``--runtimes``, and the package that it comes with, where this tool can run models on it.
    runs_as: str = ""
    package: str = ""

    @property
    def title(self) -> str:
        return f"{self.name} {self.version}".strip()

    def gaps(self, operator: str) -> Iterator[Gap]:
        """What it lacks of one operator."""
        if self.has is not None and operator not in self.has:
            yield Gap(operator, runtime=self.title)
        for gap in self.lacks:
            if gap.operator == operator:
                yield gap if gap.runtime else replace(gap, runtime=self.title)

    def is_known(self, operator: str) -> bool:
        """Whether anything is known of the operator on it."""
        return self.covers == "opset" or self.has is not None or operator in self.tried

    @classmethod
    def read(cls, data: Mapping[str, Any], where: str, tried: Sequence[str] = ()) -> Profile:
        """The profile that ``data`` holds; UsageError that names the key and what is wrong with its value."""
        _check(data, _KEYS, where)
        if not data.get("name"):
            raise UsageError(f"{where}: 'name' is missing", remedy="write what the runtime is called")
        for key, allowed in (("covers", _COVERS), ("evidence", _EVIDENCE)):
            if key in data and data[key] not in allowed:
                raise _wrong(where, key, data[key], f"one of {', '.join(allowed)}")
        for item in data.get("refuses", ()):
            if item not in FEATURES:
                raise _wrong(where, "refuses", item, f"one of {', '.join(FEATURES)}")
        for key in ("has", "tried", "not_tried"):
            for item in data.get(key, ()):
                _operator(item, key, where)
        for key in ("max_opset", "max_ir", "max_ml"):
            if key in data and data[key] < 1:
                raise _wrong(where, key, data[key], "write a version, from 1 on")
        listed = frozenset([*tried, *data.get("tried", ())]) - frozenset(data.get("not_tried", ()))
        plain = {key: data[key] for key in _KEYS if key in data and key not in _BUILT}
        return cls(
            **plain,
            refuses=tuple(data.get("refuses", ())),
            lacks=tuple(
                Gap.read(item, f"lacks[{position}]", where)
                for position, item in enumerate(data.get("lacks", ()))
            ),
            has=frozenset(data["has"]) if "has" in data else None,
            tried=listed,
        )


_BUILT = frozenset({"refuses", "lacks", "has", "tried", "not_tried"})


def _check(
    data: Mapping[str, Any], keys: Mapping[str, type | tuple[type, ...]], where: str, inside: str = ""
) -> None:
    for key, value in data.items():
        if key not in keys:
            near = difflib.get_close_matches(key, keys, 1)
            meant = f"did you mean '{near[0]}'? " if near else ""
            raise UsageError(
                f"{where}: there is no key '{inside}{key}'", remedy=f"{meant}the keys are {', '.join(keys)}"
            )
        kind = keys[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            assert isinstance(kind, type)
            raise _wrong(where, f"{inside}{key}", value, f"write a value of type {kind.__name__}")


def _operator(name: Any, key: str, where: str) -> str:
    if name not in standard_operators():
        near = difflib.get_close_matches(str(name), standard_operators(), 1)
        meant = (
            f"did you mean '{near[0]}'?"
            if near
            else "write the operator as ONNX does, GridSample for instance"
        )
        raise _wrong(where, key, name, meant)
    return str(name)


def _wrong(where: str, key: str, value: Any, remedy: str) -> UsageError:
    return UsageError(f"{where}: '{key}' cannot be {value!r}", remedy=remedy)
