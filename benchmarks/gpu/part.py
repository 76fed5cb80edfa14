"""One part, in a process of its own: `python -m benchmarks.gpu.part loops --until 1e10`.

What it finds is appended to a file row by row, so that nothing is lost when it is ended.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.gpu.measuring import GpuLost
from benchmarks.gpu.place import Place
from benchmarks.gpu.rows import Row, to_json

# A step gets the seconds that it may take, and yields what it finds.
Step = Callable[[float], Iterator[Row]]
# The steps that are left need a new process.
AGAIN = 3


def write(file: Path, what: Mapping[str, Any]) -> None:
    """Append a line."""
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(what) + "\n")


def begun(file: Path) -> set[str]:
    """Return the steps that were begun, by earlier processes too."""
    if not file.exists():
        return set()
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return {row["begun"] for row in rows if "begun" in row}


def run(steps: Mapping[str, Step], file: Path, end: float) -> int:
    """Run the steps that nobody began; return `AGAIN` if one of them broke the GPU.

    Args:
        steps: by their names.
        file: where the rows go.
        end: when the time is over, as `time.time` says.
    """
    before = begun(file)
    left = {name: step for name, step in steps.items() if name not in before}
    for done, (name, step) in enumerate(left.items()):
        seconds = end - time.time()
        if seconds <= 0:
            write(file, {"begun": name, "failed": "there was no time left for it"})
            continue
        write(file, {"begun": name})
        try:
            for row in step(seconds / (len(left) - done)):
                write(file, to_json(row))
        except GpuLost as error:
            write(file, {"failed": str(error), "step": name})
            return AGAIN
        except Exception as error:
            traceback.print_exc()
            shown = str(error).strip().partition("\n")[0][:300]
            write(file, {"failed": f"{type(error).__name__}: {shown}", "step": name})
            if "CUDA error" in str(error):
                return AGAIN
    return 0


def main() -> int:
    """Run one part."""
    parser = argparse.ArgumentParser()
    parser.add_argument("part")
    parser.add_argument("--until", type=float, required=True)
    parser.add_argument("--file", type=Path, required=True)
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--cases", nargs="*", default=[""])
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    place = Place(rehearsal=given.rehearse)
    module = import_module(f"benchmarks.gpu.{given.part}")
    with place.entered():
        steps: dict[str, Step] = module.steps(place, given.file.parent)
        chosen = {n: s for n, s in steps.items() if any(word in n for word in given.cases)}
        return run(chosen, given.file, given.until)


if __name__ == "__main__":
    sys.exit(main())
