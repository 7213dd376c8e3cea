"""`tacit anonymize`, `represent`, `probe`: keep the task, lose the person, and try to find them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from tacit import errors
from tacit.cli.collect import Device, Seed
from tacit.cli.console import AsJson, print_json, print_table, print_text, print_values
from tacit.cli.files import (
    InhousePublic,
    Out,
    described,
    image_size,
    must_be_new,
    rows_progress,
    stages_progress,
)
from tacit.tables import naming

CONFIDENCE = 0.95
_KIND = "anonymizing-encoder"
_SHARE = 1 / 3

Source = Annotated[
    str,
    typer.Argument(help="pendigits, CSV or Parquet, or a folder of images.", metavar="DATA"),
]
Directory = Annotated[
    Path, typer.Argument(help="The directory that anonymize wrote.", metavar="DIR")
]
Private = Annotated[
    str, typer.Option(help="The label to hide; several columns with commas between them.")
]
Pattern = Annotated[
    str | None, typer.Option(help="Of a folder: ferg, jaffe, or how paths name both labels.")
]
Size = Annotated[str | None, typer.Option(help="Of a folder: make images so large, e.g. 50x50.")]
Attackers = Annotated[
    str | None, typer.Option(help="Some of the attackers, by name; all if left out.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (anonymize, represent, probe):
        app.command()(command)


def anonymize(
    data: Source,
    regular: Annotated[str, typer.Option(help="The label to keep.")],
    private: Private,
    out: Out,
    strength: Annotated[float, typer.Option(help="λ: what hiding is worth beside the task.")] = 1.0,
    training: Annotated[str, typer.Option(help="robust, toggled or simultaneous.")] = "robust",
    styles: Annotated[int, typer.Option(help="Of robust: kinds that each class falls into.")] = 8,
    epsilon: Annotated[
        float | None, typer.Option(help="Noise on top: what one representation may cost.")
    ] = None,
    unit: Annotated[
        str, typer.Option(help="record, or person where everyone releases one row once.")
    ] = "record",
    dimensions: Annotated[int | None, typer.Option(help="Length of a representation.")] = None,
    layers: Annotated[str, typer.Option(help="Units of the encoder's layers.")] = "256,256,256",
    schema: Annotated[
        Path | None, typer.Option(help="Of a table: which columns are rows, with bounds (JSON).")
    ] = None,
    pattern: Pattern = None,
    size: Size = None,
    attackers: Attackers = None,
    inhouse_public: InhousePublic = False,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Learn representations that keep one label and lose another, and attack them afresh.

    Example: tacit anonymize pendigits --regular digit --private writer --out encoder
    """
    must_be_new(out)
    encoder = _untrained(locals())
    names = _attackers(attackers)
    found = _read(data, regular, _words(private), schema, pattern, size)
    parts = _parts(found, seed)
    fitted, held, tried = parts
    with naming(data), stages_progress(transient=True) as show:
        encoder.fit(*fitted[:2], private=fitted.private, validation=held,
                    inhouse_public=inhouse_public, progress=show)  # fmt: skip
    shown = [encoder.transform(part.rows) for part in parts]
    known = _joined(fitted.private, held.private)
    values = {
        "training": training,
        "strength": strength,
        "epsilon": epsilon,
        "rows": dict(zip(("training", "validation", "test"), map(len, shown), strict=True)),
        "regular": _regular(encoder, regular, shown[2], tried.regular),
        "private": [
            _attacked(
                encoder,
                name,
                (_stacked(*shown[:2]), known[name]),
                (shown[2], tried.private[name]),
                names,
                seed,
            )
            for name in known
        ],
    }
    encoder.save(out)
    _print(encoder, values | _promise(encoder) | {"written": str(out)}, as_json)


def represent(
    directory: Directory,
    data: Source,
    out: Out,
    pattern: Pattern = None,
    size: Size = None,
    as_json: AsJson = False,
) -> None:
    """Write what may be handed out of each row, without labels, and a certificate beside it.

    Example: tacit represent encoder rows.parquet --out released.parquet
    """
    from tacit.certificate import Artifact

    certificate = out.with_suffix(".certificate.json")
    must_be_new(out)
    must_be_new(certificate)
    encoder = _encoder(directory)
    shown, left_out = _represented(encoder, data, pattern, size)
    columns = _columns(encoder, shown)
    _write(columns, out)
    # The file is about rows, each with a release of its own: the promise is that of one.
    replace(encoder.certificate, artifact=Artifact.of(out)).save(certificate)
    values = {
        "rows": len(shown),
        "columns": list(columns),
        "left_out": left_out,
        **_promise(encoder),
        "written": str(out),
        "certificate": str(certificate),
    }
    print_values(values, as_json, "Represented")


def probe(
    directory: Directory,
    data: Source,
    private: Private,
    regular: Annotated[str | None, typer.Option(help="The label to keep, if it is there.")] = None,
    together: Annotated[
        int, typer.Option(help="Rows of one person that the linkage takes together.")
    ] = 1,
    pattern: Pattern = None,
    size: Size = None,
    attackers: Attackers = None,
    seed: Annotated[int, typer.Option(help="Of the split and of the attackers.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Attack representations afresh: on rows that the encoder was not fitted on.

    Example: tacit probe encoder others.parquet --private writer --regular digit
    """
    from tacit.anonymize.released import people, split

    names, chosen = _attackers(attackers), _words(private)
    encoder = _encoder(directory)
    shown, _ = _represented(encoder, data, pattern, size)
    labels = _labels(data, [*chosen, *([regular] if regular else [])], pattern, size)
    attacked = []
    for name in chosen:
        with naming(data):
            codes = people(f"label {name!r}", labels[name], len(shown))[0]
            held = split(f"label {name!r}", codes, _SHARE, seed)
            first, second = ((shown[part], labels[name][part]) for part in (~held, held))
            attacked.append(_attacked(encoder, name, first, second, names, seed, together))
    values: dict[str, Any] = {"rows": len(shown), "private": attacked, **_promise(encoder)}
    if regular:
        with naming(data):
            values["regular"] = _regular(encoder, regular, shown, labels[regular])
    _print(encoder, values, as_json)
    if not as_json:
        print_text(
            "This speaks of rows that the encoder was not fitted on. It knows the others, and may "
            "treat them in another way."
        )


# --- what is read ------------------------------------------------------------------------------


class _Part(NamedTuple):
    """Rows, and their labels as values."""

    rows: Any
    regular: Any
    private: dict[str, Any]


class _Found(NamedTuple):
    """Rows with a label for the task, and every private one by name."""

    data: Any
    private: dict[str, Any]


def _untrained(given: Mapping[str, Any]) -> Any:
    """Settings that are wrong are refused before data is read."""
    from tacit import devices
    from tacit.anonymize.encoder import AnonymizingEncoder

    kept = ("training", "styles", "epsilon", "unit", "dimensions", "seed")
    encoder = AnonymizingEncoder(
        given["strength"],
        **{name: given[name] for name in kept},
        encoder=_sizes(given["layers"]),
        device=devices.resolve("anonymize", given["device"]),
    )
    encoder._check()
    return encoder


def _read(
    data: str,
    regular: str,
    private: list[str],
    schema: Path | None,
    pattern: str | None,
    size: str | None,
) -> _Found:
    from tacit import datasets

    found = datasets.load_twice(
        data, regular, private[0], schema, pattern=pattern, size=image_size(size)
    )
    hidden = {private[0]: _values(found.private_classes, found.private)}
    for name in private[1:]:
        if name == regular:
            errors.refuse(data, "private", "another column than regular", name)
        if name in found.schema.names and schema is not None:
            errors.refuse(data, "schema", "without the labels", name)
        hidden[name] = _label(data, name)
    rest = [name for name in private[1:] if name in getattr(found.rows, "column_names", ())]
    return _Found(replace(found, rows=found.rows.drop_columns(rest)) if rest else found, hidden)


def _parts(found: _Found, seed: int) -> list[_Part]:
    """Rows to fit, to say when to stop, and to judge by: nobody is in the others alone."""
    data, divided = found.data, found.data.split(seed)
    regular = _values(data.regular_classes, data.regular)
    parts = [
        _Part(data.take(at), regular[at], {name: v[at] for name, v in found.private.items()})
        for at in (divided.training, divided.validation, divided.test)
    ]
    for name in found.private:
        known = set(parts[0].private[name].tolist())
        if any(set(part.private[name].tolist()) - known for part in parts[1:]):
            raise errors.InvalidData(
                f"{data.name}: every value of label {name!r} must be among the rows to fit on. "
                "Leave rare ones out, merge them, or take another seed."
            )
    return parts


def _encoder(directory: Path) -> Any:
    from tacit import artifact

    thing = artifact.load(directory)
    if thing.kind != _KIND:
        errors.refuse(
            "command line", "directory", "an encoder, as anonymize writes", str(directory)
        )
    return thing


def _represented(
    encoder: Any, data: str, pattern: str | None, size: str | None
) -> tuple[Any, list[str]]:
    """What leaves of each row, and the columns that do not."""
    if not Path(data).is_file():
        found = _images(data, pattern, size)
        with naming(data):
            return encoder.transform(found.rows), [found.regular_name, found.private_name]
    from tacit import tables
    from tacit.datasets.arrow import arrow, select
    from tacit.schema import TableSchema

    schema = encoder.reader_.schema
    if not isinstance(schema, TableSchema):
        errors.refuse("command line", "DATA", "images, as the encoder was fitted on", data)
    parts, left_out = [], []
    with rows_progress(tables.count(data)) as advance:
        for batch in tables.batches(data, schema):
            table = arrow().Table.from_batches([batch])
            parts.append(encoder.transform(select(table, schema, data)))
            left_out = [name for name in table.column_names if name not in schema.names]
            advance(batch.num_rows)
    return _stacked(*parts), left_out


def _labels(data: str, names: list[str], pattern: str | None, size: str | None) -> dict[str, Any]:
    """Labels of all rows, by name."""
    if Path(data).is_file():
        return {name: _label(data, name) for name in names}
    found = _images(data, pattern, size, *names)
    known = {
        found.private_name: _values(found.private_classes, found.private),
        found.regular_name: _values(found.regular_classes, found.regular),
    }
    for name in names:
        if name not in known:
            errors.refuse(data, "label", f"one of {', '.join(known)}", name)
    return known


def _images(
    data: str,
    pattern: str | None,
    size: str | None,
    private: str | None = None,
    regular: str | None = None,
) -> Any:
    from tacit import datasets

    if data in datasets.TWICE_NAMES:  # their labels have names of their own
        return datasets.load_twice(data, pattern=pattern, size=image_size(size))
    return datasets.load_twice(data, regular, private, pattern=pattern, size=image_size(size))


def _label(data: str, name: str) -> Any:
    """A column as text or whole numbers; in a CSV file "07" and "7" are two values."""
    from tacit.datasets.arrow import read_table
    from tacit.datasets.twice import coded

    path = Path(data)
    table = read_table(path, words=name) if path.is_file() else None
    if table is None or name not in table.column_names:
        errors.refuse(data, "label", "one of its columns", name, "Has it a header?")
    codes, classes = coded(table[name], name, data)
    return _values(classes, codes)


def _values(classes: tuple[Any, ...], codes: Any) -> Any:
    import numpy as np

    return np.array(classes)[codes]


def _stacked(*parts: Any) -> Any:
    import numpy as np

    return np.concatenate(parts)


def _joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    return {name: _stacked(first[name], second[name]) for name in first}


def _words(text: str) -> list[str]:
    found = [word.strip() for word in text.split(",")]
    if not all(found) or len(set(found)) != len(found):
        errors.refuse("command line", "--private", "distinct names", text)
    return found


def _sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        errors.refuse("command line", "--layers", "whole numbers, as in 256,256", text)


def _attackers(text: str | None) -> list[str] | None:
    from tacit.anonymize.probes import ATTACKERS

    if text is None:
        return None
    names = [word.strip() for word in text.split(",")]
    return [errors.choice("command line", "--attackers", one, tuple(ATTACKERS)) for one in names]


# --- what is measured --------------------------------------------------------------------------


def _share(right: Any) -> dict[str, Any]:
    from tacit.inference.validation import exact_interval

    count, rows = int(right.sum()), len(right)
    interval = exact_interval(count, rows, 1.0, 0.0, CONFIDENCE)
    return {"accuracy": count / rows, "interval": list(interval)}


def _regular(encoder: Any, name: str, shown: Any, labels: Any) -> dict[str, Any]:
    from tacit.tables import as_classes

    classes = encoder.classes_.regular
    truth = as_classes(labels, classes, f"label {name!r}")
    encoder.classes_.regular_codes(f"label {name!r}", truth)  # an unknown one is refused
    return {"name": name, **_share(encoder.predict_from(shown) == truth)}


def _attacked(
    encoder: Any,
    name: str,
    known: tuple[Any, Any],
    tried: tuple[Any, Any],
    attackers: list[str] | None,
    seed: int,
    together: int = 1,
) -> dict[str, Any]:
    """The encoder's own adversary, attackers that learn from `known`, linkage, and a bound."""
    from tacit.anonymize.linkage import linkage
    from tacit.anonymize.probes import probe

    found = probe(*known, *tried, attackers=attackers, seed=seed, confidence=CONFIDENCE)
    linked = linkage(*known, *tried, together=together, seed=seed, confidence=CONFIDENCE)
    adversary, loss = _adversary(encoder, name, *tried)
    told = found.to_dict()
    bound = _bound(encoder, *tried, loss, found.people)
    return {
        "name": name,
        "adversary": adversary,
        "probes": told["results"],
        "strongest_probe": told["strongest"],
        "chance": found.chance,
        "people": found.people,
        "linkage": linked.to_dict(),
        "bound": None if bound is None else bound.to_dict(),
    }


def _adversary(
    encoder: Any, name: str, shown: Any, labels: Any
) -> tuple[dict[str, Any] | None, float | None]:
    """What the branch of the training gets right, and its loss; none for people it never saw."""
    import numpy as np

    classes = encoder.classes_.private.get(name, ())
    place = {str(value): code for code, value in enumerate(classes)}
    codes = np.array([place.get(str(value), -1) for value in labels])
    if (codes < 0).any():
        return None, None
    chances = encoder.adversary(shown)[name]
    own = chances[np.arange(len(codes)), codes].astype(np.float64)
    loss = float(-np.log(np.maximum(own, np.finfo(np.float32).tiny)).mean())
    return _share(chances.argmax(axis=1) == codes), loss


def _bound(encoder: Any, shown: Any, labels: Any, loss: float | None, people: int) -> Any:
    """The best that is known: proved with ε, counted for codes, else as good as the adversary."""
    import numpy as np

    from tacit import ceilings
    from tacit.anonymize import bounds

    if encoder.local_ is not None:
        shares = np.unique(labels, return_counts=True)[1] / len(labels)
        most = ceilings.of_shares(shares, float(encoder.local_.epsilon))
        return bounds.Bound(1 - most, f"{bounds.FOR_EVERY_ATTACKER} on one representation")
    if encoder.training == "robust":
        return bounds.code_ceiling(shown, labels, confidence=CONFIDENCE)
    return None if loss is None else bounds.error_bound_from_adversary(loss, people)


def _promise(encoder: Any) -> dict[str, Any]:
    return {
        "guarantee": str(encoder.guarantee_),
        "differential_privacy": encoder.local_ is not None,
        "in_house_rows": described(encoder.inhouse_),
    }


# --- what is written and printed ---------------------------------------------------------------


def _columns(encoder: Any, shown: Any) -> dict[str, Any]:
    """A code as one number; and the task's label, which is read off it and tells nothing more."""
    if encoder.training == "robust":
        columns = {"code": shown.argmax(axis=1)}
    else:
        columns = dict(zip(encoder.get_feature_names_out().tolist(), shown.T, strict=True))
    return columns | {"predicted": encoder.predict_from(shown)}


def _write(columns: dict[str, Any], out: Path) -> None:
    from pyarrow import parquet

    from tacit.datasets.arrow import arrow

    parquet.write_table(arrow().table(columns), out)


def _print(encoder: Any, values: dict[str, Any], as_json: bool) -> None:
    if as_json:
        return print_json(values)
    lines = []
    if "regular" in values:
        task = values["regular"]
        lines.append((f"{task['name']}: read off the representation", *_line(task)))
    for one in values["private"]:
        lines += _attack_lines(one)
    print_table("Right on rows that were held out", ("", "right", "95 % interval"), lines)
    for one in values["private"]:
        if one["bound"] is not None:
            print_text(
                f"{one['name']}: at most {one['bound']['accuracy']:.1%} right, "
                f"{one['bound']['holds']}."
            )
    print_text(_promised(encoder, values))
    if "written" in values:
        print_text(f"In-house rows: {values['in_house_rows']}. Written: {values['written']}")


def _attack_lines(one: dict[str, Any]) -> list[tuple[str, str, str]]:
    name, linked = one["name"], one["linkage"]
    rows = "" if linked["together"] == 1 else f", {linked['together']} rows together"
    lines = [] if one["adversary"] is None else [("the adversary of the training", one["adversary"])]
    lines += [(attack["name"], attack) for attack in one["probes"]]
    best = one["strongest_probe"]
    lines.append((f"the strongest, {best['name']} (all intervals at once)", best))
    for place, (text, key) in enumerate((("", "top1"), (" among the first five", "top5"))):
        share = {"accuracy": linked[key], "interval": linked["intervals"][place]}
        lines.append((f"linkage{text}{rows}", share))
    chance = (f"{name}: chance, {one['people']} people", f"{one['chance']:.1%}", "")
    return [*((f"{name}: {text}", *_line(share)) for text, share in lines), chance]


def _line(share: dict[str, Any]) -> tuple[str, str]:
    low, high = share["interval"]
    return f"{share['accuracy']:.1%}", f"{low:.1%} to {high:.1%}"


def _promised(encoder: Any, values: dict[str, Any]) -> str:
    if values["differential_privacy"]:
        return f"Differential privacy: {values['guarantee']}, for one representation of a row."
    from tacit.anonymize.encoder import DETERMINISTIC

    return DETERMINISTIC
