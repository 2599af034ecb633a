"""One input, tried: what came out of it, and whether that may be."""

from __future__ import annotations

import contextlib
import re
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
from google.protobuf.message import DecodeError
from onnx import ModelProto

from rewriter.errors import RewriteError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

#: Codes of errors by which the rewriter says that itself is at fault; no input may cause one.
FAULTS = frozenset({"interface-changed"})


@dataclass(frozen=True)
class Options:
    """How an input is tried."""

    #: ``rewrite``, ``inspect``, ``check`` or ``explain``.
    command: str = "rewrite"
    #: Whether the model is passed as a message in place of a file.
    in_memory: bool = False
    keywords: dict[str, Any] = field(default_factory=dict)

    @property
    def verifies(self) -> bool:
        return self.command == "rewrite" and bool(self.keywords.get("verify", True))

    @classmethod
    def draw(cls, rng: random.Random, *, verify: float, simplify: float) -> Options:
        """``verify`` and ``simplify`` are how often either is on."""
        command = rng.choices(("rewrite", "inspect", "check", "explain"), (90, 5, 3, 2))[0]
        in_memory = rng.random() < 0.2
        if command != "rewrite":
            return cls(command, False)
        keywords: dict[str, Any] = {
            "verify": rng.random() < verify,
            "simplify": rng.random() < simplify,
        }
        for name, chance in (("details", 0.2), ("strip_debug", 0.1), ("as_function", 0.1), ("portable", 0.1)):
            if rng.random() < chance:
                keywords[name] = True
        if keywords.get("as_function") and keywords.get("portable"):
            del keywords["portable"]
        if rng.random() < 0.1:
            keywords["keep"] = rng.choice(("com.example::*", "com.example::Leftover", "com.example::Roll"))
        if keywords["verify"]:
            keywords["samples"] = 1
            if rng.random() < 0.5:
                keywords["allow_unproved"] = True
        return cls(command, in_memory, keywords)


@dataclass(frozen=True)
class Outcome:
    """``kind``: ``delivered``, ``refused``, or what makes it a find: ``exception``, ``fault``, ``checker``.

    The driver adds ``crash``, ``hang`` and ``memory``.
    """

    kind: str
    #: The error's code, or the place in the code: equal for finds of one cause.
    cause: str = ""
    detail: str = ""

    @property
    def is_find(self) -> bool:
        return self.kind not in ("delivered", "refused")


def judge(path: Path, options: Options, tell: Callable[[Outcome], None] = lambda _: None) -> Outcome:
    """Try the file ``path``; its folder takes the output.

    ``tell`` is called with what is known before the delivered file is given to onnx's checker, in which a process can
    die.
    """
    try:
        warnings, delivered = _run(path, options)
    except RewriteError as error:
        if not error.what.strip():
            return Outcome("fault", "no message", type(error).__name__)
        if error.code in FAULTS:
            return Outcome("fault", f"{error.code} {_place(error)}", str(error)[:600])
        return Outcome("refused", error.code, str(error)[:300])
    except MemoryError as error:
        return Outcome("memory", _place(error), traceback.format_exc()[-1500:])
    except Exception as error:  # noqa: BLE001  (this is what is looked for)
        return Outcome("exception", f"{type(error).__name__} {_place(error)}", traceback.format_exc()[-3000:])
    if delivered is None:
        return Outcome("delivered")
    if accepted(path)[0] == 0 or _admitted(warnings):
        return Outcome("delivered")
    tell(Outcome("delivered", detail=str(warnings)))
    return _checked(path, delivered)


def _run(path: Path, options: Options) -> tuple[list[str], Path | None]:
    """Warnings, and the output."""
    import rewriter

    if options.command == "inspect":
        from rewriter.inspection import inspect

        found = inspect(path)
        found.to_dict()
        found.lines(verbose=True)
        return [], None
    if options.command in ("check", "explain"):
        from rewriter.declare import explain, requirements

        told = requirements(path) if options.command == "check" else explain(path)
        told.to_dict()
        told.lines()
        return [], None
    target = path.with_name("out.onnx")
    source: Any = path
    if options.in_memory:
        try:
            source = ModelProto.FromString(path.read_bytes())
        except DecodeError:
            source = path
    report = rewriter.rewrite(source, target, **options.keywords)
    report.lines(verbose=True)
    report.to_dict()
    if options.keywords.get("details"):
        report.to_html()
    return report.warnings, target


def _place(error: BaseException) -> str:
    """The innermost line of the project that the error went through, as file and function."""
    cause = error.__cause__ or error
    frames = [
        frame
        for frame in traceback.extract_tb(cause.__traceback__)
        if "/rewriter/" in frame.filename or "/passes/" in frame.filename
    ]
    if not frames:
        return "elsewhere"
    return f"{Path(frames[-1].filename).stem}.{frames[-1].name}"


# --- the checker ------------------------------------------------------------------------------------------------


def _checked(path: Path, target: Path) -> Outcome:
    before, _ = accepted(path)
    after, says = accepted(target)
    if after < before:
        return Outcome("checker", _short(says), f"accepted {before} before, {after} after: {says[:900]}")
    return Outcome("delivered", f"checked {before} {after}")


def accepted(path: Path) -> tuple[int, str]:
    """How far the checker accepts a file: 0 not, 1 its structure, 2 its types as well; and what it says."""
    level, says = 0, ""
    with contextlib.suppress(Exception):
        if not ModelProto.FromString(path.read_bytes()).HasField("graph"):
            return 0, "no graph"
    for full in (False, True):
        try:
            onnx.checker.check_model(str(path), full_check=full)
        except Exception as error:  # noqa: BLE001  (of several kinds, in the C++ code)
            says = str(error)
            if full and not _contradicts(says):
                return 2, ""
            break
        level += 1
    return level, says


def _contradicts(says: str) -> bool:
    """Whether the checker found wrong types, and not only unknown ones, behind an operator that it does not know."""
    faults = re.findall(r"\[(?:Type|Shape)InferenceError\] ([^\[]*)", says)
    harmless = ("Inference error(s)", "Input")
    return any(
        not fault.startswith(harmless) or (fault.startswith("Input") and "instead is null" not in fault)
        for fault in faults
    )


def _admitted(warnings: list[str]) -> bool:
    """Whether the report says that the input declared what is not so."""
    return any("contradicts" in warning or "onnx.checker" in warning for warning in warnings)


def _short(text: str) -> str:
    """The message without names and numbers."""
    words = [word for word in text.replace("\n", " ").split() if word.isalpha()]
    return " ".join(words[:12])
