"""`tacit release anonymize`, `represent`, `probe`: representations that hide whose a row is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.apps.cli.console import print_json, print_table, print_text, print_values
from tacit.apps.cli.files import described, must_be_new, stages_progress
from tacit.apps.cli.groups import command
from tacit.apps.cli.options import AsJson, Device, InhousePublic, Out
from tacit.data.tables import naming
from tacit.privacy import errors

if TYPE_CHECKING:
    from tacit.anonymize.judging import Judgement
    from tacit.anonymize.probes import AttackResult
    from tacit.apps.cli.release.labelled import LabelledRows

_KIND = "anonymizing-encoder"
_PARTS = ("training", "validation", "test")
_SHARE = 1 / 3  # the share of each person's rows on which attackers are judged
_FAR = 0.1  # an attacker surely above chance by more than this is reported
_STYLES, _STYLES_WITH_NOISE = 8, 1  # randomized response loses more with more cells

Source = Annotated[
    str,
    typer.Argument(
        help="CSV or Parquet file, folder of images, or a data set by name (pendigits).",
        metavar="DATA",
    ),
]
Directory = Annotated[Path, typer.Argument(help="Directory that anonymize wrote.", metavar="DIR")]
Private = Annotated[str, typer.Option(help="Label to hide; several columns of a file: writer,sex.")]
Pattern = Annotated[
    str | None,
    typer.Option(
        help="How paths of a folder name both labels: ferg, jaffe, or a regular expression."
    ),
]
Size = Annotated[
    str | None, typer.Option(help="Size to which images of a folder are scaled: 50x50.")
]
Together = Annotated[int, typer.Option(help="Rows of one person that are linked together.")]
Attackers = Annotated[
    str | None, typer.Option(help="Attackers by name: logistic,trees.", show_default="all")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    panel = "Representations"
    command(
        app,
        panel,
        "tacit release anonymize pendigits --regular digit --private writer --out encoder",
    )(anonymize)
    command(app, panel, "tacit release represent encoder rows.parquet --out released.parquet")(
        represent
    )
    command(
        app, panel, "tacit release probe encoder others.parquet --private writer --regular digit"
    )(probe)


def anonymize(
    data: Source,
    regular: Annotated[str, typer.Option(help="Label to keep.")],
    private: Private,
    out: Out,
    strength: Annotated[
        float, typer.Option(help="λ: weight of hiding, relative to the task.")
    ] = 1.0,
    training: Annotated[str, typer.Option(help="robust, toggled or simultaneous.")] = "robust",
    styles: Annotated[
        int | None,
        typer.Option(
            help="Number of codes per class (robust).", show_default="8; 1 with --epsilon"
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(help="Local ε of one representation.", show_default="no differential privacy"),
    ] = None,
    unit: Annotated[
        str, typer.Option(help="record, or person if everyone releases one row once.")
    ] = "record",
    dimensions: Annotated[
        int | None,
        typer.Option(
            help="Length of a representation.", show_default="the last layer; 8 with --epsilon"
        ),
    ] = None,
    layers: Annotated[str, typer.Option(help="Sizes of the encoder's layers.")] = "256,256,256",
    schema: Annotated[
        Path | None, typer.Option(help="Features of a table, with public bounds (JSON file).")
    ] = None,
    pattern: Pattern = None,
    size: Size = None,
    together: Together = 1,
    attackers: Attackers = None,
    inhouse_public: InhousePublic = False,
    seed: Annotated[
        int, typer.Option(help="Seed of the split and of the training; the noise is never seeded.")
    ] = 0,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Learn representations that keep one label and hide another, and attack them.

    The attackers are trained afresh, and judged on held-out rows.
    """
    from tacit.apps.cli.release import labelled

    must_be_new(out)
    encoder = _untrained(locals())  # a wrong parameter is refused before data are read
    names = _attackers(attackers)
    folder = labelled.Folder(pattern, size)
    table, hidden = labelled.read(data, regular, _names(private), schema, folder)
    parts = labelled.parts(table, hidden, seed)
    with naming(data), stages_progress(transient=True) as show:
        rows, labels, people = parts[0]
        given = {"validation": parts[1], "inhouse_public": inhouse_public, "progress": show}
        encoder.fit(rows, labels, private=people, **given)
    how = {"attackers": names, "together": together, "seed": seed}
    kept, judged = _judged(encoder, regular, parts, how)
    encoder.save(out)
    values = {
        "training": training,
        "strength": strength,
        "styles": encoder.styles if training == "robust" else None,
        "epsilon": epsilon,
        "rows": {name: len(part.regular) for name, part in zip(_PARTS, parts, strict=True)},
    }
    _print(encoder, kept, judged, values, as_json, out)


def represent(
    directory: Directory,
    data: Source,
    out: Out,
    pattern: Pattern = None,
    size: Size = None,
    as_json: AsJson = False,
) -> None:
    """Write the representation of each row, without labels, and a certificate beside it."""
    from tacit.apps.cli.release import labelled
    from tacit.privacy.certificate import Artifact

    certificate = _beside(out)
    encoder = _encoder(directory)
    assumed = labelled.one_row_each(encoder, data)
    shown, behind = labelled.represented(encoder, data, labelled.Folder(pattern, size))
    ours = not Path(data).is_file()  # the order of paths would reveal the person
    columns = _columns(encoder, labelled.shuffled(shown) if ours else shown)
    _write(columns, out)
    # Each row is released once, so the guarantee is that of one release.
    stated = encoder.certificate
    assumptions = (*stated.assumptions, *assumed)
    replace(stated, artifact=Artifact.of(out), assumptions=assumptions).save(certificate)
    values = {
        "rows": len(shown),
        "columns": list(columns),
        "left_out": behind,
        "order": "drawn at random" if ours else "as in DATA",
        **_promise(encoder),
        **({} if encoder.local_ is None else {"price": "each draw costs ε again"}),
        "written": str(out),
        "certificate": str(certificate),
    }
    print_values(values, as_json, "Represented")


def probe(
    directory: Directory,
    data: Source,
    private: Private,
    regular: Annotated[str | None, typer.Option(help="Label to keep, if DATA has it.")] = None,
    together: Together = 1,
    pattern: Pattern = None,
    size: Size = None,
    attackers: Attackers = None,
    seed: Annotated[int, typer.Option(help="Seed of the split and of the attackers.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Attack the representations of rows that the encoder was not fitted on."""
    from tacit.anonymize import judging
    from tacit.anonymize.released import people, split
    from tacit.apps.cli.release import labelled

    names, hidden = _attackers(attackers), _names(private)
    encoder, folder = _encoder(directory), labelled.Folder(pattern, size)
    labels = labelled.labels(encoder, data, hidden, regular, folder)
    shown, _ = labelled.represented(encoder, data, folder)
    judged = []
    with naming(data):
        kept = regular and judging.task(encoder, regular, shown, labels[regular])
        for name in hidden:
            codes, _ = people(name, labels[name], len(shown))
            held = split(name, codes, _SHARE, seed)
            known, tried = ((shown[part], labels[name][part]) for part in (~held, held))
            given: dict[str, Any] = {"attackers": names, "together": together, "seed": seed}
            judged.append(judging.judge(encoder, name, known, tried, **given))
    _print(encoder, kept or None, judged, {"rows": len(shown)}, as_json)
    if not as_json:
        print_text(
            "These results assume rows that the encoder was not fitted on. If it was fitted on "
            "them, it may hide them better than others."
        )


def _untrained(given: Mapping[str, Any]) -> Any:
    from tacit.anonymize.encoder import AnonymizingEncoder
    from tacit.privacy import devices

    if given["unit"] == "person" and given["epsilon"] is None:
        remedy = "Without it there is no guarantee."
        errors.refuse("command line", "--epsilon", "given with --unit person", None, remedy)
    same = ("training", "epsilon", "unit", "dimensions", "seed")
    usual = _STYLES if given["epsilon"] is None else _STYLES_WITH_NOISE
    encoder = AnonymizingEncoder(
        given["strength"],
        **{name: given[name] for name in same},
        styles=usual if given["styles"] is None else given["styles"],
        encoder=_sizes(given["layers"]),
        device=devices.resolve("anonymize", given["device"]),
    )
    encoder._check()
    return encoder


def _encoder(directory: Path) -> Any:
    from tacit.privacy import artifact

    thing = artifact.load(directory)
    if thing.kind != _KIND:
        needed = "an encoder that tacit release anonymize wrote"
        errors.refuse("command line", "directory", needed, str(directory))
    return thing


def _beside(out: Path) -> Path:
    """Return the path of the certificate, once it and the file are known to be new."""
    must_be_new(out)
    if out.suffix != ".parquet":
        remedy = "Representations are written as Parquet."
        errors.refuse("command line", "--out", "a .parquet file", str(out), remedy)
    certificate = out.with_name(f"{out.name}.certificate.json")
    must_be_new(certificate, "the certificate of --out")
    return certificate


def _names(text: str) -> list[str]:
    names = [word.strip() for word in text.split(",")]
    if not all(names) or len(set(names)) != len(names):
        errors.refuse("command line", "--private", "distinct names", text)
    return names


def _sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        errors.refuse("command line", "--layers", "whole numbers, as in 256,256", text)


def _attackers(text: str | None) -> list[str] | None:
    from tacit.anonymize.attackers import ATTACKERS

    if text is None:
        return None
    words = (word.strip() for word in text.split(","))
    return [errors.choice("command line", "--attackers", one, tuple(ATTACKERS)) for one in words]


def _judged(
    encoder: Any, regular: str, parts: Sequence[LabelledRows], how: Mapping[str, Any]
) -> tuple[AttackResult, list[Judgement]]:
    """Judge attackers that know all in-house rows except those on which they are judged."""
    import numpy as np

    from tacit.anonymize import judging

    first, second, shown = (encoder.transform(part.rows) for part in parts)
    known = np.concatenate([first, second])
    judged = []
    for name, labels in parts[2].private.items():
        theirs = np.concatenate([part.private[name] for part in parts[:2]])
        judged.append(judging.judge(encoder, name, (known, theirs), (shown, labels), **how))
    return judging.task(encoder, regular, shown, parts[2].regular), judged


def _promise(encoder: Any) -> dict[str, Any]:
    return {
        "guarantee": str(encoder.guarantee_),
        "differential_privacy": encoder.local_ is not None,
        "in_house_rows": _in_house(encoder),
    }


def _in_house(encoder: Any) -> str:
    """Describe the protection of in-house rows; only the encoder has to stay in-house."""
    return described(encoder.inhouse_).replace("keep it inside", "keep the encoder inside")


def _columns(encoder: Any, shown: Any) -> dict[str, Any]:
    """Make the columns: each code as one integer, and the label that is predicted from it."""
    if encoder.training == "robust":
        columns = {"code": shown.argmax(axis=1)}
    else:
        columns = dict(zip(encoder.get_feature_names_out().tolist(), shown.T, strict=True))
    return {**columns, "predicted": encoder.predict_from(shown)}


def _write(columns: dict[str, Any], out: Path) -> None:
    from pyarrow import parquet

    from tacit.data.datasets.arrow import arrow
    from tacit.privacy.files import Draft

    # A killed run leaves nothing: a second run would be a second draw of each row.
    with Draft(out) as draft:
        parquet.write_table(arrow().table(columns), draft.file)
        draft.place()


def _print(
    encoder: Any,
    kept: AttackResult | None,
    judged: list[Judgement],
    values: dict[str, Any],
    as_json: bool,
    out: Path | None = None,
) -> None:
    if as_json:
        if kept is not None:
            values["regular"] = kept.to_dict()
        values |= {"private": [one.to_dict() for one in judged], **_promise(encoder)}
        return print_json(values if out is None else {**values, "written": str(out)})
    lines = [] if kept is None else [_line(f"{kept.name}: read off the representation", kept)]
    for one in judged:
        lines += _lines(one)
    print_table("Accuracy on held-out rows", ("", "accuracy", "95 % interval"), lines)
    for one in judged:
        if one.bound is not None:
            print_text(f"{one.name}: {one.bound}.")
    if out is not None:
        print_text(f"In-house rows: {_in_house(encoder)}. Written: {out}")
    print_text(_last_word(encoder))
    for line in _warnings(encoder, judged):
        print_text(line)


def _lines(one: Judgement) -> list[tuple[str, str, str]]:
    """List the accuracy of each attacker for one label."""
    best, linked = one.probes.strongest, one.linkage
    several = "" if linked.together == 1 else f" of {linked.together} rows together"
    groups = "" if linked.together == 1 else f", {linked.groups} groups"
    first, five = (f"chance {chance:.1%}{groups}" for chance in linked.chance)
    lines = [] if one.adversary is None else [_line("the adversary of the training", one.adversary)]
    lines += [_line(attack.name, attack) for attack in one.probes.results]
    lines.append(_line(f"strongest: {best.name} (all at once)", best))
    lines.append((f"linkage{several} ({first})", *_shares(linked.top1, linked.intervals[0])))
    if linked.people > 5:
        shares = _shares(linked.top5, linked.intervals[1])
        lines.append((f"linkage{several}, first five ({five})", *shares))
    lines.append((f"chance, of {one.probes.people}", f"{one.probes.chance:.1%}", ""))
    return [(f"{one.name}: {text}", right, interval) for text, right, interval in lines]


def _line(text: str, attack: AttackResult) -> tuple[str, str, str]:
    return text, *_shares(attack.accuracy, attack.interval)


def _shares(right: float, interval: tuple[float, float]) -> tuple[str, str]:
    return f"{right:.1%}", f"{interval[0]:.1%} to {interval[1]:.1%}"


def _last_word(encoder: Any) -> str:
    if encoder.local_ is not None:
        return f"Differential privacy: {encoder.guarantee_}, of one representation of a row."
    from tacit.anonymize.encoder import DETERMINISTIC

    return DETERMINISTIC


def _warnings(encoder: Any, judged: list[Judgement]) -> Iterator[str]:
    """Yield what a reader of the table must not miss."""
    robust = encoder.training == "robust"
    if not robust:
        yield (
            f"Training {encoder.training} hides people from its own adversary; attackers that are "
            "trained afresh find more. To hand representations out, use --training robust."
        )
    larger = "a larger --strength or fewer --styles"
    remedy = larger if robust else "--training robust or a larger --strength"
    for one in judged:
        best, chance = one.probes.strongest, one.probes.chance
        if best.interval[0] > chance + _FAR:
            yield (
                f"This does not hide the {one.name}: {best.name} is right about "
                f"{best.accuracy:.0%} of the rows, where chance is {chance:.0%}. Try {remedy}."
            )
