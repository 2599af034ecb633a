"""Runs of which pages are made, and a page taken apart."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save_model

import rewriter
from rewriter.cli import run
from rewriter.report import to_json

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

Data = dict[str, Any]

#: Names that would be markup, break out of an attribute, hide, turn their surroundings about, or fill the page.
HOSTILE = (
    "<script>alert(1)</script>",
    "\"' onload='alert(1)",
    "]]>--><!--",
    "a\x01b\x1b[31mc\x7f",
    "\u202egnp.exe\u202c\u200b\u2066",
    "javascript:alert(1)",
    "n" * 5000,
    "{{7*7}}${x}&lt;&#60;",
)


def roll(source: str, target: str, name: str, shift: int = 1, axis: int = 1) -> NodeProto:
    return helper.make_node(
        "Roll", [source], [target], name=name, domain="com.example", shifts=[shift], dims=[axis]
    )


def model(nodes: list[NodeProto], output: str, *, weights: int = 0) -> ModelProto:
    """``nodes`` from ``x`` to ``output``, float32[batch, 6]; with a weight of so many columns, ``w``."""
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, ["batch", 6])
    tensors = [numpy_helper.from_array(np.ones((6, weights), np.float32), "w")] if weights else []
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_value_info("x", kind)],
        [helper.make_value_info(output, kind)],
        tensors,
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def chain(count: int, names: tuple[str, ...] = ()) -> ModelProto:
    """``count`` rolls with a Relu after each."""
    nodes: list[NodeProto] = []
    last = "x"
    for index in range(count):
        name = names[index] if index < len(names) else f"/blocks.{index}/roll"
        nodes.append(roll(last, f"r{index}", name, index % 3 + 1))
        nodes.append(helper.make_node("Relu", [f"r{index}"], [f"a{index}"], name=f"relu{index}"))
        last = f"a{index}"
    return model(nodes, last)


@pytest.fixture(scope="session")
def data() -> Data:
    """The report of a verified run of a small model, as its JSON has it."""
    report = rewriter.rewrite(chain(3), details=True)
    assert report.outcome == "verified"
    found: Data = json.loads(report.to_json())
    return found


WRONG = '''
from rewriter import Builder, Case, Placeholder, Value, f32


class Shift(Placeholder):
    """One more."""

    matches = ("Shift",)

    def reference(self, x):
        return x + 1

    def decompose(self, g: Builder, x: Value):
        return x + 2

    def cases(self):
        yield Case(f32(2, 6))
'''


@pytest.fixture(scope="session")
def failed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Data, str]:
    """A run that was refused since a decomposition is wrong: its JSON and its page, as the command wrote them."""
    folder = tmp_path_factory.mktemp("failed")
    (folder / "shift.py").write_text(WRONG)
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Shift", ["a"], ["y"], name="culprit", domain="com.example"),
    ]
    save_model(model(nodes, "y"), folder / "m.onnx")
    reports = [f"--report={folder / name}" for name in ("r.json", "r.html")]
    passes = str(folder / "shift.py")
    code = run([str(folder / "m.onnx"), str(folder / "out.onnx"), "--passes", passes, "-q", *reports])
    assert code == 1
    assert not (folder / "out.onnx").exists()
    return json.loads((folder / "r.json").read_text()), (folder / "r.html").read_text()


def parsed(page: str) -> ElementTree.Element:
    """The page as a tree; it is well-formed XML."""
    doctype, _, rest = page.partition("\n")
    assert doctype == "<!DOCTYPE html>"
    return ElementTree.fromstring(rest)


def words(element: ElementTree.Element) -> str:
    return " ".join(" ".join(element.itertext()).split())


def by_id(tree: ElementTree.Element, name: str) -> ElementTree.Element:
    found = tree.find(f".//*[@id='{name}']")
    assert found is not None, f"no {name}"
    return found


def as_read(found: Data) -> Data:
    """``found`` as a reader of the JSON has it."""
    read: Data = json.loads(to_json(found))
    return read
