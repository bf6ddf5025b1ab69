"""Fill the blanks of a text: the likeliest pieces for each [MASK], with their probabilities.

  python -m tools.fill_mask --checkpoint=runs/quickstart-bert --top_k=5 "Paris is the [MASK] of France."

The checkpoint is a workdir or a model folder in Hugging Face layout. Several texts may follow, each with one or more
[MASK]; every blank is filled as if the others stayed blank.
"""

import json
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from data.rows import layout, pad
from data.tokenizers import Tokenizer
from data.wordpiece import MASK
from models.config import EncoderConfig
from models.pretraining import PretrainingModel
from pretrained.load import Pretrained, load
from tools import cli


def encode(text: str, tokenizer: Tokenizer) -> np.ndarray:
  """Returns the ids of [CLS] text [SEP], where each "[MASK]" in the text is the mask. int32 [length]."""
  first, *others = (tokenizer.encode(part) for part in text.split(MASK))
  ids = [*first]
  for part in others:
    ids += [tokenizer.mask_id, *part]
  return layout(tokenizer, ids)


def fill_mask(pretrained: Pretrained, texts: Sequence[str], top_k: int) -> list[list[list[tuple[str, float]]]]:
  """Returns the `top_k` likeliest (piece, probability) for every [MASK] of every text.

  Raises:
    ValueError: a text without [MASK], or one too long for the model.
  """
  config, tokenizer = pretrained.config, pretrained.tokenizer
  rows = [encode(text, tokenizer) for text in texts]
  for text, row in zip(texts, rows, strict=True):
    if tokenizer.mask_id not in row:
      raise ValueError(f"no {MASK} in {text!r}")
    if len(row) > config.max_length:
      raise ValueError(f"a text of {len(row)} tokens, more than the model's {config.max_length}: {text[:60]!r}…")
  blanks = [np.flatnonzero(row == tokenizer.mask_id) for row in rows]
  probabilities = _probabilities(
    pretrained, pad(rows, tokenizer.pad_id), pad([row >= 0 for row in rows], 0), pad(blanks, 0)
  )
  results = []
  for row, blank in zip(probabilities, blanks, strict=True):
    best = np.argsort(-row[: len(blank)], axis=-1, kind="stable")[:, :top_k]
    results.append([[(tokenizer.pieces[i], float(p[i])) for i in ids] for ids, p in zip(best, row, strict=False)])
  return results


def _probabilities(pretrained: Pretrained, tokens: np.ndarray, sequence_ids: np.ndarray, positions: np.ndarray):
  """float32 [texts, blanks, pieces], over the pieces that the tokenizer has."""
  model = PretrainingModel(pretrained.config)

  @jax.jit
  def forward(params, tokens, sequence_ids, positions):
    hidden = model.apply({"params": params}, tokens, jnp.zeros_like(tokens), sequence_ids, method="hidden")[-1]
    logits = model.apply({"params": params}, hidden, positions, method="mlm_logits")
    return jax.nn.softmax(logits, axis=-1)

  probabilities = forward(pretrained.params, *map(jnp.asarray, (tokens, sequence_ids, positions)))
  return np.asarray(probabilities)[:, :, : pretrained.tokenizer.vocab_size]


def main() -> None:
  parser = cli.parser(__doc__)
  parser.add_argument("--checkpoint", required=True, help="workdir or model folder")
  parser.add_argument("--top_k", type=int, default=5, help="how many pieces a blank [%(default)s]")
  parser.add_argument("--json", action="store_true", help="a JSON object a text instead of a table")
  parser.add_argument("texts", nargs="+", metavar="text", help='text with "[MASK]" in it')
  args = parser.parse_args()
  if args.top_k < 1:
    raise ValueError(f"--top_k={args.top_k} must be at least 1")

  pretrained = load(args.checkpoint)
  if "mlm_head" in pretrained.missing or not isinstance(pretrained.config, EncoderConfig):
    raise ValueError(f"{args.checkpoint}: the model has no masked-word head, so it cannot fill blanks")
  for text, blanks in zip(args.texts, fill_mask(pretrained, args.texts, args.top_k), strict=True):
    if args.json:
      found = [[{"piece": piece, "probability": p} for piece, p in blank] for blank in blanks]
      print(json.dumps({"text": text, "masks": found}, ensure_ascii=False))
      continue
    print(text)
    for i, blank in enumerate(blanks):
      if len(blanks) > 1:
        print(f"  {MASK} {i + 1}")
      for piece, p in blank:
        print(f"  {p:7.4f}  {piece}")


if __name__ == "__main__":
  cli.run(main)
