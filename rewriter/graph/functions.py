"""Frames: the main graph, and each function in each way in which it is called.

A placeholder in a function depends on attribute values and input types that only a call knows.  So a function that
holds one, directly or through a call, is specialised for each distinct set of attribute values (defaults included),
input types, and constant inputs that reach a placeholder or another such call.  A function that holds none is left
alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import FunctionProto, TypeProto

from rewriter.domains import since_version
from rewriter.errors import CyclicDecompositionError, DecompositionError, DecompositionFault, RewriteError
from rewriter.graph import inference, runtime_types
from rewriter.graph.aliases import readable_names
from rewriter.graph.folding import fold
from rewriter.graph.frames import Frame, Types
from rewriter.graph.hooks import hooked
from rewriter.graph.interface import dims_of, input_symbols
from rewriter.graph.lift import lifted_version
from rewriter.graph.nesting import is_nested_too_much
from rewriter.graph.runtime_types import SAME_AS_FIRST_INPUT
from rewriter.graph.scopes import FunctionKey, Scope, function_scope
from rewriter.graph.survey import Call, Found, Keep, Root, Survey, survey_root
from rewriter.graph.templates import Table, likeness
from rewriter.graph.types import contradicts, refine, without_made_up, without_sizes, wrong_sizes
from rewriter.placeholder.binding import Site
from rewriter.placeholder.contract import Known
from rewriter.placeholder.expand import infer_types
from rewriter.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onnx import AttributeProto
    from onnx.shape_inference import InferenceContext

    from rewriter.placeholder.registry import Match, Selection
    from rewriter.storage import ModelFile

#: Deepest nesting of calls that is followed.
_MAX_DEPTH = 64
#: Largest constant argument (in bytes) that a function is specialised for.
_MAX_CONSTANT = 1024

#: Nodes that are inferred at most, over all rounds of one frame.
_MAX_WORK = 500_000
#: Specialisations that are made at most, over all functions.
_MAX_FRAMES = 5_000


class Frames:
    """Makes the frames of one model, each once, and infers their types; see :meth:`open`."""

    def __init__(self, file: ModelFile, found: Survey, selection: Selection, keep: Keep) -> None:
        self.file = file
        self.survey = found
        self.selection = selection
        self.keep = keep
        self.symbols = input_symbols(file.model)
        self.main = Frame(found.main)
        #: Functions whose calls are inferred here, once for each distinct way of calling them, and not by onnx.
        self._asked = found.holding
        if is_nested_too_much(file.model):
            self._asked |= found.functions.keys()
        self._functions = {scope.scope.ref.function: scope.scope.graph for scope in found.functions.values()}
        self._made: dict[tuple[Any, ...], Frame] = {}
        self._open: list[tuple[Frame, list[Found | Call]]] = []
        self._interrupts: list[BaseException] = []
        #: What passes inferred, and types as they are read: each once.
        self._inferred = Table[Sequence[TensorType | None]]()
        self._read = Table[TensorType]()
        self._reads = {key: _inputs_that_matter(root, found.holding) for key, root in found.functions.items()}

    def infer_main(self) -> None:
        """Infer the main graph with all bodies, and the frames that it calls."""
        with self._hooked():
            self._infer(self.main)

    def of_call(self, caller: Frame, call: Call) -> Frame:
        """The specialisation that ``call`` needs in ``caller``; made and inferred unless it is there already."""
        types = caller.seen.get(call) or [
            _proto(self.type_of(caller, call.scope, name)) for name in call.node.input
        ]
        return self._frame(caller, call, types)

    def unused(self, key: FunctionKey) -> Frame:
        """A function that nobody calls: attributes at their defaults, types unknown."""
        function = self._function(key)
        return self._make(
            key, {a.name: a for a in function.attribute_proto}, [None] * len(function.input), {}
        )

    def type_of(self, frame: Frame, scope: Scope, name: str) -> TensorType | None:
        """What is known of value ``name`` as seen from ``scope``, after inference or as declared."""
        place: Scope | None = scope
        while place is not None:
            known = frame.types(place)
            if name in known:
                return without_made_up(known[name], self.symbols)
            place = place.parent
        return None

    def known(self, frame: Frame, scope: Scope) -> Known:
        """What is known of values as seen from ``scope``."""
        return Known(
            lambda name: self.type_of(frame, scope, name) if name else None,
            lambda name: frame.constants(self.file, scope).holds(name),
        )

    def site(self, frame: Frame, found: Found, types: Sequence[TypeProto | None] | None = None) -> Site:
        """What a pass is told of a placeholder."""
        if types is None:
            types = frame.seen.get(found)
        node = frame.resolved(found.node)
        known: list[TensorType | None]
        if types is None:
            known = [self.type_of(frame, found.scope, name) if name else None for name in node.input]
        else:
            known = [self._type(proto) for proto in types]
        return Site(
            node,
            tuple(known),
            frame.constants(self.file, found.scope),
            opset=self.opset(found.scope),
            ir_version=self.file.model.ir_version,
            where=found.where,
            wanted=found.wanted,
            outputs=tuple(self.type_of(frame, found.scope, name) if name else None for name in node.output)
            if found.standard
            else (),
        )

    def _type(self, proto: TypeProto | None) -> TensorType | None:
        """The type in ``proto``, without names that inference made up."""
        if proto is None:
            return None
        raw = proto.SerializeToString(deterministic=True)
        known = self._read.get(raw)
        if known is None:
            known = without_made_up(TensorType.from_proto(proto), self.symbols)
            if known is not None:
                self._read.keep(raw, known)
        return known

    def opset(self, scope: Scope) -> int:
        """The version of the default domain that what stands in ``scope`` is written in."""
        standard = self.selection.standard
        return (scope.opset or 0) if standard is None else standard.opset

    # --- inference ------------------------------------------------------------------------------------------

    def _operators(self) -> set[tuple[str, str, int]]:
        found: set[tuple[str, str, int]] = set()
        for root in self.survey.roots:
            for item in root.found:
                if item.match is not None:
                    version = lifted_version(item.domain, item.scope.opsets.get(item.domain, 1))
                    found.add((item.domain, item.node.op_type, version))
            for call in root.calls:
                if call.callee in self._asked:
                    domain, name, _ = call.callee
                    found.add((domain, name, lifted_version(domain, call.scope.opsets.get(domain, 1))))
        return found

    @contextmanager
    def _hooked(self) -> Iterator[None]:
        """While this lasts, onnx's inference asks about placeholders, and knows some operators of runtimes."""
        with (
            hooked(self._operators(), self._hook),
            hooked(self._of_runtimes(), runtime_types.infer),
        ):
            yield

    def _of_runtimes(self) -> set[tuple[str, str, int]]:
        return (
            {
                (domain, op_type, root.scope.opsets.get(domain, 1))
                for root in self.survey.roots
                for domain, op_type in root.runtime
                if op_type in SAME_AS_FIRST_INPUT.get(domain, ())
            }
            | {
                ("", node.op_type, since_version(node.op_type, scope.opset or 0))
                for root in self.survey.roots
                for scope, suspects in root.suspects.items()
                for _, node, _ in suspects
                if node.op_type in SAME_AS_FIRST_INPUT[""]
            }
            | self._plain_of_same_type()
        )

    def _plain_of_same_type(self) -> set[tuple[str, str, int]]:
        """Operators that stay, and whose types shape inference does not tell to those that go."""
        if self.selection.standard is None:
            return set()
        return {
            ("", op_type, since_version(op_type, version or 0))
            for root in self.survey.roots
            for domain, op_type, version in root.plain
            if not domain and op_type in SAME_AS_FIRST_INPUT[""]
        }

    def _infer(self, frame: Frame) -> None:
        given = frame.given
        copy = self._settle(frame, forget_declared=False)
        if frame.contradicted or frame.contradictory:
            # A declared type is wrong, and with it whatever has been concluded from declared types.
            frame.forget(given)
            copy = self._settle(frame, forget_declared=True)
        frame.copy = copy
        frame.outputs = copy.outputs()

    def _settle(self, frame: Frame, *, forget_declared: bool) -> inference.Copy:
        """Infer until nothing more is to be had, or until a declared type turns out to be wrong that was believed."""
        copy, sites = self._prepare(frame, forget_declared=forget_declared)
        self._run(frame, copy, sites)
        rounds = _MAX_WORK // (len(copy.source.graph.node) + 1)
        while rounds > 0 and copy.failure is None and not self._is_complete(frame, sites):
            if (frame.contradicted or frame.contradictory) and not forget_declared:
                break
            made = fold(copy.source.graph, copy.model.graph)
            if not made:
                break
            frame.know(made)
            self._run(frame, copy, sites)
            rounds -= 1
        return copy

    def _is_complete(self, frame: Frame, sites: Sequence[Found | Call]) -> bool:
        """Whether every pass was content, and every size of every input of a placeholder has a number or a name."""
        if frame.errors:
            return False
        for site in sites:
            for proto, name in zip(frame.seen.get(site) or (), site.node.input, strict=False):
                known = self._type(proto)
                if name and (known is None or known.shape is None or None in known.shape):
                    return False
        return True

    def _prepare(self, frame: Frame, *, forget_declared: bool) -> tuple[inference.Copy, list[Found | Call]]:
        """A copy to be inferred, with what the hook is to be asked about."""
        scope = frame.root.scope
        asked = self._asked
        if frame.is_main:
            copy = inference.copy_main(self.file, scope, asked, frame.root.domains)
        else:
            copy = inference.copy_function(
                self.file, scope, frame.inputs, frame.attributes, asked, frame.root.domains
            )
        sites = frame.sites(asked)
        forgotten: dict[Scope, set[str]] = {}
        for number, site in enumerate(sites):
            copy.mark(site.scope, site.index, number)
            forgotten.setdefault(site.scope, set()).update(site.node.output)
            if frame.no_tensors(site.scope).intersection(site.node.output):
                frame.contradictory = True
        for place in scope.walk():
            if forget_declared:
                copy.forget(place)
            elif place in forgotten:
                copy.forget(place, forgotten[place])
        return copy, sites

    def _run(self, frame: Frame, copy: inference.Copy, sites: list[Found | Call]) -> None:
        def begin() -> None:
            frame.seen.clear()
            frame.errors.clear()

        begin()
        self._open.append((frame, sites))
        try:
            frame.faults = inference.run(copy, self._interrupts, begin)
        finally:
            self._open.pop()
        frame.contradictory = frame.contradictory or bool(frame.faults)

    @property
    def faults(self) -> list[str]:
        """What onnx minds in the types of the model's own nodes, in its words, in every frame."""
        found = [fault for frame in (self.main, *self._made.values()) for fault in frame.faults]
        return list(dict.fromkeys(found))

    def _hook(self, context: InferenceContext) -> None:
        """Called by onnx for every marked node; whatever it raised would end inference."""
        try:
            number = context.get_attribute(inference.SITE)
            if number is None or not self._open or self._interrupts:
                return
            frame, sites = self._open[-1]
            site = sites[number.i]
            types = inference.context_types(context)
            if site in frame.seen:
                types = [inference.merge_protos(a, b) for a, b in zip(frame.seen[site], types, strict=False)]
            frame.seen[site] = types
            answer = (
                self._call(frame, site, types)
                if isinstance(site, Call)
                else self._placeholder(frame, site, types)
            )
            for index, proto in enumerate(answer[: context.get_num_outputs()]):
                if proto is not None:
                    context.set_output_type(index, proto)
        except BaseException as error:  # noqa: BLE001  (kept, and raised when onnx has returned)
            self._interrupts.append(error)

    def _placeholder(self, frame: Frame, found: Found, types: Types) -> Types:
        assert found.match is not None
        inferred: Sequence[TensorType | None] = ()
        try:
            inferred = self._infer_types(found.match, self.site(frame, found, types))
        except RewriteError as error:
            frame.errors.setdefault(found, error)
        except Exception as error:  # noqa: BLE001  (a pass is anybody's code)
            name = found.match.placeholder.pass_name()
            fault = DecompositionFault(
                f"infer() of pass '{name}' raised {type(error).__name__}: {error}", where=found.where
            )
            frame.errors.setdefault(found, fault)
        declared = frame.declared(found.scope)
        answer: Types = []
        for index, name in enumerate(found.node.output):
            new = inferred[index] if index < len(inferred) else None
            old = declared.get(name)
            if contradicts(new, old, self.symbols):
                frame.wrong_sizes |= wrong_sizes(new, old, self.symbols)
                if found not in frame.contradicted:
                    frame.contradicted.append(found)
            old = without_sizes(old, frame.wrong_sizes)
            answer.append(_proto(without_made_up(refine(new, old, self.symbols), self.symbols)))
        return answer

    def _infer_types(self, match: Match, site: Site) -> Sequence[TensorType | None]:
        """What a pass says of the outputs; asked once where it cannot tell two placeholders apart."""
        key = likeness(match, site)
        known = self._inferred.get(key)
        if known is None:
            plain, _ = readable_names(site)
            exact = match.at(plain)
            known = infer_types(exact.placeholder, plain, match=exact)
            self._inferred.keep(key, known)
        return known

    def _call(self, frame: Frame, call: Call, types: Types) -> Types:
        if call.callee not in self.survey.holding and (
            len(self._open) > _MAX_DEPTH or len(self._made) >= _MAX_FRAMES
        ):
            return []  # nothing in it is replaced: its types may stay unknown
        answer = self._frame(frame, call, types).outputs
        declared = frame.declared(call.scope)
        for name, proto in zip(call.node.output, answer, strict=False):
            if contradicts(TensorType.from_proto(proto), declared.get(name)):
                frame.contradictory = True
        return answer

    # --- frames ---------------------------------------------------------------------------------------------

    def _frame(self, caller: Frame, call: Call, types: Types) -> Frame:
        function = self._function(call.callee)
        node = caller.resolved(call.node)
        attributes = {a.name: a for a in function.attribute_proto}
        declared = {*attributes, *function.attribute}
        attributes |= {a.name: a for a in node.attribute if a.name in declared}
        constants = caller.constants(self.file, call.scope)
        given: dict[str, Any] = {}
        for name, argument in zip(function.input, node.input, strict=False):
            value = constants.get(argument) if argument and name in self._reads[call.callee] else None
            if value is not None and value.dtype != object and value.nbytes <= _MAX_CONSTANT:
                given[name] = np.asarray(value)
        return self._make(call.callee, attributes, types, given)

    def _make(
        self,
        key: FunctionKey,
        attributes: Mapping[str, AttributeProto],
        types: Types,
        given: Mapping[str, Any],
    ) -> Frame:
        inputs = [_clean(proto) for proto in types]
        identity = (
            key,
            tuple(sorted((name, a.SerializeToString(deterministic=True)) for name, a in attributes.items())),
            tuple(None if proto is None else proto.SerializeToString(deterministic=True) for proto in inputs),
            tuple(sorted((name, str(v.dtype), v.shape, v.tobytes()) for name, v in given.items())),
        )
        frame = self._made.get(identity)
        if frame is not None:
            return frame
        self._refuse_recursion(key)
        if len(self._made) >= _MAX_FRAMES:
            raise DecompositionError(
                f"functions that hold placeholders are called in more than {_MAX_FRAMES} different ways",
                where=f"function {key[0]}::{key[1]}",
                remedy="each way needs a copy of the function: inline the functions, or export fewer variants",
            )
        original = self._function(key)
        copy = FunctionProto()
        copy.CopyFrom(original)
        scope = function_scope(copy, self.survey.functions[key].scope.opsets)
        root = survey_root(scope, self._functions, self.selection, self.keep)  # type: ignore[arg-type]
        inputs += [None] * (len(original.input) - len(inputs))
        frame = Frame(root, attributes, inputs, given)
        with nullcontext() if self._open else self._hooked():
            self._infer(frame)
        self._made[identity] = frame
        return frame

    def _refuse_recursion(self, key: FunctionKey) -> None:
        chain = [frame.root.scope.ref.function for frame, _ in self._open if not frame.is_main]
        if key in chain:
            names = " → ".join(f"{k[0]}::{k[1]}" for k in [*chain[chain.index(key) :], key] if k is not None)
            raise CyclicDecompositionError(
                f"functions call one another in a circle: {names}",
                remedy="ONNX functions cannot be recursive: export the model again",
            )
        if len(chain) >= _MAX_DEPTH:
            raise DecompositionError(
                f"functions are nested more than {_MAX_DEPTH} deep", where=f"function {key[0]}::{key[1]}"
            )

    def _function(self, key: FunctionKey) -> FunctionProto:
        function = self._functions[key]
        assert isinstance(function, FunctionProto)
        return function


def _inputs_that_matter(root: Root, holding: frozenset[FunctionKey]) -> frozenset[str]:
    """Names that a placeholder, or a call of a function that holds one, reads."""
    sites: list[Found | Call] = [*root.placeholders, *(call for call in root.calls if call.callee in holding)]
    return frozenset(name for site in sites for name in site.node.input)


def _proto(known: TensorType | None) -> TypeProto | None:
    return None if known is None else known.to_proto()


def _clean(proto: TypeProto | None) -> TypeProto | None:
    """Without the names that inference made up: they would tell apart what is equal."""
    if proto is None:
        return None
    copy = TypeProto()
    copy.CopyFrom(proto)
    for _, dim in dims_of(copy):
        if isinstance(dim.dim_param, str) and dim.dim_param.startswith("unk__"):
            dim.Clear()
    return copy
