r"""Shamir's secret sharing over GF(2²⁵⁵ − 19): t of the shares give the secret, fewer give nothing.

A secret is the constant term of a random polynomial f of degree t − 1, and the share of holder i,
counted from 0, is f(i + 1):

.. math:: f(0) = \sum_i f(x_i) \prod_{j \ne i} \frac{x_j}{x_j - x_i}

Any t − 1 shares are uniform and independent of the secret, since for every value of the secret
exactly one polynomial passes through them.

References
----------
.. [Sha79] Shamir. How to share a secret. Communications of the ACM 1979.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping

PRIME = 2**255 - 19
BYTES = 32
MOST_HOLDERS = 2**20


def new_secret(draw: Callable[[int], int] = secrets.randbelow) -> bytes:
    """Draw a uniform element of the field."""
    return draw(PRIME).to_bytes(BYTES, "big")


def share(
    secret: bytes,
    holders: Iterable[int],
    threshold: int,
    draw: Callable[[int], int] = secrets.randbelow,
) -> dict[int, bytes]:
    """Share a secret among holders, by number; any `threshold` of them can restore it."""
    constant = int.from_bytes(secret, "big")
    if not 0 <= constant < PRIME:
        raise ValueError("share: secret must be an element of the field.")
    coefficients = [draw(PRIME) for _ in range(threshold - 1)]
    shares = {}
    for holder in holders:
        value, place = 0, holder + 1
        for coefficient in coefficients:
            value = (value + coefficient) * place % PRIME
        shares[holder] = ((value + constant) % PRIME).to_bytes(BYTES, "big")
    return shares


def combine(shares: Mapping[int, bytes]) -> bytes:
    """Restore the secret from as many shares as the threshold; more, or fewer, give another one."""
    places = [holder + 1 for holder in shares]
    values = [int.from_bytes(value, "big") % PRIME for value in shares.values()]
    whole = 1
    for place in places:
        whole = whole * place % PRIME
    # One inversion for all: prefix products of the denominators.
    denominators = [_denominator(place, places) for place in places]
    inverses = _inverses(denominators)
    total = sum(value * inverse for value, inverse in zip(values, inverses, strict=True))
    return (total * whole % PRIME).to_bytes(BYTES, "big")


def _denominator(place: int, places: list[int]) -> int:
    """Compute x_i Π (x_j − x_i): with Π x_j taken out, a term of the sum has x_i below it."""
    product = place
    for other in places:
        if other != place:
            product = product * (other - place) % PRIME
    return product


def _inverses(numbers: list[int]) -> list[int]:
    prefixes, product = [], 1
    for number in numbers:
        prefixes.append(product)
        product = product * number % PRIME
    inverse = pow(product, -1, PRIME)
    inverses = [0] * len(numbers)
    for index in range(len(numbers) - 1, -1, -1):
        inverses[index] = prefixes[index] * inverse % PRIME
        inverse = inverse * numbers[index] % PRIME
    return inverses
