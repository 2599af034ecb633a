"""The table of runtimes: well formed, and read as it is meant."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from onnx import parser

import rewriter
from rewriter.profiles import profiles, table

if TYPE_CHECKING:
    from rewriter.declare.runtimes import Judged


def test_the_table_is_well_formed() -> None:
    data = table()
    assert date.fromisoformat(f"{data['date']}-01")
    names = [(row["name"], row.get("version")) for row in data["runtimes"]]
    assert len(set(names)) == len(names)
    assert data["tried"] == sorted(data["tried"])
    assert len(profiles()) == len(names)
    for profile in profiles():
        assert profile.source
        assert date.fromisoformat(f"{profile.date}-01")
        for gap in profile.lacks:
            assert profile.covers == "opset" or profile.has is not None or gap.operator in profile.tried
        assert bool(profile.runs_as) == bool(profile.package)
        assert not profile.runs_as or profile.evidence == "measured"


def test_versions_of_one_runtime_stand_from_the_newest_to_the_oldest() -> None:
    for name in {row.name for row in profiles()}:
        versions = [
            tuple(map(int, row.version.split("."))) for row in profiles() if row.name == name and row.version
        ]
        assert versions == sorted(versions, reverse=True)
        limits = [row.max_opset for row in profiles() if row.name == name and row.max_opset is not None]
        assert limits == sorted(limits, reverse=True)


def test_it_is_packaged() -> None:
    assert (Path(rewriter.__file__).parent / "data" / "runtimes.json").is_file()


def judged(
    body: str, *, opset: int = 17, ir_version: int = 8, functions: str = "", imports: str = ""
) -> dict[str, Judged]:
    model = parser.parse_model(
        f'<ir_version: {ir_version}, opset_import: ["" : {opset}{imports}]>\n'
        f"main (float[N, 4, 6, 6] x, float[2, 4] boxes, int64[2] which) => (float[a, b, c, d] y) {{ {body} }}\n"
        f"{functions}"
    )
    return {item.name: item for item in rewriter.requirements(model).runtimes}


def told(item: Judged) -> tuple[str, tuple[str, ...]]:
    return item.verdict, item.reasons


def test_plain_operators_are_everywhere_up_to_the_newest_opset() -> None:
    found = judged("y = Softmax (x)", opset=13, ir_version=7)
    old = {"onnxruntime 1.2", "onnxruntime 1.6"}
    assert {item.verdict for name, item in found.items() if name not in old} == {"has"}
    assert found["onnxruntime 1.2"].reasons == (
        "opset 13 (its newest is 11)",
        "IR version 7 (its newest is 6)",
    )
    found = judged("y = Softmax (x)", opset=18)
    assert told(found["onnxruntime 1.8"]) == (
        "lacks",
        ("opset 18 (its newest is 14)", "IR version 8 (its newest is 7)"),
    )
    assert found["onnxruntime 1.15"].verdict == "has"


ROI = "y = RoiAlign <output_height = 2, output_width = 2> (x, boxes, which)"


@pytest.mark.parametrize(
    ("runtime", "opset", "verdict", "reasons"),
    [
        ("onnxruntime 1.32", 21, "has", ()),
        ("onnxruntime 1.32", 22, "lacks", ("RoiAlign (its kernels end at opset 21)",)),
        ("tract 0.23", 16, "lacks", ("RoiAlign",)),
        ("OpenVINO 2026.4", 16, "has", ()),
        ("MNN", 16, "has", ()),
        ("MNN", 15, "lacks", ("RoiAlign (wrong: it shifts by half a pixel)",)),
    ],
)
def test_gaps_have_a_range_of_opsets(
    runtime: str, opset: int, verdict: str, reasons: tuple[str, ...]
) -> None:
    assert told(judged(ROI, opset=opset)[runtime]) == (verdict, reasons)


def test_gaps_may_depend_on_attributes() -> None:
    grouped = judged("y = ConvTranspose <group = 2> (x, x)")
    assert grouped["onnx.reference 1.23"].reasons == ("ConvTranspose (fails: with group other than 1)",)
    plain = judged("y = ConvTranspose <group = 1> (x, x)")
    assert plain["onnx.reference 1.23"].verdict == "has"


def test_what_was_not_tried_is_not_known() -> None:
    found = judged("y = Celu (x)")
    assert found["onnxruntime 1.32"].verdict == "has"
    assert told(found["tract 0.23"]) == ("not known", ("Celu",))


def test_functions_run_in_two_runtimes_only() -> None:
    found = judged(
        "y = local.f (x)",
        functions='<domain: "local", opset_import: ["" : 17]> f (a) => (b) { b = Relu (a) }',
        imports=', "local" : 1',
    )
    assert {item.name.split()[0] for item in found.values() if item.verdict == "has"} == {
        "onnxruntime",
        "onnxruntime-web",
        "onnx.reference",
    }
    assert found["OpenVINO 2026.4"].reasons == ("model-local functions",)


def test_an_operator_of_ones_own_is_nowhere_else() -> None:
    found = judged("y = com.example.My (x)", imports=', "com.example" : 1')
    assert all(item.verdict == "lacks" for item in found.values())
    assert found["onnxruntime 1.32"].reasons == ("com.example::My (without its library)",)
    assert found["onnxruntime-web 1.30"].reasons == ("com.example::My",)


def test_the_default_domain_by_its_other_name() -> None:
    found = judged("y = ai.onnx.Relu (x)", imports="")
    assert found["OpenVINO 2026.4"].reasons == ("ai.onnx written on a node",)
    assert found["tract 0.23"].verdict == "has"
