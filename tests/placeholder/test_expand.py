"""The choice among decompositions, and the faults of a pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from rewriter.errors import (
    DecompositionFault,
    NeedsRank,
    PassDefinitionError,
    UnsupportedAtOpset,
    UnsupportedParameter,
)
from rewriter.placeholder import (
    Builder,
    Case,
    Placeholder,
    Site,
    Value,
    decomposition,
    expand,
    f32,
    infer_types,
)
from rewriter.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Iterator


class Several(Placeholder):
    """Four ways to write the same."""

    matches = ("Several",)
    outputs = ("y", "extra")

    def reference(self, x: Any, fast: Any = False) -> Any:
        return x, x

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2))

    @decomposition()
    def general(self, g: Builder, x: Value, fast: bool = False) -> Any:
        return g.identity(x), g.identity(x) if g.wants("extra") else None

    @decomposition(opset=20, portable=False)
    def newer(self, g: Builder, x: Value, fast: bool = False) -> Any:
        return g.op("Gelu", x), x

    @decomposition(when=lambda x, fast: fast, reason="asked for")
    def quick(self, g: Builder, x: Value, fast: bool = False) -> Any:
        return g.relu(x), x

    @decomposition(when=lambda x, fast: x.size(0) == 7, requires=lambda x, fast: x.is_static)
    def needs_size(self, g: Builder, x: Value, fast: bool = False) -> Any:
        raise NeedsRank("never mind")


def site(
    opset: int, shape: tuple[Any, ...] | None = (2,), outputs: tuple[str, ...] = ("y",), **attributes: Any
) -> Site:
    node = helper.make_node("Several", ["x"], list(outputs), domain="com.example", **attributes)
    return Site(node, (TensorType(TensorProto.FLOAT, shape),), opset=opset)


PASS = Several()


def chosen(at: Site, **options: Any) -> str:
    return expand(PASS, at, **options).decomposition


def test_a_preference_comes_first_then_the_higher_opset() -> None:
    assert chosen(site(13)) == "general"
    assert chosen(site(20)) == "newer"
    assert chosen(site(13, fast=1)) == "quick"
    assert chosen(site(20, fast=1)) == "quick"
    assert expand(PASS, site(20, fast=1)).reason == "asked for"


def test_portable_restricts_the_choice() -> None:
    assert chosen(site(20), portable=True) == "general"


def test_a_form_that_cannot_serve_leaves_the_node_to_the_next() -> None:
    assert chosen(site(13, (7,))) == "general"
    assert chosen(site(13, ("n",))) == "general"
    assert chosen(site(13, None)) == "general"


def test_force() -> None:
    assert chosen(site(13), force="quick") == "quick"
    with pytest.raises(UnsupportedParameter, match="no decomposition 'slow'"):
        chosen(site(13), force="slow")
    with pytest.raises(NeedsRank):
        chosen(site(13), force="needs_size")


def test_outputs_that_are_not_used_are_not_made() -> None:
    assert len(expand(PASS, site(13)).nodes) == 1
    made = expand(PASS, site(13, outputs=("y", "extra")))
    assert len(made.nodes) == 2
    assert len(made.outputs) == 2


def test_types_come_from_a_decomposition_or_from_infer() -> None:
    assert infer_types(PASS, site(13, ("n", 3))) == [TensorType(TensorProto.FLOAT, ("n", 3))]

    class Declares(Several):
        def infer(self, x: Value, fast: bool = False) -> Any:
            return TensorType(x.dtype, ("m",))

    assert infer_types(Declares(), site(13, ("n",))) == [TensorType(TensorProto.FLOAT, ("m",))]
    assert expand(Declares(), site(13, (4,))).output_types == [TensorType(TensorProto.FLOAT, (4,))]

    class Lies(Several):
        def infer(self, x: Value, fast: bool = False) -> Any:
            return TensorType(x.dtype, (9,))

    with pytest.raises(DecompositionFault, match="declares a result of type"):
        expand(Lies(), site(13, (4,)))


def with_body(result: Any) -> Placeholder:
    class Faulty(Placeholder):
        """A pass with a fault."""

        matches = ("Several",)

        def reference(self, x: Any) -> Any:
            return x

        def cases(self) -> Iterator[Case]:
            yield Case(f32(2))

        def decompose(self, g: Builder, x: Value) -> Any:
            return result(g, x)

    return Faulty()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (lambda g, x: None, "gives 0 outputs, the node uses 1"),
        (lambda g, x: (x, x), "gives 2 results, the pass declares 1"),
        (lambda g, x: "y", "returned str"),
        (lambda g, x: x.nothing, "raised AttributeError"),
        (lambda g, x: Builder(13).input("x", x.type), None),
        (lambda g, x: Builder(13).const(1.0, x), "not a value of its builder"),
    ],
)
def test_faults_of_a_pass_name_it(body: Any, says: str | None) -> None:
    if says is None:
        expand(with_body(body), site(13))
        return
    with pytest.raises(DecompositionFault, match=says) as caught:
        expand(with_body(body), site(13))
    assert "Several" in str(caught.value) or "faulty" in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda x: x.nothing, "infer.* raised AttributeError"),
        (lambda x: 1 / 0, "infer.* raised ZeroDivisionError"),
        (lambda x: "float32", "infer.* returned str, not a type"),
        (lambda x: [x], "infer.* returned Value, not a type"),
    ],
)
def test_a_fault_of_infer_names_the_pass(answer: Any, says: str) -> None:
    class Faulty(Several):
        def infer(self, x: Value, fast: bool = False) -> Any:
            return answer(x)

    for ask in (expand, infer_types):
        with pytest.raises(DecompositionFault, match=says) as caught:
            ask(Faulty(), site(13))
        assert "'faulty'" in str(caught.value)


@pytest.mark.parametrize("which", ["when", "requires"])
def test_a_fault_of_a_condition_names_the_decomposition(which: str) -> None:
    class Faulty(Placeholder):
        """A pass whose condition fails."""

        matches = ("Several",)

        def reference(self, x: Any) -> Any:
            return x

        def cases(self) -> Iterator[Case]:
            yield Case(f32(2))

        @decomposition(**{which: lambda x: x.shape["n"] > 1}, reason="never")
        def chosen(self, g: Builder, x: Value) -> Any:
            return x

    with pytest.raises(
        DecompositionFault, match=f"`{which}` of decomposition 'chosen' .*'faulty'.*TypeError"
    ):
        expand(Faulty(), site(13))


def test_opsets_that_nothing_serves() -> None:
    class Late(Several):
        general = quick = needs_size = None  # type: ignore[assignment]

    with pytest.raises(UnsupportedAtOpset, match="has decompositions from opset 20, the model has opset 13"):
        expand(Late(), site(13))


def test_decompositions_of_one_operator_have_one_signature() -> None:
    class Contradicts(Several):
        @decomposition()
        def other(self, g: Builder, x: Value) -> Any:
            return x

    with pytest.raises(PassDefinitionError, match="'other' declares other parameters"):
        Contradicts().validate()


def test_a_decomposition_may_name_only_what_it_uses() -> None:
    class Partial(Several):
        quick = None  # type: ignore[assignment]

        @decomposition(when=lambda fast, **_: fast)
        def brief(self, g: Builder, fast: bool, **_: Any) -> Any:
            return g.const(np.full((), fast, np.float32)), None

        def infer(self, fast: bool, **_: Any) -> Any:
            return TensorType(TensorProto.FLOAT, ()) if fast else None

    made = Partial()
    made.validate()
    assert made.signature == PASS.signature
    assert expand(made, site(13, fast=1)).decomposition == "brief"
    assert infer_types(made, site(13, fast=1)) == [TensorType(TensorProto.FLOAT, ())]


def test_what_it_names_is_the_operators() -> None:
    class Unknown(Several):
        @decomposition()
        def other(self, g: Builder, slow: bool, **_: Any) -> Any:
            return slow

    class OtherKind(Several):
        @decomposition()
        def other(self, g: Builder, fast: float, **_: Any) -> Any:
            return fast

    class OtherDefault(Several):
        @decomposition()
        def other(self, g: Builder, fast: bool = True, **_: Any) -> Any:
            return fast

    for kind, name in ((Unknown, "slow"), (OtherKind, "fast"), (OtherDefault, "fast")):
        with pytest.raises(PassDefinitionError, match=f"'other' declares '{name}'"):
            kind().validate()


def test_one_of_them_declares_everything() -> None:
    class Nobody(Placeholder):
        matches = ("Nobody",)
        reference = cases = Several.reference

        def decompose(self, g: Builder, x: Value, **_: Any) -> Any:
            return x

    with pytest.raises(PassDefinitionError, match="no decomposition declares all parameters"):
        Nobody().validate()
