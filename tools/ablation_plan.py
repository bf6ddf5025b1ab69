"""The six comparisons of tools.ablations: what is pretrained, on what it is fine-tuned, and what is asked of it."""

import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from tools import sweep_plan
from tools.sweep_plan import Run

# What the small scale (configs/quickstart.py) is changed to. Short rows first, as in BERT's recipe: in them attention
# soon tells neighbours apart; then rows for two sentences of a task. XLNet's distances need no second stage.
_RATE = {"optimizer.learning_rate": 3e-3}
_LONGER = {"length": 64, "batch_size": 64, "model.max_length": 64, "data.single_sentence": "skip"}
SCALE = {"bert": _RATE | _LONGER, "albert": _RATE | _LONGER, "xlnet": _RATE}
_SHORT = {"length": 32, "batch_size": 128}
SHORT_ROWS = {"bert": _SHORT, "albert": _SHORT}  # four fifths of the steps
VOCABULARIES = {
  "bert": ["--kind=wordpiece"],
  "albert": ["--kind=sentencepiece", "--family=albert"],
  "xlnet": ["--kind=sentencepiece", "--family=xlnet", "--cased"],
}
PRETRAINING = "pretraining"


class Arm(NamedTuple):
  """What is pretrained: a row of configs/ablations/FAMILY.py, at the small scale."""

  family: str
  row: str

  @property
  def name(self) -> str:
    return f"{self.family}-{self.row}"


class Measure(NamedTuple):
  """A number of a run: the metric of its last evaluation.

  Attributes:
    of: "pretraining"; a key of TASKS, after fine-tuning on it; or a key of QUESTIONS, asked of the pretrained model.
    metric: its name.
    lower: whether less is better.
  """

  of: str
  metric: str
  lower: bool = False

  @property
  def title(self) -> str:
    return self.metric if self.of == PRETRAINING else f"{self.of} {self.metric}"


class Comparison(NamedTuple):
  """Arms beside one another.

  Attributes:
    title: what is asked.
    arms: the first is what the others are compared with.
    measures: what they are compared by.
    paper: what the paper found, as pairs (better, worse) of rows.
    said: the same in words, with where it stands.
  """

  title: str
  arms: tuple[Arm, ...]
  measures: tuple[Measure, ...]
  paper: tuple[tuple[str, str], ...]
  said: str


# Fine-tuning: fields of configs/base.py:task. The source is the command line's.
_TASK = {"length": 64, "batch_size": 32, "optimizer.learning_rate": 5e-4, "head.dropout": 0.0}
TASKS = {
  "conll2003": _TASK | {"data.train_examples": 4000, "epochs": 3.0},
  "stsb": _TASK | {"epochs": 3.0},
}
# What a pretrained model is asked that it was not trained on: the objective's fields. Such a run has one step, and its
# rate of 0 leaves the weights as they were; the last evaluation counts, as of every run.
QUESTIONS = {"sop": {"objective.pair": "sop"}, "nsp": {"objective.pair": "nsp"}}

_NER, _PAIRS = Measure("conll2003", "f1"), Measure("stsb", "pearson")
_MASKED = Measure(PRETRAINING, "masked_loss", lower=True)
_arms = lambda family, *rows: tuple(Arm(family, row) for row in rows)

COMPARISONS = {
  "nsp": Comparison(
    "MLM + NSP against no NSP",
    _arms("bert", "base", "no_nsp"),
    (_MASKED, _NER, _PAIRS),
    (("base", "no_nsp"),),
    "BERT table 5: NSP helps, by 3.5 on QNLI and less elsewhere; RoBERTa's table 2 finds that leaving it out does",
  ),
  "ltr": Comparison(
    "MLM against left-to-right",
    _arms("bert", "no_nsp", "ltr"),
    (_NER, _PAIRS),
    (("no_nsp", "ltr"),),
    "BERT table 5: both sides help on every task, by 9 on MRPC and 10 on SQuAD",
  ),
  "sharing": Comparison(
    "ALBERT's sharing modes",
    _arms("albert", "all", "attention", "ffn", "none"),
    (_MASKED, Measure(PRETRAINING, "sop_accuracy"), _NER, _PAIRS),
    (("attention", "all"), ("none", "all"), ("ffn", "all")),
    "ALBERT table 4, embeddings of 128: all 80.1, attention 81.7, ffn 80.2, none 81.6",
  ),
  "sop": Comparison(
    "SOP against NSP",
    _arms("albert", "all", "nsp", "no_pair"),
    (_MASKED, Measure("sop", "sop_accuracy"), Measure("nsp", "nsp_accuracy"), _NER, _PAIRS),
    (("all", "nsp"), ("nsp", "no_pair")),
    "ALBERT table 5: SOP 80.1, NSP 79.2, neither 79.0; on SOP, NSP is at chance (52.0), not so the reverse (78.9)",
  ),
  "plm": Comparison(
    "XLNet's permutations against its DAE",
    _arms("xlnet", "k6", "dae"),
    (_NER, _PAIRS),
    (("k6", "dae"),),
    "XLNet table 6: RACE 66.7 and 65.0, SQuAD 2.0 81.0 and 79.6, MNLI 85.6 and 84.9, SST-2 93.4 and 92.6",
  ),
  "memory": Comparison(
    "XLNet's memory, on and off",
    _arms("xlnet", "k6", "no_memory"),
    (Measure(PRETRAINING, "plm_loss", lower=True), _NER, _PAIRS),
    (("k6", "no_memory"),),
    "XLNet table 6: memory helps on every task, by 1.1 on RACE and .6 on SST-2",
  ),
}


class Needs(NamedTuple):
  """The runs that an arm and a seed take: the pretraining, and what follows it, by Measure.of."""

  arm: Arm
  pretraining: Run
  after: dict[str, Run]


def needs(
  names: Sequence[str], seeds: Sequence[int], steps: int, output: pathlib.Path, sources: dict[str, str]
) -> list[Needs]:
  """Returns all runs, seed by seed, an arm that several comparisons have once.

  Args:
    names: of COMPARISONS.
    seeds: of pretraining and of fine-tuning.
    steps: of pretraining.
    output: where the workdirs live: OUTPUT/ARM/WHAT/seed=N; the corpora are in OUTPUT/corpora/FAMILY.
    sources: for each task, where its files are; a task without is left out.
  """
  wanted: dict[Arm, set[str]] = {}
  for name in names:
    for arm in COMPARISONS[name].arms:
      wanted.setdefault(arm, set()).update(measure.of for measure in COMPARISONS[name].measures)
  return [_needs(arm, of, seed, steps, output, sources) for seed in seeds for arm, of in wanted.items()]


def _needs(arm: Arm, of: set[str], seed: int, steps: int, output: pathlib.Path, sources: dict[str, str]) -> Needs:
  recipe = f"configs/ablations/{arm.family}.py:small/{arm.row}"
  fields = {**SCALE[arm.family], "data.corpus": output / "corpora" / arm.family}
  first = _run(arm, PRETRAINING, recipe, fields | _schedule(arm.family, steps), seed, output)
  after = {"init_from": first.workdir}
  runs = {
    task: _run(
      arm,
      task,
      "configs/base.py:task",
      {**TASKS[task], **after, "data.task": task, "data.source": sources[task]},
      seed,
      output,
    )
    for task in TASKS
    if task in of and task in sources
  }
  nothing_learned = {"steps": 1, "optimizer.learning_rate": 0.0, "checkpoint_every": 1}
  for question, asked in QUESTIONS.items():
    if question in of:
      runs[question] = _run(arm, question, recipe, {**fields, **nothing_learned, **after, **asked}, seed, output)
  return Needs(arm, first, runs)


def scale(steps: int, vocab_size: int) -> dict:
  """Returns what the numbers of two runs must agree in to be compared, as JSON gives it back."""
  return {"steps": steps, "vocab_size": vocab_size, "models": SCALE, "short_rows": SHORT_ROWS, "tasks": TASKS}


def _schedule(family: str, steps: int) -> dict:
  fields = {"steps": steps, "eval_every": steps, "checkpoint_every": max(steps // 4, 1), "keep_last": 1}
  if family in SHORT_ROWS and (first := steps * 4 // 5):
    fields["stages"] = ({"steps": first} | SHORT_ROWS[family], {"steps": steps - first})
  return fields


def _run(arm: Arm, what: str, recipe: str, fields: dict, seed: int, output: pathlib.Path) -> Run:
  arguments = [f"--config={recipe}", *(f"--config.{name}={value}" for name, value in fields.items())]
  return sweep_plan.plan(arguments, [], [seed], output / arm.name / what)[0]
