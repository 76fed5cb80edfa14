"""Rules of the house that a tool can check."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PROBES = sorted((ROOT / "src/pullback/verify/probes").glob("[!_]*.py"))
PYTHON_CODE = re.compile(r'Rule\("(PB\d+)", "([^"]+)"\)')
PROBE_CODE = re.compile(r'^ {4}code = "(PB\d+)"\n {4}name = "([^"]+)"$', re.MULTILINE)
CPP_CODE = re.compile(r'"([a-z-]+) \[(PB\d+)\]"')


def codes() -> dict[str, set[str]]:
    """Return every code with the names it is given."""
    found: dict[str, set[str]] = {}
    for path in SOURCES:
        for code, name in PYTHON_CODE.findall(path.read_text()):
            found.setdefault(code, set()).add(name)
    for path in (ROOT / "src").rglob("*.cpp"):
        for name, code in CPP_CODE.findall(path.read_text()):
            found.setdefault(code, set()).add(name)
    return found


def probes() -> list[tuple[str, str]]:
    """Return the code and the name of each probe, as its file has them."""
    return [pair for path in PROBES for pair in PROBE_CODE.findall(path.read_text())]


def test_a_code_has_one_name_in_python_and_in_cpp() -> None:
    assert {code: names for code, names in codes().items() if len(names) > 1} == {}


def test_the_reference_lists_every_code_and_no_other() -> None:
    rows = re.findall(
        r"^\| (PB\d+) \| ([^ ]+) \|", (ROOT / "docs/reference.md").read_text(), re.MULTILINE
    )
    rules = {code: min(names) for code, names in codes().items()}
    assert dict(rows) == {**rules, **dict(probes())}
    assert len(rows) == len(dict(rows))


def test_a_code_belongs_to_one_rule_or_one_probe() -> None:
    own = [code for code, _ in probes()]
    assert len(own) == len(set(own))
    assert set(own).isdisjoint(codes())
    names = [name for _, name in probes()]
    assert len(names) == len(set(names))


def test_a_file_of_probes_has_one() -> None:
    counts = {path.name: len(PROBE_CODE.findall(path.read_text())) for path in PROBES}
    assert {name: count for name, count in counts.items() if count != 1} == {}


def test_tests_raise_every_code() -> None:
    tests = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    text = "\n".join(path.read_text() for path in tests)
    never = [c for c, names in codes().items() if not any(word in text for word in (c, *names))]
    assert never == []


def test_no_file_is_longer_than_a_reader_can_keep_in_mind() -> None:
    lengths = {str(path): len(path.read_text().splitlines()) for path in SOURCES}
    assert {path: length for path, length in lengths.items() if length > 400} == {}


def test_every_mutant_can_be_planted() -> None:
    """Whoever changes what a fault is planted in plants it anew."""
    mutants = tomllib.loads((ROOT / "tests/mutants.toml").read_text())["mutant"]
    found = {each["name"]: (ROOT / each["file"]).read_text().count(each["old"]) for each in mutants}
    assert {name: count for name, count in found.items() if count != 1} == {}


def test_hooks_format_with_the_versions_that_ci_has() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    pinned = set(re.findall(r"[\w-]+==[\d.]+", hooks))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert pinned == {each for each in project["optional-dependencies"]["test"] if "==" in each}


def test_a_word_that_is_filled_in_has_its_article_from_an() -> None:
    written = re.compile(r"\b[Aa] \{(?!self\.)[^}]*\}")
    found = {path.name: written.findall(path.read_text()) for path in SOURCES}
    assert {name: words for name, words in found.items() if words} == ALWAYS_A


# What begins with a consonant, whatever it is.
ALWAYS_A = {"python_only.py": ["a {gradient.dtype}"]}


def test_no_modules_import_each_other() -> None:
    # Not within functions either; for the type checker's eyes alone they may. The contract on
    # cycles that import-linter has is another one: it is about packages.
    graph = grimp.build_graph("pullback", exclude_type_checking_imports=True, cache_dir=None)
    rings = {
        frozenset({module, *others})
        for module in graph.modules
        if (others := graph.find_upstream_modules(module) & graph.find_downstream_modules(module))
    }
    assert sorted(map(sorted, rings)) == []
