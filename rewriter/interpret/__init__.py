"""ONNX graphs computed by PyTorch, so that they have gradients and, on request, float64 throughout.

    interpreter = Interpreter(onnx.load("model.onnx"), dtype=torch.float64)
    y = interpreter({"x": x})["y"]

Needs torch, which is imported here.
"""

from rewriter.interpret.interpreter import Interpreter
from rewriter.interpret.kernels import supported
from rewriter.interpret.parameters import Correspondence, correspond, with_parameters

__all__ = ["Correspondence", "Interpreter", "correspond", "supported", "with_parameters"]
