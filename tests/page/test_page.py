"""The page of a run: what it says, and what it must never hold."""

from __future__ import annotations

import copy
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest

import rewriter
from rewriter.errors import CannotVerifyError, Where
from rewriter.page import render
from rewriter.page.details import Details
from rewriter.page.markup import visible
from tests.page.conftest import HOSTILE, as_read, by_id, chain, parsed, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.page.conftest import Data


class _Reader(HTMLParser):
    """What a browser would make of it, as far as elements and attributes go."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    handle_startendtag = handle_starttag


def read(page: str) -> _Reader:
    reader = _Reader()
    reader.feed(page)
    reader.close()
    return reader


def check_safe(page: str) -> None:
    """Nothing that runs, nothing that is fetched."""
    reader = read(page)
    forbidden = {"script", "iframe", "object", "embed", "link", "base", "form", "img", "image", "use", "a"}
    assert not forbidden & set(reader.tags)
    names = {name for name, _ in reader.attributes}
    assert not {name for name in names if name.startswith("on") or name in ("src", "href", "srcset", "style")}
    assert "url(" not in page
    assert "@import" not in page


def test_is_well_formed_and_holds_nothing_that_runs_or_is_fetched(data: Data) -> None:
    page = render(data)
    parsed(page)
    check_safe(page)


def test_forbids_itself_everything_but_its_style(data: Data) -> None:
    meta = [m for m in parsed(render(data)).iter("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert len(meta) == 1
    policy = dict(rule.strip().split(" ", 1) for rule in str(meta[0].get("content")).split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["style-src"] == "'unsafe-inline'"
    assert "script-src" not in policy


def test_same_data_same_bytes(data: Data) -> None:
    assert render(data) == render(copy.deepcopy(data))


def test_same_run_same_bytes() -> None:
    pages = [rewriter.rewrite(chain(2), details=True, simplify=False).to_html() for _ in range(2)]
    assert pages[0] == pages[1]


def test_from_the_report_as_from_its_json() -> None:
    report = rewriter.rewrite(chain(1), details=True, simplify=False)
    assert report.to_html() == render(as_read(report.to_dict()))


def test_the_verdict_stands_first(data: Data) -> None:
    tree = parsed(render(data))
    heading = tree.find(".//h1")
    assert heading is not None
    assert words(heading).startswith("✓ Verified")
    assert words(heading).endswith(data["source"])


# --- the same facts as the JSON -------------------------------------------------------------------------------


def test_replacements(data: Data) -> None:
    text = words(by_id(parsed(render(data)), "replaced"))
    assert text.startswith("3 placeholders replaced")
    for entry in data["replaced"]:
        for key in ("operator", "pass", "decomposition", "node"):
            assert entry[key] in text


def test_errors_of_each_output_and_sample(data: Data) -> None:
    section = by_id(parsed(render(data)), "verification")
    marks = [e for e in section.iter() if e.get("class") == "mark" and e.find("title") is not None]
    titles = [str(e.findtext("title")) for e in marks]
    proof = data["verification"]
    assert len(proof["sizes"]) == 2
    for at, sizes in enumerate(proof["sizes"]):
        assert any(f"sample {at}: batch={sizes['batch']}" in title for title in titles)
        assert f"batch={sizes['batch']}" in words(section)
    output = proof["outputs"][0]
    assert output["name"] in words(section)
    assert len(output["per_sample"]["max_scaled"]) == 2
    for shape in output["per_sample"]["shape"]:
        assert any(f"shape {shape}" in title for title in titles)


def test_thresholds_are_drawn(data: Data) -> None:
    section = by_id(parsed(render(data)), "verification")
    limits = [str(e.findtext("title")) for e in section.iter() if e.get("class") == "limit"]
    tolerance = data["verification"]["outputs"][0]["tolerance"]
    assert f"threshold {tolerance['rtol'] + tolerance['scaled']:.2g}" in limits


def test_counts_of_operators(data: Data) -> None:
    counts = data["details"]["operators"]
    assert counts["source"] == {"Relu": 3, "com.example::Roll": 3}
    assert "com.example::Roll" not in counts["delivered"]
    rows = {
        words(row).split()[0]: words(row).split()[1:]
        for row in by_id(parsed(render(data)), "operators").iter("tr")
    }
    assert rows["com.example::Roll"] == ["3", "0", "0"]
    stages = ("source", "rewritten", "delivered")
    assert rows["Slice"] == [str(counts[stage].get("Slice", 0)) for stage in stages]


def test_needs_interface_versions_and_seed(data: Data) -> None:
    tree = parsed(render(data))
    needs = words(by_id(tree, "needs"))
    assert "ai.onnx 17" in needs
    for runtime in data["details"]["runtimes"]["judged"]:
        assert runtime["name"] in needs
    assert "x input float32[batch, 6]" in words(by_id(tree, "interface"))
    again = words(by_id(tree, "again"))
    for name, version in data["verification"]["versions"].items():
        assert f"{name} {version}" in again
    assert f"seed {data['verification']['seed']}" in again


def test_warnings_and_notes(data: Data) -> None:
    changed = data | {"warnings": ["mind the gap"], "unmatched_passes": ["swish"]}
    tree = parsed(render(changed))
    assert "mind the gap" in words(by_id(tree, "warnings"))
    assert "'swish'" in words(by_id(tree, "notes"))


def test_warnings_stand_below_the_verdict_and_are_no_section(data: Data) -> None:
    changed = data | {"warnings": [f"gap {n}" for n in range(9)]}
    tree = parsed(render(changed))
    header = tree.find("./body/header")
    assert header is not None
    assert [part.get("class") for part in header][-2:] == ["tiles", "warnings"]
    assert "6 more warnings" in words(header)
    assert not [part for part in tree.iter("section") if part.get("id") == "warnings"]


def test_what_this_run_saw_of_a_runtime_counts_more_than_the_table(data: Data) -> None:
    changed = copy.deepcopy(data)
    changed["details"]["runtimes"]["judged"] = [
        {
            "name": name,
            "verdict": "not known",
            "reasons": ["ArgMax"],
            "runs_as": name.lower().removeprefix("onnx."),
        }
        for name in (
            "OpenVINO 2026.4",
            "onnx.reference 1.23",
            "onnxruntime 1.32",
            "onnxruntime 1.3",
            "tract 0.23",
        )
    ]
    changed["verification"]["runtimes"] = [
        {"name": "openvino", "version": "2026.4.1-22", "status": "agrees", "detail": "", "outputs": []},
        {"name": "reference", "version": "1.23.0", "status": "agrees", "detail": "", "outputs": []},
        {
            "name": "onnxruntime",
            "version": "1.32.0",
            "status": "differs",
            "detail": "'y' is 3",
            "outputs": [],
        },
        {"name": "tract", "version": "", "status": "not installed", "detail": "", "outputs": []},
    ]
    table = next(
        part for part in by_id(parsed(render(changed)), "needs").iter("table") if "Runtimes" in words(part)
    )
    rows = [" ".join(words(row).split()) for row in table.iter("tr")][1:]
    assert [row.replace("✓ ", "").replace("✕ ", "").replace("• ", "") for row in rows] == [
        "openvino 2026.4.1-22 agrees in this run",
        "reference 1.23.0 agrees in this run",
        "onnxruntime 1.32.0 differs in this run: 'y' is 3",
        "onnxruntime 1.3 not known not tried: ArgMax",
        "tract 0.23 not known not tried: ArgMax",
    ]


def test_dims_that_the_exporter_invented_are_told_of_outputs(data: Data) -> None:
    assert "but for the dims" not in words(by_id(parsed(render(data)), "interface"))
    changed = data | {
        "renamed_dims": ["'h' axis 0: 'Addh_dim_0' now 3", "'y' axis 1: 'Negy_dim_1' now 8"],
        "renamed_outputs": {"y": ["axis 1: 'Negy_dim_1' now 8"]},
    }
    text = " ".join(words(by_id(parsed(render(changed)), "interface")).split())
    assert "unchanged by the rewriting but for the dims below" in text
    assert "y axis 1: 'Negy_dim_1' now 8" in text
    assert "2 dims that the exporter had invented" in text


def test_a_failed_run_says_nothing_of_a_file_that_was_not_there(failed: tuple[Data, str]) -> None:
    header = parsed(failed[1]).find("./body/header")
    assert header is not None
    assert "Nothing was written." in words(header)
    assert "as it was" not in words(header)


# --- a run that failed ----------------------------------------------------------------------------------------


def test_the_failure_comes_first(failed: tuple[Data, str]) -> None:
    found, page = failed
    tree = parsed(page)
    check_safe(page)
    sections = [section.get("id") for section in tree.iter("section")]
    assert sections[0] == "failure"
    assert sections.index("verification") < sections.index("replaced")
    text = words(by_id(tree, "failure"))
    assert " ".join(found["failure"]["what"].split()) in text
    assert found["failure"]["remedy"] in text
    assert "culprit" in text


def test_the_figures_of_what_differed(failed: tuple[Data, str]) -> None:
    found, page = failed
    assert found["verification"]["verdict"] == "failed"
    section = by_id(parsed(page), "verification")
    beyond = [e for e in section.iter() if e.get("class") == "mark beyond"]
    assert len(beyond) == 1
    assert "max |a−b| 1\n" in f"{beyond[0].findtext('title')}\n"
    assert any(e.get("class") == "row failed" for e in section.iter())


def test_says_who_is_to_blame(failed: tuple[Data, str]) -> None:
    found = copy.deepcopy(failed[0])
    found["verification"]["blame"] = {
        "stage": "export",
        "node": "n7",
        "operator": "MatMul",
        "line": "/home/me/net.py:12",
        "scope": "main graph",
        "detail": "3 of 4 elements differ",
    }
    text = words(by_id(parsed(render(found)), "failure"))
    for part in ("export", "n7", "MatMul", "net.py:12", "3 of 4 elements differ"):
        assert part in text
    assert "/home/me" not in text


def test_draws_the_node_where_it_failed(failed: tuple[Data, str]) -> None:
    found, page = failed
    culprit = found["details"]["culprit"]
    assert culprit["node"] == "culprit"
    assert [n["op"] for n in culprit["after"]["nodes"] if n["kind"] == "new"] == ["Add"]
    assert len(list(by_id(parsed(page), "failure").iter("svg"))) == 2


def test_draws_what_nobody_takes() -> None:
    source = chain(1)
    source.graph.node[0].op_type = "Unheard"
    with pytest.raises(rewriter.errors.LeftoverPlaceholderError) as caught:
        rewriter.rewrite(source, details=True)
    report = caught.value.report
    assert report is not None
    (drawn,) = by_id(parsed(report.to_html()), "failure").iter("svg")
    assert "x to Unheard; Unheard to Relu" in words(drawn)


def test_draws_a_node_that_is_no_placeholder() -> None:
    """What the export got wrong is found at any node."""
    details = Details()
    source = chain(1)
    details.source(source)
    details.failed(CannotVerifyError("it", where=Where("main graph", "relu0", "Relu")))
    assert details.culprit is not None
    assert [n["op"] for n in details.culprit["before"]["nodes"]] == ["com.example::Roll", "Relu", "a0"]
    details.failed(CannotVerifyError("it", where=Where("main graph", "nowhere", "Relu")))
    assert details.culprit is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Mul 'n' (/home/my name/net.py:3) differs", "Mul 'n' (net.py:3) differs"),
        ("C:\\Users\\me\\net.py:3", "net.py:3"),
        ("/home/my name/net.py:3", "net.py:3"),
        ("at /home/me/a.py:1 and /b/c.py:2", "at a.py:1 and c.py:2"),
        ("/blocks.0/roll and a/b.py", "/blocks.0/roll and a/b.py"),
    ],
)
def test_source_lines_lose_their_folders(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_tells_neither_folder_nor_time(
    failed: tuple[Data, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    page = failed[1]
    assert str(tmp_path_factory.getbasetemp()) not in page
    assert not re.search(r"20\d\d-\d\d|\d\d:\d\d:\d\d", page)


# --- whatever a model says ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hostile() -> str:
    source = chain(len(HOSTILE), HOSTILE)
    source.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "<b>"
    source.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "<b>"
    return rewriter.rewrite(source, details=True, simplify=False).to_html()


def test_hostile_names_are_text(hostile: str) -> None:
    tree = parsed(hostile)
    check_safe(hostile)
    text = words(tree)
    assert "<script>alert(1)</script>" in text
    assert "float32[<b>, 6]" in text
    assert not list(tree.iter("b"))


def test_unseen_characters_are_written_out(hostile: str) -> None:
    assert "\\u202egnp.exe\\u202c\\u200b\\u2066" in words(parsed(hostile))
    assert "a\\x01b\\x1b[31mc\\x7f" in words(parsed(hostile))
    assert not re.search(
        "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]", hostile
    )


def test_many_kinds_do_not_fill_the_page(data: Data) -> None:
    changed = copy.deepcopy(data)
    changed["replaced"] = [data["replaced"][0] | {"operator": f"d::Op{n}"} for n in range(2000)]
    page = render(changed)
    text = words(by_id(parsed(page), "replaced"))
    assert "2000 placeholders replaced" in text
    assert "1940 more kinds" in text
    assert len(page) < 100_000


def test_long_names_do_not_fill_the_page(hostile: str) -> None:
    assert "n" * 700 not in hostile
    assert len(hostile) < 300_000


def _places(data: object, path: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    """Every place in the data, of a list the first only."""
    if path:
        yield path
    if isinstance(data, dict):
        for key, item in data.items():
            yield from _places(item, (*path, key))
    elif isinstance(data, list) and data:
        yield from _places(data[0], (*path, 0))


def _with(data: Data, path: tuple[object, ...], value: object) -> Data:
    changed = copy.deepcopy(data)
    place: object = changed
    for key in path[:-1]:
        place = place[key]  # type: ignore[index]
    place[path[-1]] = value  # type: ignore[index]
    return changed


@pytest.mark.parametrize("value", [None, 3, "<x>\ud800", [[], {}, 1], {"a": {"b": [1]}}], ids=repr)
def test_no_value_of_a_wrong_type_stops_it(failed: tuple[Data, str], value: object) -> None:
    """A report may be of another version, and a manifest is anybody's."""
    data = failed[0]
    for path in _places(data):
        parsed(render(_with(data, path, value)))


def test_says_little_of_nothing() -> None:
    parsed(render({}))


@pytest.mark.parametrize(("atol", "class_"), [(1.0, "mark"), (0.4, "mark beyond")])
def test_an_absolute_tolerance_is_in_the_unit_of_the_tensor(data: Data, atol: float, class_: str) -> None:
    """Off by 0.5 where the largest is 2: a quarter of it."""
    changed = copy.deepcopy(data)
    proof = changed["verification"]
    proof["regions"] = []
    proof["outputs"][0] |= {
        "tolerance": {"atol": atol, "rtol": 0.0, "scaled": 0.0, "ulp": 0, "reason": ""},
        "per_sample": {"shape": ["2×6"], "max_abs": [0.5], "max_scaled": [0.25], "max_ulp": [None]},
    }
    section = by_id(parsed(render(changed)), "verification")
    (mark,) = [
        e for e in section.iter() if e.find("title") is not None and "sample 0" in str(e.findtext("title"))
    ]
    assert mark.get("class") == class_
