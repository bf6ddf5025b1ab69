"""Record what `transformers` computes from small random weights: the fixtures of tests/pretrained.

  python -m tests.parity.record

Needs benchmarks/requirements.txt. Writes tests/fixtures/bert/ and tests/fixtures/albert/: a model folder (config.json,
model.safetensors, vocab.txt), and for each activation the outputs for one padded batch (ACTIVATION.npz). And
tests/fixtures/xlnet/: config.json, model.safetensors, spiece.model, and the outputs of both streams (gelu.npz).
"""

import pathlib
import shutil

import numpy as np

from data.sentencepiece import BLANK, FAMILIES, UNK, SentencePiece
from data.sentencepiece_model import CONTROL, NORMAL, UNKNOWN, USER_DEFINED, build
from data.wordpiece import SPECIAL
from tests.parity import xlnet_reference
from tests.parity.reference import outputs, padded_batch, random_model
from tools import cli

FIXTURES = pathlib.Path(__file__).parent.parent / "fixtures"
# The first is what the folder's config.json says.
ACTIVATIONS = {"bert": ("gelu", "gelu_new"), "albert": ("gelu_new", "relu")}
_COMMON = {"vocab_size": 96, "num_attention_heads": 4, "max_position_embeddings": 24, "initializer_range": 0.3}
FIELDS = {
  "bert": _COMMON | {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64},
  "albert": _COMMON
  | {
    "embedding_size": 16,
    "hidden_size": 24,
    "num_hidden_layers": 4,
    "num_hidden_groups": 2,
    "inner_group_num": 2,
    "intermediate_size": 48,
  },
}
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_WORDS = ["paris", "is", "the", "capital", "of", "france", "city", "a", "cat", "sat"]


def write_vocabulary(folder: pathlib.Path, size: int) -> None:
  words = [*_WORDS[:6], ".", *_WORDS[6:]]
  pieces = [*SPECIAL, *words, *(x for x in _LETTERS if x != "a"), *(f"##{x}" for x in _LETTERS)]
  pieces += [f"[unused{i}]" for i in range(size - len(pieces))]
  (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")


def write_sentencepiece(folder: pathlib.Path, size: int) -> None:
  """XLNet's special pieces and symbols, then pieces of which the longer is always the likelier."""
  family = FAMILIES["xlnet"]
  kinds = dict.fromkeys(family.special, CONTROL) | {UNK: UNKNOWN} | dict.fromkeys(family.symbols, USER_DEFINED)
  pieces = [BLANK, *(BLANK + word for word in _WORDS), *_LETTERS, *"0123456789"]
  pieces += [BLANK + letter for letter in _LETTERS if letter != "a"]
  pieces += ["th", "in", "er", "an", "re", "on", "ed"][: size - len(kinds) - len(pieces)]
  entries = [(piece, 0.0, kind) for piece, kind in kinds.items()]
  entries += [(piece, len(piece) ** 2 / 100 - 10, NORMAL) for piece in pieces]
  assert len(entries) == size
  SentencePiece(build(entries, b"")).save(folder)


def record(family: str) -> None:
  folder, fields = FIXTURES / family, FIELDS[family]
  shutil.rmtree(folder, ignore_errors=True)
  random_model(family, **fields, hidden_act=ACTIVATIONS[family][0]).save_pretrained(folder)
  (folder / "generation_config.json").unlink(missing_ok=True)
  write_vocabulary(folder, fields["vocab_size"])
  batch = padded_batch(fields["vocab_size"], (16, 11, 3), 16)
  for activation in ACTIVATIONS[family]:
    expected = outputs(random_model(family, **fields, hidden_act=activation), batch)
    real = batch["sequence_ids"] > 0
    expected["hidden"], expected["mlm_logits"] = expected["hidden"][:, real], expected["mlm_logits"][real]
    np.savez_compressed(folder / f"{activation}.npz", **batch, **expected)


def record_xlnet() -> None:
  """With memory, padding, and half of the rows read backwards."""
  folder = FIXTURES / "xlnet"
  shutil.rmtree(folder, ignore_errors=True)
  fields = xlnet_reference.TINY | {"vocab_size": 96, "d_model": 24, "n_layer": 2, "mem_len": 9}
  model = xlnet_reference.random_model(fields, bi_data=True, reuse_len=6)
  model.save_pretrained(folder)
  (folder / "generation_config.json").unlink(missing_ok=True)
  write_sentencepiece(folder, fields["vocab_size"])
  batch = xlnet_reference.batch(fields["vocab_size"], padded=True)
  memory = np.random.default_rng(1).normal(size=(len(batch["tokens"]), 2, 9, 24)).astype(np.float32)
  content, query, logits, kept = xlnet_reference.theirs(model, batch, memory, targets=True)
  expected = {"content": content, "query": query, "logits": logits, "kept": kept}
  np.savez_compressed(folder / "gelu.npz", memory=memory, **batch, **expected)


def main() -> None:
  cli.parser(__doc__).parse_args()
  for family in FIELDS:
    record(family)
  record_xlnet()


if __name__ == "__main__":
  cli.run(main)
