"""All kernels together, and the operators that are computed by the body that their schema gives them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from onnx import defs

from rewriter.domains import normal_domain
from rewriter.interpret.operators import GROUPS

if TYPE_CHECKING:
    from rewriter.interpret.registry import Kernel


def find(domain: str, op_type: str, opset: int) -> Kernel | None:
    """The kernel of an operator at a version of its domain; None where there is none."""
    for group in GROUPS:
        if group.domain == normal_domain(domain):
            kernel: Kernel | None = group.find(op_type, opset)
            if kernel is not None:
                return kernel
    return None


#: An OpSchema; onnx's stubs do not know all that it can do.
Schema = Any


@functools.cache
def schema_of(domain: str, op_type: str, opset: int) -> Schema | None:
    """ONNX's definition of the operator at a version of its domain."""
    domain = normal_domain(domain)
    newest = defs.onnx_opset_version() if domain == "" else opset
    if not defs.has(op_type, min(opset, newest), domain):
        return None
    return defs.get_schema(op_type, min(opset, newest), domain)


def has_body(schema: Schema) -> bool:
    """Whether ONNX defines the operator by others."""
    return bool(schema.has_function or schema.has_context_dependent_function)


@functools.cache
def supported(opset: int | None = None) -> frozenset[str]:
    """Names of the standard operators that can be computed at ``opset`` (the newest), also by a schema's body."""
    version = defs.onnx_opset_version() if opset is None else opset
    names = {schema.name for schema in defs.get_all_schemas_with_history() if schema.domain == ""}
    return frozenset(name for name in names if _computable("", name, version))


def _computable(domain: str, name: str, version: int) -> bool:
    schema = schema_of(domain, name, version)
    if schema is None or schema.deprecated:
        return False
    return find(domain, name, version) is not None or has_body(schema)
