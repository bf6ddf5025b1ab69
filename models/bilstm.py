"""A bidirectional LSTM over packed rows: what BERT's feature-based approach puts below the classifier (section 5.3)."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from models.primitives import product, split_by_row

_UNROLL = 2  # steps an iteration of the loop; more only compile for longer


class BiLSTM(nn.Module):
  """Layers of one LSTM from left to right and one from right to left, each of `width` units, side by side.

  The state begins anew at each sequence of a row, so that neither padding nor a neighbour counts, in either direction.
  All in float32, as heads are.
  """

  num_layers: int
  width: int

  @nn.compact
  def __call__(
    self, inputs: Float[Array, "batch length features"], sequence_ids: Int[Array, "batch length"]
  ) -> Float[Array, "batch length both"]:
    """Returns the last layer's outputs, of both directions: 2 · width.

    Args:
      inputs: a vector a token.
      sequence_ids: 0 for padding, 1..n for the sequences packed in the row.
    """
    hidden = inputs.astype(jnp.float32)
    for i in range(self.num_layers):
      forward = LSTM(self.width, reverse=False, name=f"forward_{i}")(hidden, sequence_ids)
      backward = LSTM(self.width, reverse=True, name=f"backward_{i}")(hidden, sequence_ids)
      hidden = jnp.concatenate([forward, backward], axis=-1)
    return hidden


class LSTM(nn.Module):
  """One direction of one layer: no peepholes, gates in the order input, forget, candidate, output.

  Initial values are those of TensorFlow 1's LSTMCell: Glorot's uniform distribution for the matrix over [input; state],
  biases 0, and 1 of the forget gate.
  """

  width: int
  reverse: bool

  @nn.compact
  def __call__(
    self, inputs: Float[Array, "batch length features"], sequence_ids: Int[Array, "batch length"]
  ) -> Float[Array, "batch length width"]:
    features, width = inputs.shape[-1], self.width
    limit = (6 / (features + width + 4 * width)) ** 0.5
    glorot = lambda key, shape: jax.random.uniform(key, shape, jnp.float32, -limit, limit)
    kernel = self.param("kernel", glorot, (features, 4 * width))
    recurrent = self.param("recurrent", glorot, (width, 4 * width))
    bias = self.param("bias", lambda key: jnp.zeros(4 * width).at[width : 2 * width].set(1.0))
    # What the inputs add to the gates is one product for all steps.
    gates = split_by_row(product(inputs, jnp.asarray(kernel)) + bias[None, None])
    same = sequence_ids[:, 1:] == sequence_ids[:, :-1]
    continues = jnp.pad(same, ((0, 0), (0, 1) if self.reverse else (1, 0)))
    by_step = lambda x: jnp.swapaxes(x, 0, 1)
    hidden = recurrence(by_step(gates), by_step(continues), jnp.asarray(recurrent), self.reverse)
    return split_by_row(by_step(hidden))


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def recurrence(
  gates: Float[Array, "length batch four_widths"],
  continues: Bool[Array, "length batch"],
  recurrent: Float[Array, "width four_widths"],
  reverse: bool = False,
) -> Float[Array, "length batch width"]:
  """The LSTM's steps: only the product of the state with `recurrent` is inside the loop.

  Its gradient is written out for the matrix's sake: summed up step by step, as scan's own gradient does, it takes
  several times as long on a CPU, and with the rows split over devices a sum over them at every step.

  Args:
    gates: what the inputs and biases add to the gates before their nonlinearities.
    continues: False where the state begins anew.
    recurrent: from the state to the gates.
    reverse: from the last step to the first.
  """
  return _forward(gates, continues, recurrent, reverse)[0]


def _forward(gates, continues, recurrent, reverse):
  def step(state, now):
    added, continues = now
    hidden, cell = (jnp.where(continues[:, None], x, 0) for x in state)
    i, f, g, o = jnp.split(added + hidden @ recurrent, 4, axis=-1)
    i, f, g, o = jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)
    new_cell = f * cell + i * g
    new_hidden = o * jnp.tanh(new_cell)
    return (new_hidden, new_cell), (new_hidden, (hidden, cell, new_cell, i, f, g, o))

  zeros = jnp.zeros((gates.shape[1], len(recurrent)))
  _, (hidden, kept) = jax.lax.scan(step, (zeros, zeros), (gates, continues), reverse=reverse, unroll=_UNROLL)
  return hidden, (continues, recurrent, kept)


def _backward(reverse, saved, d_outputs):
  continues, recurrent, kept = saved
  to_state = recurrent.T  # outside the loop, or it is turned round at every step

  def step(d_state, now):
    d_output, continues, (_, cell, new_cell, i, f, g, o) = now
    d_hidden, d_cell = d_state
    d_hidden, squashed = d_hidden + d_output, jnp.tanh(new_cell)
    d_cell = d_cell + d_hidden * o * (1 - squashed**2)
    d_gates = jnp.concatenate(
      [
        d_cell * g * i * (1 - i),
        d_cell * cell * f * (1 - f),
        d_cell * i * (1 - g**2),
        d_hidden * squashed * o * (1 - o),
      ],
      axis=-1,
    )
    before = d_gates @ to_state, d_cell * f
    return tuple(jnp.where(continues[:, None], x, 0) for x in before), d_gates

  zeros = jnp.zeros_like(d_outputs[0])
  xs = d_outputs, continues, kept
  _, d_gates = jax.lax.scan(step, (zeros, zeros), xs, reverse=not reverse, unroll=_UNROLL)
  return d_gates, None, jnp.einsum("lbw,lbg->wg", kept[0], d_gates)


recurrence.defvjp(_forward, _backward)
