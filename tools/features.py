"""Vectors of texts: rows of tokens, batches of few shapes, hidden states, and what is taken of them."""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import tqdm

from data.pairs import truncated
from data.rows import layout, padded, segment_ids
from data.tokenizers import Tokenizer
from models.pretraining import PretrainingModel
from models.primitives import ModelConfig
from pretrained.load import Pretrained
from tools.families import Family, family_of

POOLING = ("none", "cls", "mean", "max")
WORDS = ("first", "mean")
MAX_LENGTH = 512  # where the model sets no limit: what XLNet was trained with
_ENCODED_AT_ONCE = 1024  # texts
_WINDOW = 1 << 26  # floats that wait on the host until their lines' turn comes: 256 MiB


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
  """One text or a pair of texts.

  Attributes:
    tokens: int32 [length], special ones included.
    segment_ids: int32 [length].
    words: the text's words, where vectors are wanted for each.
    spans: int64 [words, 2], each word's first token and one past its last.
  """

  tokens: np.ndarray
  segment_ids: np.ndarray
  words: tuple[str, ...] = ()
  spans: np.ndarray | None = None


def longest_row(config: ModelConfig, asked: int | None) -> int:
  """Returns how many tokens a row may have: as many as --max_length asks for, or else as the model can read.

  Raises:
    ValueError: too few for a text, or too many for the model.
  """
  longest = family_of(config).longest(config)
  length = asked if asked is not None else longest or MAX_LENGTH
  if not 8 <= length <= (longest or length):
    allowed = f"lie in 8 to the model's {longest}" if longest else "be at least 8"
    raise ValueError(f"--max_length={length} must {allowed}")
  return length


def make_rows(
  tokenizer: Tokenizer,
  texts: Iterable[Sequence[str]],
  max_length: int,
  *,
  truncate: bool = False,
  by_words: bool = False,
  cls_last: bool | None = None,
) -> list[Row]:
  """Returns a row for each text, or pair of texts.

  Args:
    texts: one or two strings each.
    max_length: tokens of a row, special ones included.
    truncate: longer rows lose their end; of a pair, the longer text loses first (as in the original).
    by_words: words are what white space separates; each is cut into pieces by itself.
    cls_last: whether the model's rows end with the cls piece; None = as the tokenizer's family.

  Raises:
    ValueError: a text, or a word of it, has no tokens, or a row is too long; names the line, counted from 1.
  """
  rows, empty, long = [], [], []
  texts = iter(texts)
  with tqdm.tqdm(desc="tokens", unit="line", disable=None) as progress:
    while some := list(itertools.islice(texts, _ENCODED_AT_ONCE)):
      for words, ids in _encoded(tokenizer, some, by_words):
        if not all(len(piece) for segment in ids for piece in segment) or not all(ids):
          empty.append(len(rows) + 1)
        elif not truncate and sum(len(p) for s in ids for p in s) + len(ids) + 1 > max_length:
          long.append(len(rows) + 1)
        rows.append(None if empty or long else _row(tokenizer, words, ids, max_length, cls_last))
      progress.update(len(some))
  if empty:
    what = "a word that no token stands for" if by_words else "no text that a token stands for"
    raise ValueError(f"{_lines(empty)}: {what}; each line gives one row of the output, so mend or remove it")
  if long:
    raise ValueError(f"{_lines(long)}: more than {max_length} tokens (--max_length); --truncate cuts off the end")
  return rows


def _lines(numbers: list[int]) -> str:
  more = f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
  return f"line{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers[:5]))}{more}"


def _encoded(
  tokenizer: Tokenizer, texts: Sequence[Sequence[str]], by_words: bool
) -> Iterator[tuple[list[str], list[list[np.ndarray]]]]:
  """Yields for each text its words (or whole segments), and the ids of these, by segment."""
  split = [[part.split() if by_words else [part] for part in text] for text in texts]
  ids = iter(tokenizer.encode_batch([one for text in split for part in text for one in part]))
  for text in split:
    yield [one for part in text for one in part], [[next(ids) for _ in part] for part in text]


def _row(
  tokenizer: Tokenizer, words: list[str], ids: list[list[np.ndarray]], max_length: int, cls_last: bool | None
) -> Row:
  lengths = np.array([sum(map(len, segment)) for segment in ids] + [0] * (2 - len(ids)))
  kept = truncated(lengths[None], max_length - len(ids) - 1)[0]
  segments = [np.concatenate(segment)[:n] for segment, n in zip(ids, kept, strict=False)]
  tokens = layout(tokenizer, *segments, cls_last=cls_last)
  spans, at = [], int(tokens[0] == tokenizer.cls_id)
  for segment, n in zip(ids, kept, strict=False):
    ends = np.minimum(np.cumsum([len(piece) for piece in segment]), n)
    spans.append(at + np.stack([np.concatenate([[0], ends[:-1]]), ends], axis=1))
    at += n + 1
  spans = np.concatenate(spans)
  left = spans[:, 1] > spans[:, 0]
  in_segments = segment_ids(tokenizer, *kept[: len(ids)], cls_last=cls_last)
  return Row(tokens, in_segments, tuple(w for w, has in zip(words, left, strict=True) if has), spans[left])


def batches(
  lengths: np.ndarray, batch_tokens: int, longest: int, shrink: bool
) -> Iterator[tuple[np.ndarray, int, int]]:
  """Cuts rows into batches of few shapes, the longest rows first, and yields (rows, row length, number of slots).

  Lengths are powers of two from 16 and one and a half times these, at most `longest`. All batches of a length have the
  same number of slots; with `shrink`, the last batch has only as many as it needs, rounded up to a power of two.
  """
  order, start = np.argsort(-lengths, kind="stable"), 0
  while start < len(order):
    length = _padded(int(lengths[order[start]]), longest)
    slots = max(batch_tokens // length, 1)
    rows = order[start : start + slots]
    start += len(rows)
    yield rows, length, min(slots, 1 << (len(rows) - 1).bit_length()) if shrink and start == len(order) else slots


def _padded(length: int, longest: int) -> int:
  power = 1 << max(length - 1, 15).bit_length()
  return min(power * 3 // 4 if 16 < length <= power * 3 // 4 else power, longest)


def vectors(
  pretrained: Pretrained,
  rows: Sequence[Row],
  layers: Sequence[int],
  *,
  pooling: str = "none",
  normalize: bool = False,
  batch_tokens: int = 2048,
) -> Iterator[dict[str, np.ndarray]]:
  """Yields for each row, in order, what the model makes of it.

  Args:
    pretrained: the model.
    rows: laid out as its family reads them, see `make_rows`.
    layers: which states, 0 (the input of the first layer) to num_layers (the output of the last).
    pooling: one of POOLING. The mean and the maximum run over all tokens, special ones included.
    normalize: pooled vectors get length 1.
    batch_tokens: tokens of a batch, padding included.

  Returns:
    float32 arrays: pooled, `embeddings` [layers * width], the layers' vectors one after another. With pooling "none",
    `hidden_rep` [length, layers, width], and `cls_head` [width], the pooler's output, if the model has a pooler.
  """
  config = dataclasses.replace(pretrained.config, unroll=1)  # compiles in a moment, for each shape
  family = family_of(config)
  forward = make_forward(config, tuple(layers), pooling, normalize)
  lengths = np.array([len(row.tokens) for row in rows])
  params = {name: pretrained.params[name] for name in family.modules if name in pretrained.params}
  params = jax.device_put(params)
  run = functools.partial(_run, forward, params, pretrained.tokenizer, family, rows)
  longest = family.longest(config) or int(lengths.max(initial=1))
  own = lambda x, length: x[-length:] if family.cls_last else x[:length]
  with tqdm.tqdm(total=len(rows), desc="lines", unit="line", disable=None) as progress:
    for window in _windows(lengths, (1 if pooling != "none" else lengths) * len(layers) * config.hidden_size):
      shapes = batches(lengths[window], batch_tokens, longest, shrink=window[-1] == len(rows) - 1)
      plan = [(window[some], *shape) for some, *shape in shapes]
      results = [None] * len(window)
      for (indices, *_), outputs in zip(plan, _ahead(run, plan), strict=True):
        for slot, index in enumerate(indices):
          results[index - window[0]] = {
            name: own(x[slot], lengths[index]) if name == "hidden_rep" else x[slot] for name, x in outputs.items()
          }
        progress.update(len(indices))
      yield from results


def _windows(lengths: np.ndarray, sizes: np.ndarray) -> Iterator[np.ndarray]:
  """Consecutive rows that together are at most _WINDOW floats (or one row), as indices."""
  totals = np.cumsum(np.broadcast_to(sizes, lengths.shape))
  start, before = 0, 0
  while start < len(lengths):
    stop = max(int(np.searchsorted(totals, before + _WINDOW, side="right")), start + 1)
    yield np.arange(start, stop)
    start, before = stop, totals[stop - 1]


def _run(
  forward: Callable, params: dict, tokenizer: Tokenizer, family: Family, rows: Sequence[Row], batch: tuple
) -> dict[str, jax.Array]:
  indices, length, slots = batch
  some = [rows[i] for i in indices]
  columns = padded(
    tokenizer, [row.tokens for row in some], [row.segment_ids for row in some], length, cls_last=family.cls_last
  )
  unused = np.zeros((slots - len(some), length), np.int32)
  return forward(params, {name: jnp.asarray(np.concatenate([x, unused])) for name, x in columns.items()})


def _ahead(function: Callable, jobs: Iterable) -> Iterator[dict[str, np.ndarray]]:
  """The results on the host, each job started before the one before it is waited for."""
  started = collections.deque()
  for job in jobs:
    started.append(function(job))
    if len(started) == 2:
      yield jax.device_get(started.popleft())
  while started:
    yield jax.device_get(started.popleft())


def make_forward(config: ModelConfig, layers: tuple[int, ...], pooling: str, normalize: bool) -> Callable:
  """The compiled function of (params, a batch as `data.rows.padded` makes it) that `vectors` runs for each batch."""
  family = family_of(config)
  last_only = set(layers) == {config.num_layers}

  @jax.jit
  def forward(params, rows):
    hidden = family.states(config, params, rows, not last_only)
    last = hidden if last_only else hidden[-1]
    chosen = jnp.stack([hidden if last_only else hidden[i] for i in layers], axis=2).astype(jnp.float32)
    if pooling == "none":
      result = {"hidden_rep": chosen}
      if "pooler" in params:
        pooled = PretrainingModel(config).apply({"params": params}, last, method="pool")
        result["cls_head"] = pooled.astype(jnp.float32)
      return result
    if pooling == "cls":
      pooled = chosen[:, -1 if family.cls_last else 0]
    else:
      pooled = _over_tokens(chosen, (rows["sequence_ids"] > 0)[:, :, None, None], pooling)
    pooled = pooled.reshape(chosen.shape[0], -1)
    if normalize:
      pooled /= jnp.maximum(jnp.linalg.norm(pooled, axis=1, keepdims=True), 1e-12)
    return {"embeddings": pooled}

  return forward


def _over_tokens(hidden: jax.Array, real: jax.Array, pooling: str) -> jax.Array:
  """[batch, layers, width] of hidden [batch, length, layers, width]; `real` is bool [batch, length, 1, 1]."""
  if pooling == "max":
    return jnp.where(real, hidden, -jnp.inf).max(axis=1)
  return jnp.where(real, hidden, 0).sum(axis=1) / jnp.maximum(real.sum(axis=1), 1)


def of_words(hidden: np.ndarray, spans: np.ndarray, how: str) -> np.ndarray:
  """float32 [words, layers, width] of `hidden_rep`: the vector of each word's `first` piece, or its pieces' `mean`."""
  if how == "first":
    return hidden[spans[:, 0]]
  # Sums from each index to the next; every second one lies between words.
  sums = np.add.reduceat(hidden, spans.ravel(), axis=0)[::2]
  return sums / (spans[:, 1] - spans[:, 0]).astype(np.float32)[:, None, None]
