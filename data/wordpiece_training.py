"""Training a WordPiece vocabulary: count words, then merge pairs of pieces until the vocabulary is full.

Which pair is merged next is the `criterion`:

  likelihood  count(ab) / (count(a) · count(b)), as BERT's WordPiece: of all merges, the one whose two pieces occur
              together most beyond what their own frequencies explain (Schuster & Nakajima, 2012)
  frequency   count(ab), as byte-pair encoding

Everything is deterministic: equal text gives equal bytes, whatever the number of processes. Ties go to the larger
count(ab), then to the pair that sorts first.
"""

import collections
import heapq
import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Literal

from data import shards, wordpiece
from data.corpora import Documents

Criterion = Literal["likelihood", "frequency"]
CRITERIA: tuple[Criterion, ...] = ("likelihood", "frequency")

_PART_BYTES = 16 << 20  # text counted at a time
_MAX_WORDS = 5_000_000  # distinct words held in memory, about 100 bytes each


def count_words(
  documents: Documents, lowercase: bool, sample_bytes: int, processes: int = 1, max_words: int = _MAX_WORDS
) -> collections.Counter[str]:
  """Counts the words of documents, as WordPiece splits them.

  Args:
    documents: the corpus.
    lowercase: see `WordPiece`.
    sample_bytes: count about so much text, in pieces spread evenly over the corpus; 0 counts all.
    processes: how many count side by side; the result does not depend on it.
    max_words: where there are more distinct words, the rarest are forgotten on the way.
  """
  jobs = [(documents, start, stop, lowercase) for start, stop in documents.parts(_PART_BYTES, sample_bytes)]
  total = collections.Counter()
  for counts in shards.stream(_count_part, jobs, processes, "words"):
    total.update(counts)
    least = 1
    while len(total) > max_words:
      total = collections.Counter({word: n for word, n in total.items() if n > least})
      least += 1
  return total


def _count_part(job: tuple[Documents, int, int, bool]) -> collections.Counter[str]:
  documents, start, stop, lowercase = job
  # What lies between blanks repeats, so it is split into words only once.
  chunks = collections.Counter()
  for text in documents.read(start, stop):
    chunks.update(re.findall(r"[^ \t\n\r]+", text))
  split = wordpiece.word_splitter(lowercase)
  words = collections.Counter()
  for chunk, n in chunks.items():
    for word in split(chunk):
      words[word] += n
  return words


def train(
  words: Mapping[str, int],
  vocab_size: int,
  criterion: Criterion = "likelihood",
  min_frequency: int = 2,
  max_alphabet: int | None = None,
  unused: int = 0,
) -> tuple[str, ...]:
  """Returns a vocabulary: special pieces, `[unusedN]`, single characters, then merged pieces in order of their merge.

  Args:
    words: how often each word occurs.
    vocab_size: pieces to return; fewer if no pair occurs often enough.
    criterion: which pair is merged next.
    min_frequency: a pair that occurs less often is never merged.
    max_alphabet: how many characters are kept, most frequent first; a word with another one is [UNK] and teaches
      nothing. None takes a twentieth of the vocabulary, at least 100 and at most 1000.
    unused: slots `[unused0]`, … for pieces that somebody adds later.

  Raises:
    ValueError: no word, a vocabulary too small for its alphabet, or an argument out of range.
  """
  if criterion not in CRITERIA:
    raise ValueError(f"criterion={criterion!r} is neither likelihood nor frequency")
  if min_frequency < 1:
    raise ValueError(f"min_frequency={min_frequency} must be at least 1")
  if max_alphabet is None:
    max_alphabet = min(max(vocab_size // 20, 100), 1000)
  words = {word: n for word, n in words.items() if len(word) <= wordpiece.MAX_WORD_CHARS}
  characters = collections.Counter()
  for word, n in words.items():
    for character in word:
      characters[character] += n
  alphabet = sorted(sorted(characters, key=lambda c: (-characters[c], c))[:max_alphabet])
  if not alphabet:
    raise ValueError("the text has no words to train a vocabulary on")
  pieces = [*wordpiece.SPECIAL, *(f"[unused{i}]" for i in range(unused))]
  pieces += [*alphabet, *(wordpiece.PREFIX + c for c in alphabet)]
  if len(pieces) > vocab_size:
    raise ValueError(
      f"vocab_size={vocab_size} is too small: special pieces and {len(alphabet)} characters take {len(pieces)}; "
      "raise it or lower max_alphabet"
    )
  known = set(alphabet)
  merger = _Merger({word: n for word, n in words.items() if known.issuperset(word)}, criterion, min_frequency)
  # Two ways to the same piece are one entry: dict.fromkeys keeps the first.
  vocabulary = dict.fromkeys(pieces)
  while len(vocabulary) < vocab_size and (piece := merger.merge()):
    vocabulary[piece] = None
  return tuple(vocabulary)


class _Merger:
  """Words as sequences of pieces, the counts of pieces and pairs, and a heap of the pairs by their score.

  A merge rewrites only the words that hold the pair. The heap is lazy: whenever a pair's score changes, the new one is
  pushed, and an entry that no longer says the truth is thrown away when it comes up, or when such entries are many.
  """

  def __init__(self, words: Mapping[str, int], criterion: Criterion, min_frequency: int):
    self._by_likelihood, self._min_frequency = criterion == "likelihood", min_frequency
    # Sorted, so that no result depends on the order in which words were met.
    self._words = [[word[0], *(wordpiece.PREFIX + c for c in word[1:])] for word in sorted(words)]
    self._frequency = [words[word] for word in sorted(words)]
    self._pieces = collections.Counter()
    self._pairs = collections.Counter()
    self._where = collections.defaultdict(set)  # pair → words that hold it
    self._partners = collections.defaultdict(set)  # piece → pairs that hold it
    for i in range(len(self._words)):
      self._add(i, +1)
    self._heap = []
    self._rebuild_heap()

  def merge(self) -> str | None:
    """Merges the best pair and returns its piece, or None if no pair is frequent enough."""
    while self._heap:
      entry = heapq.heappop(self._heap)
      pair = entry[-1]
      if self._pairs[pair] >= self._min_frequency and entry == self._entry(pair):
        return self._apply(pair)
    return None

  def _rebuild_heap(self) -> None:
    self._heap = [self._entry(pair) for pair, n in self._pairs.items() if n >= self._min_frequency]
    heapq.heapify(self._heap)

  def _entry(self, pair: tuple[str, str]) -> tuple:
    count = self._pairs[pair]
    if self._by_likelihood:
      return -count / (self._pieces[pair[0]] * self._pieces[pair[1]]), -count, pair
    return -count, pair

  def _apply(self, pair: tuple[str, str]) -> str:
    first, second = pair
    merged = first + second.removeprefix(wordpiece.PREFIX)
    changed = set()
    for i in self._where.pop(pair):
      changed.update(self._add(i, -1))
      self._words[i] = _replace(self._words[i], first, second, merged)
      changed.update(self._add(i, +1))
    if self._by_likelihood:  # the pieces' own counts have changed too
      changed.update(self._partners[first], self._partners[second], self._partners[merged])
    for other in changed:
      if self._pairs[other] >= self._min_frequency:
        heapq.heappush(self._heap, self._entry(other))
      elif not self._pairs[other]:
        self._forget(other)
    if len(self._heap) > 4 * len(self._pairs) + 1000:
      self._rebuild_heap()
    return merged

  def _add(self, i: int, sign: int) -> Iterable[tuple[str, str]]:
    """Counts a word in, or out again; returns its pairs."""
    word, n = self._words[i], sign * self._frequency[i]
    for piece in word:
      self._pieces[piece] += n
    pairs = list(itertools.pairwise(word))
    for pair in pairs:
      self._pairs[pair] += n
      if sign > 0:
        self._where[pair].add(i)
        self._partners[pair[0]].add(pair)
        self._partners[pair[1]].add(pair)
    return pairs

  def _forget(self, pair: tuple[str, str]) -> None:
    del self._pairs[pair]
    self._where.pop(pair, None)
    for piece in pair:
      self._partners[piece].discard(pair)


def _replace(word: list[str], first: str, second: str, merged: str) -> list[str]:
  """Replaces first, second by merged, from left to right."""
  result, i = [], 0
  while i < len(word):
    if word[i] == first and i + 1 < len(word) and word[i + 1] == second:
      result.append(merged)
      i += 2
    else:
      result.append(word[i])
      i += 1
  return result
