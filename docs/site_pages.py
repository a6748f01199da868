"""What the site has besides the pages of this folder; mkdocs calls these functions (`hooks` in mkdocs.yml).

* A link that leaves this folder, to a file of the code, leads to a page that shows the file.
* `reference/commands.md` gets what `turnwise --help` and the help of each command say.
* `questions.md` gets the table of the codes of errors.
* An abbreviation of a method is explained wherever it stands, under the pointer, by the glossary's first sentence.
"""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
from pathlib import Path
from typing import Any

import error_codes
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

DOCS = Path(__file__).parent
ROOT = DOCS.parent
LINK = re.compile(r"\]\(([^)#:\s]+)(#[^)\s]*)?\)")
COMMANDS = "<!-- the commands -->"
CODES = "<!-- the codes of errors -->"
LANGUAGES = {".py": "python", ".yaml": "yaml", ".md": "markdown", ".sh": "sh", ".toml": "toml"}


def on_files(files: Files, config: Any) -> Files:
    """Add a page for each file outside this folder that a page links to."""
    for page in files.documentation_pages():
        for target, _ in LINK.findall((DOCS / page.src_uri).read_text()):
            path = _outside(page.src_uri, target)
            if path and files.get_file_from_path(_shown(path)) is None:
                text = (ROOT / path).read_text()
                content = f"# {path}\n\n````{LANGUAGES.get(Path(path).suffix, '')}\n{text}\n````\n"
                files.append(File.generated(config, _shown(path), content=content, inclusion=_not_in_the_navigation()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Lead links to the pages made above, put the commands in, and append the abbreviations."""

    def led(link: re.Match[str]) -> str:
        path = _outside(page.file.src_uri, link[1])
        if not path:
            return link[0]
        return f"]({posixpath.relpath(_shown(path), posixpath.dirname(page.file.src_uri))})"

    if page.file.src_uri.startswith("source/"):
        return markdown
    markdown = LINK.sub(led, markdown)
    if COMMANDS in markdown:
        markdown = markdown.replace(COMMANDS, _commands())
    if CODES in markdown:
        markdown = markdown.replace(CODES, error_codes.table())
    return markdown if page.file.src_uri == "glossary.md" else f"{markdown}\n\n{_abbreviations()}\n"


def _outside(page: str, target: str) -> str:
    """The path from the project's root of a linked file that is not in this folder; else empty."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
    return "" if path.startswith("docs/") or not (ROOT / path).is_file() else path


def _shown(path: str) -> str:
    return f"source/{path}.md"


def _not_in_the_navigation() -> Any:
    from mkdocs.structure.files import InclusionLevel

    return InclusionLevel.NOT_IN_NAV


def _commands() -> str:
    """The help of every command as Markdown, asked of the project's own environment, without its first heading.

    Raises PluginError where that environment is missing.
    """
    python = Path(os.environ.get("TURNWISE_PYTHON", ROOT / ".venv" / "bin" / "python"))
    if not python.exists():
        raise PluginError(f"the page of commands is made by the project's environment; {python} is missing: make setup")
    said = subprocess.run(
        [python, "-m", "typer", "flows.commands.cli", "utils", "docs", "--name", "turnwise"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return said.partition("\n")[2]


def _abbreviations() -> str:
    """The glossary's methods that are abbreviations, as Markdown's `abbr` wants them: the first sentence of each."""
    entries = re.findall(r"^### ([A-Z][A-Za-z+]*[A-Z+]\w*)\n\n(.+?[.:])(?:\s|$)", _glossary(), flags=re.MULTILINE)
    return "\n".join(f"*[{name}]: {_plain(meaning)}" for name, meaning in entries)


def _glossary() -> str:
    """The glossary without its programs, each paragraph in one line."""
    methods = (DOCS / "glossary.md").read_text().partition("\n## Keeping")[0]
    return re.sub(r"(?<=\S)\n(?=[^\n#|*])", " ", methods)


def _plain(text: str) -> str:
    return re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text).replace("`", "").replace("*", "")
