"""SVG as text: shapes on a card that is light or dark as its reader's screen is.

Colours are CSS classes. An SVG that a page shows as an image follows the reader's colour scheme by itself, with its own
background, so that it can be read on any page.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

FIGURES = Path(__file__).parents[2] / "docs" / "figures"

# Okabe and Ito's palette, as in vcl.lab.figures.style; the second of each pair is for dark cards.
COLOURS = {
    "card": ("#ffffff", "#16191d"),
    "ink": ("#1f2328", "#e6e9ec"),
    "soft": ("#57606a", "#a9b2bb"),
    "rule": ("#d0d7de", "#3a424b"),
    "panel": ("#f6f8fa", "#1e2329"),
    "blue": ("#0072B2", "#56B4E9"),
    "red": ("#D55E00", "#F08A3C"),
    "green": ("#009E73", "#35C79B"),
    "pink": ("#CC79A7", "#E29CC3"),
    "yellow": ("#E69F00", "#F2BC45"),
}
Points = Sequence[tuple[float, float]]


def _style() -> str:
    def rules(which: int) -> str:
        fills = (f".{name}{{fill:{pair[which]}}}" for name, pair in COLOURS.items())
        lines = (f".{name}-line{{stroke:{pair[which]};fill:none}}" for name, pair in COLOURS.items())
        return "".join([*fills, *lines])

    fonts = "text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}"
    serif = ".math{font-family:'STIX Two Text','Times New Roman','DejaVu Serif',serif;font-style:italic}"
    return f"<style>{fonts}{serif}{rules(0)}@media (prefers-color-scheme:dark){{{rules(1)}}}</style>"


def document(width: int, height: int, title: str, description: str, shapes: Iterable[str]) -> str:
    """A whole file: the shapes on a rounded card, with a title and a description for readers who cannot see it."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-labelledby="t d"><title id="t">{escape(title)}</title>'
        f'<desc id="d">{escape(description)}</desc>'
    )
    card = f'<rect class="card" width="{width}" height="{height}" rx="12"/>'
    return "\n".join([head + _style() + card, *shapes, "</svg>", ""])


def text(
    x: float, y: float, words: str, size: float = 24, kind: str = "ink", anchor: str = "start", more: str = ""
) -> str:
    """A line of text."""
    place = f'x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}"'
    return f'<text class="{kind}" {place}{more}>{escape(words)}</text>'


def coordinates(points: Points) -> str:
    """x,y x,y ..."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def curve(points: Points, kind: str, width: float = 3, dashes: str = "") -> str:
    """An open line."""
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<polyline class="{kind}-line" stroke-width="{width:g}" stroke-linejoin="round" stroke-linecap="round"'
        f'{dashed} points="{coordinates(points)}"/>'
    )


def area(points: Points, kind: str, opacity: float = 0.25) -> str:
    """A filled shape."""
    return f'<polygon class="{kind}" opacity="{opacity:g}" points="{coordinates(points)}"/>'


def box(x: float, y: float, width: float, height: float, kind: str = "panel", line: str = "rule") -> str:
    """A rounded rectangle with a thin edge."""
    place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"'
    return f'<rect class="{kind}" {place}/><rect class="{line}-line" stroke-width="1.5" {place}/>'


def dot(x: float, y: float, radius: float, kind: str, opacity: float = 1) -> str:
    """A filled circle."""
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" opacity="{opacity:g}"/>'


def ring(x: float, y: float, radius: float, kind: str, width: float = 1.5) -> str:
    """An open circle."""
    return f'<circle class="{kind}-line" stroke-width="{width:g}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"/>'


def arrow(x1: float, y1: float, x2: float, y2: float, kind: str = "soft", width: float = 2.5, head: float = 9) -> str:
    """A straight arrow."""
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
    ux, uy = (x2 - x1) / length, (y2 - y1) / length
    bx, by = x2 - head * ux, y2 - head * uy
    sides = [(x2, y2), (bx - 0.6 * head * uy, by + 0.6 * head * ux), (bx + 0.6 * head * uy, by - 0.6 * head * ux)]
    return curve([(x1, y1), (bx, by)], kind, width) + area(sides, kind, 1)


def clipped(name: str, x: float, y: float, width: float, height: float, shapes: Iterable[str]) -> str:
    """Shapes that are cut at the edges of a box."""
    clip = f'<clipPath id="{name}"><rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/></clipPath>'
    return f'{clip}<g clip-path="url(#{name})">' + "".join(shapes) + "</g>"


def folder(doc: str | None, given: Sequence[str] | None = None) -> Path:
    """The folder that the command line names, made if it is missing; by default docs/figures."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=FIGURES, help="the folder of the figure (default: docs/figures)")
    found: Path = parser.parse_args(given).out
    found.mkdir(parents=True, exist_ok=True)
    return found


def write(path: Path, words: str) -> None:
    """Write a figure, and say where."""
    path.write_text(words, encoding="utf-8")
    print(path)
