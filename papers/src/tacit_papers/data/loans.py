"""Loans of Lending Club as its files have them: the full CSV of Kaggle, or a Parquet extract.

Both come out the same: numbers, codes of public categories, and how the loan ended. Loans that had
not ended when the file was made are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.data.datasets.arrow import arrow
from tacit.data.datasets.base import Integers
from tacit.privacy import errors

Floats = npt.NDArray[np.float64]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


DATES, YEARS = ("earliest_cr_line",), ("emp_length",)
QUANTITIES = _words(
    "loan_amnt int_rate installment annual_inc dti open_acc pub_rec revol_bal revol_util total_acc "
    "mort_acc pub_rec_bankruptcies"
)
_GRADES = "ABCDEFG"
CATEGORIES = {
    "term": ("36", "60"),
    "grade": tuple(_GRADES),
    "sub_grade": tuple(f"{grade}{step}" for grade in _GRADES for step in range(1, 6)),
    "home_ownership": ("RENT", "OWN", "MORTGAGE", "OTHER", "NONE", "ANY"),
    "verification_status": ("Not Verified", "Source Verified", "Verified"),
    "purpose": _words(
        "car credit_card debt_consolidation educational home_improvement house major_purchase "
        "medical moving other renewable_energy small_business vacation wedding"
    ),
    "addr_state": _words(
        "AK AL AR AZ CA CO CT DC DE FL GA HI IA ID IL IN KS KY LA MA MD ME MI MN MO MS MT NC ND "
        "NE NH NJ NM NV NY OH OK OR PA RI SC SD TN TX UT VA VT WA WI WV WY"
    ),
    "initial_list_status": ("f", "w"),
    "application_type": ("Individual", "Joint App"),
}
"""Public: the form's choices, the lender's grades, the states and the District of Columbia."""

FEATURES = (*QUANTITIES, *YEARS, *DATES, *CATEGORIES)
_COLUMNS = (*FEATURES, "issue_d", "loan_status")
_ENDS = ("Fully Paid", "Charged Off")
_OLD_POLICY = "Does not meet the credit policy. Status:"
_MONTHS = _words("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec")


@dataclass(frozen=True, eq=False)
class Loans:
    """Loans that ended.

    Parameters
    ----------
    issued : array of float64
        Dates of issue, in years.
    charged_off : array of int64
        1 where the loan was not paid back.
    numbers : dict of arrays of float64
        Columns by name; NaN is a missing value.
    codes : dict of arrays of int64
        Columns by name; −1 is a missing value.
    """

    issued: Floats
    charged_off: Integers
    numbers: dict[str, Floats]
    codes: dict[str, Integers]

    def __len__(self) -> int:
        return len(self.issued)

    def __getitem__(self, chosen: Any) -> Loans:
        return Loans(
            self.issued[chosen],
            self.charged_off[chosen],
            {name: column[chosen] for name, column in self.numbers.items()},
            {name: column[chosen] for name, column in self.codes.items()},
        )


def read(path: Path) -> Loans:
    """Read every loan of a file that ended, in the order of the file."""
    pa = arrow()
    batches = _parquet if path.suffix == ".parquet" else _csv
    try:
        parts = [_loans(batch, str(path)) for batch in batches(path)]
    except (pa.ArrowException, UnicodeDecodeError, EOFError, OSError):
        # `from None`: Arrow's own message may quote a line of the file.
        raise errors.InvalidData(
            f"{path}: it must be a whole, readable file of Lending Club. Was it damaged, or cut?"
        ) from None
    loans = _joined([part for part in parts if len(part)], str(path))
    if len(set(loans.charged_off.tolist())) < 2:
        raise errors.InvalidData(
            f"{path}: it must have loans that were paid back and loans that were not."
        )
    return loans


def _joined(parts: list[Loans], where: str) -> Loans:
    if not parts:
        raise errors.InvalidData(f"{where}: it must have loans that ended: {' or '.join(_ENDS)}.")
    return Loans(
        np.concatenate([part.issued for part in parts]),
        np.concatenate([part.charged_off for part in parts]),
        {name: np.concatenate([p.numbers[name] for p in parts]) for name in parts[0].numbers},
        {name: np.concatenate([p.codes[name] for p in parts]) for name in parts[0].codes},
    )


def _parquet(path: Path) -> Iterator[Any]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        _must_have(file.schema_arrow.names, path)
        yield from file.iter_batches(columns=list(_COLUMNS))


def _csv(path: Path) -> Iterator[Any]:
    from pyarrow import csv

    pa = arrow()
    # Borrowers' own words may run over lines.
    parse = csv.ParseOptions(newlines_in_values=True)
    with csv.open_csv(path, parse_options=parse) as first:
        _must_have(first.schema.names, path)
    convert = csv.ConvertOptions(
        include_columns=list(_COLUMNS),
        column_types=dict.fromkeys(_COLUMNS, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
    )
    with csv.open_csv(path, parse_options=parse, convert_options=convert) as file:
        yield from file


def _must_have(names: list[str], path: Path) -> None:
    if missing := [name for name in _COLUMNS if name not in names]:
        raise errors.InvalidData(f"{path}: it must have a column {missing[0]!r}.")


def _loans(batch: Any, where: str) -> Loans:
    import pyarrow.compute as pc

    status = _texts(batch.column("loan_status"))
    status = pc.replace_substring(status, _OLD_POLICY, "")
    ended = pc.is_in(status, value_set=arrow().array(_ENDS))
    batch, status = batch.filter(ended), status.filter(ended)
    numbers = {name: _numbers(batch, name, where) for name in QUANTITIES}
    numbers |= {name: _by_text(batch, name, _years_employed, where) for name in YEARS}
    numbers |= {name: _dates(batch, name, where) for name in DATES}
    issued = _dates(batch, "issue_d", where)
    if np.isnan(issued).any():
        raise errors.InvalidData(f"{where}: column 'issue_d' must be without missing values.")
    charged_off = np.asarray(pc.equal(status, _ENDS[1])).astype(np.int64)
    return Loans(
        issued, charged_off, numbers, {name: _codes(batch, name, where) for name in CATEGORIES}
    )


def _texts(column: Any) -> Any:
    import pyarrow.compute as pc

    return pc.utf8_trim_whitespace(column.cast(arrow().string()))


def _numbers(batch: Any, name: str, where: str) -> Floats:
    import pyarrow.compute as pc

    column, pa = batch.column(name), arrow()
    try:
        if pa.types.is_string(column.type):
            column = pc.utf8_rtrim(_texts(column), "%")
        return _floats(column.cast(pa.float64()))
    except pa.ArrowException:
        raise errors.InvalidData(f"{where}: column {name!r} must be numbers.") from None


def _dates(batch: Any, name: str, where: str) -> Floats:
    """Turn dates into years, by month: June 2007 is 2007 and 5/12."""
    import pyarrow.compute as pc

    column = batch.column(name)
    if arrow().types.is_date(column.type):
        return _floats(pc.year(column)) + (_floats(pc.month(column)) - 1) / 12
    return _by_text(batch, name, _month, where)


def _month(text: str) -> float:
    month, year = text.split("-")
    return int(year) + _MONTHS.index(month) / 12


def _years_employed(text: str) -> float:
    if text == "n/a":
        return np.nan
    years = text.removesuffix("years").removesuffix("year").strip()
    return 0.0 if years == "< 1" else float(int(years.removesuffix("+")))


def _by_text(batch: Any, name: str, meaning: Callable[[str], float], where: str) -> Floats:
    """Turn texts into numbers; each distinct text is read once."""
    encoded = _texts(batch.column(name)).dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    try:
        values: Floats = np.array([*(meaning(text) for text in texts), np.nan])
    except ValueError:
        example = "'Dec-2015'" if meaning is _month else "'3 years'"
        raise errors.InvalidData(f"{where}: column {name!r} must be like {example}.") from None
    place: Integers = np.asarray(encoded.indices.fill_null(len(texts)))
    return values[place]


def _codes(batch: Any, name: str, where: str) -> Integers:
    import pyarrow.compute as pc

    column = _texts(batch.column(name))
    if name == "term":
        column = pc.utf8_trim_whitespace(pc.replace_substring(column, "months", ""))
    codes = pc.index_in(column, value_set=arrow().array(CATEGORIES[name]))
    if codes.null_count > column.null_count:
        known = len(CATEGORIES[name])
        raise errors.InvalidData(
            f"{where}: column {name!r} must be one of its {known} public categories."
        )
    return np.asarray(codes.fill_null(-1)).astype(np.int64)


def _floats(column: Any) -> Floats:
    return np.asarray(column.to_numpy(zero_copy_only=False), np.float64)
