"""Which combinations of case, opset, dtype, sizes and place a pass is run in."""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from onnx import defs

from rewriter.errors import DecompositionError
from rewriter.placeholder import Site, expand
from rewriter.placeholder.expand import precondition_holds
from rewriter.testing.models import PLACES, build
from rewriter.types import TensorType, dtype_from_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Case, Placeholder

LOWEST_OPSET = 11


@dataclass(frozen=True)
class Variant:
    """One run; ``decomposition`` None leaves the choice to the pass."""

    placeholder: Placeholder
    number: int
    dtype: str
    opset: int
    symbolic: bool
    place: str
    decomposition: str | None

    @property
    def case(self) -> Case:
        return list(self.placeholder.cases())[self.number]

    def __str__(self) -> str:
        sizes = "symbolic" if self.symbolic else "static"
        form = self.decomposition or "chosen"
        name = self.placeholder.pass_name()
        return f"{name}-{form}-opset{self.opset}-{self.dtype}-case{self.number}-{sizes}-{self.place}"


def variants(placeholder: Placeholder, *, full: bool = False) -> Iterator[Variant]:
    """The combinations to run: by default the opsets at which an emitted form changes, with the lowest and the newest,
    in the first two dtypes that differ in kind; ``full`` is every opset and dtype."""
    placeholder.validate()
    dtypes = placeholder.dtypes if full else _two(placeholder.dtypes)
    for number, case in enumerate(placeholder.cases()):
        case_dtypes = [d for d in dtypes if case.dtypes is None or d in case.dtypes]
        if not case_dtypes and case.dtypes:
            case_dtypes = [case.dtypes[0]]
        every = range(LOWEST_OPSET, defs.onnx_opset_version() + 1)
        for opset in every if full else sorted(_opsets_by_case(placeholder)[number]):
            low, high = case.opsets or (LOWEST_OPSET, defs.onnx_opset_version())
            if not low <= opset <= high:
                continue
            for dtype in case_dtypes:
                if not exists_at(dtype, opset):
                    continue
                for symbolic in (False, True) if case.symbolic else (False,):
                    for place in PLACES:
                        yield Variant(placeholder, number, dtype, opset, symbolic, place, None)
                    # With a single decomposition, the chosen one is it.
                    for form in placeholder.decompositions if len(placeholder.decompositions) > 1 else ():
                        if form.serves(opset):
                            yield Variant(placeholder, number, dtype, opset, symbolic, "graph", form.name)


def opsets_of_interest(placeholder: Placeholder) -> list[int]:
    """The lowest and newest opset, and each at which some case is written otherwise than one opset earlier."""
    return sorted(set().union(*_opsets_by_case(placeholder)))


@functools.cache
def _opsets_by_case(placeholder: Placeholder) -> list[set[int]]:
    return [_opsets_of(placeholder, case) for case in placeholder.cases()]


def _opsets_of(placeholder: Placeholder, case: Case) -> set[int]:
    low, high = case.opsets or (LOWEST_OPSET, defs.onnx_opset_version())
    dtype = placeholder.dtypes[0] if case.dtypes is None else case.dtypes[0]
    if "float32" in placeholder.dtypes and (case.dtypes is None or "float32" in case.dtypes):
        dtype = "float32"
    found = {low, high}
    for symbolic in (False, True) if case.symbolic else (False,):
        site = site_of(placeholder, case, dtype=dtype, opset=high, symbolic=symbolic)
        for form in placeholder.decompositions:
            first, last = max(low, form.opset), min(high, form.until or high)
            if first <= last:
                found |= {first} | _changes(placeholder, site, form.name, first, last)
    return found


def _changes(placeholder: Placeholder, site: Site, form: str, low: int, high: int) -> set[int]:
    """The opsets in (low, high] at which the form is written otherwise than one earlier.

    Found by halving, since forms change at few opsets and are not taken back.
    """
    if low >= high or _written(placeholder, site, form, low) == _written(placeholder, site, form, high):
        return set()
    if high - low == 1:
        return {high}
    middle = (low + high) // 2
    return _changes(placeholder, site, form, low, middle) | _changes(placeholder, site, form, middle, high)


def only(placeholder: Placeholder, name: str | None) -> Placeholder:
    """The same pass with one decomposition, whatever it prefers; with all for None."""
    if name is None:
        return placeholder
    forced = copy.copy(placeholder)
    forced.__dict__["decompositions"] = tuple(
        replace(form, when=None) for form in placeholder.decompositions if form.name == name
    )
    return forced


def site_of(placeholder: Placeholder, case: Case, *, dtype: str, opset: int, symbolic: bool) -> Site:
    """The case's placeholder as a decomposition sees it in the main graph."""
    built = build(placeholder, case, dtype=dtype, opset=opset, symbolic=symbolic, place="graph")
    types = {info.name: TensorType.from_proto(info.type) for info in built.model.graph.input}
    node = built.model.graph.node[0]
    return Site(
        node, tuple(types.get(name) for name in node.input), opset=opset, ir_version=built.model.ir_version
    )


def applies(
    placeholder: Placeholder, case: Case, *, dtype: str, opset: int, symbolic: bool, form: str
) -> bool:
    """Whether the decomposition's own precondition holds for the case."""
    item = next(d for d in placeholder.decompositions if d.name == form)
    site = site_of(placeholder, case, dtype=dtype, opset=opset, symbolic=symbolic)
    return precondition_holds(placeholder, item, site)


def _written(placeholder: Placeholder, site: Site, form: str, opset: int) -> object:
    try:
        made = expand(placeholder, replace(site, opset=opset), force=form)
    except DecompositionError as error:
        return type(error)
    return [(n.op_type, len(n.input), tuple(a.name for a in n.attribute)) for n in made.nodes]


def exists_at(dtype: str, opset: int) -> bool:
    """Whether ONNX has tensors of the dtype at the opset (bfloat16 came with 13)."""
    allowed = next(iter(defs.get_schema("Identity", opset, "").type_constraints)).allowed_type_strs
    name = {"float32": "float", "float64": "double"}.get(dtype, dtype)
    assert dtype_from_name(dtype)
    return f"tensor({name})" in allowed


def _two(dtypes: tuple[str, ...]) -> tuple[str, ...]:
    preferred = [d for d in ("float32", "float16", "int64") if d in dtypes]
    return tuple(preferred[:2]) or dtypes[:2]
