"""Training merges the pairs that the criterion says, and always the same ones."""

import itertools
import os
import pathlib
import random
import subprocess
import sys

import pytest

from data import wordpiece_training
from data.wordpiece import SPECIAL, WordPiece
from data.wordpiece_training import train


def merges(words, criterion, count, **kwargs):
  """The pieces that training adds to the single characters."""
  alphabet = len(set("".join(words)))
  size = len(SPECIAL) + 2 * alphabet + count
  return list(train(words, size, criterion, max_alphabet=100, **kwargs)[len(SPECIAL) + 2 * alphabet :])


# "ab" 4 times, "ac" 2, "db" 6 gives a 6, d 6, ##b 10, ##c 2 and
#   pair        count   count / product     after ac    after db
#   a  ##b          4   4 / 60 = .067       4/40 = .1   4/16 = .25
#   a  ##c          2   2 / 12 = .167 (1)
#   d  ##b          6   6 / 60 = .1         6/60 = .1 (2, more frequent than the other .1)
WORDS = {"ab": 4, "ac": 2, "db": 6}


def test_merges_worked_out_by_hand():
  assert merges(WORDS, "likelihood", 3) == ["ac", "db", "ab"]
  assert merges(WORDS, "frequency", 3) == ["db", "ab", "ac"]


def test_a_rare_pair_is_never_merged():
  assert merges(WORDS, "likelihood", 3, min_frequency=3) == ["db", "ab"]


def test_ties_go_to_the_pair_that_sorts_first():
  assert merges({"xy": 2, "xz": 2, "ab": 2}, "frequency", 3) == ["ab", "xy", "xz"]


def test_repeated_characters_merge_from_the_left():
  # "aaaa" is a ##a ##a ##a: the pair (##a, ##a) occurs twice, and merging it once leaves a ##aa ##a.
  assert merges({"aaaa": 3}, "frequency", 3) == ["##aa", "##aaa", "aaaa"]


def naive(words, vocab_size, criterion, min_frequency):
  """The definition: count everything anew before each merge."""
  alphabet = sorted(set("".join(words)))
  vocabulary = [*SPECIAL, *alphabet, *("##" + c for c in alphabet)]
  split = {word: [word[0], *("##" + c for c in word[1:])] for word in words}
  while len(vocabulary) < vocab_size:
    pieces, pairs = {}, {}
    for word, parts in split.items():
      for piece in parts:
        pieces[piece] = pieces.get(piece, 0) + words[word]
      for pair in itertools.pairwise(parts):
        pairs[pair] = pairs.get(pair, 0) + words[word]

    def score(pair, pieces=pieces, pairs=pairs):
      return pairs[pair] / (pieces[pair[0]] * pieces[pair[1]]) if criterion == "likelihood" else pairs[pair]

    frequent = [pair for pair, n in pairs.items() if n >= min_frequency]
    if not frequent:
      break
    first, second = min(frequent, key=lambda pair: (-score(pair), -pairs[pair], pair))
    merged = first + second[2:]
    for parts in split.values():
      i = 0
      while i + 1 < len(parts):
        if parts[i : i + 2] == [first, second]:
          parts[i : i + 2] = [merged]
        i += 1
    if merged not in vocabulary:
      vocabulary.append(merged)
  return tuple(vocabulary)


@pytest.mark.parametrize("criterion", wordpiece_training.CRITERIA)
def test_counting_as_it_goes_equals_counting_anew(criterion):
  rng = random.Random(1)
  for _ in range(20):
    words = {"".join(rng.choices("abcd", k=rng.randrange(1, 9))): rng.randrange(1, 20) for _ in range(60)}
    least = rng.randrange(1, 6)
    assert train(words, 120, criterion, least, max_alphabet=4) == naive(words, 120, criterion, least)


def test_neither_hash_seed_nor_order_of_words_matters():
  code = (
    "import random; from data.wordpiece_training import train; r = random.Random(2)\n"
    "words = [*{''.join(r.choices('abcdefgh', k=r.randrange(1, 9))): r.randrange(1, 20) for _ in range(300)}.items()]\n"
    "random.Random(SEED).shuffle(words)\n"
    "print(train(dict(words), 300, 'likelihood', max_alphabet=8), train(dict(words), 300, 'frequency', max_alphabet=8))"
  )
  printed = [
    subprocess.run(
      [sys.executable, "-c", code.replace("SEED", seed)],
      env={**os.environ, "PYTHONHASHSEED": seed},
      cwd=pathlib.Path(__file__).parents[2],
      capture_output=True,
      text=True,
      check=True,
    ).stdout
    for seed in ("1", "2")
  ]
  assert printed[0] == printed[1]


def test_order_of_a_vocabulary():
  pieces = train({"ab": 3}, 12, unused=2, max_alphabet=10)
  assert pieces == (*SPECIAL, "[unused0]", "[unused1]", "a", "b", "##a", "##b", "ab")
  assert WordPiece(pieces).special.sum() == 7


def test_the_alphabet_keeps_frequent_characters():
  words = {"aa": 5, "bb": 5, "cc": 4, "dd": 9}
  pieces = train(words, 20, max_alphabet=3)
  assert set(pieces[len(SPECIAL) : len(SPECIAL) + 3]) == set("abd")
  assert not any("c" in piece for piece in pieces[len(SPECIAL) :])


@pytest.mark.parametrize(
  ("words", "size", "kwargs", "message"),
  [
    ({}, 100, {}, "no words"),
    ({"abc": 3}, 10, {"max_alphabet": 9}, "vocab_size=10 is too small: special pieces and 3 characters take 11"),
    ({"abc": 3}, 100, {"min_frequency": 0}, "min_frequency=0 must be at least 1"),
    ({"abc": 3}, 100, {"criterion": "best"}, "neither likelihood nor frequency"),
  ],
)
def test_what_cannot_be_trained_is_said(words, size, kwargs, message):
  with pytest.raises(ValueError, match=message):
    train(words, size, **kwargs)
