"""ALBERT beside `transformers`, live: outputs on random weights, and fifty steps of training."""

import jax
import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
# ruff: noqa: E402

from pretrained import albert, names
from tests.parity import compare, dynamics, record, reference

pytestmark = pytest.mark.parity

TINY = {
  "vocab_size": 200, "embedding_size": 32, "hidden_size": 64, "num_hidden_layers": 4, "num_hidden_groups": 2,
  "inner_group_num": 2, "num_attention_heads": 4, "intermediate_size": 128, "max_position_embeddings": 64,
  "initializer_range": 0.2,
}  # fmt: skip
BASE = {"vocab_size": 30000, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}


@pytest.mark.parametrize("activation", record.ACTIVATIONS["albert"])
@pytest.mark.parametrize("size", ["tiny", "base"])
def test_random_weights(size, activation, tmp_path):
  fields = TINY if size == "tiny" else BASE
  model = reference.random_model("albert", **fields, hidden_act=activation)
  batch = reference.padded_batch(fields["vocab_size"], (40, 25, 3), 40)
  result = compare.ours(*compare.read(model, tmp_path), batch)
  assert result.keys() == {"hidden", "pooled", "mlm_logits", "pair_logits"}
  compare.assert_close(result, reference.outputs(model, batch), batch)


def test_they_read_what_the_tables_write(tmp_path):
  model = reference.random_model("albert", **TINY)
  config, params = compare.read(model, tmp_path)
  fields = albert.write_config(config)
  other = transformers.AlbertForPreTraining(transformers.AutoConfig.for_model(**fields)).eval()
  written = {n: torch.from_numpy(x) for n, x in names.to_theirs(albert.ENTRIES, params, config).items()}
  incompatible = other.load_state_dict(written, strict=False)
  assert not incompatible.unexpected_keys
  assert all("decoder" in name for name in incompatible.missing_keys)  # tied
  batch = reference.padded_batch(200, (30, 8), 30)
  jax.tree.map(np.testing.assert_array_equal, reference.outputs(other, batch), reference.outputs(model, batch))


@pytest.mark.parametrize("name", ["adamw", "bert_adamw"])
def test_fifty_steps_of_training(name, tmp_path):
  """Same weights, same batches, no dropout: the two loss curves stay together.

  With weights as wide as TINY's, eight blocks that share them make training chaotic: rounding alone moves the curve.
  """
  model = reference.random_model("albert", **TINY | {"initializer_range": 0.1}).train()
  config, params = compare.read(model, tmp_path)
  batches = dynamics.batches(TINY["vocab_size"])
  losses = dynamics.our_losses(config, params, batches, name)
  assert losses[-1] < losses[0] - 0.5
  np.testing.assert_allclose(losses, dynamics.their_losses(model, batches, name), atol=1e-3, rtol=0)
