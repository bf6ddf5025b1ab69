"""Whether a model that tells pairs of segments looks at more than the words that they share."""

import dataclasses
import json
from typing import NamedTuple

import jax
import numpy as np
import tqdm
from etils import epath

from data.corpus import Corpus
from data.pipeline import Batch, PairSource
from data.places import reach
from data.rows import layout, padded, segment_ids
from pretrained.hub import PREFIX
from pretrained.load import Pretrained
from tools import geometry_measures as measures
from tools.families import family_of
from training.saved import at_step
from training.step import EVAL_SEED

PAIRS = ("nsp", "sop")
_BATCH_TOKENS = 2048


class Recipe(NamedTuple):
  """What pairs are made of: what `data.pipeline.PairSource` must know, as the run had it.

  Attributes:
    pair: one of PAIRS, or "none", or "" where nothing says it.
    length: tokens of a row.
  """

  pair: str = ""
  length: int = 128
  short_rate: float = 0.1
  single_sentence: str = ""


def recipe_of(checkpoint: str) -> Recipe:
  """Returns what a workdir's config.json says; of any other checkpoint nothing is known."""
  name, _ = at_step(checkpoint)
  if name.startswith(PREFIX):
    return Recipe()
  folder: epath.Path = reach(name)
  if not (folder / "checkpoints").exists():
    return Recipe()
  written = json.loads((folder / "config.json").read_text(encoding="utf-8"))
  data, stages = written.get("data") or {}, written.get("stages") or [written]
  fields = {
    "pair": (written.get("objective") or {}).get("pair"),
    "length": stages[-1].get("length"),
    "short_rate": data.get("short_rate"),
    "single_sentence": data.get("single_sentence"),
  }
  return Recipe(**{name: value for name, value in fields.items() if value is not None})


def overlap(pretrained: Pretrained, corpus: str, recipe: Recipe, count: int) -> dict:
  """Measures accuracy on held-out pairs by how many pieces their segments share, see `geometry_measures.by_overlap`.

  The pairs are the first of those that a run of this recipe is evaluated on. An XLNet reads them as a text of their
  own, without memory.

  Args:
    pretrained: a model with a head for pairs.
    corpus: a prepared corpus with a held-out split, of the model's vocabulary.
    recipe: what the pairs are.
    count: of pairs, at most as many as an epoch has.
  """
  source = PairSource(
    Corpus.open(corpus, "heldout"),
    pretrained.tokenizer,
    recipe.length,
    EVAL_SEED,
    short_rate=recipe.short_rate,
    pair=recipe.pair,
    single_sentence=recipe.single_sentence,
  )
  count = min(count, source.num_rows)
  slots = min(max(_BATCH_TOKENS // recipe.length, 1), count)
  config = dataclasses.replace(pretrained.config, unroll=1)  # compiles in a moment
  family = family_of(config)
  forward = jax.jit(lambda params, rows: family.pair(config, params, rows))
  overlaps, labels, odds = [], [], []
  with tqdm.tqdm(total=count, desc="pairs", unit="pair", disable=None) as progress:
    for start in range(0, count, slots):
      batch = source.rows(start + np.arange(slots))  # an epoch follows the other, so every batch is full
      parts = segments(batch)
      rows = [layout(pretrained.tokenizer, *part, cls_last=family.cls_last) for part in parts]
      ids = [segment_ids(pretrained.tokenizer, *map(len, part), cls_last=family.cls_last) for part in parts]
      columns = padded(pretrained.tokenizer, rows, ids, recipe.length, cls_last=family.cls_last)
      logits = np.asarray(forward(pretrained.params, columns), np.float64)
      odds.append(logits[:, 0] - logits[:, 1])
      overlaps += [measures.jaccard(*part) for part in parts]
      labels.append(batch["pair_label"])
      progress.update(slots)
  labels, odds = np.concatenate(labels)[:count], np.concatenate(odds)[:count]
  return {"pair": recipe.pair, "length": recipe.length} | measures.by_overlap(np.array(overlaps)[:count], labels, odds)


def segments(batch: Batch) -> list[tuple[np.ndarray, np.ndarray]]:
  """The pieces of A and B of each row [CLS] A [SEP] B [SEP]."""
  ends, of_b = batch["sequence_ids"].sum(axis=1), batch["segment_ids"].sum(axis=1)
  return [
    (tokens[1 : end - b - 1], tokens[end - b : end - 1])
    for tokens, end, b in zip(batch["tokens"], ends, of_b, strict=True)
  ]
