"""Tasks: what they are, where their examples come from, and how these become batches of token rows.

table      TASKS: a line a task
examples   what an example is
readers    the official files, a TFDS data set, or JSON lines, as examples
features   examples as token sequences, with what a head needs
packing    sequences as batches of rows
"""
