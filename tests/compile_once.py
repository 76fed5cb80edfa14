"""A compiler that remembers: CMake's launcher in tests, which build nearly the same library often.

`compile_once.py g++ ... -o FILE -c SOURCE` runs the command, or copies what the same preprocessed
text gave before, from the folder $PULLBACK_TEST_OBJECTS.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


def main(command: list[str]) -> int:
    """Compile, or copy the object of the same text; return the exit status."""
    folder = os.environ.get("PULLBACK_TEST_OBJECTS")
    if folder is None or "-c" not in command or "-o" not in command:
        return subprocess.run(command, check=False).returncode
    place = command.index("-o")
    target = Path(command[place + 1])
    rest = command[:place] + command[place + 2 :]
    # The file of dependencies is written on the way.
    seen = subprocess.run(
        ["-E" if word == "-c" else word for word in rest] + ["-P"], capture_output=True, check=False
    )
    if seen.returncode:
        return subprocess.run(command, check=False).returncode
    known = Path(folder) / key(rest, seen.stdout)
    if not known.exists():
        status = subprocess.run(command, check=False).returncode
        if status:
            return status
        keep(target, known)
    shutil.copyfile(known, target)
    return 0


def key(words: list[str], text: bytes) -> str:
    """Return the name of what flags and a text give, wherever the project is."""
    kinds = ("-O", "-f", "-m", "-std", "-g")
    flags = [w for w in words if w.startswith(kinds) and not w.startswith("-ffile-prefix-map")]
    content = b"\0".join([words[0].encode(), *(flag.encode() for flag in flags), text])
    return hashlib.sha256(content).hexdigest()


def keep(file: Path, known: Path) -> None:
    """Keep a copy, complete before it has its name."""
    # Each worker of `pytest --cache-clear` removes the folder of those that came before.
    known.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=known.parent, delete=False) as copy:
        copy.write(file.read_bytes())
    Path(copy.name).rename(known)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
