"""Standard operators as placeholders: what a target lacks is written in the forms that it has.

:class:`Target` says what the target is; :func:`settled` chooses its opset for a model.  :func:`at_target` makes a
selection whose survey also takes the standard operators that the target lacks; the rest of a run is the same as for any
placeholder.
"""

from rewriter.lower.choice import settled
from rewriter.lower.selection import at_target
from rewriter.lower.target import Target

__all__ = ["Target", "at_target", "settled"]
