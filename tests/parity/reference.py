"""`transformers` models with random weights, batches for them, and what they compute."""

import numpy as np
import torch
from transformers import AlbertConfig, AlbertForPreTraining, BertConfig, BertForPreTraining, PreTrainedModel

_CLASSES = {"bert": (BertConfig, BertForPreTraining), "albert": (AlbertConfig, AlbertForPreTraining)}
_NO_DROPOUT = {
  "bert": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
  "albert": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "classifier_dropout_prob": 0.0},
}


def random_model(family: str, seed: int = 0, **fields) -> PreTrainedModel:
  """Returns a model for pretraining without dropout, every parameter of it random: no bias is 0, no scale is 1."""
  config, model = _CLASSES[family]
  torch.manual_seed(seed)
  model = model(config(**fields, **_NO_DROPOUT[family])).eval()
  with torch.no_grad():
    for name, parameter in model.named_parameters():
      if parameter.ndim == 1:
        parameter.add_(0.1 * torch.randn_like(parameter))
      assert parameter.std() > 0, name
  return model


def padded_batch(vocab_size: int, lengths: tuple[int, ...], length: int, seed: int = 0) -> dict[str, np.ndarray]:
  """Returns rows of random tokens in two segments: "tokens", "segment_ids", "sequence_ids", int32 [rows, length]."""
  rng = np.random.default_rng(seed)
  shape = (len(lengths), length)
  index = np.broadcast_to(np.arange(length), shape)
  real = index < np.array(lengths)[:, None]
  second = real & (index >= np.array(lengths)[:, None] // 2)
  batch = {"tokens": np.where(real, rng.integers(1, vocab_size, shape), 0), "segment_ids": second, "sequence_ids": real}
  return {name: x.astype(np.int32) for name, x in batch.items()}


def arguments(batch: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
  """The batch under their names."""
  theirs = {"tokens": "input_ids", "segment_ids": "token_type_ids", "sequence_ids": "attention_mask"}
  return {name: torch.from_numpy(batch[ours]).long() for ours, name in theirs.items()}


def outputs(model: PreTrainedModel, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
  """Returns hidden states [layers + 1, rows, length, width], pooled, MLM logits at every position, pair logits.

  They give a state for each block of a layer; the last one of each layer is returned.
  """
  with torch.no_grad():
    encoded = model.base_model(**arguments(batch), output_hidden_states=True)
    heads = model(**arguments(batch))
  blocks = getattr(model.config, "inner_group_num", 1)
  return {
    "hidden": torch.stack(encoded.hidden_states[::blocks]).numpy(),
    "pooled": encoded.pooler_output.numpy(),
    "mlm_logits": heads.prediction_logits.numpy(),
    "pair_logits": (heads.sop_logits if "sop_logits" in heads else heads.seq_relationship_logits).numpy(),
  }
