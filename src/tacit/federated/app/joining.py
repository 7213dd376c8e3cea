"""The command with which a silo's owner joins a federation, on the machine that holds the rows.

Notes
-----
The owner's terms (a ledger, the guarantee that a job must have) are checked by this library's
client app. Flower lets whoever may submit a run bring an app of their own, which checks nothing:
connect only to servers that you trust with that, over TLS.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.federated.app.processes import LOOPBACK, free_port, own_folder, program
from tacit.privacy import errors, files

REQUIRABLE = ("client", "record", "secure")
"""What an owner may require of jobs: a unit that is protected, or secure sums."""


@dataclass(frozen=True)
class Terms:
    """The terms on which an owner takes part.

    Parameters
    ----------
    require : {"client", "record", "secure"}, optional
        Jobs without a guarantee for this unit are refused, or those without secure sums.
    ledger, account : Path, str, optional
        The owner's budget. With them all jobs are refused that cannot be charged there, which are
        all but those with a guarantee for records, or with secure sums.
    """

    require: str | None = None
    ledger: Path | None = None
    account: str | None = None

    def __post_init__(self) -> None:
        if self.require is not None:
            errors.choice("node", "require", self.require, REQUIRABLE)
        if (self.ledger is None) != (self.account is None):
            alone = "account" if self.ledger is None else "ledger"
            errors.refuse("node", "ledger and account", "given together", alone)
        if self.require == "client" and self.ledger is not None:
            remedy = "A guarantee for clients is charged by the server."
            errors.refuse("node", "ledger", "left out where clients are protected", None, remedy)

    def plain(self) -> dict[str, str]:
        """Return the terms as entries of a node's configuration."""
        terms = {"require": self.require, "account": self.account}
        set_terms = {name: value for name, value in terms.items() if value is not None}
        return set_terms | ({} if self.ledger is None else {"ledger": str(self.ledger.resolve())})

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Terms:
        """Read the terms from a node's configuration."""
        texts = {name: config.get(name) for name in ("require", "ledger", "account")}
        require, ledger, account = (None if v is None else str(v) for v in texts.values())
        return cls(require, None if ledger is None else Path(ledger), account)


def node(
    superlink: str,
    *,
    name: str,
    data: Path,
    work: Path,
    state: Path | None = None,
    authority: Path | None = None,
    insecure: bool = False,
    key: Path | None = None,
    roster: Path | None = None,
    terms: Terms = Terms(),  # noqa: B008
    port: int | None = None,
) -> list[str]:
    """Build the command of a silo's own process.

    Parameters
    ----------
    superlink : str
        Address and port of the server.
    name : str
        Name of this client; the same after a restart.
    data : Path
        The npz file with its rows and labels.
    work : Path
        Folder for files of the process itself.
    state : Path, optional
        Folder in which states are kept, so that they survive a restart.
    authority : Path, optional
        Certificate of the authority that signed the server's.
    insecure : bool
        Connect without TLS, on loopback only.
    key : Path, optional
        Private key (ECDSA on a NIST curve, OpenSSH format, no passphrase), if the server admits
        only known nodes, or for secure sums.
    roster : Path, optional
        Folder of all clients' public keys, NAME.pub each, for secure sums. The owner got them from
        the other clients, not from the server alone.
    terms : Terms
        The owner's terms.
    port : int, optional
        Port of the process's own interface on loopback; by default a free one.
    """
    if insecure == (authority is not None):
        remedy = "Without TLS anyone on the network path can read and change what is sent."
        errors.refuse("node", "exactly one of authority, insecure", "given", insecure, remedy)
    if insecure and superlink.rsplit(":", 1)[0] not in (LOOPBACK, "localhost"):
        errors.refuse("node", "superlink", "on loopback without TLS", superlink, "Give authority.")
    if insecure and key is not None and roster is None:
        errors.refuse("node", "key", "left out without TLS", str(key), "Give authority.")
    if roster is not None and key is None:
        errors.refuse("node", "key", "given with roster", None, "It signs what this client sends.")
    if key is not None:
        check_key(key)
    config = {"name": name, "data": str(data.resolve()), **terms.plain()}
    if roster is not None and key is not None:
        config |= {"roster": str(roster.resolve()), "identity": str(key.resolve())}
    if state is not None:
        config["state"] = str(state.resolve())
    node_config = own_folder(work) / f"node-{free_port()}.toml"
    files.replace(node_config, toml(config).encode(), files.OWN)
    secure = ["--insecure"] if insecure else ["--root-certificates", str(authority)]
    return [
        *(program("flower-supernode"), *secure),
        *(() if key is None or insecure else ("--auth-supernode-private-key", str(key))),
        *("--superlink", superlink, "--host", LOOPBACK, "--port", str(port or free_port())),
        *("--node-config", str(node_config)),
    ]


def check_key(path: Path) -> None:
    """Refuse a key that Flower would refuse, there only in the log of another process."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    try:
        fits = isinstance(load_ssh_private_key(path.read_bytes(), None), EllipticCurvePrivateKey)
    except (ValueError, TypeError, OSError, UnsupportedAlgorithm):
        fits = False
    if not fits:
        raise errors.InvalidData(
            f"{path}: it must be an ECDSA key in OpenSSH format, without a passphrase. "
            "ssh-keygen -t ecdsa -b 384 makes one."
        )


def toml(values: Mapping[str, Any]) -> str:
    """Format plain values as TOML, whose strings and numbers are those of JSON."""
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
