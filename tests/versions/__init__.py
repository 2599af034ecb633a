"""Which versions of Python, onnx, onnxruntime and torch the project runs with; see :mod:`tests.versions.__main__`."""
