"""pure-ldp's clients. Version 1.2.0 has no bulk call, so the quickest loop over items is timed.

It has no subset selection either; unary encoding comes closest, since both report a set of
categories. Items are Python integers, which it handles faster than numpy's.
"""

from pure_ldp.frequency_oracles.direct_encoding import DEClient
from pure_ldp.frequency_oracles.unary_encoding import UEClient

from peers import Task, serve


def loop(client, categories: int, count: int) -> Task:
    items = [1 + i % categories for i in range(count)]  # its categories start at 1
    return lambda: [client.privatise(item) for item in items], count


serve(
    {
        "krr10": loop(DEClient(epsilon=1, d=10), 10, 20_000),
        "krr100": loop(DEClient(epsilon=1, d=100), 100, 20_000),
        "unary100": loop(UEClient(epsilon=1, d=100, use_oue=True), 100, 1_000),
    }
)
