"""A ``torch.export`` program as the oracle: from an archive, or as it is passed from Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rewriter.against.oracle import Interface, OracleRefused, Recorded, names_text
from rewriter.against.program import ProgramRun
from rewriter.against.running import call, device_of, first_line, silent
from rewriter.against.values import by_output, check_types, same_names, to_argument
from rewriter.errors import UsageError
from rewriter.execution.reference import require_torch
from rewriter.types import dtype_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rewriter.against.oracle import Inner
    from rewriter.execution.values import Data
    from rewriter.inputs.draw import Sample

_EXPORT = (
    "save it with torch.export.save(torch.export.export(model.eval(), args, dynamic_shapes=…), 'model.pt2')"
)


def from_archive(path: Path, interface: Interface) -> Exported:
    """The program in a ``.pt2`` archive; UsageError where torch cannot load it.

    torch unpickles parts of an archive: whoever names one trusts it like a Python program.
    """
    require_torch()
    import torch

    if not path.is_file():
        raise UsageError(f"--against {path}: no such file")
    try:
        with silent():
            program = torch.export.load(path)
    except Exception as error:
        raise UsageError(
            f"--against {path.name} is no archive that torch {torch.__version__} loads: {type(error).__name__}: "
            f"{first_line(error)}",
            remedy=f"{_EXPORT}; for operators of one's own name a factory, --against mypkg.models:build",
        ) from error
    return Exported(program, path.name, interface)


class Exported:
    """An ``ExportedProgram``, called with the graph's inputs."""

    kind = "torch.export archive"
    assumed = ""
    recorded: Sequence[Recorded] = ()

    def __init__(self, program: Any, name: str, interface: Interface) -> None:
        self.name = name
        self._interface = interface
        check_types(interface, name)
        self._program = program
        self._module = program.module()
        self._tree = program.call_spec.in_spec
        self._specs = [spec for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
        self._refuse_stand_ins()
        #: The inputs that are no constants of the export, and their types there.
        self._own = [spec.arg.name for spec in self._specs if not hasattr(spec.arg, "value")]
        places = [node for node in program.graph.nodes if node.op == "placeholder"]
        self._types = {node.name: node.meta.get("val") for node in places}
        self._unused = {node.name for node in places if not node.users}
        self._pairs = self._paired()

    def _refuse_stand_ins(self) -> None:
        for node in self._program.graph.nodes:
            if "onnx_symbolic" in str(node.target):
                raise UsageError(
                    f"--against {self.name} was made by torch.onnx.export: its placeholders compute nothing",
                    remedy=_EXPORT,
                )

    def _paired(self) -> dict[str, str]:
        """The graph's input for each of the program's own; an exporter may drop those that nothing reads."""
        inputs = list(self._interface.inputs)
        own = self._own
        if len(inputs) < len(own):
            own = [name for name in own if name in inputs or name not in self._unused]
        if set(inputs) == set(own):
            pairs = {name: name for name in own}
        elif len(inputs) == len(own):
            pairs = dict(zip(own, inputs, strict=True))
            self.assumed = (
                f"inputs were taken in order: {', '.join(own)} are {', '.join(inputs)} of the graph"
            )
        else:
            own = self._own
            missing = [name for name in own if name not in inputs]
            remedy = "give an archive of the module that was exported to this file"
            if same_names(inputs, own):
                remedy += f"; the graph lacks {names_text(missing)}"
            raise UsageError(
                f"--against {self.name} takes {len(own)} inputs ({names_text(own)}), the graph {len(inputs)} "
                f"({names_text(inputs)})",
                remedy=remedy,
            )
        for mine, theirs in pairs.items():
            self._check_type(theirs, self._types.get(mine))
        return pairs

    def _check_type(self, name: str, value: Any) -> None:
        kind = self._interface.inputs[name]
        if kind is None or not hasattr(value, "dtype"):
            return
        wanted, has = str(value.dtype).removeprefix("torch."), dtype_name(kind.dtype)
        if wanted != has:
            raise UsageError(
                f"--against {self.name} takes {wanted} for the input '{name}', the graph {has}",
                remedy="give an archive of the module that was exported to this file",
            )
        if kind.shape is not None and len(kind.shape) != value.dim():
            raise UsageError(
                f"--against {self.name} takes {value.dim()} dims for the input '{name}', the graph takes {kind}",
                remedy="give an archive of the module that was exported to this file",
            )

    def _leaves(self, sample: Sample) -> list[Any]:
        """What the program takes, flat and in its own order."""
        device = device_of(self._module)
        given = {mine: to_argument(sample.feeds[theirs], device) for mine, theirs in self._pairs.items()}
        found = []
        for spec in self._specs:
            if hasattr(spec.arg, "value"):
                found.append(spec.arg.value)
            elif spec.arg.name not in given:
                found.append(self._filler(spec.arg.name, given, device))
            else:
                value = given[spec.arg.name]
                # A size that was given as a number is one again.
                found.append(value.item() if type(spec.arg).__name__.startswith("Sym") else value)
        return found

    def _filler(self, name: str, given: Mapping[str, Any], device: Any) -> Any:
        """Zeros for an input that nothing reads, of the sizes that it shares with the others."""
        import torch

        sizes = {
            str(dim): size
            for mine, value in given.items()
            for dim, size in zip(getattr(self._types[mine], "shape", ()), value.shape, strict=False)
        }
        kind = self._types[name]
        shape = [dim if isinstance(dim, int) else sizes.get(str(dim), 1) for dim in kind.shape]
        return torch.zeros(shape, dtype=kind.dtype, device=device)

    def __call__(self, sample: Sample) -> Mapping[str, Data]:
        """The graph's outputs by name; OracleRefused where a guard or an operator of the program refuses."""
        from torch.utils import _pytree as pytree

        args, kwargs = pytree.tree_unflatten(self._leaves(sample), self._tree)
        return by_output(call(self._module, args, kwargs, evaluate=False), self._interface, self.name)

    def inner(self, sample: Sample) -> Inner | None:
        """The values of the program's operators."""
        try:
            return ProgramRun(self._module, self._leaves(sample))
        except OracleRefused:
            return None
