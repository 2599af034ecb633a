"""The inner values of one run of a ``torch.export`` program."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from rewriter.against.oracle import OracleRefused, Step
from rewriter.against.running import first_line, unchanged
from rewriter.execution.values import from_torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rewriter.execution.numbers import Array

#: A frame of a recorded stack: where PyTorch is installed, and in which folder the model lay, does not matter.
_FRAME = re.compile(r'File "(?:[^"]*[/\\])?(?P<file>[^"/\\]+)", line (?P<line>\d+), in (?P<function>[^\n]+)')
_TARGET = re.compile(r"target=(?P<target>[^\]]+)\]")


class ProgramRun:
    """One program on one set of inputs; its values are computed anew for every question, and not held."""

    def __init__(self, module: Any, leaves: Sequence[Any]) -> None:
        self._module = module
        self._leaves = list(leaves)
        self.steps: Sequence[Step] = [
            _step(node) for node in module.graph.nodes if node.op == "call_function"
        ]

    def values(self, names: Sequence[str]) -> dict[str, Array]:
        """The named operators' results, those that are tensors."""
        import torch

        wanted = set(names)
        found: dict[str, Array] = {}

        class Recorder(torch.fx.Interpreter):
            def run_node(self, n: Any) -> Any:
                value = super().run_node(n)
                if n.name in wanted and isinstance(value, torch.Tensor):
                    found[n.name] = from_torch(value.clone())  # what comes later may write into it
                return value

        with unchanged(self._module, evaluate=False):
            try:
                # A program writes into its inputs where the module does: the next question needs them as they were.
                leaves = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in self._leaves]
                Recorder(self._module).run(*leaves, enable_io_processing=False)
            except Exception as error:
                raise OracleRefused(f"{type(error).__name__}: {first_line(error)}") from error
        return found


def _step(node: Any) -> Step:
    text = node.format_node() or ""
    match = _TARGET.search(text)
    scopes = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
    return Step(
        node.name,
        match["target"] if match else str(node.target),
        plain_path(scopes[-1]) if scopes else "",
        stack_line(node.meta.get("stack_trace") or ""),
    )


def stack_line(trace: str) -> str:
    """A recorded stack without the folders in it."""
    return " ".join(f"{m['file']}:{m['line']}:{m['function'].strip()}" for m in _FRAME.finditer(trace))


def plain_path(path: str) -> str:
    """``L['self'].layers[0].attn`` and ``layers.0.attn`` as the latter; repeated calls are told apart by ``@1``."""
    text = path.partition("@")[0].removeprefix("L['self']").removeprefix(".")
    return re.sub(r"\[['\"]?([^'\"\]]+)['\"]?\]", r".\1", text).removeprefix(".")
