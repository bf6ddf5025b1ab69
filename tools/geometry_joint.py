"""What is lost by predicting the words of a span each for itself: XLNet's "New York is a city" (Yang et al. 2019).

BERT's objective says log P(New | is a city) + log P(York | is a city); XLNet's says log P(New | is a city) + log
P(York | New, is a city), or in the other order. Every model can be asked for all three. Of an XLNet each conditional is
the query stream's, and both orders are factorisations it was trained in; of a masked language model a blank is filled
with the word before the next is asked for, and nothing makes its two orders agree.
"""

import dataclasses
import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from data.rows import layout, segment_ids
from data.tokenizers import Tokenizer
from pretrained.load import Pretrained
from tools.families import family_of

ORDERS = {"left_to_right": 1, "right_to_left": -1}
_SPAN = re.compile(r"([^\[\]]*)\[\s*([^\[\]]*[^\[\]\s])\s*\]([^\[\]]*)")


class Span(NamedTuple):
  """A row of text with a span to predict.

  Attributes:
    tokens: int32 [length], nothing hidden.
    segment_ids: int32 [length].
    positions: int64 [n], where the span's pieces stand.
    words: the span's words, as white space separates them.
    word: int64 [n], which of the words a piece is of.
  """

  tokens: np.ndarray
  segment_ids: np.ndarray
  positions: np.ndarray
  words: list[str]
  word: np.ndarray


def find_span(text: str, tokenizer: Tokenizer, cls_last: bool) -> Span:
  """Returns the row of a text with one span in brackets; the brackets go.

  Raises:
    ValueError: no span or several, a piece that reaches over its border, or a word that no piece stands for.
  """
  found = _SPAN.fullmatch(text)
  if not found:
    raise ValueError(f'{text!r}: put one span in brackets, as in "[New York] is a city"')
  before, inside, after = found.groups()
  start, end = len(before), len(before) + len(inside)
  ids, offsets = tokenizer.encode_with_offsets(before + inside + after)
  begins, ends = offsets[:, 0], np.maximum(offsets[:, 1], offsets[:, 0] + 1)  # a blank's span is empty
  touches = (begins < end) & (ends > start)
  at = np.flatnonzero((begins >= start) & (ends <= end))
  if touches.sum() != len(at) or not len(at):
    raise ValueError(f"{text!r}: the brackets cut a piece of the vocabulary; put them around whole words")
  if (ids[at] == tokenizer.unk_id).any():
    raise ValueError(f"{text!r}: the vocabulary has no pieces for all of {inside!r}")
  words = [start + match.start() for match in re.finditer(r"\S+", inside)]
  return Span(
    layout(tokenizer, ids, cls_last=cls_last),
    segment_ids(tokenizer, len(ids), cls_last=cls_last),
    at + (0 if cls_last else 1),
    inside.split(),
    np.searchsorted(words, begins[at], side="right") - 1,
  )


def joint(pretrained: Pretrained, text: str) -> dict:
  """Returns log-probabilities of a span in nats, its words predicted each for itself and one after another.

  Args:
    pretrained: a model with a head that predicts pieces.
    text: with the span in brackets.

  Returns:
    `text`, `words`, `pieces`; `independent`: by word (the sum over its pieces, all of the span hidden) `by_word`, and
    their sum `joint`; the same for each of ORDERS, where what comes before in the order is known, piece by piece, and
    `gap`: this joint less the independent one.

  Raises:
    ValueError: see `find_span`, or the text is too long for the model.
  """
  family = family_of(pretrained.config)
  span = find_span(text, pretrained.tokenizer, family.cls_last)
  longest = family.longest(pretrained.config)
  if longest and len(span.tokens) > longest:
    raise ValueError(f"{text[:60]!r}…: {len(span.tokens)} tokens, more than the model's {longest}; shorten it")
  count = len(span.positions)
  places = np.arange(count)
  orders = [places[::step] for step in ORDERS.values()]
  known = [np.isin(places, order[:before]) for order in orders for before in range(count)]
  found = log_probabilities(pretrained, span, np.stack([np.zeros(count, bool), *known]))
  by_word = lambda values: np.bincount(span.word, values, minlength=len(span.words)).tolist()
  independent = float(found[0].sum())
  result = {
    "text": text,
    "words": span.words,
    "pieces": [pretrained.tokenizer.pieces[i] for i in span.tokens[span.positions]],
    "independent": {"by_word": by_word(found[0]), "joint": independent},
  }
  for name, order, rows in zip(ORDERS, orders, np.split(found[1:], len(orders)), strict=True):
    chain = np.zeros(count)
    chain[order] = rows[places, order]
    result[name] = {"by_word": by_word(chain), "joint": float(chain.sum()), "gap": float(chain.sum()) - independent}
  return result


def log_probabilities(pretrained: Pretrained, span: Span, known: np.ndarray) -> np.ndarray:
  """float64 [cases, n]: log P of each piece of the span, in nats, given the text around it and what is known of it.

  Args:
    pretrained: the model.
    span: the text.
    known: bool [cases, n], which of the span's pieces are seen; what is given for these means nothing.
  """
  config = dataclasses.replace(pretrained.config, unroll=1)  # compiles in a moment
  family, cases = family_of(config), len(known)
  tokens = np.tile(span.tokens, (cases, 1))
  is_blank = np.zeros(tokens.shape, bool)
  is_blank[:, span.positions] = ~known
  columns = {
    "tokens": np.where(is_blank, pretrained.tokenizer.mask_id, tokens).astype(np.int32),
    "segment_ids": np.tile(span.segment_ids, (cases, 1)),
    "sequence_ids": np.ones_like(tokens),
  }
  positions = np.tile(span.positions, (cases, 1)).astype(np.int32)
  targets = jnp.asarray(span.tokens[span.positions])

  @jax.jit
  def forward(params, columns, is_blank, positions):
    logits = family.fill(config, params, columns, is_blank, positions)
    found = jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1)
    return jnp.take_along_axis(found, jnp.broadcast_to(targets, positions.shape)[..., None], axis=-1)[..., 0]

  given = jax.tree.map(jnp.asarray, (columns, is_blank, positions))
  return np.asarray(forward(pretrained.params, *given), np.float64)
