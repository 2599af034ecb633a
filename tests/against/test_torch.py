"""PyTorch as the oracle: archives and modules, how inputs and outputs are matched, which sizes are compared."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch
from torch import nn

import rewriter
from rewriter.errors import CannotVerifyError, MismatchError, UsageError
from tests.against import nets
from tests.against.conftest import args, batch, dynamo, exported
from tests.texts import parse


def run(model, against, **options):
    options.setdefault("simplify", False)
    return rewriter.rewrite(model, against=against, **options).verification


def whole(model, against, **options):
    return run(model, against, **options)["whole_model"]


def unary(body, kinds="(float[n, 4] x) => (float[n, 4] y)", *, extra=""):
    return parse(f'<ir_version: 8, opset_import: ["" : 17]> main {kinds} {extra} {{ {body} }}')


class By(nn.Module):
    """A module of one function."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.forward = function


# --- what is compared ------------------------------------------------------------------------------------------


def test_an_archive_is_compared_at_drawn_sizes_at_one_and_at_none(model, archive):
    proof = run(model, archive)
    found = proof["whole_model"]
    assert (found["kind"], found["name"], found["samples"]) == ("torch.export archive", "net.pt2", 4)
    sizes = [sample["n"] for sample in found["sizes"]]
    assert sizes[2:] == [1, 0]
    assert len(set(sizes)) == 4
    assert found["skipped"] == []
    assert [output["name"] for output in found["outputs"]] == [o.name for o in model.graph.output]
    assert all(output["samples"] == 4 and output["max_scaled"] < 1e-5 for output in found["outputs"])
    assert proof["blame"] is None
    assert proof["against"][-1] == "the whole model: torch.export archive"


@pytest.mark.parametrize("form", [nets.Net, nets.build, nets.instance], ids=["class", "factory", "instance"])
def test_a_module_however_it_is_named(model, form):
    found = whole(model, form)
    assert (found["kind"], found["samples"]) == ("PyTorch module", 4)


def test_an_exported_program_from_python(model):
    assert whole(model, exported(nets.Net(), args(), batch()))["samples"] == 4


def test_the_torchscript_exporter(traced, archive):
    assert whole(traced, archive)["samples"] == 4
    assert whole(traced, nets.Net)["samples"] == 4


def test_training_is_off_and_the_module_is_left_as_it_was(model):
    net = nets.Net().train()
    net.norm.eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    whole(model, net)  # with its dropout on, nothing would agree
    assert net.training
    assert net.dropout.training
    assert not net.norm.training
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert all(parameter.grad is None for parameter in net.parameters())


def test_what_a_call_leaves_behind_does_not_reach_the_next():
    model = unary("y = Add(x, one)", extra="<float one = {1}>")

    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            self.count += 1
            return x + self.count

    net = Counter()
    assert whole(model, net)["samples"] == 4
    assert float(net.count) == 0
    program = torch.export.export(
        Counter(), (torch.ones(2, 4),), dynamic_shapes={"x": {0: torch.export.Dim("n")}}
    )
    assert whole(model, program)["samples"] == 4


# --- sizes -----------------------------------------------------------------------------------------------------


def test_sizes_that_are_asked_for_are_the_only_ones(model, archive):
    assert whole(model, archive, dims={"n": (3, 64)})["sizes"] == [{"n": 3}, {"n": 64}]


def test_a_guard_of_the_archive_is_no_fault(model, tmp_path):
    path = tmp_path / "guarded.pt2"
    torch.export.save(exported(nets.Net(), args(), batch(3, 8)), path)
    proof = run(model, path)
    assert all(3 <= sizes["n"] <= 8 for sizes in proof["whole_model"]["sizes"])
    assert proof["whole_model"]["samples"] == 2
    assert [(item["sizes"], item["by"]) for item in proof["whole_model"]["skipped"]] == [
        ({"n": 1}, "PyTorch"),
        ({"n": 0}, "PyTorch"),
    ]
    assert any("not compared at n=1: PyTorch refuses" in note for note in proof["notes"])


def test_drawn_sizes_that_a_guard_refuses_are_drawn_again(model):
    found = whole(model, exported(nets.Net(), args(40), batch(16, 64)))
    assert found["samples"] == 2
    assert all(16 <= sizes["n"] <= 64 for sizes in found["sizes"])


def test_a_module_that_takes_nothing_is_said(model):
    def never(x, other):
        raise ValueError("not today")

    with pytest.raises(CannotVerifyError, match=r"PyTorch refuses every input.*not today"):
        whole(model, By(never))


def test_a_size_that_pytorch_takes_and_the_file_refuses_is_a_failure():
    """The file says that its batch is open, and reshapes to 2 rows at least."""
    model = unary(
        "h = Slice(x, a, b) z = Reshape(h, s) k = ReduceSum<keepdims=0>(z) y = Add(x, k)",
        extra="<int64[1] a = {0}, int64[1] b = {2}, int64[2] s = {2, 4}>",
    )

    def function(x):
        return x + x[:2].sum()

    with pytest.raises(
        MismatchError, match=r"(?s)the file refuses what PyTorch takes.*\(sample \d+ \(n=1\)\)"
    ) as caught:
        whole(model, By(function))
    assert caught.value.blame.stage == "export"
    assert caught.value.blame.where.operator == "Reshape"
    assert "--dim" in caught.value.remedy
    assert whole(model, By(function), dims={"n": (2, 3)})["samples"] == 2


def test_an_empty_size_that_the_runtime_refuses_is_a_note():
    model = unary("i = ArgMax<axis=0, keepdims=0>(x) y = Cast<to=1>(i)", "(float[n, 4] x) => (float[4] y)")

    def function(x):
        return x.argmax(0).float() if len(x) else torch.zeros(4)

    proof = run(model, By(function))
    assert [sizes["n"] for sizes in proof["whole_model"]["sizes"]] == [2, 5, 1]
    (skipped,) = proof["whole_model"]["skipped"]
    assert (skipped["sizes"], skipped["by"]) == ({"n": 0}, "onnxruntime")


def test_an_empty_size_that_gives_another_shape_is_a_failure():
    model = unary("y = Reshape(x, s)", extra="<int64[2] s = {0, 4}>")
    assert whole(model, By(lambda x: x + 0))["samples"] == 4
    with pytest.raises(MismatchError, match="has shape"):
        whole(model, By(lambda x: x if len(x) else x.reshape(4, 0)))


def test_recurrent_models_are_not_run_empty():
    """onnxruntime's kernel would end the process."""
    torch.manual_seed(0)
    net = nn.LSTM(4, 3, batch_first=True)
    model = dynamo(net, (torch.randn(2, 5, 4),), ({0: torch.export.Dim("n")},))
    (name,) = {dim.dim_param for dim in model.graph.input[0].type.tensor_type.shape.dim if dim.dim_param}
    found = whole(model, lambda: net)
    assert {sizes[name] for sizes in found["sizes"]} >= {1}
    assert [(item["sizes"], item["by"]) for item in found["skipped"]] == [({name: 0}, "")]


def test_dims_of_one_name_move_together():
    model = unary("y = Add(x, z)", "(float[n, 4] x, float[n, m] z) => (float[n, 4] y)")
    with pytest.raises(MismatchError):
        whole(model, By(lambda x, z: x - z), dims={"m": 4})
    sizes = whole(model, By(lambda x, z: x + z), dims={"m": 4})["sizes"]
    assert {(s["n"], s["m"]) for s in sizes} == {(2, 4), (6, 4), (1, 4), (0, 4)}


def test_given_inputs_are_the_only_ones(model, archive):
    values = {"x": np.ones((7, 6), np.float32), "other": np.zeros((7, 6), np.float32)}
    assert whole(model, archive, inputs=values)["sizes"] == [{"n": 7}]


def test_ranges_hold_for_pytorch_too():
    model = unary("y = Gather(t, i)", "(int64[n] i) => (float[n] y)", extra="<float[5] t = {1, 2, 3, 4, 5}>")
    table = torch.arange(1.0, 6.0)
    assert whole(model, By(lambda i: table[i]), input_ranges={"i": (-5, 4)})["samples"] == 4


# --- inputs and outputs ----------------------------------------------------------------------------------------


def test_inputs_go_by_name_where_the_names_are_those_of_forward():
    model = unary("y = Sub(a, b)", "(float[n] b, float[n] a) => (float[n] y)")
    assert whole(model, By(lambda a, b: a - b))["samples"] == 4
    with pytest.raises(MismatchError) as caught:
        whole(model, By(lambda p, q: p - q))
    assert "taken in order: forward(p, q) got b, a" in caught.value.blame.detail


def test_tuples_and_dicts_of_inputs_are_put_together():
    pair = nets.Pair()
    inputs = {"bias": torch.randn(3)}, (torch.randn(3), torch.randn(3))
    model = dynamo(pair, inputs)
    assert len(model.graph.input) == 3
    assert whole(model, nets.Pair)["samples"] == 2
    assert whole(model, exported(pair, inputs))["samples"] == 2


def test_constants_of_an_export_are_filled_in():
    class Scaled(nn.Module):
        def forward(self, x, scale, flag=None):
            return x * scale if flag is None else x

    model = dynamo(Scaled(), (torch.randn(3), 3.0, None))
    assert [value.name for value in model.graph.input] == ["x"]
    assert whole(model, exported(Scaled(), (torch.randn(3), 3.0, None)))["samples"] == 2


def test_results_are_flattened_and_none_is_dropped():
    model = unary("y = Neg(x) z = Abs(x)", "(float[n] x) => (float[n] y, float[n] z)")
    assert whole(model, By(lambda x: {"a": [-x, None], "b": {"c": x.abs()}}))["samples"] == 4


def test_model_outputs_of_transformers():
    from transformers.modeling_outputs import BaseModelOutput

    model = unary("y = Neg(x) z = Abs(x)", "(float[n] x) => (float[n] y, float[n] z)")
    net = By(lambda x: BaseModelOutput(last_hidden_state=-x, hidden_states=(x.abs(),)))
    assert whole(model, net)["samples"] == 4


def test_sizes_and_truths_as_results():
    model = unary("s = Shape(x) y = Squeeze(s)", "(float[n] x) => (int64 y)")
    assert whole(model, By(lambda x: x.shape[0]))["samples"] == 4


def test_half_precision_and_integers():
    model = unary("y = Mul(x, x) z = Add(i, i)", "(float16[n] x, int32[n] i) => (float16[n] y, int32[n] z)")
    assert whole(model, By(lambda x, i: (x * x, i + i)))["samples"] == 4


@pytest.mark.parametrize(
    ("against", "told"),
    [
        (By(lambda x, other, third: x), "does not take the graph's inputs"),
        (By(lambda x: x), "does not take the graph's inputs"),
        (By(lambda x, other: x), "gives 1 results, the graph 2"),
        (By(lambda x, other: (x, object())), "gives a object"),
        (nets.needs, "cannot be called without arguments"),
        (nets.broken, "calling it raises ValueError: no weights here"),
        (nets.not_a_module, "is a int, no torch.nn.Module"),
        (lambda: "text", "is a str, no torch.nn.Module"),
    ],
    ids=["too many", "too few", "results", "object", "needs", "broken", "number", "text"],
)
def test_what_does_not_fit_is_said(model, against, told):
    with pytest.raises(UsageError) as caught:
        whole(model, against)
    assert told in str(caught.value)
    assert caught.value.remedy


def test_an_archive_of_another_model_is_said(model):
    other = torch.export.export(By(lambda x: x), (torch.ones(2),))
    with pytest.raises(UsageError, match=r"takes 1 inputs \('x'\), the graph 2"):
        whole(model, other)
    doubles = torch.export.export(
        By(lambda x, other: (x, other)), (torch.ones(2, 6).double(), torch.ones(2, 6))
    )
    with pytest.raises(UsageError, match="takes float64 for the input 'x', the graph float32"):
        whole(model, doubles)


def test_a_program_of_torch_onnx_export_computes_no_placeholder():
    from tests.torch.exports import quiet

    with quiet():
        program = torch.onnx.export(nets.Net().eval(), args(), dynamo=True, verbose=False)
    with pytest.raises(UsageError, match="its placeholders compute nothing"):
        whole(program.model_proto, program.exported_program)


def test_another_dtype_of_a_result_is_a_difference():
    model = unary("y = Neg(x)", "(float[n] x) => (float[n] y)")
    with pytest.raises(MismatchError, match="is float32, expected float64"):
        whole(model, By(lambda x: -x.double()))


def test_random_models_are_not_compared():
    model = unary("y = RandomNormalLike(x)", "(float[n] x) => (float[n] y)")
    with pytest.raises(CannotVerifyError, match="draws random numbers"):
        whole(model, By(torch.randn_like))


# --- kept operators --------------------------------------------------------------------------------------------

KEPT = """
<ir_version: 8, opset_import: ["" : 17, "com.example" : 1, "com.own" : 1]>
main (float[n, 4] x) => (float[n, 4] y, float[n, 4] z)
<float[n, 4] k>
{
    r = com.example.Roll <shifts: ints = [1], dims: ints = [1]> (x)
    y = Neg(r)
    k = com.own.Strange (r)
    z = Abs(k)
}
"""


def test_outputs_behind_a_kept_operator_are_left_out():
    proof = run(parse(KEPT), By(lambda x: (-torch.roll(x, 1, 1), x)), keep="com.own::Strange")
    found = proof["whole_model"]
    assert found["left_out"] == ["z"]
    assert [output["name"] for output in found["outputs"]] == ["y"]
    assert any("z, which depend" in note for note in proof["notes"])
    with pytest.raises(MismatchError) as caught:
        run(parse(KEPT), By(lambda x: (torch.roll(x, 1, 1), x)), keep="com.own::Strange")
    assert caught.value.blame.stage == "export"


def test_nothing_left_to_compare_is_said():
    text = KEPT.replace("y = Neg(r)", "").replace("(float[n, 4] y, float[n, 4] z)", "(float[n, 4] z)")
    with pytest.raises(CannotVerifyError, match=r"every output depends on com\.own::Strange"):
        run(parse(text), By(lambda x: x), keep="com.own::Strange")


def test_a_call_to_a_function_is_compared_as_delivered(model, archive):
    assert whole(model, archive, as_function=True)["samples"] == 4


def test_without_placeholders_the_whole_model_is_compared_all_the_same():
    model = unary("y = Neg(x)")
    report = rewriter.rewrite(model, against=By(lambda x: -x), simplify=False)
    assert report.outcome == "verified"
    assert "the whole model: PyTorch module" in report.manifest["verification"]["against"]


def test_forward_is_read_as_it_is_declared():
    assert list(inspect.signature(By(lambda a, b: a).forward).parameters) == ["a", "b"]


def test_outputs_that_are_a_table_are_compared_as_one():
    """Rows in another order are the same detections; one that is not there is a fault of the export."""
    model = unary(
        "y = Mul(x, two) z = ReduceSum<keepdims=0>(x, axis)",
        "(float[n, 4] x) => (float[n, 4] y, float[n] z)",
        extra="<float two = {2}, int64[1] axis = {1}>",
    )
    options = {"compare": {"y,z": "detections"}}
    assert whole(model, By(lambda x: (x.flip(0) * 2, x.flip(0).sum(1))), **options)["samples"] == 4
    with pytest.raises(MismatchError) as caught:
        whole(model, By(lambda x: (x.flip(0) * 3, x.flip(0).sum(1))), **options)
    assert caught.value.blame.stage == "export"


def test_thresholds_of_ones_own_hold_for_the_whole_model():
    model = unary("y = Neg(x)")
    net = By(lambda x: -x * 1.01)
    with pytest.raises(MismatchError):
        whole(model, net)
    assert whole(model, net, rtol=0.02)["samples"] == 4


def test_sizes_at_which_nothing_can_be_drawn_are_noted(monkeypatch):
    from rewriter.inputs.draw import Inputs

    real = Inputs.draw

    def draw(self, index, attempt=0, sizes=None):
        if sizes is not None and 0 in sizes.values():
            raise CannotVerifyError("not so small")
        return real(self, index, attempt, sizes)

    monkeypatch.setattr(Inputs, "draw", draw)
    found = whole(unary("y = Neg(x)"), By(torch.neg))
    assert [sizes["n"] for sizes in found["sizes"]] == [2, 5, 1]
    assert [(item["by"], item["reason"]) for item in found["skipped"]] == [("", "not so small")]


def test_integers_that_are_too_large_for_a_size_are_drawn_again():
    """The index is added up, so that its range is not known: at size 1 only zeros are within it."""
    model = unary(
        "j = Mul(i, i) k = ReduceMax<keepdims=0>(j) y = Gather<axis=0>(x, k)",
        "(float[n, 4] x, int64[m] i) => (float[4] y)",
    )
    found = whole(model, By(lambda x, i: x[(i * i).max()]), dims={"m": 3})
    assert {"n": 1, "m": 3} in found["sizes"]


def test_an_input_that_nothing_reads_may_be_missing_in_the_file():
    """The TorchScript exporter drops it; the program's guards still ask for it."""
    from tests.torch.exports import legacy

    class Lazy(nn.Module):
        def forward(self, unread, x):
            return x * 2

    values = torch.ones(3, 2), torch.ones(3, 4)
    model = legacy(Lazy(), values, input_names=["unread", "x"])
    assert [value.name for value in model.graph.input] == ["x"]
    n = torch.export.Dim("n")
    program = torch.export.export(Lazy(), values, dynamic_shapes={"unread": {0: n}, "x": {0: n}})
    assert whole(model, program)["samples"] == 4
    with pytest.raises(UsageError, match=r"missing a required argument: 'unread'"):
        whole(model, Lazy)


def test_sequences_as_results():
    model = unary("s = SequenceConstruct(x, x) y = Neg(x)", "(float[n] x) => (seq(float[n]) s, float[n] y)")
    found = whole(model, By(lambda x: ([x, x], -x)))
    assert found["samples"] == 4
    assert [output["name"] for output in found["outputs"]] == ["s", "y"]
    with pytest.raises(MismatchError, match=r"output 's' differs from By: has 2 elements, expected 3"):
        whole(model, By(lambda x: ([x, x, x], -x)))
    only = unary("s = SequenceConstruct(x, x)", "(float[n] x) => (seq(float[n]) s)")
    assert whole(only, By(lambda x: [x, x]))["samples"] == 4
