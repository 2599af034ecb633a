"""A model as a function of tensors that autograd can go through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from rewriter.domains import MINIMUM_OPSET
from rewriter.errors import InterpreterRefusedError, OpsetError
from rewriter.graph.scopes import opset_versions
from rewriter.interpret.compiler import Compiler, Context
from rewriter.interpret.plan import Schedule
from rewriter.storage import ModelFile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnx import ModelProto
    from torch import Tensor


class Interpreter:
    """Runs the main graph of ``model``.

    ``file`` holds its withheld weights; without it the model must be whole (external data beside it was loaded).
    ``dtype`` stands for every floating-point type: of inputs, initializers, constants, and targets of Cast.
    Raises CannotInterpretError, when it runs, at an operator or type that it does not have, and
    InterpreterRefusedError where an operator does not take its inputs.
    """

    def __init__(
        self, model: ModelProto, *, file: ModelFile | None = None, dtype: torch.dtype | None = None
    ) -> None:
        version = opset_versions(model.opset_import).get("", MINIMUM_OPSET)
        if version < MINIMUM_OPSET:
            raise OpsetError(
                f"opset {version} is too old: operators are known from opset {MINIMUM_OPSET} on",
                remedy=f"convert the model to opset {MINIMUM_OPSET} or later",
            )
        if file is None:
            # Of its own, which is not left open: everything is read here.
            with ModelFile.from_proto(model) as own:
                self._plan = Compiler(Context(own, own.model, dtype)).main()
        else:
            self._plan = Compiler(Context(file, model, dtype)).main()
        self.dtype = dtype
        #: Floating-point initializers of the main graph by name; leaves, to be set to require gradients.
        self.parameters: dict[str, Tensor] = {
            name: value
            for name, value in self._plan.initial.items()
            if isinstance(value, torch.Tensor) and value.is_floating_point()
        }
        self.inputs = tuple(name for name in self._plan.inputs if name not in self._plan.initial)
        self.outputs = self._plan.outputs
        self._schedules: dict[tuple[str, ...], Schedule] = {}

    def __call__(self, feeds: Mapping[str, Any], wanted: Sequence[str] | None = None) -> dict[str, Any]:
        """The outputs, or the values of the main graph named by ``wanted``, by name.

        Inputs are tensors (sequences: lists of them) by name; only what ``wanted`` needs is computed.
        """
        names = tuple(self.outputs if wanted is None else wanted)
        schedule = self._schedules.get(names)
        if schedule is None:
            schedule = self._schedules[names] = Schedule.of(self._plan, names)
        values: dict[str, Any] = {**self._plan.initial, **self.parameters}
        for name, value in feeds.items():
            if name not in self._plan.inputs:
                raise InterpreterRefusedError(
                    f"the model has no input '{name}'", remedy=f"its inputs are {', '.join(self.inputs)}"
                )
            values[name] = self._widened(value)
        known = {*values, *(name for step in self._plan.steps for name in step.outputs)}
        for name in schedule.wanted:
            if name not in known:
                what = (
                    "input is not given"
                    if name in self._plan.inputs
                    else "main graph has no value of that name"
                )
                raise InterpreterRefusedError(f"'{name}': the {what}")
        reads = {name for step, _ in schedule.steps for name in step.reads}
        missing = [name for name in self.inputs if name in reads and name not in values]
        if missing:
            raise InterpreterRefusedError(f"no value is given for {', '.join(missing)}")
        return schedule.run(values)

    def _widened(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._widened(item) for item in value]
        if self.dtype is not None and isinstance(value, torch.Tensor) and value.is_floating_point():
            return value.to(self.dtype)
        return value
