"""Running a decomposition at a site: the choice among several, and what it built."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rewriter.errors import (
    DecompositionError,
    DecompositionFault,
    DerivationError,
    NeedsRank,
    RewriteError,
    UnsupportedAtOpset,
    UnsupportedParameter,
)
from rewriter.placeholder.binding import Bound, Ref, Site
from rewriter.placeholder.builder import Builder
from rewriter.placeholder.explain import explain
from rewriter.placeholder.orders import bind_site
from rewriter.placeholder.value import Value
from rewriter.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnx import NodeProto, TensorProto

    from rewriter.placeholder.contract import Decomposition, Placeholder
    from rewriter.placeholder.registry import Match


@dataclass
class Expansion:
    """What replaces one placeholder.

    Names of new values are local: ``%`` and digits.  ``outputs[i]`` is the value behind the placeholder's i-th output;
    it may be one of the inputs, or stand for several outputs.
    """

    nodes: list[NodeProto]
    initializers: list[TensorProto]
    outputs: list[str]
    output_types: list[TensorType | None]
    #: Types of all values made, by local name.
    types: dict[str, TensorType]
    decomposition: str
    reason: str
    bound: Bound
    #: Domains and versions that the new nodes need besides the default one.
    domains: dict[str, int] = field(default_factory=dict)
    #: What must hold of sizes that are not known.
    conditions: tuple[str, ...] = ()


def expand(
    placeholder: Placeholder,
    site: Site,
    *,
    match: Match | None = None,
    portable: bool = False,
    force: str | None = None,
    lacks: Callable[[Expansion], bool] | None = None,
) -> Expansion:
    """Decompose ``site``.

    ``portable`` restricts the choice to the decompositions that are right on every tested runtime, ``force`` names
    the one to use.  One of which the target lacks a node, as ``lacks`` tells, is taken only where no other serves; its
    nodes are then replaced in turn.  Raises a :class:`DecompositionError` that says what is missing.
    """
    own = placeholder.expanded_at(site)
    if own is not None:
        return own
    bound = bind_site(placeholder, site, match)
    refusals: list[DecompositionError] = []
    second: Expansion | None = None
    candidates = _candidates(placeholder, site, bound, portable, force)
    last = None if match is None or force is not None else match.last_resort
    if last is not None and (last.portable or not portable):
        candidates.append(last)
    for candidate in candidates:
        try:
            made = _run(placeholder, candidate, site, bound)
            if lacks is None or not lacks(made):
                return made
            second = second or made
        except (NeedsRank, UnsupportedAtOpset, UnsupportedParameter, DerivationError) as error:
            # A form that cannot serve here leaves the node to the next one.
            error.where = error.where or site.where
            refusals.append(error)
    if second is not None:
        return second
    if refusals:
        # What stopped a form that someone wrote says more than why none could be derived.
        raise refusals[0]
    others = _candidates(placeholder, site, bound, False, force) if portable else []
    raise _none_serves(placeholder, site, force, [item.name for item in others])


def infer_types(
    placeholder: Placeholder, site: Site, *, match: Match | None = None
) -> list[TensorType | None]:
    """Types of the placeholder's outputs, by its ``infer`` or else by a decomposition."""
    bound = bind_site(placeholder, site, match)
    declared = _declared(placeholder, site, _values(_builder(placeholder, site), bound))
    if declared is not None:
        return declared
    return expand(placeholder, site, match=match).output_types


def _declared(
    placeholder: Placeholder, site: Site, arguments: dict[str, Any]
) -> list[TensorType | None] | None:
    """What the pass's ``infer`` says; None where it says nothing."""
    try:
        declared = placeholder.infer(**arguments)
    except RewriteError as error:
        error.where = error.where or site.where
        raise
    except Exception as error:
        raise _fault(placeholder, site, "infer()", error) from error
    if declared is None:
        return None
    types = list(declared) if isinstance(declared, (list, tuple)) else [declared]
    for item in types:
        if item is not None and not isinstance(item, TensorType):
            raise DecompositionFault(
                f"infer() of pass '{placeholder.pass_name()}' returned {type(item).__name__}, not a type",
                where=site.where,
                remedy="return x.type, a rewriter.types.TensorType, None, or a list of them",
            )
    return types


def _fault(placeholder: Placeholder, site: Site, what: str, error: Exception) -> DecompositionFault:
    return DecompositionFault(
        f"{what} of pass '{placeholder.pass_name()}' raised {type(error).__name__}: {error}",
        where=site.where,
        remedy="this is a fault of the pass; --debug shows the traceback",
    )


def _builder(placeholder: Placeholder, site: Site) -> Builder:
    used = site.wanted or tuple(bool(name) for name in site.node.output)
    wanted = {name: i < len(used) and used[i] for i, name in enumerate(placeholder.outputs)}
    return Builder(site.opset, ir_version=site.ir_version, where=site.where, wanted=wanted)


def _values(builder: Builder, bound: Bound) -> dict[str, Any]:
    def value(argument: Any) -> Any:
        if isinstance(argument, Ref):
            if argument.name:
                return builder.input(argument.name, argument.type, argument.constant)
            return builder.const(argument.constant)
        if isinstance(argument, tuple):
            return tuple(value(item) for item in argument)
        return argument

    return {name: value(argument) for name, argument in bound.arguments.items()}


def _candidates(
    placeholder: Placeholder, site: Site, bound: Bound, portable: bool, force: str | None
) -> list[Decomposition]:
    found: list[tuple[tuple[int, int, int], Decomposition]] = []
    for order, item in enumerate(placeholder.decompositions):
        if not item.serves(site.opset) or (portable and not item.portable) or (force and item.name != force):
            continue
        if item.requires is not None and not _holds(item, "requires", placeholder, site, bound):
            continue
        if item.when is not None and not force and not _holds(item, "when", placeholder, site, bound):
            continue
        found.append(((0 if item.when is not None else 1, -item.opset, order), item))
    return [item for _, item in sorted(found, key=lambda pair: pair[0])]


def precondition_holds(placeholder: Placeholder, item: Decomposition, site: Site) -> bool:
    """Whether the decomposition says that it is right at ``site``."""
    return item.requires is None or _holds(item, "requires", placeholder, site, bind_site(placeholder, site))


def _holds(item: Decomposition, which: str, placeholder: Placeholder, site: Site, bound: Bound) -> bool:
    try:
        return bool(getattr(item, which)(**_values(_builder(placeholder, site), bound)))
    except NeedsRank:
        return False
    except RewriteError:
        raise
    except Exception as error:
        raise _fault(placeholder, site, f"`{which}` of decomposition '{item.name}'", error) from error


def _run(placeholder: Placeholder, item: Decomposition, site: Site, bound: Bound) -> Expansion:
    builder = _builder(placeholder, site)
    arguments = _values(builder, bound)
    variadic = next((p.name for p in placeholder.signature.parameters if p.variadic), None)
    if variadic is None:
        made = _call(placeholder, item, site, bound, builder, arguments)
    else:
        # What precedes a variadic parameter can only be given by position.
        names = placeholder.signature.names
        at = names.index(variadic)
        before = [arguments[name] for name in names[:at]]
        after = {name: arguments[name] for name in names[at + 1 :]}
        made = _call(placeholder, item, site, bound, builder, after, *before, *arguments[variadic])
    results = list(made) if isinstance(made, (tuple, list)) else [made]
    wanted = [
        bool(name) and builder.wants(_output_name(placeholder, i)) for i, name in enumerate(site.node.output)
    ]
    for i, needed in enumerate(wanted):
        if needed and (i >= len(results) or results[i] is None):
            raise DecompositionFault(
                f"decomposition '{item.name}' of pass '{placeholder.pass_name()}' gives "
                f"{sum(result is not None for result in results)} outputs, the node uses {sum(wanted)}",
                where=site.where,
                remedy="return one value per name in `outputs`, None only where g.wants() is false",
            )
    if len(results) > max(len(placeholder.outputs), len(site.node.output)):
        raise DecompositionFault(
            f"decomposition '{item.name}' of pass '{placeholder.pass_name()}' gives {len(results)} results, "
            f"the pass declares {len(placeholder.outputs)}",
            where=site.where,
            remedy="name them all in `outputs`",
        )
    for result in results:
        if result is not None and (not isinstance(result, Value) or result.name not in builder.values):
            raise DecompositionFault(
                f"decomposition '{item.name}' of pass '{placeholder.pass_name()}' returned {type(result).__name__}, "
                "not a value of its builder",
                where=site.where,
            )
    values = [result for result in results[: len(site.node.output)] if result is not None]
    types = {v.name: v.type for v in builder.values.values() if v.type is not None and v.name.startswith("%")}
    known = _declared(placeholder, site, _values(builder, bound))
    output_types = [
        None if r is None else builder.values[r.name].type for r in results[: len(site.node.output)]
    ]
    if known is not None:
        output_types = [_merged(a, b, placeholder, site) for a, b in zip(output_types, known, strict=False)]
        types |= {
            r.name: t for r, t in zip(results, output_types, strict=False) if r is not None and t is not None
        }
    assert len(values) <= len(site.node.output)
    domains = {domain: version for domain, version in builder.domains.items() if domain}
    return Expansion(
        builder.nodes,
        builder.initializers,
        ["" if result is None else result.name for result in results[: len(site.node.output)]],
        output_types,
        types,
        item.name,
        item.reason,
        bound,
        domains,
        tuple(builder.conditions),
    )


def _call(
    placeholder: Placeholder,
    item: Decomposition,
    site: Site,
    bound: Bound,
    builder: Builder,
    named: dict[str, Any],
    *positional: Any,
) -> Any:
    try:
        return item.build(placeholder, builder, *positional, **named)
    except DecompositionError as error:
        error.where = error.where or site.where
        explain(error, placeholder, item, site, bound)
        raise
    except MemoryError as error:
        raise UnsupportedParameter(
            f"decomposition '{item.name}' of pass '{placeholder.pass_name()}' needs more memory than there is",
            where=site.where,
            remedy="a parameter or a size of the input is too large; check what the exporter wrote",
        ) from error
    except Exception as error:
        raise _fault(placeholder, site, f"decomposition '{item.name}'", error) from error


def _output_name(placeholder: Placeholder, index: int) -> str:
    return placeholder.outputs[index] if index < len(placeholder.outputs) else f"output {index}"


def _merged(
    made: TensorType | None, declared: TensorType | None, placeholder: Placeholder, site: Site
) -> TensorType | None:
    """The declared type where it fits the one that was built: it keeps the names of sizes."""
    if made is None or declared is None:
        return declared or made
    conflict = made.dtype != declared.dtype
    if made.shape is not None and declared.shape is not None:
        conflict |= len(made.shape) != len(declared.shape) or any(
            isinstance(a, int) and isinstance(b, int) and a != b
            for a, b in zip(made.shape, declared.shape, strict=False)
        )
    if conflict:
        raise DecompositionFault(
            f"pass '{placeholder.pass_name()}' declares a result of type {declared}, its decomposition makes {made}",
            where=site.where,
        )
    if declared.shape is None or made.shape is None:
        return declared if made.shape is None else made
    return declared.with_shape(
        b if b is not None and not isinstance(a, int) else a
        for a, b in zip(made.shape, declared.shape, strict=True)
    )


def _none_serves(
    placeholder: Placeholder, site: Site, force: str | None, others: list[str]
) -> DecompositionError:
    """``others`` are the decompositions that would serve, were they portable."""
    name = placeholder.pass_name()
    if force is not None and all(item.name != force for item in placeholder.decompositions):
        known = ", ".join(item.name for item in placeholder.decompositions)
        return UnsupportedParameter(
            f"pass '{name}' has no decomposition '{force}': it has {known}", where=site.where
        )
    if others:
        return UnsupportedParameter(
            f"no portable decomposition of pass '{name}' serves this combination of parameters and sizes",
            where=site.where,
            remedy=f"without --portable there is: {', '.join(others)}",
        )
    lowest = min(item.opset for item in placeholder.decompositions)
    if site.opset < lowest:
        return UnsupportedAtOpset(
            f"pass '{name}' has decompositions from opset {lowest}, the model has opset {site.opset}",
            where=site.where,
            remedy=f"export at opset {lowest} or later",
        )
    return UnsupportedParameter(
        f"no decomposition of pass '{name}' serves this combination of parameters at opset {site.opset}",
        where=site.where,
    )
