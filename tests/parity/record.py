"""Record what `transformers` computes from small random weights: the fixtures of tests/pretrained.

  python -m tests.parity.record

Needs benchmarks/requirements.txt. Writes tests/fixtures/bert/: a model folder (config.json, model.safetensors,
vocab.txt), and for each activation the outputs for one padded batch (ACTIVATION.npz).
"""

import pathlib
import shutil

import numpy as np
import torch
from transformers import BertConfig, BertForPreTraining

from data.wordpiece import SPECIAL
from tools import cli

FOLDER = pathlib.Path(__file__).parent.parent / "fixtures" / "bert"
ACTIVATIONS = ("gelu", "gelu_new")


def random_bert(seed: int = 0, **fields) -> BertForPreTraining:
  """Returns a BERT without dropout, every parameter of it random: no bias is 0, no scale is 1."""
  torch.manual_seed(seed)
  model = BertForPreTraining(BertConfig(**fields, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)).eval()
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


def outputs(model: BertForPreTraining, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
  """Returns hidden states [layers + 1, rows, length, width], pooled, MLM logits at every position, NSP logits."""
  tensors = {name: torch.from_numpy(x).long() for name, x in batch.items()}
  arguments = {
    "input_ids": tensors["tokens"],
    "token_type_ids": tensors["segment_ids"],
    "attention_mask": tensors["sequence_ids"],
  }
  with torch.no_grad():
    encoded = model.bert(**arguments, output_hidden_states=True)
    heads = model(**arguments)
  return {
    "hidden": torch.stack(encoded.hidden_states).numpy(),
    "pooled": encoded.pooler_output.numpy(),
    "mlm_logits": heads.prediction_logits.numpy(),
    "pair_logits": heads.seq_relationship_logits.numpy(),
  }


def main() -> None:
  cli.parser(__doc__).parse_args()
  fields = {
    "vocab_size": 96,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 24,
    "initializer_range": 0.3,
  }
  shutil.rmtree(FOLDER, ignore_errors=True)
  random_bert(**fields, hidden_act="gelu").save_pretrained(FOLDER)
  (FOLDER / "generation_config.json").unlink(missing_ok=True)
  letters = "abcdefghijklmnopqrstuvwxyz"
  words = ["paris", "is", "the", "capital", "of", "france", ".", "city", "a", "cat", "sat"]
  pieces = [*SPECIAL, *words, *(x for x in letters if x != "a"), *(f"##{x}" for x in letters)]
  pieces += [f"[unused{i}]" for i in range(fields["vocab_size"] - len(pieces))]
  (FOLDER / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
  batch = padded_batch(fields["vocab_size"], (16, 11, 3), 16)
  for activation in ACTIVATIONS:
    model = random_bert(**fields, hidden_act=activation)
    expected = outputs(model, batch)
    real = batch["sequence_ids"] > 0
    expected["hidden"], expected["mlm_logits"] = expected["hidden"][:, real], expected["mlm_logits"][real]
    np.savez_compressed(FOLDER / f"{activation}.npz", **batch, **expected)


if __name__ == "__main__":
  cli.run(main)
