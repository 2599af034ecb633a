"""What exporters make of an operator, and whether that counts: it has to be ONNX, and to mean what PyTorch means.

A form is held against ours only where it

- passes ``onnx.checker`` with full type and shape inference, its attributes having values that the operator of that
  opset names (which the checker does not look at), and
- gives what PyTorch gives on the row's own inputs, and on the same with special values strewn in, as far as ours does.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from operator_cases import Row

#: What is strewn into floating-point inputs, one kind at a time.
SPECIAL: Mapping[str, tuple[float, ...]] = {
    "±100": (100.0, -100.0),
    "-0.0": (-0.0,),
    "infinity": (float("inf"), float("-inf")),
    "NaN": (float("nan"),),
}


def exported(
    row: Row,
    function: Callable[..., Any],
    given: Mapping[str, Any],
    feeds: Mapping[str, Any],
    opset: int,
    *,
    dynamo: bool,
) -> onnx.ModelProto:
    """What an exporter makes of the operator alone."""

    class Alone(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name in row.constants:
                if given.get(name) is not None:
                    self.register_buffer(name, given[name])

        def forward(self, *tensors: torch.Tensor) -> Any:
            held = {name: getattr(self, name) for name in row.constants if given.get(name) is not None}
            result = function(**_filled(row, given, tensors) | held)
            return tuple(result) if isinstance(result, list) else result

    arguments = tuple(torch.from_numpy(np.array(array)) for array in feeds.values())
    logging.disable(logging.ERROR)
    try:
        with (
            warnings.catch_warnings(),
            torch.no_grad(),
            _silence(),
        ):
            warnings.simplefilter("ignore")
            if dynamo:
                program = torch.onnx.export(
                    Alone().eval(), arguments, dynamo=True, opset_version=opset, verbose=False
                )
                assert program is not None
                return program.model_proto
            buffer = io.BytesIO()
            torch.onnx.export(Alone().eval(), arguments, buffer, dynamo=False, opset_version=opset)
            return onnx.load_from_string(buffer.getvalue())
    finally:
        logging.disable(logging.NOTSET)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Exporters print a graph that they fail on, from C++."""
    sys.stdout.flush()
    kept = os.dup(1), os.dup(2)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            sys.stdout.flush()
            for number, file in enumerate(kept, 1):
                os.dup2(file, number)
                os.close(file)


def _filled(row: Row, given: Mapping[str, Any], tensors: Sequence[torch.Tensor]) -> dict[str, Any]:
    """The arguments with other tensors in place of those that are no constants, in their order."""
    left = list(tensors)
    arguments = dict(given)
    for name, value in given.items():
        if name in row.constants or value is None:
            continue
        if isinstance(value, torch.Tensor):
            arguments[name] = left.pop(0)
        elif isinstance(value, tuple) and value and isinstance(value[0], torch.Tensor):
            arguments[name] = tuple(left.pop(0) for _ in value)
    return arguments


def invalid(model: onnx.ModelProto) -> str | None:
    """Why the model is no ONNX of its opset."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except onnx.checker.ValidationError as error:
        return f"onnx.checker: {' '.join(str(error).split())[:120]}"
    except onnx.shape_inference.InferenceError as error:
        return f"onnx.checker: {' '.join(str(error).split())[:120]}"
    version = next(i.version for i in model.opset_import if not i.domain)
    for node in _nodes(model.graph):
        if node.domain:
            continue
        schema = onnx.defs.get_schema(node.op_type, version)
        for attribute in node.attribute:
            about = schema.attributes[attribute.name]
            if attribute.type != onnx.AttributeProto.STRING or not about.default_value.type:
                continue
            named = set(re.findall(r"\w+", f"{about.description} {schema.doc}"))
            default, value = about.default_value.s.decode(), attribute.s.decode()
            # Where the text tells what there is, the default is among it.
            if default in named and value != default and value not in named:
                return f"{node.op_type} has no {attribute.name} '{value}' at opset {version}"
    return None


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _nodes(attribute.g)


def special_feeds(row: Row, feeds: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Inputs that the row has besides its own, then these with special values strewn in, by kind."""
    for kind, change in row.special.items():
        yield kind, change({name: np.array(array) for name, array in feeds.items()})
    for kind, values in SPECIAL.items():
        if any(array.dtype.kind == "f" for array in feeds.values()):
            yield kind, {name: _strewn(array, values) for name, array in feeds.items()}


def _strewn(array: Any, values: Sequence[float]) -> Any:
    made = np.array(array)
    if made.dtype.kind != "f" or not made.size:
        return made
    flat = made.reshape(-1)
    # An odd step, so that all columns of an even number are met.
    step = max(flat.size // 64, 1) | 1
    places = np.arange(step // 2, flat.size, step)
    flat[places] = np.resize(np.asarray(values, made.dtype), len(places))
    return made


def expected_of(
    row: Row, function: Callable[..., Any], given: Mapping[str, Any], feeds: Mapping[str, Any]
) -> list[Any]:
    """What PyTorch gives."""
    tensors = [torch.from_numpy(np.array(array)) for array in feeds.values()]
    with torch.no_grad():
        result = function(**_filled(row, given, tensors))
    several = result if isinstance(result, (tuple, list)) else [result]
    return [r.detach().numpy() for r in several if r is not None]


def difference(found: Sequence[Any], expected: Sequence[Any]) -> str | None:
    """In which way results are wrong: to a thousandth, NaN and infinities exactly."""
    for got, want in zip(found, expected, strict=False):
        if got.shape != want.shape:
            return f"shape {list(got.shape)}, expected {list(want.shape)}"
        if want.dtype.kind != "f":
            if not np.array_equal(got, want):
                return "other numbers"
            continue
        special = ~np.isfinite(got) | ~np.isfinite(want)
        wrong = special & ~((got == want) | (np.isnan(got) & np.isnan(want)))
        if wrong.any():
            return f"{got[wrong][0]:.4g} for {want[wrong][0]:.4g}"
        got, want = (a[~special].astype(np.float64) for a in (got, want))
        scale = max(float(np.abs(want).max(initial=0)), 1e-30)
        off = float(np.abs(got - want).max(initial=0)) / scale
        if off >= 1e-3:
            return f"off by {off:.2g} of the largest value"
    return None
