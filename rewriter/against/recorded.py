"""Recorded inputs and outputs: arrays by name."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from rewriter.against.oracle import Interface, Recorded, names_text
from rewriter.errors import UsageError
from rewriter.inputs.given import check_given, fit_dtype, load_given, outline
from rewriter.types import dtype_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rewriter.execution.values import Data
    from rewriter.inputs.draw import Sample

_FLAG = "--against"
#: ``"1/x"`` is the array for 'x' of the second sample.
_NUMBERED = re.compile(r"(\d+)/(.+)", re.DOTALL)
_FORM = "write it with numpy.savez(file, **{name: array}), with a key for every input and output"


class Records:
    """An oracle that has the answers to its own inputs only."""

    kind = "recorded values"
    assumed = ""

    def __init__(self, name: str, recorded: Sequence[Recorded]) -> None:
        self.name = name
        self.recorded = recorded

    def __call__(self, sample: Sample) -> Mapping[str, Data]:
        """The outputs that were recorded for ``sample``, which is one of ``recorded``."""
        return self.recorded[sample.index].outputs

    def inner(self, sample: Sample) -> None:  # noqa: ARG002
        """None: nothing but inputs and outputs was recorded."""
        return


def from_npz(path: Path, interface: Interface) -> list[Recorded]:
    """The samples in a ``.npz`` file, keyed by the names of inputs and outputs; UsageError where it does not fit.

    Several samples have a number and a slash before each name: ``0/x``, ``0/y``, ``1/x``, ``1/y``.
    """
    from_arrays(outline(path, _FLAG), interface, path.name)
    return from_arrays(load_given(path, _FLAG), interface, path.name)


def from_arrays(arrays: Mapping[str, Any], interface: Interface, label: str) -> list[Recorded]:
    """As :func:`from_npz`, from arrays (or, for a sequence, lists of them) by key."""
    arrays = load_given(arrays, _FLAG)
    known = {*interface.order, *interface.outputs}
    numbered = {key: _NUMBERED.fullmatch(key) for key in arrays if key not in known}
    stray = [key for key, match in numbered.items() if match is None or match[2] not in known]
    if stray:
        raise UsageError(
            f"--against {label} has {names_text(stray)}, which the model has neither an input nor an output for",
            remedy=f"inputs: {names_text(list(interface.inputs))}; outputs: {names_text(list(interface.outputs))}",
        )
    if not arrays:
        raise UsageError(f"--against {label} holds no arrays", remedy=_FORM)
    if numbered and len(numbered) < len(arrays):
        plain = next(key for key in arrays if key not in numbered)
        raise UsageError(
            f"--against {label} has '{plain}' without a number among samples that have one",
            remedy=f"call it '0/{plain}'",
        )
    samples: dict[int, dict[str, Data]] = defaultdict(dict)
    for key, array in arrays.items():
        match = numbered.get(key)
        number, name = (0, key) if match is None else (int(match[1]), match[2])
        samples[number][name] = array
    return [
        record(values, interface, f"sample {number} of {label}" if numbered else label)
        for number, values in sorted(samples.items())
    ]


def record(values: Mapping[str, Data], interface: Interface, label: str) -> Recorded:
    """One sample, checked: every input and output is there, with the declared dtype, rank and sizes."""
    feeds = {name: value for name, value in values.items() if name in interface.order}
    outputs = {name: value for name, value in values.items() if name in interface.outputs}
    missing = [name for name in interface.outputs if name not in outputs]
    if missing:
        raise UsageError(
            f"{_FLAG}: {label} has no array for the output {names_text(missing)}",
            remedy="record every output of the graph",
        )
    inputs = {**interface.inputs, **interface.optional}
    check_given(
        feeds,
        {name: kind for name, kind in inputs.items() if kind is not None},
        list(interface.inputs),
        list(interface.optional),
        f"{_FLAG}: {label}",
    )
    for name, kind in interface.outputs.items():
        value = outputs[name]
        if kind is None:
            continue
        outputs[name] = fit_dtype(
            name, value, kind, f"{_FLAG}: {label}", f"the model gives {dtype_name(kind.dtype)}"
        )
        if kind.shape is not None and len(kind.shape) != value.ndim:
            raise UsageError(
                f"{_FLAG}: {label}: '{name}' has shape {list(value.shape)}, the model gives {kind}",
                remedy="record the outputs of this very graph",
            )
    return Recorded(feeds, outputs, label)
