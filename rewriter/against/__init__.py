"""What a whole model is held against: PyTorch itself, or values that were recorded from it.

:func:`load` makes an :class:`Oracle` of what the user named: a ``torch.export`` archive, an import path to a module or
a factory, a ``.npz`` file or a folder of recorded values.  An oracle answers with the graph's outputs by name, and
knows nothing of how they are compared.
"""

from rewriter.against.loading import load
from rewriter.against.oracle import Interface, Oracle, OracleRefused

__all__ = ["Interface", "Oracle", "OracleRefused", "load"]
