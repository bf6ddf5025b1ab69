"""One optimizer step, one evaluation step: pure functions to be jitted over a mesh."""

import functools

import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec as P

from objectives.objective import Batch, LossFn, Objective, Params, Sums, mean_loss, ratio
from training.state import TrainState

TRAIN = 1  # folded into the run's seed; 0 initialises the parameters
EVAL_SEED = 0  # of every run: runs of different seeds are measured on the same targets


def train_step(
  state: TrainState,
  batch: Batch,
  *,
  objective: Objective,
  optimizer: optax.GradientTransformation,
  seed: int,
  accumulate: int = 1,
) -> tuple[TrainState, dict[str, jax.Array]]:
  """Returns the next state, and the step's numbers over the global batch: scalars by their names in the log.

  Copies of the parameters, along "data" of the ambient mesh, add up their gradients once, at the end: left alone, the
  compiler adds up after each micro-batch, and after each of the layers that share parameters.

  Args:
    state: the state before the step.
    batch: clean rows of the global batch.
    objective: what is predicted.
    optimizer: how parameters move.
    seed: the run's; with the step it fixes every draw.
    accumulate: micro-batches whose gradients are summed before the update. Rows are dealt out in turn, so that each
      device keeps its own. Each term's weight is counted over the whole batch first, so the step is that of the
      undivided batch.
  """
  key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), TRAIN), state.step)
  batch = number_rows(batch)

  def share(params: Params, carry, batch: Batch, key):
    """Sums over this copy's share of the rows, then over all shares."""
    of = gradient if accumulate == 1 else functools.partial(accumulated_gradient, parts=accumulate)
    loss_fn = lambda moving, *rest: objective.loss_fn(params | moving, *rest)
    gradients, (terms, metrics, carry) = of(loss_fn, objective.moving(params), carry, batch, key)
    return over_shares((gradients, terms, metrics)), carry

  if objective.rows_apart and dict(jax.sharding.get_abstract_mesh().shape).get("data", 1) > 1:
    # Unchecked: else parameters would count as varying where they are first used, and be added up there.
    places = {"in_specs": (P(), P("data"), P("data"), P()), "out_specs": (P(), P("data"))}
    share = jax.shard_map(share, **places, axis_names={"data"}, check_vma=False)
  (gradients, terms, metrics), carry = share(state.params, state.carry, batch, key)
  moving = objective.moving(state.params)
  updates, opt_state = optimizer.update(gradients, state.opt_state, moving)
  params = state.params | optax.apply_updates(moving, updates)
  values = summary(terms, metrics)
  values["gradient_norm"] = optax.tree.norm(gradients)
  values["tokens"] = (batch["sequence_ids"] > 0).sum()
  return TrainState(state.step + 1, params, opt_state, carry), values


def eval_step(params: Params, carry, batch: Batch, index, *, objective: Objective):
  """Returns ((terms, metrics), carry, outputs) of evaluation batch `index`, the first as sums; its draws never change
  during a run."""
  key = jax.random.key(EVAL_SEED)
  rows = jax.tree.leaves(batch)[0].shape[0]
  terms, metrics, carry, outputs = objective.eval_fn(params, carry, number_rows(batch, index * rows), key)
  return (terms, metrics), carry, outputs


def over_shares(sums):
  """Adds up over the shares that the rows are in by hand, see `train_step`; nothing elsewhere."""
  axes = tuple(jax.sharding.get_abstract_mesh().manual_axes)
  return jax.lax.psum(sums, axes) if axes else sums


def number_rows(batch: Batch, first=0) -> Batch:
  """Returns the batch with "row", each row's global number."""
  rows = jax.tree.leaves(batch)[0].shape[0]
  return batch | {"row": first + jnp.arange(rows, dtype=jnp.int32)}


def summary(terms: Sums, metrics: Sums) -> dict[str, jax.Array]:
  """Returns what is logged: "loss" (Σ over terms of sum/weight), each term as "NAME_loss", each metric as its mean."""
  losses = {f"{name}_loss": ratio(*value) for name, value in terms.items()}
  return {"loss": mean_loss(terms)} | losses | {name: ratio(*value) for name, value in metrics.items()}


def gradient(loss_fn: LossFn, params: Params, carry, batch: Batch, key, weights: dict | None = None):
  """Returns (gradients, (terms, metrics, carry)) of Σ sum/weight; `weights` replaces the batch's own."""

  def loss(params):
    terms, metrics, new_carry = loss_fn(params, carry, batch, key)
    of_all = over_shares({name: weight for name, (_, weight) in terms.items()}) if weights is None else weights
    return mean_loss({name: (total, of_all[name]) for name, (total, _) in terms.items()}), (terms, metrics, new_carry)

  return jax.grad(loss, has_aux=True)(params)


def accumulated_gradient(loss_fn: LossFn, params: Params, carry, batch: Batch, key, parts: int):
  """Returns what `gradient` returns, computed over `parts` micro-batches one after another."""
  deal = lambda x: x.reshape(x.shape[0] // parts, parts, *x.shape[1:]).swapaxes(0, 1)
  gather = lambda x: x.swapaxes(0, 1).reshape(-1, *x.shape[2:])
  micro = jax.tree.map(deal, (carry, batch))

  # Weights depend on no parameter: XLA drops everything else of this call as dead code.
  micro_weights = jax.lax.map(lambda x: {name: w for name, (_, w) in loss_fn(params, *x, key)[0].items()}, micro)
  weights = over_shares(jax.tree.map(lambda w: w.sum(0), micro_weights))

  def one(total, x):
    gradients, (terms, metrics, new_carry) = gradient(loss_fn, params, *x, key, weights)
    return jax.tree.map(jnp.add, total, gradients), (terms, metrics, new_carry)

  zeros = jax.tree.map(jnp.zeros_like, params)
  gradients, (terms, metrics, carry) = jax.lax.scan(one, zeros, micro)
  terms, metrics = jax.tree.map(lambda x: x.sum(0), (terms, metrics))
  return gradients, (terms, metrics, jax.tree.map(gather, carry))
