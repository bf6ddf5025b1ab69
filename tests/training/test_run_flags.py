"""A run's arguments as every command that starts or compiles runs reads them."""

import pytest

from training import run_flags


def test_the_recipe_and_the_config_with_its_changes():
  arguments = ["--config.batch_size=7", "--config=configs/bert.py:4/256", "--workdir=runs/x"]
  recipe, config = run_flags.parsed(arguments)
  assert recipe == "configs/bert.py:4/256"
  assert (config.batch_size, config.model.num_layers, config.model.hidden_size) == (7, 4, 256)


@pytest.mark.parametrize(
  ("arguments", "said"),
  [
    (["--config=absent.py", "--workdir=x"], "absent.py"),
    (["--config=configs/bert.py:huge", "--workdir=x"], "huge"),
    (["--config=configs/bert.py", "--workdir=x", "--config.batchsize=7"], "unknown field.*batch_size"),
    (["--config=configs/bert.py"], "--workdir is required"),
  ],
)
def test_a_mistake_is_one_line(arguments, said):
  with pytest.raises(ValueError, match=said) as caught:
    run_flags.parsed(arguments)
  assert "\n" not in str(caught.value)
