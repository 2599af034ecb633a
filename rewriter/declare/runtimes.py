"""Which runtimes have every operator of a model, by the profiles of :mod:`rewriter.profiles`.

A profile of what was tried knows the operators of the models that were run for it; of others it says nothing, but for
onnxruntime, which promises all operators of the opsets that it takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnx import FunctionProto

from rewriter.graph.inference import types_in
from rewriter.profiles import profiles
from rewriter.profiles.conditions import Use

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onnx import NodeProto

    from rewriter.declare.contents import Contents
    from rewriter.graph.scopes import Scope
    from rewriter.profiles import Profile
    from rewriter.types import TensorType


@dataclass(frozen=True)
class Judged:
    """One runtime; ``verdict`` is ``"has"``, ``"lacks"`` or ``"not known"``."""

    name: str
    verdict: str
    #: What it lacks or refuses, or what was not tried on it.
    reasons: tuple[str, ...] = ()
    #: Its name in ``--runtimes``, with its version; empty where it cannot be run here.
    runs_as: str = ""
    #: Whether models were run on it (``"measured"``), or its own documentation says so (``"cited"``).
    evidence: str = "measured"


def judge(contents: Contents, ir_version: int, opsets: Mapping[str, int]) -> list[Judged]:
    """Every runtime of the table, in its order."""
    types: Types = {}
    return [judge_one(profile, contents, ir_version, opsets, types) for profile in profiles()]


#: Types of values by scope, once they were asked for.
Types = dict["Scope", dict[str, "TensorType"]]


def judge_one(
    profile: Profile,
    contents: Contents,
    ir_version: int,
    opsets: Mapping[str, int],
    types: Types | None = None,
) -> Judged:
    """One runtime."""
    runs_as = f"{profile.runs_as} {profile.version}" if profile.runs_as else ""
    lacks = list(dict.fromkeys(lacking(profile, contents, ir_version, opsets, types)))
    if lacks:
        return Judged(profile.title, "lacks", tuple(lacks), runs_as, profile.evidence)
    unknown = tuple(dict.fromkeys(untried(profile, contents)))
    return Judged(profile.title, "not known" if unknown else "has", unknown, runs_as, profile.evidence)


def lacking(
    profile: Profile,
    contents: Contents,
    ir_version: int,
    opsets: Mapping[str, int],
    types: Types | None = None,
) -> Iterator[str]:
    """What of a model a runtime lacks or refuses."""
    types = {} if types is None else types
    for what, version, most in (
        ("opset", opsets.get("", 0), profile.max_opset),
        ("ai.onnx.ml version", opsets.get("ai.onnx.ml", 0), profile.max_ml),
        ("IR version", ir_version, profile.max_ir),
    ):
        if most is not None and version > most:
            yield f"{what} {version} (its newest is {most})"
    yield from (feature for feature in profile.refuses if feature in contents.features)
    if contents.functions and not profile.functions:
        yield "model-local functions"
    for domain, operator, _ in contents.custom:
        qualified = f"{domain}::{operator}" if domain else operator
        # A library of operators is built for one runtime; that of onnxruntime takes one.
        yield f"{qualified} (without its library)" if profile.custom else qualified
    for domain, operator, _ in contents.owned:
        if not (domain.startswith("com.microsoft") and profile.name.startswith("onnxruntime")):
            yield f"{domain}::{operator}"
    for (domain, operator, version), nodes in contents.standard.items():
        for gap in profile.gaps(operator) if domain == "" else ():
            if gap.is_at(version) and (
                gap.when is None
                or any(gap.concerns(_use(node, version, scope, types)) for node, scope in nodes)
            ):
                yield str(gap)


def untried(profile: Profile, contents: Contents) -> Iterator[str]:
    """The operators of a model of which nothing is known on a runtime."""
    for domain, operator, _ in contents.owned:
        yield f"{domain}::{operator}"  # which versions have it, the table does not say
    for domain, operator, _ in contents.standard:
        if (domain and profile.covers != "opset") or not (domain or profile.is_known(operator)):
            yield f"{domain}::{operator}" if domain else operator


def _use(node: NodeProto, version: int, scope: Scope, types: Types) -> Use:
    def type_of(index: int) -> TensorType | None:
        place: Scope | None = scope
        while place is not None:
            if place not in types:
                types[place] = {} if isinstance(place.graph, FunctionProto) else types_in(place.graph)
            if node.input[index] in types[place]:
                return types[place][node.input[index]]
            place = place.parent
        return None

    def is_constant(index: int) -> bool:
        name = node.input[index]
        place: Scope | None = scope
        while place is not None:
            if any(tensor.name == name for tensor in getattr(place.graph, "initializer", ())):
                return True
            maker = next((item for item in place.graph.node if name in item.output), None)
            if maker is not None:
                return bool(maker.op_type == "Constant")
            place = place.parent
        return False

    return Use(
        node.op_type,
        version,
        {item.name: item for item in node.attribute},
        tuple(map(bool, node.input)),
        tuple(map(bool, node.output)),
        type_of,
        is_constant,
    )
