"""``python -m tests.versions``: run a part of the tests with the oldest and newest libraries that are allowed.

Each row of the matrix is an environment of its own under ``.venv-versions``.  It is made once, and made anew where the
row or ``pyproject.toml`` changes.  A row whose interpreter is not on this machine is left out.  So are rows with torch
unless ``--torch`` is given: torch's releases are large.  The table says what each row ran with and what came of it.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLACE = ROOT / ".venv-versions"

#: Tests that need no torch and touch every library; and some that torch runs.
PLAIN = (
    *(
        f"tests/graph/test_{name}.py"
        for name in ("arithmetic", "hooks", "interface", "names", "scopes", "validate")
    ),
    *(f"tests/decompose/test_{name}.py" for name in ("errors", "names", "types", "lossless")),
    "tests/storage/test_roundtrip.py",
    "tests/execution/test_session.py",
    "tests/simplify/test_restore.py",
)
TORCH = ("tests/graph/test_outer.py", "tests/pipeline/test_library.py", "tests/torch/test_forms.py")
#: What the tests themselves use.
TOOLS = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "expecttest", "jsonschema")
#: What varies.  Everything else is the newest that pip finds.
LIBRARIES = ("onnx", "onnxruntime", "onnxscript", "onnxsim")


@dataclass(frozen=True)
class Row:
    """An environment."""

    python: str
    #: ``oldest`` or ``newest`` of what ``pyproject.toml`` allows.
    age: str
    torch: bool = False

    @property
    def name(self) -> str:
        return f"{self.python}-{self.age}" + ("-torch" if self.torch else "")


ROWS = (
    *(Row(python, age) for python in ("3.11", "3.12", "3.13") for age in ("oldest", "newest")),
    Row("3.11", "newest", torch=True),
    Row("3.11", "oldest", torch=True),
)


def main() -> int:
    """1 where a row failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.versions", description=__doc__)
    parser.add_argument("--torch", action="store_true", help="the rows with torch as well")
    parser.add_argument("--only", metavar="ROW", help="one row, such as 3.12-oldest")
    given = parser.parse_args()
    rows = [row for row in ROWS if (row.name == given.only if given.only else given.torch or not row.torch)]
    table = [("row", *LIBRARIES, "numpy", "torch", "result")]
    for row in rows:
        interpreter = found(row.python)
        if interpreter is None:
            table.append((row.name, *["-"] * (len(LIBRARIES) + 2), "no such interpreter here"))
            continue
        _say(f"{row.name} …")
        table.append(tried(row, interpreter))
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    for line in table:
        _say("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
    return int(any(not line[-1].startswith(("passed", "no such", "result")) for line in table))


def found(version: str) -> str | None:
    """An interpreter of ``version`` that starts: the one on the path, or one of pyenv's."""
    places = [shutil.which(f"python{version}")]
    places += [str(path) for path in sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))]
    for place in places:
        if place is not None:
            done = subprocess.run([place, "--version"], capture_output=True, text=True, check=False)
            if done.returncode == 0 and f" {version}." in done.stdout:
                return place
    return None


def wanted(row: Row) -> list[str]:
    """What pip is asked for: at the oldest, the lowest version that ``pyproject.toml`` allows of each library."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]["torch"] if row.torch else []
    made = []
    for requirement in [*project["dependencies"], *extras]:
        name = re.split(r"[<>=!~ ]", requirement, maxsplit=1)[0]
        lowest = re.search(r">=([0-9.]+)", requirement)
        varies = name in LIBRARIES or name == "torch"
        made.append(f"{name}=={lowest[1]}" if varies and lowest and row.age == "oldest" else requirement)
    return [*made, *TOOLS]


def tried(row: Row, interpreter: str) -> tuple[str, ...]:
    """The line of the table."""
    place = PLACE / row.name
    requirements = wanted(row)
    stamp, python = place / "requirements.txt", place / "bin" / "python"
    if not stamp.exists() or stamp.read_text(encoding="utf-8").split("\n") != requirements:
        shutil.rmtree(place, ignore_errors=True)
        _run([interpreter, "-m", "venv", str(place)])
        done = _run([str(python), "-m", "pip", "install", "--quiet", *requirements])
        if done.returncode:
            return (row.name, *["-"] * (len(LIBRARIES) + 2), "cannot be installed: " + _last(done.stderr))
        stamp.write_text("\n".join(requirements), encoding="utf-8")
    versions = [_version(python, name) for name in (*LIBRARIES, "numpy", "torch")]
    tests = [*PLAIN, *TORCH] if row.torch else list(PLAIN)
    # The project is imported from here, so that an environment stays good when the code changes.
    done = _run([str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests])
    (place / "tests.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
    result = _last(done.stdout).strip("= ")
    return (row.name, *versions, f"passed: {result}" if done.returncode == 0 else f"failed: {result}")


def _version(python: Path, name: str) -> str:
    ask = f"import importlib.metadata as m; print(m.version({name!r}))"
    done = _run([str(python), "-c", ask])
    return done.stdout.strip() if done.returncode == 0 else "-"


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def _last(text: str) -> str:
    return (text.strip().splitlines() or ["nothing was said"])[-1]


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
