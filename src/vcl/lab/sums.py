"""Checksums of what is on disk, so that no number is read that was not written.

    part.json       has the SHA-256 of the files beside it (``files``) and its own (``check``)
    *.safetensors   have one in their header, with what they belong to: large ones are written in the background, when
                    part.json is there already

Before files are replaced, part.json lists the new checksums beside the old ones; afterwards the new ones alone. So each
file has a listed checksum wherever a crash comes. What earlier versions wrote has none, and is read as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor, uint8

from vcl.learner.bounded import read_bounded
from vcl.learner.folder import checksum_of

FILES, CHECK, SEAL, METADATA = "files", "check", "seal", "__metadata__"
OTHER = "it is not what was written"

Sums = Mapping[str, Sequence[str]]
"""The SHA-256 that a file may have, by its name."""


def signed(about: Mapping[str, Any]) -> dict[str, Any]:
    """An object of JSON with a checksum of everything in it."""
    plain = json.loads(json.dumps({name: value for name, value in about.items() if name != CHECK}))
    return {**plain, CHECK: checksum_of(plain)}


def check_signed(about: Mapping[str, Any]) -> None:
    """Raise ValueError if an object is not the one that was signed; older ones have no checksum."""
    if about.get(CHECK, "") != checksum_of(about) and CHECK in about:
        raise ValueError(OTHER)


def sums_there(folder: Path, names: Iterable[str]) -> dict[str, list[str]]:
    """The checksums of those files that a folder has."""
    return {name: [_sum(read_bounded(folder / name))] for name in names if (folder / name).exists()}


def sums_of(contents: Mapping[str, bytes]) -> dict[str, list[str]]:
    """The checksums of contents by the names of their files."""
    return {name: [_sum(content)] for name, content in contents.items()}


def either(old: Sums, new: Sums) -> dict[str, list[str]]:
    """Those of before and those of after, for while files are replaced."""
    return {name: [*old.get(name, ()), *new.get(name, ())] for name in dict.fromkeys((*old, *new))}


def check_file(path: Path, sums: Sums | None) -> None:
    """Raise ValueError or OSError if a file is not what was written; ``sums`` is None where nothing is known."""
    if sums is None:
        return
    if path.name not in sums:
        if path.exists():
            raise ValueError("it does not belong to this part")
    elif _sum(read_bounded(path)) not in sums[path.name]:
        raise ValueError(OTHER)


def owner(known: Mapping[str, Any]) -> str:
    """What the tensors of a part belong to, by its part.json: these runs of what is described."""
    return checksum_of(json.loads(json.dumps({name: known[name] for name in ("description", "runs")})))[:16]


def sealed(tensors: Mapping[str, Tensor], of: str) -> bytes:
    """Tensors as safetensors, with a checksum and what they belong to."""
    digest = sha256()
    for name in sorted(tensors):
        value = tensors[name].contiguous()
        digest.update(_about(name, value.shape))
        digest.update(value.reshape(-1).view(uint8).numpy().data)
    # safetensors writes several entries in any order.
    return save(dict(tensors), {SEAL: json.dumps([of, digest.hexdigest()])})


def check_seal(content: bytes, of: str) -> None:
    """Raise ValueError and the like if a file is not what was sealed, or belongs to another part."""
    size = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:size])
    metadata = header.pop(METADATA, {})
    if SEAL not in metadata:
        return
    whose, wanted = json.loads(metadata[SEAL])
    if whose != of:
        raise ValueError("it belongs to another part")
    digest, data = sha256(), memoryview(content)[size:]
    for name in sorted(header):
        begin, end = header[name]["data_offsets"]
        digest.update(_about(name, header[name]["shape"]))
        digest.update(data[begin:end])
    if digest.hexdigest() != wanted:
        raise ValueError(OTHER)


def _about(name: str, shape: Iterable[int]) -> bytes:
    return json.dumps([name, list(shape)]).encode()


def _sum(content: bytes) -> str:
    return sha256(content).hexdigest()
