"""The stand-in for gcloud in its places."""

import os

import pytest

from launch import command, tpu, verbs, watching
from launch.shell import Runner
from tests.launch.gcloud import COMMIT, Gcloud


@pytest.fixture
def gcloud(monkeypatch) -> Gcloud:
  """Lets nothing be run; the answers are set by calling it."""
  stand_in = Gcloud()
  monkeypatch.setattr(Runner, "execute", lambda *args: stand_in.execute(*args))
  monkeypatch.setattr(tpu.shutil, "which", lambda name: name)
  monkeypatch.setattr(watching, "PAUSE", 0.0)
  return stand_in


@pytest.fixture
def pod(gcloud, monkeypatch) -> Gcloud:
  """The same, at a commit, for arguments that are known to be right."""
  monkeypatch.setattr(command, "commit", lambda: (COMMIT, []))
  monkeypatch.setattr(verbs, "check", lambda job: None)
  return gcloud


@pytest.fixture
def program(tmp_path, monkeypatch):
  """Puts a program of the name gcloud on PATH; returns the function that writes it."""

  def write(text: str) -> None:
    file = tmp_path / "bin" / "gcloud"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!/bin/bash\n{text}\n")
    file.chmod(0o755)

  monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
  return write
