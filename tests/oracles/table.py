"""What the tables of the groups are made of."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tests.oracles

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tests.oracles.run import Result


@dataclass(frozen=True)
class Row:
    """A pass, and OpInfo's entries for its operator."""

    pass_name: str
    #: ``op.full_name``: the operator's name, and the variant's behind a dot.
    entries: tuple[str, ...]
    #: From a sample to the pass's arguments by name (torch tensors and Python values); None binds them as PyTorch does.
    adapt: Callable[[Any], Mapping[str, Any]] | None = None


@dataclass(frozen=True)
class NodeRow:
    """A pass, and the ONNX operator that it equals."""

    pass_name: str
    op_type: str
    #: From the node's attributes and its inputs (None where omitted) to the pass's arguments by name.
    adapt: Callable[[Mapping[str, Any], list[Any]], Mapping[str, Any]]
    #: Relative and absolute, where the expected values in the test are coarser than the pass's own tolerance.
    tolerance: tuple[float, float] | None = None


@dataclass(frozen=True)
class Unrun:
    """Samples that do not come out as agreement, what comes out instead, and why."""

    pass_name: str
    #: The entry of OpInfo, or the name of the node test.
    entry: str
    result: Result
    reason: str
    #: Numbers of the samples; None is all of them.
    samples: Collection[int] | None = None
    dtypes: Collection[str] | None = None
    opsets: Collection[int] | None = None
    symbolic: bool | None = None

    def covers(self, pass_name: str, entry: str, sample: int, dtype: str, opset: int, symbolic: bool) -> bool:
        return (
            (self.pass_name, self.entry) == (pass_name, entry)
            and (self.samples is None or sample in self.samples)
            and (self.dtypes is None or dtype in self.dtypes)
            and (self.opsets is None or opset in self.opsets)
            and self.symbolic in (None, symbolic)
        )


def named(*inputs: str, **attributes: tuple[str, Any]) -> Callable[..., Mapping[str, Any]]:
    """An ``adapt`` for :class:`NodeRow`: the parameters that the inputs are, in order, and for each other parameter the
    attribute that it is and its default: ``named("x", beta=("alpha", 1.0))``."""

    def adapt(given: Mapping[str, Any], tensors: list[Any]) -> Mapping[str, Any]:
        arguments = dict(zip(inputs, tensors, strict=False))
        return arguments | {name: given.get(key, default) for name, (key, default) in attributes.items()}

    return adapt


def collected(kind: str, name: str) -> list[Any]:
    """All that the modules ``<kind>_<group>`` list under ``name``."""
    found: list[Any] = []
    for module in pkgutil.iter_modules(tests.oracles.__path__):
        if module.name.startswith(f"{kind}_"):
            found += getattr(importlib.import_module(f"tests.oracles.{module.name}"), name)
    return found
