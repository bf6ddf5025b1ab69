"""Trains a model: data × model × objective × optimizer × mesh, joined here and nowhere else.

    python train.py --config=configs/quickstart.py:bert --workdir=runs/quickstart-bert

Any field of configs/base.py can be set: --config.steps=100 --config.optimizer.learning_rate=1e-4. If the workdir
holds a checkpoint, the run goes on from it. It writes WORKDIR/config.json, metrics.jsonl, tensorboard/, checkpoints/
and tokenizer/. SIGTERM saves a checkpoint and exits with status 0. With --distributed, the processes that SLURM,
Open MPI, Kubernetes or a TPU pod starts are one run.
"""

import dataclasses
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from data import pipeline
from data.corpus import TOKENIZER_FOLDER, Corpus
from data.streams import StreamSource
from data.tokenizers import Tokenizer, load_tokenizer
from models.config import EncoderConfig
from models.flops import pretraining_flops, xlnet_flops
from models.pretraining import PretrainingModel
from models.primitives import ModelConfig
from models.xlnet import PermutationLM
from models.xlnet_config import XLNetConfig
from objectives import plm, pretraining
from objectives.masking import MaskingConfig, max_targets
from objectives.objective import Batch, Objective, Params
from objectives.vocabulary import Vocabulary
from pretrained.load import load
from pretrained.transfer import fill, require_family, require_model
from training import command_line, loop, optimizer, settings, sharding, state
from training.checkpoint import Checkpoints, saved_steps
from training.programs import compile_stage
from training.report import Reporter
from training.stages import Stage, make_stages
from training.step import EVAL_SEED
from training.workdir import claimed


@dataclasses.dataclass(frozen=True)
class Parts:
  """What a config names: the objective, and where its batches come from.

  Attributes:
    objective: what is predicted, by which model.
    train_batches: (stage, first step) → this process's rows of the batches of the stage's remaining steps.
    eval_batches: stage → this process's rows of the held-out batches, the same ones every time.
    flops: stage → matrix-product FLOPs of one training step by the model's own count.
    initial: fresh parameters → those to start from (a checkpoint's, where the config names one).
    facts: what the data decided, by config field: a resumed run must find the same.
    save_assets: writes to a workdir what its weights need to be used (the tokenizer).
  """

  objective: Objective
  train_batches: Callable[[Stage, int], Iterator[Batch]]
  eval_batches: Callable[[Stage], Iterator[Batch]]
  flops: Callable[[Stage], float]
  initial: Callable[[Params], Params]
  facts: dict
  save_assets: Callable[[str], None]


class Family(NamedTuple):
  """What a family of models makes of a run's data, model and objective sections.

  Attributes:
    model: its shape and arithmetic.
    objective: what is predicted, by which model.
    rows: (split, stage, seed, number of the stage) → the rows of a stage, for training or of the held-out split.
    flops: stage → matrix-product FLOPs of one forward pass.
  """

  model: ModelConfig
  objective: Objective
  rows: Callable[[Corpus, Stage, int, int], pipeline.Source]
  flops: Callable[[Stage], float]


def encoder(config: ConfigDict, stages: list[Stage], tokenizer: Tokenizer, vocabulary: Vocabulary) -> Family:
  """BERT and ALBERT: masked tokens, and a decision about a pair of segments."""
  model = model_config(EncoderConfig, config, tokenizer)
  if (longest := max(stage.length for stage in stages)) > model.max_length:
    raise ValueError(f"a stage has length {longest} and config.model.max_length={model.max_length}; raise it")
  masking = MaskingConfig(**config.objective.masking)
  recipe = pretraining.PretrainingConfig(masking, config.objective.pair, config.objective.dropout_prng)
  return Family(
    model=model,
    objective=pretraining.make(PretrainingModel(model), recipe, vocabulary),
    rows=lambda corpus, stage, seed, number: pipeline.PairSource(
      corpus,
      tokenizer,
      stage.length,
      seed,
      number,
      config.data.short_rate,
      config.objective.pair,
      config.data.single_sentence,
    ),
    flops=lambda stage: pretraining_flops(
      model, stage.batch_size, stage.length, max_targets(stage.length, masking.rate)
    ),
  )


def xlnet(config: ConfigDict, stages: list[Stage], tokenizer: Tokenizer, vocabulary: Vocabulary) -> Family:
  """XLNet: targets in a random order, from contiguous rows with memory."""
  model = model_config(XLNetConfig, config, tokenizer)
  recipe = plm.PLMConfig(reuse_len=config.data.reuse_len, **config.objective)
  for stage in stages:
    recipe.check_length(stage.length)
  return Family(
    model=model,
    objective=plm.make(PermutationLM(model), recipe, vocabulary),
    rows=lambda corpus, stage, seed, number: StreamSource(
      corpus,
      tokenizer,
      stage.length,
      stage.batch_size,
      seed,
      number,
      config.data.reuse_len,
      config.data.bidirectional,
      config.data.random_rate,
      partial=corpus.split != "train",
    ),
    flops=lambda stage: xlnet_flops(model, stage.batch_size, stage.length, recipe.num_predict),
  )


FAMILIES = {"encoder": encoder, "xlnet": xlnet}


def model_config(kind: type, config: ConfigDict, tokenizer: Tokenizer):
  """Returns the model section as an object of `kind`, with the tokenizer's size where vocab_size is 0."""
  fields = dict(config.model)
  if strange := sorted(fields.keys() - {field.name for field in dataclasses.fields(kind)}):
    raise ValueError(
      f"config.family={config.family!r} has no config.model.{strange[0]}: the family is the recipe's, use one of "
      "configs/ that is of it"
    )
  model = kind(**fields | {"vocab_size": fields["vocab_size"] or tokenizer.vocab_size})
  if tokenizer.vocab_size > model.vocab_size:
    raise ValueError(
      f"the vocabulary of {config.data.corpus} has {tokenizer.vocab_size} pieces and config.model.vocab_size="
      f"{model.vocab_size}; set it to at least that, or to 0"
    )
  return model


def build(config: ConfigDict, stages: list[Stage]) -> Parts:
  """Returns the parts of a pretraining run.

  Raises:
    ValueError, FileNotFoundError: fields that contradict each other or the corpus.
  """
  if not config.data.corpus:
    raise ValueError("config.data.corpus is empty; name a folder written by `python -m tools.prepare_corpus`")
  if config.family not in FAMILIES:
    raise ValueError(f"config.family={config.family!r} is unknown; use one of {', '.join(FAMILIES)}")
  corpora = {split: Corpus.open(config.data.corpus, split) for split in ("train", "heldout")}
  tokenizer = load_tokenizer(os.path.join(config.data.corpus, TOKENIZER_FOLDER))
  corpora["train"].require_tokenizer(tokenizer)
  vocabulary = Vocabulary(
    mask_id=tokenizer.mask_id,
    special=tokenizer.special,
    word_start=tokenizer.word_start,
    num_bytes=tokenizer.num_bytes,
    counts=corpora["train"].counts(),
    functional=np.isin(np.arange(tokenizer.vocab_size), [tokenizer.sep_id, tokenizer.cls_id]),
  )
  family = FAMILIES[config.family](config, stages, tokenizer, vocabulary)

  def train_source(stage: Stage) -> pipeline.Source:
    return family.rows(corpora["train"], stage, config.seed, stage.index)

  def eval_source(stage: Stage) -> pipeline.Source:
    return family.rows(corpora["heldout"], stage, EVAL_SEED, 0)

  for stage in stages:  # what cannot be read is said before anything is written
    train_source(stage), eval_source(stage)

  def train_batches(stage: Stage, first: int) -> Iterator[Batch]:
    rows = sharding.local_rows(stage.batch_size)
    return pipeline.batches(train_source(stage), stage.batch_size, first - stage.start, stage.stop - stage.start, rows)

  def eval_batches(stage: Stage) -> Iterator[Batch]:
    rows = sharding.local_rows(stage.batch_size)
    return pipeline.evaluation_batches(eval_source(stage), stage.batch_size, config.eval_batches, rows)

  def initial(params: Params) -> Params:
    if not config.init_from:
      return params
    checkpoint = load(config.init_from)
    require_family(params, checkpoint)  # first: no other corpus would mend it
    if checkpoint.tokenizer.fingerprint != tokenizer.fingerprint:
      raise ValueError(
        f"config.init_from={config.init_from} has another vocabulary than {config.data.corpus}; "
        "prepare the corpus with the checkpoint's tokenizer (--tokenizer accepts its folder)"
      )
    require_model(family.model, checkpoint)
    return fill(params, checkpoint)

  return Parts(
    objective=family.objective,
    train_batches=train_batches,
    eval_batches=eval_batches,
    flops=lambda stage: 3 * family.flops(stage),
    initial=initial,
    facts={
      "model.vocab_size": family.model.vocab_size,
      "data.tokenizer": tokenizer.fingerprint,
      "data.corpus_fingerprint": settings.corpus_fingerprint(corpora.values()),
    },
    save_assets=lambda workdir: tokenizer.save(os.path.join(workdir, TOKENIZER_FOLDER)),
  )


def train(config: ConfigDict, workdir: str, build: Callable[[ConfigDict, list[Stage]], Parts] = build) -> None:
  """Runs `config` in `workdir` to its last step, from the newest checkpoint there.

  Args:
    config: all fields of configs/base.py.
    workdir: where the run lives.
    build: config and stages → the run's parts.

  Raises:
    ValueError, OSError: something is wrong with the config, the data or the workdir; the message names it.
    FloatingPointError: the loss is not finite.
  """
  # ------------------------------------------------------------------ mesh and parts
  settings.check(config)
  mesh = sharding.make_mesh(sharding.MeshConfig(**config.mesh))
  stages = make_stages(config.steps, config.length, config.batch_size, [stage.to_dict() for stage in config.stages])
  for stage in stages:
    sharding.check_rows("batch_size", stage.batch_size, mesh, config.accumulate)
  parts = build(config, stages)
  tx, schedule = optimizer.make(settings.optimizer_config(config.optimizer), config.steps)
  profile = loop.Profile(workdir, config.profile_steps, config.steps)

  # ------------------------------------------------------------------ a new run's state: from init_from, else the seed
  now = None
  if not saved_steps(workdir):  # made before anything is written, for init_from may not fit
    now = state.create(parts.objective, tx, stages[0].batch_size, config.seed, mesh)
    now = now.replace(params=parts.initial(now.params))

  with claimed(workdir), ExitStack() as at_end:
    # ---------------------------------------------------------------- is the workdir this run's? Then its state
    resolved = settings.as_json(config, parts.facts)
    settings.check_identity(workdir, resolved)
    checkpoints = Checkpoints(workdir, config.keep_last, config.keep_best, config.checkpoint_memory)
    at_end.callback(checkpoints.close)
    if saved_steps(workdir):
      rows_at = lambda at: next((stage for stage in stages if at <= stage.stop), stages[-1]).batch_size
      now = checkpoints.restore(lambda at: state.abstract(parts.objective, tx, rows_at(at), mesh))
    first = int(now.step)
    if jax.process_index() == 0 and first < config.steps:
      settings.write(workdir, resolved)
      parts.save_assets(workdir)

    # ---------------------------------------------------------------- loop
    preemption = loop.Preemption()
    reporter = Reporter(workdir, first, config.steps, config.log_every, schedule)
    at_end.callback(reporter.close)
    at_end.callback(profile.close)
    for line in [*describe(mesh, stages, parts, now), *settings.notices(config, first)]:
      reporter.say(line)
    for stage in stages:
      if first >= stage.stop:
        continue
      reporter.say(f"compiling for {stage.batch_size} rows of {stage.length} tokens")
      example = next(held_out := parts.eval_batches(stage))
      held_out.close()
      programs = compile_stage(
        parts.objective, tx, example, stage.batch_size, mesh, seed=config.seed, accumulate=config.accumulate
      )

      def evaluate(params, programs=programs, stage=stage):
        with closing(loop.on_mesh(parts.eval_batches(stage), mesh)) as batches:
          return programs.evaluate(params, batches)

      now = programs.enter(now)
      if now.step == 0:
        reporter.evaluation(0, evaluate(now.params))
      begin = max(first, stage.start)
      flops = parts.flops(stage)
      with closing(loop.on_mesh(parts.train_batches(stage, begin), mesh)) as batches:
        reporter.restart()
        for before, batch in zip(range(begin, stage.stop), batches, strict=True):
          profile.before(before)
          now, values = programs.train(now, batch)
          profile.after(before, values)
          reporter.step(at := before + 1, values, flops)

          # Evaluate, save, and only then take the next batch.
          preempted = preemption.reached(at)
          due = lambda every, at=at: at == config.steps or at % every == 0
          loss = None
          if due(config.eval_every) and not preempted:
            reporter.flush()
            held_out = evaluate(now.params)
            reporter.evaluation(at, held_out)
            loss = held_out["loss"]
          if due(config.checkpoint_every) or preempted:
            reporter.flush()  # the log is never behind a checkpoint
            checkpoints.save(now, loss)
            reporter.restart()
          if preempted:
            checkpoints.wait()
            reporter.say(f"stopped by SIGTERM: step {at} is saved in {workdir}; the same command continues")
            return
        reporter.flush()
    checkpoints.wait()
    reporter.outcome()
    reporter.say(f"{'done' if first < config.steps else 'nothing left to do'}: {workdir} holds step {int(now.step)}")


def describe(mesh: Mesh, stages: list[Stage], parts: Parts, now: state.TrainState) -> list[str]:
  """Returns the lines that say what is about to run."""
  count = sum(x.size for x in jax.tree.leaves(now.params))
  lines = [f"{count:,} parameters on {mesh.size} × {jax.devices()[0].device_kind}, mesh {dict(mesh.shape)}"]
  for stage in stages:
    shape = f"{stage.batch_size} rows of {stage.length} tokens"
    lines.append(f"steps {stage.start} to {stage.stop}: {shape}, {parts.flops(stage) / 1e9:,.1f} GFLOP a step")
  return lines + ([f"continuing from step {int(now.step)}"] if now.step else [])


def run(build: Callable[[ConfigDict, list[Stage]], Parts] = build) -> None:
  """The command line: --config and --workdir, then `train`."""
  command_line.run(__doc__, lambda config, workdir: train(config, workdir, build))


if __name__ == "__main__":
  run()
