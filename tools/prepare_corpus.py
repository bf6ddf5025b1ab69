"""Prepare a corpus for pretraining: text to documents of sentences of token ids, in shards for random access.

  python -m tools.prepare_corpus --corpus=wikipedia_sample --tokenizer=runs/tokenizer --output=runs/corpus
  python -m tools.prepare_corpus --input 'books/*.txt' --documents=file --tokenizer=DIR --output=DIR
  python -m tools.prepare_corpus --tfds=wikipedia/20230601.en --tokenizer=DIR --output=DIR
  python -m tools.prepare_corpus --runner=DataflowRunner --beam_options='--project=… --temp_location=gs://…' \\
      --input 'gs://BUCKET/text/*' --data_dir=gs://BUCKET/tfds --tokenizer=DIR --output=gs://BUCKET/corpus

Give it the text, --heldout and --data_dir that tools.train_tokenizer got: both then hold out the same documents, and
the text is read only once. Interrupt it when you like: the same command again continues where it stopped, and ends with
the same bytes. So does --runner, on many machines (launch/README.md).
"""

import argparse
import functools
import time

from data import corpus, places, prepare, shards, tokenizers
from tools import cli, corpus_flags


def main() -> None:
  parser = cli.parser(__doc__)
  parser.add_argument(
    "--tokenizer",
    required=True,
    help="folder that tools.train_tokenizer wrote, a Hugging Face folder, vocab.txt or FILE.model",
  )
  parser.add_argument("--output", required=True, help="folder to write; local, gs://, …")
  parser.add_argument("--runner", help="do it on Apache Beam: DirectRunner (here), DataflowRunner, FlinkRunner, …")
  parser.add_argument("--beam_options", metavar="FLAGS", help="with --runner: Beam's own flags, in one string")
  corpus_flags.add(parser)
  corpus_flags.add_sentences(parser)
  args = parser.parse_args()
  _check(args, parser.get_default("processes"))

  started = time.perf_counter()
  tokenizer = tokenizers.load_tokenizer(args.tokenizer)
  beam = _beam(args) if args.runner else None
  run = beam or functools.partial(shards.run, processes=args.processes)
  splits = corpus_flags.open_corpus(args, run, beam and beam.download_config())
  index = prepare.prepare(args.output, splits, tokenizer, args.sentences, args.language, run)
  for split, numbers in index.report.items():
    print(f"{split}: {_describe(numbers)}")
  _warn(index)
  print(f"{args.output} is ready ({time.perf_counter() - started:.1f} s)")


def _check(args: argparse.Namespace, processes: int) -> None:
  if not args.runner and args.beam_options:
    raise ValueError("--beam_options goes with --runner")
  if args.runner and args.processes != processes:
    raise ValueError("--processes does not go with --runner; --beam_options says how many workers there are")
  if args.runner and "dataflow" in args.runner.lower():
    paths = {"output": [args.output], "data_dir": [args.data_dir or ""], "input": args.input or []}
    for flag, given in {**paths, "heldout_input": args.heldout_input}.items():
      if here := [path for path in given if not places.is_remote(path)]:
        raise ValueError(f"--{flag}={here[0]}: Dataflow's workers reach no disk of this machine; give a gs:// path")


def _beam(args: argparse.Namespace):
  try:
    from data import beam
  except ModuleNotFoundError as error:
    if (error.name or "").split(".")[0] != "apache_beam":
      raise
    fix = "pip install -r requirements-beam.txt, in an environment of its own"
    raise ValueError(f"--runner needs Apache Beam, which is not installed: {fix}") from None
  return beam.Beam(args.runner, args.beam_options or "")


def _describe(n: dict[str, float]) -> str:
  dropped = f"{n['duplicates']:,} duplicates dropped" + (f", {n['empty']:,} without a token" if n["empty"] else "")
  return (
    f"{n['documents']:,} documents ({dropped}), {n['sentences']:,} sentences, {n['tokens']:,} tokens, "
    f"{n['bytes_per_token']:.2f} bytes a token, {n['unknown_rate']:.3%} unknown"
  )


def _warn(index: corpus.CorpusIndex) -> None:
  for split, n in index.report.items():
    if n["one_sentence_documents"]:
      share = n["one_sentence_tokens"] / n["tokens"]
      print(
        f"note: {n['one_sentence_documents']:,} documents of {split} are of one sentence ({share:.1%} of its tokens); "
        "they hold no pair of sentences, and config.data.single_sentence says what becomes of them"
      )
  if "heldout" not in index.splits:
    print("note: nothing is held out, so training on this corpus cannot evaluate; see --heldout")


if __name__ == "__main__":
  cli.run(main)
