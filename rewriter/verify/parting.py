"""At which node the values of two graphs part.

The values that two graphs share by name are compared in one session of each, in the graph's order and as many at a time
as fit into memory.  From the output that differs the search goes back through values that differ, until everything
before one agrees: a value that was only laid out otherwise on the way leads nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onnx import helper

from rewriter.errors import CannotVerifyError, Where
from rewriter.execution.cut import outer_names, prune
from rewriter.execution.session import Refused, Session
from rewriter.graph.scopes import main_scope
from rewriter.inputs.dims import evaluate as size_of
from rewriter.verify.blame import OPTIMISER, Blame, told

if TYPE_CHECKING:
    from pathlib import Path

    from onnx import ModelProto, NodeProto

    from rewriter.execution.values import Data
    from rewriter.execution.weights import Weights
    from rewriter.types import TensorType

#: Bytes of values that are held at a time.
BUDGET = 256 << 20
#: What a value of unknown size is taken for, and a dim of unknown size.
_UNKNOWN_BYTES = 1 << 20
_UNKNOWN_SIZE = 64

#: What is wrong with a value, compared with the one that was expected; None where they agree.
Judge = Callable[[Any, Any], str | None]


@dataclass
class Parting:
    """The values of a main graph, held against others of the same names.

    ``judge(found, expected)`` says what is wrong with one of them; ``types`` and ``sizes`` tell how many are held at a
    time.
    """

    model: ModelProto
    judge: Judge
    types: Mapping[str, TensorType] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._producers = {
            name: position
            for position, node in enumerate(self.model.graph.node)
            for name in node.output
            if name
        }
        self._reads: dict[int, list[str]] = {}

    def unseen(self, name: str, verdicts: Mapping[str, str | None]) -> bool:
        """Whether values lie between ``name`` and those before it that were compared."""
        return any(other in self._producers and other not in verdicts for other in self._inputs(name))

    @property
    def computed(self) -> list[str]:
        """Every computed value, in the graph's order."""
        return list(self._producers)

    def shared(self, others: ModelProto) -> list[str]:
        """Computed values whose names ``others`` has as well, in this graph's order."""
        theirs = {name for node in others.graph.node for name in node.output if name}
        return [name for name in self._producers if name in theirs]

    def batches(self, names: Sequence[str]) -> Iterator[list[str]]:
        """``names`` in parts whose values fit into memory, two of each."""
        part: list[str] = []
        held = 0
        for name in names:
            need = 2 * nbytes(self.types.get(name), self.sizes)
            if part and held + need > BUDGET:
                yield part
                part, held = [], 0
            part.append(name)
            held += need
        if part:
            yield part

    def compare(
        self,
        names: Sequence[str],
        found: Callable[[Sequence[str]], Mapping[str, Data]],
        expected: Callable[[Sequence[str]], Mapping[str, Data]],
        *,
        alike: bool = False,
    ) -> dict[str, str | None]:
        """What is wrong with each of ``names``; those that one side cannot give are left out.

        ``alike``: those of two shapes as well, which are two values of one name.
        """
        verdicts: dict[str, str | None] = {}
        for part in self.batches(names):
            left, right = found(part), expected(part)
            for name in part:
                if name in left and name in right and not (alike and _unlike(left[name], right[name])):
                    verdicts[name] = self.judge(left[name], right[name])
        return verdicts

    def first(self, verdicts: Mapping[str, str | None], outputs: Sequence[str]) -> str | None:
        """The first value of those that differ without a gap up to one of ``outputs``; None where nothing differs."""
        best: str | None = None
        for output in outputs:
            waiting, seen = [output], set()
            while waiting:
                name = waiting.pop()
                if name in seen:
                    continue
                seen.add(name)
                if verdicts.get(name) is not None and (best is None or self._at(name) < self._at(best)):
                    best = name
                waiting += [other for other in self.before(name, verdicts) if verdicts[other] is not None]
        return best

    def before(self, name: str, verdicts: Mapping[str, str | None]) -> list[str]:
        """The nearest values before ``name`` that were compared."""
        found: list[str] = []
        waiting, seen = list(self._inputs(name)), {name}
        while waiting:
            other = waiting.pop()
            if other in seen:
                continue
            seen.add(other)
            if other in verdicts:
                found.append(other)
            else:
                waiting += self._inputs(other)
        return found

    def depends(self, name: str, roots: Sequence[str]) -> bool:
        """Whether ``name`` is one of ``roots``, or is computed from one."""
        known = set(roots)
        return name in known or any(
            other in known for value in self.ancestors(name) for other in self._inputs(value)
        )

    def ancestors(self, name: str) -> list[str]:
        """Every computed value that ``name`` depends on, itself among them, in the graph's order."""
        waiting, seen = [name], set()
        while waiting:
            other = waiting.pop()
            if other not in seen and other in self._producers:
                seen.add(other)
                waiting += self._inputs(other)
        return sorted(seen, key=self._at)

    def _inputs(self, name: str) -> list[str]:
        position = self._producers.get(name)
        if position is None:
            return []
        if position not in self._reads:
            node = self.model.graph.node[position]
            self._reads[position] = [n for n in (*node.input, *outer_names(node)) if n]
        return self._reads[position]

    def _at(self, name: str) -> int:
        return self._producers.get(name, -1)

    def node(self, name: str) -> NodeProto | None:
        position = self._producers.get(name)
        return None if position is None else self.model.graph.node[position]

    def where(self, name: str) -> Where | None:
        """The node that computes ``name``, for people."""
        node = self.node(name)
        return None if node is None else main_scope(self.model).where(node)


def _unlike(a: Data, b: Data) -> bool:
    return getattr(a, "shape", None) != getattr(b, "shape", None)


def computed(model: ModelProto) -> list[str]:
    """Every value that the main graph computes, in its order."""
    return [name for node in model.graph.node for name in node.output if name]


def between(
    stage: str,
    before: tuple[ModelProto, Session],
    after: tuple[ModelProto, Session],
    feeds: Mapping[str, Data],
    output: str,
    judge: Judge,
    types: Mapping[str, TensorType],
    sizes: Mapping[str, int],
) -> Blame:
    """Where values of ``after`` part from those of ``before``, whose nodes are named; both sessions give all out."""
    parting = Parting(after[0], judge, types, sizes)
    names = parting.shared(before[0])
    try:
        verdicts = parting.compare(
            names,
            lambda part: after[1].run(feeds, part),
            lambda part: before[1].run(feeds, part),
        )
    except (Refused, CannotVerifyError) as error:
        return Blame(stage, detail=f"inner values cannot be compared: {error.what}")
    first = parting.first(verdicts, [output])
    if first is None:
        return Blame(
            stage, Parting(before[0], judge).where(output), f"'{output}', none of what comes before it"
        )
    where = Parting(before[0], judge).where(first) or parting.where(first)
    return Blame(stage, where, told(first, verdicts[first]))


def exposed(
    weights: Weights, model: ModelProto, names: Sequence[str], libraries: Sequence[Path], *, optimise: bool
) -> Session:
    """A session that gives every one of ``names`` out."""
    return Session(weights, model, extra_outputs=names, optimise=optimise, libraries=libraries)


def in_optimiser(
    weights: Weights,
    model: ModelProto,
    feeds: Mapping[str, Data],
    output: str,
    judge: Judge,
    libraries: Sequence[Path],
    types: Mapping[str, TensorType],
    sizes: Mapping[str, int],
) -> Blame:
    """Where onnxruntime's optimiser parts from the graph as it is written.

    All values are asked for first.  Values that are given out are not fused away, which may heal the fault; then the
    graph up to one value after another is run, halving each time what is left between one that agrees and one that
    does not.
    """
    parting = Parting(model, judge, types, sizes)
    names = parting.ancestors(output)
    try:
        plain = exposed(weights, model, names, libraries, optimise=False)
        optimised = exposed(weights, model, names, libraries, optimise=True)
        verdicts = parting.compare(
            names, lambda part: optimised.run(feeds, part), lambda part: plain.run(feeds, part)
        )
        first = parting.first(verdicts, [output])
        if first is not None:
            return Blame(OPTIMISER, parting.where(first), told(first, verdicts[first]))
        first, problem = _halve(weights, model, feeds, names, judge, libraries, plain)
    except (Refused, CannotVerifyError) as error:
        return Blame(OPTIMISER, parting.where(output), f"inner values cannot be compared: {error.what}")
    return Blame(OPTIMISER, parting.where(first), told(first, problem) if problem else "")


def _halve(
    weights: Weights,
    model: ModelProto,
    feeds: Mapping[str, Data],
    names: Sequence[str],
    judge: Judge,
    libraries: Sequence[Path],
    plain: Session,
) -> tuple[str, str | None]:
    """The first of ``names`` that differs where the graph ends with it; the last is known to differ."""
    low, high, problem = -1, len(names) - 1, None
    while high - low > 1:
        middle = (low + high) // 2
        name = names[middle]
        session = Session(weights, prune(model, [name]), optimise=True, libraries=libraries)
        found = judge(session.run(feeds, [name])[name], plain.run(feeds, [name])[name])
        if found is None:
            low = middle
        else:
            high, problem = middle, found
    return names[high], problem


def nbytes(kind: TensorType | None, sizes: Mapping[str, int]) -> int:
    """Bytes of a value of this type, estimated where a size is unknown."""
    if kind is None or kind.shape is None:
        return _UNKNOWN_BYTES
    count = 1
    for dim in kind.shape:
        count *= dim if isinstance(dim, int) else (size_of(dim, sizes) if dim else None) or _UNKNOWN_SIZE
    return count * max(1, helper.tensor_dtype_to_np_dtype(kind.dtype).itemsize)
