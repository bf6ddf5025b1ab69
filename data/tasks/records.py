"""One record of a data set (a line of JSON, an example of TFDS, a row of a table) as examples.

Columns are those of the official files; what a record may hold, by kind:

    classification, regression   the task's columns, `label` (the task's name for it)
    tagging                      words (or tokens, or a text split at blanks), tags (or the task's label):
                                 O, B-TYPE, I-TYPE
    span                         question, context, answers: [{text, answer_start}] or {text: [], answer_start: []};
                                 is_impossible, title
    choice                       context, question, options, label; or article, question(s), options, answer(s) (RACE);
                                 or sent1, sent2, ending0 … (SWAG)
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from data.tasks import tags as tag_schemes
from data.tasks.examples import ChoiceExample, Example, SpanExample, TagExample, TextExample
from data.tasks.table import Task

Record = Mapping[str, Any]
Labels = Literal["needed", "optional", "unread"]
"""Whether an example without a label is an error; "unread": labels are passed over, whatever they are."""


# Where a record may have its label, besides the task's own column.
_LABELS = ("label", "tags", "answers", "answer", "is_impossible")


def from_record(task: Task, record: Record, number: str, where: str, labels: Labels) -> list[Example]:
  """Returns the record's example, or examples: RACE keeps all questions of a passage in one.

  Args:
    task: what the record is of.
    record: values by column.
    number: the example's id, if the record has none.
    where: its file and line.
    labels: see `Labels`.

  Raises:
    ValueError: a column is missing, or a value is not what it must be; names `where`.
  """
  if labels == "unread":
    unread = {*_LABELS, task.label}.difference(task.texts)
    record = {name: value for name, value in record.items() if name not in unread}
  number = text_of(_first(record, ("id", "index", "idx", "example_id"), number), "id", where)
  return _MAKERS[task.kind](task, record, number, where, labels == "needed")


def _text_example(task: Task, record: Record, number: str, where: str, labelled: bool) -> list[TextExample]:
  texts = tuple(_text(record, column, where) for column in task.texts)
  if task.escaped:
    texts = tuple(text.replace("\\n", " ").replace('\\"', '"') for text in texts)
  if task.joined:
    texts = (" ".join(filter(None, texts)),)
  label = record.get(task.label)
  if label is None or label == "":
    if labelled:
      raise ValueError(f"{where}: no {task.label!r}; every example that is trained on or scored needs one")
    return [TextExample(number, texts, None, where)]
  return [TextExample(number, texts, label_of(task, label, where), where)]


def label_of(task: Task, label: Any, where: str) -> str | float:
  """Returns a label as examples have it: a score, or a class's name, checked against the task's.

  Raises:
    ValueError: no number, a number out of bounds, or a class that the task does not have.
  """
  if task.kind == "regression":
    try:
      value = float("nan" if isinstance(label, bool) else label)
    except (TypeError, ValueError):
      value = float("nan")
    least, most = task.bounds or (float("-inf"), float("inf"))
    if not least <= value <= most or abs(value) == float("inf"):
      bounds = f" from {least:g} to {most:g}" if task.bounds else ""
      raise ValueError(f"{where}: the {task.label} {label!r} is no number{bounds}")
    return value
  if isinstance(label, float) and label.is_integer():
    label = int(label)
  label = str(label) if isinstance(label, bool) else text_of(label, task.label, where).strip()
  check_label(task, "label", label, where)
  return label


def check_label(task: Task, what: str, label: str, where: str) -> None:
  """Raises ValueError, which calls the label `what`, if the task names its labels and has no such one."""
  if task.labels and label not in task.labels:
    advice = ", or name all labels (config.data.labels)" if task.name == "custom" else ""
    raise ValueError(f"{where}: {what} {label!r} is not one of {', '.join(task.labels)}; mend the line{advice}")


def _tag_example(task: Task, record: Record, number: str, where: str, labelled: bool) -> list[TagExample]:
  words = _first(record, ("words", "tokens", *task.texts))
  if words is None:
    raise ValueError(f"{where}: no 'words'; it has {_names(record)}")
  words = tuple(_texts(words, "words", where))
  if not words or not all(word.strip() for word in words):
    raise ValueError(f"{where}: a sentence of no words, or an empty word; remove it")
  found = _first(record, ("tags", task.label))
  if found is None or found in ("", []):
    if labelled:
      raise ValueError(f"{where}: no 'tags'; it has {_names(record)}")
    return [TagExample(number, words, None, where)]
  found = _texts(found, "tags", where)
  if len(found) != len(words):
    raise ValueError(f"{where}: {len(words)} words and {len(found)} tags; every word needs one")
  checked = tag_schemes.to_iob2(found, [where] * len(found))
  for tag in checked:
    check_label(task, "tag", tag, where)
  return [TagExample(number, words, checked, where)]


def _span_example(task: Task, record: Record, number: str, where: str, labelled: bool) -> list[SpanExample]:
  question, context = _text(record, "question", where), _text(record, "context", where)
  title, answers, impossible = record.get("title"), record.get("answers"), record.get("is_impossible")
  title = "" if title is None else text_of(title, "title", where)
  if answers is None and impossible is None:
    if labelled:
      raise ValueError(f"{where}: question {number} has no 'answers'")
    return [SpanExample(number, question, context, title=title, where=where)]
  if impossible not in (None, True, False):  # 1 and 0 are
    raise ValueError(f"{where}: question {number}: 'is_impossible' is {_shown(impossible)}; write true or false")
  pairs = _answers(answers, f"{where}: question {number}")
  impossible = bool(impossible) if impossible is not None else task.impossible and not pairs
  if impossible and pairs:
    raise ValueError(f"{where}: question {number} has answers, and is_impossible=true; mend one of them")
  if impossible and not task.impossible:
    raise ValueError(f"{where}: question {number} has no answer, which task {task.name} does not have; use squad2")
  if not impossible and not pairs:
    raise ValueError(f"{where}: question {number} has neither answers nor is_impossible=true")
  for text, start in pairs:
    if start < 0 or not text or context[start : start + len(text)] != text:
      there = f"{context[start : start + len(text)]!r}" if 0 <= start < len(context) else "nothing"
      raise ValueError(
        f"{where}: question {number}: answer {text!r} is said to begin at character {start} of its context of "
        f"{len(context)}, where there is {there}; mend answer_start"
      )
  return [SpanExample(number, question, context, tuple(pairs), impossible, title, where)]


def _answers(answers: Any, where: str) -> list[tuple[str, int]]:
  """(text, first character) of each: of a list of objects, or of an object of lists."""
  if answers is None:
    return []
  if isinstance(answers, Mapping):
    found, starts = (list_of(answers.get(name), f"answers: {name}", where) for name in ("text", "answer_start"))
    if len(found) != len(starts):
      raise ValueError(f"{where} has {len(found)} answers and {len(starts)} starts")
    pairs = list(zip(found, starts, strict=True))
  else:
    some = list_of(answers, "answers", where)
    if other := [x for x in some if not isinstance(x, Mapping)]:
      raise ValueError(f"{where}: an answer is {_shown(other[0])}, where {{text, answer_start}} is needed")
    pairs = [(answer.get("text"), answer.get("answer_start")) for answer in some]
  for _, start in pairs:
    if not isinstance(start, int) or isinstance(start, bool):
      raise ValueError(f"{where}: 'answer_start' is {_shown(start)}, where a number of characters is needed")
  return [(text_of(text, "answers: text", where), start) for text, start in pairs]


def _choice_example(task: Task, record: Record, number: str, where: str, labelled: bool) -> list[ChoiceExample]:
  if "sent1" in record:
    return _swag(record, number, where, labelled)
  if "article" in record:
    return _race(task, record, number, where, labelled)
  question, options = _first(record, ("question",), ""), _options(record.get("options"), "options", where)
  return [
    ChoiceExample(
      number,
      _text(record, "context", where),
      tuple(with_question(text_of(question, "question", where), option) for option in options),
      _number(record.get("label"), len(options), where, labelled),
      text_of(_first(record, ("group",), ""), "group", where),
      where,
    )
  ]


def with_question(question: str, option: str) -> str:
  """The option in the question's blank, or behind the question (both originals' run_race.py)."""
  if "_" in question:
    return question.replace("_", option)
  return f"{question} {option}" if question else option


def _swag(record: Record, number: str, where: str, labelled: bool) -> list[ChoiceExample]:
  # Sentence A is the given sentence, B its possible continuation (BERT section 4.4).
  begin, context = _text(record, "sent2", where), _text(record, "sent1", where)
  endings = [name for name in (f"ending{i}" for i in range(10)) if name in record]
  if len(endings) < 2:
    raise ValueError(f"{where}: no columns 'ending0', 'ending1'; it has {_names(record)}")
  options = tuple(f"{begin} {_text(record, name, where)}".strip() for name in endings)
  return [
    ChoiceExample(number, context, options, _number(record.get("label"), len(options), where, labelled), "", where)
  ]


def _race(task: Task, record: Record, number: str, where: str, labelled: bool) -> list[ChoiceExample]:
  several = "questions" in record
  questions = list_of(record["questions"], "questions", where) if several else [record.get("question")]
  options = list_of(record.get("options"), "options", where) if several else [record.get("options")]
  answers = record.get("answers") if several else [record.get("answer")]
  answers = [] if answers is None else list_of(answers, "answers", where)
  if not questions or len(questions) != len(options):
    raise ValueError(f"{where}: 'questions' and 'options' must be lists of one length; it has {_names(record)}")
  if len(answers) not in (0, len(questions)):
    raise ValueError(f"{where}: {len(questions)} questions and {len(answers)} answers; every question needs one")
  group = text_of(_first(record, ("group",), ""), "group", where)
  group = group or next((name for name in task.groups if number.startswith(name)), "")
  article, examples = _text(record, "article", where), []
  for i, (question, some) in enumerate(zip(questions, options, strict=True)):
    at = f"{where}: question {i + 1}"
    some, question = _options(some, "options", at), text_of(question, "question", at)
    texts = tuple(with_question(question, option) for option in some)
    label = _number(answers[i] if answers else None, len(texts), at, labelled)
    examples.append(ChoiceExample(f"{number}-{i}" if several else number, article, texts, label, group, where))
  return examples


def _options(value: Any, column: str, where: str) -> list[str]:
  options = [text_of(x, column, where) for x in list_of(value, column, where)]
  if len(options) < 2:
    raise ValueError(f"{where}: {column!r} has {len(options)} entries, where two or more are needed")
  return options


def _number(label: Any, options: int, where: str, labelled: bool) -> int | None:
  if label is None or label == "":
    if labelled:
      raise ValueError(f"{where}: no label; every example that is trained on or scored needs one")
    return None
  if isinstance(label, str) and len(label) == 1 and "A" <= label.upper() <= "Z":
    label = ord(label.upper()) - ord("A")
  try:
    number = int(label)
  except (TypeError, ValueError, OverflowError):
    number = -1
  if isinstance(label, bool) or (isinstance(label, float) and number != label):
    number = -1
  if not 0 <= number < options:
    raise ValueError(f"{where}: label {label!r} is not one of the {options} options (0 … {options - 1}, or letters)")
  return number


def _text(record: Record, column: str, where: str) -> str:
  if column not in record:
    raise ValueError(f"{where}: no column {column!r}; it has {_names(record)}")
  return text_of(record[column], column, where)


def text_of(value: Any, column: str, where: str) -> str:
  """A text, or a number as one; raises ValueError for anything else that JSON has."""
  number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
  if not isinstance(value, str) and not number:
    raise ValueError(f"{where}: {column!r} is {_shown(value)}, where a text is needed")
  try:
    str(value).encode()
  except UnicodeEncodeError as error:
    half = ascii(value[error.start])
    raise ValueError(f"{where}: {column!r} has half of a pair of surrogates, {half}; mend or remove it") from None
  return str(value)


def list_of(value: Any, column: str, where: str) -> Sequence[Any]:
  """A list; raises ValueError for anything else."""
  if not isinstance(value, list | tuple):
    raise ValueError(f"{where}: {column!r} is {_shown(value)}, where a list is needed")
  return value


def _texts(value: Any, column: str, where: str) -> list[str]:
  """The texts of a list, or of a text split at white space."""
  if isinstance(value, str):
    return text_of(value, column, where).split()
  return [text_of(x, column, where) for x in list_of(value, column, where)]


def _shown(value: Any) -> str:
  """A value of JSON in words."""
  if isinstance(value, Mapping | list | tuple):
    return "an object" if isinstance(value, Mapping) else "a list"
  return "missing" if value is None else repr(value)


def _names(record: Record) -> str:
  return ", ".join(map(str, record)) or "no columns"


def _first(record: Record, names: Sequence[str], default: Any = None) -> Any:
  return next((record[name] for name in names if record.get(name) is not None), default)


_MAKERS = {
  "classification": _text_example,
  "regression": _text_example,
  "tagging": _tag_example,
  "span": _span_example,
  "choice": _choice_example,
}
