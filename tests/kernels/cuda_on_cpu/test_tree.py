"""Units and what they include: copies, found as the compiler would find them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pullback.kernels.cuda_on_cpu.tree import Translated, translate
from pullback.kernels.plan import TranslationUnit


class Project:
    """An author's folder, and what is translated from it."""

    def __init__(self, folder: Path) -> None:
        self.author = folder / "author"
        self.where = folder / "where"
        self.where.mkdir()

    def file(self, name: str, text: str | bytes) -> Path:
        path = self.author / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def translate(self, *names: str, folders: tuple[str, ...] = ()) -> Translated:
        units = [
            TranslationUnit(f"unit{n}.cpp", f'#include "{self.author / name}"\nk<<<1, 2>>>();\n')
            for n, name in enumerate(names)
        ]
        return translate(
            units,
            self.where,
            folders=[self.author / folder for folder in folders],
            stop_at=[self.author / "system"],
            torch=False,
        )

    def copies(self) -> dict[str, str]:
        """Return the copies' texts by name, without what numbers them."""
        paths = (self.where / "shadow").iterdir()
        texts = {path.name.partition("-")[2]: path for path in paths}
        assert len(texts) == len(list((self.where / "shadow").iterdir()))
        return {name: path.read_bytes().decode(errors="replace") for name, path in texts.items()}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_a_unit_includes_a_copy_that_names_the_authors_file(project: Project) -> None:
    path = project.file("a.cu", "__global__ void k() {}\n")
    made = project.translate("a.cu")
    unit = (project.where / "unit0.cpp").read_text()
    assert unit.startswith('#include "shadow/0-a.cu"\n::cuda_on_cpu::cuda_on_cpu_kernel(')
    copy = (project.where / "shadow" / "0-a.cu").read_text()
    assert copy == f'#line 1 "{path}"\n__global__ void k() {{ CUDA_ON_CPU_KERNEL }}\n'
    assert made.read == {path}
    assert made.problems == ()


def test_headers_are_found_beside_the_file_and_then_in_the_folders(project: Project) -> None:
    project.file("src/a.cu", '#include "b.h"\n#include <c.h>\n  #  include "d/e.cuh" // e\n')
    project.file("src/b.h", "")
    project.file("include/b.h", "#error\n")
    project.file("include/c.h", '#include "f.h"\n')
    project.file("include/d/e.cuh", '#include "f.h"\n')
    project.file("include/d/f.h", "// in d\n")
    project.file("include/f.h", "// beside c\n")
    made = project.translate("src/a.cu", folders=("include",))
    names = {str(path.relative_to(project.author)) for path in made.read}
    assert names == {"src/a.cu", "src/b.h"} | {
        f"include/{n}" for n in ("c.h", "d/e.cuh", "d/f.h", "f.h")
    }
    copies = [path.read_text() for path in (project.where / "shadow").glob("*-a.cu")]
    assert "b.h" in copies[0]
    assert '#  include "' in copies[0]
    assert "d/e.cuh" not in copies[0]


@pytest.mark.parametrize(
    "line",
    [
        "#include <cuda_runtime.h>",
        '#include "not_there.h"',
        "#include <stopped.h>",
        '#include "system/stopped.h"',
        "#include HEADER",
        '// #include "b.h"',
        '/*\n#include "b.h"\n*/',
        'char s[] = R"(\n#include "b.h"\n)";',
        '#if 0\n#include "b.h"\n#endif',
    ],
)
def test_other_includes_stay(project: Project, line: str) -> None:
    project.file("a.cu", f"{line}\n")
    project.file("b.h", "")
    project.file("system/stopped.h", "")
    made = project.translate("a.cu", folders=("system",))
    assert project.copies()["a.cu"].endswith(f'a.cu"\n{line}\n')
    assert len(made.read) == 1


def test_a_file_has_one_copy_however_it_is_named(project: Project) -> None:
    project.file("a.cu", '#include "b.h"\n#include "x/../b.h"\n#include "link.h"\n#include <b.h>\n')
    project.file("x/c.h", "")
    project.file("b.h", '#pragma once\n#include "a.cu"\n')
    (project.author / "link.h").symlink_to("b.h")
    project.translate("a.cu", folders=("x/..",))
    copy = project.copies()["a.cu"]
    assert copy.count('#include "1-b.h"') == 4
    assert set(project.copies()) == {"a.cu", "b.h"}
    assert '#include "0-a.cu"' in project.copies()["b.h"]


def test_two_units_share_copies_and_facts(project: Project) -> None:
    project.file("a.cu", '#include "c.h"\n__constant__ int x;\n')
    project.file("b.cu", '#include "c.h"\nextern __constant__ int x;\nLOCAL int y;\n')
    project.file("c.h", "")
    project.translate("a.cu", "b.cu")
    assert set(project.copies()) == {"a.cu", "b.cu", "c.h"}
    assert "static" not in project.copies()["a.cu"]


def test_what_an_author_asks_for_is_asked_of_the_copy(project: Project) -> None:
    project.file("a.cu", '#if __has_include("b.h") && __has_include("no.h")\n#endif\n')
    project.file("b.h", "")
    project.translate("a.cu")
    assert '__has_include("1-b.h") && __has_include("no.h")' in project.copies()["a.cu"]


def test_bytes_that_are_no_text_and_line_ends_stay(project: Project) -> None:
    content = b"// caf\xe9 \xff\r\nk<<<1, 2>>>();\r\n// no end of line"
    project.file("a.cu", content)
    project.translate("a.cu")
    copy = (project.where / "shadow" / "0-a.cu").read_bytes().split(b"\n", 1)[1]
    assert copy.startswith(b"// caf\xe9 \xff\r\n::cuda_on_cpu::cuda_on_cpu_kernel(")
    assert copy.endswith(b"();\r\n// no end of line")


def test_a_byte_order_mark_is_left_out(project: Project) -> None:
    project.file("a.cu", b"\xef\xbb\xbfint x;\n")
    project.translate("a.cu")
    assert project.copies()["a.cu"].endswith('a.cu"\nint x;\n')


def test_a_name_with_spaces_and_quotes(project: Project) -> None:
    path = project.file('a "b" é.cu', "int x;\n")
    made = translate(
        [TranslationUnit("u.cpp", '#include "link.cu"\n')],
        project.where,
        folders=[_linked(path, project.author)],
        stop_at=[],
        torch=False,
    )
    assert len(made.read) == 1
    assert (project.where / "shadow" / "0-link.cu").is_file()


def _linked(path: Path, folder: Path) -> Path:
    (folder / "link.cu").symlink_to(path)
    return folder


def test_problems_name_file_and_line(project: Project) -> None:
    project.file("a.cu", '#include "b.cuh"\n')
    path = project.file("b.cuh", "void f() {\n  k<<<1, 2>>>({1});\n}\n")
    (problem,) = project.translate("a.cu").problems
    assert (problem.file, problem.line) == (path, 2)
    assert "braces" in problem.text


def test_a_missing_file_is_left_to_the_compiler(project: Project) -> None:
    made = project.translate("a.cu")
    assert made.read == frozenset()
    assert (project.where / "unit0.cpp").read_text().startswith('#include "/')


@pytest.mark.parametrize(
    ("code", "casts"),
    [
        ("float4 v = *reinterpret_cast<const float4*>(p);", True),
        ("int bits = *(int*)&x;", True),
        ("auto q = (unsigned long long *) address;", True),
        ("auto h = (const __half2*)(p + 1);", True),
        ("void f(float* y, const float* x);", False),
        ("int n = a * (b);", False),
        ("y[i] = (float)x[i] * 2;", False),
    ],
)
def test_it_tells_whether_a_pointer_is_cast(tmp_path: Path, code: str, casts: bool) -> None:
    unit = TranslationUnit("unit.cpp", code + "\n")
    made = translate([unit], tmp_path, folders=(), stop_at=(), torch=False)
    assert made.casts == casts
