"""Writes what the documentation says about probes: `python tests/repo/probes_page.py`.

docs/probes.md holds their pages, docs/reference.md a table of them, and src/pullback/cli/codes.md
a row for each of them and for each error of docs/reference.md, for `pullback explain`.
"""

from __future__ import annotations

import re
from pathlib import Path

from pullback.verify.probe import Probe, page_of
from pullback.verify.probes import every_probe

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference.md"
MARK = "<!-- written by tests/repo/probes_page.py -->\n"
HEAD = f"""# Probes

{MARK}
What `pb.check` tests about a derivative, in this order. Each page's failing example fires its
probe and no other fault, and its passing example none; the tests run them. The examples assume
`import torch` and `import pullback as pb`.

"""


def pages() -> str:
    """Return docs/probes.md."""
    texts = [re.sub(r"^#", "##", page_of(probe), flags=re.MULTILINE) for probe in every_probe()]
    # A comment in the code of an example is no heading.
    return HEAD + "\n".join(re.sub(r"(```python\n.*?```)", unmarked, t, flags=re.S) for t in texts)


def unmarked(block: re.Match[str]) -> str:
    """Return code as it was."""
    return re.sub(r"^##", "#", block[0], flags=re.MULTILINE)


def table() -> str:
    """Return the table of probes."""
    rows = [f"| {p.code} | {p.name} | {levels_of(p)} | {rule_of(p)} |" for p in every_probe()]
    return "\n".join(["| code | name | level | what has to hold |", "|---|---|---|---|", *rows, ""])


def levels_of(probe: type[Probe]) -> str:
    """Return of which level a probe's findings are."""
    return "fault, or advice" if probe.milder else probe.level


def rule_of(probe: type[Probe]) -> str:
    """Return the first line of a probe's page."""
    return (probe.__doc__ or "").partition("\n")[0].replace("|", "\\|")


def reference() -> str:
    """Return docs/reference.md with its table of probes."""
    return REFERENCE.read_text(encoding="utf-8").partition(MARK)[0] + MARK + "\n" + table()


def codes() -> str:
    """Return the table of errors and probes for the command line."""
    rows = re.findall(r"^\| PB\d+ \| \S+ \| [^|]+ \|$", reference(), re.MULTILINE)
    rows += [f"| {probe.code} | {probe.name} | {rule_of(probe)} |" for probe in every_probe()]
    return "\n".join(sorted(rows)) + "\n"


WRITTEN = {
    ROOT / "docs" / "probes.md": pages,
    REFERENCE: reference,
    ROOT / "src" / "pullback" / "cli" / "codes.md": codes,
}


if __name__ == "__main__":
    for path, text in WRITTEN.items():
        path.write_text(text(), encoding="utf-8")
