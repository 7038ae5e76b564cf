"""A folder of hard real images with known verdicts, where there is one: SHARDKIT_CORPUS, or ../shared/corpus.

It holds MANIFEST.jsonl: per file its name, its verdicts under two contracts, size and pixel digest.
"""

import json
import os
import pathlib
from typing import Any

ROOT = pathlib.Path(__file__).parents[3]
FOLDER = pathlib.Path(os.environ.get("SHARDKIT_CORPUS", ROOT.parent / "shared" / "corpus"))
MANIFEST = FOLDER / "MANIFEST.jsonl"
MISSING = f"no {MANIFEST}: set SHARDKIT_CORPUS to a folder that has one"
CASES: list[dict[str, Any]] = (
    [json.loads(line) for line in MANIFEST.read_text().splitlines()] if MANIFEST.exists() else []
)
