"""API pages: the public names of each room with their signatures and docstrings, read by griffe without importing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Any

import equations
import griffe

ROOMS = (
    "learner", "recursion", "projections", "coresets", "beliefs", "models", "fitting", "engines", "predicting", "data",
    "ops", "federated", "sklearn", "pages", "errors",
)  # fmt: skip
"""Each is a page. A name of the top level is described on the page of the room that it comes from."""
TOKEN = re.compile(r"(``.+?``|:\w+:`[^`]+`|`[^`]+`)")
ROLE = re.compile(r":\w+:`~?([^`]+)`")
SPECIAL = re.compile(r"([\\*_\[\]#|])")
WIDE = 96
Resolve = Callable[[str], str]


def pages(root: Path) -> dict[str, str]:
    """The Markdown of each page, by its path in the site."""
    package = griffe.load("vcl", search_paths=[root / "src"])
    rooms = {room: dict(_names(package, room)) for room in ROOMS}
    places = {f"vcl.{room}": f"{room}.md" for room in ROOMS}
    for room, names in rooms.items():
        for name, thing in names.items():
            places |= {f"{at}.{name}": f"{room}.md#{name}" for at in ("vcl", f"vcl.{room}")}
            places[thing.path] = f"{room}.md#{name}"
    made = {f"api/{room}.md": _page(package[room], names, places) for room, names in rooms.items()}
    return {"api/vcl.md": _top(package, places), **made}


def _names(package: Any, room: str) -> Iterator[tuple[str, Any]]:
    """The public names of a room: what its __init__ imports by name, or what its single file defines."""
    module = package[room]
    found = {}
    for name, member in module.members.items():
        public = (
            member.is_alias and member.target_path.startswith("vcl.") and f"import {name} as {name}" in _text(module)
        )
        defined = not member.is_alias and member.kind.value in ("class", "function") and not module.is_init_module
        if not name.startswith("_") and (public or defined):
            found[name] = member.final_target if member.is_alias else member
    for name, member in package["_public"].members.items():
        if member.is_alias and member.target_path.startswith(f"vcl.{room}."):
            found.setdefault(name, member.final_target)
    yield from sorted(found.items(), key=lambda each: each[0].lower())


def _text(module: Any) -> str:
    return Path(module.filepath).read_text(encoding="utf-8")


def _top(package: Any, places: dict[str, str]) -> str:
    """The page of the top level: a line for each name, with a link to its room's page."""
    lines = [
        "# vcl",
        "",
        _prose(package.docstring, _resolver(places, "")),
        "",
        "| name | what it is |",
        "| --- | --- |",
    ]
    for name, member in sorted(package["_public"].members.items(), key=lambda each: each[0].lower()):
        if member.is_alias:
            thing = member.final_target
            lines.append(f"| [`{name}`]({places[thing.path]}) | {_first(thing.docstring, _resolver(places, ''))} |")
    rooms = [f"[`vcl.{room}`]({room}.md): {_first(package[room].docstring, _resolver(places, ''))}" for room in ROOMS]
    return "\n".join([*lines, "", "## Rooms", "", *(f"- {room}" for room in rooms), ""])


def _page(module: Any, names: dict[str, Any], places: dict[str, str]) -> str:
    lines = [f"# {module.path}", "", _prose(module.docstring, _resolver(places, "")), ""]
    lines += [f"`from {module.path} import {next(iter(names))}`, and so on:", ""]
    lines += [
        f"- [`{name}`](#{name}): {_first(thing.docstring, _resolver(places, ''))}" for name, thing in names.items()
    ]
    for name, thing in names.items():
        lines += ["", f"## {name} {{#{name}}}", "", *_thing(name, thing, places)]
    return "\n".join(lines) + "\n"


def _thing(name: str, thing: Any, places: dict[str, str]) -> Iterator[str]:
    """What stands below the heading of a name."""
    file = f"src/{thing.module.path.replace('.', '/')}"
    file += "/__init__.py" if thing.module.is_init_module else ".py"
    yield from (f'<p class="source"><code>{thing.path}</code></p>', "")
    members = thing.members if thing.kind.value == "class" else {}
    fields = {key: each for key, each in members.items() if each.kind.value == "attribute" and _shown(key, each)}
    fields = fields if any(each.docstring for each in fields.values()) else {}
    methods = {key: each for key, each in members.items() if each.kind.value == "function" and _shown(key, each)}
    resolve = _resolver(places | {key: _anchor(name, key, "#") for key in (*fields, *methods)}, name)
    if thing.kind.value == "attribute":
        yield from ("```python", f"{name} = {thing.value}", "```", "", _prose(thing.docstring, resolve))
    else:
        yield from ("```python", *_signature(name, thing), "```", "", _prose(thing.docstring, resolve))
    if fields:
        yield from ("", "| field | type | meaning |", "| --- | --- | --- |")
    for key, each in fields.items():
        kind = f"`{each.annotation}`".replace("|", "\\|") if each.annotation else ""
        meaning = _prose(each.docstring, resolve).replace("\n", " ")
        yield f'| <span id="{_anchor(name, key)}">`{key}`</span> | {kind} | {meaning} |'
    for key, each in methods.items():
        title = SPECIAL.sub(r"\\\1", f"{name}.{key}")
        yield from ("", f"### {title} {{#{_anchor(name, key)}}}", "", "```python", *_signature(key, each), "```", "")
        yield _prose(each.docstring, resolve)
    yield from ("", f"[Source](../{file})")


def _anchor(name: str, key: str, before: str = "") -> str:
    """Where a member stands on its page. Markdown would make bold text of two underscores."""
    return f"{before}{name}.{key.strip('_')}"


def _shown(name: str, member: Any) -> bool:
    public = not member.is_alias and (not name.startswith("_") or name == "__call__")
    return public and bool(member.kind.value != "attribute" or member.docstring or member.annotation)


def _signature(name: str, thing: Any) -> list[str]:
    """The signature in one line, or with a line for each parameter."""
    kind = "class " if thing.kind.value == "class" else ""
    words = list(_parameters(thing))
    returns = None if kind else thing.returns
    end = f" -> {returns}" if returns else ""
    line = f"{kind}{name}({', '.join(words)}){end}"
    return [line] if len(line) <= WIDE else [f"{kind}{name}(", *(f"    {word}," for word in words), f"){end}"]


def _parameters(thing: Any) -> Iterator[str]:
    """The parameters as they are written; of a named tuple, its fields."""
    if thing.kind.value == "class" and "NamedTuple" in map(str, thing.bases):
        fields = ((key, each) for key, each in thing.members.items() if each.kind.value == "attribute")
        for key, each in fields:
            if "property" not in each.labels and each.annotation:
                yield f"{key}: {each.annotation}" + (f" = {each.value}" if each.value else "")
        return
    kinds = griffe.ParameterKind
    starred = False
    for each in thing.parameters:
        if each.name in ("self", "cls"):
            continue
        if each.kind is kinds.keyword_only and not starred:
            yield "*"
        star = {kinds.var_positional: "*", kinds.var_keyword: "**"}.get(each.kind, "")
        starred = starred or each.kind is kinds.keyword_only or star == "*"
        kind = f": {each.annotation}" if each.annotation else ""
        default = "" if each.default is None or star else f"{' = ' if kind else '='}{each.default}"
        yield f"{star}{each.name}{kind}{default}"


def _resolver(places: dict[str, str], own: str) -> Resolve:
    """Where a reference leads: a page of the API with its anchor, or nowhere."""
    return lambda target: places.get(target) or places.get(target.rpartition(".")[2] if own else "", "")


def _first(docstring: Any, resolve: Resolve) -> str:
    """The first sentence."""
    text = " ".join(cleandoc(docstring.value).split("\n\n")[0].split()) if docstring else ""
    found = re.match(r".*?[.:](?=\s|$)", text)
    return _escaped((found[0] if found else text).rstrip(":"), resolve)


def _prose(docstring: Any, resolve: Resolve) -> str:
    """A docstring as Markdown: indented blocks as they are, the rest with its references as links."""
    if docstring is None:
        return ""
    blocks = []
    for block in re.split(r"\n[ ]*\n", cleandoc(docstring.value)):
        if all(line.startswith("    ") for line in block.splitlines()):
            body = "\n".join(line[4:] for line in block.splitlines())
            blocks.append(f'<pre class="plain">{equations.plain(body)}</pre>')
        else:
            blocks.append("\n".join(_escaped(line, resolve) for line in block.splitlines()))
    return re.sub(r"(?m)^(?!- )(.+)\n(?=- )", "\\1\n\n", "\n\n".join(blocks))


def _escaped(line: str, resolve: Resolve) -> str:
    """A line of a docstring, of which only code and references mean something to Markdown."""
    words = []
    for token in TOKEN.split(line):
        if found := ROLE.fullmatch(token):
            place = resolve(found[1])
            code = f"`{found[1]}`"
            words.append(f"[{code}]({place})" if place else code)
        elif token.startswith("`"):
            words.append(f"`{token.strip('`')}`".replace("|", "\\|"))
        else:
            words.append(SPECIAL.sub(r"\\\1", equations.plain(token)))
    return "".join(words)
