"""A standard operator as a placeholder: bound by its schema, decomposed by its forms."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from onnx import AttributeProto, NodeProto, defs, helper

from rewriter.errors import UnsupportedAtOpset
from rewriter.lower import schemas
from rewriter.lower.absent import Absent
from rewriter.lower.reference import RANDOM, run_node
from rewriter.lower.writer import Writer
from rewriter.placeholder.binding import Bound, Ref, Site
from rewriter.placeholder.contract import Placeholder
from rewriter.placeholder.conversion import plain
from rewriter.placeholder.expand import Expansion
from rewriter.placeholder.signature import Signature
from rewriter.profiles.conditions import Use
from rewriter.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rewriter.placeholder.contract import Known
    from rewriter.placeholder.value import Value

#: Oldest opset that forms are written in.
_WRITTEN_FROM = 11
#: Largest constant input that a form is told, in elements.
_SMALL = 4096


class StandardOperator(Placeholder):
    """An operator of ONNX's default domain, as opset ``version`` means it, for a target of opset ``opset``."""

    def __init__(
        self,
        op_type: str,
        version: int,
        opset: int,
        absent: Absent = Absent(),  # noqa: B008  (it is frozen)
        node: NodeProto | None = None,
        passes: Mapping[str, Sequence[Placeholder]] = MappingProxyType({}),
    ) -> None:
        self.op_type = op_type
        self.version = self.meant_at = version
        self.opset = opset
        self.absent = absent
        self.passes = passes
        #: The node itself, where the placeholder is that of one node.
        self.node = node
        self.schema = defs.get_schema(op_type, version, "")
        self.matches = (op_type,)  # type: ignore[misc]
        #: Element types by position, where nothing else differs at the target.
        self._only_types = None if node is not None else schemas.only_types(op_type, version, opset)
        count = 1 if node is None else len(node.output)
        self.outputs = tuple(_output_name(self.schema, i) for i in range(count))  # type: ignore[misc]

    def pass_name(self) -> str:  # type: ignore[override]
        return self.op_type

    #: Its reference is the node itself.
    is_standard = True

    def __reduce__(self) -> Any:
        """Without its schema and the passes, which a proof does not need."""
        node = None if self.node is None else self.node.SerializeToString(deterministic=True)
        return _restored, (self.op_type, self.version, self.opset, self.absent, node)

    def evaluated(self, arguments: Mapping[str, Any]) -> list[Any]:
        """The node's results, run as the model came; TypeError where they are drawn."""
        assert self.node is not None
        if self.op_type in RANDOM:
            raise TypeError(f"{self.op_type} draws its results, so there is nothing to compare")
        arrays: list[Any] = []
        for formal in self.schema.inputs:
            given = arguments.get(formal.name)
            arrays += list(given) if isinstance(given, tuple) else [given]
        return run_node(self.node, self.version, arrays[: len(self.node.input)])

    @property
    def summary(self) -> str:
        return f"ONNX's {self.op_type} of opset {self.version}"

    @property
    def signature(self) -> Signature:
        return Signature(())

    def at(self, site: Site, ignored: Sequence[str] = ()) -> Placeholder:  # noqa: ARG002
        return StandardOperator(self.op_type, self.version, self.opset, self.absent, site.node, self.passes)

    def stays(
        self, node: NodeProto, dtype_of: Callable[[str], int | None], known: Known | None = None
    ) -> bool:
        """Whether ``node`` may stay as it is, bytes and all."""
        if self.op_type in self.absent:
            return False
        if self.op_type in self.absent.sometimes and self.absent.reason(_use(node, self.opset, known)):
            return False
        if self._only_types is not None:
            inputs, outputs = self._only_types
            return _taken(node.input, inputs, dtype_of) and _taken(node.output, outputs, dtype_of)
        attributes = {item.name: item for item in node.attribute}
        types = [
            tuple(None if (dtype := dtype_of(name)) is None else TensorType(dtype) for name in names)
            for names in (node.input, node.output)
        ]
        given = tuple(bool(name) for name in node.input)
        use = schemas.Use(self.op_type, attributes, given, len(node.output), *types)
        found = schemas.same_form(use, self.version, self.opset)
        return not isinstance(found, str) and found.keys() == attributes.keys()

    def bound_at(self, site: Site) -> Bound:
        arguments: dict[str, Any] = {}
        refs = [
            Ref(name, site.type_of(i), site.constants.get(name) if _is_small(site.type_of(i)) else None)
            if name
            else None
            for i, name in enumerate(site.node.input)
        ]
        for position, formal in enumerate(self.schema.inputs):
            if formal.option == defs.OpSchema.FormalParameterOption.Variadic:
                arguments[formal.name] = tuple(refs[position:])
            elif position < len(refs):
                arguments[formal.name] = refs[position]
        for attribute in site.node.attribute:
            if attribute.type not in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
                name = attribute.name if attribute.name not in arguments else f"{attribute.name}_"
                arguments[name] = plain(helper.get_attribute_value(attribute))
        return Bound(arguments)

    def expanded_at(self, site: Site) -> Expansion:
        """What stands for ``site`` at the target; UnsupportedAtOpset where nothing does."""
        node = site.node
        attributes = {item.name: item for item in node.attribute}
        if any(item.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for item in node.attribute):
            raise UnsupportedAtOpset(
                f"{self.op_type} of this form does not exist at opset {self.opset}", where=site.where
            )
        g = Writer(self.opset, ir_version=site.ir_version, where=site.where)
        g.absent, g.passes = self.absent, self.passes
        inputs: list[Value | None] = []
        for position, name in enumerate(node.input):
            known = site.type_of(position)
            constant = site.constants.get(name) if name and _is_small(known) else None
            inputs.append(g.input(name, known, constant) if name else None)
        made = g.emit(
            self.op_type, inputs, len(node.output), attributes, self.version, site.wanted, site.outputs
        )
        if self.opset < _WRITTEN_FROM and not _is_plain(g, self.op_type):
            raise UnsupportedAtOpset(
                f"{self.op_type} has another form at opset {self.opset}, and forms are written from "
                f"{_WRITTEN_FROM} on",
                where=site.where,
            )
        wanted = site.wanted or tuple(bool(name) for name in node.output)
        for position, value in enumerate(made):
            if value is None and position < len(wanted) and wanted[position]:
                raise UnsupportedAtOpset(
                    f"no form of {self.op_type} at opset {self.opset} gives its output {position}",
                    where=site.where,
                )
        types = {v.name: v.type for v in g.values.values() if v.type is not None and v.name.startswith("%")}
        results = list(made[: len(node.output)])
        return Expansion(
            g.nodes,
            _used(g, results),
            ["" if value is None else value.name for value in results],
            [None if value is None else g.values[value.name].type for value in results],
            types,
            f"opset {self.opset}",
            f"opset {self.opset} has no such node",
            self.bound_at(site),
            {},
            tuple(g.conditions),
        )


def _use(node: NodeProto, version: int, known: Known | None) -> Use:
    """``node`` as profiles of runtimes are asked about it."""
    told: Any = {}
    if known is not None:
        told = {
            "type_of": lambda i: known.type_of(node.input[i]),
            "is_constant": lambda i: known.is_constant(node.input[i]),
        }
    return Use(
        node.op_type,
        version,
        {item.name: item for item in node.attribute},
        tuple(map(bool, node.input)),
        tuple(map(bool, node.output)),
        **told,
    )


def _taken(
    names: Sequence[str], allowed: Sequence[frozenset[int]], dtype_of: Callable[[str], int | None]
) -> bool:
    last = len(allowed) - 1
    for position, name in enumerate(names):
        dtype = dtype_of(name)
        if dtype is not None and dtype not in allowed[position if position < last else last]:
            return False
    return True


def _restored(op_type: str, version: int, opset: int, absent: Absent, node: bytes | None) -> StandardOperator:
    parsed = None if node is None else NodeProto.FromString(node)
    return StandardOperator(op_type, version, opset, absent, parsed)


def _used(g: Writer, results: Sequence[Value | None]) -> list[Any]:
    """The constants that something reads: arithmetic that was done at once leaves others."""
    read = {value.name for value in results if value is not None}
    waiting = list(g.nodes)
    while waiting:
        node = waiting.pop()
        read.update(node.input)
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                waiting.extend(attribute.g.node)
                read.update(item.name for item in attribute.g.output)
    return [tensor for tensor in g.initializers if tensor.name in read]


def _is_plain(g: Writer, op_type: str) -> bool:
    return len(g.nodes) == 1 and g.nodes[0].op_type == op_type


def _is_small(known: TensorType | None) -> bool:
    """Whether a value may be loaded, were it a constant."""
    if known is None or not known.is_static:
        return False
    size = 1
    for dim in known.shape or ():
        size *= int(dim or 0)
    return size <= _SMALL


def _output_name(schema: defs.OpSchema, index: int) -> str:
    if not schema.outputs:
        return f"output{index}"
    formal = schema.outputs[min(index, len(schema.outputs) - 1)]
    variadic = formal.option == defs.OpSchema.FormalParameterOption.Variadic
    return f"{formal.name}{index}" if variadic else formal.name
