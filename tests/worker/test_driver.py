"""Child processes: messages, limits, and how each of them ends."""

from __future__ import annotations

import textwrap
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewriter.worker.activity import Activity, doing
from rewriter.worker.driver import Died, Limits, OutOfMemory, OutOfTime, Worker
from rewriter.worker.frames import Decoder, Message
from tests.worker.processes import is_gone

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Start = "Callable[[str], Worker]"


@pytest.fixture
def start(tmp_path: Path) -> Callable[[str], Worker]:
    """Starts a worker that runs the given lines; ``channel`` leads to the test."""

    def call(code: str) -> Worker:
        script = tmp_path / "worker.py"
        head = (
            "import ctypes, os, sys, time\nfrom rewriter.worker.activity import doing\ndef play(channel):\n"
        )
        script.write_text(head + textwrap.indent(textwrap.dedent(code), "    "))
        return Worker(f"{script}:play")

    return call


def soon(seconds: float = 30.0, memory: int | None = None) -> Limits:
    return Limits(time.monotonic() + seconds, memory)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.dictionaries(st.text(), st.integers()), st.lists(st.binary()))), st.integers(1, 50)
)
def test_messages_arrive_whole_however_they_are_cut(
    sent: list[tuple[dict[str, int], list[bytes]]], step: int
) -> None:
    data = b"".join(piece for head, parts in sent for piece in Message(head, parts).encoded())
    decoder = Decoder()
    got = [message for at in range(0, len(data), step) for message in decoder.feed(data[at : at + step])]
    assert [(message.head, list(message.parts)) for message in got] == sent


def test_large_messages_pass_in_both_directions_at_once(start: Callable[[str], Worker]) -> None:
    with start(
        "channel.send({'event': 'x'}, [b'e' * 5_000_000]); m = channel.receive(); channel.send({}, m.parts)"
    ) as w:
        events: list[Message] = []
        answer = w.ask({}, [b"q" * 5_000_000, b""], soon(), event=events.append)
    assert [len(part) for part in answer.parts] == [5_000_000, 0]
    assert len(events[0].parts[0]) == 5_000_000


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("os.abort()", "killed by SIGABRT"),
        ("ctypes.string_at(0)", "killed by SIGSEGV"),
        ("raise RuntimeError('no such thing')", "RuntimeError: no such thing"),
        ("sys.exit(7)", "exit status 7"),
        ("pass", "exit status 0"),
        # A child of its own keeps the pipe open.
        ("os.fork() or time.sleep(60)\nos.abort()", "killed by SIGABRT"),
    ],
)
def test_a_death_is_told(start: Callable[[str], Worker], code: str, reason: str) -> None:
    with start(code) as worker, pytest.raises(Died) as error:
        worker.receive(soon())
    assert error.value.reason == reason


def test_what_it_was_doing_is_told(start: Callable[[str], Worker]) -> None:
    code = """
    with doing(engine="PyTorch", where="here"):
        with doing(step="inner"):
            pass
        with doing(step="the reference", optional_sizes=(("n", 0),)):
            os.abort()
    """
    with start(code) as worker, pytest.raises(Died) as error:
        worker.receive(soon())
    assert error.value.activity == Activity(
        engine="PyTorch", where="here", step="the reference", optional_sizes=(("n", 0),)
    )


def test_nothing_is_noted_outside_a_worker() -> None:
    with doing(step="this"):
        pass


def test_time_is_limited(start: Callable[[str], Worker]) -> None:
    worker = start("while True: pass")
    with pytest.raises(OutOfTime):
        worker.receive(soon(0.5))
    assert is_gone(worker.pid)


def test_memory_is_limited_and_mapped_memory_is_not(start: Callable[[str], Worker], tmp_path: Path) -> None:
    with (tmp_path / "weights").open("wb") as file:
        file.truncate(400 << 20)
    code = f"""
    import mmap
    with open({str(tmp_path / "weights")!r}, "rb") as file:
        weights = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    reserved = mmap.mmap(-1, 1 << 40, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
    sum(weights[i] for i in range(0, len(weights), 4096))
    time.sleep(0.2)
    channel.send({{}})
    held = bytearray(b"x" * (400 << 20))
    time.sleep(60)
    """
    worker = start(code)
    worker.receive(soon(memory=200 << 20))
    with pytest.raises(OutOfMemory):
        worker.receive(soon(memory=200 << 20))
    assert is_gone(worker.pid)


def test_what_is_raised_while_waiting_ends_it(start: Callable[[str], Worker]) -> None:
    worker = start("time.sleep(60)")

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        worker.receive(soon(), tick=interrupt)
    assert is_gone(worker.pid)


def test_a_closed_worker_takes_its_children_along(start: Callable[[str], Worker]) -> None:
    with start("channel.send({'pid': os.fork() or time.sleep(60)}); time.sleep(60)") as worker:
        child = worker.receive(soon()).head["pid"]
    assert is_gone(worker.pid)
    assert is_gone(child)


def test_what_it_prints_is_kept_and_told_once(
    start: Callable[[str], Worker], capfd: pytest.CaptureFixture[str]
) -> None:
    code = """
    print("first", flush=True); channel.send({}); channel.receive()
    print("second", flush=True); channel.send({}); channel.receive()
    """
    with start(code) as worker:
        worker.receive(soon())
        assert worker.printed() == "first\n"
        worker.ask({}, [], soon())
        assert worker.printed() == "second\n"
        assert worker.printed() == ""
    assert capfd.readouterr() == ("", "")
