"""docs/figures/schematic.svg: the paper's schematic of its networks, redrawn with the names of the code.

python tools/figures/schematic.py

On the left what depends on what; on the right the layers. What carries a posterior from task to task is blue.
"""

from __future__ import annotations

from collections.abc import Sequence

import svg

WIDTH, HEIGHT = 760, 700
NODE, TALL = 25, 40
TITLE = "What the tasks share"
DESCRIPTION = (
    "Two schematics. A classifier: inputs go through shared layers with parameters theta S, the trunk, to one head for "
    "each task with parameters theta H. A generator: latent variables z of each task go through private layers with "
    "parameters theta H, lower, to h, and through shared layers with parameters theta S, upper, to the pixels x; an "
    "encoder with parameters phi for each task guesses z from x. The shared parameters and heads have posteriors that "
    "are carried on; encoders are points."
)


def symbol(x: float, y: float, name: str, index: str = "", power: str = "", size: float = 21) -> str:
    """A mathematical symbol with an index and a power."""
    up = f'<tspan font-size="{size * 0.66:g}" dy="-8">{power}</tspan>' if power else ""
    below = 'dy="14" dx="-9"' if power else 'dy="6"'  # under the power where there is one
    down = f'<tspan font-size="{size * 0.66:g}" {below}>{index}</tspan>' if index else ""
    place = f'x="{x:g}" y="{y + 7:g}" font-size="{size:g}" text-anchor="middle"'
    return f'<text class="ink math" {place}>{name}{up}{down}</text>'


def node(x: float, y: float, kind: str, *name: str, seen: bool = False) -> list[str]:
    """A variable: a filled circle where it is observed."""
    fill = svg.dot(x, y, NODE, kind, 0.3) if seen else svg.dot(x, y, NODE, "card")
    return [fill, svg.ring(x, y, NODE, kind, 2.5), symbol(x, y, *name)]


def layer(x: float, y: float, wide: float, kind: str, code: str) -> list[str]:
    """A box of layers with its name in the code."""
    shape = f'x="{x - wide / 2:g}" y="{y - TALL / 2:g}" width="{wide:g}" height="{TALL}" rx="7"'
    words = svg.text(x, y + 6, code, 16, anchor="middle", more=' font-family="ui-monospace,monospace"')
    return [f'<rect class="{kind}" opacity="0.22" {shape}/><rect class="{kind}-line" stroke-width="2" {shape}/>', words]


def plate(x: float, y: float, wide: float, tall: float, words: str) -> list[str]:
    """What is repeated, and how often; the words stand in its lower corner."""
    shape = f'x="{x:g}" y="{y:g}" width="{wide:g}" height="{tall:g}" rx="10"'
    return [
        f'<rect class="soft-line" stroke-width="1.5" {shape}/>',
        svg.text(x + wide - 9, y + tall - 9, words, 15, "soft", "end"),
    ]


def classifier(y: float) -> list[str]:
    """The multi-head network that tells classes apart."""
    shapes = [svg.text(24, y, "A classifier with a head for each task", 20, more=' font-weight="600"')]
    shapes += plate(126, y + 24, 196, 222, "tasks t = 1 … T") + plate(214, y + 36, 96, 178, "n ≤ N")
    for ends in ((77, y + 84, 229, y + 143), (187, y + 170, 228, y + 160), (262, y + 90, 262, y + 126)):
        shapes.append(svg.arrow(*ends))
    shapes += node(54, y + 72, "blue", "θ", "", "S") + node(162, y + 172, "pink", "θ", "t", "H")
    shapes += node(262, y + 66, "soft", "x", "t", seen=True) + node(262, y + 153, "soft", "y", "t", seen=True)
    left = 540
    for place, head in ((left - 120, "1"), (left, "2"), (left + 120, "T")):
        shapes += [svg.arrow(left, y + 128, place, y + 84), svg.arrow(place, y + 44, place, y + 24)]
        shapes += [*layer(place, y + 64, 100, "pink", f"heads.{head}"), symbol(place, y + 12, "y", head, size=18)]
    shapes += [*layer(left, y + 148, 200, "blue", "trunk"), svg.arrow(left, y + 204, left, y + 170)]
    return [*shapes, symbol(left, y + 218, "x", size=20)]


def generator(y: float) -> list[str]:
    """The multi-head generator, with its encoders."""
    shapes = [svg.text(24, y, "A generator for each task", 20, more=' font-weight="600"')]
    shapes += plate(126, y + 24, 196, 222, "tasks t = 1 … T") + plate(214, y + 36, 96, 178, "n ≤ N")
    for ends in ((77, y + 84, 229, y + 143), (185, y + 162, 227, y + 156), (262, y + 90, 262, y + 126)):
        shapes.append(svg.arrow(*ends))
    shapes += node(54, y + 72, "blue", "θ", "", "S") + node(160, y + 162, "pink", "θ", "t", "H")
    shapes += node(262, y + 66, "soft", "z", "t") + node(262, y + 153, "soft", "x", "t", seen=True)
    left = 470
    for place, head in ((left - 60, "1"), (left + 60, "T")):
        shapes += [svg.arrow(place, y + 214, place, y + 190), svg.arrow(place, y + 148, left, y + 106)]
        shapes += [*layer(place, y + 168, 100, "pink", "lower"), symbol(place, y + 226, "z", head, size=18)]
    shapes += [*layer(left, y + 84, 200, "blue", "upper"), svg.arrow(left, y + 64, left, y + 34)]
    shapes += [symbol(left, y + 20, "x", size=20), symbol(left + 16, y + 124, "h", size=17)]
    shapes += [svg.curve([(left + 16, y + 20), (660, y + 20), (660, y + 130)], "yellow", 2.5)]
    shapes += [svg.arrow(660, y + 120, 660, y + 146, "yellow"), svg.arrow(660, y + 190, 556, y + 224, "yellow")]
    shapes += layer(660, y + 168, 130, "yellow", "encoder")
    return shapes


def drawing() -> str:
    """The whole figure."""
    y = HEIGHT - 40
    shapes = [svg.text(WIDTH / 2, 46, TITLE, 28, anchor="middle", more=' font-weight="700"')]
    shapes += [*classifier(100), *generator(384)]
    for x, kind, words in (
        (28, "blue", "shared: posterior carried on"),
        (290, "pink", "of one task: at the prior until then"),
        (600, "yellow", "a point (φ)"),
    ):
        shapes += [svg.dot(x, y - 5, 8, kind, 0.5), svg.ring(x, y - 5, 8, kind, 2), svg.text(x + 15, y, words, 16)]
    return svg.document(WIDTH, HEIGHT, TITLE, DESCRIPTION, shapes)


def main(given: Sequence[str] | None = None) -> None:
    """Write the figure."""
    svg.write(svg.folder(__doc__, given) / "schematic.svg", drawing())


if __name__ == "__main__":
    main()
