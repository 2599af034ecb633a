"""Python functions as shape inference of operators that ONNX does not know, for the length of a ``with`` block.

onnx keeps one registry of schemas for the whole process, and refuses a second registration.  So: a lock, the
schemas that were there put back, and nothing of ours left behind whatever happens.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from onnx import defs

if TYPE_CHECKING:
    from onnx.shape_inference import InferenceContext

#: Domain (the default one as ``""``), operator, version that the scope imports.
Operator = tuple[str, str, int]
Hook = Callable[["InferenceContext"], None]

_lock = threading.RLock()


@contextmanager
def hooked(operators: Iterable[Operator], hook: Hook) -> Iterator[None]:
    """While this lasts, onnx's inference calls ``hook`` for each node of ``operators``.

    An exception in ``hook`` would end inference: it must catch its own.  An interrupt in it is raised at the end of the
    block, since onnx would make something else of it, and ``hook`` is not called again.
    """
    raised: list[BaseException] = []

    def called(context: InferenceContext) -> None:
        if not raised:
            try:
                hook(context)
            except BaseException as error:
                if isinstance(error, Exception):
                    raise
                raised.append(error)

    with _lock:
        replaced: list[defs.OpSchema] = []
        registered: list[Operator] = []
        try:
            for domain, op_type, version in sorted(set(operators)):
                if defs.has(op_type, version, domain):
                    present = defs.get_schema(op_type, version, domain)
                    if present.since_version == version:
                        defs.deregister_schema(op_type, version, domain)
                        replaced.append(present)
                schema = _schema(domain, op_type, version)
                schema.set_type_and_shape_inference_function(called)
                defs.register_schema(schema)
                registered.append((domain, op_type, version))
            yield
        finally:
            for domain, op_type, version in registered:
                defs.deregister_schema(op_type, version, domain)
            for schema in replaced:
                defs.register_schema(schema)
        if raised:
            raise raised[0]


@functools.cache
def _all_types() -> list[str]:
    """Every type of a tensor, a sequence or an optional that the installed onnx knows."""
    return sorted(defs.get_schema("Identity").type_constraints[0].allowed_type_strs)


def _schema(domain: str, op_type: str, version: int) -> defs.OpSchema:
    """Any number of inputs and outputs of any type."""
    parameter, option = defs.OpSchema.FormalParameter, defs.OpSchema.FormalParameterOption

    def any_number(name: str, type_str: str) -> defs.OpSchema.FormalParameter:
        return parameter(name, type_str, param_option=option.Variadic, is_homogeneous=False, min_arity=0)

    return defs.OpSchema(
        op_type,
        domain,
        version,
        inputs=[any_number("inputs", "I")],
        outputs=[any_number("outputs", "O")],
        type_constraints=[("I", _all_types(), ""), ("O", _all_types(), "")],
    )
