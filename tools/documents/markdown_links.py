"""What the checks and the site read of Markdown: fences, links and the anchors of headings, as GitHub makes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

WORDS, ADDRESS = r"(?:[^\[\]]|\[[^\]]*\])*", r"[^()\s]+(?:\([^()\s]*\)[^()\s]*)*"
LINK = re.compile(rf"(?P<image>!?)\[(?P<text>{WORDS})\]\((?P<target>{ADDRESS})\)")
"""An inline link or image; documents use no other kind."""
FENCE = re.compile(r"\s*(```+|~~~+)\s*([\w-]*)")
CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
HEADING = re.compile(r"(#{1,6}) +(.+?)\s*$")
ANCHOR = re.compile(r'<a (?:id|name)="([^"]+)"')


class Line(NamedTuple):
    """A line of a document, from 1, and the language of the fence that it is in: None outside of fences."""

    number: int
    text: str
    fence: str | None


def lines(text: str) -> Iterator[Line]:
    """The lines between and within fences, without the fences themselves."""
    mark, language = "", None
    for number, line in enumerate(text.splitlines(), 1):
        found = FENCE.match(line)
        if found and not mark:
            mark, language = found[1], found[2]
        elif found and line.strip() == mark:
            mark, language = "", None
        else:
            yield Line(number, line, language if mark else None)


def prose(line: str) -> str:
    """The line with its code spans blanked, so that places stay the same."""
    return CODE.sub(lambda found: "`" * len(found[0]), line)


class Link(NamedTuple):
    """A link of a document: where it is, and its target as it is written."""

    line: int
    target: str
    image: bool


def links(text: str) -> list[Link]:
    """Every link and image outside of code."""
    found = []
    for line in lines(text):
        if line.fence is None:
            blank = prose(line.text)
            found += [
                Link(line.number, each["target"], bool(each["image"]))
                for each in LINK.finditer(line.text)
                if blank[each.start()] in "![" and blank[each.end() - 1] == ")"
            ]
    return found


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading, before it is told apart from others."""
    words = LINK.sub(lambda found: found["text"], heading).replace("`", "")
    words = re.sub(r"<[^>]+>|[*]", "", words).strip().lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def anchors(text: str) -> set[str]:
    """The anchors of a document: of its headings, numbered where they repeat, and those it sets itself."""
    found: set[str] = set()
    for line in lines(text):
        if line.fence is not None:
            continue
        found.update(ANCHOR.findall(line.text))
        if heading := HEADING.match(line.text):
            base = name = slug(heading[2])
            number = 0
            while name in found:
                number += 1
                name = f"{base}-{number}"
            found.add(name)
    return found
