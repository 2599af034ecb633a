"""Pass bodies in the idioms that people already have: `torch.onnx` symbolics, onnx-graphsurgeon functions,
onnxscript functions and ``FunctionProto``.

Each of the functions here makes a pass like any other: it is bound, decomposed, checked against the opset and proved
by the same code, since whatever the body makes goes through the same builder.
"""

from rewriter.interop.functions import from_function, from_onnxscript
from rewriter.interop.surgeon import from_surgeon
from rewriter.interop.symbolic import from_symbolic

__all__ = ["from_function", "from_onnxscript", "from_surgeon", "from_symbolic"]
