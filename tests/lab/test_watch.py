"""`vcl watch`: what is served, to whom, and what it says while other processes write."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Any

import pytest
from lab_made import alone, done, fault, without_checksums

from vcl.fitting.progress import Progress
from vcl.lab import pulse as pulse_module
from vcl.lab.folder import NOW
from vcl.lab.pulse import pulse, read_now
from vcl.lab.watch.following import Following
from vcl.lab.watch.server import PageServer, is_here

SMOKE = "--preset smoke --device cpu --set tasks=3 --out out"


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two finished methods."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        here = alone(tmp_path_factory.mktemp("watch"), monkeypatch)
        done("run split-digits --method mle,vcl --seeds 2 " + SMOKE)
    return here / "out"


@pytest.fixture
def out(story: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it in a folder of its own."""
    here = alone(tmp_path, monkeypatch)
    shutil.copytree(story, here / "out")
    return here / "out"


@contextmanager
def served(*folders: Path, host: str = "127.0.0.1") -> Iterator[PageServer]:
    with PageServer(Following(folders), host, 0) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(server: PageServer, path: str, host: str | None = "127.0.0.1", method: str = "GET") -> tuple[int, str, Any]:
    """The status, text and headers of an answer."""
    connection = HTTPConnection("127.0.0.1", server.server_address[1], timeout=20)
    connection.putrequest(method, path, skip_host=True)
    if host is not None:
        connection.putheader("Host", host)
    connection.endheaders()
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), answer.headers


def newer(server: PageServer, version: str) -> Any:
    """The data once it is another than this version."""
    end = monotonic() + 20
    while monotonic() < end:
        status, text, _ = ask(server, f"/data?since={version}")
        if status == 200:
            return json.loads(text)
        sleep(0.05)
    raise AssertionError("nothing new came")


def unfinished(out: Path, method: str, tasks: int) -> Path:
    """A part as it is after some tasks, with the rows of one task more, which are written first."""
    (folder,) = out.glob(f"parts/split-digits-{method}-*")
    without_checksums(folder)
    known = json.loads((folder / "part.json").read_text())
    (folder / "part.json").write_text(json.dumps(known | {"finished": False, "tasks": known["tasks"][:tasks]}))
    lines = (folder / "rows.csv").read_text().splitlines()
    kept = [line for line in lines[1:] if int(line.split(",")[2]) <= tasks + 1]
    (folder / "rows.csv").write_text("\n".join([lines[0], *kept]) + "\n")
    return folder


def test_the_page_is_served_and_data_is_sent_once(out: Path) -> None:
    with served(out) as server:
        status, text, headers = ask(server, "/")
        assert status == 200
        assert "connect-src &#x27;self&#x27;" in text
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Frame-Options"] == "DENY"
        data = json.loads(ask(server, "/data")[1])
        assert [line["label"] for line in data["groups"][0]["lines"]] == ["mle", "vcl"]
        assert ask(server, f"/data?since={data['version']}")[:2] == (204, "")
        assert ask(server, "/", method="HEAD")[:2] == (200, "")


@pytest.mark.parametrize("path", ["/out", "/parts/", "/../pyproject.toml", "/page.html", "/data/"])
def test_nothing_of_the_disk_is_served(out: Path, path: str) -> None:
    with served(out) as server:
        assert ask(server, path)[:2] == (404, "Nothing is here.\n")
        assert ask(server, "/", method="POST")[0] == 501


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1", "", None, "["]
)
def test_a_name_of_another_site_is_refused(out: Path, host: str | None) -> None:
    with served(out) as server:
        for path in ("/", "/data"):
            assert ask(server, path, host)[0] == 403
        for name in ("localhost:9000", "127.0.0.1", "[::1]:80"):
            assert ask(server, "/data", name)[0] == 200


def test_elsewhere_the_address_has_a_token(out: Path) -> None:
    with served(out, host="0.0.0.0") as server:
        assert len(server.token) >= 32
        assert server.url.endswith(f":{server.server_address[1]}/{server.token}/")
        for path in ("/", "/data", f"/{server.token}", f"/{server.token[:-1]}/", f"/{server.token}x/data", "/%C3%A9/"):
            assert ask(server, path)[0] == 404
        assert ask(server, f"/{server.token}/data")[0] == 200
        assert ask(server, f"/{server.token}/", "evil.example")[0] == 403
    assert is_here("10.1.2.3", "0.0.0.0")
    assert is_here("Box.lan", "box.lan")
    assert not is_here("other.lan", "box.lan")


def test_a_folder_may_come_later(out: Path) -> None:
    later = out.parent / "later"
    with served(later) as server:
        data = json.loads(ask(server, "/data")[1])
        assert "Nothing is in" in data["lead"]
        shutil.copytree(out, later)
        found = newer(server, data["version"])
        assert [line["label"] for line in found["groups"][0]["lines"]] == ["mle", "vcl"]


def test_two_writers_each_show_their_finished_tasks(out: Path) -> None:
    unfinished(out, "vcl", 1)
    folder = unfinished(out, "mle", 2)
    about = {
        "task": 3,
        "tasks": 3,
        "fit": "maximum likelihood",
        "epoch": 4,
        "epochs": 9,
        "written": "2026-01-01T10:11:12",
    }
    (folder / NOW).write_text(json.dumps(about))
    with served(out) as server:
        data = json.loads(ask(server, "/data")[1])
        (group,) = data["groups"]
        assert [(line["label"], line["tasks"], line["going"]) for line in group["lines"]] == [
            ("mle", 2, True),
            ("vcl", 1, True),
        ]
        assert [(one["label"], one["done"], one["tasks"]) for one in group["going"]] == [("mle", 2, 3), ("vcl", 1, 3)]
        assert group["going"][0]["about"] == "task 3: maximum likelihood, epoch 4 of 9 at 10:11:12 UTC"
        known = json.loads((folder / "part.json").read_text())
        done("run split-digits --method mle --seeds 2 " + SMOKE)  # one of them goes on to its end
        assert not (folder / NOW).exists()
        assert json.loads((folder / "part.json").read_text())["runs"] == known["runs"]
        found = newer(server, data["version"])["groups"][0]
        assert [(line["label"], line["tasks"], line["going"]) for line in found["lines"]] == [
            ("mle", 3, False),
            ("vcl", 1, True),
        ]


def test_what_cannot_be_read_leaves_the_last_page(out: Path) -> None:
    with served(out) as server:
        data = json.loads(ask(server, "/data")[1])
        next(out.glob("parts/split-digits-vcl-*/part.json")).write_text("{")
        found = newer(server, data["version"])
        assert "cannot be read" in found["fault"]
        assert found["groups"] == data["groups"]


def test_a_port_in_use_is_one_sentence(out: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = fault(f"watch out --port {port}")
    assert said == f"port {port} is in use; give another with --port, or --port 0 for any that is free."
    assert "which is no address of this machine" in fault("watch out --host 203.0.113.1")
    assert "given twice" in fault("watch out out")


def test_a_pulse_says_where_a_fit_stands_and_is_gone_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse_module, "EVERY", 0.0)
    with pulse(tmp_path, 2) as beat:
        beat.begin("vcl", 5)
        beat.epoch(Progress("variational fit", 3, 10, None))  # type: ignore[arg-type]
        found = read_now(tmp_path)
        assert [found[name] for name in ("task", "tasks", "fit", "epoch", "epochs")] == [3, 5, "variational fit", 3, 10]
        for text in ("", "{}", "[1]", json.dumps({**found, "epoch": "3"})):
            (tmp_path / NOW).write_text(text)
            assert read_now(tmp_path) == {}
    assert list(tmp_path.iterdir()) == []
