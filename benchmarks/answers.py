"""Gold answers that come back character for character through tokens and windows, and why the others do not.

  python -m benchmarks.answers --source=squad --split train dev --tokenizer vocab.txt spiece.model
  python -m benchmarks.answers --source=squad --tokenizer runs/bert/tokenizer --show=3

Each distinct answer of each question is laid out as for training; the tokens that are then the target stand for
characters of the context, which are the answer or not. An answer that begins or ends inside a piece cannot be
expressed: the fewest whole pieces around it are more than it.
"""

import collections
import json

from tqdm import tqdm

from data.tasks import answers, features, readers, table
from data.tasks.examples import SpanExample
from data.tokenizers import Tokenizer, load_tokenizer
from tools import cli

_AT_ONCE = 500  # answers


def main() -> None:
  parser = cli.parser(__doc__)
  add = parser.add_argument
  add("--source", required=True, help="the folder with the task's official files, or one of them")
  add("--task", default="squad2", choices=[name for name, task in table.TASKS.items() if task.kind == "span"])
  add("--split", nargs="+", default=["dev"], help="[dev]")
  add("--tokenizer", nargs="+", required=True, help="folders or files of vocabularies")
  add("--length", type=int, default=384, help="tokens of a window, with its question [%(default)s]")
  add("--doc_stride", type=int, default=128, help="[%(default)s]")
  add("--show", type=int, default=0, help="examples of each reason to print [%(default)s]")
  add("--json", action="store_true", help="one JSON object a line instead of a table")
  args = parser.parse_args()
  task = table.find_task(args.task)
  examples = [e for split in args.split for e in readers.read(task, args.source, split)]
  for path in args.tokenizer:
    counts, shown = count(examples, load_tokenizer(path), args.length, args.doc_stride, args.show)
    if args.json:
      print(json.dumps({"tokenizer": path, "answers": counts.total(), **counts}))
      continue
    print(f"{path}: {counts.total():,} answers")
    for fate, number in counts.most_common():
      print(f"  {fate:<22} {number:>7,}  {number / counts.total():.4f}")
      for text in shown.get(fate, ()):
        print(f"    {text}")


def count(
  examples: list[SpanExample], tokenizer: Tokenizer, length: int, doc_stride: int, show: int = 0
) -> tuple[collections.Counter, dict[str, list[str]]]:
  """Returns how many answers have each fate (see `data.tasks.answers`), and the first few that are not exact.

  Raises:
    AssertionError: the target is not the answer though its characters are those of whole tokens.
  """
  alone, counts, shown = answers.one_each(examples), collections.Counter(), collections.defaultdict(list)
  for start in tqdm(range(0, len(alone), _AT_ONCE), unit="×500 answers", disable=None):
    some = alone[start : start + _AT_ONCE]
    found = features.build(table.TASKS["squad2"], some, tokenizer, length, doc_stride=doc_stride)
    for e, fate, text in zip(some, answers.fates(some, found), answers.given_back(some, found), strict=True):
      (answer, at), *_ = e.answers
      assert (fate == answers.EXACT) == (text == answer), f"{e.where}: {fate}: {answer!r} comes back as {text!r}"
      counts[fate] += 1
      if fate != answers.EXACT and len(shown[fate]) < show:
        around = e.context[max(at - 10, 0) : at], e.context[at + len(answer) : at + len(answer) + 10]
        shown[fate].append(f"{around[0]}[{answer}]{around[1]}".replace("\n", " "))
  return counts, shown


if __name__ == "__main__":
  cli.run(main)
