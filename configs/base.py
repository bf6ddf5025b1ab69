"""Every field of a run, its default, and what it means. Recipes start from here and change what differs.

Any field can be set on the command line: `--config.optimizer.learning_rate=1e-4`, `--config.stages[0].steps=1000`.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
  """Returns a BERT of base size with MLM and NSP; a recipe sets at least data.corpus and steps."""
  c = ConfigDict()
  c.seed = 0  # every random draw of the run follows from it
  c.steps = 1_000_000  # optimizer steps of the whole run
  c.batch_size = 256  # sequences of a global batch
  c.length = 128  # tokens of a sequence, special tokens included
  c.stages = ()  # ConfigDict(steps=, length=, batch_size=) each, one after another; the last lasts until `steps`
  c.accumulate = 1  # micro-batches a step; the result is that of the undivided batch, but for dropout's masks
  c.init_from = ""  # weights to start from: a workdir, or a folder in Hugging Face layout

  c.log_every = 100  # steps between records of training
  c.eval_every = 10_000  # steps between evaluations; there is one before the first step and one after the last
  c.eval_batches = 50  # batches of an evaluation at most, the same ones every time
  c.checkpoint_every = 10_000  # steps between checkpoints
  c.keep_last = 2  # newest checkpoints that stay
  c.keep_best = 1  # besides, those with the lowest evaluation loss
  c.profile_steps = ()  # (first, last): trace steps first..last-1 into WORKDIR/profile

  c.mesh = ConfigDict()
  c.mesh.data = -1  # devices that hold copies of the parameters; -1 = all that remain
  c.mesh.fsdp = 1  # devices that parameters and optimizer state are split over

  c.data = ConfigDict()
  c.data.corpus = ""  # folder written by tools.prepare_corpus
  c.data.short_rate = 0.1  # pairs cut to a random shorter length
  c.data.single_sentence = ""  # what a lone sentence becomes: split, skip, random; "" = random for nsp, else split

  c.model = ConfigDict()  # fields of models.config.EncoderConfig
  c.model.vocab_size = 30_522  # rows of the token table; 0 = as many as the corpus's tokenizer has pieces
  c.model.embedding_size = 0  # ALBERT: 128, then projected to hidden_size; 0 = hidden_size
  c.model.hidden_size = 768
  c.model.num_layers = 12
  c.model.num_heads = 12
  c.model.intermediate_size = 3072
  c.model.sharing = "none"  # what layers share: none, all (ALBERT), attention, ffn
  c.model.num_groups = 1  # of layers that share
  c.model.inner_groups = 1  # blocks in a layer, each with parameters of its own
  c.model.max_length = 512  # positions
  c.model.type_vocab_size = 2
  c.model.vocab_multiple = (
    1  # pad the token table to a multiple of this, for even splits; masked and stripped on export
  )
  c.model.initializer_range = 0.02  # standard deviation of the initial weights, cut at two
  c.model.activation = "gelu_new"  # gelu_new (tanh, the originals' "gelu"), gelu (erf), relu
  c.model.hidden_dropout = 0.1
  c.model.attention_dropout = 0.1  # on the probabilities
  c.model.layer_norm_eps = 1e-12
  c.model.dtype = "float32"  # of the computation; bfloat16 on TPU. Parameters are float32 always
  c.model.unroll = 1  # layers an iteration of the loop over layers; 0 = all, faster on CPU and slower to compile
  c.model.remat = "none"  # none, dots, full: what the backward pass computes again instead of keeping

  c.objective = ConfigDict()
  c.objective.pair = "nsp"  # nsp (½ of second segments are random), sop (½ of pairs are swapped), none (all in order)
  c.objective.dropout_prng = "threefry2x32"  # rbg is faster on TPU; then equality across meshes is not promised
  c.objective.masking = ConfigDict()
  c.objective.masking.rate = 0.15  # targets over length
  c.objective.masking.mask = 0.8  # of targets: shown as [MASK]
  c.objective.masking.random = 0.1  # of targets: shown as a random token
  c.objective.masking.whole_word = False  # choose words rather than tokens
  c.objective.masking.ngram = 1  # choose up to so many words (or tokens) together, n with p ∝ 1/n; ALBERT: 3
  c.objective.masking.ngram_favor = "short"  # long: p(n) reversed

  c.optimizer = ConfigDict()
  c.optimizer.name = "bert_adamw"  # bert_adamw, albert_lamb (the originals': no bias correction), adamw, lamb
  c.optimizer.b1 = 0.9
  c.optimizer.b2 = 0.999
  c.optimizer.eps = 1e-6
  c.optimizer.weight_decay = 0.01
  c.optimizer.clip = 1.0  # largest global norm of the gradient; 0 = no clipping
  c.optimizer.learning_rate = 1e-4  # after warm-up
  c.optimizer.warmup_steps = 10_000
  c.optimizer.decay = "linear"  # linear to 0 at the last step, constant
  c.optimizer.shifted = False  # decay from the end of warm-up rather than from step 0
  return c
