"""JSON in the one form that is hashed, signed and compared byte for byte.

Keys are sorted, characters are written as UTF-8, and values that JSON cannot represent (NaN,
infinity) are refused: equal bodies have equal bytes. Formats differ only in their indentation.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any


def text(body: Any, indent: int | None = None) -> str:
    """Write a body of plain values, without a newline at the end."""
    return json.dumps(body, sort_keys=True, indent=indent, ensure_ascii=False, allow_nan=False)


def lines(body: Any, indent: int | None = None) -> bytes:
    """Write a body as the content of a file, with a newline at the end."""
    return (text(body, indent) + "\n").encode()


def sha256(content: bytes | str) -> str:
    """Hash content, as 64 hexadecimal digits."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()
