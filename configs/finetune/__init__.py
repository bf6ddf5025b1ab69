"""Fine-tuning as the papers do it: a file a family, a row a task."""
