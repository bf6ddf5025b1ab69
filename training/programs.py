"""The compiled programs of one stage. Compiled for exactly its declared shapes and dtypes: any other is an error, never
a recompilation."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from objectives.objective import Batch, Carry, Objective, Outputs, Params
from training import sharding, state, step
from training.state import TrainState

Shapes = dict[str, jax.ShapeDtypeStruct]  # of a global batch, by the batch's names


def shapes_of(batch: Mapping[str, np.ndarray], rows: int) -> Shapes:
  """Returns the shapes of a global batch of `rows` rows like those of `batch`."""
  return {name: jax.ShapeDtypeStruct((rows, *x.shape[1:]), x.dtype) for name, x in batch.items()}


class ByShape:
  """A function compiled once for each of some shapes and dtypes of a batch.

  Args:
    compile: batch shapes → the function for them.
    shapes: the shapes.
    batch_at: which argument is the batch.
  """

  def __init__(self, compile: Callable[[Shapes], jax.stages.Compiled], shapes: Iterable[Shapes], batch_at: int):
    self._batch_at = batch_at
    self.programs = {}
    for one in shapes:
      if (key := _key(one)) not in self.programs:
        self.programs[key] = compile(one)

  def __call__(self, *args):
    """Raises ValueError if the batch has none of the shapes, or other dtypes."""
    key = _key(args[self._batch_at])
    if key not in self.programs:
      said = ", ".join(f"{name} {dtype}{list(shape)}" for name, shape, dtype in key)
      raise ValueError(f"a batch of undeclared shapes: {said}")
    return self.programs[key](*args)


def _key(batch: Mapping) -> tuple:
  return tuple(sorted((name, x.shape, np.dtype(x.dtype).name) for name, x in batch.items()))


@dataclasses.dataclass(frozen=True)
class Programs:
  """What a stage runs.

  Attributes:
    train: (state, batch) → (next state, numbers of the step). The state is donated.
    eval: (params, carry, batch, index) → ((terms, metrics), carry, outputs). The carry is donated.
    carry: () → the carry before the first batch.
  """

  train: Callable[[TrainState, Batch], tuple[TrainState, dict]]
  eval: Callable
  carry: Callable[[], Carry]

  def enter(self, now: TrainState, begins: bool) -> TrainState:
    """Returns the state to take the stage's next step from: where the stage `begins`, with a fresh carry, for its rows
    continue none of those before."""
    return now.replace(carry=self.carry()) if begins else now

  def evaluate(self, params: Params, batches: Iterable[Batch]) -> tuple[dict[str, float], list[Outputs]]:
    """Returns the numbers over all of `batches`, each target and each row counted once, and every batch's outputs, on
    the host. `batches` is asked for the next one at most a batch ahead of the device, so it can end an evaluation."""
    carry, total, before, outputs = self.carry(), None, None, []
    for index, batch in enumerate(batches):
      sums, carry, output = self.eval(params, carry, batch, np.int32(index))
      jax.block_until_ready(before)
      before = total = sums if total is None else jax.tree.map(jnp.add, total, sums)
      outputs.append(jax.device_get(output))
    return {name: float(value) for name, value in jax.device_get(step.summary(*total)).items()}, outputs


@dataclasses.dataclass(frozen=True)
class Steps:
  """A stage's steps, to be compiled for one shape of a batch or another.

  Attributes:
    state: shapes, types and shardings of the state.
    train: batch shapes → the training step: (state, batch) → (next state, numbers of the step).
    eval: batch shapes → the evaluation step: (params, carry, batch, index) → ((terms, metrics), carry, outputs).
  """

  state: TrainState
  train: Callable[[Shapes], jax.stages.Lowered]
  eval: Callable[[Shapes], jax.stages.Lowered]


def lower_stage(
  objective: Objective,
  optimizer: optax.GradientTransformation,
  rows: int,
  mesh: Mesh,
  *,
  seed: int,
  accumulate: int,
) -> Steps:
  """Returns the steps on a mesh, whose devices may be described ones; arguments as `compile_stage`'s."""
  now = state.abstract(objective, optimizer, rows, mesh)
  places = jax.tree.map(lambda x: x.sharding, now)
  by_row, everywhere = sharding.by_row(mesh), sharding.replicated(mesh)
  placed = lambda shapes: {n: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=by_row) for n, x in shapes.items()}
  index = jax.ShapeDtypeStruct((), np.int32, sharding=everywhere)
  train_step = functools.partial(
    step.train_step, objective=objective, optimizer=optimizer, seed=seed, accumulate=accumulate
  )
  eval_step = functools.partial(step.eval_step, objective=objective)
  train = jax.jit(train_step, donate_argnums=0, out_shardings=(places, everywhere))
  evaluate = jax.jit(eval_step, donate_argnums=1, out_shardings=(everywhere, places.carry, everywhere))

  def lower(step, *args):
    with jax.set_mesh(mesh):  # so that models can say how activations are split
      return step.lower(*args)

  return Steps(
    state=now,
    train=lambda shapes: lower(train, now, placed(shapes)),
    eval=lambda shapes: lower(evaluate, now.params, now.carry, placed(shapes), index),
  )


def compile_stage(
  objective: Objective,
  optimizer: optax.GradientTransformation,
  shapes: Sequence[Shapes],
  rows: int,
  mesh: Mesh,
  *,
  seed: int,
  accumulate: int,
  eval_shapes: Sequence[Shapes] = (),
) -> Programs:
  """Returns the programs for batches of the declared shapes.

  Args:
    objective, optimizer: what is trained, and how.
    shapes: of the batches.
    rows: that the carry has.
    mesh: devices.
    seed, accumulate: see `step.train_step`.
    eval_shapes: of the batches of an evaluation; () = the same.
  """
  steps = lower_stage(objective, optimizer, rows, mesh, seed=seed, accumulate=accumulate)
  carry_places = jax.tree.map(lambda x: x.sharding, steps.state.carry)
  return Programs(
    train=ByShape(lambda shapes: steps.train(shapes).compile(), shapes, batch_at=1),
    eval=ByShape(lambda shapes: steps.eval(shapes).compile(), eval_shapes or shapes, batch_at=2),
    carry=jax.jit(lambda: objective.init_carry(rows), out_shardings=carry_places),
  )
