"""Every portable decomposition, on the runtimes that the project promises, against PyTorch.

`make runtimes` makes the environments once, `make test-runtimes` runs this folder (it is deselected by default).  A
pass is tested by being registered: each of its decompositions that is marked portable runs on each of its cases, in
static and in symbolic sizes, at opset 13, on onnxruntime (newest and 1.15.1), openvino and tract, with onnx's reference
evaluator as a further opinion.

A decomposition that a runtime refuses or gets wrong is not portable: mark it ``portable=False`` and have another one
that is.  Only where the runtime itself is at fault with the plainest form (an empty tensor that it does not take),
list it in ``faults_<group>.py``::

    FAULTS = (
        Fault("tract", "roll", Result.REFUSED, "takes no empty tensors", cases="float32[0"),
    )

``cases`` is a part of the case's text (as in the failure's message); ``form`` and ``sizes`` narrow it down.  The list
is held to be exact: every model that an entry covers must give the very result that it names, every other must be
right.

    python -m tests.runtimes roll,swish          # a table instead of a test
"""
