"""The tasks: one line each. What is special about one is a field here, not code elsewhere.

Official files are those of gluebenchmark.com, rajpurkar.github.io/SQuAD-explorer, rowanz/swagaf, RACE.tar.gz, the
CoNLL-2003 shared task, aclImdb, and the CSVs of Zhang et al. (2015).
"""

import dataclasses
from collections.abc import Mapping, Sequence

KINDS = ("classification", "regression", "tagging", "span", "choice")
LAYOUTS = ("table", "folders", "conll", "squad", "swag", "race")


@dataclasses.dataclass(frozen=True)
class Task:
  """A task, and where the official files keep it.

  Attributes:
    name: what a config calls it.
    kind: one of KINDS.
    texts: columns of a table with the text, or the two texts.
    label: the column with the label.
    labels: names of the classes or tags, in the order of the logits; () = none, or those that the training file has.
    layout: how the files are laid out, one of LAYOUTS.
    folder: of this name in the data sets' root (the files may also lie in the root itself).
    files: by split, the files' names, the first that is there; a folder's name for `folders` and `race`.
    header: names of the columns of a table that has no header.
    joined: the columns are one text, joined by a blank.
    escaped: a table of Zhang et al.: "\\n" and '\\"' spelled in the text are a line's end and a quote.
    bounds: least and greatest score, for regression.
    impossible: questions may have no answer.
    groups: RACE's levels that the task is made of; scores are also given for each of them.
    option_length: most tokens of an option, of which the first are cut, then the context's last; 0 = the longer of
      context and option is cut, like pairs.
    empty: a text of a pair may be empty.
    broken: "error", or "skip" (with a note) for rows with another number of fields than the header has.
    tfds: the data set's name in TFDS; "" = it has none.
    tfds_columns: TFDS's names of columns, by ours.
    tfds_splits: TFDS's names of splits, by ours.
    scores: names of scores (scores.SCORES).
    main_score: the metric that the leaderboard ranks by.
  """

  name: str
  kind: str
  texts: tuple[str, ...] = ()
  label: str = "label"
  labels: tuple[str, ...] = ()
  layout: str = "table"
  folder: str = ""
  files: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
  header: tuple[str, ...] = ()
  joined: bool = False
  escaped: bool = False
  bounds: tuple[float, float] | None = None
  impossible: bool = False
  groups: tuple[str, ...] = ()
  option_length: int = 0
  empty: bool = False
  broken: str = "error"
  tfds: str = ""
  tfds_columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
  tfds_splits: Mapping[str, str] = dataclasses.field(default_factory=dict)
  scores: tuple[str, ...] = ("accuracy",)
  main_score: str = "accuracy"

  def __post_init__(self):
    for field, known in (("kind", KINDS), ("layout", LAYOUTS), ("broken", ("error", "skip"))):
      if getattr(self, field) not in known:
        raise ValueError(f"task {self.name}: {field}={getattr(self, field)!r} is not one of {', '.join(known)}")
    if self.layout in ("table", "folders") and self.kind in ("classification", "regression") and not self.texts:
      raise ValueError(f"task {self.name}: texts names no column")
    if len(self.texts) > 2 and not self.joined:
      raise ValueError(
        f"task {self.name}: texts names {len(self.texts)} columns ({', '.join(self.texts)}), and a model reads one "
        "text or two; write files in which one column holds several of them"
      )

  @property
  def is_labelled_by_name(self) -> bool:
    return self.kind in ("classification", "tagging")


def _splits(suffix: str, **names: str) -> dict[str, tuple[str, ...]]:
  return {split: (name,) for split, name in ({s: s + suffix for s in ("train", "dev", "test")} | names).items()}


def _glue(name: str, folder: str, texts: tuple[str, ...], labels: tuple[str, ...], **more) -> Task:
  files = more.get("files", _splits(".tsv"))
  splits = {split: split.replace("dev", "validation") for split in files}
  usual = {"kind": "classification", "files": files, "tfds": f"glue/{name}", "tfds_splits": splits}
  return Task(name, texts=texts, labels=labels, folder=folder, **usual | more)


def _zhang(name: str, texts: tuple[str, ...], classes: int, folder: str, tfds: str = "") -> Task:
  """A data set of Zhang, Zhao and LeCun (2015). It has no dev set: its test set stands in, as in XLNet's code."""
  return Task(
    name,
    "classification",
    texts,
    labels=tuple(str(i + 1) for i in range(classes)),
    folder=folder,
    files={"train": ("train.csv",), "dev": ("test.csv",), "test": ("test.csv",)},
    header=("label", *texts),
    joined=True,
    escaped=True,
    tfds=tfds,
    tfds_splits={"dev": "test"},
  )


def _race(name: str, *groups: str) -> Task:
  """RACE, or one level of it; 128 is max_qa_length of both originals."""
  more = {"folder": "RACE", "files": _splits(""), "option_length": 128, "tfds": "race"}
  return Task(name, "choice", layout="race", groups=groups, **more)


def _squad(name: str, version: str) -> Task:
  return Task(
    name,
    "span",
    layout="squad",
    folder="squad",
    files={split: (f"{split}-v{version}.json",) for split in ("train", "dev", "test")},
    impossible=version == "2.0",
    tfds=f"squad/v{version}",
    tfds_splits={"dev": "validation"},
    scores=(name,),
    main_score="f1",
  )


_BINARY = ("0", "1")
_NLI = ("contradiction", "entailment", "neutral")  # BERT's run_classifier.py
_RTE = ("entailment", "not_entailment")
_ENTITIES = ("O", *(f"{prefix}-{kind}" for kind in ("PER", "ORG", "LOC", "MISC") for prefix in "BI"))
_PAIR = ("sentence1", "sentence2")
_QUESTIONS = ("question1", "question2")
_F1 = {"scores": ("accuracy", "f1"), "main_score": "f1"}
_SIMILARITY = {
  "kind": "regression",
  "bounds": (0.0, 5.0),
  "scores": ("pearson", "spearman"),
  "main_score": "pearson",
}
_MNLI_FILES = {
  "train": ("train.tsv",),
  "dev": ("dev_matched.tsv",),
  "dev_mismatched": ("dev_mismatched.tsv",),
  "test": ("test_matched.tsv",),
  "test_mismatched": ("test_mismatched.tsv",),
}
_MNLI_SPLITS = {"dev": "validation_matched", "dev_mismatched": "validation_mismatched", "test": "test_matched"}
_MNLI_COLUMNS = {"sentence1": "premise", "sentence2": "hypothesis", "gold_label": "label"}
_MRPC_COLUMNS = {"#1 String": "sentence1", "#2 String": "sentence2", "Quality": "label"}
_COLA = ("source", "label", "star", "sentence")
_CONLL_FILES = {
  "train": ("train.txt", "eng.train"),
  "dev": ("valid.txt", "dev.txt", "eng.testa"),
  "test": ("test.txt", "eng.testb"),
}
_IMDB_FILES = {"train": ("train",), "dev": ("test",), "test": ("test",)}  # no dev set, as _zhang's

# fmt: off
TASKS = {task.name: task for task in (
  _glue("cola", "CoLA", ("sentence",), _BINARY, header=_COLA, scores=("matthews", "accuracy"), main_score="matthews"),
  _glue("sst2", "SST-2", ("sentence",), _BINARY),
  _glue("mrpc", "MRPC", ("#1 String", "#2 String"), _BINARY, label="Quality", tfds_columns=_MRPC_COLUMNS, **_F1),
  _glue("stsb", "STS-B", _PAIR, (), label="score", tfds_columns={"score": "label"}, **_SIMILARITY),
  _glue("qqp", "QQP", _QUESTIONS, _BINARY, label="is_duplicate", tfds_columns={"is_duplicate": "label"},
        empty=True, broken="skip", **_F1),
  _glue("mnli", "MNLI", _PAIR, _NLI, label="gold_label", files=_MNLI_FILES, tfds_columns=_MNLI_COLUMNS,
        tfds_splits=_MNLI_SPLITS),
  _glue("ax", "diagnostic", _PAIR, _NLI, files={"test": ("diagnostic.tsv", "AX.tsv")}, tfds_columns=_MNLI_COLUMNS,
        scores=("matthews",), main_score="matthews"),
  _glue("qnli", "QNLI", ("question", "sentence"), _RTE),
  _glue("rte", "RTE", _PAIR, _RTE),
  _glue("wnli", "WNLI", _PAIR, _BINARY),
  _squad("squad1", "1.1"),
  _squad("squad2", "2.0"),
  Task("swag", "choice", layout="swag", folder="swag", files=_splits(".csv", dev="val.csv")),
  _race("race", "middle", "high"),
  _race("race_middle", "middle"),
  _race("race_high", "high"),
  Task("conll2003", "tagging", label="ner", labels=_ENTITIES, layout="conll", folder="conll2003", files=_CONLL_FILES,
       tfds="conll2003", scores=("entity_f1",), main_score="f1"),
  Task("imdb", "classification", ("text",), labels=("neg", "pos"), layout="folders", folder="aclImdb",
       files=_IMDB_FILES, tfds="imdb_reviews", tfds_splits={"dev": "test"}),
  _zhang("yelp2", ("text",), 2, "yelp_review_polarity_csv", tfds="yelp_polarity_reviews"),
  _zhang("yelp5", ("text",), 5, "yelp_review_full_csv"),
  _zhang("ag", ("title", "description"), 4, "ag_news_csv", tfds="ag_news_subset"),
  _zhang("dbpedia", ("title", "content"), 14, "dbpedia_csv"),
  _zhang("amazon2", ("title", "text"), 2, "amazon_review_polarity_csv"),
  _zhang("amazon5", ("title", "text"), 5, "amazon_review_full_csv"),
)}
# fmt: on


def find_task(name: str) -> Task:
  """Returns the task of that name.

  Raises:
    ValueError: there is none.
  """
  if name not in TASKS:
    raise ValueError(f"task {name!r} is unknown; use one of {', '.join(TASKS)}, or custom")
  return TASKS[name]


# What tasks of one's own are scored by (usually by the first, or by all of regression), how their files are laid out,
# and what these are called, by kind.
_CUSTOM = {
  "classification": (("accuracy", "f1", "matthews"), "table", (".tsv", ".csv", ".jsonl")),
  "regression": (("pearson", "spearman"), "table", (".tsv", ".csv", ".jsonl")),
  "tagging": (("entity_f1",), "conll", (".txt", ".conll", ".jsonl")),
  "span": (("squad2", "squad1"), "squad", (".json", ".jsonl")),
  "choice": (("accuracy",), "table", (".jsonl",)),
}
_MAIN = {"entity_f1": "f1", "squad1": "f1", "squad2": "f1"}  # the metric of a score that is not called like it


def custom(
  kind: str,
  *,
  texts: Sequence[str] = ("sentence",),
  label: str = "label",
  labels: Sequence[str] = (),
  header: Sequence[str] = (),
  scores: Sequence[str] = (),
) -> Task:
  """A task of one's own, in files train, dev and test: tables (.tsv, .csv), CoNLL's columns (.txt, .conll) for tagging,
  SQuAD's JSON for span, or .jsonl (data.tasks.records says with which fields).

  Args:
    kind: one of KINDS.
    texts: columns with the text or the two texts, for classification and regression.
    label: the column with the label.
    labels: the classes or tags; () = those of the training file, sorted (`readers.with_labels`).
    header: names of the columns of tables that have no header.
    scores: of scores.SCORES, the main one first; () = the kind's usual ones.

  Raises:
    ValueError: an unknown kind, more than two texts, or a score of another kind.
  """
  if kind not in _CUSTOM:
    raise ValueError(f"task kind {kind!r} is not one of {', '.join(KINDS)}")
  known, layout, suffixes = _CUSTOM[kind]
  if strange := [name for name in scores if name not in known]:
    raise ValueError(f"{strange[0]!r} does not score {kind}; use {' or '.join(known)}")
  scores = tuple(scores) or (known if kind == "regression" else known[:1])
  return Task(
    "custom",
    kind,
    tuple(texts) if kind in ("classification", "regression") else (),
    label,
    tuple(labels),
    layout,
    files={split: tuple(split + suffix for suffix in suffixes) for split in ("train", "dev", "test")},
    header=tuple(header),
    impossible=kind == "span",
    scores=scores,
    main_score=_MAIN.get(scores[0], scores[0]),
  )
