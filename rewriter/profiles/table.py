"""The built-in profiles: ``data/runtimes.json``, with the date and the way in which each was found."""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import TYPE_CHECKING, Any

from rewriter.profiles.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Mapping


@functools.cache
def table() -> Mapping[str, Any]:
    """The table as it stands in the file."""
    text = resources.files("rewriter").joinpath("data/runtimes.json").read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(text)
    return data


@functools.cache
def profiles() -> tuple[Profile, ...]:
    """Every profile of the table, in its order: versions of one runtime from the newest to the oldest."""
    data = table()
    return tuple(
        Profile.read({"date": data["date"], "source": data["source"], **row}, "runtimes.json", data["tried"])
        for row in data["runtimes"]
    )
