"""Fill the blanks of a text: the likeliest pieces for each [MASK], with their probabilities.

  python -m tools.fill_mask --checkpoint=runs/quickstart-bert --top_k=5 "Paris is the [MASK] of France."

The checkpoint is a workdir, a folder in Hugging Face layout, hf:ORG/NAME, or a TF1 checkpoint of the originals. Several
texts may follow, each with one or more [MASK], which is so spelled for every model; every blank is filled as if the
others stayed blank.
"""

import json
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from data.rows import layout, pad, padded, segment_ids
from data.sentencepiece import BLANK
from data.tokenizers import Tokenizer
from data.wordpiece import MASK
from pretrained.load import Pretrained, load
from tools import cli
from tools.families import family_of


def encode(text: str, tokenizer: Tokenizer, cls_last: bool | None = None) -> np.ndarray:
  """Returns the ids of a row of the text, where each "[MASK]" in it is the mask. int32 [length]."""
  first, *others = text.split(MASK)
  ids = [*tokenizer.encode(first)]
  for part in others:
    ids += [tokenizer.mask_id, *_behind(part, tokenizer)]
  return layout(tokenizer, ids, cls_last=cls_last)


def _behind(part: str, tokenizer: Tokenizer) -> Sequence[int]:
  """The ids of what stands behind a [MASK].

  SentencePiece begins whatever it is given with a "▁"; without white space there that goes, if what remains is a piece:
  so "[MASK]." is the mask and the full stop that ends any sentence.
  """
  ids = tokenizer.encode(part)
  if tokenizer.name != "sentencepiece" or not len(ids) or part[0].isspace():
    return ids
  first = tokenizer.pieces[ids[0]]
  if first == BLANK:
    return ids[1:]
  bare = first.removeprefix(BLANK)
  return [tokenizer.pieces.index(bare), *ids[1:]] if bare in tokenizer.pieces else ids


def fill_mask(pretrained: Pretrained, texts: Sequence[str], top_k: int) -> list[list[list[tuple[str, float]]]]:
  """Returns the `top_k` likeliest (piece, probability) for every [MASK] of every text.

  Raises:
    ValueError: a text without [MASK], or one too long for the model.
  """
  tokenizer, family = pretrained.tokenizer, family_of(pretrained.config)
  longest = family.longest(pretrained.config)
  rows = [encode(text, tokenizer, family.cls_last) for text in texts]
  for text, row in zip(texts, rows, strict=True):
    if tokenizer.mask_id not in row:
      raise ValueError(f"no {MASK} in {text!r}")
    if longest and len(row) > longest:
      raise ValueError(f"a text of {len(row)} tokens, more than the model's {longest}: {text[:60]!r}…")
  segments = [segment_ids(tokenizer, len(row) - 2, cls_last=family.cls_last) for row in rows]
  columns = padded(tokenizer, rows, segments, cls_last=family.cls_last)
  is_blank = columns["tokens"] == tokenizer.mask_id
  results = []
  for row, count in zip(probabilities(pretrained, columns, is_blank), is_blank.sum(axis=1), strict=True):
    best = np.argsort(-row[:count], axis=-1, kind="stable")[:, :top_k]
    results.append([[(tokenizer.pieces[i], float(p[i])) for i in ids] for ids, p in zip(best, row, strict=False)])
  return results


def probabilities(pretrained: Pretrained, columns: dict[str, np.ndarray], is_blank: np.ndarray) -> np.ndarray:
  """Returns float32 [texts, blanks, pieces], over the pieces that the tokenizer has.

  Args:
    pretrained: the model.
    columns: a batch of rows, see data.rows.padded.
    is_blank: bool [texts, length]. A row's slots past its own number of blanks hold anything.
  """
  config = pretrained.config
  positions = pad([np.flatnonzero(row) for row in is_blank], 0)

  @jax.jit
  def forward(params, columns, is_blank, positions):
    return jax.nn.softmax(family_of(config).fill(config, params, columns, is_blank, positions), axis=-1)

  result = forward(pretrained.params, *jax.tree.map(jnp.asarray, (columns, is_blank, positions)))
  return np.asarray(result)[:, :, : pretrained.tokenizer.vocab_size]


def main() -> None:
  parser = cli.parser(__doc__)
  parser.add_argument("--checkpoint", required=True, help="WORKDIR[@STEP], model folder, hf:ORG/NAME or TF1 checkpoint")
  parser.add_argument("--top_k", type=int, default=5, help="how many pieces a blank [%(default)s]")
  parser.add_argument("--json", action="store_true", help="a JSON object a text instead of a table")
  parser.add_argument("texts", nargs="+", metavar="text", help='text with "[MASK]" in it')
  args = parser.parse_args()
  if args.top_k < 1:
    raise ValueError(f"--top_k={args.top_k} must be at least 1")

  pretrained = load(args.checkpoint)
  if (head := family_of(pretrained.config).head) in pretrained.missing:
    raise ValueError(f"{args.checkpoint}: the model has no head that predicts words ({head}), so it cannot fill blanks")
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
