"""onnxsim's process: one model in, one simplified model out.

:mod:`rewriter.simplify.process` starts it.  It is loaded by its path and imports nothing of the rewriter, so that its
start costs onnxsim's import alone.  Whatever else happens (an exception, a signal, a limit) shows in its exit status
and its output.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rewriter.worker.frames import Channel


def simplify(channel: Channel) -> None:
    """Answer one request: its head has the options, its part is the model."""
    message = channel.receive()
    if message is None:
        return
    options = message.head
    resource.setrlimit(resource.RLIMIT_FSIZE, (options["file_size"], options["file_size"]))
    sys.modules["torch"] = None  # type: ignore[assignment]  # half of onnxsim's import time

    import onnx
    import onnxsim

    # The limit is on what simplifying takes, whatever the libraries have mapped by now.
    limit = _mapped() + options["memory"]
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    model = onnx.load_model_from_string(message.parts[0])
    result, _ = onnxsim.simplify(
        model,
        check_n=0,
        perform_optimization=options["optimise"],
        skipped_optimizers=_refused(options["allowed"], options["refused"]) if options["optimise"] else None,
        skip_constant_folding=not options["fold"],
        tensor_size_threshold=options["threshold"],
        mutable_initializer=True,
        certify=False,
        import_custom_schemas=False,
    )
    channel.send({}, [result.SerializeToString(deterministic=True)])


def _refused(allowed: list[str], refused: list[str]) -> list[str]:
    """Every pass that this onnxsim has but those in ``allowed``.

    Some passes are only registered by the first call, hence the call on a model without nodes.
    """
    import onnx
    import onnxsim
    from onnxsim import onnxsim_cpp2py_export as core

    # onnxsim takes the registration as done only after the optimiser ran, which it does on any model.
    onnxsim.simplify(onnx.parser.parse_model(_EMPTY), check_n=0, certify=False, import_custom_schemas=False)
    return sorted((set(core._list_optimizers()) | set(refused)) - set(allowed))


_EMPTY = '<ir_version: 8, opset_import: ["": 13]> empty (float[1] x) => (float[1] y) { y = Neg(x) }'


def _mapped() -> int:
    """Bytes of address space in use."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * resource.getpagesize()
