"""What a fine-tuning run is made of, before anything is compiled."""

from parts import finetuning
from tests import tasks


def test_what_a_run_cuts_off_is_said(tmp_path, capsys):
  source = tasks.write(tmp_path, "classification")
  finetuning.build(tasks.config(source, "classification", length=6))
  train, held_out = capsys.readouterr().err.splitlines()
  assert train.startswith("note: train: ")
  assert train.endswith(" of 24 texts lose tokens, for a row has 6")
  assert held_out.startswith("note: held-out: ")
  finetuning.build(tasks.config(source, "classification", length=24))
  assert capsys.readouterr().err == ""
