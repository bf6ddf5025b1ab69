"""Flax modules: pure functions from parameters and token rows to hidden vectors and logits."""
