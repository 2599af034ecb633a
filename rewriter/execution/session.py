"""Run a model in onnxruntime as it lies in the file: weights withheld, inner values exposed, nothing printed.

Three outcomes are told apart: values; :class:`Refused`, the runtime does not take the model or these inputs; and
CannotVerifyError, this runtime cannot run such a model at all (a missing kernel, a newer format, an unknown operator).
"""

from __future__ import annotations

import os
import re
from functools import partial
from typing import TYPE_CHECKING, Any

from onnx import ModelProto, TensorProto, ValueInfoProto

from rewriter.errors import CannotVerifyError, VerificationError
from rewriter.execution.held import Values, known_type
from rewriter.execution.values import Data, is_native
from rewriter.execution.weights import Runnable, Weights
from rewriter.worker.activity import doing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from onnx import TypeProto

    from rewriter.storage import ModelFile

_FOLDER = "session.model_external_initializers_file_folder_path"

_RUNNING = "running the model"

NO_VERIFY = "pass --no-verify to deliver it unverified"


class Refused(VerificationError):  # noqa: N818  (an outcome, handled by whoever asked)
    """onnxruntime has the kernels but refuses the model, or these inputs; callers decide what that means."""

    code = "runtime-refused"

    def __init__(self, what: str, *, operator: str = "", node: str = "") -> None:
        super().__init__(what)
        self.operator = operator
        self.node = node


class Session:
    """A loaded model.

    ``extra_outputs`` are names of inner values of the main graph to be given out as well.  ``optimise`` off keeps
    every operator as it is written.  ``libraries`` are the custom-operator libraries to load, and no others are.
    """

    def __init__(
        self,
        file: ModelFile | Weights,
        model: ModelProto,
        *,
        extra_outputs: Iterable[str] = (),
        optimise: bool = True,
        libraries: Sequence[Path | str] = (),
    ) -> None:
        self._weights = file if isinstance(file, Weights) else Weights(file)
        self._runnable = self._weights.runnable(model)
        graph = self._runnable.model.graph
        self._graph_inputs = {i.name for i in graph.input}
        produced = {name for node in graph.node for name in node.output if name}
        listed = {output.name for output in graph.output}
        for name in dict.fromkeys(extra_outputs):
            if name in produced and name not in listed:
                graph.output.add().CopyFrom(ValueInfoProto(name=name))
        #: Element types of the inputs (None for what is no tensor), and the names that :meth:`run` gives.
        self.input_types: dict[str, int | None] = {}
        self.output_names: list[str] = []
        #: Their types in onnxruntime's words: ``"seq(tensor(float))"``.
        self.output_types: dict[str, str] = {}
        self._input_kinds: dict[str, TypeProto | None] = {}
        self._session = None
        self._by_ort_value = False
        self._has_run = False
        self._load = partial(_load, self._runnable, optimise=optimise, libraries=tuple(libraries))
        if graph.output:
            self._session = self._load()
            outputs = self._session.get_outputs()
            inputs = [*self._session.get_inputs(), *self._session.get_overridable_initializers()]
            self.input_types = {i.name: _element_type(i.type) for i in inputs}
            self._input_kinds = {i.name: known_type(i.type) for i in inputs}
            self.output_names = [o.name for o in outputs]
            self.output_types = {o.name: str(o.type) for o in outputs}
            self._by_ort_value = any(
                map(_is_exotic, [*self.input_types.values(), *(_element_type(o.type) for o in outputs)])
            )

    def run(self, feeds: Mapping[str, Data], names: Sequence[str] | None = None) -> dict[str, Data]:
        """The graph's outputs and the exposed values (or those of ``names``), given values for the graph's inputs.

        A name that is an input or an initializer is answered too.  Refused where the runtime does not take ``feeds``.
        The same feeds give the same values, whatever ran before.
        """
        self.restart()
        self._has_run = True
        given_out = set(self.output_names)
        wanted = self.output_names if names is None else list(dict.fromkeys(names))
        computed = [name for name in wanted if name in given_out]
        options = _quiet()
        fed = {
            name: value
            for name, value in feeds.items()
            if name in self._graph_inputs and name in self.input_types
        }
        try:
            if self._session is None or not computed:
                found: list[Data] = []
            elif self._by_ort_value:
                values = Values()
                given = {
                    name: values.ort(values.of(value, self._input_kinds.get(name)))
                    for name, value in fed.items()
                }
                with doing(engine="onnxruntime", step=_RUNNING):
                    results = self._session.run_with_ort_values(computed, given, options)
                found = [values.data(values.of_ort(value)) for value in results]
            else:
                with doing(engine="onnxruntime", step=_RUNNING):
                    found = self._session.run(computed, fed, options)
        except Exception as error:  # onnxruntime's exceptions share no base class
            raise _explain(error, loading=False) from error
        answer = dict(zip(computed, found, strict=True))
        for name in wanted:
            if name not in answer:
                answer[name] = feeds[name] if name in feeds else self.initializer(name)
        return answer

    @property
    def draws(self) -> bool:
        """Whether an operator draws random numbers."""
        return self._runnable.draws

    def restart(self) -> None:
        """Let operators that draw random numbers begin again; nothing for a model without any."""
        if self._runnable.draws and self._has_run and self._session is not None:
            self._session = self._load()
            self._has_run = False

    def run_held(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The graph's outputs as OrtValues, given OrtValues for its inputs; random numbers go on where they were."""
        self._has_run = True
        try:
            found = (
                []
                if self._session is None
                else self._session.run_with_ort_values(self.output_names, dict(feeds), _quiet())
            )
        except Exception as error:  # onnxruntime's exceptions share no base class
            raise _explain(error, loading=False) from error
        return dict(zip(self.output_names, found, strict=True))

    def initializer(self, name: str) -> Data:
        return self._weights.array(self._runnable.tensors[name])


def _quiet() -> Any:
    """Options of one run: what goes wrong is told by exceptions."""
    import onnxruntime

    options = onnxruntime.RunOptions()
    options.log_severity_level = 4
    return options


def _load(runnable: Runnable, *, optimise: bool, libraries: Sequence[Path | str]) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # fatal only: what goes wrong is told by exceptions
    options.intra_op_num_threads = min(
        4, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    )
    options.inter_op_num_threads = 1
    options.use_deterministic_compute = True
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.add_session_config_entry("session.disable_prepacking", "1")  # weights are not copied
    for library in libraries:
        try:
            options.register_custom_ops_library(str(library))
        except Exception as error:
            raise CannotVerifyError(
                f"onnxruntime does not load the library '{library}': {_clean(str(error))}",
                remedy=f"give a library of operators built for onnxruntime {onnxruntime.__version__}, or {NO_VERIFY}",
            ) from error
    if runnable.given:
        options.add_external_initializers(list(runnable.given), list(runnable.given.values()))
    if runnable.folder is not None:
        options.add_session_config_entry(_FOLDER, str(runnable.folder))
    try:
        data = runnable.model.SerializeToString()
    except Exception as error:  # protobuf's own error class depends on its implementation
        raise CannotVerifyError(
            "constants in bodies and functions take more than 2 GB, which onnxruntime cannot load",
            remedy=NO_VERIFY,
        ) from error
    try:
        with doing(engine="onnxruntime", step="loading the model"):
            return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise _explain(error, loading=True) from error


#: What onnxruntime says when the fault is not the model's: it lacks an operator, a kernel or the format.
_NOT_HERE = re.compile(
    r"not a registered function/op|No Op registered for|Unsupported model IR version|is under development"
    r"|Could not find an implementation|NOT_IMPLEMENTED|No opset import for domain|opset .* is not supported"
    r"|support for .* is till opset|is not currently registered or supported",
    re.IGNORECASE,
)


def _explain(error: Exception, *, loading: bool) -> VerificationError:
    if isinstance(error, VerificationError):
        return error
    if isinstance(error, MemoryError):
        return CannotVerifyError("not enough memory to run the model", remedy=NO_VERIFY)
    import onnxruntime

    text = str(error)
    if type(error).__name__ == "NotImplemented" or _NOT_HERE.search(text):
        return CannotVerifyError(
            f"onnxruntime {onnxruntime.__version__} cannot run this model here: {_clean(text)}",
            remedy="name a library that has the operator (--library), export at another opset or dtype, "
            f"install a newer onnxruntime, or {NO_VERIFY}",
        )
    found = re.search(r"while running (\S+) node\. Name:'([^']*)'", text)
    operator, node = found.groups() if found else ("", "")
    doing = "does not load the model" if loading else "refuses the inputs"
    return Refused(f"onnxruntime {doing}: {_clean(text)}", operator=operator, node=node)


def _clean(text: str) -> str:
    """onnxruntime's message without its own source files and repeated codes."""
    text = re.sub(r"\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text)
    text = re.sub(
        r"(?:/[\w.+-]+)+\.(?:cc|h):\d+ (?:[\w:~<>,&*\s]+\([^()]*(?:\([^()]*\)[^()]*)*\)\s*(?:const )?)?",
        "",
        text,
    )
    return " ".join(text.split())


_TYPE_NAMES = frozenset(TensorProto.DataType.keys())


def _element_type(text: str) -> int | None:
    """``"tensor(float16)"`` → 10; None for what is no dense tensor."""
    found = re.fullmatch(r"tensor\((\w+)\)", text)
    if found is None:
        return None
    name = {"float": "FLOAT", "double": "DOUBLE"}.get(found[1], found[1].upper())
    return int(TensorProto.DataType.Value(name)) if name in _TYPE_NAMES else None


def _is_exotic(dtype: int | None) -> bool:
    """Whether numpy lacks the element type, so that values pass as OrtValues."""
    return dtype is not None and dtype != TensorProto.STRING and not is_native(dtype)
