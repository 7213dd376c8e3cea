"""Public names that load their module when they are first used.

`import tacit` stays quick, and a missing package raises an error that names the extra to install.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any

_EXTRAS = {
    "collect": ("sklearn", "pyarrow", "safetensors", "threadpoolctl"),
    "learn": ("torch", "onnx", "onnxruntime"),
    "sign": ("cryptography",),
    "service": ("fastapi", "uvicorn", "sqlalchemy", "psycopg", "httpx", "starlette"),
    "queries": ("duckdb", "sqlglot"),
    "federated": ("flwr",),
    "plots": ("matplotlib",),
    "ray": ("ray",),
}
_EXTRA_OF = {package: extra for extra, packages in _EXTRAS.items() for package in packages}
_DISTRIBUTIONS = {"sklearn": "scikit-learn", "flwr": "flwr (Flower)"}


def hint(what: str, error: ModuleNotFoundError) -> str:
    """Return one line that says which package `what` needs, and how to install it."""
    package = str(error.name).partition(".")[0]
    extra = _EXTRA_OF.get(package)
    install = f"'tacit[{extra}]'" if extra else package
    return f"{what} needs {_DISTRIBUTIONS.get(package, package)}. pip install {install}."


def load(home: str, name: str, public: str) -> Any:
    """Import the module `home` and get `name` from it; `public` is what the user asked for.

    Raises
    ------
    ImportError
        With the extra to install, if a package is missing.
    """
    try:
        return getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        raise ImportError(hint(public, error)) from None


def attach(
    package: str, homes: Mapping[str, Sequence[str]], public: str | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Make `__getattr__`, `__dir__` and `__all__` of a package.

    Parameters
    ----------
    package : str
        The package's `__name__`.
    homes : mapping of str to sequence of str
        For each submodule, relative to the package, the public names that it holds.
    public : str, optional
        The name under which users import the package, if it is another one.
    """
    home_of = {name: home for home, names in homes.items() for name in names}
    shown = public or package

    def get(name: str) -> Any:
        if name in home_of:
            return load(f"{package}.{home_of[name]}", name, f"{shown}.{name}")
        raise AttributeError(f"module {shown!r} has no attribute {name!r}")

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home_of})

    return get, names, sorted(home_of)


class Aliases(MetaPathFinder, Loader):
    """Importer of modules under public names: `tacit.estimators` is `tacit.central.estimators`.

    The alias and everything below it are the same module objects as under the real name, so a
    class has one identity whichever way it was imported.

    Parameters
    ----------
    homes : mapping of str to str
        The real name of each public module.
    """

    def __init__(self, homes: Mapping[str, str]) -> None:
        self.homes = dict(homes)

    def real(self, name: str) -> str | None:
        """Find the real name of a module, or None if it is not an alias."""
        head = ".".join(name.split(".")[:2])
        return self.homes[head] + name[len(head) :] if head in self.homes else None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return spec_from_loader(fullname, self) if self.real(fullname) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        real = self.real(spec.name)
        assert real is not None
        try:
            module = import_module(real)
        except ModuleNotFoundError as error:
            if str(error.name).startswith("tacit"):  # no such module: Python's own words
                raise ModuleNotFoundError(
                    f"No module named {spec.name!r}", name=spec.name
                ) from None
            raise ImportError(hint(spec.name, error)) from None
        spec.loader_state = module.__spec__  # importing replaces it; `exec_module` puts it back
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state
