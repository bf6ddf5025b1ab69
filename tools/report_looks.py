"""What the models of a report do: blanks that they fill, and where they attend."""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np

from data.rows import padded
from pretrained.load import Pretrained, load
from tools.families import family_of
from tools.features import make_rows
from tools.fill_mask import fill_mask
from tools.report_runs import Group

_LONGEST = 64  # tokens of a sentence whose attention can be looked at

Filled = list[list[tuple[str, float]]]  # of each [MASK] of a text, pieces with their probabilities


class Attention(NamedTuple):
  """A sentence's tokens, and float32 [layers, heads, tokens, tokens]: how much each sees of every other."""

  pieces: list[str]
  probabilities: np.ndarray


class Looks(NamedTuple):
  """What a group's first model does; or why it does not, in words.

  Attributes:
    filled: by text.
    attention: None if no sentence is given.
  """

  filled: list[Filled] | str
  attention: Attention | str | None


def look(groups: Sequence[Group], texts: Sequence[str], sentence: str, top_k: int) -> list[Looks]:
  """Opens the first run of each group and lets it do what is asked.

  Args:
    groups: whose runs.
    texts: with blanks to fill; () = none.
    sentence: whose attention is wanted; "" = none.
    top_k: pieces a blank.

  Raises:
    ValueError: not one group has a model that can do it.
  """
  found = [_look(group, texts, sentence, top_k) for group in groups]
  for some in zip(*found, strict=True):
    if all(isinstance(one, str) for one in some):
      raise ValueError(some[0])
  return found


def _look(group: Group, texts: Sequence[str], sentence: str, top_k: int) -> Looks:
  def said(function: Callable, *arguments):
    try:
      return function(*arguments)
    except (ValueError, OSError) as error:
      return str(error)

  pretrained = said(load, group.first.workdir)
  if isinstance(pretrained, str):
    return Looks(pretrained if texts else [], pretrained if sentence else None)
  filled = said(_fill, group.first.workdir, pretrained, texts, top_k) if texts else []
  return Looks(filled, said(attention, pretrained, sentence) if sentence else None)


def _fill(workdir: pathlib.Path, pretrained: Pretrained, texts: Sequence[str], top_k: int) -> list[Filled]:
  if (head := family_of(pretrained.config).head) in pretrained.missing:
    raise ValueError(f"{workdir}: the model has no head that predicts words ({head}), so it cannot fill blanks")
  return fill_mask(pretrained, texts, top_k)


def attention(pretrained: Pretrained, sentence: str) -> Attention:
  """Returns the attention of a model that reads a sentence; an ALBERT's layer of several blocks counts as so many.

  Raises:
    ValueError: the sentence is empty, or longer than the model or a picture can hold.
  """
  config = dataclasses.replace(pretrained.config, unroll=1)  # compiles in a moment
  family, tokenizer = family_of(config), pretrained.tokenizer
  longest = min(family.longest(config) or _LONGEST, _LONGEST)
  try:
    (row,) = make_rows(tokenizer, [[sentence]], longest, cls_last=family.cls_last)
  except ValueError:
    raise ValueError(
      f"--attention: a sentence has 1 to {longest} tokens, special ones included: {sentence!r}"
    ) from None
  columns = padded(tokenizer, [row.tokens], [row.segment_ids], cls_last=family.cls_last)
  forward = jax.jit(lambda params, rows: family.attention(config, params, rows))
  probabilities = np.asarray(forward(pretrained.params, columns), np.float32)[:, 0]
  return Attention([tokenizer.pieces[token] for token in row.tokens], probabilities)
