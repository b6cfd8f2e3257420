"""Structured log: one JSON object a line."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timezone
from typing import Any


def json_lines(level: str, event: str, **fields: Any) -> None:
    """Writes a line to stderr; any function with these arguments can take its place."""
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = {"ts": now, "level": level, "event": event, **fields}
    sys.stderr.write(json.dumps(line, default=str) + "\n")
    sys.stderr.flush()
