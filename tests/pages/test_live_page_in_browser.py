"""A live page in a real browser: newer data comes without a reload, and nothing of the reader's is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from threading import Thread
from typing import Any

import pytest
from browsing import AXE, accessible, click, needs_browser, texts
from pages_made import comparison, hostile, small

from vcl.lab.watch.following import Seen
from vcl.lab.watch.server import PageServer
from vcl.pages import Going, Page

pytestmark = needs_browser()
METHODS = ".headline tbody th .line span:first-of-type"


class Pages:
    """What a server shows, as a test sets it."""

    def __init__(self, page: Page) -> None:
        self.seen = Seen("1", page)

    def now(self) -> Seen:
        return self.seen

    def turn(self, page: Page, fault: str = "") -> None:
        self.seen = Seen(self.seen.version + "1", page, fault)


@pytest.fixture
def server(browser: Any) -> Iterator[PageServer]:
    with PageServer(Pages(small()), "127.0.0.1", 0) as server:  # type: ignore[arg-type]
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        browser.get("about:blank")  # so that it asks no more
        server.shutdown()
        thread.join()


def opened(browser: Any, server: PageServer) -> Pages:
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(server.url)
    assert browser.execute_script("return document.documentElement.dataset.ready") == "yes"
    pages: Any = server.following
    return pages


def asked(browser: Any) -> None:
    """What the page does every two seconds, now."""
    browser.execute_async_script("ask().then(arguments[0])")


def quiet(browser: Any, server: PageServer) -> None:
    """No error in the console, and no request but those to the server of the page."""
    assert [entry["message"] for entry in browser.get_log("browser")] == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [each["params"]["request"]["url"] for each in events if each["method"] == "Network.requestWillBeSent"]
    assert [url for url in urls if not url.startswith((server.url, "data:", "blob:"))] == []


def more() -> Page:
    """The small page with a method more, a seed more, and something in progress."""
    group = comparison(("mle", "ewc", "vcl", "later"), 4, 3)
    lines = (*group.lines[:3], replace(group.lines[3], going=True))
    return replace(small(), groups=[replace(group, lines=lines, going=(Going("later", 3, 5, "task 4: a fit"),))])


def test_newer_results_keep_choices_focus_and_place(browser: Any, server: PageServer) -> None:
    pages = opened(browser, server)
    click(browser, ".seeds input", 0)
    click(browser, ".headline button.sort", 1)
    click(browser, ".headline tbody input", 2)  # mle is not drawn
    browser.find_element("css selector", "input[type=search]").send_keys("e")
    browser.execute_script("drawAll(false); document.querySelectorAll('h3')[4].scrollIntoView({behavior: 'instant'})")
    before = browser.execute_script("return document.querySelectorAll('h3')[4].getBoundingClientRect().top")
    pages.turn(more())
    asked(browser)
    assert texts(browser, METHODS) == ["later", "ewc", "mle"]  # vcl does not have the letter; the best is first
    assert "after 3" in texts(browser, ".headline tbody th .badge")[0]
    chosen = "return [...document.querySelectorAll('.seeds input')].map((box) => box.checked)"
    assert browser.execute_script(chosen) == [False, True, True, True]
    assert set(texts(browser, ".legend li")) == {"later", "ewc"}
    assert browser.execute_script("return [document.activeElement.type, document.activeElement.value]") == [
        "search",
        "e",
    ]
    after = browser.execute_script("return document.querySelectorAll('h3')[4].getBoundingClientRect().top")
    assert abs(after - before) < 3
    assert texts(browser, ".going li b") == ["later"]
    quiet(browser, server)


def test_a_fit_in_progress_does_not_redraw_the_results(browser: Any, server: PageServer) -> None:
    pages = opened(browser, server)
    browser.execute_script("document.querySelector('.headline table').dataset.kept = 'yes'")
    page = small()
    pages.turn(replace(page, groups=[replace(page.groups[0], going=(Going("si", 1, 5, "task 2: epoch 3"),))]))
    asked(browser)
    assert "task 2: epoch 3" in texts(browser, ".going")[0]
    assert browser.execute_script("return document.querySelector('.headline table').dataset.kept") == "yes"


def test_from_nothing_to_results_and_back(browser: Any, server: PageServer) -> None:
    pages: Any = server.following
    pages.turn(Page("Results: later", "Nothing is in later yet.", "Made."))
    opened(browser, server)
    assert texts(browser, "header > p:first-of-type") == ["Nothing is in later yet."]
    pages.turn(small())
    asked(browser)
    assert texts(browser, METHODS) == ["mle", "ewc", "vcl"]
    pages.turn(small(), "The folder cannot be read now: x.")
    asked(browser)
    assert texts(browser, "#live.lost") == ["The folder cannot be read now: x."]
    pages.turn(Page("Results: later", "Nothing is there.", "Made."))
    asked(browser)
    assert texts(browser, ".group") == []
    quiet(browser, server)


def test_hostile_names_that_come_later_do_nothing(browser: Any, server: PageServer) -> None:
    pages = opened(browser, server)
    bad = hostile()
    label = bad.groups[0].lines[0].label
    pages.turn(replace(bad, groups=[replace(bad.groups[0], going=(Going(label, 1, 2, label),))]), label)
    asked(browser)
    asked(browser)
    browser.execute_script("drawAll(true)")
    assert texts(browser, "h1") == [label]
    assert texts(browser, ".going b") == [label]
    assert browser.execute_script("return window.hit === undefined && ({}).polluted === undefined")
    assert browser.execute_script("return document.querySelectorAll('[onload],[onerror],iframe,object').length") == 0
    quiet(browser, server)


def test_a_server_that_has_ended_is_said(browser: Any) -> None:
    with PageServer(Pages(small()), "127.0.0.1", 0) as server:  # type: ignore[arg-type]
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        opened(browser, server)
        server.shutdown()
        thread.join()
    for _ in range(3):  # a connection that the browser held ready may still be answered
        asked(browser)
    assert texts(browser, "#live.lost")[0].startswith("Not connected since")
    assert texts(browser, METHODS) == ["mle", "ewc", "vcl"]
    browser.get("about:blank")
    browser.get_log("browser")


@pytest.mark.skipif(not AXE, reason="NOT RUN: accessibility was not checked: VCL_AXE does not name axe.min.js")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(browser: Any, server: PageServer, theme: str) -> None:
    pages = opened(browser, server)
    pages.turn(more())
    asked(browser)
    browser.execute_script("document.documentElement.dataset.theme = arguments[0]; drawAll(true)", theme)
    assert accessible(browser) == []
