"""A report as one HTML page that needs nothing else."""

from __future__ import annotations

from html import escape

from pullback.verify.report import Report


def html_of(report: Report) -> str:
    """Return the page."""
    title = escape(report.target)
    return f"<!doctype html><title>{title}</title><pre>{escape(str(report))}</pre>"
