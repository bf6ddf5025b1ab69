"""The numbers of a run as it goes: read one step late, checked, written to the log and shown."""

import sys
from collections.abc import Callable, Mapping

import jax
import numpy as np
import optax
from tqdm import tqdm

from training.metrics import MetricsLog, read
from training.rates import Rates

Baselines = Mapping[str, tuple[float, str]]  # metric → what needs no model: its value, and its name for the reader


def _of(metric: str, said: str):
  return lambda record: record[metric], said


def _majority(positive: str):
  return lambda record: max(record[positive], 1 - record[positive]), "the more frequent answer"


# Metric → what needs no model: its value, from the same record, and its name for the reader.
BASELINES = {
  "mlm_loss": _of("unigram_loss", "word frequencies"),
  "mlm_accuracy": _of("most_frequent_accuracy", "the most frequent token"),
  "ltr_loss": _of("unigram_loss", "word frequencies"),
  "ltr_accuracy": _of("most_frequent_accuracy", "the most frequent token"),
  "masked_loss": _of("masked_unigram_loss", "word frequencies"),
  "masked_accuracy": _of("most_frequent_accuracy", "the most frequent token"),
  "plm_loss": _of("unigram_loss", "word frequencies"),
  "plm_accuracy": _of("most_frequent_accuracy", "the most frequent token"),
  "dae_loss": _of("unigram_loss", "word frequencies"),
  "dae_accuracy": _of("most_frequent_accuracy", "the most frequent token"),
  "nsp_accuracy": _majority("nsp_positive"),
  "sop_accuracy": _majority("sop_positive"),
}
# What stands beside other numbers as their baseline, and counts that nobody learns.
_BESIDE = ("unigram", "masked_unigram", "most_frequent")
_ASIDE = ("_positive", "_shortfall", "total", "threshold", "_thresh")
# What is shown of a training record.
SHOWN = (
  "loss",
  "mlm_accuracy",
  "ltr_accuracy",
  "plm_accuracy",
  "dae_accuracy",
  "nsp_accuracy",
  "sop_accuracy",
  "tokens_per_s",
  "mfu",
)


class Reporter:
  """Reports steps and evaluations: a bar on a terminal, a line a record elsewhere, `metrics.jsonl` and TensorBoard
  always.

  The numbers of a step are read while the next one runs, so that the device never waits for the host.

  Args:
    workdir: where the log is.
    first, steps: the steps done before, and those of the whole run.
    every: steps between records.
    schedule: step → learning rate.

  Attributes:
    rates: of the interval since the last record; whoever takes batches takes them through it.
  """

  def __init__(self, workdir: str, first: int, steps: int, every: int, schedule: optax.Schedule):
    self._is_first = jax.process_index() == 0
    self._log = MetricsLog(workdir, first, write=self._is_first)
    self._bar = tqdm(
      total=steps, initial=first, unit="step", dynamic_ncols=True, disable=not (self._is_first and sys.stderr.isatty())
    )
    self._steps, self._every, self._schedule = steps, every, schedule
    self._late, self.rates = None, Rates()
    self.evaluated = self._log.evaluated  # at step `first`, as the first process knows
    if not self.rates.peak and (device := jax.devices()[0]).platform != "cpu":
      self.say(f"mfu is left out of the log: training/hardware.py has no peak rate of {device.device_kind}")

  def restart(self) -> None:
    """Starts a new interval for rates: what came before (compiling, evaluating, saving) is not training's time."""
    self.rates.restart()

  def step(self, at: int, values: dict[str, jax.Array], flops: float) -> None:
    """Takes the numbers of the step that ends at step `at`, and reports those of the step before."""
    self.flush()
    self._late = at, values, flops

  def flush(self) -> None:
    """Reports the step not yet reported, waiting for it.

    Raises:
      FloatingPointError: its loss is not finite.
    """
    if self._late is None:
      return
    (at, values, flops), self._late = self._late, None
    values = {name: float(value) for name, value in jax.device_get(values).items()}
    if not np.isfinite(values["loss"]):
      raise FloatingPointError(
        f"the loss is {values['loss']} at step {at}; checkpoints before it are sound. Lower "
        "config.optimizer.learning_rate, lengthen its warmup_steps, or look at the data of this step, then run again"
      )
    self.rates.add(values.pop("tokens"), flops)
    self._bar.update()
    if at % self._every and at != self._steps:
      return
    values |= {"learning_rate": float(self._schedule(at - 1))} | self.rates.numbers()
    self.restart()
    self._log.write(at, "train", values)
    self._show(at, "train", {name: values[name] for name in SHOWN if name in values})

  def sync(self) -> None:
    """Reports the step not yet reported, and makes the log last."""
    self.flush()
    self._log.sync()

  def evaluation(self, at: int, values: dict[str, float]) -> None:
    """Reports an evaluation after step `at`."""
    self._log.write(at, "eval", values)
    self._show(at, "eval", values)
    self.restart()

  def say(self, line: str, everywhere: bool = False) -> None:
    """Prints a line above the bar, once however many processes run, or `everywhere`."""
    if self._is_first or everywhere:
      tqdm.write(line, file=sys.stdout)
      sys.stdout.flush()

  def _show(self, at: int, split: str, values: dict[str, float]) -> None:
    shown = "  ".join(
      f"{name} {value:,.0f}" if value >= 1000 else f"{name} {value:.4g}" for name, value in values.items()
    )
    if split == "train" and not self._bar.disable:
      self._bar.set_postfix_str(shown)
    else:
      self.say(f"step {at:>{len(str(self._steps))}}/{self._steps}  {split:<5}  {shown}")

  def outcome(self, baselines: Callable[[], Baselines]) -> None:
    """Shows what the run has learned: its first and its last evaluation, beside `baselines` and those of BASELINES."""
    if self._is_first:
      self.say(outcome(read(self._log.path), baselines()))

  def close(self) -> None:
    """Removes the bar and closes the log."""
    self._bar.close()
    self._log.close()


def is_learned(name: str) -> bool:
  """Returns whether a field of a held-out record is what a model gets better at, rather than a baseline or a count."""
  return not (name in ("step", "split", "wall_s") or name.startswith(_BESIDE) or name.endswith(_ASIDE))


def outcome(records: list[dict], known: Baselines) -> str:
  """Returns a table of the first and the last evaluation in a log, beside what needs no model on the same targets: what
  is `known`, and what the log has of BASELINES."""
  evaluations = [record for record in records if record["split"] == "eval"]
  if len(evaluations) < 2:
    return ""
  first, last = evaluations[0], evaluations[-1]
  names = [name for name in last if is_learned(name) and name in first]
  width = max(map(len, names)) + 2
  lines = [f"{'held-out':<{width}}{'step ' + str(first['step']):>12}{'step ' + str(last['step']):>12}   baseline"]
  known = {name: (of(last), said) for name, (of, said) in BASELINES.items() if name in names} | dict(known)
  for name in names:
    beside = f"   {known[name][0]:.4f} ({known[name][1]})" if name in known else ""
    lines.append(f"{name:<{width}}{first[name]:>12.4f}{last[name]:>12.4f}{beside}")
  return "\n".join(lines)
