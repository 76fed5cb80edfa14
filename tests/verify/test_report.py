"""Reports as text, JSON and HTML; saved whole or not at all."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pullback import PullbackError
from pullback.diagnostic import Finding
from pullback.page import style
from pullback.verify.html import draw_picture, html_of
from pullback.verify.report import Listing, Outcome, Report

FAULT = Finding(
    code="PB504",
    name="saved-tensor-overwritten",
    message="Square: backward changes a tensor that it saved, input x",
    evidence=(("changed", "8 of 8 elements"), ("where it differs", "·█\n·█")),
    where="ops.py:3 in backward: return x.data.mul_(2 * grad)",
    help="save a <clone>",
)
ADVICE = Finding(code="PB650", name="saved-unused", message="w is not used", level="advice")
OUTCOMES = (
    Outcome(code="PB501", name="forward-raises", verdict="ok", seconds=0.004),
    Outcome(
        code="PB504", name="saved-tensor-overwritten", verdict="fault", findings=(FAULT,), seconds=1
    ),
    Outcome(code="PB539", name="second-backward", verdict="explained", reason="PB504"),
    Outcome(code="PB540", name="sizes", verdict="not applicable", reason="it has no size"),
    Outcome(code="PB550", name="numbers", verdict="not applicable", reason="not judged: a kink"),
    Outcome(code="PB650", name="saved-unused", verdict="advice", findings=(ADVICE,)),
)
LISTING = Listing(file="ops.py", first=2, text="def backward(x):\n    return x < 1\n")
FAULTY = Report(
    target="Square(x: float64 (2, 4))",
    outcomes=OUTCOMES,
    notes=("assumed",),
    seed=7,
    replay="pullback check ops.py:Square --probe PB504 --seed 7",
    listings=(LISTING,),
)
WELL = Report(target="Cube(x: float64 (3,))", outcomes=OUTCOMES[:1])
WHOLE = Report(target="f(x: float64 (2, 4))", outcomes=OUTCOMES[:2], parts=(FAULTY,))

TEXT = """\
Square(x: float64 (2, 4))    seed 7
  note: assumed

  FAIL  saved-tensor-overwritten  PB504  Square: backward changes a tensor that it saved, input x
          at:               ops.py:3 in backward: return x.data.mul_(2 * grad)
          changed:          8 of 8 elements
          where it differs: ·█
                            ·█
          help:             save a <clone>
  -     numbers                   PB550  not judged: a kink
  note  saved-unused              PB650  w is not used

1 fault, 1 advice: 3 probes, 3 not applicable, 1.0 s; about it: pullback explain PB504
replay: pullback check ops.py:Square --probe PB504 --seed 7"""
VERBOSE = """\
  ok    forward-raises            PB501  0.00 s
  FAIL  saved-tensor-overwritten  PB504  Square: backward changes a tensor that it saved, input x"""
REASONS = """\
  -     second-backward           PB539  not asked: PB504 explains it
  -     sizes                     PB540  not applicable: it has no size"""


def test_a_text_shows_what_is_wrong_and_how_to_see_it_again() -> None:
    assert str(FAULTY) == TEXT


def test_a_verbose_text_has_a_line_for_each_probe() -> None:
    text = FAULTY.to_text(verbose=True)
    assert VERBOSE in text
    assert REASONS in text


def test_a_text_is_short_when_all_is_well() -> None:
    assert str(WELL) == "Cube(x: float64 (3,))    seed 0\nok: 1 probe, 0 not applicable, 0.0 s"


def test_a_text_without_an_answer_does_not_say_that_all_is_well() -> None:
    assert "nothing could be judged" in str(Report(target="f()", outcomes=OUTCOMES[3:4]))


def test_a_finding_of_a_part_is_shown_once_under_the_part() -> None:
    text = str(WHOLE)
    assert text.count("FAIL") == 1
    assert "  in Square(x: float64 (2, 4))\n  note: assumed\n  FAIL" in text


def test_a_report_in_one_line_names_the_first_fault() -> None:
    assert repr(FAULTY).startswith("<Report: saved-tensor-overwritten [PB504] Square: backward ")
    assert repr(WELL) == "<Report: Cube ok, 0 advice>"


def test_json_has_the_same_records() -> None:
    record = json.loads(FAULTY.to_json())
    keys = "target ok seed replay notes findings outcomes parts seconds"
    assert list(record) == keys.split()
    assert not record["ok"]
    assert record["findings"][0] == {
        "code": "PB504",
        "name": "saved-tensor-overwritten",
        "level": "fault",
        "message": FAULT.message,
        "evidence": dict(FAULT.evidence),
        "where": FAULT.where,
        "help": FAULT.help,
    }
    assert record["outcomes"][2] == {
        "code": "PB539",
        "name": "second-backward",
        "verdict": "explained",
        "reason": "PB504",
        "seconds": 0,
    }


class Tags(HTMLParser):
    """Notes tags, and stops where one is not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        assert not {"src", "href", "onclick"} & {name for name, _ in attrs}
        if tag not in ("meta", "rect"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "rect":
            assert self.open.pop() == tag


def test_a_page_needs_nothing_else_and_is_well_formed() -> None:
    page = html_of(WHOLE, WELL)
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert not {"script", "link", "img", "iframe"} & set(tags.seen)
    assert "http" not in page
    assert '<html lang="en">' in page


def test_a_page_shows_findings_evidence_code_probes_and_times() -> None:
    page = FAULTY.to_html()
    assert "save a &lt;clone&gt;" in page
    assert '<span class="hit" title="PB504">    3      return x &lt; 1</span>' in page
    assert '<td>PB539</td><td>second-backward</td><td class="explained">' in page
    assert '<td class="number">1000</td>' in page
    assert "Replay: <code>pullback check" in page
    assert 'aria-label="2 of 4 cells differ"' in page
    assert "<svg" in (FAULTY._repr_html_())


def test_a_page_shows_pictures_first_and_folds_the_probes() -> None:
    page = FAULTY.to_html()
    assert page.index("<svg") < page.index("<dl>") < page.index("<details>")
    assert page.index("<details>") < page.index("<td>PB539</td>")
    # Its map is there once, as a picture.
    assert page.count("░") == 0


def test_a_notebook_gets_a_part_of_a_page_with_a_style_of_its_own() -> None:
    shown = FAULTY._repr_html_()
    assert "<html" not in shown
    rules = re.findall(r"^([^@\s}][^{]*)\{", style(), re.MULTILINE)
    assert rules
    assert all(rule.startswith(".pullback") for rule in rules)


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("·░█\n▒▓█", 6),
        ("  ·░█\n  ▒▓█\ncolumns 0 to 2", 6),
        ("0 0 9\n0 0 9", 6),
        ("nothing to see", 0),
        ("█", 0),
    ],
)
def test_a_map_of_characters_is_drawn(text: str, cells: int) -> None:
    assert (draw_picture(text) or "").count("<rect") == cells


@pytest.mark.parametrize("ending", [".html", ".json", ".txt"])
def test_a_report_is_saved_whole(ending: str, tmp_path: Path) -> None:
    path = FAULTY.save(tmp_path / "new" / f"report{ending}")
    text = {".html": FAULTY.to_html, ".json": FAULTY.to_json, ".txt": FAULTY.to_text}[ending]()
    assert path.read_text(encoding="utf-8") == text + "\n"
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert path.stat().st_mode & 0o044


def test_a_report_is_not_saved_in_an_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(PullbackError, match=r"unknown-format \[PB406\].*'report.pdf'"):
        FAULTY.save(tmp_path / "report.pdf")


def test_what_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Path, target: Path) -> None:
        raise OSError(f"{self} -> {target}")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="report"):
        FAULTY.save(tmp_path / "report.txt")
    assert list(tmp_path.iterdir()) == []


def test_the_error_of_a_report_tells_of_all_its_faults() -> None:
    WELL.raise_for_findings()
    with pytest.raises(PullbackError, match=r"(?s)PB504.*replay:") as caught:
        FAULTY.raise_for_findings()
    assert caught.value.finding == FAULT
