"""Which value of an exported graph is which operator's result in a PyTorch program.

The dynamo exporter writes into each node the operator that it came from; names are numbered anew in every capture, so
that the operator, its module and its line count, and the name only where nothing else tells.  The TorchScript exporter
leaves no more than the module's path in the names of nodes: there the results of modules are compared.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rewriter.against.oracle import Step
from rewriter.against.program import plain_path, stack_line
from rewriter.graph.scopes import text

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from onnx import ModelProto, NodeProto

_PREFIX = "pkg.torch.onnx."
_NODE = re.compile(r"%(?P<name>\S+) :")
_TARGET = re.compile(r"target=(?P<target>[^\]]+)\]")
_QUOTED = re.compile(r"'([^']*)'")

#: What tells one operator from another, the most telling first.
_WITH_LINES: tuple[Callable[[Step], Hashable], ...] = (
    lambda step: (step.target, step.module, step.line),
    lambda step: (step.target, step.line),
)
_WITHOUT_LINES: tuple[Callable[[Step], Hashable], ...] = (lambda step: (step.target, step.module),)


@dataclass(frozen=True)
class Matches:
    """The name of the step for each value of a main graph that is one's result."""

    names: Mapping[str, str]
    #: Whether the file says so; else only values of one shape are taken for the same.
    certain: bool


def matched(model: ModelProto, steps: Sequence[Step]) -> Matches:
    """Which step computes which value of the main graph, as far as that can be told."""
    recorded = [pair for node in model.graph.node for pair in _recorded(node)]
    if recorded:
        return Matches(_by_operator(recorded, steps), certain=True)
    if any("/" in text(node.name) for node in model.graph.node):
        return Matches(_by_module(model, steps), certain=False)
    known = {step.name for step in steps}
    names = [name for node in model.graph.node for name in node.output if name in known]
    return Matches({name: name for name in names}, certain=False)


def _recorded(node: NodeProto) -> Iterable[tuple[str, Step]]:
    """The result of the node, and the operator whose result it is: those between have other names."""
    entries = {entry.key: text(entry.value) for entry in node.metadata_props}
    name = _NODE.search(entries.get(f"{_PREFIX}fx_node", ""))
    target = _TARGET.search(entries.get(f"{_PREFIX}fx_node", ""))
    if name is None or target is None or name["name"] not in node.output:
        return
    # The last of the scopes is the node's own name.
    scopes = _QUOTED.findall(entries.get(f"{_PREFIX}name_scopes", ""))[:-1]
    yield (
        name["name"],
        Step(
            name["name"],
            target["target"],
            plain_path(scopes[-1]) if scopes else "",
            stack_line(entries.get(f"{_PREFIX}stack_trace", "")),
        ),
    )


def _by_operator(recorded: Sequence[tuple[str, Step]], steps: Sequence[Step]) -> dict[str, str]:
    found: dict[str, str] = {}
    taken: set[str] = set()
    lines = any(step.line for _, step in recorded) and any(step.line for step in steps)
    for key in _WITH_LINES if lines else _WITHOUT_LINES:
        ours: dict[Hashable, list[str]] = defaultdict(list)
        theirs: dict[Hashable, list[str]] = defaultdict(list)
        for value, step in recorded:
            if value not in found:
                ours[key(step)].append(value)
        for step in steps:
            if step.name not in taken:
                theirs[key(step)].append(step.name)
        for what, values in ours.items():
            # As many on both sides: the order in which they ran tells which is which.
            if len(values) == len(theirs[what]):
                found |= dict(zip(values, theirs[what], strict=True))
                taken.update(theirs[what])
    targets = {step.name: step.target for step in steps}
    for value, step in recorded:
        if value not in found and step.name not in taken and targets.get(step.name) == step.target:
            found[value] = step.name
    return found


def _by_module(model: ModelProto, steps: Sequence[Step]) -> dict[str, str]:
    """The last result inside each module that is called once."""
    ours: dict[str, str] = {}
    for node in model.graph.node:
        name = text(node.name)
        outputs = [output for output in node.output if output]
        if not name.startswith("/") or len(outputs) != 1:
            continue
        parts = name.strip("/").split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            # "/layers/layers.0/attn/MatMul" spells the path out at every level.
            ours[_joined(parts[:depth])] = outputs[0]
    theirs: dict[str, str] = {}
    called: dict[str, int] = defaultdict(int)
    last = ""
    for step in steps:
        parts = step.module.split(".") if step.module else []
        for depth in range(1, len(parts) + 1):
            path = ".".join(parts[:depth])
            theirs[path] = step.name
            if not f"{last}.".startswith(f"{path}."):
                called[path] += 1
        last = step.module
    return {value: theirs[path] for path, value in ours.items() if called.get(path) == 1}


def _joined(parts: Sequence[str]) -> str:
    path = ""
    for part in parts:
        path = part if not path or part.startswith(f"{path}.") else f"{path}.{part}"
    return path
