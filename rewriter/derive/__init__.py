"""Decompositions derived from a reference in PyTorch.

A pass says what an operator means; where it has no decomposition for a node, one is made from that meaning:

1. the reference is traced by ``torch.export`` at the node's types, with its parameters fixed (:mod:`.translate`);
2. the program is translated by the exporter's own library of ONNX functions, at its opset;
3. the nodes are recorded in the pass's builder like any other decomposition (:mod:`.form`).

So every operator that PyTorch itself defines has a pass as well (:mod:`.aten`), and so has a function of the user's
own (:mod:`.function`).  :func:`extend` adds both to a selection of passes.  Nothing here imports torch before it is
needed.
"""

from rewriter.derive.selection import extend

__all__ = ["extend"]
