"""Runs a folder of models in one runtime: ``python worker.py RUNTIME FOLDER FIRST``.

Stands alone, since it is started in environments that hold one runtime and numpy.  For ``NNNN.onnx`` with inputs in
``NNNN.npz`` it writes ``NNNN.RUNTIME.npz`` (results by position) or ``NNNN.RUNTIME.txt`` (why there are none), from
number FIRST on.  A runtime that takes the process down leaves neither, and is started again behind that model.
"""

import sys
from pathlib import Path

import numpy as np

# The package itself needs more than such an environment has; its adapters do not.
sys.path.insert(0, str(Path(__file__).parents[2] / "rewriter" / "runtimes"))

from adapters import ADAPTERS, message


def main():
    name, folder, first = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    load = ADAPTERS[name.split("-")[0]]
    for model in sorted(folder.glob("*.onnx")):
        if int(model.stem) < first:
            continue
        with np.load(model.with_suffix(".npz")) as stored:
            inputs = {key: stored[key] for key in stored.files}
        (folder / f"{name}.at").write_text(model.stem)
        try:
            results = [np.asarray(result) for result in load(str(model)).run(inputs)]
            np.savez(folder / f"{model.stem}.{name}.npz", *results)
        except BaseException as error:  # a panic of tract's is no Exception
            if isinstance(error, KeyboardInterrupt):
                raise
            (folder / f"{model.stem}.{name}.txt").write_text(message(error))
    (folder / f"{name}.at").write_text("done")


if __name__ == "__main__":
    main()
