"""The table of sizes measures what it says, on the smallest BERT."""

import jax

from benchmarks import sizes


class Pipe:
  """Keeps what is sent."""

  def send(self, result):
    self.result = result


def test_a_row_of_the_table(monkeypatch):
  monkeypatch.setattr(sizes, "keep_freed_memory", lambda: None)  # it is for good
  one = jax.devices()[:1]
  monkeypatch.setattr(jax, "devices", lambda: one)
  pipe = Pipe()
  sizes.measure(pipe, "bert-tiny", rows=2, length=16, rounds=1)
  assert set(pipe.result) == set(sizes.COLUMNS)
  assert pipe.result["parameters"] == 4_433_468  # BERT-tiny with both heads
  assert pipe.result["step_s"] > 0
  weights = 4 * pipe.result["parameters"] / 1e6
  assert pipe.result["step_memory_mb"] > 3 * weights  # the parameters, and two moments of each
  assert 0.8 * weights < pipe.result["weights_mb"] < 1.1 * weights
  assert 2 * weights < pipe.result["checkpoint_mb"] < 3.3 * weights
