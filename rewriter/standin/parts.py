"""A scope cut into what onnxruntime runs and what must be run for it, in the order in which values become known.

Nodes are put into levels: what needs no placeholder first, then the placeholders that need only that, then the nodes
that need those, and so on.  The nodes of a level become one session, so that there are about as many sessions as
placeholders stand in a row, however many nodes there are.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onnx import NodeProto, SparseTensorProto, TensorProto

from rewriter.domains import normal_domain
from rewriter.execution.cut import outer_names
from rewriter.graph.scopes import graphs_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from onnx import FunctionProto, GraphProto

#: A value that is known before anything runs: an initializer, or the Constant node that makes it.
Constant = TensorProto | SparseTensorProto | NodeProto


@dataclass
class Names:
    """What the names of one scope mean, and those that it sees of the scopes around it."""

    constants: Mapping[str, Constant]
    computed: set[str]
    outer: Names | None = None

    def constant(self, name: str) -> Constant | None:
        place: Names | None = self
        while place is not None:
            if name in place.constants:
                return place.constants[name]
            place = None if name in place.computed else place.outer
        return None

    def is_computed(self, name: str) -> bool:
        place: Names | None = self
        while place is not None:
            if name in place.constants:
                return False
            if name in place.computed:
                return True
            place = place.outer
        return False


def names_of(
    graph: GraphProto | FunctionProto,
    nodes: Sequence[NodeProto],
    given: Collection[str],
    outer: Names | None,
) -> Names:
    """``given`` are the values that come from outside, whatever the graph says of them."""
    constants: dict[str, Constant] = {}
    computed: set[str] = set(given)
    if hasattr(graph, "initializer"):
        constants |= {tensor.name: tensor for tensor in graph.initializer}
        constants |= {tensor.values.name: tensor for tensor in graph.sparse_initializer}
        computed.update(value.name for value in graph.input)
    else:
        computed.update(graph.input)
    for node in nodes:
        if is_constant(node):
            constants[node.output[0]] = node
        else:
            computed.update(name for name in node.output if name)
    for name in given:
        constants.pop(name, None)
    return Names(constants, computed, outer)


def is_constant(node: NodeProto) -> bool:
    return node.op_type == "Constant" and not normal_domain(node.domain) and len(node.output) == 1


@dataclass
class Part:
    """Nodes that run in one session: positions in their scope, what they take, and what they give to others."""

    nodes: list[int] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    #: Initializers and Constant nodes that they read, by name.
    constants: dict[str, Constant] = field(default_factory=dict)


@dataclass
class Step:
    """A part, or the position of a node that is run by other means; then what nobody reads any more."""

    part: Part | None = None
    node: int = -1
    done: list[str] = field(default_factory=list)


def arrange(
    nodes: Sequence[NodeProto],
    special: Collection[int],
    names: Names,
    wanted: Iterable[str],
    given: Collection[str],
) -> list[Step]:
    """The steps that compute ``wanted``, and nothing that these do not need.

    ``special`` are the positions of the nodes that are run by other means.  ``nodes`` are in an order in which each
    comes after those that it reads.
    """
    last = list(dict.fromkeys(wanted))
    reads: dict[int, list[str]] = {}
    needed = set(last)
    for index in reversed(range(len(nodes))):
        node = nodes[index]
        if is_constant(node) or not any(name in needed for name in node.output if name and name not in given):
            continue
        reads[index] = [name for name in node.input if name]
        if node.attribute and any(True for _ in graphs_of(node)):
            reads[index] += sorted(outer_names(node), key=str)
        needed.update(reads[index])
    levels: dict[int, tuple[Part, list[int]]] = defaultdict(lambda: (Part(), []))
    level_of: dict[str, int] = {}
    for index in reversed(reads):
        level = max((level_of.get(name, 0) for name in reads[index]), default=0)
        part, others = levels[level]
        if index in special:
            others.append(index)
            level += 1
        else:
            part.nodes.append(index)
        for name in nodes[index].output:
            if name and name not in given:
                level_of[name] = level
    steps: list[Step] = []
    for level in sorted(levels):
        part, others = levels[level]
        if part.nodes:
            steps.append(Step(part))
        steps += [Step(node=index) for index in others]
    _connect(steps, nodes, reads, names, last, given)
    return steps


def _connect(
    steps: Sequence[Step],
    nodes: Sequence[NodeProto],
    reads: Mapping[int, Sequence[str]],
    names: Names,
    wanted: Iterable[str],
    given: Collection[str],
) -> None:
    """Fill in what each part takes and gives, and after which step a value may go."""
    later = set(wanted)
    kept = set(wanted)
    for step in reversed(steps):
        indices = [step.node] if step.part is None else step.part.nodes
        made = {name for i in indices for name in nodes[i].output if name and name not in given}
        read = list(dict.fromkeys(name for i in indices for name in reads[i]))
        if step.part is not None:
            step.part.outputs = [
                name for i in indices for name in nodes[i].output if name in made and name in later
            ]
            for name in read:
                if name in made:
                    continue
                constant = names.constant(name)
                if constant is not None:
                    step.part.constants[name] = constant
                elif names.is_computed(name):
                    step.part.inputs.append(name)
        step.done = [name for name in {*read, *made} if name not in later and name not in kept]
        later.update(read)
