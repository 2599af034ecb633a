"""PyTorch's OpInfo database as a source of samples and of values."""

from __future__ import annotations

import contextlib
import functools
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onnx import defs

from rewriter.execution.values import from_torch
from rewriter.testing.variants import exists_at, opsets_of_interest
from tests.oracles.run import Result, run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rewriter.placeholder import Placeholder
    from tests.oracles.table import Row

#: So many samples of an entry are run by default, spread evenly over all of them.
ENOUGH = 60

#: Portable models are of opset 13.
USUAL_OPSET = 13

_DTYPES = ("float32", "float16", "float64", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool")


@dataclass(frozen=True)
class Setting:
    dtype: str
    opset: int
    symbolic: bool

    def __str__(self) -> str:
        return f"{self.dtype}-opset{self.opset}-{'symbolic' if self.symbolic else 'static'}"


@functools.cache
def entries() -> Mapping[str, Any]:
    """OpInfo's entries by full name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return {op.full_name: op for op in op_db}


def settings(placeholder: Placeholder, entry: str, *, full: bool) -> Iterator[Setting]:
    """The dtypes that pass and operator share; all opsets at which a form changes, or the usual and the newest."""
    import torch

    newest = defs.onnx_opset_version()
    known = {d for d in _DTYPES if getattr(torch, d) in entries()[entry].dtypes} & set(placeholder.dtypes)
    if full:
        every = opsets_of_interest(placeholder)
        for dtype in (d for d in _DTYPES if d in known):
            for opset in every if dtype == "float32" else (every[0], every[-1]):
                if exists_at(dtype, opset):
                    yield from (Setting(dtype, opset, symbolic) for symbolic in (False, True))
        return
    main = "float32" if "float32" in known else min(known)
    yield Setting(main, USUAL_OPSET, False)
    yield Setting(main, newest, False)
    if main == "float32" and "float16" in known:
        yield Setting("float16", newest, False)


def samples(entry: str, dtype: str) -> list[Any]:
    """All samples of an entry, the same ones each time."""
    import torch

    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(entries()[entry].sample_inputs("cpu", getattr(torch, dtype), requires_grad=False))


def numbers(count: int, *, full: bool) -> list[int]:
    if full or count <= ENOUGH:
        return list(range(count))
    return sorted({round(i * (count - 1) / (ENOUGH - 1)) for i in range(ENOUGH)})


def bind(placeholder: Placeholder, sample: Any) -> Mapping[str, Any]:
    """The arguments as PyTorch's own call binds them."""
    names = placeholder.signature.names
    given = (sample.input, *sample.args)
    if len(given) > len(names):
        raise TypeError(f"{len(given)} arguments for {names}: adapt the sample")
    return dict(zip(names, given, strict=False)) | dict(sample.kwargs)


def outcomes(
    placeholder: Placeholder, row: Row, entry: str, setting: Setting, *, full: bool
) -> Iterator[tuple[int, Result, str]]:
    """Number, result and message of each sample."""
    found = samples(entry, setting.dtype)
    for number in numbers(len(found), full=full):
        sample = found[number]
        text = describe(sample)
        try:
            expected = expected_of(entry, sample)
        except Exception as error:  # noqa: BLE001
            yield number, Result.NO_REFERENCE, f"{text}: {error}"
            continue
        try:
            arguments = row.adapt(sample) if row.adapt is not None else bind(placeholder, sample)
        except Exception as error:  # noqa: BLE001
            yield number, Result.BROKEN, f"{text}: {type(error).__name__}: {error}"
            continue
        settled = {"opset": setting.opset, "symbolic": setting.symbolic}
        result, message = run(placeholder, arguments, expected, **settled)
        if result is Result.DIFFERS and setting.dtype in ("float16", "bfloat16"):
            # PyTorch's own kernel may lose digits: its operator in float32, rounded at the end, is as good a judge.
            with contextlib.suppress(RuntimeError, NotImplementedError):
                again, _ = run(placeholder, arguments, expected_of(entry, sample, wide=True), **settled)
                result, message = (again, "") if again is Result.AGREES else (result, message)
        yield number, result, f"{text}: {message}"


def expected_of(entry: str, sample: Any, *, wide: bool = False) -> list[Any]:
    """What PyTorch's operator gives; in float32, rounded at the end, if ``wide`` or where the dtype has no kernel."""
    import torch

    op = entries()[entry]
    dtype = sample.input.dtype if isinstance(sample.input, torch.Tensor) else None
    with torch.no_grad():
        try:
            if not wide:
                return _arrays(op(_clone(sample.input), *sample.args, **sample.kwargs))
        except (RuntimeError, NotImplementedError) as error:
            if "not implemented for" not in str(error):
                raise
        other = sample.transform(
            lambda t: t.float() if isinstance(t, torch.Tensor) and t.dtype == dtype else t
        )
        made = op(other.input, *other.args, **other.kwargs)
        results = made if isinstance(made, (tuple, list)) else [made]
        return _arrays([r.to(dtype) if r.dtype == torch.float32 else r for r in results])


def _arrays(made: Any) -> list[Any]:
    results = made if isinstance(made, (tuple, list)) else [made]
    return [from_torch(result) for result in results]


def _clone(value: Any) -> Any:
    return value.clone() if hasattr(value, "clone") else value


def describe(sample: Any) -> str:
    """Shapes and parameters of a sample on one line."""
    import torch

    def text(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        if isinstance(value, (tuple, list)):
            return f"({', '.join(map(text, value))})"
        return repr(value)

    parts = [text(v) for v in (sample.input, *sample.args)]
    return ", ".join(parts + [f"{k}={text(v)}" for k, v in sample.kwargs.items()])


def missing_rows(placeholders: list[Placeholder], rows: list[Row]) -> list[str]:
    """Entries for the ``aten`` operators that a pass matches, in a dtype of the pass, which no row of it lists."""
    import torch

    by_aten: dict[str, list[str]] = {}
    for name, op in entries().items():
        for key in {str(op.aten_name).removeprefix("nn.functional."), name.removeprefix("nn.functional.")}:
            by_aten.setdefault(key, []).append(name)
    found = []
    for placeholder in placeholders:
        listed = {e for row in rows if row.pass_name == placeholder.pass_name() for e in row.entries}
        for pattern in placeholder.matches:
            if not pattern.startswith("aten::"):
                continue
            wanted = {
                name
                for name in by_aten.get(pattern.removeprefix("aten::"), [])
                if any(
                    getattr(torch, d) in entries()[name].dtypes for d in placeholder.dtypes if d in _DTYPES
                )
            }
            if wanted - listed:
                found.append(f"{placeholder.pass_name()}: {pattern} has {', '.join(sorted(wanted - listed))}")
    return found
