"""Public names that load their module when they are first used.

`import tacit` stays quick, and a missing package raises an error that names the extra to install.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping, Sequence
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


def declared(package: str) -> dict[str, tuple[str, str]]:
    """Read the public names of a package: those that it imports for type checkers.

    The block `if TYPE_CHECKING:` is what type checkers and editors follow; it is also the only list
    of the names at run time. `import *` stands for the public names of another such package.

    Returns
    -------
    dict
        For each name, the module that holds it and its name there.
    """
    loader = sys.modules[package].__spec__.loader  # type: ignore[union-attr]
    tree = ast.parse(loader.get_source(package))  # type: ignore[union-attr]
    names: dict[str, tuple[str, str]] = {}
    for node in tree.body:
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            continue
        for line in node.body:
            assert isinstance(line, ast.ImportFrom)
            home = str(line.module)
            for one in line.names:
                if one.name == "*":
                    names |= {name: (home, name) for name in import_module(home).__all__}
                else:
                    names[one.asname or one.name] = (home, one.name)
    return names


def attach(package: str, public: str | None = None) -> None:
    """Give a package `__getattr__`, `__dir__` and `__all__` for the names that it declares.

    Set from here, they stay out of sight of type checkers, which so know the declared names only.

    Parameters
    ----------
    package : str
        The package's `__name__`.
    public : str, optional
        The name under which users import the package, if it is another one.
    """
    homes = declared(package)
    shown = public or package

    def get(name: str) -> Any:
        if name in homes:
            return load(*homes[name], f"{shown}.{name}")
        raise AttributeError(f"module {shown!r} has no attribute {name!r}")

    def names() -> list[str]:
        return sorted({*module, *homes})

    module = vars(sys.modules[package])
    module.update(__getattr__=get, __dir__=names, __all__=sorted(homes))


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
