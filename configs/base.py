"""Every field of a run, its default, and what it means. Recipes start from here and change what differs.

Any field can be set on the command line: `--config.optimizer.learning_rate=1e-4`, `--config.stages[0].steps=1000`, or
all stages of a recipe that has none: `--config.stages="({'steps': 900, 'length': 128}, {'steps': 100})"`.
"""

from ml_collections import ConfigDict

FAMILIES = ("encoder", "xlnet", "task")


def get_config(family: str = "encoder") -> ConfigDict:
  """Returns a run of a family, of base size; a recipe sets at least data.corpus and steps.

  Args:
    family: "encoder" (BERT, with MLM and NSP; ALBERT differs in its fields), "xlnet", or "task" (fine-tuning, whatever
      the checkpoint's family). It decides which fields data, model and objective have.
  """
  if family not in FAMILIES:
    raise ValueError(f"there is no family {family!r}; use one of {', '.join(FAMILIES)}")
  c = ConfigDict()
  c.family = family
  c.seed = 0  # every random draw of the run follows from it
  c.steps = 1_000_000  # optimizer steps of the whole run
  c.batch_size = 256  # sequences of a global batch
  c.length = 128  # tokens of a sequence, special tokens included
  c.stages = ()  # ConfigDict(steps=, length=, batch_size=) each, one after another; the last lasts until `steps`
  c.accumulate = 1  # micro-batches a step; the result is that of the undivided batch, but for dropout's masks
  c.init_from = ""  # weights to start from: WORKDIR[@STEP], a folder in Hugging Face layout, or a TF1 checkpoint

  c.log_every = 100  # steps between records of training
  c.eval_every = 10_000  # steps between evaluations; there is one before the first step and one after the last
  c.eval_batches = 50  # batches of an evaluation at most, the same ones every time
  c.checkpoint_every = 10_000  # steps between checkpoints
  c.keep_last = 2  # newest checkpoints that stay
  c.keep_best = 1  # besides, those with the lowest evaluation loss
  c.checkpoint_memory = "exact"  # what is saved of XLNet's memory, in the newest checkpoint: exact; zero = nothing
  c.profile_steps = ()  # (first, last): trace steps first..last-1 into WORKDIR/profile

  c.mesh = ConfigDict()
  c.mesh.data = -1  # devices that hold copies of the parameters; -1 = all that remain (of a slice)
  c.mesh.fsdp = 1  # devices that parameters and optimizer state are split over
  c.mesh.tensor = 1  # devices that attention heads and feed-forward width are split over; they share their rows
  c.mesh.dcn_data = -1  # TPU slices, joined by a data-centre network, that hold copies; -1 = all that remain
  c.mesh.dcn_fsdp = 1  # TPU slices that parameters are split over

  c.optimizer = ConfigDict()
  c.optimizer.name = "bert_adamw"  # bert_adamw, albert_lamb (the originals': no bias correction), adamw, lamb
  c.optimizer.b1 = 0.9
  c.optimizer.b2 = 0.999
  c.optimizer.eps = 1e-6
  c.optimizer.weight_decay = 0.01
  c.optimizer.clip = 1.0  # largest global norm of the gradient; 0 = no clipping
  c.optimizer.learning_rate = 1e-4  # after warm-up
  c.optimizer.warmup_steps = 10_000
  c.optimizer.decay = "linear"  # linear, cosine, constant
  c.optimizer.final = 0.0  # share of learning_rate that is left at the last step
  c.optimizer.shifted = False  # decay from the end of warm-up rather than from step 0

  sections = {"encoder": _encoder, "xlnet": _xlnet, "task": _task}
  c.data, c.model, c.objective = sections[family]()
  if family == "task":
    _fine_tune(c)
  return c


def _fine_tune(c: ConfigDict) -> None:
  """What fine-tuning has besides, and where its usual values differ."""
  del c.stages, c.eval_batches  # one stage; every example is evaluated
  c.epochs = 3.0  # of the task's training examples
  c.steps = 0  # 0 = as many as the epochs have
  c.batch_size = 32  # examples: texts, windows, or questions with all their options
  c.fresh = False  # True: only the checkpoint's shape and vocabulary, with random weights
  c.log_every = 50
  c.eval_every = 0  # 0 = an epoch's steps
  c.checkpoint_every = 0  # 0 = an epoch's steps
  c.optimizer.learning_rate = 5e-5
  c.optimizer.warmup_steps = 0
  c.optimizer.warmup_rate = 0.1  # of the steps, where warmup_steps is 0
  c.optimizer.layer_decay = 1.0  # rate of a layer over that of the layer above it, embeddings below all

  c.head = ConfigDict()
  c.head.kind = ""  # "" = the task's; of a span: span (BERT), conditional_span (XLNet, ALBERT's second release)
  c.head.dropout = 0.1  # before the last dense layer; an XLNet has hidden_dropout there
  c.head.summary = "last"  # XLNet: how a sequence becomes one vector: last, first, mean, attention
  c.head.projection = True  # XLNet: tanh(dense(·)) over that vector
  c.head.features = ""  # what a BiLSTM below the head reads: a row of models.features.KINDS; "" = there is none
  c.head.lstm_layers = 2
  c.head.lstm_width = 768  # units of each direction
  c.head.freeze = False  # True: the checkpoint's body stays as it is; only what is above it is trained


def _encoder() -> tuple[ConfigDict, ConfigDict, ConfigDict]:
  """The data, model and objective of BERT and ALBERT."""
  data = ConfigDict()
  data.corpus = ""  # folder written by tools.prepare_corpus
  data.rows = "pairs"  # pairs; one segment: full_sentences (as many as fit; RoBERTa), doc_sentences (of one document)
  data.short_rate = 0.1  # pairs cut to a random shorter length; 0 where rows have one segment
  data.single_sentence = ""  # what a lone sentence becomes: split, skip, random; "" = random for nsp, else split

  model = ConfigDict()  # fields of models.config.EncoderConfig
  model.vocab_size = 30_522  # rows of the token table; 0 = as many as the corpus's tokenizer has pieces
  model.embedding_size = 0  # ALBERT: 128, then projected to hidden_size; 0 = hidden_size
  model.hidden_size = 768
  model.num_layers = 12
  model.num_heads = 12
  model.intermediate_size = 3072
  model.sharing = "none"  # what layers share: none, all (ALBERT), attention, ffn
  model.num_groups = 1  # of layers that share
  model.inner_groups = 1  # blocks in a layer, each with parameters of its own
  model.causal = False  # True: a token sees none behind it; for objective.words="ltr"
  model.max_length = 512  # positions
  model.type_vocab_size = 2
  model.vocab_multiple = 1  # pad the token table to a multiple of this, for even splits; masked and stripped on export
  model.initializer_range = 0.02  # standard deviation of the initial weights, cut at two
  model.activation = "gelu_new"  # gelu_new (tanh, the originals' "gelu"), gelu (erf), relu
  model.hidden_dropout = 0.1
  model.attention_dropout = 0.1  # on the probabilities
  model.layer_norm_eps = 1e-12
  model.dtype = "float32"  # of the computation; bfloat16 on TPU. Parameters are float32 always
  model.attention = "auto"  # explicit; splash (TPU v4 and later), cudnn (GPU): no dropout there; auto: what fits
  model.unroll = 1  # layers an iteration of the loop over layers; 0 = all, faster on CPU and slower to compile
  model.remat = "none"  # none, dots, full: what the backward pass computes again instead of keeping

  objective = ConfigDict()
  objective.words = "mlm"  # mlm (hidden words, from both sides), ltr (every word, from those before it)
  objective.pair = "nsp"  # nsp (½ of second segments are random), sop (½ of pairs are swapped), none (all in order)
  objective.dropout_prng = "threefry2x32"  # rbg is faster on TPU; then equality across meshes is not promised
  objective.masking = ConfigDict()
  objective.masking.rate = 0.15  # targets over length
  objective.masking.mask = 0.8  # of targets: shown as [MASK]
  objective.masking.random = 0.1  # of targets: shown as a random token
  objective.masking.whole_word = False  # choose words rather than tokens
  objective.masking.ngram = 1  # choose up to so many words (or tokens) together; ALBERT: 3, SpanBERT: 10
  objective.masking.ngram_favor = "short"  # short (p(n) ∝ 1/n), long (that reversed), geometric (0.8^n; SpanBERT)
  objective.masking.replace = "token"  # what [MASK] or a random token is decided for: token, span (of ngram words)
  return data, model, objective


def _xlnet() -> tuple[ConfigDict, ConfigDict, ConfigDict]:
  """The data, model and objective of XLNet."""
  data = ConfigDict()
  data.corpus = ""  # folder written by tools.prepare_corpus
  data.reuse_len = 256  # tokens that a row advances by, and that enter the memory
  data.bidirectional = True  # every other row is read backwards
  data.random_rate = 0.5  # second segments that come from elsewhere

  model = ConfigDict()  # fields of models.xlnet_config.XLNetConfig
  model.vocab_size = 32_000  # rows of the token table; 0 = as many as the corpus's tokenizer has pieces
  model.hidden_size = 768
  model.num_layers = 12
  model.num_heads = 12
  model.head_size = 0  # 0 = hidden_size / num_heads
  model.intermediate_size = 3072
  model.mem_len = 384  # positions of the memory; 0 = none
  model.untie_biases = True  # each layer has its own content, position and segment biases
  model.clamp_length = 0  # farthest relative position told apart; 0 = all are
  model.vocab_multiple = 1  # as for the encoder
  model.initializer_range = 0.02  # standard deviation of the initial weights
  model.activation = "gelu_new"  # gelu_new (tanh, the original's "gelu"), gelu (erf), relu
  model.hidden_dropout = 0.1
  model.attention_dropout = 0.1  # on the probabilities
  model.ffn_dropout = 0.1  # behind the feed-forward layer's activation; 0 in the paper's second version
  model.layer_norm_eps = 1e-12
  model.dtype = "float32"  # of the computation and of the memory; bfloat16 on TPU. Parameters are float32 always
  model.unroll = 1
  model.remat = "none"

  objective = ConfigDict()
  objective.words = "plm"  # plm (targets in a random order), dae (hidden all at once as BERT does; a baseline)
  objective.mask = 0.8  # dae: of targets: shown as the mask token
  objective.random = 0.1  # dae: of targets: shown as a random token
  objective.pair = "none"  # none, nsp (does the second segment follow the first; a head that no release has)
  objective.targets = "spans"  # spans with context around them (the released code), last (the paper: last in the order)
  objective.num_predict = 85  # targets of a row; the paper's K is length over this
  objective.perm_size = 256  # positions that are permuted together; divides both halves of a row
  objective.span_unit = "word"  # a span's n counts words; piece: pieces, as the released code does
  objective.max_span = 5  # n = 1 … max_span with p ∝ 1/n
  objective.alpha = 6  # a span of n has alpha·n // beta words of context around it
  objective.beta = 1
  objective.memory_reset = "document"  # see no other document's memory (the paper), never (the released code)
  objective.dropout_prng = "threefry2x32"  # as for the encoder
  return data, model, objective


def _task() -> tuple[ConfigDict, ConfigDict, ConfigDict]:
  """The data, model and objective of fine-tuning."""
  data = ConfigDict()
  data.task = ""  # a row of data.tasks.table.TASKS, or custom
  data.source = ""  # folder with the official files, or tfds:NAME
  data.data_dir = ""  # where TFDS keeps its data sets; "" = its own place
  data.train_split = "train"
  data.eval_splits = ("dev",)  # scores of further ones carry their names
  data.train_examples = 0  # only the first so many; 0 = all
  data.pack = True  # several sequences a row
  data.doc_stride = 128  # span: tokens from one window's beginning to the next's
  data.max_query_length = 64  # span: tokens of a question
  data.n_best = 20  # span: answers that are kept of a question
  data.max_answer_length = 30  # span: in tokens
  data.kind = "classification"  # custom: classification, regression, tagging, span, choice
  data.texts = ("sentence",)  # custom: columns with the text or the two texts
  data.label = "label"  # custom: the column with the label
  data.labels = ()  # custom: the classes or tags; () = those of the training examples
  data.scores = ()  # custom: accuracy, f1 (of the second of two labels), matthews …, the main one first; () = the usual

  model = ConfigDict()  # what may differ from the checkpoint's
  model.hidden_dropout = -1.0  # below 0 = the checkpoint's, here and below
  model.attention_dropout = -1.0
  model.ffn_dropout = -1.0  # XLNet
  model.dtype = ""  # of the computation: float32, bfloat16; "" = the checkpoint's
  model.attention = ""  # BERT and ALBERT: auto, explicit, splash, cudnn
  model.unroll = 1
  model.remat = "none"

  objective = ConfigDict()
  objective.dropout_prng = "threefry2x32"  # as for the encoder
  return data, model, objective
