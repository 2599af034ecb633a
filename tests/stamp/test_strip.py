"""What ``--strip-debug`` drops, and what it leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import rewriter
from rewriter.strip import strip_debug
from tests.texts import ROLL, parse

if TYPE_CHECKING:
    from onnx import ModelProto

TRACE = 'File "/home/me/net.py", line 7, in forward\n    return torch.roll(x, 1)'
LEGACY = "/home/me/net.py(7): forward\n/venv/torch/nn/modules/module.py(1768): _slow_forward\n"


def traced() -> ModelProto:
    model = parse(
        """<ir_version: 10, opset_import: ["" : 18, "local" : 1]>
        main (bool c, float[2] x) => (float[2] y) <float[2] w = {1.0, 2.0}>
        {
            y = If (c) <
                then_branch = t () => (float[2] p) { p = local.f (x) },
                else_branch = e () => (float[2] q) { q = Add (x, w) }
            >
        }
        <domain: "local", opset_import: ["" : 18]> f (x) => (y) { y = Neg (x) }"""
    )
    body = model.graph.node[0].attribute[0].g
    for message in (model.graph, *model.graph.node, *body.node, *model.functions, *model.functions[0].node):
        message.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=TRACE)
        message.metadata_props.add(key="namespace", value=": __main__.Net/roll: aten.roll.default")
        message.metadata_props.add(key="mine", value="stays")
    for value in (*model.graph.input, *body.output, *model.graph.initializer):
        value.metadata_props.add(key="pkg.onnxscript.optimizer.folded_from", value="['val_8']")
        value.metadata_props.add(key="mine", value="stays")
    model.metadata_props.add(key="mine", value="stays")
    model.graph.node[0].doc_string = LEGACY
    body.node[0].doc_string = "what this node is for (see section 3): a note"
    return model


def test_drops_what_names_the_exporting_machine() -> None:
    model = traced()
    before = len(model.SerializeToString())
    dropped = strip_debug(model)
    text = model.SerializeToString()
    for gone in (b"/home/me", b"pkg.torch", b"pkg.onnxscript", b"namespace", b"_slow_forward"):
        assert gone not in text
    assert dropped == before - len(text)


def test_leaves_everything_else() -> None:
    model, expected = traced(), traced()
    strip_debug(model)
    assert model.SerializeToString().count(b"stays") == expected.SerializeToString().count(b"stays")
    assert (
        model.graph.node[0].attribute[0].g.node[0].doc_string
        == "what this node is for (see section 3): a note"
    )
    assert [n.op_type for n in model.graph.node] == [n.op_type for n in expected.graph.node]


def test_a_doc_string_that_is_no_trace_stays() -> None:
    model = parse(ROLL)
    model.graph.node[0].doc_string = "net.py(7): forward\nand a word of my own"
    assert strip_debug(model) == 0
    assert model.graph.node[0].doc_string


@pytest.mark.parametrize("simplify", [True, False])
def test_only_when_asked(simplify: bool) -> None:
    model = parse(ROLL)
    for node in model.graph.node:
        node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=TRACE)
    kept = rewriter.rewrite(model, simplify=simplify, verify=False)
    dropped = rewriter.rewrite(model, simplify=simplify, verify=False, strip_debug=True)
    assert kept.model is not None
    assert dropped.model is not None
    assert b"/home/me" in kept.model.SerializeToString()
    assert b"/home/me" not in dropped.model.SerializeToString()
    assert kept.stripped_bytes is None
    assert dropped.stripped_bytes
    assert "stripped" in dropped.text()


def test_errors_still_name_the_source_line() -> None:
    model = parse(ROLL)
    model.graph.node[1].attribute[0].name = "shiftz"
    model.graph.node[1].metadata_props.add(key="pkg.torch.onnx.stack_trace", value=TRACE)
    with pytest.raises(rewriter.errors.BindingError, match=r"net\.py:7"):
        rewriter.rewrite(model, strip_debug=True)


def test_strips_a_file_with_nothing_to_replace() -> None:
    model = traced()
    report = rewriter.rewrite(model, strip_debug=True, simplify=False, verify=False)
    assert report.outcome == "unverified"
    assert report.model is not None
    assert b"/home/me" not in report.model.SerializeToString()
