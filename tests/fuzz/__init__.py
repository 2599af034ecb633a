"""Hostile models: valid ones with placeholders in every scope, mutated as protobuf messages and as bytes.

Each input is made from one number, its seed, so that a find can be made again: ``python -m tests.fuzz --seed 4711``.
The outcome must be a delivered model that ``onnx.checker`` accepts where it accepted the input, or a
:class:`~rewriter.RewriteError` with a message.  Anything else is a find: a bare exception, a crash, a hang, too much
memory.
"""
