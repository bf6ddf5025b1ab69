"""Where a model's vectors lie: how alike those of different texts are, and what the cosine of two texts says."""

from collections.abc import Sequence

import numpy as np

from pretrained.load import Pretrained
from tools import features
from tools import geometry_measures as measures
from tools.families import family_of
from tools.features import Row
from tools.geometry_measures import UnitSums, number, units

POOLING = ("cls", "mean", "max")
_GROUPS = 100  # of lines, for standard errors
_LEAST_LINES, _MOST_PIECES = 5, 500  # pieces whose self-similarity is taken


def anisotropy(pretrained: Pretrained, rows: Sequence[Row], seed: int) -> dict:
  """Measures mean cosines by layer (Ethayarajh 2019, sections 3.3 and 3.4), over all pairs and not a sample of them.

  Args:
    pretrained: the model.
    rows: one a line, at least two.
    seed: draws the pieces of the third measure, where there are more than 500.

  Returns:
    `lines`, `tokens`, `token_pairs`, `cls_pairs`, `pieces`, and for each of `layers` three pairs of a mean and its
    standard error, None where there is none: `tokens`, of any two tokens in different lines, special ones left out;
    `cls`, of two lines' cls vectors; `same_piece`, of one piece in two lines, the mean of the means of the pieces that
    occur in five lines or more (the paper's self-similarity).
  """
  if len(rows) < 2:
    raise ValueError(f"{len(rows)} line: a cosine is of two; give more lines")
  config, tokenizer = pretrained.config, pretrained.tokenizer
  cls = [-1 if family_of(config).cls_last else 0]
  text = [np.flatnonzero(~tokenizer.special[row.tokens]) for row in rows]
  pieces = measures.frequent_pieces(
    [row.tokens[at] for row, at in zip(rows, text, strict=True)], _LEAST_LINES, _MOST_PIECES, seed
  )
  place = np.full(len(tokenizer.special), -1)
  place[pieces] = np.arange(len(pieces))
  layers = range(config.num_layers + 1)
  groups = min(_GROUPS, len(rows))
  tokens, first, same = (
    UnitSums.zeros(keys, len(layers), config.hidden_size) for keys in (groups, groups, len(pieces))
  )
  for line, one in enumerate(features.vectors(pretrained, rows, layers)):
    hidden, at, group = units(one["hidden_rep"]), text[line], line * groups // len(rows)
    tokens.add(group, hidden[at])
    first.add(group, hidden[cls])
    places = place[rows[line].tokens[at]]
    for piece in np.unique(places[places >= 0]):
      same.add(piece, hidden[at[places == piece]])
  of_tokens, of_cls, of_pieces = measures.mean_cosine(tokens), measures.mean_cosine(first), measures.mean_by_key(same)
  pair = lambda mean, error: None if np.isnan(mean) else [float(mean), number(error)]
  return {
    "lines": len(rows),
    "tokens": int(tokens.counts[:, 0].sum()),
    "token_pairs": of_tokens.pairs,
    "cls_pairs": of_cls.pairs,
    "pieces": len(pieces),
    "layers": [
      {
        "layer": layer,
        "tokens": pair(of_tokens.mean[layer], of_tokens.error[layer]),
        "cls": pair(of_cls.mean[layer], of_cls.error[layer]),
        "same_piece": pair(*_mean_and_error(of_pieces[:, layer])),
      }
      for layer in layers
    ],
  }


def _mean_and_error(values: np.ndarray) -> tuple[float, float]:
  if not len(values):
    return np.nan, np.nan
  return values.mean(), values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else np.nan


def pooling(pretrained: Pretrained, rows: Sequence[Row], gold: np.ndarray) -> dict:
  """Measures how the cosine of two texts goes with people's score, by layer and by how tokens become one vector.

  Args:
    pretrained: the model.
    rows: the two texts of the first pair, of the second, …
    gold: float [pairs].

  Returns:
    `pairs`; for each of `layers` the correlations (`pearson`, `spearman`) of each of POOLING; and of the `pooler`'s
    output, None if the model has none. The mean and the maximum run over all tokens, special ones included.
  """
  config = pretrained.config
  cls = -1 if family_of(config).cls_last else 0
  layers = range(config.num_layers + 1)

  def pooled(one: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray | None]:
    hidden, head = one["hidden_rep"], one.get("cls_head")
    return units([hidden[cls], hidden.mean(axis=0), hidden.max(axis=0)]), None if head is None else units(head)

  found, of_pooler = [], []
  vectors = map(pooled, features.vectors(pretrained, rows, layers))
  for (first, first_head), (second, second_head) in zip(vectors, vectors, strict=True):
    found.append((first * second).sum(axis=-1))
    if first_head is not None:
      of_pooler.append(first_head @ second_head)
  found = np.stack(found)  # [pairs, poolings, layers]
  return {
    "pairs": len(gold),
    "layers": [
      {"layer": layer} | {name: measures.correlations(found[:, i, layer], gold) for i, name in enumerate(POOLING)}
      for layer in layers
    ],
    "pooler": measures.correlations(np.array(of_pooler), gold) if of_pooler else None,
  }
