"""From a pass to what each runtime makes of it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from rewriter.decompose import decompose
from rewriter.errors import NeedsRank, UnsupportedParameter
from rewriter.placeholder import Placeholder, Selection
from rewriter.storage import ModelFile
from rewriter.testing.check import compare, model_of, reference_of
from rewriter.testing.models import build
from rewriter.testing.variants import Variant, applies, only

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.runtimes.environments import Environment

OPSET = 13


class Result(Enum):
    RIGHT = "right"
    WRONG = "wrong"
    REFUSED = "refused"
    #: The process of the runtime went down.
    CRASHED = "crashed"


@dataclass
class Trial:
    """One model, and what the runtimes made of it."""

    variant: Variant
    model: onnx.ModelProto
    feeds: dict[str, Any]
    expected: list[Any]

    @property
    def form(self) -> str:
        return self.variant.decomposition or ""

    @property
    def sizes(self) -> str:
        return "symbolic" if self.variant.symbolic else "static"

    def __str__(self) -> str:
        name, opset = self.variant.placeholder.pass_name(), self.variant.opset
        return f"{name} {self.form} {self.sizes} opset {opset} {self.variant.case}"


@dataclass(frozen=True)
class Finding:
    result: Result
    what: str = ""


def trials(placeholder: Placeholder) -> Iterator[Trial]:
    """Each portable decomposition on each case, in static and symbolic sizes."""
    for number, case in enumerate(placeholder.cases()):
        low, high = case.opsets or (OPSET, OPSET)
        opset = min(max(OPSET, low), high)
        dtype = "float32" if "float32" in placeholder.dtypes else placeholder.dtypes[0]
        if case.dtypes is not None and dtype not in case.dtypes:
            dtype = case.dtypes[0]
        for symbolic in (False, True) if case.symbolic else (False,):
            for form in placeholder.decompositions:
                if not form.portable or not form.serves(opset):
                    continue
                settings = {"dtype": dtype, "opset": opset, "symbolic": symbolic}
                if not applies(placeholder, case, **settings, form=form.name):
                    continue
                variant = Variant(placeholder, number, dtype, opset, symbolic, "graph", form.name)
                made = _trial(variant)
                if made is not None:
                    yield made


def _trial(variant: Variant) -> Trial | None:
    expected = reference_of(variant)
    placeholder = variant.placeholder
    built = build(
        placeholder,
        variant.case,
        dtype=variant.dtype,
        opset=variant.opset,
        symbolic=variant.symbolic,
        place="graph",
        outputs=len(expected),
    )
    forced = only(placeholder, variant.decomposition)
    with ModelFile.from_proto(built.model) as file:
        try:
            decompose(file, Selection((forced,), frozenset({forced.pass_name()})))
        except (NeedsRank, UnsupportedParameter):
            # The form leaves such a case to another one; that one of them serves it is the contract test's.
            return None
        model = file.hydrate(file.model)
    # Several runtimes take no output without a type, and the values of an empty name.
    for output, want in zip(model.graph.output, expected, strict=True):
        dtype = (
            int(helper.np_dtype_to_tensor_dtype(want.dtype)) if want.dtype != object else TensorProto.STRING
        )
        shape = [None] * want.ndim if variant.symbolic else list(want.shape)
        output.CopyFrom(helper.make_tensor_value_info(output.name, dtype, shape))
    feeds = {i.name: np.asarray(built.feeds[i.name]) for i in model.graph.input}
    return Trial(variant, model, feeds, expected)


def run(
    items: Iterable[Trial], places: Iterable[Environment], folder: Path
) -> list[tuple[Trial, dict[str, Finding]]]:
    """What each runtime makes of each model, by its name; ``folder`` is scratch space."""
    items, places = list(items), list(places)
    for number, trial in enumerate(items):
        onnx.save(trial.model, str(folder / f"{number:04}.onnx"))
        np.savez(folder / f"{number:04}.npz", **trial.feeds)
    for place in places:
        place.check()
        _run_all(place, folder, len(items))
    return [
        (trial, {place.runtime: _finding(trial, folder, number, place.runtime) for place in places})
        for number, trial in enumerate(items)
    ]


def _run_all(place: Environment, folder: Path, count: int) -> None:
    """The worker over all models, started again behind each that takes it down."""
    worker = Path(__file__).with_name("worker.py")
    first = 0
    while first < count:
        command = [str(place.python), str(worker), place.runtime, str(folder), str(first)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=1800, cwd=folder)
            told = f"exit {done.returncode}: {done.stderr.strip()[-500:]}"
        except subprocess.TimeoutExpired:
            told = "does not come to an end"
        mark = folder / f"{place.runtime}.at"
        at = mark.read_text() if mark.exists() else ""
        if at == "done":
            return
        if not at:
            raise RuntimeError(f"{place.runtime} does not start in '{place.python}': {told}")
        (folder / f"{at}.{place.runtime}.crash").write_text(told)
        first = int(at) + 1
        mark.unlink()


def _finding(trial: Trial, folder: Path, number: int, runtime: str) -> Finding:
    stem = folder / f"{number:04}"
    crash, refusal, results = (Path(f"{stem}.{runtime}.{suffix}") for suffix in ("crash", "txt", "npz"))
    if crash.exists():
        return Finding(Result.CRASHED, crash.read_text())
    if refusal.exists():
        return Finding(Result.REFUSED, " ".join(refusal.read_text().split())[:400])
    with np.load(results) as stored:
        found = [stored[f"arr_{i}"] for i in range(len(stored.files))]
    if len(found) != len(trial.expected):
        return Finding(Result.WRONG, f"gives {len(found)} outputs, expected {len(trial.expected)}")
    for i, (got, want) in enumerate(zip(found, trial.expected, strict=True)):
        problem = compare(trial.variant.placeholder, got, want, lambda: model_of(trial.variant).arguments)
        if problem is not None:
            return Finding(Result.WRONG, f"output {i} {problem}")
    return Finding(Result.RIGHT)
