"""The curator: answers queries about a table under a budget.

References
----------
.. [BDMN05] Blum, Dwork, McSherry, Nissim. Practical privacy: the SuLQ framework. PODS 2005.
.. [DMNS06] Dwork, McSherry, Nissim, Smith. Calibrating noise to sensitivity. TCC 2006.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tacit.central.queries import model
from tacit.central.queries.answering import arranged, carry_out
from tacit.central.queries.answers import Answer, Price, certify
from tacit.central.queries.contribution import rows_and_groups
from tacit.central.queries.declarations import declare
from tacit.central.queries.engine import open_engine
from tacit.central.queries.plan import QueryPlan, plan
from tacit.central.queries.releases import rows_release
from tacit.central.queries.scan import Scan
from tacit.central.queries.spending import QueryBudget, budget_of, shown, with_neighbours_of
from tacit.central.queries.streams import AboveThreshold
from tacit.central.queries.table import check_where
from tacit.privacy import errors, events
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.accounting.ledger import LedgerLike, line_of_text
from tacit.privacy.certificate import Certificate
from tacit.privacy.guarantees import ZCDP, Guarantee
from tacit.privacy.mechanisms import SparseVector
from tacit.privacy.randomness import Randomness, uniform_below
from tacit.privacy.randomness import source as random_source

Where = model.Where | str | None
By = str | tuple[str, ...] | list[str]


class Curator:
    r"""A table whose queries are answered with noise, until a budget is spent.

    Parameters
    ----------
    source
        A Parquet or CSV file or a pattern such as `data/*.parquet`; a pandas, Polars or Arrow
        table; a DuckDB or psycopg connection or a `postgresql://` address, with `table`.
    budget : float or Guarantee
        An ε, for the neighbours of the account if it exists and add-remove otherwise; or a
        `PureDP`, `ApproxDP` or `ZCDP` guarantee, which names its neighbours. Answers get discrete
        Laplace noise, or discrete Gaussian noise under zCDP.
    bounds : mapping
        (lower, upper) for each column that is summed or ordered, from public knowledge. Values
        outside are clipped; rows with NULL or NaN are left out.
    keys : mapping
        The keys of each column to group by, from public knowledge. Rows with other values are not
        counted; keys without rows are answered like all others.
    unit : str, optional
        The column that identifies the person of each row. Without it, a record is a row, and the
        certificate says so. Rows without a unit are left out.
    max_rows, max_groups : int
        Limits on one person: rows per group, and groups.
    ledger, account
        A ledger (or its path) and the account to charge, which is opened with `budget` if it is
        new. Without a ledger, the budget lives as long as this object.
    table : str, optional
        The table of a connection: `name`, `schema.name` or `database.schema.name`.
    rng : optional
        Source of the noise: operating-system entropy, unless a test passes its own.
    memory, threads
        Limits of the embedded DuckDB; a connection keeps its own.

    Notes
    -----
    A query is planned, priced and charged before a row is read; if reading fails afterwards, the
    charge stays. A query that the plan shows to be invalid is refused: nothing is charged, and
    only the names and types of columns are read. Except for the noisy values, nothing depends on
    the rows. The table must not change while a query is answered. A curator belongs to one thread.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from tacit.privacy.randomness import Seeded
    >>> table = pa.table({"sex": ["F", "M"] * 500, "age": list(range(18, 68)) * 20})
    >>> curator = Curator(
    ...     table, 1.0, bounds={"age": (0, 100)}, keys={"sex": ["F", "M"]}, rng=Seeded(1)
    ... )
    >>> answer = curator.mean("age", by="sex", epsilon=0.5)
    >>> sorted(answer.groups)
    ['F', 'M']
    >>> curator.remaining
    {'epsilon': 0.5, 'delta': 0.0}
    """

    def __init__(
        self,
        source: Any,
        budget: float | Guarantee,
        *,
        bounds: Mapping[str, tuple[float, float]] | None = None,
        keys: Mapping[str, Sequence[model.Literal]] | None = None,
        unit: str | None = None,
        max_rows: int = 1,
        max_groups: int = 1,
        ledger: LedgerLike | None = None,
        account: str | None = None,
        table: str | None = None,
        rng: Randomness | None = None,
        memory: str = "2GB",
        threads: int | None = None,
    ) -> None:
        self._rng = random_source(rng)
        rows, groups = rows_and_groups(unit, max_rows, max_groups)
        stated = budget_of(budget, unit)
        self._engine = open_engine(source, table, memory, threads)
        try:
            name = self._engine.title if account is None else account
            name = line_of_text("Curator", "account", name)
            if not isinstance(budget, Guarantee):
                stated = with_neighbours_of(stated, ledger, name)
            limits = {"unit": unit, "rows": rows, "groups": groups, "budget": stated}
            self._declared = declare(self._engine.compiler.columns, bounds, keys, **limits)
            self._spending = QueryBudget(stated, ledger, name)
        except BaseException:
            self._engine.close()
            raise
        self._charged: list[events.Event] = []

    def close(self) -> None:
        """Close the connections and the ledger that this object has opened."""
        self._engine.close()
        self._spending.close()

    def __enter__(self) -> Curator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def remaining(self) -> dict[str, float]:
        """The remaining budget."""
        return shown(self._spending.remaining)

    @property
    def statements(self) -> int:
        """The number of statements that have read rows so far."""
        return self._engine.statements

    def price(
        self,
        query: model.Query | model.Several | str,
        *,
        epsilon: float | None = None,
        rho: float | None = None,
    ) -> Price:
        """Return the price of a query and the budget that would remain; read and charge nothing."""
        event = self._plan(_query(query), epsilon, rho).event
        guarantee, remaining = self._spending.afford(event)
        return Price(event, guarantee, shown(remaining))

    def answer(
        self,
        query: model.Query | model.Several | str,
        *,
        epsilon: float | None = None,
        rho: float | None = None,
    ) -> Answer:
        """Check the query, charge for it, read the rows and add noise, in this order."""
        query = _query(query)
        planned = self._plan(query, epsilon, rho)
        guarantee, _ = self._spending.afford(planned.event)
        remaining = shown(self._charge(planned.event))
        estimated = carry_out(self._engine, self._declared, planned, self._rng)
        shared = (guarantee, remaining, planned.event, not self._rng.secure)
        answers = []
        for one in planned.queries:
            alone, groups = arranged(self._declared, planned, one, estimated[one])
            answers.append(Answer(one, alone, groups, (), *shared))
        if not isinstance(query, model.Several):
            return answers[0]
        return Answer(query, None, None, tuple(answers), *shared)

    def count(
        self, column: str | None = None, *, where: Where = None, by: By = (), **amount: Any
    ) -> Answer:
        """Count the rows, or the rows that have a value in a column."""
        return self.answer(model.Count(column, where=_where(where), by=_by(by)), **amount)

    def sum(self, column: str, *, where: Where = None, by: By = (), **amount: Any) -> Answer:
        """Estimate the sum of a bounded column."""
        return self.answer(model.Sum(column, where=_where(where), by=_by(by)), **amount)

    def mean(self, column: str, *, where: Where = None, by: By = (), **amount: Any) -> Answer:
        """Estimate the mean of a bounded column."""
        return self.answer(model.Mean(column, where=_where(where), by=_by(by)), **amount)

    def variance(self, column: str, *, where: Where = None, by: By = (), **amount: Any) -> Answer:
        """Estimate the population variance of a bounded column."""
        return self.answer(model.Variance(column, where=_where(where), by=_by(by)), **amount)

    def quantile(
        self,
        column: str,
        level: float,
        *,
        where: Where = None,
        by: By = (),
        cells: int = 1024,
        **amount: Any,
    ) -> Answer:
        """Estimate a quantile of a bounded column, on a grid of `cells` between the bounds."""
        query = model.Quantile(column, level, cells, where=_where(where), by=_by(by))
        return self.answer(query, **amount)

    def median(self, column: str, *, where: Where = None, by: By = (), **amount: Any) -> Answer:
        """Estimate the quantile at level ½."""
        return self.quantile(column, 0.5, where=where, by=by, **amount)

    def histogram(
        self,
        column: str,
        edges: Sequence[float],
        *,
        where: Where = None,
        by: By = (),
        **amount: Any,
    ) -> Answer:
        """Count the rows between consecutive public edges.

        The last interval includes both ends. With a unit, each interval is a group: see
        `max_groups`.
        """
        if not isinstance(edges, Sequence | np.ndarray):
            errors.refuse("histogram", "edges", "a list of numbers", edges)
        query = model.Histogram(column, tuple(edges), where=_where(where), by=_by(by))
        return self.answer(query, **amount)

    def contingency(self, columns: Sequence[str], *, where: Where = None, **amount: Any) -> Answer:
        """Estimate the contingency table of columns with declared keys."""
        return self.answer(model.contingency(tuple(columns), _where(where)), **amount)

    def top_k(self, column: str, k: int, *, where: Where = None, **amount: Any) -> Answer:
        """Choose the k most frequent of a column's declared keys, the most frequent first."""
        return self.answer(model.TopK(column, k, where=_where(where)), **amount)

    def sulq(self, predicate: Where, **amount: Any) -> Answer:
        """Count the rows for which a predicate is true: its SuLQ sum [BDMN05]_."""
        if predicate is None:
            errors.refuse("sulq", "predicate", "given", None)
        return self.count(where=predicate, **amount)

    def above_threshold(
        self, threshold: int, *, epsilon: float, positives: int = 1
    ) -> AboveThreshold:
        """Open a stream of comparisons with a threshold; the whole ε is charged now."""
        if isinstance(self._declared.budget, ZCDP):
            # The event is ε-DP; the account converts it to ε²/2.
            errors.epsilon_in_range("above_threshold", epsilon)
        scope = self._declared.contribution(1).scope
        mechanism = SparseVector(
            epsilon=epsilon,
            threshold=threshold,
            sensitivity=self._declared.rows,
            positives=positives,
            monotonic=scope["adjacency"] in events.ONE_OR_NONE,
            **scope,
        )
        self._charge(mechanism.event)
        return AboveThreshold(mechanism, self._exact_count, self._rng)

    def certificate(self) -> Certificate:
        """Certify everything that this object has charged.

        Answers of other curators, processes and commands are not covered, even if they charged the
        same ledger account: `Certificate.of_account` covers all charges of an account.

        Queries may be chosen after seeing answers, so only sums of ε, of (ε, δ) or of ρ hold, as
        in the account.
        """
        if not self._charged:
            raise errors.CertificateError(
                "certificate: nothing was released yet. Ask a query first."
            )
        whole = tuple(self._charged)
        event = whole[0] if len(whole) == 1 else events.Composed(whole)
        return certify(event, guarantee_of(event), not self._rng.secure)

    def _plan(self, query: Any, epsilon: Any, rho: Any) -> QueryPlan:
        return plan(self._declared, query, epsilon, rho)

    def _charge(self, event: events.Event) -> Any:
        remaining = self._spending.charge(event)
        self._charged.append(event)
        return remaining

    def _exact_count(self, where: Where) -> int:
        """Count exactly, for a stream that adds the noise itself."""
        if isinstance(where, model.Count):
            if where.by or where.column:
                errors.refuse("above_threshold", "query", "a count of rows", where.label)
            where = where.where
        checked = _where(where)
        check_where(self._declared.columns, checked)
        contribution = self._declared.contribution(1)
        salt = int(uniform_below(2**62, 1, self._rng)[0])
        scan = Scan(self._engine, checked, None, 0, self._declared.unit, contribution, salt)
        sums = scan.parts([rows_release()])
        return sums[0][0][0] if sums else 0


def _query(query: model.Query | model.Several | str) -> model.Query | model.Several:
    """Parse a query in SQL; it is about this table, whatever name it uses."""
    if not isinstance(query, str):
        return query
    from tacit.central.queries.sql import parse

    return parse(query).query


def _where(where: Where) -> model.Where | None:
    if isinstance(where, str):
        from tacit.central.queries.sql import parse_where

        parsed: model.Where = parse_where(where)
        return parsed
    return None if where is None else model.condition(where)


def _by(by: By) -> tuple[str, ...]:
    return (by,) if isinstance(by, str) else tuple(by)
