"""The pipeline's benchmark runs; what it measures depends on the machine and is not judged here."""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def test_prints_both_kinds_of_rows_at_both_lengths():
  command = [sys.executable, "-m", "benchmarks.pipeline", "--tokens=60000", "--batch_size=64"]
  command += ["--rounds=1", "--seconds=0.05"]
  done = subprocess.run([*command, "--json"], cwd=ROOT, capture_output=True, text=True, check=True)
  results = json.loads(done.stdout)
  targets = {128: 300_000, 512: 1_000_000}
  assert [(values["rows"], values["length"], values["target"]) for values in results] == [
    (rows, length, target) for rows in ("pairs", "streams") for length, target in targets.items()
  ]
  for values in results:
    full = values["tokens_per_s"] / values["row_tokens_per_s"]
    assert full == 1 if values["rows"] == "streams" else 0.3 < full < 1
    assert values["ready_s"] > 0
    assert values["seek_ms"] > 0
    assert ("chunks_per_s" in values) == (values["rows"] == "pairs")
  table = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
  assert len(table) == 5
  assert len({len(line) for line in table}) == 1
