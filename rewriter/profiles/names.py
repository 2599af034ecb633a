"""What ``--target`` and ``--runtimes`` name: rows of the table, or files in its form."""

from __future__ import annotations

import difflib
import re
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rewriter.errors import UsageError
from rewriter.profiles.profile import Profile
from rewriter.profiles.table import profiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True)
class Aim:
    """The runtimes that a model must run on, all of them."""

    profiles: tuple[Profile, ...] = ()
    #: What was taken for what was named.
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        return [profile.title for profile in self.profiles]

    @property
    def max_opset(self) -> int | None:
        """The newest opset that all take; None where one does not say."""
        return _least([profile.max_opset for profile in self.profiles])

    @property
    def max_ir(self) -> int | None:
        """The newest IR version of those that say one."""
        return min((p.max_ir for p in self.profiles if p.max_ir is not None), default=None)

    def unknown(self) -> list[str]:
        """The runtimes whose newest opset is not known."""
        return [profile.title for profile in self.profiles if profile.max_opset is None]


def _least(found: Sequence[int | None]) -> int | None:
    known = [item for item in found if item is not None]
    return min(known) if known and len(known) == len(found) else None


def wanted(targets: str | Iterable[str]) -> Aim | None:
    """What ``targets`` names, as a list or separated by commas; None where that is nothing.

    UsageError where a runtime is not in the table, or where a file is not a profile.
    """
    given = (
        targets.split(",") if isinstance(targets, str) else [t for item in targets for t in item.split(",")]
    )
    found: dict[str, Profile] = {}
    notes: list[str] = []
    for text in (item.strip() for item in given):
        if text:
            profile, note = _one(text)
            found[profile.title] = profile
            notes += [note] if note else []
    return Aim(tuple(found.values()), tuple(dict.fromkeys(notes))) if found else None


def _one(text: str) -> tuple[Profile, str]:
    if text.endswith(".toml") or "/" in text or "\\" in text:
        return _from_file(Path(text)), ""
    name, separator, version = text.partition("==")
    rows = [row for row in profiles() if row.name.lower() == name.strip().lower()]
    if not rows:
        names = sorted({row.name for row in profiles()}, key=str.lower)
        near = difflib.get_close_matches(name.lower(), [item.lower() for item in names], 1)
        meant = f"did you mean '{near[0]}'? " if near else ""
        raise UsageError(
            f"there is no profile of '{name}'", remedy=f"{meant}{', '.join(names)}, or a file ./NAME.toml"
        )
    if not separator:
        return rows[0], ""
    return _at(rows, text, version.strip())


def _at(rows: list[Profile], text: str, version: str) -> tuple[Profile, str]:
    """The row of ``version``: the newest that is not newer."""
    asked = _number(version)
    if not asked:
        raise UsageError(
            f"'{text}': '{version}' is not a version", remedy=f"write {rows[0].name}==1.15 or the like"
        )
    if not rows[0].version:
        return rows[0], f"the profile of {rows[0].name} is not of a version: it is taken for {text}"
    for row in sorted(rows, key=lambda row: _number(row.version), reverse=True):
        own = _number(row.version)
        if own == asked[: len(own)]:
            return row, ""
        if own <= asked:
            return (
                row,
                f"there is no profile of {row.name} {version}: that of {row.title}, the next older, is taken",
            )
    known = ", ".join(row.version for row in rows)
    raise UsageError(
        f"there is no profile of {rows[0].name} {version}, and none that is older",
        remedy=f"there are {known}; or write a profile of your own, ./NAME.toml",
    )


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split("."))) if re.fullmatch(r"\d+(\.\d+)*", version) else ()


def _from_file(path: Path) -> Profile:
    """A profile of the user's own."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(
            f"there is no profile '{path}'", remedy="docs/targets.md says what it holds"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"'{path}' cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"'{path}' is not TOML: {error}", remedy="mend that line") from error
    profile = Profile.read({"name": path.stem, **data}, path.name)
    # Who lists what their runtime lacks means that it has the rest.
    return profile if "covers" in data else replace(profile, covers="opset")


def runtimes() -> dict[str, str]:
    """The runtimes that models can be run on here, with the package that each comes with."""
    return {row.runs_as: row.package for row in profiles() if row.runs_as}


def parse(names: str | Iterable[str] | None) -> tuple[str, ...]:
    """Names of runtimes to run on, as a list or separated by commas, each once; ``"all"`` is every one.

    UsageError for a name that is not one of them.
    """
    if names is None:
        return ()
    known = runtimes()
    given = names.split(",") if isinstance(names, str) else list(names)
    found: dict[str, None] = {}
    for name in (item.strip() for item in given):
        if name == "all":
            found |= dict.fromkeys(known)
        elif name in known:
            found[name] = None
        elif name:
            near = difflib.get_close_matches(name, known, 1)
            meant = f"did you mean '{near[0]}'? " if near else ""
            raise UsageError(
                f"'{name}' is no runtime that this tool drives", remedy=f"{meant}{', '.join(known)} or all"
            )
    return tuple(found)
