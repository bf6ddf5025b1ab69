"""Entity F1 (CoNLL-2003): what counts is whole entities, with both ends and the type right.

The rules of conlleval.pl (2004-01-26) for IOB1 and IOB2, which read both alike: a type that changes begins an entity,
with B- or I-. For BIOES, which conlleval knows only in part, seqeval's rules (its default mode): S is an entity by
itself, E ends one. Fractions, where conlleval prints percent.
"""

import collections
from collections.abc import Iterable, Sequence

Entity = tuple[str, int, int]  # type, first word, last word

PREFIXES = "BIES"


def entities(tags: Sequence[str]) -> list[Entity]:
  """The entities of one sentence, in order.

  Args:
    tags: "O", or a prefix of PREFIXES and a type ("B-PER", "I-X-Y"); a prefix alone has the type "".

  Raises:
    ValueError: another tag.
  """
  found, begin, before = [], 0, ("O", "")
  for at, tag in enumerate([*tags, "O"]):
    now = _split(tag)
    if _ends(before, now):
      found.append((before[1], begin, at - 1))
    if _begins(before, now):
      begin = at
    before = now
  return found


def _split(tag: str) -> tuple[str, str]:
  prefix, _, kind = tag.partition("-")
  if tag != "O" and (len(prefix) != 1 or prefix not in PREFIXES):
    raise ValueError(f"tag {tag!r} is neither 'O' nor one of {', '.join(x + '-TYPE' for x in PREFIXES)}")
  return prefix, kind


def _ends(before: tuple[str, str], now: tuple[str, str]) -> bool:
  return before[0] != "O" and (before[0] in "ES" or now[0] in "BSO" or before[1] != now[1])


def _begins(before: tuple[str, str], now: tuple[str, str]) -> bool:
  return now[0] != "O" and (now[0] in "BS" or before[0] in "ESO" or before[1] != now[1])


def entity_f1(predictions: Iterable[Sequence[str]], targets: Iterable[Sequence[str]]) -> dict[str, float]:
  """`f1`, `precision` and `recall` over the entities of all sentences, and `accuracy` over words.

  Args:
    predictions: the tags of each sentence.
    targets: the same.

  Raises:
    ValueError: the sentences or their words are not as many on both sides, there are none, or a tag is malformed.
  """
  predictions, targets = _checked(predictions, targets)
  right = predicted = true = 0
  for here, there in zip(predictions, targets, strict=True):
    here, there = set(entities(here)), set(entities(there))
    right, predicted, true = right + len(here & there), predicted + len(here), true + len(there)
  words = [p == t for here, there in zip(predictions, targets, strict=True) for p, t in zip(here, there, strict=True)]
  return _rates(right, predicted, true) | {"accuracy": sum(words) / len(words)}


def entity_report(
  predictions: Iterable[Sequence[str]], targets: Iterable[Sequence[str]]
) -> dict[str, dict[str, float]]:
  """`f1`, `precision`, `recall` of every type, and its `support`: how many entities the targets have."""
  predictions, targets = _checked(predictions, targets)
  right, predicted, true = collections.Counter(), collections.Counter(), collections.Counter()
  for here, there in zip(predictions, targets, strict=True):
    here, there = set(entities(here)), set(entities(there))
    for counter, some in ((right, here & there), (predicted, here), (true, there)):
      counter.update(kind for kind, *_ in some)
  return {
    kind: _rates(right[kind], predicted[kind], true[kind]) | {"support": true[kind]}
    for kind in sorted(predicted | true)
  }


def _rates(right: int, predicted: int, true: int) -> dict[str, float]:
  # A quotient of 0 by 0 is 0, as conlleval has it; F1 = 2PR/(P+R) without its own division by 0.
  return {
    "f1": 2 * right / (predicted + true) if predicted + true else 0.0,
    "precision": right / predicted if predicted else 0.0,
    "recall": right / true if true else 0.0,
  }


def _checked(predictions, targets) -> tuple[list[Sequence[str]], list[Sequence[str]]]:
  predictions, targets = list(predictions), list(targets)
  if len(predictions) != len(targets):
    raise ValueError(f"predictions for {len(predictions)} sentences, and the targets have {len(targets)}")
  for number, (here, there) in enumerate(zip(predictions, targets, strict=True), 1):
    if len(here) != len(there):
      raise ValueError(f"sentence {number}: {len(here)} predicted tags for {len(there)} words")
  if not any(map(len, targets)):
    raise ValueError("there is nothing to score: no words")
  return predictions, targets
