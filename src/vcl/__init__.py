"""Variational continual learning: q_t(theta) = proj(q_{t-1}(theta) p(D_t | theta)), q_0 = prior.

The names that most programs need are here. The others are in submodules: :mod:`vcl.projections`, :mod:`vcl.coresets`,
:mod:`vcl.beliefs`, :mod:`vcl.models`, :mod:`vcl.fitting`, :mod:`vcl.predicting`, :mod:`vcl.learner`, :mod:`vcl.data`.
Estimators for scikit-learn are in ``vcl.sklearn``, which needs ``vcl[lab]``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_ROOMS = (
    "projections",
    "coresets",
    "beliefs",
    "models",
    "fitting",
    "predicting",
    "learner",
    "data",
    "recursion",
    "federated",
    "engines",
    "errors",
)
_EXTRAS = ("sklearn",)
"""Modules that need more than the core's dependencies; nothing looks into them for a name."""


if TYPE_CHECKING:
    from vcl._public import *  # noqa: F403
else:  # hidden from type checkers, so that they report unknown names

    def __getattr__(name: str) -> Any:
        """A public name or submodule, imported on first use, so that the command line starts without torch."""
        if name == "__all__":
            return sorted(_defined("vcl._public", "vcl."))
        if name in (*_ROOMS, *_EXTRAS):
            return import_module(f"vcl.{name}")
        if not name.startswith("_"):
            public = _defined("vcl._public", "vcl.")
            if name in public:
                return public[name]
            for room in _ROOMS:
                if name in _defined(f"vcl.{room}", f"vcl.{room}"):
                    raise AttributeError(f"module 'vcl' has no attribute {name!r}; it is in vcl.{room}")
        raise AttributeError(f"module 'vcl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_defined("vcl._public", "vcl.")})


def _defined(module: str, within: str) -> dict[str, Any]:
    """The functions and classes of a module that come from modules whose names start with ``within``."""
    found = vars(import_module(module)).items()
    return {name: value for name, value in found if getattr(value, "__module__", "").startswith(within)}
