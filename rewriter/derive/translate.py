"""A function of tensors in PyTorch, translated to a small ONNX model.

The pieces of ``torch.onnx`` that are used here are private.  The public call makes the same nodes, and takes five
times as long, since it builds the library of functions and the table of decompositions anew each time
(``docs/decisions/derive.md``).
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import re
import threading
import traceback
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rewriter.derive.faults import fault_in
from rewriter.errors import DerivationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import torch
    from onnx import ModelProto

    from rewriter.types import TensorType

#: The opset that the exporter's library is written in.
OPSET = 18

#: What an unknown size is in the tensors that a function is traced with.  All unknown sizes are equal: broadcasting
#: one against another cannot be traced otherwise, and becomes a condition.
_EXAMPLE = 6

#: Elements of one example tensor at most.  They are never read, so they take address space only.
_MAX_ELEMENTS = 2**33

#: Calls of PyTorch that a function may make while it is traced.
_MAX_CALLS = 2_000

#: A size in the conditions of torch.export: the number of the tensor, and the axis.
_SIZE = re.compile(r"L\['inputs'\]\[(\d+)\]\.size\(\)\[(\d+)\]")

#: The exporter patches tables of the process, so one translation runs at a time.
LOCK = threading.RLock()


def torch_version() -> str:
    """The version of PyTorch whose definitions are used, without its build."""
    import importlib.metadata

    return importlib.metadata.version("torch").partition("+")[0]


@dataclass(frozen=True)
class Translation:
    """A function as a model of opset :data:`OPSET`."""

    #: Its inputs are the function's tensors, in order.
    model: ModelProto
    #: For each result of the function whether it is a tensor; the model's outputs are those that are.
    present: tuple[bool, ...]
    #: What must hold of sizes that the model does not know, as ``"x.shape[0] == y.shape[0]"``.
    conditions: tuple[str, ...]


def translate(
    function: Callable[..., Any],
    inputs: Sequence[TensorType],
    names: Sequence[str],
    stop: Mapping[Any, Callable[..., Any]] | None = None,
) -> Translation:
    """``function(*tensors)`` at the types ``inputs``; ``names`` are what messages and conditions call them.

    ``stop`` has what operators become that are not decomposed further, by overload.  Raises DerivationError where
    the function cannot be traced or translated, or holds for one value of an unknown size only.
    """
    with LOCK, quiet():
        traced = _Traced.of(function, inputs, names)
        return Translation(_to_onnx(traced, stop or {}), traced.present, traced.conditions)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the exporter's warnings, log records and lines on stdout."""
    before = logging.root.manager.disable
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(before)


# --- tracing --------------------------------------------------------------------------------------------------


@dataclass
class _Traced:
    program: torch.export.ExportedProgram
    present: tuple[bool, ...]
    conditions: tuple[str, ...]
    function: Callable[..., Any]

    @classmethod
    def of(cls, function: Callable[..., Any], inputs: Sequence[TensorType], names: Sequence[str]) -> _Traced:
        import torch

        module = _module(function)
        examples = tuple(_example(known, name) for known, name in zip(inputs, names, strict=True))
        dynamic = tuple(
            {
                axis: torch.export.Dim.AUTO
                for axis, size in enumerate(known.shape or ())
                if not isinstance(size, int)
            }
            for known in inputs
        )
        try:
            with symbolic_sizes(), torch.no_grad():
                program = torch.export.export(module, examples, strict=False, dynamic_shapes=(dynamic,))
        except DerivationError:
            raise
        except Exception as error:
            raise _refusal(error, function) from error
        _refuse_random(program)
        conditions = _conditions(program, inputs, names)
        _refuse_fixed_sizes(program, dynamic, names)
        return cls(program, module.present, conditions, function)


def _module(function: Callable[..., Any]) -> Any:
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._pytree import tree_leaves

    class Bounded(TorchFunctionMode):
        """Refuses a function that calls PyTorch too often: a loop over a size that a model file claims."""

        calls = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.calls += 1
            if self.calls > _MAX_CALLS:
                raise DerivationError(
                    f"its definition in PyTorch makes more than {_MAX_CALLS} calls at these sizes",
                    remedy="write a pass with a decomposition",
                )
            return func(*args, **(kwargs or {}))

    class Traced(torch.nn.Module):
        present: tuple[bool, ...] = ()

        def forward(self, *inputs: torch.Tensor) -> Any:
            with Bounded():
                leaves = tree_leaves(function(*inputs))
            for leaf in leaves:
                if leaf is not None and not isinstance(leaf, torch.Tensor):
                    raise TypeError(f"a result is {type(leaf).__name__}, not a tensor")
            self.present = tuple(leaf is not None for leaf in leaves)
            return tuple(leaf for leaf in leaves if leaf is not None)

    return Traced().eval()


def _example(known: TensorType, name: str) -> torch.Tensor:
    import torch

    from rewriter.interpret.types import torch_dtype

    assert known.shape is not None
    shape = [size if isinstance(size, int) else _EXAMPLE for size in known.shape]
    elements = functools.reduce(lambda a, b: a * b, shape, 1)
    dtype = torch_dtype(known.dtype)
    if elements > _MAX_ELEMENTS or dtype is None:
        raise DerivationError(f"PyTorch has no tensors of the type of '{name}', {known}")
    return torch.empty(shape, dtype=dtype)


def symbolic_sizes() -> Any:
    """While this lasts, a size that is 0 or 1 in the example is not taken for a constant."""
    import torch.fx.experimental._config as config

    return config.patch(backed_size_oblivious=True)  # type: ignore[attr-defined]


def _conditions(
    program: torch.export.ExportedProgram, inputs: Sequence[TensorType], names: Sequence[str]
) -> tuple[str, ...]:
    def known(match: re.Match[str]) -> str:
        size = (inputs[int(match[1])].shape or ())[int(match[2])]
        return str(size) if size is not None else match[0]

    def shown(match: re.Match[str]) -> str:
        return f"{names[int(match[1])]}.shape[{match[2]}]"

    found = []
    for guard in getattr(program, "_guards_code", None) or ():
        left, separator, right = _SIZE.sub(known, guard).partition(" == ")
        if not separator or left != right:  # n == n is what the model says itself
            found.append(_SIZE.sub(shown, guard))
    return tuple(dict.fromkeys(found))


def _refuse_fixed_sizes(
    program: torch.export.ExportedProgram, dynamic: Sequence[Mapping[int, Any]], names: Sequence[str]
) -> None:
    traced = [node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"]
    for value, axes, name in zip(traced[len(traced) - len(dynamic) :], dynamic, names, strict=True):
        for axis in axes:
            # What was fixed is a symbolic size whose expression is a number, and not an int.
            if str(value.shape[axis]).isdigit():
                raise DerivationError(
                    f"its definition in PyTorch fixes {name}.shape[{axis}], which is open, to the size of an example",
                    remedy="export with a known size there, or write a pass with a decomposition",
                )


def _refuse_random(program: torch.export.ExportedProgram) -> None:
    import torch

    for node in program.graph.nodes:
        tags = getattr(node.target, "tags", ())
        if torch.Tag.nondeterministic_seeded in tags:
            raise DerivationError(f"{node.target} draws random numbers, which no decomposition reproduces")


def _refusal(error: Exception, function: Callable[..., Any]) -> DerivationError:
    return DerivationError(
        f"torch.export cannot trace its definition in PyTorch: {first_sentence(error)}{_line_of(error, function)}",
        remedy="write a pass with a decomposition",
    )


def _line_of(error: BaseException, function: Callable[..., Any]) -> str:
    """The line of the user's own function at which ``error`` was raised, as a clause; empty where it is elsewhere."""
    code = getattr(function, "source", function)
    path = getattr(getattr(code, "__code__", None), "co_filename", "")
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if path and frame.filename == path]
    return f" (line {lines[-1].lineno}: {lines[-1].line})" if lines else ""


def first_sentence(error: BaseException) -> str:
    """What an error says, on one line and not longer than that."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:199]}…"


# --- translation ----------------------------------------------------------------------------------------------


@functools.cache
def library() -> tuple[Any, dict[Any, Any]]:
    """The exporter's functions, and the table of what is decomposed because it has none."""
    from torch.onnx._internal.exporter import _decomp, _registration

    registry = _registration.ONNXRegistry.from_torchlib()
    implemented = _decomp.get_onnx_implemented_overloads(registry)
    return registry, _decomp.create_onnx_friendly_decomposition_table(set(implemented))


def to_onnx(program: torch.export.ExportedProgram, names: Mapping[str, Any]) -> ModelProto:
    """A decomposed program as a model of opset :data:`OPSET`; ``names`` are ``input_names`` and ``output_names``."""
    from torch.onnx._internal.exporter import _core

    made = _core.export(program, registry=library()[0], opset_version=OPSET, verbose=False, **names)
    made.optimize()
    return made.model_proto


def has_translation(overload: Any) -> bool:
    """Whether the exporter has a function for the operator, or decomposes it."""
    registry, table = library()
    return overload in table or registry.is_registered(overload)


def _to_onnx(traced: _Traced, stop: Mapping[Any, Callable[..., Any]]) -> ModelProto:
    import torch
    from torch.onnx._internal.exporter import _core, _fx_passes

    registry, table = library()
    try:
        with symbolic_sizes(), torch.no_grad():
            program = traced.program.run_decompositions({**table, **stop})
        refuse_faults(program)
        _fx_passes.insert_type_promotion_nodes(program.graph_module)
        program._graph_module = _fx_passes.remove_assertion_nodes(program.graph_module)
        made = _core._exported_program_to_onnx_program(program, registry=registry)
        made.optimize()
        return made.model_proto
    except DerivationError:
        raise
    except Exception as error:
        raise untranslated(error, traced.function) from error


def refuse_faults(program: torch.export.ExportedProgram) -> None:
    """DerivationError where a decomposed program holds what ``torch.onnx`` is known to translate wrongly."""
    found = fault_in(program)
    if found is not None:
        fault, line = found
        raise DerivationError(
            f"torch.onnx translates aten::{fault.operator} wrongly here: {fault.what}",
            where=_last_frame(line),
            remedy=f"write a pass for aten::{fault.operator}",
        )


def _last_frame(trace: str) -> str | None:
    """The innermost line of a recorded stack, as a place for a message."""
    frames = re.findall(r'File "([^"]+)", line (\d+)', trace)
    return f"{frames[-1][0].rpartition('/')[2]}:{frames[-1][1]}" if frames else None


def untranslated(error: Exception, function: Callable[..., Any]) -> DerivationError:
    """What to say of a program that the exporter does not translate, by the words of the exporter's own error."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    missing = re.search(
        r"No ONNX function found for <OpOverload\(op='([\w.:]+)', overload='(\w+)'\)>", str(cause)
    )
    line = _source_of(str(error), function)
    if missing is None:
        return DerivationError(
            f"torch.onnx cannot translate it: {first_sentence(cause)}{line}",
            remedy="write a pass with a decomposition",
        )
    operator = missing[1].replace(".", "::")
    return DerivationError(
        f"it comes down to {operator}, which torch.onnx cannot translate{line}",
        remedy=f"write a pass for {operator}",
    )


def _source_of(message: str, function: Callable[..., Any]) -> str:
    code = getattr(getattr(function, "source", function), "__code__", None)
    if code is None:
        return ""
    lines = re.findall(rf'File "{re.escape(code.co_filename)}", line (\d+)', message)
    return f" (line {lines[-1]})" if lines else ""
