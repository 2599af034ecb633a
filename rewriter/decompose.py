"""Replaces every placeholder of a model, in every scope, by its decomposition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onnx import FunctionProto

from rewriter.domains import normal_domain
from rewriter.errors import DecompositionError, OpsetError, UnsupportedAtOpset
from rewriter.graph.corrections import correct_types, told
from rewriter.graph.expanding import Region, Surroundings, expand_fully
from rewriter.graph.functions import Frames
from rewriter.graph.interface import (
    Interface,
    InventedDim,
    forget_invented_dims,
    input_symbols,
    name_invented_dims,
)
from rewriter.graph.kept import candidates, check_kept, unmatched_keep
from rewriter.graph.leftover import describe
from rewriter.graph.names import Names
from rewriter.graph.opsets import (
    all_nodes,
    check_opsets,
    clashes,
    import_default,
    remove_imports,
    require_opset,
    used_domains,
)
from rewriter.graph.outline import Outliner, whole
from rewriter.graph.scopes import FunctionKey, Scope, ScopeRef, function_key
from rewriter.graph.splice import Edit, apply
from rewriter.graph.survey import Call, Found, Keep, Survey, survey, unmatched_rules
from rewriter.graph.target import bring, moves, refusal
from rewriter.graph.templates import Table, Template
from rewriter.graph.twins import check_twins
from rewriter.graph.validate import check_inputs

if TYPE_CHECKING:
    from rewriter.errors import Where
    from rewriter.graph.frames import Frame
    from rewriter.graph.splice import Replacement
    from rewriter.placeholder.binding import Site
    from rewriter.placeholder.registry import Selection
    from rewriter.storage import ModelFile

__all__ = ["Decomposed", "Keep", "Region", "decompose"]


@dataclass
class Decomposed:
    """What was done to a model."""

    #: Everything that was replaced, in the order of the model.
    regions: list[Region] = field(default_factory=list)
    #: Operators that ``keep`` left in place: domain, operator, where.
    kept: list[tuple[str, str, Where]] = field(default_factory=list)
    #: Operators in domains that runtimes own: domain, operator, how many.
    runtime: list[tuple[str, str, int]] = field(default_factory=list)
    #: Passes that were named and took nothing.
    unmatched_passes: list[str] = field(default_factory=list)
    #: ``--bind`` rules that gave a pass nothing.
    unmatched_rules: list[str] = field(default_factory=list)
    #: Sentences about what was removed, corrected or assumed.
    warnings: list[str] = field(default_factory=list)
    #: Names of sizes that the exporter had made up, and what stands there now.
    invented_dims: list[InventedDim] = field(default_factory=list)
    #: Domains that are imported no more.
    dropped_opsets: list[str] = field(default_factory=list)
    #: The IR version that the model had, where functions needed a newer one.
    ir_version_before: int | None = None
    #: Whether the model differs from what it was.
    changed: bool = False
    #: Its inputs and outputs, without the names that the exporter made up.
    interface: Interface = field(default_factory=lambda: Interface((), ()))


def decompose(
    file: ModelFile,
    selection: Selection,
    keep: Keep | None = None,
    *,
    portable: bool = False,
    as_function: bool = False,
) -> Decomposed:
    """Replace all placeholders of ``file.model`` in place; ``as_function`` by calls to functions of their own names.

    With nothing to replace the model is not touched.  Raises OpsetError, LeftoverPlaceholderError, UsageError where an
    operator to be kept is not there, and whatever stops a pass; the model is then half done, and must not be used.
    """
    keep = keep or Keep()
    found = survey(file.model, selection, keep)
    check_opsets(found)
    check_inputs((item.scope, item.node) for root in found.live for item in root.found if item.match)
    left = [item for root in found.live for item in root.found if item.is_leftover]
    if left:
        raise describe(left, selection)
    check_twins(item for root in found.live for item in root.found)
    result = Decomposed(interface=Interface.of(file.model))
    _take_stock(result, found, selection)
    unmatched, known = unmatched_keep(found, keep), candidates(found)
    if not found.is_empty or moves(file.model, selection):
        result = _Run(file, found, selection, keep, portable, as_function, result).run()
    check_kept(file.model, unmatched, known)
    return result


class _Run:
    """One decomposition of one model."""

    def __init__(
        self,
        file: ModelFile,
        found: Survey,
        selection: Selection,
        keep: Keep,
        portable: bool,
        as_function: bool,
        result: Decomposed,
    ) -> None:
        self.file = file
        self.model = file.model
        self.survey = found
        self.selection = selection
        self.keep = keep
        self.portable = portable
        self.result = result
        self.functions = {function_key(function): function for function in file.model.functions}
        self.domains_before = used_domains(file.model)
        #: Finished specialisations by frame: the key of the function, and its regions.
        self._finished: dict[Frame, tuple[FunctionKey, list[Region]]] = {}
        #: Specialisations of each function by what they became, in order.
        self._copies: dict[FunctionKey, dict[bytes, FunctionProto]] = {}
        self._function_names = {(domain, name) for domain, name, _ in self.functions}
        #: Standard nodes that have no form at the target.
        self._refused: list[tuple[Where, DecompositionError]] = []
        self.outliner = Outliner(self.functions) if as_function else None
        self._templates = Table[Template]()

    def run(self) -> Decomposed:
        scopes = [scope for root in self.survey.roots for scope in root.scope.walk()]
        if any(item.match is not None for item in self.survey.found):
            self.result.invented_dims = forget_invented_dims(self.model, scopes)
            self.result.interface = Interface.of(self.model)
        frames = Frames(self.file, self.survey, self.selection, self.keep)
        frames.infer_main()
        self._correct_types(frames)
        names = Names.of_model(self.model, self.survey.main.scope)
        self.result.regions += self._rewrite(frames, frames.main, names, ScopeRef())
        self._rewrite_unused(frames)
        self._place_functions()
        self._place_outlined()
        self._drop_imports()
        self._bring()
        self.result.changed = True
        self.result.interface.check(self.model)
        return self.result

    # --- one frame ------------------------------------------------------------------------------------------

    def _rewrite(self, frames: Frames, frame: Frame, names: Names, ref: ScopeRef) -> list[Region]:
        """Replace everything in ``frame``; its regions, those of functions that it calls among them."""
        regions: list[Region] = []
        edits: dict[Scope, list[Edit]] = {}
        calls = {
            (call.scope, call.index): call for call in frame.root.calls if call.callee in self.survey.holding
        }
        sites: dict[tuple[Scope, int], Found | Call] = {
            **{(item.scope, item.index): item for item in frame.root.placeholders},
            **calls,
            **{(item.scope, item.index): item for item in _lacking(frames, frame)},
        }
        order = {scope: position for position, scope in enumerate(frame.root.scope.walk())}
        if frame.root.placeholders:
            require_opset(frame.root, self.survey)
        for (scope, index), site in sorted(sites.items(), key=lambda pair: (order[pair[0][0]], pair[0][1])):
            if isinstance(site, Call):
                regions += self._redirect(frames, frame, site)
                continue
            edits.setdefault(scope, [])
            if site.dead:
                self.result.warnings.append(f"{site.where}: its outputs are not used, it was removed")
                edits[scope].append(Edit(index, None))
                continue
            here = Surroundings(
                scope,
                ScopeRef(ref.function, scope.ref.steps),
                names,
                self.selection,
                self.keep,
                self.functions,
                self.portable,
                self._templates,
            )
            if site.node.device_configurations:
                self.result.warnings.append(
                    f"{site.where}: its device configuration does not fit what replaces it"
                )
            if site.standard:
                edits[scope] += self._lower(here, frames, frame, site, regions)
                continue
            replacement, made = self._expand(here, site, frames.site(frame, site))
            error = frame.errors.get(site)
            if (
                error is not None
                and not isinstance(error, (UnsupportedAtOpset,))
                and error.code != "needs-rank"
            ):
                raise error
            regions += made
            self.result.warnings += [
                f"{region.where}: its decomposition is right only where {' and '.join(region.conditions)}"
                for region in made
                if region.conditions
            ]
            edits[scope].append(Edit(index, replacement))
            self._import(frame, replacement.domains)
        as_nodes = not frame.is_main or self.model.ir_version < 4
        for scope, changes in edits.items():
            apply(scope.graph, changes, as_nodes=as_nodes, symbols=frames.symbols)
        return regions

    def _lower(
        self, here: Surroundings, frames: Frames, frame: Frame, found: Found, regions: list[Region]
    ) -> list[Edit]:
        """What the target has instead of a standard node; a refusal is noted, so that all are told at once."""
        try:
            replacement, made = expand_fully(here, found, frames.site(frame, found))
        except DecompositionError as error:
            if frame.root.scope.ref.function not in {None, *self.survey.used}:
                raise
            self._refused.append((found.where, error))
            return []
        regions += made
        return [Edit(found.index, replacement)]

    def _bring(self) -> None:
        """Import the target's opset; TargetError where nodes have no form there."""
        if self._refused:
            raise refusal(self._refused, self.selection)
        bring(self.model, self.selection)

    def _expand(self, here: Surroundings, found: Found, site: Site) -> tuple[Replacement, list[Region]]:
        if self.outliner is None:
            return expand_fully(here, found, site)
        complete = whole(site, here.names)
        replacement, regions = expand_fully(here, found, complete)
        outlined = self.outliner.outline(here, complete, site.node, replacement, regions)
        # Decomposed in place, it need not give what nobody reads.
        return expand_fully(here, found, site) if outlined is None else outlined

    def _redirect(self, frames: Frames, frame: Frame, call: Call) -> list[Region]:
        """Let ``call`` call the specialisation that it needs; the regions that this made."""
        callee = frames.of_call(frame, call)
        fresh = callee not in self._finished
        if fresh:
            self._finished[callee] = self._specialise(frames, callee, call.callee)
        key, regions = self._finished[callee]
        call.node.op_type = key[1]
        # onnx.checker does not let a call leave out results of a function that it knows.
        call.node.output.extend([""] * (len(callee.root.scope.graph.output) - len(call.node.output)))
        return regions if fresh else []

    def _note_clashes(self, frame: Frame, operators: list[str]) -> None:
        """Warn where a function cannot be read by the model's opset, as runtimes do."""
        if operators:
            told = (
                f"{frame.root.scope.path} is of opset {frame.root.scope.opset}, the model of "
                f"{self.survey.main.scope.opset}, and {', '.join(operators)} changed in between: runtimes read a "
                "function by the model's opset, so the file as it came does not run there; export both at one opset"
            )
            self.result.warnings += [told] if told not in self.result.warnings else []

    def _specialise(
        self, frames: Frames, frame: Frame, original: FunctionKey
    ) -> tuple[FunctionKey, list[Region]]:
        """Rewrite the copy that ``frame`` holds, and give it a name; equal copies share one."""
        function = frame.root.scope.graph
        assert isinstance(function, FunctionProto)
        import_default(function, frame.root.scope)
        opsets = frame.root.scope.opset, self.survey.main.scope.opset
        self._note_clashes(frame, clashes(all_nodes(function), *opsets))
        before = {node.domain for node in all_nodes(function)}
        regions = self._rewrite(frames, frame, Names.of_scope(frame.root.scope), ScopeRef(original))
        after = {normal_domain(node.domain) for node in all_nodes(function)}
        gone = [item.domain for item in function.opset_import if item.domain in before and item.domain]
        remove_imports(function, {domain for domain in gone if domain not in after})
        copies = self._copies.setdefault(original, {})
        body = function.SerializeToString(deterministic=True)
        if body not in copies:
            if copies:
                function.name = self._fresh_function(original)
            copies[body] = function
        key = function_key(copies[body])
        for region in regions:
            if region.scope.function == original:
                region.scope = ScopeRef(key, region.scope.steps)
        return key, regions

    def _fresh_function(self, original: FunctionKey) -> str:
        domain, name, _ = original
        count = 2
        while (domain, f"{name}__{count}") in self._function_names:
            count += 1
        self._function_names.add((domain, f"{name}__{count}"))
        return f"{name}__{count}"

    def _rewrite_unused(self, frames: Frames) -> None:
        """Functions that hold a placeholder and that nobody calls.

        They are decomposed as far as their defaults allow; one that cannot be goes, like any dead placeholder, since it
        cannot run and would make loaders ask for the operator.  Called from a training graph only, it stays as it is.
        """
        for key in self.functions:
            if key not in self.survey.holding or key in self._copies:
                continue
            label = self.survey.functions[key].scope.path
            if key in self.survey.training:
                self.result.warnings.append(
                    f"{label}: only a training graph calls it, its placeholders were left"
                )
                continue
            try:
                root = self.survey.functions[key]
                if any(item.is_leftover for item in root.found):
                    raise describe([item for item in root.found if item.is_leftover], self.selection)
                frame = frames.unused(key)
                self._finished[frame] = self._specialise(frames, frame, key)
                self.result.regions += self._finished[frame][1]
            except (DecompositionError, OpsetError) as error:
                self._copies[key] = {}
                self.result.warnings.append(
                    f"{label}: nobody calls it and it cannot be decomposed, it was removed: {error.what}"
                )

    def _place_functions(self) -> None:
        """Put the specialisations where the functions were."""
        if not self._copies:
            return
        finished: list[FunctionProto] = []
        for function in self.model.functions:
            copies = self._copies.get(function_key(function))
            finished += [function] if copies is None else copies.values()
        raw = [function.SerializeToString() for function in finished]
        del self.model.functions[:]
        for data in raw:
            self.model.functions.add().MergeFromString(data)

    def _place_outlined(self) -> None:
        """Add the functions that placeholders became, and raise the IR version to one that has such functions."""
        if self.outliner is None or not self.outliner.functions:
            return
        self.model.functions.extend(self.outliner.functions)
        if self.model.ir_version < self.outliner.ir_version:
            self.result.ir_version_before = self.model.ir_version
            self.model.ir_version = self.outliner.ir_version

    # --- declarations ---------------------------------------------------------------------------------------

    def _correct_types(self, frames: Frames) -> None:
        """Fill in the sizes whose invented names were forgotten, and mend declared types that cannot be."""
        main = frames.main
        scopes = list(self.survey.main.scope.walk())
        if self.result.invented_dims:
            name_invented_dims(self.result.invented_dims, scopes, main.types, input_symbols(self.model))
            self.result.interface = Interface.of(self.model)
        sites = main.sites(self.survey.holding)
        self.result.warnings += correct_types(main, sites, input_symbols(self.model))
        self.result.warnings += told(frames.faults)

    def _import(self, frame: Frame, domains: dict[str, int]) -> None:
        """Import what a decomposition uses besides the default domain."""
        owner = self.model if frame.is_main else frame.root.scope.graph
        present = {normal_domain(item.domain) for item in owner.opset_import}
        for domain, version in sorted(domains.items()):
            if domain and domain not in present:
                owner.opset_import.add(domain=domain, version=version)

    def _drop_imports(self) -> None:
        """Imports that only what was replaced needed."""
        now = used_domains(self.model)
        gone = {d for d in self.domains_before - now if d}
        self.result.dropped_opsets = [item.domain for item in self.model.opset_import if item.domain in gone]
        remove_imports(self.model, gone)


def _lacking(frames: Frames, frame: Frame) -> list[Found]:
    """The standard nodes of ``frame`` that the target lacks, now that types are known."""
    found: list[Found] = []
    for scope, suspects in frame.root.suspects.items():
        dtype_of, known = frame.dtypes(scope), frames.known(frame, scope)
        for index, node, match in suspects:
            resolved = node if frame.is_main else frame.resolved(node)
            if not match.placeholder.stays(resolved, dtype_of, known):
                wanted = tuple(bool(name) for name in node.output)
                found.append(Found(scope, index, node, match, wanted=wanted, standard=True))
    return found


def _take_stock(result: Decomposed, found: Survey, selection: Selection) -> None:
    """What stays and what was named in vain."""
    kept = [item for item in found.found if item.kept]
    result.kept = [(item.domain, item.node.op_type, item.where) for item in kept]
    counts: dict[tuple[str, str], int] = {}
    for root in found.roots:
        for operator, count in root.runtime.items():
            counts[operator] = counts.get(operator, 0) + count
    result.runtime = [(domain, op_type, count) for (domain, op_type), count in sorted(counts.items())]
    took = {item.match.placeholder.pass_name() for item in found.found if item.match is not None}
    result.unmatched_passes = sorted(selection.named - took)
    result.unmatched_rules = unmatched_rules(found.found, selection)
