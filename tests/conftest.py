"""Settings that every test shares: CPU with eight virtual devices, a compilation cache, and checked shapes."""

import os
import pathlib
import signal

from tests import compilation

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # torch's threads wait for one another on cores that others use
os.environ.setdefault("XLA_FLAGS", f"{compilation.EIGHT_DEVICES} {compilation.QUICKLY}")

import jax
import pytest
from jaxtyping import install_import_hook

from data import corpora, documents, prepare, wordpiece, wordpiece_training
from tests import text

_CACHE = pathlib.Path(__file__).parent.parent / ".cache" / "xla"
jax.config.update("jax_compilation_cache_dir", str(_CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
jax.config.update("jax_numpy_rank_promotion", "raise")

# What a shell has started in the background ignores Ctrl-C, and so would what the tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

install_import_hook(["models", "objectives"], "beartype.beartype")


@pytest.fixture(scope="session")
def prepared_corpus(tmp_path_factory) -> pathlib.Path:
  """A small corpus, prepared by the same calls as the command lines: 120 documents, about 150 pieces."""
  folder = tmp_path_factory.mktemp("prepared")
  splits = corpora.text_files(
    [str(text.write(folder / "text.txt", 120))], documents.Format(), 0.1, [], str(folder / "tfds")
  )
  words = wordpiece_training.count_words(splits[corpora.TRAIN], lowercase=True, sample_bytes=0, processes=1)
  tokenizer = wordpiece.WordPiece(wordpiece_training.train(words, 150, max_alphabet=50), lowercase=True)
  prepare.prepare(folder / "corpus", splits, tokenizer, sentence_rule="line")
  return folder / "corpus"
