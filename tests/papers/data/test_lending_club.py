"""Lending Club: the paper's steps, from the extract and from the raw file of Kaggle alike."""

from __future__ import annotations

import csv
import datetime
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tacit.data import datasets
from tacit.data.datasets import files
from tacit.data.datasets.base import Dataset
from tacit.privacy import errors
from tacit_papers.data import lending_club, loans

Published = Callable[[str], Dataset]
SAMPLE = files.find("lending_club", ["lending_club_2007_2018_sample2k.parquet"])
MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"
ENDED = ("Fully Paid", "Charged Off")


def made(rows: int, seed: int = 0) -> Any:
    """Loans of a file that never was, with gaps, in the types of the extract."""
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {
        name: rng.choice(values, rows).tolist() for name, values in loans.CATEGORIES.items()
    }
    columns |= {name: rng.gamma(2, 50, rows).round(2).tolist() for name in loans.QUANTITIES}
    columns["term"] = [int(term) for term in columns["term"]]
    columns["emp_length"] = rng.choice(["< 1 year", "1 year", "7 years", "10+ years"], rows)
    columns["emp_length"] = columns["emp_length"].tolist()
    for name, first in (("earliest_cr_line", 1970), ("issue_d", 2007)):
        months = zip(rng.integers(first, first + 10, rows), rng.integers(1, 13, rows), strict=True)
        columns[name] = [datetime.date(int(year), int(month), 1) for year, month in months]
    policy = "Does not meet the credit policy. Status:"
    ends = [*ENDED, *ENDED[:1] * 2, "Current", *(policy + end for end in ENDED)]
    columns["loan_status"] = rng.choice(ends, rows).tolist()
    for name in ("dti", "emp_length", "revol_util", "earliest_cr_line", "home_ownership"):
        for gap in rng.choice(rows, rows // 20, replace=False):
            columns[name][gap] = None
    return pa.table(columns)


def write_raw(table: Any, path: Path) -> Path:
    """The table as the CSV file of Kaggle has it."""
    say: dict[str, Callable[[Any], str]] = {
        "term": lambda term: f" {term} months",
        "issue_d": lambda date: f"{MONTHS.split()[date.month - 1]}-{date.year}",
    }
    say["earliest_cr_line"] = say["issue_d"]
    with (gzip.open if path.suffix == ".gz" else open)(path, "wt", newline="") as file:
        writer = csv.writer(file)
        names = table.column_names
        writer.writerow(["id", *names, "desc", "url"])
        for number, row in enumerate(table.to_pylist()):
            cells = ["" if row[n] is None else say.get(n, str)(row[n]) for n in names]
            writer.writerow([number, *cells, 'Borrower: "help",\nplease', ""])
        writer.writerow(["Total amount funded in policy code 1: 1", *[""] * (len(names) + 2)])
    return path


def same(first: Dataset, second: Dataset) -> bool:
    return (
        first.schema == second.schema
        and first.rows.equals(second.rows)
        and np.array_equal(first.labels, second.labels)
        and first.pools == second.pools
        and first.others == second.others
    )


@pytest.mark.parametrize("name", ["accepted.csv", "accepted.csv.gz"])
def test_the_raw_file_and_the_extract_give_the_same_loans(tmp_path: Path, name: str) -> None:
    pq.write_table(table := made(2000), tmp_path / "loans.parquet")
    extract = lending_club.from_file(tmp_path / "loans.parquet")
    assert len(extract) > 500
    assert same(extract, lending_club.from_file(write_raw(table, tmp_path / name)))


def test_the_sample_of_the_full_file_agrees_with_its_raw_form(tmp_path: Path) -> None:
    if SAMPLE is None:
        pytest.skip("lending_club: lending_club_2007_2018_sample2k.parquet is not here.")
    extract = lending_club.from_file(SAMPLE)
    assert len(extract.schema.names) == 23
    raw = write_raw(pq.read_table(SAMPLE), tmp_path / "accepted.csv")
    assert same(extract, lending_club.from_file(raw))


def test_the_full_file_wins_where_both_are_there(bare: Path) -> None:
    folder = bare / "lending_club"
    folder.mkdir(parents=True)
    pq.write_table(made(300), folder / "lending_club.parquet")
    assert set(datasets.load("lending_club").sha256) == {"lending_club.parquet"}
    write_raw(made(400), folder / "accepted_2007_to_2018Q4.csv")
    assert set(datasets.load("lending_club").sha256) == {"accepted_2007_to_2018Q4.csv"}


def some(**columns: Any) -> loans.Loans:
    count = len(next(iter(columns.values())))
    known = {name: np.zeros(count) for name in loans.FEATURES if name not in loans.CATEGORIES}
    codes = {name: np.zeros(count, np.int64) for name in loans.CATEGORIES}
    for name, column in columns.items():
        (codes if name in codes else known)[name] = np.array(column)
    return loans.Loans(np.arange(count, dtype=float), np.arange(count) % 2, known, codes)


def test_constant_and_mostly_missing_columns_are_dropped() -> None:
    nan = np.nan
    table = some(dti=[1.0, 2, nan, nan], open_acc=[1.0, nan, nan, nan], grade=[-1, 0, 1, 0])
    assert lending_club.informative(table) == ("dti", "grade")


def test_gaps_are_filled_from_training_loans_alone() -> None:
    table = some(dti=[1.0, 3, np.nan, 100, np.nan], grade=[2, 2, 1, 1, -1])
    found = lending_club.filled(table, table[:3])
    assert found.numbers["dti"].tolist() == [1, 3, 2, 100, 2]
    assert found.codes["grade"].tolist() == [2, 2, 1, 1, 2]


def test_scaling_and_outliers_go_by_training_loans_alone() -> None:
    table = some(dti=[0.0, 2, 11, 12, -9])
    found = lending_club.scaled(table, table[:2], ("dti",))
    assert found.numbers["dti"].tolist() == [-1, 1, 10, 11, -10]
    assert lending_club.within(found, ("dti",)).tolist() == [0, 1, 2, 4]


def test_balancing_keeps_the_order_and_spreads_over_time() -> None:
    labels = (np.arange(10_000) % 5 == 0).astype(int)
    kept = lending_club.balanced_rows(labels, np.random.default_rng(0))
    assert (np.diff(kept) > 0).all()
    assert labels[kept].mean() == 0.5
    assert len(kept) == 4000
    assert abs((kept[labels[kept] == 0] < 5000).mean() - 0.5) < 0.05


def test_published_loans(published: Published) -> None:
    data = published("lending_club")
    if "lending_club.parquet" not in data.sha256:
        pytest.skip("lending_club: the full file is here, and the numbers are the extract's.")
    path = files.find("lending_club", ["lending_club.parquet"])
    assert path is not None
    everyone = loans.read(path)
    assert len(everyone) == 42_535
    assert len(lending_club.balanced(everyone, np.random.default_rng(0))) == 12_862
    assert data.rows.shape == (12_822, 20)
    assert data.labels.mean() == 0.5
    numbers = np.stack([data.rows[column.name] for column in data.schema.continuous])
    assert np.abs(numbers).max() <= 10
    assert np.abs(numbers[:, : data.pools.training].mean(axis=1)).max() < 0.05  # type: ignore[union-attr]
    assert len(data.schema.rows(data.rows)) == 12_822
    assert "mort_acc, initial_list_status, application_type." in data.taken_as_public[0]


def test_published_splits_follow_time(published: Published) -> None:
    data = published("lending_club")
    split = data.collection(0)
    assert max(split.inhouse.max(), split.people.max()) < split.voters.min()
    assert split.voters.max() < split.test.min()
    training = len(split.inhouse) + len(split.people)
    assert training / len(data) == pytest.approx(0.85, abs=0.002)
    assert len(split.inhouse) == int(0.75 * training)
    assert data.joins() == ("paper", "signal")
    for name in data.joins():
        ours, theirs = data.join(name)
        assert set(theirs.schema.names) <= set(lending_club.JOINS[name])
        assert set(ours.schema.names) | set(theirs.schema.names) == set(data.schema.names)
    with pytest.raises(errors.InvalidParameter, match="classes must be at least 3"):
        data.novel(0)


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("term", "secret", "column 'term' must be one of its 2 public categories"),
        ("dti", "secret", "column 'dti' must be numbers"),
        ("issue_d", "secret", "column 'issue_d' must be like 'Dec-2015'"),
        ("issue_d", None, "column 'issue_d' must be without missing values"),
        ("emp_length", "secret", "column 'emp_length' must be like '3 years'"),
        ("loan_status", "Current", "must have loans that ended"),
        (
            "loan_status",
            "Fully Paid",
            "must have loans that were paid back and loans that were not",
        ),
    ],
)
def test_what_is_no_loan_is_one_line(
    tmp_path: Path, column: str, value: str | None, said: str
) -> None:
    table = made(50)
    where = table.column_names.index(column)
    wrong = table.set_column(where, column, pa.array([value] * 50, pa.string()))
    pq.write_table(wrong, tmp_path / "loans.parquet")
    with pytest.raises(errors.InvalidData, match=said) as caught:
        lending_club.from_file(tmp_path / "loans.parquet")
    assert "secret" not in str(caught.value)


def test_damaged_files_are_one_line(tmp_path: Path) -> None:
    table = made(200)
    path = tmp_path / "loans.parquet"
    pq.write_table(table.drop_columns(["dti"]), path)
    with pytest.raises(errors.InvalidData, match="must have a column 'dti'"):
        lending_club.from_file(path)
    for whole in (
        write_raw(table, tmp_path / "a.csv"),
        write_raw(table, tmp_path / "a.csv.gz"),
        path,
    ):
        whole.write_bytes(whole.read_bytes()[:-40])
        with pytest.raises(errors.InvalidData, match="Was it damaged, or cut"):
            lending_club.from_file(whole)
    path.write_bytes(b"")
    with pytest.raises(errors.InvalidData, match="Was it damaged, or cut"):
        lending_club.from_file(path)


def test_a_missing_file_says_that_kaggle_asks_for_an_account(bare: Path) -> None:
    with pytest.raises(datasets.MissingFile) as caught:
        datasets.load("lending_club")
    assert str(caught.value) == (
        "lending_club: accepted_2007_to_2018Q4.csv (or .csv.gz) must be in "
        f"$TACIT_DATA/lending_club (TACIT_DATA is not set) or in {bare / 'lending_club'}, got no "
        "such file. Get it from https://www.kaggle.com/wordsforthewise/lending-club, which asks "
        "for an account: Tacit cannot fetch it."
    )
