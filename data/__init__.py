"""Where tokens come from: corpora, tokenizers, preparation, chunks, pairs and the pipeline of batches."""
