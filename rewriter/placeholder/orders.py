"""Which order a node's inputs are in, where libraries give one operator's arguments in different orders."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rewriter.errors import BindingError
from rewriter.placeholder.binding import Bound, Site, bind
from rewriter.placeholder.shapes import misfit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rewriter.placeholder.contract import Placeholder
    from rewriter.placeholder.registry import Match


def bind_site(placeholder: Placeholder, site: Site, match: Match | None = None) -> Bound:
    """The arguments of ``site`` for ``placeholder``.

    1. ``--bind`` and a library's own schema say the order.
    2. An operator that the pass lists with its domain has the pass's own order.
    3. Otherwise the orders of ``spellings`` are possible as well.  Where the ranks and sizes allow one of them only,
       that one is taken.

    BindingError where no order fits, or where two fit and mean different things.
    """
    own = placeholder.bound_at(site)
    if own is not None:
        return own
    schema = placeholder.schemas.get(match.qualified) if match is not None else None
    first = _bound(placeholder, site, match, schema)
    if schema is not None or match is None or match.rule is not None or not placeholder.spellings:
        return _checked(first, placeholder, site)
    if any(match.qualified.lower() == pattern.lower() for pattern in placeholder.matches):
        return _checked(first, placeholder, site)
    found: dict[str, Bound | BindingError] = {"": first}
    for name, order in placeholder.spellings.items():
        found[name] = _bound(placeholder, site, match, order)
    fitting = {
        name: bound
        for name, bound in found.items()
        if isinstance(bound, Bound) and misfit(placeholder.shapes, bound) is None
    }
    different: dict[str, Bound] = {}
    for name, bound in fitting.items():
        if all(bound.arguments != other.arguments for other in different.values()):
            different[name] = bound
    if not different:
        return _checked(first, placeholder, site)
    if len(different) > 1:
        raise _ambiguous(different, placeholder, site, match)
    (bound,) = different.values()
    return bound


def _bound(
    placeholder: Placeholder, site: Site, match: Match | None, schema: Sequence[str] | None
) -> Bound | BindingError:
    try:
        bound = bind(
            placeholder.signature,
            site,
            aliases=placeholder.aliases,
            schema=schema,
            rule=match.rule if match is not None else None,
            ignored=match.selectors if match is not None else (),
        )
    except BindingError as error:
        return error
    return replace(bound, order=None if schema is None else tuple(schema))


def _checked(bound: Bound | BindingError, placeholder: Placeholder, site: Site) -> Bound:
    """``bound``; BindingError where it is one, or where a tensor has not the shape that its parameter must have."""
    if isinstance(bound, BindingError):
        raise bound
    wrong = misfit(placeholder.shapes, bound)
    if wrong is None:
        return bound
    name, expected = wrong
    argument = bound.arguments[name]
    position = list(site.node.input).index(argument.name) if argument.name in site.node.input else None
    which = f"input {position} ('{argument.name}')" if position is not None else "its attribute"
    operator = _operator(site)
    raise BindingError(
        f"'{name}' must have the shape {expected}, and {which} is {argument.type}; bound as {said(bound, site)}",
        where=site.where,
        remedy=f"pass '{placeholder.pass_name()}' takes the inputs as: {placeholder.signature}; if the node's are in "
        f'another order, say so: --bind "{operator}={placeholder.pass_name()}({name}=$…)"',
    )


def said(bound: Bound, site: Site) -> str:
    """``"x = 'a', weight = 'b'"``: the tensor parameters and the inputs that they got."""
    names = set(site.node.input)
    pairs = [
        f"{name} = '{argument.name}'"
        for name, argument in bound.arguments.items()
        if getattr(argument, "name", None) in names
    ]
    return ", ".join(pairs)


def _ambiguous(found: dict[str, Bound], placeholder: Placeholder, site: Site, match: Match) -> BindingError:
    lines = [
        f'--bind "{_operator(site)}={placeholder.pass_name()}({_rule(bound, site)})" '
        f"for {name or 'the order of pass ' + repr(placeholder.pass_name())}"
        for name, bound in found.items()
    ]
    return BindingError(
        f"its inputs can be in more than one order: {' and '.join(placeholder.spellings)} and {match.qualified} as the "
        "pass reads it differ, and the shapes fit both",
        where=site.where,
        remedy="say which: " + ", or ".join(lines),
    )


def _rule(bound: Bound, site: Site) -> str:
    inputs = list(site.node.input)
    return ",".join(
        f"{name}=${inputs.index(argument.name)}"
        for name, argument in bound.arguments.items()
        if getattr(argument, "name", None) in inputs
    )


def _operator(site: Site) -> str:
    return f"{site.node.domain}::{site.node.op_type}" if site.node.domain else str(site.node.op_type)
