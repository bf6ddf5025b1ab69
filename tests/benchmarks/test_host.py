"""What a host must make is arithmetic; what it makes is measured on small text, and not judged here."""

import pytest

from benchmarks import host, pipeline
from data import corpus
from launch.pods import Pod
from tools import pods

# Cloud TPU's number of a slice: TensorCores, chips of v5e and v6e.
TYPES = {"v3": ("v3", 2), "v4": ("v4", 2), "v5p": ("v5p", 2), "v5e": ("v5litepod", 1), "v6e": ("v6e", 1)}


@pytest.mark.parametrize("row", pods.ROWS, ids=lambda row: f"{row.name} on {row.machine}")
def test_hosts_are_those_that_the_launcher_counts(row):
  topology = next(argument for argument in row.arguments if argument.startswith("--topology="))
  family, number = TYPES[topology.removeprefix("--topology=").partition(":")[0]]
  chips = int(row.machine.split()[0].replace(",", ""))
  found = host.need(row)
  assert found.hosts == Pod("pod", "us-east1-a", type=f"{family}-{chips * number}").hosts
  assert found.hosts * found.rows == found.stage.batch_size


def test_a_step_at_half_the_peak_by_hand():
  """BERT-base on 16 v3 chips: 12 layers of width 768, 77 targets of a row of 512 tokens over 30,522 pieces."""
  layer = 4 * 768 * 768 + 2 * 768 * 3072 + 2 * 512 * 768
  heads = 77 * (768 * 768 + 768 * 30_522) + 768 * 768 + 2 * 768
  flops = 3 * 2 * 256 * (512 * 12 * layer + heads)
  found = host.need(pods.ROWS[0])
  assert found.step_s == pytest.approx(flops / (0.5 * 16 * 123e12))
  assert (found.hosts, found.rows) == (4, 64)
  assert found.tokens_per_s == pytest.approx(64 * 512 / found.step_s)


def test_a_table_of_what_is_taken_and_made(tmp_path):
  pipeline.write_corpus(tmp_path, 60_000)
  needs = [host.need(row) for row in pods.ROWS if row.name.startswith("BERT") and "256 ×" in row.name][:4]
  results = host.measure(needs, corpus.Corpus.open(tmp_path, "train"), rounds=2, seconds=0.02)
  assert len(results) == len(needs)
  for one in results:
    assert one["makes"] >= one["makes_median"] > 0
    assert one["cores"] == pytest.approx(one["takes"] / one["makes"])
  assert len({one["makes"] for one in results}) == 2  # 64 rows of a batch on 4 hosts, 16 on 16
  assert len(host.table(results).splitlines()) == 2 + len(needs)
