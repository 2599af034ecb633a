"""The program of the worker process: one model in, one simplified model out.

Started by :mod:`rewriter.simplify.process` as a plain script, it imports nothing of the rewriter, so that its start
costs onnxsim's import alone.  Its working directory holds ``request.json`` (options) and ``request.onnx``; it leaves
``result.onnx``.  Whatever else happens (an exception, a signal, a limit) shows in its exit status and its output.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from pathlib import Path


def main(folder: Path) -> None:
    options = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    # Whoever started this process may be killed without a chance to end it.
    signal.alarm(options["alarm"])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (options["file_size"], options["file_size"]))
    sys.modules["torch"] = None  # type: ignore[assignment]  # half of onnxsim's import time

    import onnx
    import onnxsim

    # The limit is on what simplifying takes, whatever the libraries have mapped by now.
    limit = _mapped() + options["memory"]
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    model = onnx.load_model_from_string((folder / "request.onnx").read_bytes())
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
    (folder / "result.onnx").write_bytes(result.SerializeToString(deterministic=True))


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


if __name__ == "__main__":
    main(Path(sys.argv[1]))
