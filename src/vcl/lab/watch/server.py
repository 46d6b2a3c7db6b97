"""Serves a live page over HTTP: two addresses, nothing of the disk, and nobody but who may read it.

On a loopback address only programs of this machine can ask. Elsewhere the address of the page begins with a token that
cannot be guessed. A request must name this machine in its Host header: a name of another site that was made to point
here (DNS rebinding) is refused.
"""

from __future__ import annotations

import errno
import socket
import sys
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from secrets import token_urlsafe
from socketserver import TCPServer
from typing import Any, final
from urllib.parse import parse_qs, urlsplit

from vcl.errors import VclError
from vcl.lab.watch.following import Following
from vcl.pages import data_of, html

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def is_loopback(host: str) -> bool:
    """Whether an address or a name is of this machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_here(name: str, host: str) -> bool:
    """Whether the name in a Host header is one that a server at ``host`` is called by, and no name of another site."""
    if is_loopback(host):
        return is_loopback(name)
    try:
        ip_address(name)
    except ValueError:
        return name.lower() in {"localhost", host.lower(), socket.gethostname().lower()}
    return True


@final
class PageServer(ThreadingHTTPServer):
    """A server of one live page."""

    daemon_threads = True
    request_queue_size = 32

    def __init__(self, following: Following, host: str, port: int) -> None:
        """Listen. Raises VclError if the port is in use, or if host or port cannot be had."""
        self.following, self.host = following, host
        self.token = "" if is_loopback(host) else token_urlsafe(24)
        try:
            family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
            self.address_family = family
            super().__init__((str(address[0]), int(address[1])), _Handler)
        except socket.gaierror as error:
            raise VclError(
                f"--host is {host}, which is no address of this machine; give one, or leave it out."
            ) from error
        except OSError as error:
            raise VclError(_refused(host, port, error)) from error

    def server_bind(self) -> None:
        """Bind without asking a name server for this machine's name."""
        TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that went away; print any other error."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        """The address of the page."""
        name = socket.gethostname() if self.host in ("0.0.0.0", "::") else self.host
        name = f"[{name}]" if ":" in name else name
        return f"http://{name}:{self.server_address[1]}/{f'{self.token}/' if self.token else ''}"


def _refused(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use; give another with --port, or --port 0 for any that is free."
    if error.errno == errno.EACCES:
        return f"port {port} is not for ordinary users; give one from 1024 with --port."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"--host is {host}, which is no address of this machine; give one, or leave it out."
    return f"cannot listen at {host}, port {port} ({error.strerror or error}); give another --host or --port."


@final
class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    server_version, sys_version = "vcl", ""
    timeout = 30
    """Seconds that a silent connection is kept."""

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the terminal is for the address."""

    def _answer(self, body: bool) -> None:
        try:
            asked, name = urlsplit(self.path), urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
        except ValueError:
            asked, name = urlsplit("/"), ""
        if not is_here(name, self.server.host):
            self._send(403, "text/plain", "Open the address that vcl watch printed.\n", body)
            return
        path = asked.path
        if self.server.token:
            given, slash, path = path.removeprefix("/").partition("/")
            if not compare_digest(given.encode("utf-8", "replace"), self.server.token.encode()) or not slash:
                self._send(404, "text/plain", "Nothing is here.\n", body)
                return
            path = "/" + path
        if path == "/":
            seen = self.server.following.now()
            self._send(200, "text/html", html(seen.page, live=seen.version or "none"), body)
        elif path == "/data":
            seen = self.server.following.now()
            if parse_qs(asked.query).get("since") == [seen.version or "none"]:
                self._send(204, "application/json", "", body)
            else:
                self._send(200, "application/json", data_of(seen.page, seen.version or "none", seen.fault), body)
        else:
            self._send(404, "text/plain", "Nothing is here.\n", body)

    def _send(self, code: int, kind: str, text: str, body: bool) -> None:
        content = text.encode()
        self.send_response(code)
        for header, value in HEADERS.items():
            self.send_header(header, value)
        if code != 204:
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body and code != 204:
            self.wfile.write(content)
