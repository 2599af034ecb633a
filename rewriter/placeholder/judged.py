"""A pass that a user gave an operator to, judged by that operator where its meaning is known."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from rewriter.errors import BindingError, DecompositionFault
from rewriter.placeholder.binding import Ref
from rewriter.placeholder.orders import bind_site

if TYPE_CHECKING:
    from rewriter.placeholder.binding import Site
    from rewriter.placeholder.contract import Placeholder
    from rewriter.placeholder.registry import Match


def judged_by(placeholder: Placeholder, original: Placeholder, site: Site, match: Match) -> Placeholder:
    """``placeholder`` with the reference of ``original``, the operator that the node at ``site`` names.

    ``--bind "aten::renorm=rms_norm(…)"`` says that a pass computes ``aten::renorm``: PyTorch's own operator decides
    whether it does.  Where the node does not fit that operator's schema, the pass keeps its own reference.
    """
    try:
        exact = original.at(site, match.selectors)
        theirs = bind_site(exact, site)
        ours = bind_site(placeholder, site, match)
    except BindingError:
        return placeholder
    parameters = {ref.name: name for name, ref in ours.arguments.items() if isinstance(ref, Ref)}

    def reference(self: Placeholder, **arguments: Any) -> Any:  # noqa: ARG001
        def argument(value: Any) -> Any:
            if isinstance(value, tuple) and any(isinstance(item, Ref) for item in value):
                return tuple(argument(item) for item in value)
            if not isinstance(value, Ref):
                return value
            if value.name in parameters:
                return arguments[parameters[value.name]]
            if value.constant is not None:
                import torch

                return torch.as_tensor(value.constant)
            raise DecompositionFault(
                f"the pass does not take '{value.name}', which {match.qualified} reads",
                where=site.where,
                remedy="bind every input of the operator to a parameter of the pass",
            )

        return exact.reference(**{name: argument(value) for name, value in theirs.arguments.items()})

    made = copy.copy(placeholder)
    made.__class__ = type(type(placeholder).__name__, (type(placeholder),), {"reference": reference})
    return made
