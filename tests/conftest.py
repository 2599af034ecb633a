"""What all tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rewriter import pipeline

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _in_this_process(request: pytest.FixtureRequest) -> Iterator[None]:
    """The proof runs in the process of the tests: hundreds of workers would each import PyTorch.

    A test marked ``isolated`` has the default of users.  Commands in a process of their own have it anyway.
    """
    defaults = pipeline.rewrite.__kwdefaults__
    assert defaults is not None
    before = defaults["isolate"]
    defaults["isolate"] = request.node.get_closest_marker("isolated") is not None
    yield
    defaults["isolate"] = before
