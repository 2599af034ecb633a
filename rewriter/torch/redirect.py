"""``export_placeholders``: calls that an existing model makes leave as placeholder nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode, resolve_name

from rewriter.errors import UsageError
from rewriter.torch.exporters import running_exporter
from rewriter.torch.operator import PlaceholderFunction, placeholder

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
    """Within this context ``torch.onnx.export`` writes calls of the named torch functions as placeholder
    nodes.

    ``operators`` are names (``"roll"``, ``"silu"``: in every spelling a model may use, methods, modules and
    ``torch.ops.aten`` included) and mappings from a torch function, or a tuple of its spellings, to an
    operator made by :func:`~rewriter.torch.placeholder` whose function takes the same arguments::

        with export_placeholders("roll", {(torch.cummax, torch.Tensor.cummax): cummax}):
            torch.onnx.export(model, args, "model.onnx")

    Nothing changes outside of an export, on other threads, or once the context is left, however it is left.

    Raises UsageError for a name that is not built in, and during the export for a call whose arguments the
    operator's function does not take.
    """
    with _Redirect(_table(operators)):
        yield


def _table(operators: Sequence[str | Redirection]) -> dict[Callable[..., Any], PlaceholderFunction]:
    if not operators:
        raise UsageError(
            "no operator is named", where="export_placeholders", remedy=f"name one of {', '.join(BUILT_IN)}"
        )
    table: dict[Callable[..., Any], PlaceholderFunction] = {}
    for entry in operators:
        if isinstance(entry, str) and entry not in BUILT_IN:
            raise UsageError(
                f"'{entry}' is not built in ({', '.join(BUILT_IN)} are)",
                where="export_placeholders",
                remedy="pass {torch_function: operator}, the operator made by rewriter.torch.placeholder",
            )
        for functions, operator in (BUILT_IN[entry] if isinstance(entry, str) else entry).items():
            if not isinstance(operator, PlaceholderFunction):
                raise UsageError(
                    f"{operator!r} is not an operator",
                    where="export_placeholders",
                    remedy="decorate it with @placeholder",
                )
            for function in functions if isinstance(functions, tuple) else (functions,):
                table[function] = operator
    return table


class _Redirect(TorchFunctionMode):
    """Answers the functions of a table with their operators while an exporter traces, on this thread only."""

    def __init__(self, table: Mapping[Callable[..., Any], PlaceholderFunction]) -> None:
        super().__init__()
        self.table = table

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        operator = self.table.get(func)
        if operator is None and isinstance(func, torch._ops.OpOverload):
            operator = self.table.get(func.overloadpacket)
        if operator is None or running_exporter([*args, *kwargs.values()]) is None:
            return func(*args, **kwargs)
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


def _name(func: Any) -> str:
    packet = func.overloadpacket if isinstance(func, torch._ops.OpOverload) else func
    return str(getattr(packet, "__name__", ""))
