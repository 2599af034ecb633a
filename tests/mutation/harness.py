"""Whether the proof of a default run catches a mutant, and whether the mutant is one: that it differs from PyTorch."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime

from rewriter.decompose import decompose
from rewriter.errors import RewriteError
from rewriter.execution.values import from_torch, to_torch
from rewriter.placeholder import Case, Placeholder, Selection
from rewriter.storage import ModelFile
from rewriter.testing.check import compare
from rewriter.testing.models import CaseModel, build
from rewriter.verify import VerifyOptions, verify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

OPSET = 17


@dataclass(frozen=True)
class Subject:
    """A pass, and the model that a user of it may have: its first case with fixed or open sizes."""

    placeholder: Placeholder
    number: int
    symbolic: bool
    opset: int = OPSET
    place: str = "graph"
    dtype: str = "float32"
    given: Case | None = None

    def __str__(self) -> str:
        sizes = "open" if self.symbolic else "fixed"
        return f"{self.placeholder.pass_name()}-case{self.number}-{sizes}-{self.place}"

    @property
    def case(self) -> Case:
        return list(self.placeholder.cases())[self.number] if self.given is None else self.given

    @functools.cached_property
    def expected(self) -> list[Any]:
        return reference(self.placeholder, self.built(outputs=None).arguments)

    def built(self, outputs: int | None = 0, seed: int | None = None) -> CaseModel:
        case = self.case
        if seed is not None:
            case.seed = seed
        count = len(self.expected) if outputs == 0 else outputs
        made = build(
            self.placeholder,
            case,
            dtype=self.dtype,
            opset=self.opset,
            symbolic=False,
            place=self.place,
            outputs=count,
        )
        if self.symbolic:
            # A user's weights have sizes; activations may have open ones.
            for axis, dim in enumerate(made.model.graph.input[0].type.tensor_type.shape.dim):
                dim.dim_param = f"d{axis}"
        return made


def reference(placeholder: Placeholder, arguments: Mapping[str, Any]) -> list[Any]:
    import torch

    def value(item: Any) -> Any:
        if isinstance(item, np.ndarray):
            return to_torch(item)
        return tuple(value(part) for part in item) if isinstance(item, tuple) else item

    with torch.no_grad():
        made = placeholder.reference(**{name: value(item) for name, item in arguments.items()})
    return [
        from_torch(item) for item in (made if isinstance(made, (tuple, list)) else [made]) if item is not None
    ]


def caught(subject: Subject) -> str | None:
    """What the proof says against the subject's model as it is now rewritten; None where it is satisfied."""
    built = subject.built()
    try:
        with ModelFile.from_proto(built.model) as file:
            regions = decompose(file, Selection.load("auto")).regions
            verify(file, file.model, file.model, regions, VerifyOptions())
    except RewriteError as error:
        return f"{error.code}: {error.what}"
    return None


def delivered(subject: Subject) -> onnxruntime.InferenceSession | str:
    """The rewritten model, unproved, in onnxruntime; what went wrong where there is none."""
    try:
        with ModelFile.from_proto(subject.built().model) as file:
            decompose(file, Selection.load("auto"))
            model = file.hydrate(file.model)
    except RewriteError as error:
        return f"{error.code}: {error.what}"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    try:
        return onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # noqa: BLE001
        return f"does not load: {error}"


def differs(subject: Subject, feeds: Mapping[str, Any], expected: list[Any], session: Any) -> str | None:
    """How the model's results differ from PyTorch's by more than rounding."""
    if isinstance(session, str):
        return session
    try:
        found = session.run(None, dict(feeds))
    except Exception as error:  # noqa: BLE001
        return f"refuses: {error}"
    placeholder = subject.placeholder
    for actual, want in zip(found, expected, strict=True):
        problem = compare(placeholder, np.asarray(actual), want, lambda: arguments(subject, feeds))
        if problem is not None:
            return problem
    return placeholder.compare(tuple(found), tuple(expected)) if placeholder.compares else None


def arguments(subject: Subject, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the reference where ``feeds`` are the model's inputs."""
    built = subject.built()
    return {key: _fed(key, value, built.feeds, feeds) for key, value in built.arguments.items()}


def inputs(subject: Subject) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    """Legal inputs with PyTorch's results: those on which the pass, unmutated, agrees with its reference.

    The case's own; others that are drawn alike; and those at other scales, with zeros, ties and borders.
    """
    session = delivered(subject)
    assert not isinstance(session, str), session
    for seed in range(4):
        for change in CHANGES.values():
            built = subject.built(seed=seed)
            rng = np.random.default_rng(100 + seed)
            feeds = {key: change(rng, value) for key, value in built.feeds.items()}
            try:
                expected = reference(subject.placeholder, arguments(subject, feeds))
            except Exception:  # noqa: BLE001  (not legal)
                continue
            if differs(subject, feeds, expected, session) is None:
                yield feeds, expected


def _fed(key: str, value: Any, old: Mapping[str, Any], new: Mapping[str, Any]) -> Any:
    if isinstance(value, tuple) and value and isinstance(value[0], np.ndarray):
        return tuple(new[f"{key}_{i}"] for i in range(len(value)))
    return new[key] if key in old else value


def _floats(change: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda rng, x: np.asarray(change(rng, x)).astype(x.dtype) if x.dtype.kind == "f" else x


CHANGES: Mapping[str, Callable[[Any, Any], Any]] = {
    "drawn": lambda rng, x: x,
    "large": _floats(lambda rng, x: x * 10),
    "small": _floats(lambda rng, x: x * 1e-3),
    "spread": _floats(lambda rng, x: x * 10 ** rng.uniform(-3, 2, x.shape)),
    "zeros": _floats(lambda rng, x: x * rng.integers(0, 2, x.shape)),
    "ties": _floats(lambda rng, x: np.round(x * 2) / 2),
    "all zero": _floats(lambda rng, x: x * 0),
    "negative": _floats(lambda rng, x: -np.abs(x) * 3),
    "normal": _floats(lambda rng, x: rng.standard_normal(x.shape)),
    "wide": _floats(lambda rng, x: rng.standard_normal(x.shape) * 20),
}
