"""Rows as participants give them to the client, and reports as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tacit.apps.service import surveys
from tacit.data.columns import columns_of
from tacit.local.reports import Reports
from tacit.privacy import errors


def as_json(reports: Reports) -> list[dict[str, Any]]:
    """Return each report as JSON-ready columns."""
    columns = {name: column.tolist() for name, column in reports.columns.items()}
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def together(rows: Any, schema: Any) -> tuple[Any, bool]:
    """Return rows as a mechanism takes them, and whether a single row was passed by itself."""
    if surveys.is_survey(schema):
        return surveys.together(schema, rows)
    if isinstance(rows, Mapping):
        alone = not any(np.ndim(value) for value in rows.values())
        return ({name: [value] for name, value in rows.items()} if alone else rows), alone
    if columns_of(rows) is not None:
        return rows, False
    array = np.asarray(rows)
    shapes = {(getattr(schema, "width", None),), getattr(schema, "shape", None)}
    alone = array.shape in shapes
    return (array[None] if alone else array), alone


def labels_of(labels: Any, one: bool) -> Any:
    """Return labels as a mechanism takes them; that of one row may be passed by itself."""
    return labels if labels is None or not one or np.ndim(labels) else [labels]


def only_one(drawn: list[Any]) -> Any:
    """Return the only draw; refuse several rows for one token."""
    if len(drawn) != 1:
        errors.refuse("Client", "rows", "a single row per token", len(drawn))
    return drawn[0]
