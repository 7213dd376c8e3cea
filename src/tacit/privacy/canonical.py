"""JSON in the one form that is hashed, signed and compared byte for byte.

Keys are sorted, characters stand for themselves in UTF-8, and what JSON cannot say (NaN, infinity)
is refused: equal bodies have equal bytes. Formats differ in nothing but their indentation.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any


def text(body: Any, indent: int | None = None) -> str:
    """Write a body of plain values, without a newline at the end."""
    return json.dumps(body, sort_keys=True, indent=indent, ensure_ascii=False, allow_nan=False)


def lines(body: Any, indent: int | None = None) -> bytes:
    """Write a body as a file has it, with a newline at the end."""
    return (text(body, indent) + "\n").encode()


def sha256(content: bytes | str) -> str:
    """Hash content, as 64 hexadecimal digits."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()
