"""One record of a data set (a line of JSON, an example of TFDS, a row of a table) as examples.

Columns are those of the official files; what a record may hold, by kind:

    classification, regression   the task's columns, `label` (the task's name for it)
    tagging                      words (or tokens, or a text split at blanks), tags (or the task's label)
    span                         question, context, answers: [{text, answer_start}] or {text: [], answer_start: []};
                                 is_impossible, title
    choice                       context, question, options, label; or article, question(s), options, answer(s) (RACE);
                                 or sent1, sent2, ending0 … (SWAG)
"""

from collections.abc import Mapping, Sequence
from typing import Any

from data.tasks import tags as tag_schemes
from data.tasks.examples import ChoiceExample, Example, SpanExample, TagExample, TextExample
from data.tasks.table import Task

Record = Mapping[str, Any]


def from_record(task: Task, record: Record, number: str, where: str, labelled: bool) -> list[Example]:
  """Returns the record's example, or examples: RACE keeps all questions of a passage in one.

  Args:
    task: what the record is of.
    record: values by column.
    number: the example's id, if the record has none.
    where: its file and line.
    labelled: a record without a label is an error.

  Raises:
    ValueError: a column is missing, or a value is not what it must be; names `where`.
  """
  number = str(_first(record, ("id", "index", "idx", "example_id"), number))
  return _MAKERS[task.kind](task, record, number, where, labelled)


def text_example(task: Task, record: Record, number: str, where: str, labelled: bool) -> list[TextExample]:
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
      value = float(label)
    except (TypeError, ValueError):
      value = float("nan")
    least, most = task.bounds or (float("-inf"), float("inf"))
    if not least <= value <= most or abs(value) == float("inf"):
      bounds = f" from {least:g} to {most:g}" if task.bounds else ""
      raise ValueError(f"{where}: the {task.label} {label!r} is no number{bounds}")
    return value
  if isinstance(label, float) and label.is_integer():
    label = int(label)
  label = str(label)
  if task.labels and label not in task.labels:
    raise ValueError(f"{where}: label {label!r} is not one of {', '.join(task.labels)}; mend the line, or the labels")
  return label


def tag_example(task: Task, record: Record, number: str, where: str, labelled: bool) -> list[TagExample]:
  words = _first(record, ("words", "tokens", *task.texts))
  if words is None:
    raise ValueError(f"{where}: no 'words'; it has {_names(record)}")
  words = tuple(words.split() if isinstance(words, str) else map(str, words))
  if not words or not all(word.strip() for word in words):
    raise ValueError(f"{where}: a sentence of no words, or an empty word; remove it")
  found = _first(record, ("tags", task.label))
  if found is None or not len(found):
    if labelled:
      raise ValueError(f"{where}: no 'tags'; it has {_names(record)}")
    return [TagExample(number, words, None, where)]
  found = found.split() if isinstance(found, str) else list(map(str, found))
  if len(found) != len(words):
    raise ValueError(f"{where}: {len(words)} words and {len(found)} tags; every word needs one")
  checked = tag_schemes.to_iob2(found, [where] * len(found))
  for tag in checked:
    if task.labels and tag not in task.labels:
      raise ValueError(f"{where}: tag {tag!r} is not one of {', '.join(task.labels)}; mend the line, or the labels")
  return [TagExample(number, words, checked, where)]


def span_example(task: Task, record: Record, number: str, where: str, labelled: bool) -> list[SpanExample]:
  question, context = _text(record, "question", where), _text(record, "context", where)
  title, answers, impossible = str(record.get("title", "")), record.get("answers"), record.get("is_impossible")
  if answers is None and impossible is None:
    if labelled:
      raise ValueError(f"{where}: question {number} has no 'answers'")
    return [SpanExample(number, question, context, title=title, where=where)]
  if isinstance(answers, Mapping):
    found, starts = answers.get("text", ()), answers.get("answer_start", ())
    if len(found) != len(starts):
      raise ValueError(f"{where}: question {number} has {len(found)} answers and {len(starts)} starts")
    pairs = list(zip(found, starts, strict=True))
  else:
    pairs = [(answer.get("text"), answer.get("answer_start")) for answer in answers or ()]
  impossible = bool(impossible) if impossible is not None else task.impossible and not pairs
  if impossible and not task.impossible:
    raise ValueError(f"{where}: question {number} has no answer, which task {task.name} does not have; use squad2")
  if not impossible and not pairs:
    raise ValueError(f"{where}: question {number} has neither answers nor is_impossible=true")
  pairs = [] if impossible else [(str(text), start if isinstance(start, int) else -1) for text, start in pairs]
  for text, start in pairs:
    if start < 0 or not text or context[start : start + len(text)] != text:
      there = f"{context[start : start + len(text)]!r}" if 0 <= start < len(context) else "nothing"
      raise ValueError(
        f"{where}: question {number}: answer {text!r} is said to begin at character {start} of its context of "
        f"{len(context)}, where there is {there}; mend answer_start"
      )
  return [SpanExample(number, question, context, tuple(pairs), impossible, title, where)]


def choice_example(task: Task, record: Record, number: str, where: str, labelled: bool) -> list[ChoiceExample]:
  if "sent1" in record:
    return _swag(record, number, where, labelled)
  if "article" in record:
    return _race(task, record, number, where, labelled)
  options = record.get("options")
  if not isinstance(options, Sequence) or isinstance(options, str) or len(options) < 2:
    raise ValueError(f"{where}: 'options' is no list of two or more; it has {_names(record)}")
  question = str(record.get("question", ""))
  label = record.get("label")
  return [
    ChoiceExample(
      number,
      _text(record, "context", where),
      tuple(with_question(question, str(option)) for option in options),
      _number(label, len(options), where, labelled),
      str(record.get("group", "")),
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
  options = tuple(f"{begin} {record[name]}".strip() for name in endings)
  return [
    ChoiceExample(number, context, options, _number(record.get("label"), len(options), where, labelled), "", where)
  ]


def _race(task: Task, record: Record, number: str, where: str, labelled: bool) -> list[ChoiceExample]:
  questions = record.get("questions", [record["question"]] if "question" in record else None)
  options = record.get("options") if "questions" in record else [record.get("options")]
  answers = record.get("answers", [record["answer"]] if "answer" in record else None)
  if questions is None or options is None or len(questions) != len(options):
    raise ValueError(f"{where}: 'questions' and 'options' must be lists of one length; it has {_names(record)}")
  if answers is not None and len(answers) not in (0, len(questions)):
    raise ValueError(f"{where}: {len(questions)} questions and {len(answers)} answers; every question needs one")
  group = str(record.get("group", "")) or next((name for name in task.groups if number.startswith(name)), "")
  examples = []
  for i, (question, some) in enumerate(zip(questions, options, strict=True)):
    if not isinstance(some, Sequence) or len(some) < 2:
      raise ValueError(f"{where}: question {i + 1} has no options")
    label = answers[i] if answers else None
    if isinstance(label, str) and len(label) == 1 and label.isalpha():
      label = ord(label.upper()) - ord("A")
    texts = tuple(with_question(question, option) for option in some)
    label = _number(label, len(texts), f"{where}: question {i + 1}", labelled)
    name = f"{number}-{i}" if "questions" in record else number
    examples.append(ChoiceExample(name, _text(record, "article", where), texts, label, group, where))
  return examples


def _number(label: Any, options: int, where: str, labelled: bool) -> int | None:
  if label is None or label == "":
    if labelled:
      raise ValueError(f"{where}: no label; every example that is trained on or scored needs one")
    return None
  try:
    number = int(label)
  except (TypeError, ValueError):
    number = -1
  if not 0 <= number < options:
    raise ValueError(f"{where}: label {label!r} is not one of the {options} options (0 … {options - 1}, or letters)")
  return number


def _text(record: Record, column: str, where: str) -> str:
  if record.get(column) is None:
    raise ValueError(f"{where}: no column {column!r}; it has {_names(record)}")
  return str(record[column])


def _names(record: Record) -> str:
  return ", ".join(map(str, record)) or "no columns"


def _first(record: Record, names: Sequence[str], default: Any = None) -> Any:
  return next((record[name] for name in names if record.get(name) is not None), default)


_MAKERS = {
  "classification": text_example,
  "regression": text_example,
  "tagging": tag_example,
  "span": span_example,
  "choice": choice_example,
}
