"""Models of the hub by name, from a cache as huggingface_hub makes it; the network is never asked."""

import pathlib
import shutil

import pytest

from pretrained import hub
from pretrained.load import load

constants = pytest.importorskip("huggingface_hub.constants")

FIXTURE = pathlib.Path(__file__).parent.parent / "fixtures" / "bert"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path, monkeypatch) -> pathlib.Path:
  """A cache with one revision of ORG/tiny, which is the branch main; offline."""
  repo = tmp_path / "hub" / "models--ORG--tiny"
  snapshot = repo / "snapshots" / COMMIT
  snapshot.mkdir(parents=True)
  shutil.copytree(FIXTURE, repo / "blobs", ignore=shutil.ignore_patterns("*.npz"))
  for file in (repo / "blobs").iterdir():
    (snapshot / file.name).symlink_to(pathlib.Path("..", "..", "blobs", file.name))
  (repo / "refs").mkdir()
  (repo / "refs" / "main").write_text(COMMIT)
  monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
  monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
  return snapshot


@pytest.mark.parametrize("name", ["hf:ORG/tiny", "hf:ORG/tiny@main", f"hf:ORG/tiny@{COMMIT}"])
def test_a_cached_model(cache, name):
  assert hub.folder(name).resolve() == cache.resolve()
  loaded = load(name)
  assert (loaded.config, loaded.tokenizer.vocab_size, loaded.missing) == (load(FIXTURE).config, 96, ())


@pytest.mark.parametrize("name", ["hf:ORG/other", "hf:ORG/tiny@v2"])
def test_what_is_not_there_is_said_in_a_line(cache, name):
  with pytest.raises(FileNotFoundError, match=f"^{name}: not in the cache and not to be had ") as raised:
    load(name)
  assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["hf:", "hf:a/b/c", "hf:../x", "hf:a/b@", "hf:a b", "hf:/etc/passwd", "hf:.."])
def test_names_that_are_none(name):
  with pytest.raises(ValueError, match=r"is not hf:ORG/NAME or hf:ORG/NAME@REVISION"):
    hub.folder(name)
