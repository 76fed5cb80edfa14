"""What MkDocs lacks for this repository: pages outside of docs/, links to them, translations.

Pages are written for whoever reads them in the repository. The site has the README and its like
too; a link to a file that the site does not have is its text alone. `docs/zh/tutorial.md` is the
translation of `docs/tutorial.md`: each has a switch to the other.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "benchmarks.md",
    "examples/README.md": "examples.md",
    "tests/README.md": "tests.md",
}
LANGUAGES = {"en": "English", "zh": "中文"}
INSIDE = {page: path for path, page in OUTSIDE.items()}
# A block of code, or inline code, or the target of a link.
LINK = re.compile(
    r"^(?P<fence>```+).*?^(?P=fence)$|`[^`\n]+`(?!\])"
    r"|(?P<image>!?)\[(?P<text>(?:`[^`]*`|[^\]`])*)\]\((?P<target>[^)#:\s]+)(?P<anchor>#[^)\s]*)?\)"
    r'|src="(?P<source>[^":]+)"',
    re.MULTILINE | re.DOTALL,
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside of docs/."""
    for path, page in OUTSIDE.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links between files of the repository into links between pages of the site."""
    uri = page.file.src_uri
    home = PurePosixPath(INSIDE.get(uri, f"docs/{uri}")).parent

    def linked(found: re.Match[str]) -> str:
        target = found["target"] or found["source"]
        if target is None:
            return found[0]
        path = os.path.normpath(home / target)
        there = OUTSIDE.get(path) or path.removeprefix("docs/")
        if files.get_file_from_path(there) is None:
            return found["text"] if (ROOT / path).exists() and found["text"] else found[0]
        start = found.start("target" if found["target"] else "source") - found.start()
        new = os.path.relpath(there, PurePosixPath(uri).parent)
        link = found[0][:start] + new + found[0][start + len(target) :]
        # Whoever reads a translation is told which pages have none.
        away = uri.startswith("zh/") and there.endswith(".md") and not there.startswith("zh/")
        return f"{link}（英文）" if away and found["text"] != "English" else link  # noqa: RUF001

    return LINK.sub(linked, markdown)


def on_page_context(
    context: dict[str, object], page: Page, config: MkDocsConfig, nav: Navigation
) -> None:
    """Have the theme speak a page's language, and name the same page in the other ones."""
    first, _, rest = page.file.src_uri.partition("/")
    own = first if first in LANGUAGES else "en"
    uri = rest if own == first else page.file.src_uri
    urls = {each.file.src_uri: each.url for each in nav.pages}
    there = {language: "" if language == "en" else f"{language}/" for language in LANGUAGES}
    found = {
        language: urls.get(folder + uri, urls.get(f"{folder}index.md"))
        for language, folder in there.items()
    }
    config.theme["language"] = own
    config.extra["alternate"] = [
        {"name": LANGUAGES[language], "link": url, "lang": language}
        for language, url in found.items()
        if url is not None and len(set(found.values()) - {None}) > 1
    ]
