"""Trains a model: data × model × objective × optimizer × mesh, joined here and nowhere else.

    python train.py --config=configs/quickstart.py:bert --workdir=runs/quickstart-bert

Any field of configs/base.py can be set: --config.steps=100 --config.optimizer.learning_rate=1e-4. If the workdir holds a checkpoint,
the run goes on from it. It writes WORKDIR/config.json, metrics.jsonl, tensorboard/, checkpoints/ and tokenizer/.
SIGTERM saves a checkpoint and exits with status 0.
"""

import dataclasses
import functools
import os
import sys
from collections.abc import Callable, Iterator

import jax
import numpy as np
from absl import app, flags, logging
from jax.sharding import Mesh
from ml_collections import ConfigDict, config_flags

import pretrained
from data import pipeline
from data.corpus import TOKENIZER_FOLDER, Corpus
from data.tokenizers import load_tokenizer
from models.config import EncoderConfig
from models.flops import pretraining_flops
from models.pretraining import PretrainingModel
from objectives import pretraining
from objectives.masking import MaskingConfig, max_targets
from objectives.objective import Batch, Objective
from objectives.vocabulary import Vocabulary
from training import loop, optimizer, settings, sharding, state, step
from training.checkpoint import Checkpoints
from training.hardware import peak_flops
from training.metrics import MetricsLog
from training.stages import Stage, make_stages


@dataclasses.dataclass(frozen=True)
class Parts:
  """What a config names: the objective, and where its batches come from.

  Attributes:
    objective: what is predicted, by which model.
    train_batches: (stage, first step) → this process's rows of the batches of the stage's remaining steps.
    eval_batches: stage → this process's rows of the held-out batches, the same ones every time.
    flops: stage → matrix-product FLOPs of one training step by the model's own count.
    facts: what the data decided, by config field: a resumed run must find the same.
    save_assets: writes to a workdir what its weights need to be used (the tokenizer).
  """

  objective: Objective
  train_batches: Callable[[Stage, int], Iterator[Batch]]
  eval_batches: Callable[[Stage], Iterator[Batch]]
  flops: Callable[[Stage], float]
  facts: dict
  save_assets: Callable[[str], None]


def build(config: ConfigDict, stages: list[Stage]) -> Parts:
  """Returns the parts of a pretraining run.

  Raises:
    ValueError, FileNotFoundError: fields that contradict each other or the corpus.
  """
  if not config.data.corpus:
    raise ValueError("config.data.corpus is empty; name a folder written by `python -m tools.prepare_corpus`")
  corpora = {split: Corpus.open(config.data.corpus, split) for split in ("train", "heldout")}
  tokenizer = load_tokenizer(os.path.join(config.data.corpus, TOKENIZER_FOLDER))
  corpora["train"].require_tokenizer(tokenizer)
  model = EncoderConfig(**dict(config.model) | {"vocab_size": config.model.vocab_size or tokenizer.vocab_size})
  if tokenizer.vocab_size > model.vocab_size:
    raise ValueError(
      f"the vocabulary of {config.data.corpus} has {tokenizer.vocab_size} pieces and config.model.vocab_size={model.vocab_size}; "
      "set it to at least that, or to 0"
    )
  if (longest := max(stage.length for stage in stages)) > model.max_length:
    raise ValueError(f"a stage has length {longest} and config.model.max_length={model.max_length}; raise it")
  masking = MaskingConfig(**config.objective.masking)
  objective = pretraining.PretrainingConfig(masking, config.objective.pair, config.objective.dropout_prng)
  vocabulary = Vocabulary(
    tokenizer.mask_id, tokenizer.special, tokenizer.word_start, tokenizer.num_bytes, corpora["train"].counts()
  )

  def source(split: str, stage: Stage):
    return pipeline.PairSource(
      corpora[split], tokenizer, stage.length, seed=config.seed, stage=stage.index, short_rate=config.data.short_rate
    )

  def train_batches(stage: Stage, first: int) -> Iterator[Batch]:
    return pipeline.batches(
      source("train", stage), stage.batch_size, first - stage.start, stage.stop - stage.start, sharding.local_rows(stage.batch_size)
    )

  def eval_batches(stage: Stage) -> Iterator[Batch]:
    return pipeline.eval_batches(
      source("heldout", stage), stage.batch_size, config.eval_batches, sharding.local_rows(stage.batch_size)
    )

  return Parts(
    objective=pretraining.make(PretrainingModel(model), objective, vocabulary),
    train_batches=train_batches,
    eval_batches=eval_batches,
    flops=lambda stage: 3 * pretraining_flops(model, stage.batch_size, stage.length, max_targets(stage.length, masking.rate)),
    facts={"model.vocab_size": model.vocab_size, "data.tokenizer": tokenizer.fingerprint},
    save_assets=lambda workdir: tokenizer.save(os.path.join(workdir, TOKENIZER_FOLDER)),
  )


def train(config: ConfigDict, workdir: str, build: Callable[[ConfigDict, list[Stage]], Parts] = build) -> None:
  """Runs `config` in `workdir` to its last step, from the newest checkpoint there.

  Args:
    config: all fields of configs/base.py.
    workdir: where the run lives.
    build: config and stages → the run's parts.
  """
  is_first = jax.process_index() == 0

  # ------------------------------------------------------------------ mesh and parts
  mesh = sharding.make_mesh(sharding.MeshConfig(**config.mesh))
  stages = make_stages(config.steps, config.length, config.batch_size, config.stages)
  for stage in stages:
    sharding.check_rows("batch_size", stage.batch_size, mesh, config.accumulate)
  parts = build(config, stages)
  tx, schedule = optimizer.make(settings.optimizer_config(config.optimizer), config.steps)
  profile = loop.Profile(workdir, config.profile_steps)

  # ------------------------------------------------------------------ is the workdir this run's?
  resolved = config.copy_and_resolve_references().unlock()
  resolved.update_from_flattened_dict(parts.facts)
  settings.check_identity(workdir, settings.as_json(resolved))
  os.makedirs(workdir, exist_ok=True)
  if is_first:
    settings.write(workdir, settings.as_json(resolved))
    parts.save_assets(workdir)

  # ------------------------------------------------------------------ state: this workdir, else init_from, else from the seed
  checkpoints = Checkpoints(workdir, config.keep_last, config.keep_best)
  abstract = lambda at: state.abstract(parts.objective, tx, stage_of(stages, max(at - 1, 0)).batch_size, mesh)
  now = checkpoints.restore(abstract)
  if now is None:
    now = state.create(parts.objective, tx, stages[0].batch_size, config.seed, mesh)
    if config.init_from:
      now = now.replace(params=pretrained.fill(now.params, config.init_from))
  first = int(now.step)
  log = MetricsLog(workdir, first, write=is_first)
  greet(config, mesh, parts, stages, now, first)

  # ------------------------------------------------------------------ the loop
  preemption = loop.Preemption()
  progress = loop.Progress(first, config.steps)
  try:
    for stage in stages:
      if stage.stop <= first and stage is not stages[-1]:
        continue
      run = compile_stage(config, parts, tx, stage, mesh, now)
      now = run.adapt(now)
      if first == 0 and stage.start == 0:
        evaluate(run, now, log, progress)
      batches = loop.on_mesh(parts.train_batches(stage, max(first, stage.start)), mesh)
      progress.restart()
      late = None  # the step before, whose numbers are read while this one runs
      for at in range(max(first, stage.start), stage.stop):
        profile.before(at)
        now, sums = run.train(now, next(batches))
        profile.after(at, sums)
        if late:
          record(*late, config, schedule, parts.flops(stage), log, progress)
        late = at + 1, sums

        # The order matters: evaluate, save, and only then take the next batch.
        last, preempted = at + 1 == config.steps, preemption.reached(at + 1)
        evaluates, saves = last or (at + 1) % config.eval_every == 0, last or (at + 1) % config.checkpoint_every == 0
        if evaluates or saves or preempted or at + 1 == stage.stop:
          record(*late, config, schedule, parts.flops(stage), log, progress)
          late = None
        loss = evaluate(run, now, log, progress) if evaluates and not preempted else None
        if saves or preempted:
          checkpoints.save(now, loss)
          progress.restart()
        if preempted:
          checkpoints.wait()
          print(f"stopped by SIGTERM: step {at + 1} is saved in {workdir}; the same command continues", flush=True)
          return
    checkpoints.wait()
    progress.close()
    if is_first:
      print(f"done: {config.steps} steps in {workdir}" + (" (nothing left to do)" if first >= config.steps else ""))
  finally:
    progress.close()
    checkpoints.close()
    log.close()


def stage_of(stages: list[Stage], at: int) -> Stage:
  """Returns the stage that step `at` belongs to; the last one after the end."""
  return next((stage for stage in stages if at < stage.stop), stages[-1])


@dataclasses.dataclass(frozen=True)
class Compiled:
  """The programs of one stage, compiled before its first step."""

  train: Callable
  evaluate: Callable
  adapt: Callable  # state → state with a carry of this stage's rows


def compile_stage(config: ConfigDict, parts: Parts, tx, stage: Stage, mesh: Mesh, now: state.TrainState) -> Compiled:
  """Returns the stage's training and evaluation steps for exactly its shapes: any other shape is an error, never a recompilation."""
  logging.info("compiling for %d rows of %d tokens", stage.batch_size, stage.length)
  abstract = state.abstract(parts.objective, tx, stage.batch_size, mesh)
  places = jax.tree.map(lambda x: x.sharding, abstract)
  rows = sharding.by_row(mesh)
  example = next(iter(parts.eval_batches(stage)))
  shapes = {
    name: jax.ShapeDtypeStruct((stage.batch_size, *x.shape[1:]), x.dtype, sharding=rows) for name, x in example.items()
  }
  new_carry = jax.jit(lambda: parts.objective.init_carry(stage.batch_size), out_shardings=places.carry)
  train_step = functools.partial(
    step.train_step, objective=parts.objective, optimizer=tx, seed=config.seed, accumulate=config.accumulate
  )
  eval_step = functools.partial(step.eval_step, objective=parts.objective, seed=config.seed)
  index = jax.ShapeDtypeStruct((), np.int32, sharding=sharding.replicated(mesh))
  everywhere = sharding.replicated(mesh)

  def adapt(before: state.TrainState) -> state.TrainState:
    fits = jax.tree.map(np.shape, before.carry) == jax.tree.map(np.shape, abstract.carry)
    return before if fits else before.replace(carry=new_carry())

  compiled_eval = step.compile_step(
    eval_step, abstract.params, abstract.carry, shapes, index, donate=(1,), out_shardings=(everywhere, places.carry)
  )

  def run_eval(params) -> dict:
    carry, total = new_carry(), None
    for i, batch in enumerate(loop.on_mesh(parts.eval_batches(stage), mesh)):
      sums, carry = compiled_eval(params, carry, batch, jax.device_put(np.int32(i), everywhere))
      total = sums if total is None else jax.tree.map(np.add, total, jax.device_get(sums))
    return total

  return Compiled(
    train=step.compile_step(train_step, abstract, shapes, donate=(0,), out_shardings=(places, everywhere)),
    evaluate=run_eval,
    adapt=adapt,
  )


def record(at: int, sums, config, schedule, flops: float, log: MetricsLog, progress: loop.Progress) -> None:
  """Reads the numbers of step `at`, and writes and shows them where a record is due.

  Raises:
    FloatingPointError: the loss is not a number.
  """
  values = {name: float(value) for name, value in jax.device_get(sums).items()}
  if not np.isfinite(values["loss"]):
    raise FloatingPointError(
      f"the loss is {values['loss']} at step {at}; the newest checkpoint is sound. Lower config.optimizer.learning_rate, "
      "lengthen its warmup_steps, or look at the data of this step, and start again from there"
    )
  progress.step(values.pop("tokens"))
  if at % config.log_every and at != config.steps:
    return
  values["learning_rate"] = float(schedule(at - 1))
  values["tokens_per_s"], steps_per_s = progress.rates()
  if peak := peak_flops():
    values["mfu"] = flops * steps_per_s / peak
  log.write(at, "train", values)
  shown = ("loss", "mlm_accuracy", "tokens_per_s", "mfu")
  progress.show(at, "train", {name: values[name] for name in shown if name in values})


def evaluate(run: Compiled, now: state.TrainState, log: MetricsLog, progress: loop.Progress) -> float:
  """Evaluates on the held-out split, writes and shows the record, and returns the loss."""
  values = {name: float(value) for name, value in jax.device_get(step.summary(*run.evaluate(now.params))).items()}
  log.write(int(now.step), "eval", values)
  progress.show(int(now.step), "eval", values)
  progress.restart()
  return values["loss"]


def greet(config: ConfigDict, mesh: Mesh, parts: Parts, stages: list[Stage], now: state.TrainState, first: int) -> None:
  """Says what is about to run."""
  if jax.process_index():
    return
  count = sum(x.size for x in jax.tree.leaves(now.params))
  print(f"{count:,} parameters on {mesh.size} × {jax.devices()[0].device_kind}, mesh {dict(mesh.shape)}")
  for stage in stages:
    flops = parts.flops(stage) / 1e9
    print(f"steps {stage.start} to {stage.stop}: {stage.batch_size} rows of {stage.length} tokens, {flops:,.1f} GFLOP a step")
  if first:
    print(f"continuing from step {first}", flush=True)


def parse_flags(argv: list[str]) -> list[str]:
  """Parses the command line; a mistake ends in one line, and --config may stand anywhere."""
  if {"--help", "-h", "-help", "--helpfull"} & set(argv):
    print(__doc__)
    raise SystemExit(0)
  first = [argument for argument in argv[1:] if argument.startswith(("--config=", "-config="))]
  rest = [argument for argument in argv[1:] if argument not in first]
  try:
    return flags.FLAGS([argv[0], *first, *rest])
  except (flags.Error, AttributeError, ValueError, TypeError, OSError) as error:
    reason = " ".join(str(error).split())
    print(f"error: {reason}. Every field is in configs/base.py; `python train.py --help` shows an example", file=sys.stderr)
    raise SystemExit(1) from None


def run(build: Callable[[ConfigDict, list[Stage]], Parts] = build) -> None:
  """The command line: --config and --workdir, then `train`."""
  config = config_flags.DEFINE_config_file("config", None, "A recipe: FILE.py[:VARIANT].", lock_config=True)
  workdir = flags.DEFINE_string("workdir", None, "Where the run lives.")
  flags.mark_flags_as_required(["config", "workdir"])

  def main(argv: list[str]) -> None:
    del argv
    try:
      train(config.value, workdir.value, build)
    except (ValueError, OSError, FloatingPointError) as error:
      print(f"error: {error}", file=sys.stderr)
      raise SystemExit(1) from None

  app.run(main, flags_parser=parse_flags)


if __name__ == "__main__":
  run()
