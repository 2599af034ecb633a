"""The process of one runtime: it runs a model file on samples, and sends the results of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewriter.runtimes.adapters import ADAPTERS, message
from rewriter.runtimes.exchange import pack, unpack

if TYPE_CHECKING:
    from rewriter.worker.frames import Channel


def serve(channel: Channel) -> None:
    """Answer one request: its head names runtime, model file, libraries and inputs; its parts are the inputs.

    Results go out as an event for each sample; the answer says what the runtime refused, if it did.
    """
    request = channel.receive()
    if request is None:
        return
    head, parts = request.head, list(request.parts)
    refused = None
    try:
        libraries = [head["libraries"]] if head["libraries"] else []
        runtime = ADAPTERS[head["runtime"]](head["model"], *libraries)
        for sample in head["samples"]:
            count = len(sample["names"])
            given, parts = parts[:count], parts[count:]
            inputs = dict(zip(sample["names"], unpack(sample["kinds"], given), strict=True))
            kinds, results = pack(runtime.run(inputs))
            channel.send({"event": "results", "kinds": kinds}, results)
    except BaseException as error:  # noqa: BLE001  (a panic of tract's is not an Exception)
        refused = message(error)
    channel.send({"refused": refused})
