"""The working copy of a store at an address: a folder of this machine in which all work is done.

    ADDRESS/parts/split-digits-vcl-3f2a…/   a finished stack: its files, and manifest.json last
            begun/split-digits-ewc-9c1e…/   what is not finished: its last two generations
              000007.3.12.5a….json          the manifest of one: number, finished tasks, journal, whose
              files/<sha256>-rows.csv       the files of both, by their content
            claims/split-digits-ewc-9c1e….json
            table.md, permuted-digits/…     what is drawn from the rows

A finished stack is written once, by the first that finishes it. A generation is complete or does not count, and the one
before is kept until the next is complete. So whatever two processes do at once, nobody reads a mixture.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, final
from uuid import uuid4

from vcl.errors import VclError
from vcl.lab.claim import TakenError, claimed
from vcl.lab.datasets.data_folders import cache
from vcl.lab.folder import NOW, PART, make_folder, write_atomic
from vcl.lab.reading import read_part
from vcl.lab.remote import published
from vcl.lab.remote.claims import Held, held
from vcl.lab.remote.files import AddressError, Files, GoneError
from vcl.lab.remote.published import PLAIN, DamagedError, Manifest
from vcl.learner.generations import STEM, Generations
from vcl.learner.saving import SHARE

PARTS, BEGUN, CLAIMS = "parts", "begun", "claims"
MANIFEST = "manifest.json"
HEAVY = ("state.safetensors", "predictive.safetensors", STEM)
"""How the names of files begin that no table or figure needs."""

GENERATION = re.compile(r"(\d+)\.(\d+)\.(\d+)\.([0-9a-f]+)\.json")
FRESH = 5.0
"""Seconds for which a look at the standings is used."""


@final
class Generation(NamedTuple):
    """A state of an unfinished stack at the address; later ones are greater."""

    number: int
    tasks: int
    journal: int
    token: str

    @property
    def name(self) -> str:
        """Of its manifest."""
        return f"{self.number:06d}.{self.tasks}.{self.journal}.{self.token}.json"


@final
class Work:
    """A stack that this process learns."""

    def __init__(self, claim: Held, number: int) -> None:
        self.claim, self.number, self.token = claim, number, uuid4().hex[:12]
        self.last, self.wait, self.complained = monotonic(), 0.0, False


@final
class Mirror:
    """The working copy of one address on this machine."""

    def __init__(self, address: str, write: bool, say: Callable[[str], None], launch: str = "") -> None:
        """Raises one clear sentence if the address cannot be used, before any work."""
        self.files, self.write, self.say, self.launch = Files(address), write, say, launch or uuid4().hex
        self.address = self.files.address
        top = self.files.check(write)
        if top and not {PARTS, BEGUN, CLAIMS} & set(top):
            raise VclError(
                f"{self.address} already holds files, and they are not results of this version; give an address that "
                "is new, empty, or was made by `vcl run`. Nothing was changed."
            )
        base = cache() / "stores" / _folder_name(self.address)
        self.folder, self.synced, self.incoming = base / "results", base / "synced", base / "incoming"
        for each in (self.folder, self.synced, self.incoming):
            make_folder(each)
        self.machine = _written_once(base / "machine", uuid4().hex)
        self.works = dict[str, Work]()
        self.looked, self.seen = -FRESH, dict[str, Generation]()

    # All of it

    def pull(self) -> None:
        """Bring all that tables and figures need, and upload what an earlier command could not."""
        finished = self._finished()
        for name in finished:
            if not (self._record(name).get("finished") and (self._stack(name) / PART).exists()):
                with self._locked(name) as free:
                    if free:
                        self._fill_finished(name, whole=False)
        for path in sorted(self.folder.glob(f"{PARTS}/*/{PART}")):
            name, folder = path.parent.name, path.parent
            if name in finished or not read_part(path).get("finished"):
                continue
            with self._locked(name) as free:
                if free and self._record(name).get("finished"):  # it was deleted there
                    shutil.rmtree(folder)
                    (self.synced / f"{name}.json").unlink(missing_ok=True)
                elif free and self.write:
                    self.finish(folder)
        for name, generations in self._generations().items():
            if name not in finished:
                with self._locked(name) as free:
                    if free:
                        self._fill_begun(name, generations, whole=False)

    def push_drawn(self) -> None:
        """Upload the tables and figures that changed."""
        before: dict[str, str] = self._record("drawn")
        now = {}
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder).as_posix()
            if path.is_file() and not name.startswith(f"{PARTS}/") and not path.name.startswith("."):
                now[name] = published.digest_of(path)
                if before.get(name) != now[name]:
                    self.files.put(path, name)
        self._write_record("drawn", now)

    def pull_top(self) -> None:
        """Bring the files at the top, such as the paper's table."""
        for name in self.files.names():
            if PLAIN.fullmatch(name):
                beside = self.incoming / uuid4().hex
                self.files.get(name, beside)
                beside.replace(self.folder / name)

    @contextmanager
    def whole(self, name: str) -> Iterator[None]:
        """Claim what is no stack, such as the paper's table."""
        with held(self.files, f"{CLAIMS}/{name}.json", self.machine, self.launch):
            yield

    def standings(self) -> dict[str, Generation]:
        """The newest generation of each unfinished stack; not older than a few seconds."""
        if monotonic() - self.looked > FRESH:
            self.looked = monotonic()
            with suppress(AddressError):
                self.seen = {name: found[0] for name, found in self._generations().items()}
        return self.seen

    # One stack

    @contextmanager
    def taken(self, folder: Path, wait: float = 0.0) -> Iterator[None]:
        """Claim a stack and bring it here; uploaded at the end. The caller has locked the folder."""
        name = folder.name
        with held(self.files, f"{CLAIMS}/{name}.json", self.machine, self.launch, wait) as claim:
            self.update(folder)
            newest = self._generations(name).get(name, [])
            self.works[name] = Work(claim, newest[0].number if newest else 0)
            try:
                yield
            except TakenError:
                raise
            except BaseException:
                self.kept(folder, now=True)
                raise
            finally:
                work = self.works.pop(name)
            work.claim.check()
            self.finish(folder)

    def update(self, folder: Path) -> None:
        """Bring what the address has of a stack, unless this machine has it or more."""
        name = folder.name
        if f"{PARTS}/{name}/{MANIFEST}" in self.files.names(f"{PARTS}/{name}"):
            if not self._record(name).get("finished"):
                self._fill_finished(name, whole=False)
            return
        self._fill_begun(name, self._generations(name).get(name, []), whole=True)

    def bring_whole(self, folder: Path) -> None:
        """Bring all files of a finished stack."""
        if self._record(folder.name) == {"finished": True, "whole": False}:
            self._fill_finished(folder.name, whole=True)

    def kept(self, folder: Path, now: bool = False) -> None:
        """Upload what is kept of an unfinished stack, unless that was done a moment ago.

        It costs a hundredth of the time at most. Where the address takes no more, which is said, the work goes on.
        """
        work, began = self.works.get(folder.name), monotonic()
        if work is None:
            return
        work.claim.check()
        if (not now and began - work.last < work.wait) or not _worth(folder):
            return
        try:
            self._push(folder, work)
            work.complained = False
        except AddressError as error:
            if not work.complained or now:
                self.say(f"{str(error).rstrip('.')}: what is done is kept in {folder}, and is uploaded later")
            work.complained = True
        work.last = monotonic()
        work.wait = (work.last - began) / SHARE

    def finish(self, folder: Path) -> None:
        """Upload a finished stack, unless another process was first, whose rows then count."""
        name = folder.name
        if not (folder / PART).exists() or not read_part(folder / PART).get("finished"):
            return
        try:
            if f"{PARTS}/{name}/{MANIFEST}" in self.files.names(f"{PARTS}/{name}"):
                if not self._record(name).get("finished"):
                    self._fill_finished(name, whole=False)
            else:
                manifest = f"{PARTS}/{name}/{MANIFEST}"
                published.publish(
                    self.files, folder, _names(folder), manifest, lambda file, _: f"{PARTS}/{name}/{file}"
                )
                self._write_record(name, {"finished": True, "whole": True})
            self._remove_begun(name, keep=())
        except AddressError as error:
            raise AddressError(
                f"{str(error).rstrip('.')}; the part is finished and whole in {folder}, and the same command "
                "uploads it."
            ) from error

    def _push(self, folder: Path, work: Work) -> None:
        name = folder.name
        newest = self._generations(name).get(name, [])
        top = newest[0] if newest else Generation(0, 0, 0, work.token)
        if top.token != work.token and top.number > work.number:
            raise TakenError(f"another vcl has taken over {self.address}/{BEGUN}/{name}; it goes on with it.")
        snapshot = self.incoming / uuid4().hex
        snapshot.mkdir()
        try:
            names = _names(folder)
            for file in names:  # files are replaced and never written into, so a link keeps what is there now
                _link(folder / file, snapshot / file)
            names = [file for file in names if (snapshot / file).exists()]
            new = Generation(max(top.number, work.number) + 1, *reached(snapshot), work.token)
            published.publish(
                self.files, snapshot, names, f"{BEGUN}/{name}/{new.name}",
                lambda file, sha: f"{BEGUN}/{name}/files/{sha}-{file}",
            )  # fmt: skip
        finally:
            shutil.rmtree(snapshot, ignore_errors=True)
        work.number = new.number
        self._write_record(name, {"generation": new.name, "whole": True})
        self._remove_begun(name, keep=[new, *newest[:1]])

    def _remove_begun(self, name: str, keep: Sequence[Generation]) -> None:
        """Remove all generations but these, manifests first."""
        there = self.files.names(f"{BEGUN}/{name}")
        used = {f"{BEGUN}/{name}/{each.name}" for each in keep}
        for each in keep:
            with suppress(DamagedError, AddressError):
                used |= {found.at for found in published.read(self.files, f"{BEGUN}/{name}/{each.name}").values()}
        old = [each for each in there if each not in used]
        self.files.remove(sorted(old, key=lambda each: "/files/" in each))

    def _fill_finished(self, name: str, whole: bool) -> None:
        manifest = published.read(self.files, f"{PARTS}/{name}/{MANIFEST}")
        try:
            self._fill(name, manifest, whole, {"finished": True, "whole": whole})
        except DamagedError as error:
            raise VclError(f"{error}; delete {self.address}/{PARTS}/{name} and give the command again.") from error

    def _fill_begun(self, name: str, generations: Sequence[Generation], whole: bool) -> None:
        """Bring the newest generation that is whole, unless this machine has it already or has got further."""
        record, folder = self._record(name), self._stack(name)
        for each in generations:
            mine = record.get("generation") == each.name and (folder / PART).exists()
            if mine and (record["whole"] or not whole):
                return
            if not mine and reached(folder)[0] > each.tasks:
                return
            try:
                manifest = published.read(self.files, f"{BEGUN}/{name}/{each.name}")
                self._fill(name, manifest, whole, {"generation": each.name, "whole": whole})
            except (DamagedError, GoneError) as error:
                self.say(f"{str(error).rstrip('.')}: the generation before it is used, or what is here")
                continue
            return

    def _fill(self, name: str, manifest: Manifest, whole: bool, record: dict[str, Any]) -> None:
        """Replace a stack here by files of the address, once all of them are here."""
        folder, incoming = self._stack(name), self.incoming / uuid4().hex
        wanted = [file for file in manifest if whole or not file.startswith(HEAVY)]
        incoming.mkdir()
        try:
            published.fetch(self.files, manifest, wanted, incoming)
            (self.synced / f"{name}.json").unlink(missing_ok=True)  # until all is in place
            make_folder(folder)
            for file in sorted(wanted, key=lambda file: file == PART):
                (incoming / file).replace(folder / file)
            for file in _names(folder):
                if file not in manifest:
                    (folder / file).unlink(missing_ok=True)
            self._write_record(name, record)
        finally:
            shutil.rmtree(incoming, ignore_errors=True)

    def _finished(self) -> list[str]:
        ends = [name.split("/") for name in self.files.names(PARTS)]
        return sorted(path[1] for path in ends if len(path) == 3 and path[2] == MANIFEST and PLAIN.fullmatch(path[1]))

    def _generations(self, name: str = "") -> dict[str, list[Generation]]:
        """The generations of each unfinished stack, the newest first."""
        found = dict[str, list[Generation]]()
        for each in self.files.names(f"{BEGUN}/{name}".rstrip("/")):
            path = each.split("/")
            match = GENERATION.fullmatch(path[2]) if len(path) == 3 and PLAIN.fullmatch(path[1]) else None
            if match:
                number, tasks, journal, token = match.groups()
                found.setdefault(path[1], []).append(Generation(int(number), int(tasks), int(journal), token))
        return {each: sorted(generations, reverse=True) for each, generations in found.items()}

    @contextmanager
    def _locked(self, name: str) -> Iterator[bool]:
        """Hold a stack's folder; False where another process of this machine is at work on it."""
        with ExitStack() as stack:
            try:
                stack.enter_context(claimed(self._stack(name)))
                free = True
            except TakenError:
                free = False
            yield free

    def _stack(self, name: str) -> Path:
        return self.folder / PARTS / name

    def _record(self, name: str) -> dict[str, Any]:
        """What this machine has of a stack at the address."""
        try:
            found = json.loads((self.synced / f"{name}.json").read_text())
        except (FileNotFoundError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def _write_record(self, name: str, about: dict[str, Any]) -> None:
        write_atomic(self.synced / f"{name}.json", json.dumps(about))


def reached(folder: Path) -> tuple[int, int]:
    """The finished tasks of a stack, and the last save within the next one."""
    path, numbers = folder / PART, Generations(folder, "").numbers()
    tasks = len(read_part(path).get("tasks", ())) if path.exists() else 0
    return tasks, numbers[0] if numbers else 0


def _worth(folder: Path) -> bool:
    """Whether a folder has something that a later command could continue."""
    return (folder / PART).exists() and any(path.name.startswith(HEAVY) for path in folder.iterdir())


def _names(folder: Path) -> list[str]:
    """The files of a stack, in an order in which a reader of the last finds all that it tells of."""
    names = sorted(path.name for path in folder.iterdir() if PLAIN.fullmatch(path.name) and path.name != NOW)
    return sorted(
        (name for name in names if name != MANIFEST), key=lambda name: (name == PART, not name.startswith(HEAVY))
    )


def _link(path: Path, to: Path) -> None:
    with suppress(FileNotFoundError):  # a journal that was dropped just now
        try:
            to.hardlink_to(path)
        except FileNotFoundError:
            raise
        except OSError:  # a file system without links
            shutil.copyfile(path, to)


def _folder_name(address: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9]+", "-", address).strip("-")
    return f"{plain[-60:]}-{sha256(address.encode()).hexdigest()[:12]}"


def _written_once(path: Path, text: str) -> str:
    """The content of a small file, which is made with ``text`` if it is not there."""
    beside = path.with_name(f".{path.name}.{text}.tmp")
    beside.write_text(text)
    with suppress(FileExistsError):
        try:
            path.hardlink_to(beside)
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            path.write_text(text)
    beside.unlink()
    return path.read_text()
