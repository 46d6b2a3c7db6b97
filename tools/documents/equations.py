"""Equations for the site: TeX as MathML, and the plain equations of docstrings with indices and Greek letters.

A document writes TeX as GitHub reads it: a fence of the language math, or $`…`$ within a line.
"""

from __future__ import annotations

import re
from html import escape

from latex2mathml.converter import convert
from markdown_links import CODE

GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "eta": "η", "theta": "θ", "lambda": "λ",
    "mu": "μ", "xi": "ξ", "rho": "ρ", "sigma": "σ", "tau": "τ", "phi": "φ", "psi": "ψ", "omega": "ω",
}  # fmt: skip
NAMES = re.compile(rf"(?<![\w.])({'|'.join(GREEK)})(?=_\{{|_\w{{1,2}}\b|(?![\w.]\w)\b)(?!\.\w)")
ATOM = r"(?<![\w&])([A-Za-zα-ω](?:~|\u0303|\*)?)"
INDEX = re.compile(ATOM + r"_(?:\{([^{}]+)\}|(\w{1,2})\b)")
KEPT = re.compile(r"(`+[^`]+`+|\]\([^)]*\)|<[^>]+>)")
POWER = re.compile(r"\^(?:\{([^{}]+)\}|\(([^()]+)\)|(-?\w+))")


class EquationError(ValueError):
    """TeX that cannot become MathML."""


def mathml(tex: str, display: str = "inline") -> str:
    """TeX as MathML; EquationError for a command that is not known."""
    made: str = convert(tex.strip(), display=display).replace("&#x029F5;", "&#x02216;")  # fonts lack the first
    if unknown := re.search(r"\\\w+", made):
        raise EquationError(f"{unknown[0]} in the equation {tex.strip()!r} is not known; write it with other commands")
    return made


def block(tex: str) -> str:
    """TeX as MathML that stands by itself."""
    return f'<div class="equation">{mathml(tex, "block")}</div>'


def inline(line: str) -> str:
    """A line with its TeX as MathML."""
    out, end = "", 0
    for code in CODE.finditer(line):
        around = line[max(0, code.start() - 1) : code.end() + 1]
        if len(code[1]) == 1 and around[0] == around[-1] == "$":
            out += line[end : code.start() - 1] + mathml(code[0][1:-1])
            end = code.end() + 1
    return out + line[end:]


def indexed(line: str) -> str:
    """A line of prose with indices: q_t, D_{1:t}; code, links and tags stay as they are."""
    return "".join(
        words if place % 2 else INDEX.sub(lambda found: f"{found[1]}<sub>{found[2] or found[3]}</sub>", words)
        for place, words in enumerate(KEPT.split(line))
    )


def plain(text: str) -> str:
    """A plain equation as HTML: theta is θ, q_{t-1} has an index, sigma^2 a power."""
    text = NAMES.sub(lambda found: GREEK[found[1]], text)
    text = INDEX.sub(lambda found: f"{found[1]}\0sub\1{found[2] or found[3]}\0/sub\1", text)
    text = POWER.sub(lambda found: f"\0sup\1{found[1] or found[2] or found[3]}\0/sup\1", text)
    return escape(text, quote=False).replace("\0", "<").replace("\1", ">")
