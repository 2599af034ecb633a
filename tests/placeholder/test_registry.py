"""Which pass takes which node."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest
from onnx import NodeProto, helper

from passes.activation.swish import Swish
from passes.movement.roll import Roll
from rewriter.errors import AmbiguousMatchError, PassDefinitionError, UnknownPassError, UsageError
from rewriter.placeholder import Builder, Case, Placeholder, Selection, Value, available, f32

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def node(qualified: str, **attributes: Any) -> NodeProto:
    domain, _, op_type = qualified.rpartition("::")
    return helper.make_node(op_type, ["x"], ["y"], domain=domain, **attributes)


def taken(selection: Selection, qualified: str, **attributes: Any) -> str | None:
    match = selection.match(node(qualified, **attributes))
    return None if match is None else match.placeholder.pass_name()


AUTO = Selection.load("auto")
NAMED = Selection.load("roll")


@pytest.mark.parametrize(
    "operator",
    ["com.example::Roll", "com.example::roll", "mylib::my_roll", "aten::roll", "org.pytorch.aten::roll"],
)
def test_auto_takes_the_domains_that_a_pass_lists(operator: str) -> None:
    assert taken(AUTO, operator) == "roll"


def test_the_fallback_form_names_its_operator_in_an_attribute() -> None:
    match = AUTO.match(node("org.pytorch.aten::ATen", operator="roll", overload_name=""))
    assert match is not None
    assert match.placeholder.pass_name() == "roll"
    assert match.qualified == "aten::roll"
    assert match.selectors == ("operator", "overload_name")
    assert taken(AUTO, "org.pytorch.aten::ATen", operator="nosuch") is None


@pytest.mark.parametrize("operator", ["acme.ops::Roll", "Roll"])
def test_other_domains_only_by_name_and_the_report_can_say_so(operator: str) -> None:
    assert taken(AUTO, operator) is None
    match = NAMED.match(node(operator))
    assert match is not None
    assert match.assumed


@pytest.mark.parametrize(
    "operator", ["com.microsoft::Roll", "com.microsoft.nchwc::Roll", "ai.onnx.contrib::Roll"]
)
def test_a_runtimes_own_domain_only_by_bind(operator: str) -> None:
    assert taken(NAMED, operator) is None
    assert taken(Selection.load("roll", f"{operator}=roll"), operator) == "roll"


def test_bind_alone_brings_its_pass() -> None:
    selection = Selection.load([], "mylib::shift_op=roll(shifts=amount)")
    assert taken(selection, "mylib::shift_op") == "roll"
    assert taken(selection, "mylib::other") is None


def test_the_parameters_of_a_rule_are_checked_before_anything_is_read() -> None:
    with pytest.raises(UsageError, match=r"'a::b=roll\(shfts=n\)' names a parameter 'shfts'") as caught:
        Selection.load("swish", ["c::d=swish(x=$0)", "a::b=roll(shfts=n)"])
    assert str(caught.value.remedy).startswith("did you mean 'shifts'?")


def test_one_pass_takes_nothing_of_another() -> None:
    assert taken(NAMED, "com.example::Swish") is None


def test_names_of_operators_name_their_pass() -> None:
    assert [p.pass_name() for p in Selection.load("silu").passes] == ["swish"]
    assert [p.pass_name() for p in Selection.load("my_swish, Roll").passes] == ["roll", "swish"]


def test_an_unknown_name_lists_the_nearest() -> None:
    with pytest.raises(UnknownPassError) as caught:
        Selection.load("rol")
    assert caught.value.exit_code == 2
    assert caught.value.remedy is not None
    assert "roll" in caught.value.remedy


class Rival(Placeholder):
    """Takes the same name."""

    matches = ("Roll",)

    def reference(self, x: Any) -> Any:
        return x

    def decompose(self, g: Builder, x: Value) -> Value:
        return x

    def cases(self) -> Iterator[Case]:
        yield Case(f32(1))


def test_two_passes_that_want_the_same_node() -> None:
    with pytest.raises(AmbiguousMatchError, match="'rival' and 'roll'"):
        Selection.load([Roll, Rival]).match(node("com.example::Roll"))


def test_the_pass_that_lists_the_domain_comes_before_one_that_is_only_named() -> None:
    class Elsewhere(Rival):
        domains = ("acme.ops",)

    assert taken(Selection.load([Roll, Elsewhere]), "acme.ops::Roll") == "elsewhere"


def test_two_passes_of_one_name() -> None:
    class Roll(Rival):
        matches = ("Other",)

    from passes.movement import roll as module

    with pytest.raises(UsageError, match="two passes are called 'roll'"):
        Selection.load([module.Roll, Roll])


FILE = '''
from rewriter import Placeholder, Case, Value, f32

class Twice(Placeholder):
    """2x."""
    matches = ("Twice",)
    def reference(self, x): return x + x
    def decompose(self, g, x: Value): return x + x
    def cases(self): yield Case(f32(2))
'''


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "my_ops.py").write_text(FILE)
    selection = Selection.load(f"roll,{tmp_path}/my_ops.py")
    assert [p.pass_name() for p in selection.passes] == ["roll", "twice"]
    assert taken(selection, "com.example::Twice") == "twice"


def test_an_import_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop_of_passes.py").write_text(FILE)
    monkeypatch.syspath_prepend(tmp_path)
    assert [p.pass_name() for p in Selection.load("shop_of_passes:Twice").passes] == ["twice"]
    with pytest.raises(UnknownPassError, match="Thrice"):
        Selection.load("shop_of_passes:Thrice")
    with pytest.raises(UnknownPassError, match="no module"):
        Selection.load("no_such_shop.passes")
    sys.modules.pop("shop_of_passes", None)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("x = 1", "no pass is defined"),
        ("def broken(:", "does not load: SyntaxError"),
        ("1 / 0", "does not load: ZeroDivisionError"),
        (FILE.replace("    def reference(self, x): return x + x\n", ""), r"no reference\(\)"),
        (FILE.replace('    matches = ("Twice",)\n', ""), "no operator names"),
        (FILE.replace("x: Value", "x"), "parameter 'x' has no annotation"),
        (FILE.replace("x: Value", "x: dict"), "no kind of operator argument"),
    ],
)
def test_a_pass_that_is_not_complete_does_not_load(tmp_path: Path, body: str, says: str) -> None:
    path = tmp_path / "my_ops.py"
    path.write_text(textwrap.dedent(body))
    with pytest.raises(PassDefinitionError, match=says):
        Selection.load(str(path))


def test_a_missing_file() -> None:
    with pytest.raises(UnknownPassError, match="no file"):
        Selection.load("./no_such_file.py")


def test_installed_passes_come_in_order_of_name() -> None:
    names = [p.pass_name() for p in available()]
    assert names == sorted(names)
    assert {"roll", "swish", "square_plus_one"} <= set(names)


def test_a_pass_is_known_by_its_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import passes

    body = """
    from rewriter import Case, Placeholder, Value, f32

    class Negated(Placeholder):
        matches = ("Negated",)

        def reference(self, x):
            return -x

        def decompose(self, g, x: Value):
            return -x

        def cases(self):
            yield Case(f32(2))
    """
    (tmp_path / "negation.py").write_text(textwrap.dedent(body))
    (tmp_path / "_helper.py").write_text("raise ImportError('a helper is not looked through')")
    monkeypatch.setattr(passes, "__path__", [*passes.__path__, str(tmp_path)])
    assert "negated" in [p.pass_name() for p in available()]
    assert [p.pass_name() for p in Selection.load("Negated").passes] == ["negated"]


def test_importing_every_pass_imports_no_torch() -> None:
    import subprocess

    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['onnxruntime'] = None\n"
        "from rewriter.placeholder import available, Selection\n"
        "assert available(); Selection.load('auto')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_swish_is_found_under_the_exporters_names() -> None:
    for operator in ("aten::silu", "org.pytorch.aten::silu_", "com.example::MySwish"):
        assert isinstance(AUTO.match(node(operator)).placeholder, Swish)  # type: ignore[union-attr]


def test_one_pass_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "two.py"
    path.write_text(FILE + FILE.replace("class Twice", "class Thrice").replace('"Twice"', '"Thrice"'))
    assert [p.pass_name() for p in Selection.load(f"{path}:Thrice").passes] == ["thrice"]
    with pytest.raises(UnknownPassError) as caught:
        Selection.load(f"{path}:Fourth")
    assert "Twice, Thrice" in str(caught.value.remedy)
