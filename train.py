"""Trains a model: data × model × objective × optimizer × mesh, joined here and nowhere else.

    python train.py --config=configs/quickstart.py:bert --workdir=runs/quickstart-bert

Any field of configs/base.py can be set: --config.steps=100 --config.optimizer.learning_rate=1e-4. If the workdir
holds a checkpoint, the run goes on from it. It writes WORKDIR/config.json, metrics.jsonl, tensorboard/, checkpoints/
and tokenizer/. SIGTERM saves a checkpoint and exits with status 0. With --distributed, the processes that SLURM,
Open MPI, Kubernetes or a TPU pod starts are one run.
"""

import functools
from collections.abc import Callable
from contextlib import ExitStack, closing

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from data.places import written
from parts import Parts, build
from training import command_line, loop, optimizer, settings, sharding, state
from training.checkpoint import Checkpoints
from training.programs import Shapes, compile_stage
from training.report import Reporter
from training.saved import saved_steps
from training.stages import Stage
from training.workdir import claimed


def train(config: ConfigDict, workdir: str, build: Callable[[ConfigDict], Parts] = build) -> None:
  """Runs `config` in `workdir` to its last step, from the newest checkpoint there.

  Args:
    config: all fields of configs/base.py.
    workdir: where the run lives.
    build: config → the run's parts.

  Raises:
    ValueError, OSError: something is wrong with the config, the data or the workdir; the message names it.
    FloatingPointError: the loss is not finite.
  """
  # ------------------------------------------------------------------ mesh and parts
  settings.check(config)
  mesh = sharding.make_mesh(sharding.MeshConfig(**config.mesh))
  parts = build(config)
  stages, config = parts.stages, settings.with_facts(config, parts.facts)
  sharding.check_model(config.model.num_heads, config.model.intermediate_size, mesh)
  local = functools.partial(sharding.local_rows, mesh)
  for stage in stages:
    parts.attention(stage.length)  # a kernel that cannot do it is said before anything is written
    for shapes in parts.shapes(stage)[0]:
      sharding.check_rows("batch_size", shapes["sequence_ids"].shape[0], mesh, config.accumulate)
  tx, schedule = optimizer.make(settings.optimizer_config(config.optimizer, config.steps), config.steps)
  profile = loop.Profile(workdir, config.profile_steps, config.steps)

  # ------------------------------------------------------------------ a new run's state: from init_from, else the seed
  now = None
  if not saved_steps(workdir):  # made before anything is written, for init_from may not fit
    now = state.create(parts.objective, tx, stages[0].batch_size, config.seed, mesh)
    now = now.replace(params=parts.initial(now.params))

  with claimed(workdir), ExitStack() as at_end:
    # ---------------------------------------------------------------- is the workdir this run's? Then its state
    resolved = settings.as_json(config)
    settings.check_identity(workdir, resolved)
    checkpoints = Checkpoints(workdir, config.keep_last, config.keep_best, config.checkpoint_memory)
    at_end.callback(checkpoints.close)
    if saved_steps(workdir):
      rows_at = lambda at: next((stage for stage in stages if at <= stage.stop), stages[-1]).batch_size
      now = checkpoints.restore(lambda at: state.abstract(parts.objective, tx, rows_at(at), mesh))
    first = int(now.step)
    if jax.process_index() == 0 and first < config.steps:
      settings.write(workdir, resolved)
      with written(workdir) as folder:
        parts.save_assets(folder)

    # ---------------------------------------------------------------- loop
    preemption = loop.Preemption()
    reporter = Reporter(workdir, first, config.steps, config.log_every, schedule)
    at_end.callback(reporter.close)
    at_end.callback(profile.close)
    due = lambda every, at: at == config.steps or at % every == 0
    owed = due(config.eval_every, first) and not loop.told_by_first(reporter.evaluated)  # SIGTERM cut it short

    def stop(at: int, badness: float | None = None) -> None:
      reporter.sync()
      if at:
        checkpoints.save(now, badness)
        checkpoints.wait()
      saved = f"step {at} is saved in {workdir}" if at else "no step was taken"
      reporter.say(f"stopped by SIGTERM: {saved}; the same command continues", everywhere=True)

    for line in [*describe(mesh, stages, parts, now), *settings.notices(config, first)]:
      reporter.say(line)
    for stage in stages:
      if first >= stage.stop and not (owed and first == stage.stop):
        continue
      train_shapes, eval_shapes = parts.shapes(stage)
      reporter.say(f"compiling for {' and '.join(map(described, train_shapes))}")
      programs = compile_stage(
        parts.objective,
        tx,
        train_shapes,
        stage.batch_size,
        mesh,
        seed=config.seed,
        accumulate=config.accumulate,
        eval_shapes=eval_shapes,
      )

      def evaluate(params, programs=programs, stage=stage) -> dict[str, float] | None:
        with closing(loop.on_mesh(parts.eval_batches(stage, local), mesh)) as batches:
          values, outputs = programs.evaluate(params, preemption.until(batches))
        return None if preemption.reached() else values | parts.score(outputs)

      begin = max(first, stage.start)
      if owed and not preemption.reached() and (held_out := evaluate(now.params)):
        reporter.evaluation(begin, held_out)
        owed = False
      if preemption.reached():
        return stop(begin)
      now = programs.enter(now, begins=begin == stage.start)
      with closing(loop.on_mesh(parts.train_batches(stage, begin, local), mesh)) as batches:
        reporter.restart()
        for before, batch in zip(range(begin, stage.stop), reporter.rates.timed(batches), strict=True):
          profile.before(before)
          now, values = programs.train(now, batch)
          profile.after(before, values)
          reporter.step(at := before + 1, values, parts.flops(*batch["sequence_ids"].shape))

          # Evaluate, save, and only then take the next batch.
          badness = None
          if not preemption.reached() and due(config.eval_every, at):
            reporter.flush()
            if held_out := evaluate(now.params):
              reporter.evaluation(at, held_out)
              badness = parts.badness(held_out)
          if preemption.reached():
            return stop(at, badness)
          if due(config.checkpoint_every, at):
            reporter.sync()  # the log is never behind a checkpoint
            checkpoints.save(now, badness)
            reporter.restart()
        reporter.flush()
    checkpoints.wait()
    reporter.outcome(parts.baselines)
    reporter.say(f"{'done' if first < config.steps else 'nothing left to do'}: {workdir} holds step {int(now.step)}")


def describe(mesh: Mesh, stages: list[Stage], parts: Parts, now: state.TrainState) -> list[str]:
  """Returns the lines that say what is about to run."""
  count = lambda params: sum(x.size for x in jax.tree.leaves(params))
  trained = f", {count(parts.objective.moving(now.params)):,} of them trained," if parts.objective.frozen else ""
  devices = f"{mesh.size} × {jax.devices()[0].device_kind}, mesh {dict(mesh.shape)}"
  lines = [f"{count(now.params):,} parameters{trained} on {devices}"]
  for stage in stages:
    largest = parts.shapes(stage)[0][-1]
    flops = parts.flops(*largest["sequence_ids"].shape) / 1e9
    how = [f"at most {described(largest)}", f"{flops:,.1f} GFLOP a step", parts.attention(stage.length)]
    lines.append(f"steps {stage.start} to {stage.stop}: {', '.join(filter(None, how))}")
  return lines + ([f"continuing from step {int(now.step)}"] if now.step else [])


def described(shapes: Shapes) -> str:
  """Returns a batch's size in words."""
  rows, length = shapes["sequence_ids"].shape
  return f"{rows} rows of {length} tokens"


def run(build: Callable[[ConfigDict], Parts] = build) -> None:
  """The command line: --config and --workdir, then `train`."""
  command_line.run(__doc__, lambda config, workdir: train(config, workdir, build))


if __name__ == "__main__":
  run()
