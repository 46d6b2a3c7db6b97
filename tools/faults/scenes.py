"""What lies on a disk when somebody damages it or plants something in it, and what is asked of it then.

A scene is a folder that some work left, finished or killed in the middle, the same kind of folder of another run, and
what people do next. An answer is what an ask gives where nothing was touched.
"""

from __future__ import annotations

import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import people
from disk import WRITTEN, drawn_in, one, results, told
from killing import OPERATIONS, kill_at
from outcome import Outcome, Result
from runs import OUT, SAID, Work, differing, line_of, run
from sharing import Server, digests, made

Contents = Mapping[str, bytes]
SENTENCE = re.compile(r"vcl: [^\n]{10,1200}\.")
OTHERS = re.compile(r"[0-9a-f]{16}|[0-9a-f]{12}|\d+")
"""What differs in the names of the same file of two runs."""
FALLEN = ("is damaged", "are learned again", "learns it again")
"""What is said where work goes on from less than there was."""


class Ask(NamedTuple):
    """What is asked of a scene."""

    name: str
    work: Work
    answer: Callable[[Path], Contents]


class Scene(NamedTuple):
    """How a folder comes to be, and what is asked of it."""

    name: str
    make: Callable[[Path, bool], object]
    """Makes it in an empty folder; with True that of another run."""
    within: str
    """The folder whose files are touched."""
    asks: Sequence[Ask]
    left_out: tuple[str, ...] = ()
    """Files that another scene has too."""
    swaps: bool = True
    """Whether files are swapped with another run's."""


class Made(NamedTuple):
    """A scene on the disk."""

    scene: Scene
    base: Path
    answers: Mapping[str, Contents]

    @classmethod
    def of(cls, scene: Scene, base: Path) -> Made:
        """Make both folders, and ask everything of the one that nobody touches."""
        for other in (False, True):
            (base / str(other)).mkdir(parents=True)
            scene.make(base / str(other), other)
        answers = {}
        for ask in scene.asks:
            copy = shutil.copytree(base / str(False), base / f"whole, {ask.name}")
            end = run(ask.work, copy, drawn=False)
            if end.code:
                raise RuntimeError(f"{scene.name}, {ask.name}: {end.said}")
            answers[ask.name] = ask.answer(copy)
        return cls(scene, base, answers)

    @property
    def folder(self) -> Path:
        """The one that nobody touches."""
        return self.base / str(False)

    @property
    def files(self) -> list[Path]:
        """The files that are touched, from the folder on."""
        found = files_in(self.folder, self.scene.within)
        return [file for file in found if file.name not in self.scene.left_out]

    def counterpart(self, file: Path) -> Path | None:
        """The same file of the other run."""
        if not self.scene.swaps:
            return None
        here = [each for each in self.files if role(each) == role(file)]
        there = [
            each for each in files_in(self.base / str(True), self.scene.within) if role(each) == role(file)
        ]  # journals of several numbers: in order
        place = here.index(file)
        return self.base / str(True) / there[min(place, len(there) - 1)] if there else None

    def tried(
        self, fault: str, note: str, ask: Ask, touch: Callable[[Path], object],
        after: Callable[[Path], object] = lambda folder: None,
    ) -> Outcome:  # fmt: skip
        """Touch a copy, and ask: the exact answer, the exact answer after less was used, or a refusal in a sentence.

        ``after`` is done before answers are compared.
        """
        with tempfile.TemporaryDirectory(prefix="trial-", dir=self.base) as folder:
            copy = shutil.copytree(self.folder, Path(folder) / "copy")
            touch(copy)
            return self._judged(fault, note, ask, copy, after)

    def _judged(self, fault: str, note: str, ask: Ask, copy: Path, after: Callable[[Path], object]) -> Outcome:
        before = tree(copy)
        end = run(ask.work, copy, drawn=False)
        after(copy)
        lost = partial(Outcome, fault, Result.LOST)
        if end.wrong:
            return lost(f"{note}: {end.wrong}")
        if end.code == 0:
            other = differing(ask.answer(copy), self.answers[ask.name])
            if other:
                return lost(f"{note}: {other}; {end.last}")
            fallen = next((line for line in end.said.splitlines() if any(word in line for word in FALLEN)), "")
            return Outcome(fault, Result.FELL_BACK, plain(fallen)) if fallen else Outcome(fault, Result.SURVIVED)
        if not SENTENCE.fullmatch(end.last):
            return lost(f"{note}: it ended with {end.code}: {end.last}")
        if differing(tree(copy), before):  # then what was right must count as before
            shutil.copytree(self.folder, copy, dirs_exist_ok=True)
            again = run(ask.work, copy, drawn=False)
            other = again.wrong or (f"it ended with {again.code}: {again.last}" if again.code else "")
            other = other or differing(ask.answer(copy), self.answers[ask.name])
            if other:
                return lost(f"{note}: refused ({end.last}), and with the file of before: {other}")
        return Outcome(fault, Result.REFUSED, plain(end.last))


def plain(line: str) -> str:
    """A sentence without what differs from one file to the next, so that alike ones are counted together."""
    line = line.rpartition("UserWarning: ")[2]  # before it is the place in the source
    line = re.sub(r"/[^:]*?/copy/", "", line)  # the trial's folder
    return re.sub(r"'[^']*'|\d+|[0-9a-f]{12,}", "…", OTHERS.sub("…", line))[:200]


def role(path: Path) -> str:
    """What a file is called in any run."""
    return OTHERS.sub("#", path.as_posix())


def files_in(folder: Path, within: str) -> list[Path]:
    """The files of a scene, without tables and figures, from the folder on."""
    found = [path for path in sorted((folder / within).rglob("*")) if path.is_file() and not path.name.startswith(".")]
    return [path.relative_to(folder) for path in found if path.suffix not in (".png", ".svg", ".md", ".html")]


def tree(folder: Path) -> Contents:
    """All that is there, but what a process says, and what is drawn from the rest."""
    skipped = {SAID, OPERATIONS, people.ANSWER, "table.md", "now.json"}
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in skipped and (path.suffix != ".csv" or "parts" in path.parts)
    }


def shown(folder: Path) -> Contents:
    """Tables, and the numbers they are made of."""
    return {name: data for name, data in drawn_in(folder).items() if "/parts/" not in f"/{name}"}


def page(folder: Path) -> Contents:
    """The page of a report, without the time at which it was written."""
    return {"report.html": WRITTEN.sub(b"", (folder / OUT / "report.html").read_bytes())}


def said(folder: Path) -> Contents:
    """What a command said."""
    return {SAID: (folder / SAID).read_bytes()}


def left(folder: Path) -> Contents:
    """The answer that a script left."""
    return one(people.ANSWER, folder)


def done(work: Work, folder: Path) -> None:
    """Do what a scene needs; RuntimeError if it fails."""
    end = run(work, folder, drawn=False)
    if end.code:
        raise RuntimeError(end.said)


def killed_there(work: Work, share: float, folder: Path) -> None:
    """Do work up to a share of its changes of files, where it is killed."""
    beside = folder.parent / f"{folder.name}, counted"
    shutil.copytree(folder, beside)
    done_with(work, beside, 0)
    count = int((beside / OPERATIONS).read_text())
    shutil.rmtree(beside)
    end = run(work, folder, partial(kill_at, round(count * share)), drawn=False)
    if end.code != -signal.SIGKILL:
        raise RuntimeError(f"it was not killed: {end.said}")


def done_with(work: Work, folder: Path, number: int) -> None:
    """Do work, and count its changes of files."""
    end = run(work, folder, partial(kill_at, number), drawn=False)
    if end.code:
        raise RuntimeError(end.said)


def scenes(url: str, wanted: Sequence[str], short: bool) -> Iterator[Scene]:
    """All that vcl keeps on a disk."""
    line = line_of("vcl-random", "split-digits", "--save-every 0")
    again, show = Ask("run", line, results), Ask("show", f"show {OUT}", shown)

    def finished(folder: Path, other: bool) -> None:
        done(line.replace("epochs=3", "epochs=4") if other else line, folder)

    def unfinished(folder: Path, other: bool) -> None:
        killed_there(line.replace("epochs=3", "epochs=4") if other else line, 0.8, folder)

    yield Scene("a part in the middle of a task", unfinished, f"{OUT}/parts", [again])
    if short:
        yield from list(learners())[:1]
        return
    predict = Ask("predict", f"predict {OUT} --task 2/3 --out p.npz", partial(one, "p.npz"))
    report = Ask("report", f"report {OUT}", page)
    yield Scene("a finished part", finished, f"{OUT}/parts", [Ask("run", line, shown), show, report, predict])
    drawn = line_of("vcl", "generative-digits")

    def generators(folder: Path, other: bool) -> None:
        done(
            drawn.replace("epochs=3", "epochs=4").replace("train_limit=30", "train_limit=31") if other else drawn,
            folder,
        )

    sample = Ask("sample", f"sample {OUT} --task 0 --out s.png", partial(one, "s.png"))
    alike = ("rows.csv", "objective.csv", "fits.csv")
    yield Scene(
        "a finished part of generators", generators, f"{OUT}/parts", [Ask("run", drawn, shown), show, sample], alike
    )
    yield from learners()
    yield from models()

    def cache(folder: Path, other: bool) -> None:
        if other:
            with Server(made(99)) as server:
                done(partial(people.fetch, server.url, digests(made(99))), folder)
        else:
            done(partial(people.fetch, url, list(wanted)), folder)

    yield Scene("a data cache", cache, "cache", [Ask("read", partial(people.read_cache, list(wanted)), left)])


def learners() -> Iterator[Scene]:
    """Learners of Python, saved and in the middle of an update."""

    def learner(folder: Path, other: bool) -> None:
        done(partial(people.begin, 5 if other else 0), folder)

    asks = [Ask("predict", people.tell, left), Ask("update", people.tell_after_update, left)]
    yield Scene("a saved learner", learner, people.LEARNER, asks)

    def half(folder: Path, other: bool) -> None:
        learner(folder, other)
        killed_there(people.learn_with_checkpoint, 0.5, folder)

    goes_on = Ask("update(checkpoint=)", people.learn_with_checkpoint, partial(told, people.tell))
    yield Scene("a checkpoint of an update", half, people.CHECKPOINT, [goes_on])


def models() -> Iterator[Scene]:
    """Models of the command line, before and after they have learned."""
    update = f"model update {people.MODEL} b.csv --quiet"

    def new(folder: Path, other: bool) -> None:
        people.tables(folder)
        options = "--method laplace --epochs 3" if other else "--method mean-field --epochs 4"
        done(f"{people.MADE[0]} {options}", folder)

    def learned(folder: Path, other: bool) -> None:
        new(folder, other)
        done(people.MADE[1], folder)

    after = partial(people.commands, update, people.TOLD)
    asks = [
        Ask("predict", people.TOLD, left),
        Ask("update", after, left),
        Ask("info", f"model info {people.MODEL}", said),
        Ask("export", f"model export {people.MODEL} m.safetensors", partial(one, "m.safetensors")),
    ]
    yield Scene("a model that has learned", learned, people.MODEL, asks)
    first = partial(people.commands, people.MADE[1], people.TOLD)
    # A new model is its description and no more: with that of another, it is the other.
    yield Scene("a model that is new", new, people.MODEL, [Ask("update", first, left)], swaps=False)
