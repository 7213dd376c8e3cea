"""A person's budget over all campaigns: charged before a draw, once for it, and never exceeded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tacit.apps.service.client import Client
from tacit.privacy import artifact, errors
from tacit.privacy.accounting.device_ledger import DeviceLedger

from .test_client import Make, _campaign, _house, _make, _published, _row, _waits  # noqa: F401 - fixtures


@pytest.fixture(name="ledger")
def _ledger(tmp_path: Path) -> DeviceLedger:
    return DeviceLedger(tmp_path / "ledger.sqlite", budget=7)


def charges(ledger: DeviceLedger) -> list[str]:
    return [one["key"] for one in ledger.entries() if "key" in one]


def test_a_report_is_charged_once_before_it_is_drawn(
    campaign: Any, row: Any, ledger: DeviceLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, token = campaign.client(ledger=ledger), campaign.token()
    seen, release = [], Client._release

    def released(self: Client, *given: Any) -> Any:
        seen.append(ledger.balance().spent)
        return release(self, *given)

    monkeypatch.setattr(Client, "_release", released)
    receipt = client.report(token, *row)
    assert client.report(token, *row) == receipt
    assert seen == [4]
    assert ledger.balance().spent == 4
    (key,) = charges(ledger)
    assert artifact.fingerprint(client.mechanism()) in key
    assert campaign.id in key
    assert token not in key


def test_beyond_the_budget_nothing_is_drawn_or_sent(
    make: Make, row: Any, ledger: DeviceLedger
) -> None:
    """Two campaigns, which could be on two servers: one budget for both."""
    first, second = make(), make()
    first.client(ledger=ledger).report(first.token(), *row)
    client, token = second.client(ledger=ledger), second.token()
    with pytest.raises(errors.BudgetExceeded, match="must be at most 3, what is left"):
        client.report(token, *row)
    assert second.wire.bodies("/reports") == []
    assert client.kept.find(second.id, token, "report") is None
    assert ledger.balance().spent == 4


def test_a_client_that_stops_after_the_charge_is_not_charged_again(
    campaign: Any, row: Any, ledger: DeviceLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = campaign.token()
    with monkeypatch.context() as broken:
        broken.setattr(Client, "_release", lambda *given: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            campaign.client(ledger=ledger).report(token, *row)
    assert ledger.balance().spent == 4
    client = campaign.client(ledger=ledger)
    client.report(token, *row)
    assert len(charges(ledger)) == 1
    assert not list(client.kept.folder.glob("*.name"))  # no second draw can use the charge


def test_a_draw_that_was_lost_is_charged_again(
    campaign: Any, row: Any, ledger: DeviceLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a server that hides that a token was used, a second draw is not free."""
    client, token = campaign.client(ledger=ledger), campaign.token()
    client.report(token, *row)
    client.kept.path(campaign.id, token, "report").unlink()
    monkeypatch.setattr(Client, "must_be_unused", lambda *given: None)
    with pytest.raises(errors.BudgetExceeded):
        client.report(token, *row)


def test_a_draw_of_another_process_is_used(
    campaign: Any, row: Any, ledger: DeviceLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stored and sent its draw after this one had looked for one."""
    token = campaign.token()
    client, other = campaign.client(ledger=ledger), campaign.client(ledger=ledger)
    receipts = []

    def meanwhile(*given: Any) -> None:
        monkeypatch.undo()
        receipts.append(other.report(token, *row))

    monkeypatch.setattr(client, "must_be_unused", meanwhile)
    assert client.report(token, *row) == receipts[0]
    assert len(charges(ledger)) == 1
    assert not list(client.kept.folder.glob("*.name"))


def test_votes_are_charged_too(
    campaign: Any, mechanism: Any, digits: Any, row: Any, tmp_path: Path
) -> None:
    ledger = DeviceLedger(tmp_path / "votes.sqlite", budget=6)
    token, client = campaign.token(), campaign.client(ledger=ledger)
    client.report(token, *row)
    _published(campaign, mechanism, digits)
    client.vote(token, *row)
    client.vote(token, *row)
    assert ledger.balance().spent == 6
    assert len(charges(ledger)) == 2
    assert "vote" in charges(ledger)[1]


def test_a_crowd_is_not_drawn_on_one_persons_budget(
    campaign: Any, row: Any, ledger: DeviceLedger
) -> None:
    client = campaign.client(ledger=ledger)
    for draw in (client.draw, client.cast):
        with pytest.raises(errors.InvalidParameter, match="ledger must be None"):
            draw([row[0]], [row[1]])
