"""A real browser for the tests of pages: Chromium with its driver, and selenium.

`.ci/run` installs them. With VCL_AXE, the path of axe.min.js, accessibility is checked too.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import pytest

from vcl.pages import Page, html

CHROME = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
AXE = os.environ.get("VCL_AXE", "")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--window-size=1200,900",
)  # fmt: skip

MISSING = "NOT RUN: pages were not opened in a browser: "


def needs_browser() -> Any:
    """The mark of tests that open pages; they are skipped, loudly, where something is missing."""
    pytest.importorskip("selenium", reason=MISSING + "selenium is missing")
    return pytest.mark.skipif(
        CHROME is None or DRIVER is None,
        reason=MISSING + "chromium and chromedriver are missing (apt-get install chromium chromium-driver)",
    )


def started(profile: Path) -> Any:
    """A browser without a window, whose console and requests are kept."""
    with catch_warnings():
        simplefilter("ignore")  # of selenium's own modules
        from selenium.webdriver import Chrome, ChromeOptions
        from selenium.webdriver.chrome.service import Service
    options = ChromeOptions()
    options.binary_location = str(CHROME)
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options=options, service=Service(DRIVER))
    driver.get("about:blank")
    driver.get_log("performance")  # of the browser's own first page
    return driver


def opened(browser: Any, page: Page, folder: Path) -> Path:
    """Open a page as a file; it must be ready, without an error and without a request for anything but itself."""
    path = folder / "page.html"
    path.write_text(html(page), encoding="utf-8")
    browser.get_log("performance")
    browser.get(path.as_uri())
    assert browser.execute_script("return document.documentElement.dataset.ready") == "yes"
    quiet(browser, path)
    return path


def quiet(browser: Any, path: Path) -> None:
    """No error in the console, and no request but that for the page."""
    assert [entry["message"] for entry in browser.get_log("browser")] == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [each["params"]["request"]["url"] for each in events if each["method"] == "Network.requestWillBeSent"]
    assert [url for url in urls if url != path.as_uri() and not url.startswith(("data:", "blob:"))] == []


def texts(browser: Any, query: str) -> list[str]:
    """The text of every element that is found."""
    found: list[str] = browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((node) => node.textContent.trim())", query
    )
    return found


def click(browser: Any, query: str, place: int = 0) -> None:
    browser.execute_script("document.querySelectorAll(arguments[0])[arguments[1]].click()", query, place)


def accessible(browser: Any) -> list[Any]:
    """What axe finds wrong with the page that is open."""
    browser.execute_script(Path(AXE).read_text(encoding="utf-8"))
    found = browser.execute_async_script("const done = arguments[0]; axe.run().then((found) => done(found.violations))")
    return [(one["id"], [node["html"][:120] for node in one["nodes"][:3]]) for one in found]
