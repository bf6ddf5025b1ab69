"""From a span head's numbers to answers: the n best texts of a question, and how much speaks for no answer.

Two forms. `independent`: every start with every end (BERT's run_squad.py: write_predictions). `conditional`: the ends
of each of the likeliest starts, and a class for "no answer" (XLNet's run_squad.py, ALBERT's squad_utils.py). A question
comes with all its windows, whose tokens know where in the context they stand, so an answer is a piece of the context as
it was written.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

NO_SCORE = -1e6  # log-probability of an answer that does not exist: finite, as JSON needs


@dataclasses.dataclass(frozen=True, slots=True)
class Windows:
  """A question's windows, padded or cut to one length. Positions are those of the window's own tokens.

  Attributes:
    context: the text that holds the answers.
    begins: int [windows, length]: where the token begins in the context, in characters; -1 where the token is none of
      the context's (question, special tokens, padding).
    ends: int [windows, length]: one past its last character.
    is_max_context: bool [windows, length]: of all windows that hold this token, this one shows most around it.
    real: bool [windows, length]: a token of this window, not padding.
  """

  context: str
  begins: np.ndarray
  ends: np.ndarray
  is_max_context: np.ndarray
  real: np.ndarray

  def __post_init__(self):
    shapes = {x.shape for x in (self.begins, self.ends, self.is_max_context, self.real)}
    if len(shapes) > 1 or self.begins.ndim != 2 or not len(self.begins):
      raise ValueError(f"windows need four arrays [windows, length] of one shape, not {sorted(shapes)}")


def stack(context: str, spans: Sequence[np.ndarray], is_max_context: Sequence[np.ndarray]) -> Windows:
  """Makes Windows of windows of any lengths, padded at the right.

  Args:
    context: the text that holds the answers.
    spans: int [length, 2] of each window: where each token begins and ends in the context, negative for none.
    is_max_context: bool [length] of each window.
  """
  lengths = np.array([len(x) for x in spans])
  return Windows(
    context,
    _padded([x[:, 0] for x in spans], -1),
    _padded([x[:, 1] for x in spans], -1),
    _padded(is_max_context, False),
    np.arange(lengths.max()) < lengths[:, None],
  )


def _padded(rows: Sequence[np.ndarray], fill: float) -> np.ndarray:
  length = max(map(len, rows))
  return np.stack([np.pad(row, (0, length - len(row)), constant_values=fill) for row in rows])


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
  """One of the n best. Scores are logits of the independent form, log-probabilities of the conditional one."""

  text: str  # "" = no answer
  probability: float  # among the n best
  start_score: float
  end_score: float


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
  """What is known of a question.

  Attributes:
    nbest: likeliest first; never empty.
    null_odds: how much speaks for no answer: against the best text's score (independent, with null scores), or the
      logit of the class (conditional); None if the model always answers.
  """

  nbest: tuple[Entry, ...]
  null_odds: float | None = None

  @property
  def text(self) -> str:
    """The best text; "" only if no window allows any."""
    return next((entry.text for entry in self.nbest if entry.text), "")

  def decided(self, threshold: float) -> str:
    """The best text, or "" if the odds for no answer are above the threshold (SQuAD's and BERT's rule)."""
    return "" if self.null_odds is not None and self.null_odds > threshold else self.text


def independent(
  windows: Windows,
  start_logits: ArrayLike | Sequence[np.ndarray],
  end_logits: ArrayLike | Sequence[np.ndarray],
  null_start: ArrayLike | None = None,
  null_end: ArrayLike | None = None,
  *,
  n_best: int = 20,
  max_answer_length: int = 30,
) -> Answer:
  """Returns the n best of the sums of a start's and an end's logit.

  As in the original, each window offers its `n_best` highest starts and ends, wherever they stand; pairs that are no
  piece of the context, too long, or whose start has more context elsewhere are dropped; of equal texts the best stays.
  No answer is as likely as in the window that speaks least for it.

  Args:
    windows: the question's.
    start_logits: float [windows, length], or [length] of each window.
    end_logits: the same.
    null_start: float [windows]: the start logit of the cls piece, if questions may have no answer.
    null_end: the same of the end.
    n_best: entries at most; one more if "no answer" is not among them.
    max_answer_length: in tokens.
  """
  start, end = _logits("start_logits", start_logits, windows), _logits("end_logits", end_logits, windows)
  starts, ends = _top(start, windows.real, n_best), _top(end, windows.real, n_best)  # [windows, n]
  window = np.arange(len(start))[:, None]
  grid = (len(start), starts.shape[1], ends.shape[1])
  scores = start[window, starts][:, :, None], end[window, ends][:, None, :]
  null = None
  if null_start is not None:
    null_start, null_end = (np.asarray(x, np.float64) for x in (null_start, null_end))
    least = int(np.argmin(null_start + null_end))
    null = float(null_start[least]), float(null_end[least])
  found = _entries(
    windows,
    np.broadcast_to(starts[:, :, None], grid),
    np.broadcast_to(ends[:, None, :], grid),
    *(np.broadcast_to(x, grid) for x in scores),
    n_best,
    max_answer_length,
    null,
  )
  if null is None:
    return Answer(_with_probabilities(found))
  best = next((sum(scores) for text, *scores in found if text), 2 * NO_SCORE)
  return Answer(_with_probabilities(found), sum(null) - best)


def conditional(
  windows: Windows,
  starts: ArrayLike,
  start_log_probability: ArrayLike,
  ends: ArrayLike,
  end_log_probability: ArrayLike,
  answer: ArrayLike,
  *,
  n_best: int = 5,
  max_answer_length: int = 64,
) -> Answer:
  """Returns the n best of the beams of a conditional span head (models/span.py: Beams, by question).

  Differs from XLNet's code in that an answer may end on the last token of a window's context.

  Args:
    windows: the question's.
    starts: int [windows, starts], positions in the window. Beams of short windows point anywhere; such are dropped.
    start_log_probability: float [windows, starts].
    ends: int [windows, starts, ends].
    end_log_probability: float [windows, starts, ends], given the start.
    answer: float [windows], the logit that there is no answer; the least of the windows counts.
    n_best: entries at most.
    max_answer_length: in tokens.
  """
  starts, ends = np.asarray(starts), np.asarray(ends)
  start_p, end_p = (np.asarray(x, np.float64) for x in (start_log_probability, end_log_probability))
  if starts.shape != start_p.shape or ends.shape != end_p.shape or ends.shape[:2] != starts.shape:
    raise ValueError(f"beams of shapes {starts.shape}, {start_p.shape}, {ends.shape}, {end_p.shape} do not go together")
  if len(starts) != len(windows.begins) or np.shape(answer) != starts.shape[:1]:
    raise ValueError(f"beams of {len(starts)} windows and answers {np.shape(answer)} for {len(windows.begins)} windows")
  found = _entries(
    windows,
    np.broadcast_to(starts[:, :, None], ends.shape),
    ends,
    np.broadcast_to(start_p[:, :, None], ends.shape),
    end_p,
    n_best,
    max_answer_length,
  )
  return Answer(_with_probabilities(found), float(np.min(np.asarray(answer, np.float64))))


def _logits(name: str, logits: ArrayLike | Sequence[np.ndarray], windows: Windows) -> np.ndarray:
  logits = _padded([np.asarray(row, np.float64) for row in logits], 0.0)
  if logits.shape != windows.begins.shape:
    raise ValueError(f"{name} {logits.shape} are not of the windows' shape {windows.begins.shape}")
  return logits


def _top(logits: np.ndarray, real: np.ndarray, n: int) -> np.ndarray:
  """int [windows, ≤ n]: the positions of the highest logits, the first of equals first."""
  return np.argsort(-np.where(real, logits, -np.inf), axis=1, kind="stable")[:, :n]


def _entries(
  windows: Windows,
  starts: np.ndarray,
  ends: np.ndarray,
  start_scores: np.ndarray,
  end_scores: np.ndarray,
  n_best: int,
  max_answer_length: int,
  null: tuple[float, float] | None = None,
) -> list[tuple[str, float, float]]:
  """(text, start score, end score), best first, of candidates [windows, starts, ends]; never empty.

  Equal scores stay in the order of windows, then starts, then ends; "no answer" comes behind its equals.
  """
  window, length = np.arange(len(starts))[:, None, None], windows.begins.shape[1]
  inside = (starts >= 0) & (starts < length) & (ends >= 0) & (ends < length)
  starts, ends = np.where(inside, starts, 0), np.where(inside, ends, 0)
  valid = (
    inside
    & (windows.begins[window, starts] >= 0)
    & (windows.begins[window, ends] >= 0)
    & windows.is_max_context[window, starts]
    & windows.real[window, starts]
    & windows.real[window, ends]
    & (starts <= ends)
    & (ends - starts < max_answer_length)
  )
  at = np.nonzero(valid)
  order = np.argsort(-(start_scores[valid] + end_scores[valid]), kind="stable")
  window, *_ = (x[order] for x in at)
  first = windows.begins[window, starts[valid][order]].tolist()
  last = windows.ends[window, ends[valid][order]].tolist()
  scored = zip(first, last, start_scores[valid][order].tolist(), end_scores[valid][order].tolist(), strict=True)

  found, seen = [], set()
  null_waits = null is not None
  for a, b, start, end in scored:
    if null_waits and sum(null) > start + end and len(found) < n_best:
      found.append(("", *null))
      null_waits = False
    if len(found) >= n_best:
      break
    text = windows.context[a:b].strip()
    if text and text not in seen:
      seen.add(text)
      found.append((text, start, end))
  if null_waits:
    found.append(("", *null))
  return found or [("", NO_SCORE, NO_SCORE)]


def _with_probabilities(found: Sequence[tuple[str, float, float]]) -> tuple[Entry, ...]:
  totals = np.array([start + end for _, start, end in found])
  weights = np.exp(totals - totals.max())
  weights /= weights.sum()
  return tuple(Entry(text, float(p), *scores) for (text, *scores), p in zip(found, weights, strict=True))
