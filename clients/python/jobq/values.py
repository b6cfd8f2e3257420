"""Values that the database can store."""

from __future__ import annotations

import json
import re
from typing import Any, Optional

from psycopg.types.json import Jsonb

_NOT_STORABLE = re.compile("[\x00\ud800-\udfff]")
_ESCAPED = re.compile(r"(?<!\\)(?:\\\\)*\\u(?:0000|d[89a-f][0-9a-f]{2})", re.IGNORECASE)


def dumps(value: Any) -> str:
    """Returns the JSON of a value; raises ValueError for JSON that jsonb refuses."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False)
    if _NOT_STORABLE.search(text) or _ESCAPED.search(text):
        raise ValueError("jsonb cannot store \\u0000 or half of a surrogate pair")
    return text


def jsonb(value: Any) -> Optional[Jsonb]:
    """Returns the parameter for a jsonb argument, None for SQL's NULL."""
    if value is None:
        return None
    if isinstance(value, Jsonb):
        return value
    dumps(value)
    return Jsonb(value, dumps=dumps)


def text(value: Any, limit: int = 8000) -> str:
    """Returns a value as text without characters that the database refuses, shortened to the limit."""
    return _NOT_STORABLE.sub("\ufffd", str(value))[:limit]
