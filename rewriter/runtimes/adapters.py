"""How each runtime loads a model file, and runs it on arrays by input name.

Stands alone (numpy and the runtime are all that it imports), so that it can be used in an environment that holds
nothing else.  Each adapter takes the path of a model and gives the results in the order of the graph's outputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Values = dict[str, Any]


class OnnxRuntime:
    """onnxruntime on the CPU, as it optimises the file by default."""

    def __init__(self, path: str, libraries: Sequence[str] = ()) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        for library in libraries:
            options.register_custom_ops_library(library)
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

        types = [value.type for value in (*self._session.get_inputs(), *self._session.get_outputs())]
        #: Whether numpy lacks an element type, so that values pass as OrtValues.
        self._exotic = any(name in kind for kind in types for name in ("bfloat16", "float8", "int4"))

    def run(self, inputs: Values) -> list[Any]:
        if not self._exotic:
            return list(self._session.run(None, inputs))
        from rewriter.execution.values import element_type, from_ort_value, ort_value

        given = {name: ort_value(value, element_type(value)) for name, value in inputs.items()}
        names = [output.name for output in self._session.get_outputs()]
        return [from_ort_value(value) for value in self._session.run_with_ort_values(names, given)]


class OpenVino:
    """OpenVINO on the CPU, in float32: by default it computes in bfloat16 where the machine can."""

    def __init__(self, path: str) -> None:
        import openvino

        core = openvino.Core()
        core.set_property("CPU", {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": "1"})
        self._tensor = openvino.Tensor
        self._compiled = core.compile_model(core.read_model(path), "CPU")
        self._request = self._compiled.create_infer_request()

    def run(self, inputs: Values) -> list[Any]:
        for position, port in enumerate(self._compiled.inputs):
            name = next((name for name in port.get_names() if name in inputs), None)
            array = inputs[name] if name is not None else list(inputs.values())[position]
            # ascontiguousarray gives a scalar a dim; it must stay one.
            self._request.set_tensor(port, self._tensor(np.ascontiguousarray(array).reshape(array.shape)))
        self._request.infer()
        return [np.array(self._request.get_output_tensor(i).data) for i in range(len(self._compiled.outputs))]


class Tract:
    """tract, planned anew for the sizes of each run; where it cannot do that, for open ones.

    Inner values may have declared types with symbols in them, which it does not unify with sizes.
    """

    _NAMES = {"float32": "f32", "float64": "f64", "float16": "f16", "bool": "bool"}  # noqa: RUF012

    def __init__(self, path: str) -> None:
        import tract

        self._load: Callable[[], Any] = lambda: tract.onnx().load(path)
        self._load()  # a file that it does not take is refused here

    def run(self, inputs: Values) -> list[Any]:
        try:
            return self._run(inputs, planned=True)
        except Exception:
            try:
                return self._run(inputs, planned=False)
            except Exception:  # noqa: BLE001  (bindings raise errors of their own; the first says more)
                pass
            raise

    def _run(self, inputs: Values, *, planned: bool) -> list[Any]:
        loaded = self._load()
        given = []
        for position in range(loaded.input_count()):
            array = inputs[loaded.input_name(position)]
            given.append(np.ascontiguousarray(array).reshape(array.shape))
            if planned:
                name = str(array.dtype)
                dtype = self._NAMES.get(name) or name.replace("uint", "u").replace("int", "i")
                loaded.set_input_fact(position, ",".join([*map(str, array.shape), dtype]))
        results = loaded.into_model().into_runnable().run(given)
        return [result.to_numpy() for result in results]


class Reference:
    """onnx's reference evaluator."""

    def __init__(self, path: str) -> None:
        from onnx.reference import ReferenceEvaluator

        self._evaluator = ReferenceEvaluator(path)

    def run(self, inputs: Values) -> list[Any]:
        return list(self._evaluator.run(None, inputs))


ADAPTERS: Mapping[str, Callable[..., Any]] = {
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
    "tract": Tract,
    "reference": Reference,
}


def message(error: BaseException) -> str:
    """An error in one line, without the stack trace that tract appends to its own."""
    import traceback

    text = "".join(traceback.format_exception_only(type(error), error)).split("Stack backtrace")[0]
    return " ".join(text.split())
