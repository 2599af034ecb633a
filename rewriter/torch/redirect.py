"""``export_placeholders``: calls that an existing model makes leave as placeholder nodes."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FunctionType, MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, resolve_name

from rewriter.errors import UsageError
from rewriter.torch.exporters import running_exporter
from rewriter.torch.operator import PlaceholderFunction, placeholder
from rewriter.torch.reach import composites_open, is_composite, opened, patched

#: Torch functions and the operator that stands for them.
Redirection = Mapping[Callable[..., Any] | tuple[Callable[..., Any], ...], PlaceholderFunction]


@placeholder("com.example::Roll")
def _roll(input: torch.Tensor, shifts: list[int], dims: list[int] | tuple[int, ...] = ()) -> torch.Tensor:  # noqa: A002
    return torch.roll(input, shifts, dims)


@placeholder("com.example::Silu")
def _silu(input: torch.Tensor) -> torch.Tensor:  # noqa: A002
    return F.silu(input)


#: What :func:`export_placeholders` knows by name.
BUILT_IN: Mapping[str, Redirection] = MappingProxyType(
    {
        "roll": {(torch.roll, torch.Tensor.roll, torch.ops.aten.roll): _roll},
        "silu": {
            (F.silu, torch._C._nn.silu, torch._C._nn.silu_, torch.ops.aten.silu, torch.ops.aten.silu_): _silu
        },
    }
)


@contextmanager
def export_placeholders(*operators: str | Redirection) -> Iterator[None]:
    """Within this context ``torch.onnx.export`` writes calls of the named functions as placeholder nodes.

    ``operators`` are names (``"roll"``, ``"silu"``: in every spelling a model may use, methods, modules and
    ``torch.ops.aten`` included) and mappings from a function, or a tuple of its spellings, to an operator made by
    :func:`~rewriter.torch.placeholder` whose function takes the same arguments::

        with export_placeholders("roll", {(torch.cummax, torch.Tensor.cummax): cummax}):
            torch.onnx.export(model, args, "model.onnx")

    A function may be a torch function or method, an operator of ``torch.ops`` or one of its overloads, or a Python
    function of any library (``torchvision.ops.nms``).  Calls inside other torch functions and inside the branches of
    ``torch.cond`` are caught too.  Calls inside ``torch.jit.script`` are not.

    Nothing changes outside of an export, on other threads, or once the context is left, however it is left.

    Warns (UserWarning) of every name that caught no call, if a model was exported in the context.  Raises UsageError
    for a name that is not built in, and during the export for a call whose arguments the operator's function does not
    take.
    """
    entries = _entries(operators)
    mode = _Redirect(entries)
    with mode.installed(), mode:
        yield
    for entry in mode.missed:
        warnings.warn(
            f"export_placeholders: {entry.name} caught no call in this export, and the file has no "
            f"{entry.operator.qualified_name} from it. Name the function that the model calls. "
            "Calls inside torch.jit.script cannot be caught",
            stacklevel=3,
        )


@dataclass(eq=False)
class _Entry:
    """One name, or some spellings of one function, and the operator that stands for it."""

    name: str
    functions: tuple[Callable[..., Any], ...]
    operator: PlaceholderFunction
    caught: bool = False


def _entries(operators: Sequence[str | Redirection]) -> list[_Entry]:
    if not operators:
        raise UsageError(
            "no operator is named", where="export_placeholders", remedy=f"name one of {', '.join(BUILT_IN)}"
        )
    found: list[_Entry] = []
    for item in operators:
        if isinstance(item, str) and item not in BUILT_IN:
            raise UsageError(
                f"'{item}' is not built in ({', '.join(BUILT_IN)} are)",
                where="export_placeholders",
                remedy="pass {torch_function: operator}, the operator made by rewriter.torch.placeholder",
            )
        for functions, operator in (BUILT_IN[item] if isinstance(item, str) else item).items():
            if not isinstance(operator, PlaceholderFunction):
                raise UsageError(
                    f"{operator!r} is not an operator",
                    where="export_placeholders",
                    remedy="decorate it with @placeholder",
                )
            spellings = functions if isinstance(functions, tuple) else (functions,)
            name = f"'{item}'" if isinstance(item, str) else " / ".join(map(_shown, spellings))
            found.append(_Entry(name, spellings, operator))
    return found


class _Redirect(TorchFunctionMode):
    """Answers the functions of its entries with their operators while an exporter traces, on this thread only."""

    def __init__(self, entries: Sequence[_Entry]) -> None:
        super().__init__()
        self.entries = entries
        self.table = {other: entry for entry in entries for f in entry.functions for other in _spellings(f)}
        # What was named itself comes before what only means the same.
        self.table |= {function: entry for entry in entries for function in entry.functions}
        #: Whether an exporter ran in the context.
        self.exported = False

    @property
    def missed(self) -> list[_Entry]:
        """The entries that caught nothing, though a model was exported; of two with one operator, one will do."""
        used = {entry.operator for entry in self.entries if entry.caught}
        missed = [entry for entry in self.entries if not entry.caught and entry.operator not in used]
        return missed if self.exported else []

    @contextmanager
    def installed(self) -> Iterator[None]:
        """What torch does not pass through modes is reached by patches, which let calls of other threads through."""
        with ExitStack() as stack:
            for function in self.table:
                scripted = isinstance(function, torch.jit.ScriptFunction)
                if scripted or (isinstance(function, FunctionType) and not _is_of_torch(function)):
                    stack.enter_context(patched(function, self._watched(function)))
            stack.enter_context(composites_open())
            yield

    def _watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self not in _get_current_function_mode_stack():  # type: ignore[no-untyped-call]
                return function(*args, **kwargs)
            return self.__torch_function__(function, (), args, kwargs)

        return call

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if torch.compiler.is_dynamo_compiling() or not torch.onnx.is_in_onnx_export():
            return func(*args, **kwargs)
        self.exported = True
        entry = self.table.get(func)
        if entry is None and isinstance(func, torch._ops.OpOverload):
            entry = self.table.get(func.overloadpacket)
        if entry is not None and running_exporter([*args, *kwargs.values()]) is not None:
            return self._answer(entry, func, args, kwargs)
        if isinstance(func, torch._ops.HigherOrderOperator):
            for graph in args:
                if isinstance(graph, torch.fx.GraphModule):
                    self._in_graph(graph)
        elif is_composite(func):
            with self:
                return opened(func, args, kwargs)
        return func(*args, **kwargs)

    def _answer(self, entry: _Entry, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The call of ``func`` as one of the operator."""
        operator, entry.caught = entry.operator, True
        in_place = _name(func).endswith("_")
        if "inplace" not in operator.parameters.signature.parameters:
            in_place = bool(kwargs.pop("inplace", False)) or in_place
        try:
            arguments = operator.parameters.bind(args, kwargs)
        except TypeError as error:
            raise UsageError(
                f"{resolve_name(func) or func} is called with arguments that {operator.qualified_name} "
                f"does not take: {error}",
                where="export_placeholders",
                remedy="give the operator's function the torch function's own parameters",
            ) from error
        result = operator(**arguments)
        if not in_place:
            return result
        target: torch.Tensor = next(iter(arguments.values()))
        return target.copy_(result)

    def _in_graph(self, module: torch.fx.GraphModule) -> None:
        """Redirect the calls in a branch or body, which TorchDynamo has captured before any mode could see them."""
        changed = False
        for graph in [item for item in module.modules() if isinstance(item, torch.fx.GraphModule)]:
            for node in graph.graph.nodes:
                func = getattr(torch.Tensor, node.target, None) if node.op == "call_method" else node.target
                entry = self.table.get(func) if node.op in ("call_function", "call_method") else None
                if entry is None and node.op == "call_function" and isinstance(func, torch._ops.OpOverload):
                    entry = self.table.get(func.overloadpacket)
                if entry is not None:
                    node.op, node.target, changed = "call_function", self._replacement(entry, func), True
            if changed:
                graph.recompile()

    def _replacement(self, entry: _Entry, func: Any) -> Callable[..., Any]:
        def redirected(*args: Any, **kwargs: Any) -> Any:
            return self._answer(entry, func, args, kwargs)

        return redirected


def _spellings(function: Callable[..., Any]) -> list[Any]:
    """``function``, and the other names that torch itself gives to it.

    A packet and its default overload are one, as are a built-in function, the method of that name and the operator of
    ``torch.ops.aten``: they take the same arguments.  A Python function of torch may have an order of its own.
    """
    if isinstance(function, torch._ops.OpOverload) and function._overloadname == "default":
        return [function, *_spellings(function.overloadpacket)]
    name = str(getattr(function, "__name__", ""))
    aten = getattr(torch.ops.aten, name, None) if name.isidentifier() else None
    if function is aten or (
        aten is not None and _is_of_torch(function) and not isinstance(function, FunctionType)
    ):
        others = [getattr(owner, name, None) for owner in (torch, torch.Tensor, torch._C._nn, F)]
        known = [other for other in others if other is not None and not isinstance(other, FunctionType)]
        return list(dict.fromkeys([function, aten, *known]))
    return [function]


def _is_of_torch(function: Any) -> bool:
    """Whether torch itself passes calls of ``function`` through modes."""
    owner = (
        getattr(function, "__module__", None) or getattr(function, "__objclass__", torch.Tensor).__module__
    )
    return str(owner).partition(".")[0] == "torch"


def _shown(function: Any) -> str:
    """``torch.Tensor.cummax``, ``torch.ops.torchvision.nms``, ``torchvision.ops.boxes.nms``."""
    if isinstance(function, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return f"torch.ops.{function}"
    if isinstance(function, torch.jit.ScriptFunction):
        return f"the scripted function {function.name}"
    known = resolve_name(function) if callable(function) else None
    name = getattr(function, "__qualname__", repr(function))
    module = getattr(function, "__module__", "")
    return known or (f"{module}.{name}" if module else str(name))


def _name(func: Any) -> str:
    packet = func.overloadpacket if isinstance(func, torch._ops.OpOverload) else func
    return str(getattr(packet, "__name__", ""))
