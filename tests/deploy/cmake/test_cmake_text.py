"""C++ literals, read by a compiler."""

import subprocess
from pathlib import Path

import pytest

from pullback.deploy.cmake.definitions import quote
from pullback.kernels.toolchain import find

pytestmark = pytest.mark.compiler


def test_any_text_is_itself_again_in_cpp(tmp_path: Path) -> None:
    # A digit after each, which an escape must not take for its own.
    text = "".join(f"{chr(code)}1" for code in range(128)) + "??=é∑\\0\\n"
    code = f"""#include <cstdio>
    const char text[] = {quote(text)};
    int main() {{ return std::fwrite(text, 1, sizeof text - 1, stdout) == 0; }}"""
    (tmp_path / "text.cpp").write_text(code, encoding="utf-8", newline="")
    compiler = [*find("c++").command, "-std=c++20", "text.cpp", "-o", "text"]
    subprocess.run(compiler, cwd=tmp_path, check=True, timeout=60)
    said = subprocess.run([tmp_path / "text"], stdout=subprocess.PIPE, check=True, timeout=60)
    assert said.stdout == text.encode()
