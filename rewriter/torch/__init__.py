"""The export side: operators that train in PyTorch and leave it as placeholder nodes.

:func:`placeholder` makes an operator from a Python function; :func:`export_placeholders` makes an existing
model's own calls (``torch.roll``, ``F.silu``) leave as placeholders, without touching the model.  Both serve
``torch.onnx.export`` with ``dynamo=True`` and ``dynamo=False``.  :func:`check_gradients` says in a test whether an
operator's backward is its gradient, and that of the decomposition that ships.

This package imports torch; ``import rewriter`` does not import this package.
"""

from rewriter.torch.checking import check_gradients
from rewriter.torch.operator import PlaceholderFunction, placeholder
from rewriter.torch.redirect import export_placeholders

__all__ = ["PlaceholderFunction", "check_gradients", "export_placeholders", "placeholder"]
