"""The pipeline's benchmark runs; what it measures depends on the machine and is not judged here."""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def test_prints_both_lengths():
  command = [sys.executable, "-m", "benchmarks.pipeline", "--tokens=60000", "--rounds=1", "--seconds=0.05", "--json"]
  done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
  results = json.loads(done.stdout)
  assert {length: values["target"] for length, values in results.items()} == {"128": 300_000, "512": 1_000_000}
  for values in results.values():
    assert 0 < values["tokens_per_s"] < values["row_tokens_per_s"]
    assert values["chunks_per_s"] > 0
