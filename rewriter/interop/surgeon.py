"""An onnx-graphsurgeon function, ``fn(graph, node)``, as the body of a pass.

It edits a graph of the region only: the placeholder, and what its inputs are.  What it built is recorded like any other
decomposition, so nothing that graphsurgeon loses can reach the rest of the model.
"""

from __future__ import annotations

import inspect
import types
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from onnx import helper

from rewriter.errors import DecompositionError, DecompositionFault, PassDefinitionError
from rewriter.interop.declare import Cases, InteropPass, Options, declare
from rewriter.interop.parameters import hints_of, infer_signature, parameters_of
from rewriter.interop.replay import Body, Names, initializers, key_of, replay
from rewriter.interop.source import line_of, placed
from rewriter.placeholder.value import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rewriter.placeholder.builder import Builder
    from rewriter.placeholder.contract import Placeholder
    from rewriter.placeholder.signature import Signature


def from_surgeon(
    operator: str | Sequence[str],
    fn: Callable[..., Any],
    *,
    reference: Callable[..., Any] | None = None,
    cases: Cases | None = None,
    **options: Unpack[Options],
) -> Placeholder:
    """A pass for ``operator`` whose body is ``fn(graph: gs.Graph, node: gs.Node)``, which edits ``graph`` in place.

    The operator's parameters are those of ``reference``.  Whatever form an exporter gave them, tensors are
    ``node.inputs`` (a ``gs.Variable`` with dtype and shape as far as they are known, a ``gs.Constant``, an empty
    variable where omitted) and everything else is in ``node.attrs``, under the parameter's name; one that is None is
    left out.  The results are ``graph.outputs``.
    """
    if not callable(fn):
        raise PassDefinitionError(f"{fn!r} is no function", where=str(operator))
    summary = (fn.__doc__ or "").strip().split("\n")[0] or "An onnx-graphsurgeon function."
    return declare(
        operator, _Surgeon(fn, reference), summary=summary, reference=reference, cases=cases, options=options
    )


class _Surgeon:
    def __init__(self, fn: Callable[..., Any], reference: Callable[..., Any] | None) -> None:
        self._fn = fn
        self._reference = reference

    def signature(self, owner: InteropPass) -> Signature:
        if self._reference is None:
            raise PassDefinitionError(
                "no reference: the operator's parameters are not known", where=owner.pass_name()
            )
        explicit = owner.options.get("parameters", {})
        if isinstance(self._reference, types.BuiltinFunctionType) and explicit:
            # torch's own functions have no signature to read.
            kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
            declared = [inspect.Parameter(name, kind) for name in explicit]
        else:
            declared = parameters_of(self._reference, 0, owner.pass_name())
        return infer_signature(
            declared,
            owner=owner.pass_name(),
            cases=owner.case_list,
            explicit=explicit,
            hints=hints_of(self._reference),
        )

    def build(self, owner: InteropPass, g: Builder, arguments: dict[str, Any]) -> Any:
        region = _Region(owner, g, arguments)
        try:
            returned = self._fn(region.graph, region.node)
        except DecompositionError as error:
            raise placed(error, self._fn) from error.__cause__
        except Exception as error:
            raise DecompositionFault(
                f"{line_of(error, self._fn)}: {type(error).__name__}: {error}",
                where=g.where,
                remedy="--debug shows the traceback",
            ) from error
        return region.results(returned)


class _Region:
    """The placeholder as a graph of its own."""

    def __init__(self, owner: InteropPass, g: Builder, arguments: dict[str, Any]) -> None:
        import onnx_graphsurgeon as gs

        self._g = g
        self._owner = owner
        #: What the region's inputs stand for: tensor by identity, with the array of a constant as it was.
        self._outer: dict[str, tuple[Any, Value, Any]] = {}
        inputs, attributes = [], {}
        for name, argument in arguments.items():
            items = argument if owner.signature[name].variadic else (argument,)
            for item in items:
                if isinstance(item, Value):
                    inputs.append(self._tensor(item))
                elif item is not None:
                    attributes[name] = _attribute(item)
                elif owner.signature[name].is_tensor:
                    inputs.append(gs.Variable.empty())
        while inputs and inputs[-1].is_empty():
            inputs.pop()
        outputs = [gs.Variable(name=self._free(name)) for name in owner.outputs]
        domain, _, op_type = owner.matches[0].rpartition("::")
        self.node = gs.Node(
            op=op_type,
            name="placeholder",
            attrs=attributes,
            inputs=inputs,
            outputs=outputs,
            domain=domain or None,
        )
        self._operator = (op_type, domain or None)
        variables = [tensor for tensor, _, values in self._outer.values() if values is None]
        self.graph = gs.Graph(
            nodes=[self.node],
            inputs=variables,
            outputs=list(outputs),
            name=owner.pass_name(),
            opset=g.opset,
            import_domains=[helper.make_opsetid("", g.opset)],
        )

    def _tensor(self, value: Value) -> Any:
        import onnx_graphsurgeon as gs

        if value.name in self._outer:
            return self._outer[value.name][0]
        if value.constant is not None:
            tensor = gs.Constant(value.name, np.array(value.constant))
            self._outer[value.name] = (tensor, value, tensor.values)
            return tensor
        dtype = None if value.type is None else helper.tensor_dtype_to_np_dtype(value.type.dtype)
        shape = None if value.type is None or value.type.shape is None else list(value.type.shape)
        tensor = gs.Variable(value.name, dtype=dtype, shape=shape)
        self._outer[value.name] = (tensor, value, None)
        return tensor

    def _free(self, name: str) -> str:
        while name in self._outer:
            name += "_"
        return name

    def results(self, returned: Any) -> tuple[Value | None, ...]:
        """What was built, recorded in the builder: one value to each of ``graph.outputs``."""
        import onnx_graphsurgeon as gs
        from onnx_graphsurgeon.exporters.onnx_exporter import OnnxExporter

        graph = returned if isinstance(returned, gs.Graph) else self.graph
        name = f"the graph of pass '{self._owner.pass_name()}'"
        self._check(graph, name)
        graph.cleanup().toposort()
        for node in _nodes(graph, gs):
            if node is self.node or (node.op, node.domain or None) == self._operator:
                raise self._g.fault(
                    f"{name} still holds the placeholder {'::'.join(filter(None, reversed(self._operator)))}",
                    "disconnect it (node.outputs.clear()) once its outputs are made by other nodes",
                )
        names: Names = {}
        tensors = []
        for tensor in _tensors(graph, gs):
            if tensor.is_empty() or tensor.name in names:
                continue
            outer = self._outer.get(tensor.name)
            if outer is not None and outer[0] is tensor and (outer[2] is None or outer[2] is tensor.values):
                names[tensor.name] = outer[1]
            elif isinstance(tensor, gs.Constant):
                if isinstance(tensor._values, gs.ir.tensor.SparseValues):
                    raise self._g.fault(f"{name}: '{tensor.name}' is sparse, which is not supported")
                names[tensor.name] = None  # seen; its value follows
                tensors.append(OnnxExporter.export_tensor_proto(tensor))
        for proto in tensors:
            del names[proto.name]
        functions = {key_of(f): f for f in (OnnxExporter.export_function(f) for f in graph.functions)}
        body = Body(name, None, functions)
        initializers(self._g, tensors, names, body)
        try:
            replay(self._g, [OnnxExporter.export_node(node) for node in graph.nodes], names, body)
        except ValueError as error:
            raise self._g.fault(f"{name} cannot be read: {error}") from error
        return tuple(self._result(tensor, index, names, name) for index, tensor in enumerate(graph.outputs))

    def _result(self, tensor: Any, index: int, names: Names, name: str) -> Value | None:
        if tensor.name in names:
            return names[tensor.name]
        output = self._owner.outputs[index] if index < len(self._owner.outputs) else f"output {index}"
        if not self._g.wants(output):
            return None
        raise self._g.fault(
            f"{name} makes no output '{output}' ('{tensor.name}')",
            "give graph.outputs[i] to the node that makes it",
        )

    def _check(self, graph: Any, name: str) -> None:
        """Names are what is exported: two tensors of one name would become one."""
        import onnx_graphsurgeon as gs

        seen: dict[str, Any] = {}
        for tensor in (*_tensors(graph, gs), *graph.outputs):
            if not tensor.is_empty() and seen.setdefault(tensor.name, tensor) is not tensor:
                raise self._g.fault(
                    f"{name} has two tensors called '{tensor.name}'", "give each a name of its own"
                )


def _nodes(graph: Any, gs: Any) -> Iterator[Any]:
    for node in graph.nodes:
        yield node
        for value in node.attrs.values():
            if isinstance(value, gs.Graph):
                yield from _nodes(value, gs)


def _tensors(graph: Any, gs: Any) -> Iterator[Any]:
    for node in _nodes(graph, gs):
        yield from node.inputs
        yield from node.outputs
    yield from graph.outputs


def _attribute(value: Any) -> Any:
    import onnx_graphsurgeon as gs

    if isinstance(value, bool):
        return int(value)
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, np.ndarray):
        return gs.Constant("value", value)
    return value
