"""Checks as SARIF 2.1.0, which code-scanning views read.

Source:
    OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0 (2020).
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pullback.cli.results import Checked, Results
from pullback.diagnostic import Finding
from pullback.verify.probe import Probe, page_of

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
LINE = re.compile(r".+?:(\d+)\b")


def sarif_of(results: Results) -> dict[str, Any]:
    """Return a log with a result for each finding, and a notification for what did not run.

    A fault that the baseline knows is "unchanged", not "new".
    """
    found = [(each, f) for each in results.checked for f in each.report.findings]
    codes = list(dict.fromkeys(finding.code for _, finding in found))
    invocation = {
        "executionSuccessful": not results.errors,
        "toolExecutionNotifications": [
            {"level": "error", "message": {"text": str(error)}} for error in results.errors
        ],
    }
    driver = {
        "name": "pullback",
        "version": version("pullback"),
        "rules": [rule_of(code, found) for code in codes],
    }
    run = {
        "tool": {"driver": driver},
        "invocations": [invocation],
        "originalUriBaseIds": {"SRCROOT": {"uri": f"{Path.cwd().as_uri()}/"}},
        "results": [result_of(results, *each, codes) for each in found],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def rule_of(code: str, found: Iterable[tuple[Checked, Finding]]) -> dict[str, Any]:
    """Return a code as a rule: a probe's with its page."""
    finding = next(finding for _, finding in found if finding.code == code)
    rule: dict[str, Any] = {"id": code, "name": finding.name}
    rule["defaultConfiguration"] = {"level": level_of(finding)}
    for probe in Probe.registry:
        if probe.code == code:
            summary = (inspect.getdoc(probe) or "").partition("\n")[0]
            page = page_of(probe)
            rule["shortDescription"] = {"text": summary}
            rule["help"] = {"text": page, "markdown": page}
    return rule


def result_of(
    results: Results, each: Checked, finding: Finding, codes: list[str]
) -> dict[str, Any]:
    """Return a finding as a result."""
    rows = [finding.message, *(f"{key}: {value}" for key, value in finding.evidence)]
    rows += [f"help: {finding.help}"] if finding.help else []
    key = (each.place, finding.code)
    return {
        "ruleId": finding.code,
        "ruleIndex": codes.index(finding.code),
        "level": level_of(finding),
        "message": {"text": "\n".join(rows)},
        "locations": [location_of(each, finding)],
        "partialFingerprints": {
            "targetAndCode/v1": hashlib.sha256(" ".join(key).encode()).hexdigest()
        },
        "baselineState": "unchanged" if key in results.baseline.known else "new",
    }


def level_of(finding: Finding) -> str:
    """Return SARIF's word for a level."""
    return "error" if finding.level == "fault" else "note"


def location_of(each: Checked, finding: Finding) -> dict[str, Any]:
    """Return where a finding is: its line; without one, the file of its target."""
    file = Path(finding.file) if finding.file else each.file
    logical = [{"fullyQualifiedName": each.place}]
    if file is None:
        return {"logicalLocations": logical}
    here = Path.cwd()
    inside = file.is_relative_to(here)
    uri = file.relative_to(here).as_posix() if inside else file.as_uri()
    artifact = {"uri": uri, **({"uriBaseId": "SRCROOT"} if inside else {})}
    numbers = LINE.match(finding.where or "") if finding.file else None
    line = max(int(numbers[1]), 1) if numbers else 1
    place = {"artifactLocation": artifact, "region": {"startLine": line}}
    return {"physicalLocation": place, "logicalLocations": logical}
