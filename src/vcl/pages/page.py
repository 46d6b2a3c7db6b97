"""A page as one file: styles, scripts and data within, and a policy under which nothing else runs or loads.

The data is a JSON island. The scripts make text nodes from it and never markup, so a name can hold anything.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any, final

from vcl.pages.comparison import Comparison
from vcl.pages.sections import Section

STYLES = ("page.css",)
SCRIPTS = ("dom.js", "tables.js", "charts.js", "runs.js", "parts.js", "calibration.js", "main.js")
LIVE = "live.js"
"""What a live page has too: it asks its own server for newer data."""

MARK = '<meta name="generator" content="vcl pages">'
"""In every page, so that a page can be told from another file."""


@final
@dataclass(frozen=True)
class Page:
    """What a page shows: sections first, then comparisons of runs."""

    title: str
    lead: str
    footer: str
    sections: Sequence[Section] = ()
    groups: Sequence[Comparison] = ()
    plain: str = ""
    """The results as text, for readers without scripts."""


def data_of(page: Page, version: str = "", fault: str = "") -> str:
    """What the script of a page reads, as JSON without markup.

    ``version`` tells it from other states of the page; ``fault`` is what a live page says of newer data.
    """
    return island({
        "version": version,
        "fault": fault,
        "title": page.title,
        "lead": page.lead,
        "footer": page.footer,
        "sections": [section.described() for section in page.sections],
        "groups": [group.described() for group in page.groups],
    })  # fmt: skip


def html(page: Page, live: str | None = None) -> str:
    """The page as the text of one HTML file; with ``live``, the version of its data, one that asks for newer data."""
    style, script = asset(STYLES), asset(SCRIPTS if live is None else (*SCRIPTS, LIVE))
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_digest(script)}",
            f"style-src {_digest(style)}",
            "img-src data:",
            *(() if live is None else ("connect-src 'self'",)),
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    plain = f"<pre>{escape(page.plain)}</pre>" if page.plain else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
{MARK}
<title>{escape(page.title)}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<header><h1>{escape(page.title)}</h1><button type="button" class="quiet" id="theme">Light or dark</button>
<p>{escape(page.lead)}</p></header>
<nav aria-label="Contents"><ul></ul></nav>
<main><noscript><p>Charts and tables need JavaScript, which is in this file.</p>{plain}</noscript></main>
<footer>{escape(page.footer)}</footer>
<script type="application/json" id="data">{data_of(page, live or "")}</script>
<script>{script}</script>
</body>
</html>
"""


def island(data: Mapping[str, Any]) -> str:
    """Data as JSON that stands in a script element: no character of markup is left in it."""
    text = json.dumps(finite(data), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def finite(value: Any) -> Any:
    """The same value with null for every number that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return value


def is_page(head: str) -> bool:
    """Whether a file that begins like this was written by :func:`html`."""
    return MARK in head


@cache
def asset(names: tuple[str, ...]) -> str:
    """The text of files beside this one, one after another."""
    folder = files("vcl.pages") / "assets"
    return "\n" + "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


def _digest(text: str) -> str:
    """The source expression of a policy for exactly this text."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
