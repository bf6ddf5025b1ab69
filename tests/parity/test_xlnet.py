"""XLNet beside `transformers`, live: both streams, memory and logits on random weights, masks given explicitly."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
# ruff: noqa: E402

from pretrained import hf, names, xlnet
from tests.parity.xlnet_compare import ours
from tests.parity.xlnet_reference import BASE, LENGTH, ROWS, TINY, batch, random_model, theirs

pytestmark = pytest.mark.parity


def read(model, folder, tied: bool):
  """Our configuration and parameters, by way of a folder."""
  model.config.untie_r = not tied
  model.save_pretrained(folder)
  config, params, missing = hf.read_folder(folder)
  assert not missing
  assert config.untie_biases != tied
  return config, params


@pytest.mark.parametrize("targets", [True, False])
@pytest.mark.parametrize(
  ("tied", "remembered", "padded", "more"),
  [
    (False, 0, False, {}),
    (True, 9, True, {"mem_len": 9, "reuse_len": 6, "bi_data": True}),
    (False, 7, True, {"mem_len": 12, "clamp_len": 4, "ff_activation": "gelu_new"}),
    (False, 9, False, {"mem_len": 5, "reuse_len": 6, "bi_data": True, "ff_activation": "relu"}),
  ],
)
def test_random_weights(tied, remembered, padded, more, targets, tmp_path):
  compare(TINY, tied, remembered, padded, more, targets, tmp_path)


def test_random_weights_of_base_size(tmp_path):
  compare(BASE, False, 9, True, {"mem_len": 9, "bi_data": True}, True, tmp_path)


def compare(fields, tied, remembered, padded, more, targets, folder):
  model = random_model(fields, tied, **({"mem_len": None} | more))
  config, params = read(model, folder, tied)
  one = batch(fields["vocab_size"], padded=padded)
  rng = np.random.default_rng(1)
  shape = (ROWS, fields["n_layer"], remembered, fields["d_model"])
  memory = rng.normal(size=shape).astype(np.float32) if remembered else None
  # bi_data: the second half of the batch is read backwards.
  backward = np.arange(ROWS) >= ROWS // 2 if more.get("bi_data") else None
  content, query, logits, kept = theirs(model, one, memory, targets)
  output, our_logits = ours(config, params, one, memory, backward, targets, more.get("reuse_len") or 0)

  close = lambda a, b, name: np.testing.assert_allclose(a, b, atol=1e-4, rtol=0, err_msg=name)
  # What a padded position holds is nobody's business. Their last content is not computed here.
  states = content[:-1] if targets else content
  close(output.content[:, one["real"]], states[:, one["real"]], "content")
  if targets:
    close(output.query, query, "query")
    close(our_logits, logits, "logits")
  else:
    close(our_logits[one["real"]], logits[one["real"]], "logits")
  if config.mem_len:
    assert output.memory.shape == kept.shape
    real = np.concatenate(
      [np.ones((ROWS, remembered), bool), one["real"][:, : more.get("reuse_len") or LENGTH]], axis=1
    )
    real = np.broadcast_to(real[:, None, -config.mem_len :], kept.shape[:3])
    close(output.memory[real], kept[real], "memory")
  else:
    assert output.memory is None


@pytest.mark.parametrize("tied", [False, True])
def test_they_read_what_the_tables_write(tied, tmp_path):
  model = random_model(TINY, tied)
  config, params = read(model, tmp_path, tied)
  fields = xlnet.write_config(config)
  other = transformers.XLNetLMHeadModel(transformers.AutoConfig.for_model(**fields)).eval()
  written = {n: torch.from_numpy(x) for n, x in names.to_theirs(xlnet.ENTRIES, params, config).items()}
  incompatible = other.load_state_dict(written, strict=False)
  assert not incompatible.unexpected_keys
  assert incompatible.missing_keys == ["lm_loss.weight"]  # tied
  one = batch(TINY["vocab_size"])
  for a, b in zip(theirs(model, one, None, True), theirs(other, one, None, True), strict=True):
    np.testing.assert_array_equal(a, b)
