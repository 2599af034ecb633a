"""Something is wrong on purpose, at each stage: the stage and the node are named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper

import rewriter
import rewriter.simplify
from rewriter.errors import MismatchError
from rewriter.execution.session import Session
from rewriter.placeholder import Case, Ints, Placeholder, Value, f32
from tests.against import nets
from tests.against.conftest import args, batch
from tests.texts import parse


def blamed(model, against=None, **options):
    """What a failing run says."""
    options.setdefault("simplify", False)
    with pytest.raises(MismatchError) as caught:
        rewriter.rewrite(model, against=against, **options)
    report = caught.value.report.to_dict()
    assert report["outcome"] == "failed"
    assert report["verification"]["verdict"] == "failed"
    blame = report["verification"]["blame"]
    assert caught.value.blame.to_dict() == blame
    return caught.value, blame


def changed(model, change):
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    change(copy.graph)
    return copy


def node_of(graph, op_type):
    return next(node for node in graph.node if node.op_type == op_type)


# --- the export ------------------------------------------------------------------------------------------------


def test_a_module_that_changed_after_its_export(model):
    error, blame = blamed(model, nets.rescaled())
    assert blame["stage"] == "export"
    assert blame["operator"] == "Mul"
    assert blame["node"] == node_of(model.graph, "Mul").name
    assert blame["scope"] == "main graph"
    lines = Path(nets.__file__).read_text(encoding="utf-8").splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "h * self.scale" in text)
    assert blame["line"].endswith(f"nets.py:{line}")
    assert "before it agrees" in blame["detail"]
    assert "export it again" in error.remedy


def test_an_archive_with_other_weights(model, tmp_path):
    path = tmp_path / "other.pt2"
    torch.export.save(torch.export.export(nets.untrained().eval(), args(), dynamic_shapes=batch()), path)
    _, blame = blamed(model, path)
    assert (blame["stage"], blame["operator"]) == ("export", "Gemm")


def test_a_constant_that_was_folded_wrongly(model):
    def change(graph):
        constant = next(
            t for t in graph.initializer if list(t.dims) == [] and numpy_helper.to_array(t) == 2.0
        )
        constant.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(constant) + 0.5, constant.name))

    _, blame = blamed(changed(model, change), nets.Net())
    assert (blame["stage"], blame["operator"]) == ("export", "Mul")


def test_a_wrong_parameter_of_a_placeholder_is_the_exports(model):
    def change(graph):
        attribute = next(a for a in node_of(graph, "Roll").attribute if a.name == "shifts")
        attribute.CopyFrom(helper.make_attribute("shifts", 2))

    _, blame = blamed(changed(model, change), nets.Net())
    # The captured program has a roll where the file has the placeholder; the next value that both have is the norm.
    assert blame["stage"] == "export"
    assert blame["operator"] == "LayerNormalization"
    assert "'relu'" in blame["detail"]
    assert "could not be compared" in blame["detail"]


def test_the_torchscript_exporter_names_modules_only(traced):
    def change(graph):
        weight = next(t for t in graph.initializer if t.name == "norm.weight")
        weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * 2, weight.name))

    _, blame = blamed(changed(traced, change), nets.Net())
    assert blame["stage"] == "export"
    assert blame["node"].startswith("/norm/")
    assert "'/linear/Gemm_output_0'" in blame["detail"]


def test_what_torch_export_cannot_capture_is_said(model):
    class Odd(nets.Net):
        def forward(self, x, other):
            if float(x.sum()) > 1e9:  # a branch on a value
                return super().forward(other, x)
            return super().forward(x + float(x.sum()) * 0, other * 2)

    _, blame = blamed(model, Odd())
    assert blame["stage"] == "export"
    assert blame["node"] == ""
    assert "shows no inner values" in blame["detail"]


# --- the decompositions ----------------------------------------------------------------------------------------


class WrongRoll(Placeholder):
    """Rolls the other way."""

    name = "roll"
    matches = ("Roll",)

    def reference(self, x, shifts, dims):
        return torch.roll(x, shifts, dims)

    def decompose(self, g, x: Value, shifts: Ints, dims: Ints):
        return self.rolled(g, x, -shifts[0], dims[0])

    def rolled(self, g, x, shift, dim):
        size = x.size(dim)
        return g.gather(x, [(i - shift) % size for i in range(size)], axis=dim)

    def cases(self):
        yield Case(f32(2, 3), shifts=(1,), dims=(1,))


def test_a_wrong_decomposition_without_a_whole_model(model):
    _, blame = blamed(model, passes=[WrongRoll()])
    assert (blame["stage"], blame["operator"]) == ("decomposition", "com.example::Roll")
    assert blame["node"] == node_of(model.graph, "Roll").name
    assert "nets.py" in blame["line"]


def test_a_wrong_decomposition_is_found_before_the_whole_model(model):
    _, blame = blamed(model, nets.Net(), passes=[WrongRoll()])
    assert (blame["stage"], blame["operator"]) == ("decomposition", "com.example::Roll")


class WrongAtOne(WrongRoll):
    """Right but for a first dim of 1."""

    name = "roll"

    def decompose(self, g, x: Value, shifts: Ints, dims: Ints):
        single = g.equal(g.gather(g.shape(x), 0, axis=0), 1)
        return g.where_(single, x, self.rolled(g, x, shifts[0], dims[0]))


def test_a_decomposition_that_is_wrong_at_one_size_only(model):
    for whole in (None, nets.Net()):
        _, blame = blamed(model, whole, passes=[WrongAtOne()])
        assert (blame["stage"], blame["operator"]) == ("decomposition", "com.example::Roll")


# --- the simplifier --------------------------------------------------------------------------------------------


def simplifying(monkeypatch, change):
    """Let the simplifier propose the model with ``change`` made to its graph, and have it accepted."""
    real = rewriter.simplify.simplify

    def proposal(file, model, **options):
        result = real(file, model, **options)
        spoilt = onnx.ModelProto()
        spoilt.CopyFrom(result.model)
        change(spoilt.graph)
        return type(result)(**{**vars(result), "model": spoilt, "accepted": True, "reason": "spoilt"})

    monkeypatch.setattr(rewriter.simplify, "simplify", proposal)


def negate(op_type):
    def change(graph):
        node = node_of(graph, op_type)
        at = list(graph.node).index(node)
        inner = node.output[0] + "_right"
        after = helper.make_node("Neg", [inner], [node.output[0]])
        node.output[0] = inner
        nodes = [*graph.node[: at + 1], after, *graph.node[at + 1 :]]
        kept = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
        del graph.node[:]
        graph.node.extend(kept)

    return change


@pytest.mark.parametrize("whole", [None, nets.build])
def test_a_wrong_simplification(model, monkeypatch, whole):
    simplifying(monkeypatch, negate("LayerNormalization"))
    error, blame = blamed(model, whole, simplify=True)
    assert blame["stage"] == "simplification"
    # the node as it stands in the model before
    assert blame["operator"] == "LayerNormalization"
    assert blame["node"] == node_of(model.graph, "LayerNormalization").name
    assert "nets.py" in blame["line"]
    assert "--no-simplify" in error.remedy


def test_a_simplification_that_is_wrong_at_one_size_only(model, monkeypatch):
    def change(graph):
        # + 1 where the batch is 1: Add(x, Cast(Equal(Shape(x)[0], 1)))
        node = node_of(graph, "Mul")
        source = node.input[0]
        graph.initializer.append(numpy_helper.from_array(np.array([1], np.int64), "one"))
        extra = [
            helper.make_node("Shape", [source], ["s"], start=0, end=1),
            helper.make_node("Equal", ["s", "one"], ["is_one"]),
            helper.make_node("Cast", ["is_one"], ["plus"], to=1),
            helper.make_node("Add", [source, "plus"], ["shifted"]),
        ]
        node.input[0] = "shifted"
        at = list(graph.node).index(node)
        kept = [
            onnx.NodeProto.FromString(n.SerializeToString())
            for n in (*graph.node[:at], *extra, *graph.node[at:])
        ]
        del graph.node[:]
        graph.node.extend(kept)

    simplifying(monkeypatch, change)
    rewriter.rewrite(model)
    error, blame = blamed(model, nets.Net(), simplify=True)
    assert (blame["stage"], blame["operator"]) == ("simplification", "Mul")
    assert "n=1" in error.what


# --- the runtime's optimiser -----------------------------------------------------------------------------------


def spoil_optimiser(monkeypatch, op_type, *, unless_exposed=False, at_size=None):
    """Let sessions that optimise lose every ``op_type``; ``unless_exposed``: as a fusion, only where its value is not
    asked for."""
    real = Session.__init__

    def init(self, file, model, *, extra_outputs=(), optimise=True, libraries=()):
        extra = list(extra_outputs)
        if optimise:
            copy = onnx.ModelProto()
            copy.CopyFrom(model)
            for node in copy.graph.node:
                listed = {o.name for o in copy.graph.output} | set(extra)
                if node.op_type == op_type and not (unless_exposed and set(node.output) & listed):
                    del node.attribute[:]
                    node.op_type = "Identity"
                    del node.input[1:]
            model = copy
        real(self, file, model, extra_outputs=extra, optimise=optimise, libraries=libraries)

    monkeypatch.setattr(Session, "__init__", init)


@pytest.mark.parametrize("whole", [None, nets.build])
def test_a_fault_of_the_runtimes_optimiser(model, monkeypatch, whole):
    spoil_optimiser(monkeypatch, "Relu")
    error, blame = blamed(model, whole)
    assert (blame["stage"], blame["operator"]) == ("runtime optimiser", "Relu")
    assert blame["node"] == node_of(model.graph, "Relu").name
    assert "onnxruntime" in error.remedy


def test_a_fault_of_a_fusion_that_looking_heals(model, monkeypatch):
    """Where every value is asked for nothing is fused: the graph is cut shorter and shorter instead."""
    spoil_optimiser(monkeypatch, "Relu", unless_exposed=True)
    _, blame = blamed(model)
    assert blame["stage"] == "runtime optimiser"
    # The first node that shows it: what reads the relu, whose own value is right when it is looked at.
    assert blame["operator"] in ("Gather", "Slice", "Concat", "Split")


# --- bodies ----------------------------------------------------------------------------------------------------

#: A roll where the first number is positive; a roll by an own operator in a function.
BODY = """
<ir_version: 8, opset_import: ["" : 17, "com.example" : 1, "local" : 1]>
main (float[n, 6] x, bool c) => (float[n, 6] y)
<float one = {1}>
{
    a = Mul(x, x)
    b = If (c) <
        then_branch = yes () => (t) { r = com.example.Roll <shifts: ints = [1], dims: ints = [1]> (a)
                                      t = Add(r, one) },
        else_branch = no () => (e) { e = Sub(a, one) }
    >
    d = local.Turn (b)
    y = Neg(d)
}
<domain: "local", opset_import: ["" : 17, "com.example" : 1]>
Turn (v) => (w)
{
    w = com.example.Roll <shifts: ints = [2], dims: ints = [1]> (v)
}
"""


class Body(torch.nn.Module):
    def forward(self, x, c):
        a = x * x
        return -torch.roll(torch.roll(a, 1, 1) + 1 if bool(c) else a - 1, 2, 1)


def test_placeholders_in_bodies_and_functions_are_evaluated_by_their_references():
    model = parse(BODY)
    report = rewriter.rewrite(model, against=Body(), samples=4)
    assert report.verification["whole_model"]["samples"] == 6
    assert {"n": 1} in report.verification["whole_model"]["sizes"]

    def change(graph):
        node_of(graph, "Neg").op_type = "Abs"

    _, blame = blamed(changed(model, change), Body(), samples=4)
    assert blame["stage"] == "export"


def test_a_decomposition_in_a_body_that_is_wrong_at_one_size_only():
    _, blame = blamed(parse(BODY), Body(), passes=[WrongAtOne()], samples=4)
    assert blame["stage"] == "decomposition"
    assert blame["operator"] == "com.example::Roll"


def test_verify_alone_knows_no_model_from_before(model):
    """Without the exported model the rewritten one stands for it: its regions agree with their references."""
    from rewriter.decompose import decompose
    from rewriter.placeholder import Selection
    from rewriter.storage import ModelFile
    from rewriter.verify import VerifyOptions, verify

    with ModelFile.from_proto(model) as file:
        done = decompose(file, Selection.load("auto"))
        options = VerifyOptions(against=nets.rescaled)
        with pytest.raises(MismatchError) as caught:
            verify(file, file.model, file.model, done.regions, options)
        assert (caught.value.blame.stage, caught.value.blame.where.operator) == ("export", "Mul")
        proof = verify(file, file.model, file.model, done.regions, VerifyOptions(against=nets.build))
        assert proof.whole.samples == 4


class RefusesOne(WrongRoll):
    """Right, and refused by the runtime where the first dim is 1."""

    name = "roll"

    def decompose(self, g, x: Value, shifts: Ints, dims: Ints):
        rolled = self.rolled(g, x, shifts[0], dims[0])
        second = g.gather(rolled, [1], axis=0)
        return g.where_(g.equal(second, second), rolled, rolled)


@pytest.mark.parametrize("whole", [nets.build])
def test_a_decomposition_that_is_refused_at_one_size_only(model, whole):
    _, blame = blamed(model, whole, passes=[RefusesOne()])
    assert (blame["stage"], blame["operator"]) == ("decomposition", "com.example::Roll")
    report = rewriter.rewrite(model, against=whole, passes=[RefusesOne()], simplify=False, dims={"n": (2, 9)})
    assert report.outcome == "verified"


def test_a_stage_that_cannot_be_asked_is_said(model, monkeypatch):
    from rewriter.errors import CannotVerifyError
    from rewriter.verify import culprit
    from rewriter.verify.origin import Origin

    def none(*args, **options):
        raise CannotVerifyError("no memory left")

    monkeypatch.setattr(culprit, "Session", none)
    monkeypatch.setattr(Origin, "run_on", lambda self, sample: none)
    _, blame = blamed(model, nets.rescaled)
    assert blame["stage"] == "export"
    assert "cannot be asked here: no memory left" in blame["detail"]
