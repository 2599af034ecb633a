"""Declared types that contradict what is computed.

An exporter that knows nothing of an operator may declare anything of its result.  Such a type harms nobody while the
operator is opaque.  In front of standard operators onnx.checker and runtimes refuse it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import FunctionProto

from rewriter.graph.scopes import text
from rewriter.graph.types import contradicts, refine, without_sizes
from rewriter.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from onnx.onnx_ml_pb2 import ValueInfoProto

    from rewriter.graph.frames import Frame
    from rewriter.graph.scopes import Scope
    from rewriter.graph.survey import Call, Found

#: Values of one kind that a warning names at most.
_NAMED = 3


def correct_types(frame: Frame, sites: Iterable[Found | Call], free: Collection[str]) -> list[str]:
    """Mend the types that the scopes of ``frame`` declare where those that were inferred without them contradict them.

    Only what follows from ``sites``, which are replaced, is looked at: elsewhere a type that was wrong before stays.
    Those of the model's own outputs stay as well, since callers rely on them.  ``free`` are the sizes that the model's
    inputs leave open.  Returns a warning for each type that was mended, and for each that should be.
    """
    copy, warnings = frame.copy, []
    if copy is not None and copy.impossible:
        names = [f"'{name}'" for name in copy.impossible[:_NAMED]]
        names += ["…"] * (len(copy.impossible) > _NAMED)
        warnings.append(
            f"{', '.join(names)}: declared with a negative size or an unknown element type, which was taken "
            "for no declaration; onnx.checker may refuse it"
        )
    warnings += [
        f"{item.where}: the declared type of its output contradicts what it computes"
        for item in frame.contradicted
    ]
    if not frame.contradicted and not frame.contradictory:
        return warnings
    places, affected, count = {(site.scope, site.index) for site in sites}, set[str](), -1
    while len(affected) > count:  # once more than bodies are nested
        count = len(affected)
        _follow(frame.root.scope, places, affected)
    for scope in frame.root.scope.walk():
        graph, types = scope.graph, frame.types(scope)
        outputs = () if isinstance(graph, FunctionProto) else graph.output
        for value in graph.value_info:
            if value.name not in affected:
                continue
            warnings += _corrected(value, types.get(value.name), frame.wrong_sizes, free)
        for value in outputs:
            inferred = types.get(value.name)
            if value.name not in affected or not _contradictory(value, inferred):
                continue
            if not scope.ref.is_main:
                warnings += _corrected(value, inferred, frame.wrong_sizes, free)
            else:
                warnings.append(
                    f"output '{text(value.name)}' is declared {_declared(value)}, which contradicts what is computed, "
                    f"{inferred}; it was left so, since callers rely on it, and onnx.checker refuses it"
                )
    return warnings


def told(faults: Sequence[str]) -> list[str]:
    """A warning of what onnx minds in the model as it came; none where it minds nothing.

    While an operator is opaque its results have no types, and what reads them is not looked at.
    """
    if not faults:
        return []
    more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
    return [
        f"onnx.checker refuses the model as it came once the types behind its placeholders are known: {faults[0]}{more}"
    ]


def _follow(scope: Scope, sites: Collection[tuple[Scope, int]], affected: set[str]) -> bool:
    """Add to ``affected`` the values in ``scope`` and its bodies that follow from ``sites``; whether any does.

    What a round of a loop makes, the next one reads: that needs a second call.  Bodies may shadow outer names.  Then
    more than what follows is added, which does no harm.
    """
    bodies: dict[int, list[Scope]] = {}
    for body in scope.bodies:
        bodies.setdefault(body.ref.steps[-1].position, []).append(body)
    found = False
    for index, node in enumerate(scope.graph.node):
        hit = (scope, index) in sites or any(name in affected for name in node.input)
        for body in bodies.get(index, ()):
            hit = _follow(body, sites, affected) or hit
        if hit:
            found = True
            affected.update(node.output)
            for body in bodies.get(index, ()):
                if not isinstance(body.graph, FunctionProto):
                    affected.update(value.name for value in body.graph.input)
    return found


def _contradictory(value: ValueInfoProto, inferred: TensorType | None, free: Collection[str] = ()) -> bool:
    if inferred is None:
        return False
    declared = TensorType.from_proto(value.type)
    if declared is None:
        return value.type.WhichOneof("value") not in (None, "tensor_type")
    return contradicts(inferred, declared, free)


def _corrected(
    value: ValueInfoProto, inferred: TensorType | None, wrong_sizes: Collection[int], free: Collection[str]
) -> list[str]:
    """Give ``value`` the type that it has, where it was declared another; the warning that says so."""
    declared = TensorType.from_proto(value.type)
    # A size that was wrong elsewhere is not believed here unless it is found anew.
    credible = refine(inferred, without_sizes(declared, wrong_sizes), free)
    if credible is None or not (_contradictory(value, inferred, free) or _opens(credible, declared)):
        return []
    warning = f"'{text(value.name)}' was declared {_declared(value)}, it is {credible}"
    value.type.CopyFrom(credible.to_proto())
    return [warning]


def _declared(value: ValueInfoProto) -> str:
    known = TensorType.from_proto(value.type)
    return (
        str(known)
        if known is not None
        else str(value.type.WhichOneof("value")).removesuffix("_type").replace("_", " ")
    )


def _opens(new: TensorType, old: TensorType | None) -> bool:
    """Whether ``new`` leaves a size open that has a number in ``old``."""
    return old is not None and any(
        isinstance(y, int) and not isinstance(x, int)
        for x, y in zip(new.shape or (), old.shape or (), strict=False)
    )
