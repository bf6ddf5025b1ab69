"""What every family's fine-tuning recipes begin with."""

from configs import base


def recipe(family: str, tasks: dict, task: str):
  """Returns (config, row) of a task with the row's batch size, length and rate set.

  Args:
    family: the file's name.
    tasks: its rows, which have at least `batch_size`, `length` and `learning_rate`.
    task: one of them.

  Raises:
    ValueError: the file has no such task.
  """
  if task not in tasks:
    raise ValueError(
      f"configs/finetune/{family}.py has no task {task!r}; use one of {', '.join(tasks)}. Any other task is run by "
      "--config=configs/base.py:task --config.data.task=TASK (data/tasks/table.py has all, and custom is one's own)"
    )
  row = tasks[task]
  c = base.get_config("task")
  c.data.task = task
  c.batch_size, c.length = row.batch_size, row.length
  c.optimizer.learning_rate = row.learning_rate
  if task == "mnli":
    c.data.eval_splits = ("dev", "dev_mismatched")
  return c, row
