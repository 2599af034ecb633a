"""The process of one runtime: ``python worker.py RUNTIME FOLDER [LIBRARY …]``.

Runs ``FOLDER/model.onnx`` on each ``FOLDER/N.in`` (a folder of one file per input), in order.  Writes the
results beside it as ``N.out``, or, where the runtime refuses the model or the inputs, why into ``refused.txt``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

# Started by its path: this folder and no other is searched for the adapters.
sys.path.insert(0, str(Path(__file__).parent))

from adapters import ADAPTERS, message  # type: ignore[import-not-found]
from exchange import read_all, write_all  # type: ignore[import-not-found]


def main() -> None:
    name, folder, *libraries = sys.argv[1:]
    place = Path(folder)
    names = json.loads((place / "inputs.json").read_text(encoding="utf-8"))
    try:
        runtime = ADAPTERS[name](str(place / "model.onnx"), *([libraries] if libraries else []))
        for number, given in enumerate(names):
            inputs = dict(zip(given, read_all(place / f"{number}.in"), strict=True))
            write_all(place / f"{number}.out", runtime.run(inputs))
    except BaseException as error:  # a panic of tract's is no Exception
        if isinstance(error, KeyboardInterrupt):
            raise
        (place / "refused.txt").write_text(message(error), encoding="utf-8", errors="backslashreplace")


if __name__ == "__main__":
    main()
