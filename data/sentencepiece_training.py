"""Training a SentencePiece model as ALBERT's and XLNet's were: unigram, by the library, on text as encoding sees it.

The same text gives the same bytes. The library's result depends on its number of threads, so that is fixed; and what it
samples (`input_sentence_size`) differs from process to process, so the sample is drawn here.
"""

import io
import itertools
from collections.abc import Iterator

import sentencepiece
import tqdm

from data.corpora import Documents
from data.sentencepiece import PAD, UNK, Family, preprocess

_PART_BYTES = 1 << 20  # text read at a time
_MAX_CHARS = 1000  # of a sentence: at four bytes a character just below the library's limit, beyond which it drops it
_THREADS = 16  # spm_train's default


def train(
  documents: Documents,
  family: Family,
  vocab_size: int,
  lowercase: bool,
  keep_accents: bool = False,
  character_coverage: float = 0.99995,
  sample_bytes: int = 0,
) -> bytes:
  """Returns the bytes of a `.model` file.

  Args:
    documents: the corpus.
    family: whose special pieces and symbols the vocabulary begins with.
    vocab_size: pieces, or fewer if the text does not hold as many.
    lowercase, keep_accents: see `data.sentencepiece.SentencePiece`.
    character_coverage: share of the text's characters that are pieces; the rarest others are unknown.
    sample_bytes: read about so much text, spread evenly over the corpus; 0 reads all. The library holds what is read,
      and takes about 20 bytes of memory for a byte of it.

  Raises:
    ValueError: no text, a vocabulary too small for its characters, or an argument out of range.
  """
  if not 0 < character_coverage <= 1:
    raise ValueError(f"character_coverage={character_coverage} is no share of the characters; it lies in (0, 1]")
  sentences = _sentences(documents, sample_bytes, lowercase, keep_accents)
  first = next(sentences, None)
  if first is None:
    raise ValueError("the text has no words to train a vocabulary on")
  special = family.special
  numbered = {name: special.index(piece) if piece in special else -1 for name, piece in _NUMBERED.items()}
  model = io.BytesIO()
  try:
    sentencepiece.SentencePieceTrainer.train(
      sentence_iterator=itertools.chain([first], sentences),
      model_writer=model,
      model_type="unigram",
      vocab_size=vocab_size,
      hard_vocab_limit=False,
      character_coverage=character_coverage,
      control_symbols=[piece for piece in special if piece not in _NUMBERED.values()],
      user_defined_symbols=list(family.symbols),
      num_threads=_THREADS,
      minloglevel=2,  # errors only: they are raised
      **numbered,
    )
  except RuntimeError as error:
    raise ValueError(f"sentencepiece cannot train on this text: {_reason(error)}") from None
  return model.getvalue()


_NUMBERED = {"pad_id": PAD, "unk_id": UNK, "bos_id": "<s>", "eos_id": "</s>"}


def _reason(error: RuntimeError) -> str:
  """What the library says behind its source line and the condition that failed."""
  return " ".join(str(error).rsplit("] ", 1)[-1].split())


def _sentences(documents: Documents, sample_bytes: int, lowercase: bool, keep_accents: bool) -> Iterator[str]:
  """Yields the lines of documents as encoding sees them, long ones cut at a blank (pieces do not cross one anyway)."""
  for start, stop in tqdm.tqdm(documents.parts(_PART_BYTES, sample_bytes), desc="read", unit="MB", disable=None):
    for text in documents.read(start, stop):
      for line in text.split("\n"):
        line = preprocess(line, lowercase, keep_accents)
        while len(line) > _MAX_CHARS:
          cut = line.rfind(" ", 1, _MAX_CHARS) + 1 or _MAX_CHARS
          yield line[:cut]
          line = line[cut:]
        if line:
          yield line
