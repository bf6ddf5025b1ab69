"""Measure corpus preparation: MB of text a second and core, and the memory that all its processes take together.

  python -m benchmarks.prepare --megabytes=100
  python -m benchmarks.prepare --megabytes=1000 --processes=2 --json
  python -m benchmarks.prepare --beam_options='--direct_num_workers=2 --direct_running_mode=multi_processing'

The text is made here: articles of `wikipedia_sample` again and again, their sentences in another order and every
fortieth word another number. Measured is the command a user runs, from files to the finished folder.
"""

import json
import pathlib
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import psutil

from data import corpora, wordpiece, wordpiece_training
from tools import cli

_FILE_BYTES = 100_000_000


def main() -> None:
  parser = cli.parser(__doc__)
  parser.add_argument("--megabytes", type=int, default=100, help="text to make [%(default)s]")
  parser.add_argument("--processes", type=int, default=1, help="[%(default)s]")
  parser.add_argument("--beam_options", help="prepare on Beam's DirectRunner instead, with these")
  parser.add_argument("--vocab_size", type=int, default=30000, help="[%(default)s]")
  parser.add_argument("--sentences", default="split", help="[%(default)s]")
  parser.add_argument("--folder", help="where to write, and delete [a temporary folder]")
  parser.add_argument("--json", action="store_true", help="print one JSON object")
  args = parser.parse_args()

  with tempfile.TemporaryDirectory(dir=args.folder) as name:
    folder = pathlib.Path(name)
    sample = corpora.wikipedia_sample(str(folder / "tfds"))[corpora.TRAIN]
    articles = list(sample.read(0, len(sample)))
    words = wordpiece_training.count_words(sample, lowercase=True, sample_bytes=0)
    pieces = wordpiece_training.train(words, args.vocab_size, "frequency", min_frequency=1)
    wordpiece.WordPiece(pieces).save(folder / "tokenizer")
    size = _write(folder / "text", articles, args.megabytes * 1_000_000)
    result = {"megabytes": size / 1e6, "processes": args.processes, **_measure(folder, args, size)}
  if args.json:
    print(json.dumps(result))
  else:
    workers = f"{args.processes} processes" if args.beam_options is None else "Beam"
    print(
      f"{result['megabytes']:.0f} MB in {result['wall_s']:.1f} s with {workers}: "
      f"{result['mb_per_s_per_core']:.2f} MB/s a core (CPU time), peak {result['peak_mb']:.0f} MB "
      f"(largest process {result['peak_process_mb']:.0f} MB)"
    )


def _write(folder: pathlib.Path, articles: list[str], size: int) -> int:
  """Writes documents, a blank line between them, until there are `size` bytes; returns how many there are."""
  folder.mkdir()
  written, texts = 0, _changed(articles)
  for number in range(-(-size // _FILE_BYTES)):
    with (folder / f"{number:03d}.txt").open("wb") as file:
      while written < min(size, (number + 1) * _FILE_BYTES):
        written += file.write(next(texts).encode() + b"\n\n")
  return written


def _changed(articles: list[str]) -> Iterator[str]:
  rng = random.Random(0)
  while True:
    for article in articles:
      lines = article.split("\n")
      rng.shuffle(lines)
      yield re.sub(r"\w+", lambda m: str(rng.randrange(10**6)) if rng.random() < 0.025 else m[0], "\n".join(lines))


def _measure(folder: pathlib.Path, args, size: int) -> dict[str, float]:
  command = [sys.executable, "-m", "tools.prepare_corpus", f"--input={folder}/text/*.txt", "--heldout=0.01"]
  command += [f"--tokenizer={folder}/tokenizer", f"--output={folder}/corpus", f"--data_dir={folder}/tfds"]
  command += [f"--sentences={args.sentences}"]
  if args.beam_options is None:
    command += [f"--processes={args.processes}"]
  else:
    command += ["--runner=DirectRunner", f"--beam_options={args.beam_options}"]
  before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
  process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
  peak = largest = 0
  while process.poll() is None:
    sizes = _memory(process.pid)
    peak, largest = max(peak, sum(sizes)), max(largest, *sizes)
    time.sleep(0.05)
  if process.returncode:
    raise OSError("preparation failed")
  wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
  cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
  return {
    "wall_s": wall,
    "cpu_s": cpu,
    "mb_per_s_per_core": size / 1e6 / cpu,
    "mb_per_s": size / 1e6 / wall,
    "peak_mb": peak / 1e6,
    "peak_process_mb": largest / 1e6,
  }


def _memory(pid: int) -> list[int]:
  """Resident bytes of a process and of each of its descendants; shared pages count in each."""
  try:
    first = psutil.Process(pid)
    return [0, *(process.memory_info().rss for process in (first, *first.children(recursive=True)))]
  except psutil.NoSuchProcess:
    return [0]


if __name__ == "__main__":
  cli.run(main)
