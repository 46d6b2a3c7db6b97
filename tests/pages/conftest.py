"""One browser for all tests of pages in a process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from browsing import started


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    driver = started(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()
