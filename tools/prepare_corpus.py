"""Prepare a corpus for pretraining: text to documents of sentences of token ids, in shards for random access.

  python -m tools.prepare_corpus --corpus=wikipedia_sample --tokenizer=runs/tokenizer --output=runs/corpus
  python -m tools.prepare_corpus --input 'books/*.txt' --documents=file --tokenizer=DIR --output=DIR
  python -m tools.prepare_corpus --tfds=wikipedia/20230601.en --tokenizer=DIR --output=DIR

Give it the text, --heldout and --data_dir that tools.train_tokenizer got: both then hold out the same documents, and
the text is read only once. Interrupt it when you like: the same command again continues where it stopped, and ends with
the same bytes.
"""

import time

from data import corpus, prepare, tokenizers
from tools import cli, corpus_flags


def main() -> None:
  parser = cli.parser(__doc__)
  parser.add_argument(
    "--tokenizer",
    required=True,
    help="folder that tools.train_tokenizer wrote, a Hugging Face folder, vocab.txt or FILE.model",
  )
  parser.add_argument("--output", required=True, help="folder to write")
  corpus_flags.add(parser)
  corpus_flags.add_sentences(parser)
  args = parser.parse_args()

  started = time.perf_counter()
  tokenizer = tokenizers.load_tokenizer(args.tokenizer)
  splits = corpus_flags.open_corpus(args)
  index = prepare.prepare(args.output, splits, tokenizer, args.sentences, args.language, args.processes)
  for split, numbers in index.report.items():
    print(f"{split}: {_describe(numbers)}")
  _warn(index)
  print(f"{args.output} is ready ({time.perf_counter() - started:.1f} s)")


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
