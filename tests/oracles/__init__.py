"""The passes against what nobody here wrote: PyTorch's OpInfo samples, ONNX's node tests, and gradcheck.

How to add a pass of group ``<group>``:

**OpInfo** (``opinfo_<group>.py``): one :class:`Row` per pass, with the entries of
``torch.testing._internal.common_methods_invocations.op_db`` by their full names (``op.full_name``)::

    ROWS = (Row("roll", ("roll",)),)

A sample ``op(input, *args, **kwargs)`` is bound to the pass by position and name, as PyTorch's own call is.  Where
that does not fit, ``adapt=`` takes the sample and returns the arguments of the pass by name.  A pass that matches an
``aten`` operator for which there is an entry must have a row.

**Node tests** (``nodes_<group>.py``): one :class:`NodeRow` per ONNX operator that the pass equals, with
``adapt(attributes, inputs)``, which returns the pass's arguments by name (an omitted input is None).  Where names
suffice::

    ROWS = (NodeRow("swish", "Swish", named("x", beta=("alpha", 1.0))),)

**Gradients** (``gradients_<group>.py``): every reference is held to ``gradcheck`` over the pass's cases, without being
listed; ``NOT_DIFFERENTIABLE`` names the passes that have no gradient, ``KINKS`` the cases drawn where there is none.

What cannot be run is listed with its reason in the same file (:class:`Unrun`).  The lists are held to be exact: what
they cover must come out as they say, and everything else must agree.  ``python -m tests.oracles roll`` shows what
fails, in the form of such a list, and ``-m full`` runs all dtypes, opsets and symbolic sizes.
"""
