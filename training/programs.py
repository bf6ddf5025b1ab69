"""The compiled programs of one stage. Compiled for exactly its shapes: any other shape is an error, never a
recompilation."""

import dataclasses
import functools
from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from objectives.objective import Batch, Carry, Objective, Params
from training import sharding, state, step
from training.state import TrainState


@dataclasses.dataclass(frozen=True)
class Programs:
  """What a stage runs.

  Attributes:
    train: (state, batch) → (next state, numbers of the step). The state is donated.
    eval: (params, carry, batch, index) → ((terms, metrics), carry). The carry is donated.
    carry: () → the carry before the first batch.
  """

  train: Callable[[TrainState, Batch], tuple[TrainState, dict]]
  eval: Callable
  carry: Callable[[], Carry]

  def enter(self, now: TrainState) -> TrainState:
    """Returns the state with a carry of this stage's rows: a new one where the number of rows changes."""
    shapes = lambda carry: jax.tree.map(np.shape, carry)
    return now if shapes(now.carry) == shapes(jax.eval_shape(self.carry)) else now.replace(carry=self.carry())

  def evaluate(self, params: Params, batches: Iterable[Batch]) -> dict[str, float]:
    """Returns the numbers over all of `batches`, each target and each row counted once."""
    carry, total = self.carry(), None
    for index, batch in enumerate(batches):
      sums, carry = self.eval(params, carry, batch, np.int32(index))
      total = sums if total is None else jax.tree.map(jnp.add, total, sums)
    return {name: float(value) for name, value in jax.device_get(step.summary(*total)).items()}


def compile_stage(
  objective: Objective,
  optimizer: optax.GradientTransformation,
  example: dict[str, np.ndarray],
  rows: int,
  mesh: Mesh,
  *,
  seed: int,
  accumulate: int,
) -> Programs:
  """Returns the programs for batches of `rows` rows shaped like those of `example`."""
  shapes = state.abstract(objective, optimizer, rows, mesh)
  places = jax.tree.map(lambda x: x.sharding, shapes)
  by_row, everywhere = sharding.by_row(mesh), sharding.replicated(mesh)
  batch = {name: jax.ShapeDtypeStruct((rows, *x.shape[1:]), x.dtype, sharding=by_row) for name, x in example.items()}
  index = jax.ShapeDtypeStruct((), np.int32, sharding=everywhere)
  train_step = functools.partial(
    step.train_step, objective=objective, optimizer=optimizer, seed=seed, accumulate=accumulate
  )
  eval_step = functools.partial(step.eval_step, objective=objective)
  train = jax.jit(train_step, donate_argnums=0, out_shardings=(places, everywhere))
  evaluate = jax.jit(eval_step, donate_argnums=1, out_shardings=(everywhere, places.carry))
  with jax.set_mesh(mesh):  # so that models can say how activations are split
    train, evaluate = train.lower(shapes, batch), evaluate.lower(shapes.params, shapes.carry, batch, index)
  return Programs(
    train=train.compile(),
    eval=evaluate.compile(),
    carry=jax.jit(lambda: objective.init_carry(rows), out_shardings=places.carry),
  )
