"""A page as text: what is in it, that nothing of a name is markup, and that its policy lets only its own code run."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from hashlib import sha256
from html.parser import HTMLParser
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from pages_made import HOSTILE, hostile, large, small

from vcl.pages import Page, html, is_page
from vcl.pages.comparison import packed
from vcl.pages.page import finite, island
from vcl.pages.png import data_uri


class Elements(HTMLParser):
    """Every element with its attributes, and the text of scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[int, str] = {}
        self.open = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self.open = True

    def handle_endtag(self, tag: str) -> None:
        self.open = False

    def handle_data(self, data: str) -> None:
        place = len(self.found) - 1
        if self.open:
            self.text[place] = self.text.get(place, "") + data


def read(page: Page) -> Elements:
    reader = Elements()
    reader.feed(html(page))
    return reader


def elements(page: Page, tag: str) -> list[tuple[dict[str, str | None], str]]:
    read_ = read(page)
    return [(attrs, read_.text.get(place, "")) for place, (name, attrs) in enumerate(read_.found) if name == tag]


def data_of(page: Page) -> Any:
    return json.loads(next(text for attrs, text in elements(page, "script") if attrs.get("id") == "data"))


def test_the_data_of_a_page_reads_back_exactly() -> None:
    page = small()
    (group,) = data_of(page)["groups"]
    assert [line["label"] for line in group["lines"]] == ["mle", "ewc", "vcl"]
    for line, made in zip(group["lines"], page.groups[0].lines, strict=True):
        for name, values in made.values.items():
            stored = line["values"][name]
            found = np.frombuffer(b64decode(stored["data"]), f"<f{stored['size']}").reshape(values.shape)
            assert np.array_equal(found, values)


@pytest.mark.parametrize(("values", "size"), [([0.5, nan, -1.0], 4), ([0.1, 0.2], 8), ([1e300], 8), ([], 4)])
def test_numbers_are_packed_without_a_loss(values: list[float], size: int) -> None:
    stored = packed(values)
    assert stored["size"] == size
    assert np.array_equal(np.frombuffer(b64decode(stored["data"]), f"<f{size}"), np.array(values), equal_nan=True)


def test_hostile_names_make_no_element_more() -> None:
    count = [tag for tag, _ in read(hostile()).found]
    plain = [tag for tag, _ in read(small()).found]
    assert sorted(count) == sorted([*plain, "pre"])  # the text for readers without scripts
    assert not any(name.startswith("on") for _, attrs in read(hostile()).found for name in attrs)
    assert data_of(hostile())["groups"][0]["notes"] == list(HOSTILE)


def test_an_island_holds_no_character_of_markup() -> None:
    text = island({name: [name] for name in HOSTILE})
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {name: [name] for name in HOSTILE}


def test_numbers_that_json_does_not_have_become_null() -> None:
    assert finite({"a": [nan, inf, 1.0, (2, -inf)]}) == {"a": [None, None, 1.0, [2, None]]}


def test_the_policy_names_exactly_the_code_of_the_page() -> None:
    page = small()
    metas = [attrs for attrs, _ in elements(page, "meta") if attrs.get("http-equiv") == "Content-Security-Policy"]
    policy = dict(part.split(" ", 1) for part in str(metas[0]["content"]).split("; "))
    assert policy["default-src"] == "'none'"
    ((_, style),) = elements(page, "style")
    scripts = [text for attrs, text in elements(page, "script") if "type" not in attrs]
    for part, (text,) in (("style-src", (style,)), ("script-src", tuple(scripts))):
        assert policy[part] == f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
    assert not any("unsafe" in value for value in policy.values())


def test_a_page_names_nothing_outside_of_it() -> None:
    for _, attrs in read(small()).found:
        for name in ("src", "href", "action", "data"):
            assert str(attrs.get(name, "data:")).startswith("data:")
    assert html(small()).replace("http://www.w3.org/2000/svg", "").count("http:") == 0
    assert "https:" not in html(small())
    assert "innerHTML" not in html(small())


def test_a_page_of_a_hundred_methods_is_small() -> None:
    assert len(html(large())) < 5_000_000


def test_a_page_is_told_from_another_file() -> None:
    assert is_page(html(hostile())[:4096])
    assert not is_page("<!doctype html><title>mine</title>")


def test_the_same_rows_give_the_same_page() -> None:
    assert html(small()) == html(small())


@pytest.mark.parametrize("shape", [(3, 5), (4, 2, 3)])
def test_a_picture_reads_back(shape: tuple[int, ...]) -> None:
    from io import BytesIO

    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    data = b64decode(data_uri(pixels).removeprefix("data:image/png;base64,"))
    assert np.array_equal(np.asarray(Image.open(BytesIO(data))), pixels)
