"""Runs a folder of models in one runtime: ``python worker.py RUNTIME FOLDER FIRST``.

Stands alone, since it is started in environments that hold one runtime and numpy.  For ``NNNN.onnx`` with inputs in
``NNNN.npz`` it writes ``NNNN.RUNTIME.npz`` (results by position) or ``NNNN.RUNTIME.txt`` (why there are none), from
number FIRST on.  A runtime that takes the process down leaves neither, and is started again behind that model.
"""

import sys
import traceback
from pathlib import Path

import numpy as np


def onnxruntime(model, inputs):
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def openvino(model, inputs):
    import openvino

    global core
    if "core" not in globals():
        core = openvino.Core()
        # The CPU plugin would otherwise compute in bfloat16 where the machine can.
        core.set_property("CPU", {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": "1"})
    compiled = core.compile_model(core.read_model(str(model)), "CPU")
    request = compiled.create_infer_request()
    for position, port in enumerate(compiled.inputs):
        name = next((n for n in port.get_names() if n in inputs), None)
        array = inputs[name] if name is not None else list(inputs.values())[position]
        request.set_tensor(port, openvino.Tensor(np.ascontiguousarray(array).reshape(array.shape)))
    request.infer()
    return [np.array(request.get_output_tensor(i).data) for i in range(len(compiled.outputs))]


def tract(model, inputs):
    import tract as runtime

    loaded = runtime.onnx().load(str(model))
    # It plans for given sizes: those of the inputs at hand.
    names = {"float32": "f32", "float64": "f64", "float16": "f16", "bool": "bool"}
    given = []
    for position in range(loaded.input_count()):
        array = inputs[loaded.input_name(position)]
        dtype = names.get(str(array.dtype)) or str(array.dtype).replace("uint", "u").replace("int", "i")
        loaded.set_input_fact(position, ",".join([*map(str, array.shape), dtype]))
        given.append(np.ascontiguousarray(array).reshape(array.shape))
    results = loaded.into_model().into_runnable().run(given)
    return [result.to_numpy() for result in results]


def reference(model, inputs):
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(str(model)).run(None, inputs)


RUNTIMES = {"onnxruntime": onnxruntime, "openvino": openvino, "tract": tract, "reference": reference}


def main():
    name, folder, first = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    run = RUNTIMES[name.split("-")[0]]
    for model in sorted(folder.glob("*.onnx")):
        if int(model.stem) < first:
            continue
        with np.load(model.with_suffix(".npz")) as stored:
            inputs = {key: stored[key] for key in stored.files}
        (folder / f"{name}.at").write_text(model.stem)
        try:
            results = [np.asarray(result) for result in run(model, inputs)]
            np.savez(folder / f"{model.stem}.{name}.npz", *results)
        except BaseException as error:  # a panic of tract's is no Exception
            if isinstance(error, KeyboardInterrupt):
                raise
            # tract appends a stack trace of its own.
            text = "".join(traceback.format_exception_only(type(error), error)).split("Stack backtrace")[0]
            (folder / f"{model.stem}.{name}.txt").write_text(text)
    (folder / f"{name}.at").write_text("done")


if __name__ == "__main__":
    main()
