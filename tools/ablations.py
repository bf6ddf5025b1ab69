"""Six of the papers' comparisons at a small scale, from text to table: pretrain, fine-tune, ask, compare.

  python -m tools.ablations --output=runs/ablations --glue=GLUE --conll=CONLL --seeds=3 --jobs=2 \\
      --input wikitext/train.txt --heldout_input wikitext/valid.txt wikitext/test.txt --data_dir=runs/tfds

Two layers of width 128 learn from the text, by BERT's, ALBERT's and XLNet's recipes and what their papers put beside
them (configs/ablations/); each is then fine-tuned on names (CONLL: the folder of CoNLL-2003) and on pairs of sentences
(GLUE: the folder over STS-B). The arguments that are not named below are the text's, as tools.prepare_corpus has them.

The same command continues: finished runs stay, begun ones resume, and what is in OUTPUT/results.json is not run again,
be its workdir there or not. Seeds may grow. --only=nsp,memory is two of the six: nsp, ltr, sharing, sop, plm, memory.
Ctrl-C or SIGTERM makes the runs save and stop. At the end, or with --dry_run before it, a table: means ± deviations,
differences over paired seeds with their standard errors, and in how many seeds the paper's order is there.
"""

import argparse
import contextlib
import json
import pathlib
import signal
import subprocess
import sys

from tqdm import tqdm

from tools import ablation_plan, ablation_table, cli, corpus_flags, sweep, sweep_jobs, sweep_plan
from tools.ablation_plan import COMPARISONS, VOCABULARIES, Needs
from tools.ablation_table import Results
from tools.sweep_jobs import Ended
from tools.sweep_plan import Run

RESULTS = "results.json"


def main() -> None:
  args, text = _parse()
  sources = {task: str(source) for task, source in (("conll2003", args.conll), ("stsb", args.glue)) if source}
  plan = ablation_plan.needs(args.only, range(args.seeds), args.steps, args.output, sources)
  with contextlib.nullcontext() if args.dry_run else cli.claimed(args.output):
    results = Results(args.output / RESULTS, ablation_plan.scale(args.steps, args.vocab_size))
    for need in plan:
      results.take_finished(need)
    left = [need for need in plan if results.missing(need)]
    if not args.dry_run:
      for family in dict.fromkeys(need.arm.family for need in left):
        prepare(family, args.output / "corpora", args.vocab_size, text)
      stopped, failed = execute(left, results, args.jobs)
      results.write()
  print(json.dumps(results.values, indent=2) if args.json else ablation_table.text(args.only, results))
  if args.dry_run:
    print(f"{len(left)} of {len(plan)} pretrained models are not finished", file=sys.stderr)
  elif failed or stopped:
    why = f"{cli.counted(failed, 'run')} failed" if failed else "stopped"
    print(f"{why}; the same command continues", file=sys.stderr)
    raise SystemExit(1 if failed else 128 + stopped)


def prepare(family: str, folder: pathlib.Path, vocab_size: int, text: list[str]) -> None:
  """Makes the family's vocabulary and corpus, unless that was done before.

  Raises:
    ValueError: there is no text, what is there was made of another, or a tool has failed; it has said why.
  """
  corpus, tokenizer, made = folder / family, folder / f"{family}-tokenizer", folder / f"{family}.json"
  asked = {"vocab_size": vocab_size, "text": text}
  begun = made.exists() and (tokenizer.exists() or corpus.exists())  # else what was asked for came to nothing
  before = json.loads(made.read_text(encoding="utf-8")) if begun else asked
  if before != asked | ({} if text else {"text": before["text"]}):
    flags = " ".join([f"--vocab_size={before['vocab_size']}", *before["text"]])
    raise ValueError(f"{corpus} is made by {flags}; use these, or another --output")
  if (corpus / "corpus.json").exists():
    return
  if not text:
    raise ValueError(f"{corpus} is not prepared; say what text it is made of: --input=GLOB or --tfds=NAME")
  make = [*VOCABULARIES[family], f"--vocab_size={vocab_size}", f"--output={tokenizer}"]
  folder.mkdir(parents=True, exist_ok=True)
  sweep_plan.write(made, json.dumps(asked))
  commands = [["prepare_corpus", *text, f"--tokenizer={tokenizer}", f"--output={corpus}"]]
  if not tokenizer.exists():
    commands.insert(0, ["train_tokenizer", *text, *make])
  for command in commands:
    with cli.handling([signal.SIGTERM], signal.default_int_handler):  # else the tool would outlive this one
      status = subprocess.run([sys.executable, "-m", f"tools.{command[0]}", *command[1:]], check=False).returncode
    if status:
      raise ValueError(f"python -m tools.{command[0]} {' '.join(command[1:])} has failed; mend what it names and go on")


def execute(left: list[Needs], results: Results, jobs: int) -> tuple[int, int]:
  """Runs what is left, an arm's pretraining before what follows it; returns (the signal that has stopped it or 0, how
  many runs failed).

  Raises:
    ValueError: a workdir is another command's.
  """
  failed, refused = 0, ""
  every = [run for need in left for run in results.missing_runs(need)]
  with sweep_jobs.Asked().listening() as asked, tqdm(total=len(every), unit="run", disable=None) as bar:

    def ended(run: Run, how: Ended) -> None:
      nonlocal failed, refused
      bar.update(how.status != "stopped")
      if how.status == "failed":
        failed += 1
        refused = how.said if sweep_jobs.REFUSED in how.said else refused
        tqdm.write(f"{run.workdir}  failed: {how.said}  (all of it in {run.workdir / sweep_jobs.LOG})", file=sys.stderr)
      elif how.status == "finished":
        need = next(need for need in left if run in (need.pretraining, *need.after.values()))
        tqdm.write(f"{run.workdir}  {results.take(need, run)}", file=sys.stderr)
        results.write()

    def stopping(count: int, again: bool) -> None:
      tqdm.write(
        f"stopping {cli.counted(count, 'run')} ({'at once' if again else 'as soon as saved'})", file=sys.stderr
      )

    def execute_some(runs: list[Run]) -> None:
      sweep_jobs.execute(runs, sweep.TRAIN, jobs, asked, ended, stopping)
      if refused:
        raise ValueError(f"{refused.removeprefix('error: ')} (of all comparisons: another --output)")

    # A seed at a time, so that early tables compare what is comparable: its models, then what is asked of them.
    for seed in dict.fromkeys(need.pretraining.seed for need in left):
      some = [need for need in left if need.pretraining.seed == seed]
      first = [need.pretraining for need in some if need.pretraining in results.missing_runs(need)]
      execute_some(first)
      after = [
        run
        for need in some
        for run in results.missing_runs(need)
        if run != need.pretraining and sweep_plan.is_finished(need.pretraining)
      ]
      execute_some(after)
  return (asked.signals[0] if asked.signals else 0), failed


def _parse() -> tuple[argparse.Namespace, list[str]]:
  """Returns the tool's own arguments, and those that say what the text is."""
  parser = cli.parser(__doc__)
  add = parser.add_argument
  add("--output", required=True, type=pathlib.Path, metavar="DIR", help="where the runs live")
  add("--glue", type=pathlib.Path, metavar="DIR", help="the folder over STS-B; without it, no pairs")
  add("--conll", type=pathlib.Path, metavar="DIR", help="the folder of CoNLL-2003; without it, no names")
  add("--only", default=",".join(COMPARISONS), metavar="NAMES", help="comparisons, by name [all six]")
  add("--seeds", type=int, default=3, metavar="N", help="of pretraining and of fine-tuning [%(default)s]")
  add("--steps", type=int, default=1000, metavar="N", help="of pretraining [%(default)s]")
  add("--vocab_size", type=int, default=4000, metavar="N", help="pieces [%(default)s]")
  add("--jobs", type=int, default=1, metavar="N", help="runs at a time [%(default)s]")
  add("--dry_run", action="store_true", help="print the table of what is there, and run nothing")
  add("--json", action="store_true", help="print what results.json holds instead of the table")
  args, text = parser.parse_known_args()
  args.only = [name for name in args.only.split(",") if name]
  if not args.only:
    raise ValueError(f"--only names no comparison; use some of {', '.join(COMPARISONS)}")
  if strange := [name for name in args.only if name not in COMPARISONS]:
    raise ValueError(f"--only={strange[0]} is no comparison; use some of {', '.join(COMPARISONS)}")
  for name in ("seeds", "steps", "jobs"):
    if getattr(args, name) < 1:
      raise ValueError(f"--{name}={getattr(args, name)} must be at least 1")
  if text:  # a flag that no tool has ends here, rather than after hours or never
    of_text = argparse.ArgumentParser(prog=parser.prog, usage=argparse.SUPPRESS, allow_abbrev=False)
    corpus_flags.add(of_text)
    of_text.parse_args(text)
  return args, text


if __name__ == "__main__":
  cli.run(main)
