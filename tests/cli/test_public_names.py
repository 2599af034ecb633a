"""What ``import rewriter`` promises."""

from __future__ import annotations

import pytest

import rewriter


@pytest.mark.parametrize("name", rewriter.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(rewriter, name) is not None


@pytest.mark.parametrize(
    "name",
    [
        "rewrite",
        "inspect",
        "Placeholder",
        "Case",
        "decomposition",
        "Builder",
        "Value",
        "Ints",
        "Floats",
        "Report",
        "RewriteError",
        "from_symbolic",
        "from_surgeon",
        "from_onnxscript",
    ],
)
def test_promised(name: str) -> None:
    assert name in rewriter.__all__


def test_about_twenty_names_and_one_home_for_exceptions() -> None:
    from rewriter import errors

    raised = {
        n for n, e in vars(errors).items() if isinstance(e, type) and issubclass(e, errors.RewriteError)
    }
    assert raised & set(rewriter.__all__) == {"RewriteError"}
    assert len(rewriter.__all__) <= 32


def test_the_old_name_of_an_exception_is_reachable_for_a_release() -> None:
    from rewriter import errors

    with pytest.warns(DeprecationWarning, match=r"rewriter\.errors\.MismatchError"):
        assert rewriter.MismatchError is errors.MismatchError


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        rewriter.no_such_name  # noqa: B018


def test_the_function_is_not_hidden_by_a_module_of_its_name() -> None:
    import rewriter.inspection

    assert callable(rewriter.inspect)
    assert callable(rewriter.rewrite)
