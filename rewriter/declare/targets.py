"""Whether a model has what the runtimes of ``--target`` lack: before it is delivered, and of any file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewriter.declare.contents import contents_of
from rewriter.declare.runtimes import lacking, untried
from rewriter.domains import normal_domain
from rewriter.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnx import ModelProto

    from rewriter.lower.target import Target
    from rewriter.profiles import Profile
    from rewriter.storage import ModelFile


def lacks(file: ModelFile, target: Target, model: ModelProto) -> set[str]:
    """What of ``model``, a skeleton of ``file``, some runtime of ``target`` lacks, with the runtime's name."""
    return {f"{what}: {profile.title}" for profile, what in _lacking(file, model, target)}


def require(file: ModelFile, model: ModelProto, target: Target) -> list[str]:
    """TargetError where a runtime lacks something of the delivered ``model``; notes on what was not tried there."""
    found: dict[str, list[str]] = {}
    for profile, what in _lacking(file, model, target):
        found.setdefault(what, []).append(profile.title)
    if found:
        error = TargetError(
            "the model would still hold what a target lacks:",
            remedy="choose another target, write a pass for the operator, or let it stay with --no-expand",
        )
        error.details = tuple(f"{what}: not on {', '.join(names)}" for what, names in found.items())
        raise error
    contents = contents_of(file, model)
    notes = []
    for profile in target.aim.profiles:
        unknown = list(dict.fromkeys(untried(profile, contents)))
        if unknown:
            notes.append(f"not known whether {profile.title} has {', '.join(unknown)}")
    return notes


def _lacking(file: ModelFile, model: ModelProto, target: Target) -> Iterator[tuple[Profile, str]]:
    """What the runtimes lack, but for what the user lets stay and what is right to some digits."""
    if not target.aim.profiles:
        return
    contents = contents_of(file, model)
    contents.standard = {
        key: nodes for key, nodes in contents.standard.items() if key[0] or key[1] not in target.no_expand
    }
    opsets = {normal_domain(item.domain): item.version for item in model.opset_import}
    for profile in target.aim.profiles:
        for what in dict.fromkeys(lacking(profile, contents, model.ir_version, opsets)):
            if "(inexact" not in what and not (profile.custom and what.endswith("(without its library)")):
                yield profile, what
