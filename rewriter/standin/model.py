"""A model that still holds placeholders, run: PyTorch references stand in for them.

onnxruntime runs what lies between, as it is written.  A body (If, Loop, Scan, SequenceMap) or a model-local function
that holds a placeholder is run from outside, its other nodes again in onnxruntime.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnx import ModelProto

from rewriter.derive import extend
from rewriter.errors import UsageError
from rewriter.execution.weights import Weights
from rewriter.graph.functions import Frames
from rewriter.graph.interface import forget_invented_dims
from rewriter.graph.survey import Keep, survey
from rewriter.inputs.given import check_given, load_given
from rewriter.placeholder.registry import Selection
from rewriter.standin.plan import Engine, Plan
from rewriter.standin.steps import Env
from rewriter.types import TensorType

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from rewriter.execution.values import Data
    from rewriter.placeholder.contract import Placeholder
    from rewriter.source import Source
    from rewriter.storage import ModelFile


class StandIn:
    """A model with placeholders, made ready once to be run on many inputs.

    ``model`` is the skeleton of ``file``, or any made from copies of its parts, with the placeholders still in it; it
    is left alone.  ``keep`` are operators that stay what they are: ``libraries``, by domain, may have them, or
    :meth:`run` is given their results.
    """

    def __init__(
        self,
        file: ModelFile,
        model: ModelProto,
        selection: Selection,
        *,
        keep: Keep | None = None,
        libraries: Mapping[str, Path] | None = None,
        optimise: bool = False,
    ) -> None:
        view = copy.copy(file)
        view.model = ModelProto()
        view.model.CopyFrom(model)
        keep = keep or Keep()
        found = survey(view.model, selection, keep)
        forget_invented_dims(view.model, [scope for root in found.roots for scope in root.scope.walk()])
        frames = Frames(view, found, selection, keep)
        frames.infer_main()
        self._model = view.model
        self._engine = Engine(view, frames, selection, Weights(view), libraries or {}, optimise)
        self._inputs = {value.name: value.type for value in view.model.graph.input}
        graph = view.model.graph
        self._known = {*self._inputs, *self._engine.defaults} | {
            n for node in graph.node for n in node.output
        }
        self._known |= {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
        self._plans: dict[tuple[frozenset[str], tuple[str, ...]], Plan] = {}

    @property
    def outputs(self) -> list[str]:
        """Names of the graph's outputs."""
        return [value.name for value in self._model.graph.output]

    def run(self, feeds: Mapping[str, Data], wanted: Iterable[str] | None = None) -> dict[str, Data]:
        """The values ``wanted`` of the main graph (by default its outputs), given values for the graph's inputs.

        ``feeds`` may also name other values of the main graph: those are taken as given, and what computes them does
        not run.  Values are numpy arrays, lists of them for sequences, None for an empty optional.

        Raises :class:`~rewriter.execution.session.Refused` where onnxruntime does not take the values,
        :class:`~rewriter.execution.reference.ReferenceRefused` where a reference raises, CannotVerifyError where a
        kernel, torch or a library is missing, LeftoverPlaceholderError for an operator that no pass takes, BindingError
        where a placeholder's parameters do not fit its pass, UsageError for a name that the model does not have.
        """
        names = self.outputs if wanted is None else list(dict.fromkeys(wanted))
        for name in (*feeds, *names):
            if not name or name not in self._known:
                raise UsageError(
                    f"the main graph has no value '{name}'",
                    remedy=f"its inputs are: {', '.join(self._inputs)}; its outputs: {', '.join(self.outputs)}; other "
                    "values go by their names in the file",
                )
        own = {name for name in feeds if self._is_given(name)}
        key = frozenset(own), tuple(names)
        if key not in self._plans:
            self._plans[key] = Plan(
                self._engine,
                self._engine.frames.main,
                self._engine.frames.main.root.scope,
                names,
                given=key[0],
            )
        plan = self._plans[key]
        env = Env()
        for name, data in feeds.items():
            env.own[name] = self._engine.values.of(data, self._inputs.get(name))
        self._engine.restart()
        plan.run(env)
        return {name: self._engine.values.data(plan.value(env, name)) for name in names}

    def _is_given(self, name: str) -> bool:
        """Whether ``feeds`` overrides what the model says of ``name``: a default, or a value that it computes."""
        return name not in self._inputs or name in self._engine.defaults


def run(
    model: Source | ModelFile,
    inputs: Mapping[str, Any] | str | os.PathLike[str],
    *,
    passes: str | Iterable[str | type[Placeholder] | Placeholder] = "auto",
    bind: str | Iterable[str] | None = None,
    outputs: Iterable[str] | None = None,
    library: Mapping[str, str | os.PathLike[str]] | None = None,
) -> dict[str, Data]:
    """What a model computes that still holds placeholders, by output name: PyTorch references stand in for them.

    ``model`` is a path, a ``ModelProto``, what ``torch.onnx.export(dynamo=True)`` returns, or an open ``ModelFile``; it
    is not changed.  ``inputs`` are arrays (or torch tensors; lists of them for sequences) by input name, or a ``.npz``
    file.  ``passes`` and ``bind`` are those of :func:`rewriter.rewrite`; ``library`` gives libraries by domain for
    operators that no pass takes.  ``outputs`` names the values to return, of the whole main graph, in the place of its
    outputs.

    Values are numpy arrays (with ml_dtypes for the formats that numpy lacks), lists of them for sequences, None for an
    empty optional.  Raises what :meth:`StandIn.run` does, and UsageError where the inputs do not fit the model.
    """
    from rewriter.libraries import Libraries
    from rewriter.source import open_source
    from rewriter.storage import ModelFile

    selection = extend(Selection.load(passes, bind))
    libraries = Libraries.read(library or {}).paths
    given = load_given(Path(inputs) if not hasattr(inputs, "items") else inputs)  # type: ignore[arg-type]
    if isinstance(model, ModelFile):
        return _run(model, given, selection, libraries, outputs)
    with open_source(model) as file:
        return _run(file, given, selection, libraries, outputs)


def _run(
    file: ModelFile,
    given: dict[str, Data],
    selection: Selection,
    libraries: Mapping[str, Path],
    outputs: Iterable[str] | None,
) -> dict[str, Data]:
    graph = file.model.graph
    defaults = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    required = [value.name for value in graph.input if value.name not in defaults]
    kinds = {value.name: TensorType.from_proto(value.type) for value in graph.input}
    check_given(
        given,
        {name: kind for name, kind in kinds.items() if kind is not None},
        required,
        optional=kinds.keys() - set(required),
    )
    return StandIn(file, file.model, selection, libraries=libraries).run(given, outputs)
