"""The BiLSTM beside torch.nn.LSTM of the same weights, on sequences of several lengths: outputs and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch")
# ruff: noqa: E402

from models.bilstm import BiLSTM

pytestmark = pytest.mark.parity

FEATURES, WIDTH, LAYERS = 6, 5, 2
LENGTHS = (9, 4, 7)


def ours(theirs) -> dict:
  """Their weights: [4 · width, in] there, and two biases; the order of the gates is the same."""
  read = lambda name: jnp.asarray(getattr(theirs, name).detach().numpy())
  params = {}
  for i in range(LAYERS):
    for direction, end in (("forward", ""), ("backward", "_reverse")):
      params[f"{direction}_{i}"] = {
        "kernel": read(f"weight_ih_l{i}{end}").T,
        "recurrent": read(f"weight_hh_l{i}{end}").T,
        "bias": read(f"bias_ih_l{i}{end}") + read(f"bias_hh_l{i}{end}"),
      }
  return params


def test_it_is_torchs():
  torch.manual_seed(0)
  theirs = torch.nn.LSTM(FEATURES, WIDTH, LAYERS, bidirectional=True, batch_first=True)
  rng = np.random.default_rng(0)
  x = rng.normal(size=(len(LENGTHS), max(LENGTHS), FEATURES)).astype(np.float32)
  weights = rng.normal(size=(len(LENGTHS), max(LENGTHS), 2 * WIDTH)).astype(np.float32)
  real = np.arange(max(LENGTHS))[None] < np.array(LENGTHS)[:, None]
  weights = weights * real[..., None]

  inputs = torch.tensor(x, requires_grad=True)
  rows = torch.nn.utils.rnn.pack_padded_sequence(inputs, LENGTHS, batch_first=True, enforce_sorted=False)
  expected, _ = torch.nn.utils.rnn.pad_packed_sequence(theirs(rows)[0], batch_first=True)
  (expected * torch.tensor(weights)).sum().backward()

  # All in one row here, and a sequence a row there.
  packed = jnp.asarray(x[real][None])
  ids = jnp.asarray(np.repeat(1 + np.arange(len(LENGTHS)), LENGTHS)[None], jnp.int32)
  model = BiLSTM(LAYERS, WIDTH)

  def loss(params, packed):
    found = model.apply({"params": params}, packed, ids)
    return (found * weights[real][None]).sum(), found

  (_, found), (gradients, by_input) = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(ours(theirs), packed)
  np.testing.assert_allclose(found[0], expected.detach().numpy()[real], atol=1e-5)
  np.testing.assert_allclose(by_input[0], inputs.grad.numpy()[real], atol=1e-5)
  for i in range(LAYERS):
    for direction, end in (("forward", ""), ("backward", "_reverse")):
      here = gradients[f"{direction}_{i}"]
      there = lambda name, i=i, end=end: getattr(theirs, f"{name}_l{i}{end}").grad.numpy()
      np.testing.assert_allclose(here["kernel"], there("weight_ih").T, atol=1e-4)
      np.testing.assert_allclose(here["recurrent"], there("weight_hh").T, atol=1e-4)
      np.testing.assert_allclose(here["bias"], there("bias_ih"), atol=1e-4)
