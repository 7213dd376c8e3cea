"""Noise from the clients: how much there is, who is lost, what a server learns, and mutants."""

from __future__ import annotations

import copy
import math
import pickle
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.linalg import hadamard
from scipy.stats import chi2

from tacit.federated import Data, RunOptions, SecureClientPrivacy, rounds
from tacit.federated.algorithms.registry import algorithm
from tacit.federated.client_level import distributed, noisy_sum
from tacit.federated.client_level.auditing import one_guess_bound
from tacit.federated.client_level.grid import Grid
from tacit.federated.client_level.rotation import Rotation
from tacit.federated.client_level.shares import SharePlan, share_plan
from tacit.federated.payload import Layout, Payload
from tacit.federated.secure import Roster, Server, Session, Stage, secure_sum
from tacit.federated.secure.client import Client
from tacit.federated.secure.primitives import Refused, new_identity
from tacit.privacy import errors
from tacit.privacy.accounting.ledger import Ledger
from tacit.privacy.guarantees import ZCDP, ApproxDP, RenyiDP
from tacit.privacy.randomness import Seeded

SCOPE: dict[str, Any] = {"adjacency": "zero-out", "unit": "client"}
LAYOUT = Layout((("left", (20, 3)), ("right", (4,))))
ALIKE = {"weighted": False}


def secure(clients: int = 5, **options: Any) -> SecureClientPrivacy:
    usual = {"size": 64, "epsilon": 8, "delta": 1e-5, "rounds": 4, "rng": Seeded(0)}
    return SecureClientPrivacy(clients, **{**usual, **options})


def opened(name: str = "fedavg", clients: int = 5, **options: Any) -> SecureClientPrivacy:
    found = secure(clients, **options)
    found.admit(algorithm(name), algorithm(name).config(**ALIKE), clients)
    found.choose(1, clients)
    return found


def mean(found: SecureClientPrivacy, taken: dict[int, Payload]) -> Any:
    return found.gather(1, algorithm("fedavg").phases[0], taken, LAYOUT)


# --- whole numbers -------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 64, 65, 650, 1000])
def test_rotations_are_orthogonal_and_undone(size: int) -> None:
    rotation, drawn = Rotation(size), np.random.default_rng(size)
    signs = rotation.signs(b"round")
    assert rotation.padded <= max(1.125 * size, size + 1)
    x, y = drawn.normal(size=(2, size))
    turned = [rotation.forward(one, signs) for one in (x, y)]
    assert np.dot(*turned) == pytest.approx(np.dot(x, y))
    np.testing.assert_allclose(rotation.backward(turned[0], signs), x, atol=1e-12)
    assert not np.array_equal(signs, rotation.signs(b"other")) or size < 20
    block = rotation.block
    padded = np.zeros(rotation.padded)
    padded[:size] = x
    by_hand = hadamard(block) @ (padded * signs).reshape(-1, block).T / math.sqrt(block)
    np.testing.assert_allclose(turned[0], by_hand.T.ravel(), atol=1e-12)


HOSTILE = {
    "zero": 0.0,
    "nan": np.nan,
    "inf": np.inf,
    "1e308": 1e308,
    "-1e308": -1e308,
    "tiny": 5e-324,
    "one": 1.0,
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("size", [3, 64, 100])
@pytest.mark.parametrize("norm", [1e-6, 1.0, 1e6])
def test_no_encoded_update_is_longer_than_the_bound(kind: str, size: int, norm: float) -> None:
    grid = Grid.of(size, 10)
    signs = grid.rotation.signs(b"r")
    for spike in (False, True):
        update = np.full(size, HOSTILE[kind])
        if spike:
            update[1:] = 0
        for seed in range(5):
            encoded = grid.encode(update, norm, signs, Seeded(seed))
            assert int((encoded.astype(object) ** 2).sum()) <= grid.bound**2
            if kind == "one" and norm <= 1:
                assert np.linalg.norm(encoded) > 0.95 * grid.steps


def test_long_vectors_after_rounding_are_shortened() -> None:
    """With words that round everything up, rounding lengthens a vector beyond the bound."""

    class Up:
        secure = False

        def words(self, count: int) -> Any:
            return np.full(count, 2**64 - 1, dtype=np.uint64)

    grid = Grid(4096, 16)
    signs = grid.rotation.signs(b"r")
    update = np.random.default_rng(0).normal(size=4096)
    up = np.floor(grid.rotation.forward(update / np.linalg.norm(update) * 16, signs) + 1)
    assert np.linalg.norm(up) > grid.bound
    assert (grid.encode(update, 1.0, signs, Up()) ** 2).sum() <= grid.bound**2


def test_rounding_is_unbiased_and_the_bound_is_hardly_ever_reached() -> None:
    grid = Grid(200, 64)
    signs = grid.rotation.signs(b"r")
    update = np.random.default_rng(1).normal(size=200) / 5
    total, reached = 0, 0.0
    for seed in range(2_000):
        encoded = grid.encode(update, 1.0, signs, Seeded(seed))
        total = total + encoded
        reached = max(reached, float(np.linalg.norm(encoded)))
    assert reached < grid.bound
    clipped = update / max(np.linalg.norm(update), 1)
    found = grid.decode(total, 1.0, signs) / 2_000
    # A rounding has at most half a step of deviation an entry: six of these.
    assert np.abs(found - clipped).max() < 6 * 0.5 / math.sqrt(2_000) / 64 * 1.01


def test_sums_do_not_wrap_and_would_with_fewer_bits() -> None:
    plan = share_plan(30, size=100, epsilon=2, delta=1e-5, rounds=1, lost=3)
    bits = plan.setup().bits
    assert plan.grid.wrapping(30, plan.variance, bits) < 1e-8
    assert plan.grid.wrapping(30, plan.variance, bits - 4) > 1e-8
    with pytest.raises(errors.InvalidParameter, match=r"below 2\^32 steps"):
        plan.grid.bits(30, Fraction(2**62))


# --- plans ---------------------------------------------------------------------------------------


def test_three_hospitals_have_two_honest_parties_and_no_losses() -> None:
    plan = share_plan(3, size=10, epsilon=2, delta=1e-5, rounds=5)
    assert (plan.honest, plan.survivors, plan.setup().threshold) == (2, 3, 3)
    with pytest.raises(errors.InvalidParameter, match="lost"):
        share_plan(3, size=10, epsilon=2, delta=1e-5, rounds=5, lost=1)


@pytest.mark.parametrize("epsilon", [0.1, 1, 8])
@pytest.mark.parametrize(("clients", "corrupt", "lost"), [(3, 1, 0), (20, 3, 4), (1000, 50, 100)])
def test_noise_is_calibrated_to_the_honest_survivors(
    epsilon: float, clients: int, corrupt: int, lost: int
) -> None:
    told = {"size": 500, "epsilon": epsilon, "delta": 1e-6, "rounds": 3}
    plan = share_plan(clients, corrupt=corrupt, lost=lost, **told)
    assert 0.999 * epsilon < plan.epsilon() <= epsilon
    assert plan.variance >= 4  # two steps a client: sums are as one discrete Gaussian
    assert plan.event(3).event.honest == clients - corrupt - lost
    assert plan.outsiders().guarantee.epsilon < plan.epsilon()
    assert plan.epsilon(honest=1) > plan.epsilon()
    # As much as a server would add that everybody trusts, times (h / h) in variance, and no less.
    alone = plan.honest * float(plan.variance) / plan.grid.bound**2
    one = share_plan(3, size=500, epsilon=epsilon, delta=1e-6, rounds=3)
    assert alone == pytest.approx(2 * float(one.variance) / one.grid.bound**2, rel=1e-3)


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ({"clients": 2}, "clients"),
        ({"corrupt": 4}, "corrupt"),
        ({"lost": 3}, "lost"),
        ({"size": 0}, "size"),
        ({"rounds": 0}, "rounds"),
        ({"epsilon": 0}, "epsilon"),
        ({"delta": 0}, "delta"),
        ({"clip_norm": 0}, "clip_norm"),
        ({"ledger": "x"}, "ledger and account"),
    ],
)
def test_what_has_no_theorem_is_refused(told: dict[str, Any], name: str) -> None:
    with pytest.raises(errors.InvalidParameter, match=name):
        opened(**{"clients": 5, **told})


def test_runs_that_cannot_be_protected_are_refused() -> None:
    config = algorithm("fedavg").config(**ALIKE)
    for name, changed, clients, match in (
        ("fedavg", algorithm("fedavg").config(), 5, "weighted"),
        ("fedavg", config, 6, "clients"),
        ("subfedavg", algorithm("subfedavg").config(**ALIKE), 5, "clipped, summed and noised"),
    ):
        with pytest.raises(errors.InvalidParameter, match=match):
            secure().admit(algorithm(name), changed, clients)
    found = secure(clip_norm={"gradient": 1.0})
    with pytest.raises(errors.InvalidParameter, match="clip_norm must be given for update"):
        found.admit(algorithm("fedavg"), config, 5)
    with pytest.raises(errors.TacitError, match="admitted"):
        secure().choose(1, 5)
    found = opened()
    with pytest.raises(errors.InvalidParameter, match="settled once"):
        found.admit(algorithm("fedavg"), config, 5)
    with pytest.raises(errors.InvalidParameter, match="size must be 64"):
        opened(size=63).gather(1, algorithm("fedavg").phases[0], {}, LAYOUT)
    mean(found, {})
    with pytest.raises(errors.TacitError, match="released once"):
        mean(found, {})
    assert copy.deepcopy(found) is found
    with pytest.raises(errors.TacitError, match="stay in its process"):
        pickle.dumps(found)


def test_rounds_end_with_the_plan_and_are_paid_before(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        ledger.open("clients", ApproxDP(epsilon=9, delta=1e-4, **SCOPE))
        found = opened(rounds=2, ledger=ledger, account="clients")
        assert ledger.show("clients").spent["epsilon"] == pytest.approx(8, rel=1e-3)
        mean(found, {})
        found.choose(2, 5)
        with pytest.raises(errors.BudgetExceeded, match="rounds must be at most 2"):
            found.choose(3, 5)
        assert found.spent <= 8
        poor = secure(epsilon=8, ledger=ledger, account="clients")
        poor.admit(algorithm("fedavg"), algorithm("fedavg").config(**ALIKE), 5)
        with pytest.raises(errors.BudgetExceeded):
            poor.choose(1, 5)


@pytest.mark.parametrize("notion", ["zcdp", "renyi"])
def test_accounts_of_other_notions_are_charged_round_by_round(notion: str, tmp_path: Path) -> None:
    orders = (2.0, 4.0, 16.0)
    budget = ZCDP(0.0, 3.0, **SCOPE) if notion == "zcdp" else RenyiDP(orders, (9.0,) * 3, **SCOPE)
    with Ledger(tmp_path / "ledger") as ledger:
        ledger.open("clients", budget)
        found = opened(rounds=2, epsilon=2, ledger=ledger, account="clients")
        mean(found, {})
        first = sum(ledger.show("clients").spent.values())
        found.choose(2, 5)
        spent = ledger.show("clients").spent
        assert 0 < first <= sum(spent.values())
        rho = 2 * found.plan.one_sum.guarantee_at().rho
        last = max(spent.values())
        assert float(last) == pytest.approx(rho if notion == "zcdp" else 16 * rho, rel=1e-6)


def test_clients_know_how_many_sums_were_planned() -> None:
    member = opened(rounds=2)._members[0]
    member.begin(2, b"model")
    with pytest.raises(Refused, match="must be one of 2, got 3"):
        member.begin(3, b"model")


def test_two_sums_a_round_have_noise_for_two() -> None:
    one, two = opened("fedavg").plan, opened("fsvrg").plan
    assert two.releases == 2
    assert float(two.variance / one.variance) == pytest.approx(2, rel=1e-3)
    assert two.epsilon() <= 8


# --- sums ----------------------------------------------------------------------------------------


def updates(clients: int, seed: int = 0) -> dict[int, Payload]:
    drawn = np.random.default_rng(seed)
    return {k: Payload({"update": drawn.normal(0, 0.2, 64)}) for k in range(clients)}


@pytest.mark.parametrize("lost", [{}, {1: Stage.MASKED}, {0: Stage.KEYS, 6: Stage.UNMASK}])
def test_masks_change_no_bit(lost: dict[int, Stage]) -> None:
    told = {"clients": 8, "lost": 2, "losses": lambda number: lost}
    found = [mean(opened(**told, masks=masks), updates(8)) for masks in (True, False)]
    np.testing.assert_array_equal(found[0].parts["update"], found[1].parts["update"])
    assert found[0].weight == found[1].weight
    assert found[0].weight == 8 - sum(stage <= Stage.MASKED for stage in lost.values())


@pytest.mark.parametrize("masks", [True, False])
def test_a_round_with_too_few_is_skipped_and_paid(masks: bool) -> None:
    gone = {0: Stage.MASKED, 1: Stage.SHARES}
    found = opened(clients=8, lost=1, losses=lambda number: gone, masks=masks)
    assert mean(found, updates(8)) is None
    assert found.spent > 0


def test_the_mean_is_that_of_clipped_updates_and_noise() -> None:
    found = opened(clients=40, epsilon=500, rounds=1, clip_norm=2.0, masks=False)
    taken = updates(40)
    clipped = [
        p.parts["update"] * min(1, 2 / np.linalg.norm(p.parts["update"])) for p in taken.values()
    ]
    plan = found.plan
    deviation = math.sqrt(40 * float(plan.variance)) * 2 / plan.grid.steps / 40
    released = mean(found, taken).parts["update"]
    assert np.abs(released - np.mean(clipped, axis=0)).max() < 6 * deviation + 0.01


def _noise(found: SecureClientPrivacy, parties: float) -> float:
    """The chi-square of a released sum of zeros against the variance of this many shares."""
    plan = found.plan
    total = mean(found, {}).parts["update"] * found.plan.survivors * plan.grid.steps
    return float((total**2).sum() / (parties * float(plan.variance)))


def test_silent_clients_send_noise_and_zeros() -> None:
    """Nobody's model worked: the noise of all is there, at a false alarm of one in a million."""
    for seed in range(5):
        seen = _noise(opened(rng=Seeded(seed), masks=seed == 0), 5)
        assert chi2.ppf(5e-7, 64) < seen < chi2.isf(5e-7, 64)


def test_the_noise_left_after_losses_is_what_was_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: noise calibrated to all clients, and noise that goes with those who are lost."""
    gone = dict.fromkeys(range(9), Stage.MASKED)
    told = {"clients": 20, "lost": 9, "corrupt": 0, "size": 1024, "losses": lambda n: gone}
    told |= {"masks": False}
    wide = Layout((("weights", (1024,)),))
    low, high = chi2.ppf(5e-7, 1024), chi2.isf(5e-7, 1024)

    def left(found: SecureClientPrivacy) -> float:
        """The released noise over what was promised, as a chi-square."""
        averaged = found.gather(1, algorithm("fedavg").phases[0], {}, wide)
        total = averaged.parts["update"] * averaged.weight * found.plan.grid.steps
        promised = plain(20, size=1024, epsilon=8, delta=1e-5, rounds=4, corrupt=0, lost=9)
        return float((total**2).sum()) / (promised.honest * float(promised.variance))

    plain = share_plan
    assert low < left(opened(**told)) < high

    def too_little(clients: int, **options: Any) -> SharePlan:
        plan = plain(clients, **options)
        return replace(plan, variance=plan.variance * plan.honest / clients)

    for module in (distributed, noisy_sum):
        monkeypatch.setattr(module, "share_plan", too_little)
    found = opened(**told)
    assert left(found) < low
    assert found.plan.epsilon() > 8  # its own event says so, too


# --- canaries ------------------------------------------------------------------------------------


def _canary_audit(
    plan: SharePlan, runs: int, share: float = 1.0, noisy: bool = True, masks: bool = True
) -> float:
    """A lower bound on ε from the server and a client on its side, through the whole protocol.

    In each run a coin decides whether client 0 sends a vector of the largest norm. The server
    learns the sum over the survivors and takes its ally's noise away.
    """
    keys = [new_identity() for _ in range(plan.clients)]
    roster, setup = Roster(tuple(key.public_key() for key in keys)), plan.setup()
    ally, right = plan.clients - 1, 0
    drawn, noise = np.random.default_rng(7), Seeded(3)
    mutant = replace(plan, variance=plan.variance * Fraction(share).limit_denominator(10**6))
    canary = np.zeros(plan.grid.rotation.padded, dtype=np.int64)
    canary[0] = plan.grid.bound
    for number in range(1, runs + 1):
        coin = bool(drawn.integers(2))
        session = Session(setup, roster, "run", number, b"")
        clients = {k: Client(session, k, key) for k, key in enumerate(keys)} if masks else {}
        every = mutant.share(np.zeros((plan.clients, len(canary)), dtype=np.int64), noise)
        vectors = dict(enumerate(every))
        if not noisy:  # all the noise is that of the clients who are lost
            vectors = {k: v if k in range(1, 1 + plan.lost) else 0 * v for k, v in vectors.items()}
        own = vectors[ally]
        if coin:
            vectors[0] = vectors[0] + canary
        lost = dict.fromkeys(range(1, 1 + plan.lost), Stage.MASKED)
        if masks:
            total = secure_sum(Server(session), clients, vectors, lost).total - own
        else:
            total = np.sum([v for k, v in vectors.items() if k not in lost], axis=0) - own
        right += bool(total[0] > plan.grid.bound / 2) == coin
    return one_guess_bound(1, runs, right, plan.delta)


def test_canaries_through_the_protocol_refute_nothing_but_mutants() -> None:
    plan = share_plan(7, size=2, epsilon=1, delta=1e-5, rounds=1, lost=2)
    assert plan.honest == 4
    assert _canary_audit(plan, 200) <= 1
    assert _canary_audit(plan, 200, noisy=False) > 1
    # A share that is too small by h: the sums are those of the protocol, without masks.
    many = share_plan(120, size=2, epsilon=1, delta=1e-5, rounds=1, lost=2)
    assert _canary_audit(many, 200, masks=False) <= 1
    assert _canary_audit(many, 200, share=1 / many.honest, masks=False) > 1


# --- certificates and runs -----------------------------------------------------------------------


def test_certificates_name_both_readers_and_what_remains() -> None:
    found = opened(clients=20, lost=4, corrupt=3)
    mean(found, {})
    certificate = found.certificate()
    certificate.verify()
    said = " ".join(certificate.explain().split())
    assert "from the server too, as long as at least 13 of those who answered are honest" in said
    assert "Clients from the server where fewer than 13 of those who answered are honest" in said
    assert f"with 6 it is {certificate.guarantee.epsilon:.3g}" not in said
    assert "Whatever the server does, it learns no more than sums" in said
    assert "within one process: a simulation" in said
    assert certificate.seeded
    assert certificate.readers.guarantee.epsilon < certificate.guarantee.epsilon
    assert found.certificate(whole_plan=True).guarantee.epsilon > certificate.guarantee.epsilon
    bare = opened(clients=20, masks=False)
    mean(bare, {})
    assert any("Masks were left out" in line for line in bare.certificate().assumptions)
    with pytest.raises(errors.TacitError, match="no round has run"):
        secure().certificate()


def test_above_a_graph_the_certificate_trusts_the_server_to_follow_the_protocol() -> None:
    found = opened(clients=200, corrupt=10, lost=20, masks=False)
    assert not found.plan.setup().everyone
    mean(found, {})
    said = " ".join(found.certificate().assumptions)
    assert "The server follows the protocol, and looks at all that it receives" in said


def test_a_run_is_that_without_masks(quadratic: Any) -> None:
    """Models of whole runs are equal bit for bit, for all algorithms that can run."""
    held = [Data(one.rows, one.labels) for one in quadratic.held]
    for name in ("fedsgd", "fedavg", "fedprox", "fsvrg", "feddyn"):
        models = []
        for masks in (True, False):
            privacy = SecureClientPrivacy(
                5, size=6, epsilon=300, delta=1e-5, rounds=3, lost=1, masks=masks,
                losses=lambda number: {number % 5: Stage.MASKED}, rng=Seeded(4),
            )  # fmt: skip
            config = algorithm(name).config(**ALIKE)
            options = RunOptions(config=config, coordinator=privacy)
            models.append(rounds.run(name, quadratic.model, held, 3, options).model)
        np.testing.assert_array_equal(*models)
