"""For the author of a pass: run it over its own cases, everywhere that a placeholder can stand.

    from rewriter.testing import check, variants

    @pytest.mark.parametrize("variant", variants(MyPass()), ids=str)
    def test_my_pass(variant):
        check(variant)

Every decomposition is forced, not only the one that would be chosen, in static and symbolic sizes, and the chosen one
is run in the main graph, in a body of If and in a model-local function, against the pass's PyTorch reference.
:func:`check_gradients` holds the gradient of the reference against that of the decomposition.
"""

from rewriter.testing.check import Outcome, check
from rewriter.testing.gradients import check_gradients
from rewriter.testing.variants import Variant, opsets_of_interest, variants

__all__ = ["Outcome", "Variant", "check", "check_gradients", "opsets_of_interest", "variants"]
