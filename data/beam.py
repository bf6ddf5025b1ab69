"""Passes over the parts of a corpus, done by Apache Beam instead of processes here.

A pass is one Map over the numbers of its jobs; it begins when the pass before has ended, in the same pipeline. Nothing
but numbers goes through Beam: a worker reads what its job names and leaves files, which are whole or not there. So a
bundle may be lost, retried, or done twice at once, and what comes out are the bytes that `data.shards.run` makes.

Workers reach the folders that jobs name, and import this package: both is so on one machine, and elsewhere the first
means a bucket or a shared disk, the second a container image (launch/README.md).
"""

import dataclasses
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Any

import apache_beam as beam
import tensorflow_datasets as tfds
from apache_beam.options import pipeline_options
from apache_beam.runners.runner import PipelineState

from data import shards

# Beam's DirectRunner would first fetch a program, which then leaves --direct_num_workers aside.
_RUNNERS = {"DirectRunner": "apache_beam.runners.portability.fn_api_runner.FnApiRunner"}


@dataclasses.dataclass(frozen=True)
class Beam:
  """A `shards.Run`.

  Attributes:
    runner: DirectRunner, DataflowRunner, FlinkRunner, SparkRunner or another that Beam knows.
    options: the flags of Beam's PipelineOptions, as on a command line.

  Raises:
    ValueError: Beam has no such runner, or its packages are missing, or it refuses the options.
    OSError: in a call: the pipeline failed; the message is the worker's.
  """

  runner: str
  options: str = ""

  def __post_init__(self):
    self._pipeline()

  def __call__(self, passes: Sequence[shards.Pass]) -> None:
    pipeline = self._pipeline()
    done = pipeline | beam.Create([None])
    for label, function, jobs in passes:
      done = (
        done
        | f"{label}: all before is done" >> beam.combiners.Count.Globally()
        | f"{label}: numbers" >> beam.FlatMap(lambda _, count: range(count), len(jobs))
        | f"{label}: spread" >> beam.Reshuffle()
        | label >> beam.Map(_do, function, list(jobs))
      )
    print(f"{self.runner}: {', then '.join(f'{len(jobs)} × {label}' for label, _, jobs in passes)}", file=sys.stderr)
    try:
      state = pipeline.run().wait_until_finish()
    except Exception as error:  # of a worker or of any runner: no common class
      raise OSError(f"{self.runner}: {_reason(error)}") from error
    if state != PipelineState.DONE:
      raise OSError(f"{self.runner}: the pipeline is {state}; the same command goes on with what is missing")

  def download_config(self) -> tfds.download.DownloadConfig:
    """For TFDS, so that the data sets it makes on Beam are made there as well."""
    return tfds.download.DownloadConfig(beam_options=self._pipeline().options)

  def _pipeline(self) -> beam.Pipeline:
    flags = [f"--runner={_RUNNERS.get(self.runner, self.runner)}", *shlex.split(self.options)]
    options = pipeline_options.PipelineOptions(flags)
    try:
      return beam.Pipeline(options=options)
    except (ValueError, ImportError) as error:
      raise ValueError(f"--runner={self.runner}: {error}") from None


def _do(number: int, function: Callable[[Any], Any], jobs: Sequence[Any]) -> None:
  os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the workers are the parallelism
  with shards.attempt():
    function(jobs[number])


def _reason(error: Exception) -> str:
  """The last error that a message of Beam's names, which is the one at the bottom; it holds whole tracebacks."""
  lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
  named = [match[1] for line in lines if (match := re.match(r"[\w.]+(?:Error|Exception): (.+)", line))]
  return re.sub(r" \[while running .*", "", (named or lines)[-1])
