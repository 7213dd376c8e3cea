"""Adult: 48,842 people of the US census of 1994, and whether they earned more than 50,000 dollars.

Read from UCI's two files, or from one Parquet file with the same columns. The sampling weight
`fnlwgt` is left out: it is about the census and not about the person.
"""

from __future__ import annotations

import io
from typing import Any

from tacit.data.datasets.arrow import arrow, label_codes, read_table, select
from tacit.data.datasets.base import Dataset, Pools
from tacit.data.datasets.files import File, Progress, find, sha256_of
from tacit.data.schema import Categorical, Continuous, TableSchema
from tacit.privacy import errors

HOME = ("https://archive.ics.uci.edu/ml/machine-learning-databases/adult/",)
FILES = (
    File(
        "adult",
        "adult.data",
        3_974_305,
        "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
        HOME,
    ),
    File(
        "adult",
        "adult.test",
        2_003_153,
        "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
        HOME,
    ),
)
CLASSES = ("<=50K", ">50K")
OURS = ("age", "workclass", "race", "sex", "hours_per_week", "native_country")
"""What an employer or a register knows; the other party holds schooling, family, work, capital."""


def _words(name: str, words: str, unseen: str = "refuse") -> Categorical:
    return Categorical(name, tuple(words.split()), unseen)


# Categories as UCI's description lists them. It gives no bounds for numbers: those of age,
# education and hours follow from how the census codes them, those of capital are round.
SCHEMA = TableSchema(
    (
        Continuous("age", 17, 90),
        _words(
            "workclass",
            "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay "
            "Never-worked",
            unseen="other",
        ),
        _words(
            "education",
            "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th 12th "
            "Masters 1st-4th 10th Doctorate 5th-6th Preschool",
        ),
        Continuous("education_num", 1, 16),
        _words(
            "marital_status",
            "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent "
            "Married-AF-spouse",
        ),
        _words(
            "occupation",
            "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty "
            "Handlers-cleaners Machine-op-inspct Adm-clerical Farming-fishing Transport-moving "
            "Priv-house-serv Protective-serv Armed-Forces",
            unseen="other",
        ),
        _words("relationship", "Wife Own-child Husband Not-in-family Other-relative Unmarried"),
        _words("race", "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black"),
        _words("sex", "Female Male"),
        Continuous("capital_gain", 0, 100_000, outside="clip"),
        Continuous("capital_loss", 0, 5_000, outside="clip"),
        Continuous("hours_per_week", 1, 99),
        _words(
            "native_country",
            "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) "
            "India Japan Greece South China Cuba Iran Honduras Philippines Italy Poland Jamaica "
            "Vietnam Mexico Portugal Ireland France Dominican-Republic Laos Ecuador Taiwan Haiti "
            "Columbia Hungary Guatemala Nicaragua Scotland Thailand Yugoslavia El-Salvador "
            "Trinadad&Tobago Peru Hong Holand-Netherlands",
            unseen="other",
        ),
    )
)
_FILE_COLUMNS = (*SCHEMA.names[:2], "fnlwgt", *SCHEMA.names[2:], "income")


def load(*, fetch: bool = True, progress: Progress | None = None) -> Dataset:
    """Load all people.

    Splits are random: 24,000 in-house, 12,000 people, 1,200 voters, the rest for testing.

    Joins: "work", where we hold `OURS`, and "household", where the other party holds only marital
    status and relationship.
    """
    if (path := find("adult", ["adult.parquet"])) is not None:
        return from_table(read_table(path), {path.name: sha256_of(path)}, str(path))
    contents = [file.content(fetch=fetch, progress=progress) for file in FILES]
    table = arrow().concat_tables([parse(content) for content in contents])
    return from_table(table, {file.name: file.sha256 for file in FILES}, "adult")


def parse(content: bytes) -> Any:
    """Parse one of UCI's files: no header, a blank after each comma, "?" for a missing value."""
    from pyarrow import csv

    # The test file begins with a comment and ends each label with a dot.
    start = content.index(b"\n") + 1 if content.startswith(b"|") else 0
    lines = content[start:].replace(b", ", b",").replace(b"K.\n", b"K\n")
    text = dict.fromkeys((c.name for c in SCHEMA.categorical), arrow().string())
    return csv.read_csv(
        io.BytesIO(lines),
        read_options=csv.ReadOptions(column_names=_FILE_COLUMNS),
        convert_options=csv.ConvertOptions(
            column_types=text, null_values=["?"], strings_can_be_null=True
        ),
    )


def from_table(table: Any, sha256: dict[str, str], where: str) -> Dataset:
    """Make the data set of a table with UCI's columns, named with underscores."""
    rows = select(table, SCHEMA, where)
    if "income" not in table.column_names:
        raise errors.InvalidData(f"{where}: it must have a column 'income'.")
    labels = label_codes(table["income"].to_pylist(), CLASSES, where)
    names = SCHEMA.names
    return Dataset(
        name="adult",
        rows=rows,
        labels=labels,
        classes=CLASSES,
        schema=SCHEMA,
        pools=Pools(24_000, 12_000, 1_200, test=len(labels) - 37_200),
        sha256=sha256,
        others={
            "work": tuple(name for name in names if name not in OURS),
            "household": ("marital_status", "relationship"),
        },
    )
