"""A PyTorch module as the oracle: an instance, a class, or a function that makes one."""

from __future__ import annotations

import inspect
import re
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rewriter.against.archive import Exported
from rewriter.against.binding import bindings
from rewriter.against.imported import imported
from rewriter.against.oracle import Interface, Oracle, OracleRefused, Recorded, names_text
from rewriter.against.program import ProgramRun
from rewriter.against.running import call, device_of, first_line, silent, unchanged
from rewriter.against.values import by_output, check_types, to_argument
from rewriter.errors import RewriteError, UsageError
from rewriter.execution.reference import require_torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rewriter.against.oracle import Inner
    from rewriter.execution.values import Data
    from rewriter.inputs.draw import Sample

#: What PyTorch raises where an argument is of another kind than it is meant to be.
_MISUSE = (TypeError, AttributeError, KeyError, IndexError)
_ARCHIVE = "save it as an archive (torch.export.save), whose inputs are flat, and give that"


def from_import(path: str, interface: Interface) -> Oracle:
    """What ``mypkg.models:build`` or ``./models.py:build`` names; the current folder is searched first, as by
    ``python -m``."""
    require_torch()
    with _current_folder():
        return of_object(imported(path), re.split(r"[/\\]", path)[-1], interface)


def of_object(target: Any, name: str, interface: Interface) -> Oracle:
    """A module, a class or factory that is called without arguments, or an ``ExportedProgram``; else UsageError."""
    require_torch()
    import torch

    if not isinstance(target, (torch.nn.Module, torch.export.ExportedProgram)) and callable(target):
        _check_callable(target, name)
        try:
            target = target()
        except Exception as error:
            raise UsageError(
                f"--against {name}: calling it raises {type(error).__name__}: {first_line(error)}",
                remedy="name a function without arguments that returns the module with its weights",
            ) from error
    if isinstance(target, torch.export.ExportedProgram):
        return Exported(target, name, interface)
    if not isinstance(target, torch.nn.Module):
        raise UsageError(
            f"--against {name} is a {type(target).__name__}, no torch.nn.Module",
            remedy="name a module, its class, or a function without arguments that returns one",
        )
    return Eager(target, name, interface)


def _check_callable(target: Any, name: str) -> None:
    try:
        inspect.signature(target).bind()
    except TypeError as error:
        raise UsageError(
            f"--against {name} cannot be called without arguments: {error}",
            remedy="name a function without arguments that returns the module with its weights",
        ) from error
    except ValueError:
        return  # written in C: calling it will tell


class Eager:
    """A module, called with the graph's inputs in evaluation mode."""

    kind = "PyTorch module"
    recorded: Sequence[Recorded] = ()

    def __init__(self, module: Any, name: str, interface: Interface) -> None:
        self.name = name
        self._module = module
        self._interface = interface
        check_types(interface, name)  # what does not fit is said before any work
        signature, inputs = _signature(module), list(interface.inputs)
        try:
            #: The ways that the inputs may be meant: a call takes the first that works, which is kept.
            self._bindings = bindings(signature, inputs)
        except TypeError as error:
            raise UsageError(
                f"--against {name}: forward({', '.join(signature.parameters)}) does not take the graph's inputs "
                f"{names_text(inputs)}: {error}",
                remedy=f"name the very module that was exported; where its inputs are nested, {_ARCHIVE}",
            ) from error
        self.assumed = self._bindings[0].assumed

    def __call__(self, sample: Sample) -> Mapping[str, Data]:
        """The graph's outputs by name; OracleRefused where the module raises."""
        first: RewriteError | None = None
        for binding in self._bindings:
            args, kwargs = binding.fill(self._values(sample))
            try:
                with _current_folder():
                    found = by_output(call(self._module, args, kwargs), self._interface, self.name)
            except (OracleRefused, UsageError) as error:
                first = first or error
                if isinstance(error.__cause__, _MISUSE) or isinstance(error, UsageError):
                    continue  # a tuple or dict where a tensor is meant, or the other way round
                break
            self._bindings, self.assumed = [binding], binding.assumed
            return found
        assert first is not None
        raise first

    def inner(self, sample: Sample) -> Inner | None:
        """The values of the module's operators, as ``torch.export`` sees them; None where it cannot export it."""
        import torch

        args, kwargs = self._bindings[0].fill(self._values(sample))
        try:
            with _current_folder(), silent(), unchanged(self._module, evaluate=True):
                program = torch.export.export(self._module, tuple(args), dict(kwargs), strict=False)
            leaves = torch.utils._pytree.tree_leaves((tuple(args), dict(kwargs)))
            return ProgramRun(program.module(), leaves)
        except Exception:  # noqa: BLE001  (no export is no fault: there is only less to tell)
            return None

    def _values(self, sample: Sample) -> dict[str, Any]:
        device = device_of(self._module)
        return {name: to_argument(sample.feeds[name], device) for name in self._interface.inputs}


def _signature(module: Any) -> inspect.Signature:
    """The signature of ``forward``, or of whatever takes its place."""
    try:
        return inspect.signature(module.forward)
    except (TypeError, ValueError):  # a scripted module, whose forward is written in C++
        star = inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)
        return inspect.Signature([star])


@contextmanager
def _current_folder() -> Iterator[None]:
    """Imports look into the current folder first, as in a Python program; also those that a call makes late."""
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)
