"""`import tacit` loads nothing that is not needed yet; benchmarks/install.py measures its time."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import tacit

HEAVY = ("torch", "sklearn", "pandas", "matplotlib", "fastapi", "flwr", "ray")

# What is not installed here would not be missed: attempts are recorded, whether they succeed or
# not.
WATCH = """
import sys
attempts = []
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {watched!r}:
            attempts.append(name)
        return None
sys.meta_path.insert(0, Watch())
{statement}
import json
loaded = [name for name in {watched!r} if name in sys.modules]
print(json.dumps(sorted(set(attempts) | set(loaded))))
"""

NEW = """
import sys
before = set(sys.modules)
import tacit
import json
new = {name.partition(".")[0] for name in set(sys.modules) - before} - sys.stdlib_module_names
print(json.dumps([sorted(new), sorted(name for name in sys.modules if name.startswith("tacit"))]))
"""


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def loaded_by(statement: str, *watched: str) -> list[str]:
    return list(json.loads(python(WATCH.format(statement=statement, watched=watched))))


@pytest.mark.heavy
def test_the_watch_sees_what_is_loaded() -> None:
    # Also what is tried and missing, and what is loaded in passing.
    statement = "import sklearn.base\ntry:\n    import flwr\nexcept ImportError:\n    pass"
    found = loaded_by(statement, *HEAVY)
    assert "sklearn" in found
    assert "flwr" in found
    assert "torch" not in found


def test_import_loads_nothing_heavy() -> None:
    assert loaded_by("import tacit", *HEAVY, "dp_accounting", "typer", "cryptography") == []


@pytest.mark.heavy
def test_usual_names_load_nothing_heavy() -> None:
    statement = "from tacit import DiscreteLaplace, Ledger, PureDP"
    assert loaded_by(statement, *HEAVY, "dp_accounting") == []


LEARNERS = {
    name
    for name, (home, _) in tacit._NAMES.items()
    if home.startswith(("tacit.anonymize.", "tacit.local.collection", "tacit.local.inference."))
}
"""Estimators, which scikit-learn must load to be."""


def test_every_name_but_the_learners_loads_nothing_heavy() -> None:
    light = sorted(set(tacit.__all__) - LEARNERS - {"VLM", "__version__"})
    assert loaded_by(f"from tacit import {', '.join(light)}", *HEAVY) == []


@pytest.mark.heavy
def test_learners_load_scikit_learn_but_not_torch() -> None:
    found = loaded_by(f"from tacit import {', '.join(sorted(LEARNERS))}", *HEAVY)
    assert "sklearn" in found
    assert "torch" not in found


def test_a_missing_library_is_named_with_its_remedy() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "try:\n    from tacit import VLM\nexcept ImportError as error:\n    print(error)"
    )
    assert python(code) == "tacit.VLM needs torch. pip install 'tacit[learn]'.\n"


@pytest.mark.heavy
def test_the_command_line_loads_nothing_heavy() -> None:
    statement = (
        "from tacit.apps.cli import main; main(['account', 'audit', 'geometric', '--samples', '0'])"
    )
    silent = (
        f"import contextlib, io\nwith contextlib.redirect_stderr(io.StringIO()):\n    {statement}"
    )
    assert loaded_by(silent, *HEAVY, "dp_accounting") == []


@pytest.mark.heavy
def test_using_a_mechanism_loads_nothing_heavy() -> None:
    statement = (
        "from tacit import Certificate, DiscreteLaplace\n"
        "noise = DiscreteLaplace(epsilon=1, sensitivity=1, adjacency='zero-out')\n"
        "noise.release(5)\n"
        "Certificate.issue(noise.event).verify()"
    )
    assert loaded_by(statement, *HEAVY, "dp_accounting", "cryptography") == []


def test_import_loads_four_modules_and_no_package() -> None:
    packages, modules = json.loads(python(NEW))
    assert packages == ["tacit"]
    privacy = ["tacit.privacy", "tacit.privacy.lazy", "tacit.privacy.mechanisms"]
    assert modules == ["tacit", *privacy]  # the last one for its public names only


@pytest.mark.parametrize("name", tacit.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(tacit, name) is not None
    assert name in dir(tacit)


def test_public_names_are_listed_once() -> None:
    assert len(tacit.__all__) == len(set(tacit.__all__))
    assert {"DiscreteLaplace", "Ledger", "PureDP", "Certificate"} <= set(tacit.__all__)


def test_star_import_gives_every_public_name() -> None:
    names: dict[str, object] = {}
    exec("from tacit import *", names)
    assert set(tacit.__all__) <= set(names)


@pytest.mark.heavy
def test_whatever_dir_shows_is_there() -> None:
    code = "import tacit\nfor name in dir(tacit): getattr(tacit, name)\nprint(tacit.audit.__name__)"
    assert python(code) == "tacit.audit\n"


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="Magic"):
        _ = tacit.Magic
    with pytest.raises(ImportError):
        exec("from tacit import Magic")
