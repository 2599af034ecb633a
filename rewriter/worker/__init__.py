"""Child processes: how each of them is started, limited, watched and ended.

The simplifier, other runtimes and the proof work in processes of their own, which may crash, hang or ask for too much
memory without taking the run along.  :class:`~rewriter.worker.driver.Worker` is the caller's side,
:mod:`rewriter.worker.program` is what runs in the child, :mod:`rewriter.worker.frames` is the form of the messages
between them.  With :func:`~rewriter.worker.activity.doing` the child notes what it is busy with, so that its death
can be explained.  :mod:`rewriter.worker.guard` ends the command itself when a signal arrives.

Nothing is imported here, so that a child starts fast.
"""
