"""The export side: operators that train in PyTorch and leave it as placeholder nodes.

:func:`placeholder` makes an operator from a Python function; :func:`export_placeholders` makes an existing
model's own calls (``torch.roll``, ``F.silu``) leave as placeholders, without touching the model.  Both serve
``torch.onnx.export`` with ``dynamo=True`` and ``dynamo=False``.  :func:`check_gradients` says in a test whether an
operator's backward is its gradient, and that of the decomposition that ships.

:func:`export` does all of it in one call: export, rewrite, proof against the module.  :func:`safe_fallthrough` is for
those who call ``torch.onnx.export`` with ``ONNX_FALLTHROUGH`` themselves.

This package imports torch; ``import rewriter`` does not import this package.
"""

from rewriter.torch.checking import check_gradients
from rewriter.torch.export import export
from rewriter.torch.fallthrough import safe_fallthrough
from rewriter.torch.operator import PlaceholderFunction, placeholder
from rewriter.torch.redirect import export_placeholders

__all__ = [
    "PlaceholderFunction",
    "check_gradients",
    "export",
    "export_placeholders",
    "placeholder",
    "safe_fallthrough",
]
