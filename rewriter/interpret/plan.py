"""A graph or function made ready to run: nodes with kernels, and what can be let go of after each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rewriter.interpret.call import Call

    #: Given the values by name of the scope, the results of the node.
    Run = Callable[[dict[str, Any]], Sequence[Any]]


@dataclass(frozen=True)
class Step:
    """One node."""

    call: Call
    run: Run
    #: Names of the scope that it reads, for its bodies too.
    reads: tuple[str, ...]
    outputs: tuple[str, ...]


#: Element type (a ``TensorProto.DataType``; 0 for none) and sizes, 0 where one is not known; None without a rank.
Declared = tuple[int, "tuple[int, ...] | None"]


@dataclass
class Plan:
    """One graph or function."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    steps: list[Step]
    #: Initializers by name.
    initial: dict[str, Any] = field(default_factory=dict)
    #: What a graph says of its outputs.
    declared: tuple[Declared, ...] = ()

    def captured(self) -> tuple[str, ...]:
        """Names that it takes from the scopes around it."""
        known = {*self.inputs, *self.initial}
        found: dict[str, None] = {}
        for step in self.steps:
            found |= dict.fromkeys(name for name in step.reads if name not in known)
            known.update(step.outputs)
        found |= dict.fromkeys(name for name in self.outputs if name and name not in known)
        return tuple(found)


@dataclass(frozen=True)
class Schedule:
    """The steps that some values of a plan need, in order, with the names that nobody reads after each."""

    plan: Plan
    wanted: tuple[str, ...]
    steps: tuple[tuple[Step, tuple[str, ...]], ...]

    @classmethod
    def of(cls, plan: Plan, wanted: Iterable[str]) -> Schedule:
        names = tuple(dict.fromkeys(name for name in wanted if name))
        needed = set(names)
        chosen: list[tuple[Step, tuple[str, ...]]] = []
        read = set(names)  # what is kept, or read further down
        for step in reversed(plan.steps):
            if not needed.intersection(step.outputs):
                continue
            needed.update(step.reads)
            last = {name for name in step.reads if name not in read}
            last.update(name for name in step.outputs if name and name not in read)
            read.update(step.reads)
            chosen.append((step, tuple(last)))
        return cls(plan, names, tuple(reversed(chosen)))

    def run(self, values: dict[str, Any]) -> dict[str, Any]:
        """The wanted values.  ``values`` holds inputs, initializers and captured names, and is used up."""
        for step, last in self.steps:
            results = step.run(values)
            values.update((n, r) for n, r in zip(step.outputs, results, strict=False) if n)
            for name in last:
                values.pop(name, None)
        return {name: values[name] for name in self.wanted}
