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
from data.rows import layout, pad
from data.tokenizers import Tokenizer
from models.config import EncoderConfig
from models.pretraining import PretrainingModel
from pretrained.load import Pretrained

POOLING = ("none", "cls", "mean", "max")
WORDS = ("first", "mean")
_ENCODED_AT_ONCE = 1024  # texts
_WINDOW = 1 << 26  # floats that wait on the host until their lines' turn comes: 256 MiB


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
  """One text or a pair of texts.

  Attributes:
    tokens: int32 [length], special ones included.
    second: where the second segment begins; `length` if there is none.
    words: the text's words, where vectors are wanted for each.
    spans: int64 [words, 2], each word's first token and one past its last.
  """

  tokens: np.ndarray
  second: int
  words: tuple[str, ...] = ()
  spans: np.ndarray | None = None

  @property
  def segment_ids(self) -> np.ndarray:
    """int32 [length]."""
    return (np.arange(len(self.tokens)) >= self.second).astype(np.int32)


def make_rows(
  tokenizer: Tokenizer,
  texts: Iterable[Sequence[str]],
  max_length: int,
  *,
  truncate: bool = False,
  by_words: bool = False,
) -> list[Row]:
  """Returns a row for each text, or pair of texts.

  Args:
    texts: one or two strings each.
    max_length: tokens of a row, special ones included.
    truncate: longer rows lose their end; of a pair, the longer text loses first (as in the original).
    by_words: words are what white space separates; each is cut into pieces by itself.

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
        rows.append(None if empty or long else _row(tokenizer, words, ids, max_length))
      progress.update(len(some))
  if empty:
    what = "a word that no token stands for" if by_words else "no text that a token stands for"
    raise ValueError(f"{_lines(empty)}: {what}; each line gives one row of the output, so mend or remove it")
  if long:
    raise ValueError(f"{_lines(long)}: more than {max_length} tokens; --truncate cuts off the end")
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


def _row(tokenizer: Tokenizer, words: list[str], ids: list[list[np.ndarray]], max_length: int) -> Row:
  lengths = np.array([sum(map(len, segment)) for segment in ids] + [0] * (2 - len(ids)))
  kept = truncated(lengths[None], max_length - len(ids) - 1)[0]
  segments = [np.concatenate(segment)[:n] for segment, n in zip(ids, kept, strict=False)]
  tokens = layout(tokenizer, *segments)
  spans, at = [], 1
  for segment, n in zip(ids, kept, strict=False):
    ends = np.minimum(np.cumsum([len(piece) for piece in segment]), n)
    spans.append(at + np.stack([np.concatenate([[0], ends[:-1]]), ends], axis=1))
    at += n + 1
  spans = np.concatenate(spans)
  left = spans[:, 1] > spans[:, 0]
  second = kept[0] + 2 if len(ids) == 2 else len(tokens)
  return Row(tokens, int(second), tuple(w for w, has in zip(words, left, strict=True) if has), spans[left])


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
    layers: which states, 0 (the input of the first layer) to num_layers (the output of the last).
    pooling: one of POOLING. The mean and the maximum run over all tokens, special ones included.
    normalize: pooled vectors get length 1.
    batch_tokens: tokens of a batch, padding included.

  Returns:
    float32 arrays: pooled, `embeddings` [layers * width], the layers' vectors one after another. With pooling "none",
    `hidden_rep` [length, layers, width], and `cls_head` [width], the pooler's output, if the model has a pooler.
  """
  config = dataclasses.replace(pretrained.config, unroll=1)  # compiles in a moment, for each shape
  forward = make_forward(config, tuple(layers), pooling, normalize)
  lengths = np.array([len(row.tokens) for row in rows])
  params = {name: pretrained.params[name] for name in ("encoder", "pooler") if name in pretrained.params}
  params = jax.device_put(params)
  run = functools.partial(_run, forward, params, pretrained.tokenizer.pad_id, rows)
  with tqdm.tqdm(total=len(rows), desc="lines", unit="line", disable=None) as progress:
    for window in _windows(lengths, (1 if pooling != "none" else lengths) * len(layers) * config.hidden_size):
      shapes = batches(lengths[window], batch_tokens, config.max_length, shrink=window[-1] == len(rows) - 1)
      plan = [(window[some], *shape) for some, *shape in shapes]
      results = [None] * len(window)
      for (indices, *_), outputs in zip(plan, _ahead(run, plan), strict=True):
        for slot, index in enumerate(indices):
          results[index - window[0]] = {
            name: x[slot, : lengths[index]] if name == "hidden_rep" else x[slot] for name, x in outputs.items()
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


def _run(forward: Callable, params: dict, pad_id: int, rows: Sequence[Row], batch: tuple) -> dict[str, jax.Array]:
  indices, length, slots = batch
  some = [rows[i] for i in indices]
  columns = (
    pad([row.tokens for row in some], pad_id, length),
    pad([row.segment_ids for row in some], 0, length),
    pad([np.ones_like(row.tokens) for row in some], 0, length),
  )
  columns = [np.concatenate([x, np.zeros((slots - len(some), length), np.int32)]) for x in columns]
  return forward(params, *map(jnp.asarray, columns))


def _ahead(function: Callable, jobs: Iterable) -> Iterator[dict[str, np.ndarray]]:
  """The results on the host, each job started before the one before it is waited for."""
  started = collections.deque()
  for job in jobs:
    started.append(function(job))
    if len(started) == 2:
      yield jax.device_get(started.popleft())
  while started:
    yield jax.device_get(started.popleft())


def make_forward(config: EncoderConfig, layers: tuple[int, ...], pooling: str, normalize: bool) -> Callable:
  """The compiled function of (params, tokens, segment_ids, sequence_ids) that `vectors` runs for each batch."""
  model = PretrainingModel(config)
  last_only = set(layers) == {config.num_layers}

  def states(model: PretrainingModel, *row: jax.Array) -> jax.Array:
    return model.encoder(*row, every_layer=not last_only)

  @jax.jit
  def forward(params, tokens, segment_ids, sequence_ids):
    hidden = model.apply({"params": params}, tokens, segment_ids, sequence_ids, method=states)
    last = hidden if last_only else hidden[-1]
    chosen = jnp.stack([hidden if last_only else hidden[i] for i in layers], axis=2).astype(jnp.float32)
    if pooling == "none":
      result = {"hidden_rep": chosen}
      if "pooler" in params:
        result["cls_head"] = model.apply({"params": params}, last, method="pool").astype(jnp.float32)
      return result
    pooled = _pool(chosen, (sequence_ids > 0)[:, :, None, None], pooling).reshape(chosen.shape[0], -1)
    if normalize:
      pooled /= jnp.maximum(jnp.linalg.norm(pooled, axis=1, keepdims=True), 1e-12)
    return {"embeddings": pooled}

  return forward


def _pool(hidden: jax.Array, real: jax.Array, pooling: str) -> jax.Array:
  """[batch, layers, width] of hidden [batch, length, layers, width]; `real` is bool [batch, length, 1, 1]."""
  if pooling == "cls":
    return hidden[:, 0]
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
