"""What ``import rewriter`` promises."""

from __future__ import annotations

import ast
from pathlib import Path

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


def test_every_exception_is_public() -> None:
    from rewriter import errors

    raised = {
        n for n, e in vars(errors).items() if isinstance(e, type) and issubclass(e, errors.RewriteError)
    }
    assert raised <= set(rewriter.__all__)


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(rewriter.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name for node in ast.walk(block) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert seen | {"__version__"} == set(rewriter.__all__)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        rewriter.no_such_name  # noqa: B018


def test_the_function_is_not_hidden_by_a_module_of_its_name() -> None:
    import rewriter.inspection

    assert callable(rewriter.inspect)
    assert callable(rewriter.rewrite)
