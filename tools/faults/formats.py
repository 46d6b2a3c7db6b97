"""Files as trees that can be edited, and edited trees as files: whole again, sealed again, and hostile.

A checksum that a file has of itself is made anew, so that an edit is seen by what reads behind it. What cannot be
written as the format wants it (a text in place of a size) is written as it comes.
"""

from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from edits import DEEP, Nested, raw

NEST = "\ue000"
ODD = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError, struct.error)


class Format(NamedTuple):
    """How a kind of file becomes a tree and comes from one."""

    unpack: Callable[[bytes], Any]
    pack: Callable[[Any], bytes]

    def packed(self, tree: Any) -> bytes:
        """The file of a tree, however odd that has become."""
        try:
            return self.pack(tree)
        except ODD:
            return text(tree)


def text(value: Any) -> bytes:
    """JSON, with what it cannot say as texts, and with values nested deeper than Python writes them."""
    said = json.dumps(value, default=lambda each: NEST if isinstance(each, Nested) else repr(each), skipkeys=True)
    return said.replace(json.dumps(NEST), "[" * DEEP + "]" * DEEP).encode()


def whole(value: Any) -> int:
    """A number for a field of a header; odd values become odd numbers."""
    if isinstance(value, float) and value == value and abs(value) < 1e300:
        return int(value)
    return value if isinstance(value, int) else len(raw(value))


def field(value: Any, width: int, order: Any = "big") -> bytes:
    """A number in so many bytes."""
    return (whole(value) % 2 ** (8 * width)).to_bytes(width, order)


def bits(value: Any) -> bytes:
    """A leaf that should be bytes."""
    return value if isinstance(value, bytes) else text(value)


def in_json(content: bytes) -> Any:
    """What a JSON file says."""
    return json.loads(content)


def sealed(inner: str, seal: str) -> Format:
    """A JSON file with a text that is JSON too, and its SHA-256."""

    def pack(tree: Any) -> bytes:
        about = text(tree).decode()
        return json.dumps({seal: sha256(about.encode()).hexdigest(), inner: about}).encode()

    return Format(lambda content: json.loads(json.loads(content)[inner]), pack)


def from_safetensors(content: bytes) -> Any:
    """Tensors by name with dtype, shape and bytes; tensors of bytes that are JSON are trees themselves."""
    size = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    about = header.pop("__metadata__", None)
    found: dict[str, Any] = {}
    for name, each in header.items():
        first, last = each["data_offsets"]
        part: Any = data[first:last]
        if each["dtype"] == "U8" and part[:1] == b"{":
            part = json.loads(part)
        elif name == "state" and each["dtype"] == "U8":  # of a generator: a file in a file
            part = {"safetensors": from_safetensors(part)}
        found[name] = {"dtype": each["dtype"], "shape": each["shape"], "data": part}
    return {"tensors": found, "about": about, "length": None}


def to_safetensors(tree: Any) -> bytes:
    """The file of such a tree."""
    header: dict[str, Any] = {} if tree.get("about") is None else {"__metadata__": tree["about"]}
    data = b""
    for name, each in tree["tensors"].items():
        part, shape = each["data"], each["shape"]
        if isinstance(part, dict):
            whole_shape = isinstance(shape, list) and len(shape) == 1
            part = to_safetensors(part["safetensors"]) if "safetensors" in part else text(part)
            shape = [len(part)] if whole_shape else shape
        header[name] = {
            "dtype": each["dtype"],
            "shape": shape,
            "data_offsets": [len(data), len(data) + len(bits(part))],
        }
        data += bits(part)
    said = text(header)
    said += b" " * (-len(said) % 8)
    length = len(said) if tree.get("length") is None else tree["length"]
    return field(length, 8, "little") + said + data


def from_npy(content: bytes) -> Any:
    """The header's fields, and the numbers."""
    import ast

    size = int.from_bytes(content[8:10], "little")
    return {"header": ast.literal_eval(content[10 : 10 + size].decode()), "data": content[10 + size :]}


def to_npy(tree: Any) -> bytes:
    """An npy file; a header that is a text is written as it is."""
    header = tree["header"]
    if isinstance(header, dict) and isinstance(header.get("shape"), list):
        header = {**header, "shape": tuple(header["shape"])}
    said = "[" * DEEP if isinstance(header, Nested) else header if isinstance(header, str) else repr(header)
    told = said.encode("utf-8", "replace") + b"\n"
    return b"\x93NUMPY\x01\x00" + field(len(told), 2, "little") + told + bits(tree["data"])


def from_zip(content: bytes) -> Any:
    """Members by name, npy files among them as trees."""
    with zipfile.ZipFile(io.BytesIO(content)) as parts:
        return [[name, from_npy(parts.read(name)), zipfile.ZIP_STORED] for name in parts.namelist()]


def to_zip(tree: Any) -> bytes:
    """A zip file; names may climb, and members may be packed."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as parts:
        for name, member, how in tree:
            kind = zipfile.ZIP_DEFLATED if how else zipfile.ZIP_STORED
            content = to_npy(member) if isinstance(member, dict) and "header" in member else bits(member)
            parts.writestr(zipfile.ZipInfo(str(name)[:1000]), content, kind)
    return out.getvalue()


def from_png(content: bytes) -> Any:
    """Chunks: kind and content; the pixels unpacked."""
    found, at = [], 8
    while at < len(content):
        size, kind = int.from_bytes(content[at : at + 4], "big"), content[at + 4 : at + 8]
        part = content[at + 8 : at + 8 + size]
        found.append([kind, zlib.decompress(part) if kind == b"IDAT" else part])
        at += 12 + size
    return found


def to_png(tree: Any) -> bytes:
    """A PNG file with right checksums."""
    out = b"\x89PNG\r\n\x1a\n"
    for kind, content in tree:
        name = (bits(kind) + b"    ")[:4]
        part = zlib.compress(bits(content)) if name in (b"IDAT", b"zTXt") else bits(content)
        part = b"a\0\0" + part if name in (b"zTXt", b"iCCP") else part
        out += struct.pack(">I", len(part)) + name + part + struct.pack(">I", zlib.crc32(name + part))
    return out


def from_tgz(content: bytes) -> Any:
    """Members: name, type, where a link leads, content, size."""
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        files = [(each, archive.extractfile(each)) for each in archive]
        return [
            [each.name, each.type, each.linkname, b"" if file is None else file.read(), None] for each, file in files
        ]


def to_tgz(tree: Any) -> bytes:
    """A packed archive, whose members may lie about their size."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, kind, link, content, size in tree:
            about = tarfile.TarInfo(str(name)[:2000])
            about.type, about.linkname = bits(kind)[:1] or b"0", str(link)[:2000]
            about.size = len(bits(content)) if size is None else whole(size) % 2**62
            archive.fileobj.write(about.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))  # type: ignore[union-attr]
            part = bits(content)
            archive.fileobj.write(part + bytes(-len(part) % 512))  # type: ignore[union-attr]
    return gzip.compress(out.getvalue(), 1)


def from_idx(content: bytes) -> Any:
    """Magic number, sizes and data."""
    sides = content[3]
    sizes = [int.from_bytes(content[4 + 4 * side : 8 + 4 * side], "big") for side in range(sides)]
    return {"magic": content[:4], "sizes": sizes, "data": content[4 + 4 * sides :]}


def to_idx(tree: Any) -> bytes:
    """An IDX file."""
    return bits(tree["magic"]) + b"".join(field(size, 4) for size in tree["sizes"]) + bits(tree["data"])


def from_csv(content: bytes) -> Any:
    """Lines of fields."""
    return [line.split(",") for line in content.decode().splitlines()]


def to_csv(tree: Any) -> bytes:
    """Lines of fields, as they come."""
    lines = [",".join(map(cell, line)) if isinstance(line, list) else cell(line) for line in tree]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass")


def cell(value: Any) -> str:
    """A field."""
    return "[" * DEEP if isinstance(value, Nested) else value if isinstance(value, str) else str(value)


def from_parquet(content: bytes) -> Any:
    """Columns of values."""
    from pyarrow import parquet

    return {name: list(values) for name, values in parquet.read_table(io.BytesIO(content)).to_pydict().items()}


def to_parquet(tree: Any) -> bytes:
    """A Parquet file with these columns; values that arrow does not take together are texts."""
    import pyarrow
    from pyarrow import parquet

    columns = {}
    for name, values in tree.items():
        given = values if isinstance(values, list) else [values]
        try:
            columns[str(name)] = pyarrow.array(given)
        except (pyarrow.ArrowException, OverflowError, TypeError, ValueError):
            columns[str(name)] = pyarrow.array([repr(each) for each in given])
    out = io.BytesIO()
    try:
        parquet.write_table(pyarrow.table(columns), out)
    except pyarrow.ArrowException as error:
        raise ValueError(str(error)) from error
    return out.getvalue()


BYTES = Format(lambda content: [content], lambda tree: b"".join(map(bits, tree)))
JSON = Format(in_json, text)


def without_checksums(path: Path) -> None:
    """Rewrite a file of JSON as an earlier version wrote it: no checksum stands between an edit and the reader."""
    about = json.loads(path.read_bytes())
    path.write_text(json.dumps({name: value for name, value in about.items() if name not in {"files", "check"}}))


TENSORS = Format(from_safetensors, to_safetensors)
NPY, NPZ = Format(from_npy, to_npy), Format(from_zip, to_zip)
PNG, TGZ, IDX = Format(from_png, to_png), Format(from_tgz, to_tgz), Format(from_idx, to_idx)
CSV, PARQUET = Format(from_csv, to_csv), Format(from_parquet, to_parquet)
