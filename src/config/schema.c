/* Declares the keys that every run has. */
#include "config/schema.h"

#include <assert.h>
#include <string.h>

static const by__config_section sections[] = {
    {"", "Keys at the top of the file.", 0},
    {"task", "What the model is trained to do.", offsetof(by_config, task.own)},
    {"model", "Family, size and initial weights of the model.", offsetof(by_config, model.own)},
    {"attention",
     "What a token attends to, for all transformers; docs/attention.md compares the kinds.",
     offsetof(by_config, model.attention.own)},
    {"values", "What the values of attention are made of, for models that let it be chosen.",
     offsetof(by_config, model.values.own)},
    {"residual", "What a block reads of those before it, for models that let it be chosen.",
     offsetof(by_config, model.residual.own)},
    {"position", "How transformers know positions.", offsetof(by_config, model.position.own)},
    {"norm", "The norm between layers, for models that let it be chosen.",
     offsetof(by_config, model.norm.own)},
    {"mlp", "The layers after attention, for transformers without experts.",
     offsetof(by_config, model.mlp.own)},
    {"activation", "The function between these layers, for all transformers.",
     offsetof(by_config, model.activation.own)},
    {"data", "Training and evaluation data. Paths are relative to the working directory.", 0},
    {"chat",
     "Conversations to tune on (docs/chat_tuning.md): how records are read and rendered, and what "
     "of them is learned.",
     0},
    {"train", "Length of the training, batch sizes, evaluation and logging.", 0},
    {"optimizer", "The update rule and the learning-rate schedule.",
     offsetof(by_config, optimizer.own)},
    {"lora",
     "Low-rank adapters (docs/lora.md): the weights of model.from are frozen, and two small "
     "matrices are trained for each of the selected layers.",
     0},
    {"distill",
     "Distillation from a teacher of any family with the same vocabulary (docs/compression.md). "
     "The reported training loss is (1 - weight) CE + weight T^2 KL(teacher || student); "
     "validation losses are those of the model alone.",
     0},
    {"precision", "Number formats.", 0},
    {"memory", "Trade-offs between memory and time.", 0},
    {"parallel",
     "How the ranks of a job (mpirun -n 8 banyan train ...) share the work. The product of the "
     "axes is the number of ranks. The trained weights have the same bits for all values of data, "
     "shard, zero, keep, pipeline, overlap and bucket_mib, so a run can be resumed with other "
     "values. Exceptions: with sequence, zero: 2 and 3 round differently from zero: 1, and with "
     "sync_batch_norm the weights depend on data and shard.",
     0},
    {"sync",
     "How often, and in what form, ranks that train on different micro-batches exchange gradients "
     "or weights. With every: 1 and compress: none, each step equals that of a single process bit "
     "for bit; otherwise the result depends on the number of ranks.",
     0},
    {"offload",
     "Training state on disk instead of in memory (docs/memory.md). The trained weights have the "
     "same bits.",
     0},
    {"guard", "Protection against steps that would damage the weights (docs/guards.md).", 0},
    {"checkpoint", "Checkpoints: when they are saved and which are kept (docs/checkpoints.md).", 0},
    {"track",
     "What is recorded, and where (docs/tracking.md), in addition to RUN/events.jsonl and the "
     "terminal. User names, passwords and tokens of servers come from environment variables and "
     "are never stored.",
     0},
    {"run", "Where a run stores its files.", 0},
};
const by__config_section_list by__config_run_sections = {sections, BY_ARRAY_LENGTH(sections)};

/* clang-format off: one row a key */
static const by__config_key group_fields[] = {
    {"optimizer.groups", "match", BY__KEY_TEXT, BY__OWN(by_parameter_group, match), NULL, .min = 1,
     .help = "shell pattern for whole parameter names: `*`, `?`, `[a-z]`"},
    {"optimizer.groups", "lr_scale", BY__KEY_REAL, BY__OWN(by_parameter_group, lr_scale), "1", 0,
     1e6, BY__ABOVE_MIN, .help = "factor on the run's learning rate"},
    {"optimizer.groups", "weight_decay", BY__KEY_REAL, BY__OWN(by_parameter_group, weight_decay),
     "-1", 0, 1000, .derived = "optimizer.weight_decay, on matrices only",
     .help = "decoupled weight decay, of matrices and vectors"},
    {"optimizer.groups", "frozen", BY__KEY_SWITCH, BY__OWN(by_parameter_group, frozen), "false",
     .help = "do not train them: no gradient is computed and no state kept"},
};
static const by__config_key_list group_list = BY__KEY_LIST(group_fields);

static const by__config_key stage_fields[] = {
    {"train.batch_warmup", "batch", BY__KEY_INT, BY__OWN(by_batch_stage, batch), NULL, 1, BY__MI24,
     .help = "sequences per step; a multiple of micro_batch"},
    {"train.batch_warmup", "steps", BY__KEY_INT, BY__OWN(by_batch_stage, steps), NULL, 1,
     BY__COUNT_LIMIT, .help = "steps with this batch"},
};
static const by__config_key_list stage_list = BY__KEY_LIST(stage_fields);

static const by__config_key common[] = {
    {"", "name", BY__KEY_TEXT, BY__FIELD(name), "run", .min = 1,
     .help = "name of the run and of its directory"},
    {"", "seed", BY__KEY_SEED, BY__FIELD(seed), "1337",
     .help = "source of all randomness: initial weights, data order, dropout"},
    {"", "device", BY__KEY_TEXT, BY__FIELD(device), "auto", .min = 1, .later = true,
     .help = "what computes: `cpu`, `cuda` (NVIDIA GPUs), or `auto` for the best device of this "
             "machine; `KIND:N` is "
             "device N of several of a kind, from 0"},

    {"task", "kind", BY__KEY_TEXT, BY__FIELD(task.kind), "language",
     .help = "what the model learns to predict"},

    {"model", "kind", BY__KEY_TEXT, BY__FIELD(model.kind), "gpt2", .help = "model family"},
    {"model", "layers", BY__KEY_INT, BY__FIELD(model.layers), "4", 1, 10000,
     .help = "number of layers (transformer blocks, or hidden layers)"},
    {"model", "width", BY__KEY_INT, BY__FIELD(model.width), "128", 1, BY__MI20,
     .help = "hidden size: width of embeddings and hidden states"},
    {"model", "dropout", BY__KEY_REAL, BY__FIELD(model.dropout), "0", 0, 1, BY__BELOW_MAX,
     .help = "dropout probability on embeddings, attention output and MLP output"},
    {"model", "from", BY__KEY_TEXT, BY__FIELD(model.from), "\"\"",
     .help = "run (its newest checkpoint) or model directory in Hugging Face form whose weights "
             "training starts from; empty: random weights"},
    {"model", "new", BY__KEY_TEXTS, BY__FIELD(model.new_parameters), "[]", .later = true,
     .help = "shell patterns for whole names of parameters that begin with random values where "
             "model.from lacks them or has them in another shape, as a new head: "
             "`[\"classifier.*\"]`"},
    {"model", "output", BY__KEY_TEXT, BY__FIELD(model.output), "\"\"", .later = true,
     .help = "output of a model with several, by name, that loss, predictions, exports and servers "
             "use; vit and mlp have `features`, what their head reads; empty: the main one"},

    {"data", "valid_fraction", BY__KEY_REAL, BY__FIELD(data.valid_fraction), "0.1", 0, 1,
     BY__BELOW_MAX, .help = "share of the data that is held out for evaluation; for text, its end"},
    {"data", "corrupt", BY__KEY_TEXT, BY__FIELD(data.corrupt), "fail", .choices = "fail|skip",
     .later = true,
     .help = "what to do about damaged data: fail ends with an error, skip leaves it out and "
             "reports what and how much. With skip, samples of packed tokens avoid damaged parts, "
             "and damaged rows of tables and images of CIFAR files are left out"},
    {"data", "corrupt_budget", BY__KEY_REAL, BY__FIELD(data.corrupt_budget), "0.01", 0, 1e15,
     .later = true,
     .help = "damaged tokens, rows or images that skip may leave out; below 1: a share of all, "
             "and at least one unless it is 0; from 1 on: their number"},
    {"data", "threads", BY__KEY_INT, BY__FIELD(data.threads), "-1", 1, 256,
     .derived = "one for each core that train.threads leaves, from 1 to 16", .later = true,
     .help = "threads per rank that make batches; batches are the same for any number"},
    {"data", "remote_cache", BY__KEY_TEXT, BY__FIELD(data.remote_cache), "\"\"", .later = true,
     .help =
         "directory that keeps parts of remote files (https://, s3://), shared by all processes "
         "of a host; empty: banyan/remote in the user's cache, ~/.cache"},
    {"data", "remote_cache_size", BY__KEY_SIZE, BY__FIELD(data.remote_cache_size), "20GiB",
     BY__MI20, BY__COUNT_LIMIT, .later = true,
     .help = "the most bytes that remote_cache holds; what was used longest ago gives way"},

    {"train", "steps", BY__KEY_INT, BY__FIELD(train.steps), "2000", 1, BY__COUNT_LIMIT,
     .help = "optimizer steps of the run"},
    {"train", "batch", BY__KEY_INT, BY__FIELD(train.batch), "12", 1, BY__MI24,
     .help = "sequences per optimizer step, over all ranks and micro-batches"},
    {"train", "batch_warmup", BY__KEY_RECORDS, BY__FIELD(train.batch_warmup), "[]",
     .fields = &stage_list, .size = sizeof(by_batch_stage), .later = true,
     .help = "smaller batches for the first steps: `[{batch: 4, steps: 200}, {batch: 8, steps: "
             "200}]`; the schedule of the learning rate then follows the number of sequences seen, "
             "in units of batch"},
    {"train", "micro_batch", BY__KEY_INT, BY__FIELD(train.micro_batch), "-1", 1, BY__MI24,
     .derived = "batch, or the part of it that gives each rank work and fits into memory",
     .help = "sequences per forward and backward pass; divides batch. The weights depend on it, so "
             "the value chosen for -1 is stored with the run and kept by a resume"},
    {"train", "eval_every", BY__KEY_INT, BY__FIELD(train.eval_every), "250", 0, BY__COUNT_LIMIT,
     .help = "steps between evaluations; 0: at the end only"},
    {"train", "eval_batches", BY__KEY_INT, BY__FIELD(train.eval_batches), "all", 1, BY__COUNT_LIMIT,
     .derived = "the whole held-out set", .word = "all", .help = "micro-batches per evaluation"},
    {"train", "eval_ema", BY__KEY_SWITCH, BY__FIELD(train.eval_ema), "false", .later = true,
     .help = "evaluate the moving average of the weights (optimizer.ema) during training, and "
             "select the best checkpoint by it"},
    {"train", "log_every", BY__KEY_INT, BY__FIELD(train.log_every), "10", 1, BY__COUNT_LIMIT,
     .help = "steps between log lines"},
    {"train", "threads", BY__KEY_INT, BY__FIELD(train.threads), "-1", 1, 4096,
     .derived = "one for each core that the process may use", .help = "compute threads per rank"},

    {"optimizer", "kind", BY__KEY_TEXT, BY__FIELD(optimizer.kind), "adamw", .help = "update rule"},
    {"optimizer", "lr", BY__KEY_REAL, BY__FIELD(optimizer.lr), "1e-3", 0, 1000, BY__ABOVE_MIN,
     .help = "peak learning rate"},
    {"optimizer", "min_lr", BY__KEY_REAL, BY__FIELD(optimizer.min_lr), "-1", 0, 1000,
     .derived = "a tenth of lr",
     .help = "final learning rate of the schedules cosine, linear and wsd; at most lr"},
    {"optimizer", "schedule", BY__KEY_TEXT, BY__FIELD(optimizer.schedule), "cosine",
     .choices = "cosine|linear|constant|wsd",
     .help = "learning rate after warm-up; wsd (warmup-stable-decay): constant, then a final "
             "decay"},
    {"optimizer", "warmup", BY__KEY_SHARE, BY__FIELD(optimizer.warmup), "-1", 0, BY__COUNT_LIMIT,
     .derived = "100, or a tenth of the steps where that is fewer",
     .help = "steps of linear warm-up, or, below 1, their share of train.steps (0.05); at most "
             "train.steps"},
    {"optimizer", "decay", BY__KEY_SHARE, BY__FIELD(optimizer.decay), "-1", 0, BY__COUNT_LIMIT,
     BY__ABOVE_MIN, .derived = "a tenth of the steps, at least 1",
     .help = "steps of the final decay of wsd, or, below 1, their share of train.steps"},
    {"optimizer", "weight_decay", BY__KEY_REAL, BY__FIELD(optimizer.weight_decay), "0.1", 0, 1000,
     .help = "decoupled weight decay, of matrices only"},
    {"optimizer", "clip", BY__KEY_REAL, BY__FIELD(optimizer.clip), "1", 0, 1e9,
     .help = "gradients are clipped to this global norm; 0: no clipping"},
    {"optimizer", "lr_scaling", BY__KEY_TEXT, BY__FIELD(optimizer.lr_scaling), "none",
     .choices = "none|linear|sqrt", .later = true,
     .help = "how lr and min_lr, given for a batch of lr_batch, are scaled to train.batch: none, "
             "linear (Goyal et al. 2017, for sgd) or sqrt (Krizhevsky 2014, for adamw and "
             "similar)"},
    {"optimizer", "lr_batch", BY__KEY_INT, BY__FIELD(optimizer.lr_batch), "-1", 1, BY__MI24,
     .derived = "train.batch", .later = true, .help = "batch that lr and min_lr are given for"},
    {"optimizer", "layer_decay", BY__KEY_REAL, BY__FIELD(optimizer.layer_decay), "1", 0, 1,
     BY__ABOVE_MIN, .later = true,
     .help = "layer-wise learning-rate decay: the learning rate of a block is multiplied by this "
             "once for each part of the model after it (later blocks, final norm and head); "
             "embeddings count as the first part (BEiT: Bao et al. 2022; ELECTRA: Clark et al. "
             "2020)"},
    {"optimizer", "ema", BY__KEY_REAL, BY__FIELD(optimizer.ema), "0", 0, 1, BY__BELOW_MAX,
     .later = true,
     .help = "decay of an exponential moving average of the weights (Polyak & Juditsky 1992), such "
             "as 0.999; stored in f32 in checkpoints; 0: none"},
    {"optimizer", "ema_warmup", BY__KEY_SWITCH, BY__FIELD(optimizer.ema_warmup), "false",
     .later = true, .help = "limit the decay at update t to (1 + t) / (10 + t)"},
    {"optimizer", "keep_zeros", BY__KEY_SWITCH, BY__FIELD(optimizer.keep_zeros), "false",
     .later = true,
     .help = "keep elements of matrices that are 0 at 0, so that a pruned model (model.from) keeps "
             "its sparsity pattern (docs/compression.md); not with muon, whose updates are not "
             "element-wise"},
    {"optimizer", "groups", BY__KEY_RECORDS, BY__FIELD(optimizer.groups), "[]",
     .fields = &group_list, .size = sizeof(by_parameter_group), .later = true,
     .help = "parameter groups with rates of their own: `[{match: \"*.bias\", lr_scale: 2, "
             "weight_decay: 0}]`; the first group that matches a name applies, and each group must "
             "match at least one parameter"},

    {"lora", "rank", BY__KEY_INT, BY__FIELD(lora.rank), "0", 0, 65536, .later = true,
     .help = "rank of the adapters (Hu et al. 2021): a weight W becomes W + alpha / rank x B A, "
             "and only A and B are trained; 0: no adapters"},
    {"lora", "alpha", BY__KEY_REAL, BY__FIELD(lora.alpha), "-1", 0, 1e6, BY__ABOVE_MIN,
     .derived = "equal to rank", .later = true,
     .help = "scale of the adapters: their product is multiplied by alpha / rank"},
    {"lora", "rslora", BY__KEY_SWITCH, BY__FIELD(lora.rslora), "false", .later = true,
     .help = "multiply by alpha / sqrt(rank) instead (Kalajdzievski 2023)"},
    {"lora", "dropout", BY__KEY_REAL, BY__FIELD(lora.dropout), "0", 0, 1, BY__BELOW_MAX,
     .later = true, .help = "dropout probability on the input of the adapters"},
    {"lora", "targets", BY__KEY_TEXTS, BY__FIELD(lora.targets), "[]", .later = true,
     .help = "layers that get an adapter: ends of module names (`c_attn`, `mlp.c_proj`), shell "
             "patterns, or `all-linear`; empty: c_attn of gpt2, q_proj and v_proj of llama and "
             "mixtral"},
    {"lora", "train_also", BY__KEY_TEXTS, BY__FIELD(lora.train_also), "[]", .later = true,
     .help = "shell patterns for whole names of parameters to train in addition: `[\"ln_f.*\"]`"},
    {"lora", "from", BY__KEY_TEXT, BY__FIELD(lora.from), "\"\"", .later = true,
     .help = "directory of adapters in PEFT form to start from, which determine rank, alpha, "
             "rslora and targets; empty: new adapters"},
    {"lora", "base", BY__KEY_TEXT, BY__FIELD(lora.base), "full", .choices = "full|int8|int4",
     .later = true,
     .help = "how the frozen weights of linear layers in blocks are held (QLoRA, Dettmers et al. "
             "2023): full: as others; int8, int4: in codes, as `banyan compress` makes them, which "
             "products decode"},
    {"lora", "base_group", BY__KEY_INT, BY__FIELD(lora.base_group), "64", 32, 128, .later = true,
     .help = "with base int4: inputs that share a scale, 32, 64 or 128"},

    {"distill", "teacher", BY__KEY_TEXT, BY__FIELD(distill.teacher), "\"\"", .later = true,
     .help = "teacher model: a run (its newest checkpoint) or a directory with config.json and "
             "weights; empty: none"},
    {"distill", "logits", BY__KEY_TEXT, BY__FIELD(distill.logits), "\"\"", .later = true,
     .help = "directory of the teacher's stored logits on data.train (`banyan logits`), instead of "
             "a teacher; samples then begin at multiples of model.context"},
    {"distill", "temperature", BY__KEY_REAL, BY__FIELD(distill.temperature), "2", 0, 1000,
     BY__ABOVE_MIN, .later = true,
     .help = "temperature: the logits of both models are divided by it before the softmax (Hinton "
             "et al. 2015)"},
    {"distill", "weight", BY__KEY_REAL, BY__FIELD(distill.weight), "0.5", 0, 1, .later = true,
     .help = "weight of the teacher's term of the loss; the cross-entropy of the targets has the "
             "rest"},
    {"distill", "hidden", BY__KEY_REAL, BY__FIELD(distill.hidden), "0", 0, 1e6, .later = true,
     .help = "weight of the mean squared difference between the last hidden states of teacher and "
             "student, the student's through a learned projection; 0: none"},

    {"precision", "compute", BY__KEY_TEXT, BY__FIELD(precision.compute), "auto",
     .choices = "auto|f32|bf16|fp16",
     .help = "format of activations and matrix products; master weights, gradients and optimizer "
             "state are f32. auto, resolved before the first step: the format that the machine "
             "multiplies fastest, which is bf16 on processors with bf16 products (AVX512_BF16 or "
             "AMX), otherwise f32; bf16 with weights bf16"},
    {"precision", "tf32", BY__KEY_SWITCH, BY__FIELD(precision.tf32), "false", .later = true,
     .help = "GPUs round the operands of f32 products to the 11 significant bits of tf32, which "
             "their tensor cores multiply at several times the rate of f32; sums stay f32. Other "
             "devices compute in f32"},
    {"precision", "weights", BY__KEY_TEXT, BY__FIELD(precision.weights), "f32",
     .choices = "f32|bf16", .later = true,
     .help = "format of matrices and their optimizer state; bf16 with compute bf16 (no f32 master "
             "weights) needs less than half the memory; gradients stay f32"},
    {"precision", "rounding", BY__KEY_TEXT, BY__FIELD(precision.rounding), "stochastic",
     .choices = "stochastic|nearest", .later = true,
     .help = "rounding of updates with weights bf16: stochastic preserves updates below the bf16 "
             "resolution on average (Gupta et al. 2015), nearest loses them"},
    {"precision", "loss_scaling", BY__KEY_TEXT, BY__FIELD(precision.loss_scaling), "auto",
     .choices = "auto|none|static|dynamic", .later = true,
     .help = "multiply the loss before the backward pass, so that small gradients do not underflow "
             "in fp16, and divide the gradients afterwards (Micikevicius et al. 2018); auto: "
             "dynamic with compute fp16, else none"},
    {"precision", "loss_scale", BY__KEY_REAL, BY__FIELD(precision.loss_scale), "65536", 0, 0x1p40,
     BY__ABOVE_MIN, .later = true, .help = "static scale, or initial dynamic scale"},
    {"precision", "growth_factor", BY__KEY_REAL, BY__FIELD(precision.growth_factor), "2", 1, 1024,
     .later = true,
     .help = "dynamic: factor on the scale after growth_interval steps without overflow"},
    {"precision", "backoff_factor", BY__KEY_REAL, BY__FIELD(precision.backoff_factor), "0.5", 0, 1,
     BY__ABOVE_MIN | BY__BELOW_MAX, .later = true,
     .help = "dynamic: factor on the scale after a step whose gradient overflowed; the step is not "
             "applied"},
    {"precision", "growth_interval", BY__KEY_INT, BY__FIELD(precision.growth_interval), "2000", 1,
     BY__COUNT_LIMIT, .later = true,
     .help = "dynamic: steps without overflow before the scale grows"},
    {"precision", "min_loss_scale", BY__KEY_REAL, BY__FIELD(precision.min_loss_scale), "1", 0,
     0x1p40, BY__ABOVE_MIN, .later = true,
     .help = "dynamic: smallest scale; a step that overflows at it counts as non-finite "
             "(guard.nonfinite)"},
    {"precision", "max_loss_scale", BY__KEY_REAL, BY__FIELD(precision.max_loss_scale), "16777216",
     0, 0x1p40, BY__ABOVE_MIN, .later = true, .help = "dynamic: largest scale"},
    {"precision", "qat", BY__KEY_TEXT, BY__FIELD(precision.qat), "none",
     .choices = "none|int8|int4", .later = true,
     .help = "quantization-aware training: blocks compute with weights rounded to these codes, and "
             "the gradient passes straight through the rounding"},
    {"precision", "qat_group", BY__KEY_INT, BY__FIELD(precision.qat_group), "128", 32, 128,
     .later = true, .help = "qat int4: inputs per scale: 32, 64 or 128"},

    {"memory", "recompute", BY__KEY_TEXT, BY__FIELD(memory.recompute), "none",
     .choices = "none|block|every|full",
     .help = "activation checkpointing: what the backward pass recomputes instead of storing it, "
             "from the most memory to the least: none; block stores the input of each block; "
             "every, that of each recompute_every-th block; full, that of as few blocks as "
             "minimize memory. The results have the same bits"},
    {"memory", "recompute_every", BY__KEY_INT, BY__FIELD(memory.recompute_every), "2", 2, 10000,
     .help = "with recompute: every: blocks per stored input"},
    {"memory", "activations", BY__KEY_TEXT, BY__FIELD(memory.activations), "same",
     .choices = "same|bf16|int8",
     .help = "format of the activations that are stored for the backward pass: bf16 takes half the "
             "memory of f32; int8, with a scale for each 128 elements of a row, a quarter of f32 "
             "and half of bf16. Gradients are those of the rounded values"},
    {"memory", "budget", BY__KEY_SIZE, BY__FIELD(memory.budget), "0", 0, BY__COUNT_LIMIT,
     .help = "memory that each rank may use in all; 0: what is free. With recompute: none, the "
             "backward pass recomputes as much as necessary to fit, the cheapest first"},

    {"parallel", "data", BY__KEY_INT, BY__FIELD(parallel.data), "-1", 1, BY__MI20,
     .derived = "what the other axes leave of the ranks",
     .help = "data-parallel groups: they train on different micro-batches, each with the whole "
             "training state"},
    {"parallel", "shard", BY__KEY_INT, BY__FIELD(parallel.shard), "1", 1, BY__MI20,
     .derived = "what the other axes leave of the ranks, with data given",
     .help = "fully sharded data parallelism: ranks that train on different micro-batches and "
             "divide the training state, as zero says"},
    {"parallel", "zero", BY__KEY_INT, BY__FIELD(parallel.zero), "1", 1, 3,
     .help = "ZeRO stage, what the ranks of shard divide (Rajbhandari et al. 2020): 1: optimizer "
             "state and, with bf16, the f32 weights; 2: gradients too; 3: parameters too, which "
             "are gathered for use"},
    {"parallel", "keep", BY__KEY_SWITCH, BY__FIELD(parallel.keep), "false",
     .help = "with zero: 3, keep the parameters that the forward pass gathered for the backward "
             "pass: less communication, and the memory of zero: 2"},
    {"parallel", "tensor", BY__KEY_INT, BY__FIELD(parallel.tensor), "1", 1, BY__MI20,
     .help = "tensor parallelism: ranks that divide heads, hidden units and vocabulary"},
    {"parallel", "sequence_parallel", BY__KEY_SWITCH, BY__FIELD(parallel.sequence_parallel),
     "false",
     .help = "divide the sequence between the products that tensor divides, among the same ranks, "
             "which saves activations; tensor must divide model.context"},
    {"parallel", "sequence", BY__KEY_INT, BY__FIELD(parallel.sequence), "1", 1, BY__MI20,
     .help = "context parallelism: ranks that divide each sequence; twice as many must divide "
             "model.context"},
    {"parallel", "pipeline", BY__KEY_INT, BY__FIELD(parallel.pipeline), "1", 1, BY__MI20,
     .help = "pipeline parallelism: ranks that divide the layers"},
    {"parallel", "schedule", BY__KEY_TEXT, BY__FIELD(parallel.schedule), "1f1b",
     .choices = "gpipe|1f1b|interleaved|zero_bubble",
     .help = "order in which the ranks of pipeline process micro-batches"},
    {"parallel", "chunks", BY__KEY_INT, BY__FIELD(parallel.chunks), "1", 1, 64,
     .help = "model chunks per rank of pipeline; more than 1 for interleaved"},
    {"parallel", "expert", BY__KEY_INT, BY__FIELD(parallel.expert), "1", 1, BY__MI20,
     .help = "expert parallelism: ranks that divide the experts of each layer, and the examples of "
             "a micro-batch"},
    {"parallel", "overlap", BY__KEY_SWITCH, BY__FIELD(parallel.overlap), "true",
     .help = "reduce gradients between ranks during the backward pass"},
    {"parallel", "bucket_mib", BY__KEY_REAL, BY__FIELD(parallel.bucket_mib), "-1", 0, 65536,
     BY__ABOVE_MIN,
     .derived = "an eighth of the gradients, from 0.25 to 4 and at least 0.125 a rank of shard",
     .help = "MiB of gradients that are reduced together"},
    {"parallel", "sync_batch_norm", BY__KEY_SWITCH, BY__FIELD(parallel.sync_batch_norm), "false",
     .help = "batch norm takes mean and variance over the micro-batches that the ranks of data and "
             "shard compute at one time, for micro-batches that are too small; results then depend "
             "on their number"},
    {"parallel", "replica_hash_every", BY__KEY_INT, BY__FIELD(parallel.replica_hash_every), "0", 0,
     BY__COUNT_LIMIT,
     .help = "steps between comparisons of the weights of data and shard ranks, which must be "
             "equal; a rank that differs is named, and the exit code is 5; 0: never"},
    {"parallel", "writers", BY__KEY_INT, BY__FIELD(parallel.writers), "-1", 1, BY__MI20,
     .derived = "one for each 64 MiB of a checkpoint, all ranks at most",
     .help = "ranks that write a checkpoint, each its own files"},

    {"sync", "every", BY__KEY_INT, BY__FIELD(sync.every), "1", 1, BY__COUNT_LIMIT,
     .help = "steps between exchanges; 1: gradients at each step; more: each rank takes steps of "
             "its own, and the mean change is a step of an outer optimizer (DiLoCo: Douillard et "
             "al. 2023)"},
    {"sync", "outer_lr", BY__KEY_REAL, BY__FIELD(sync.outer_lr), "0.7", 0, 10, BY__ABOVE_MIN,
     .help = "learning rate of the outer optimizer, for every above 1"},
    {"sync", "outer_momentum", BY__KEY_REAL, BY__FIELD(sync.outer_momentum), "0.9", 0, 1,
     BY__BELOW_MAX, .help = "Nesterov momentum of the outer optimizer; 0: none"},
    {"sync", "staleness", BY__KEY_INT, BY__FIELD(sync.staleness), "0", 0, BY__COUNT_LIMIT,
     .help = "steps that a rank takes while an exchange is in progress, before it is applied; at "
             "most every; 0: ranks wait for it"},
    {"sync", "compress", BY__KEY_TEXT, BY__FIELD(sync.compress), "none",
     .choices = "none|bf16|int8|one_bit|top_k|power_sgd",
     .help = "compression of what is sent; what it loses is added to the next exchange (error "
             "feedback)"},
    {"sync", "density", BY__KEY_REAL, BY__FIELD(sync.density), "0.01", 0, 1, BY__ABOVE_MIN,
     .help = "top_k: share of the values to send"},
    {"sync", "rank", BY__KEY_INT, BY__FIELD(sync.rank), "4", 1, 32,
     .help = "power_sgd: rank of the two factors that are sent for a matrix"},
    {"sync", "warmup", BY__KEY_INT, BY__FIELD(sync.warmup), "0", 0, BY__COUNT_LIMIT,
     .help = "uncompressed exchanges at the beginning"},

    {"offload", "optimizer", BY__KEY_TEXT, BY__FIELD(offload.optimizer), "none",
     .choices = "none|disk",
     .help = "disk: keep the optimizer state and, with bf16, the f32 weights in a scratch file, "
             "and update them piece by piece"},
    {"offload", "path", BY__KEY_TEXT, BY__FIELD(offload.path), "\"\"",
     .help = "directory of the scratch file, on a fast local disk; empty: run.dir"},
    {"offload", "buffer_mib", BY__KEY_REAL, BY__FIELD(offload.buffer_mib), "64", 0, 1048576,
     BY__ABOVE_MIN,
     .help = "MiB of memory that they pass through; more if the optimizer needs whole tensors and "
             "the largest does not fit"},

    {"guard", "nonfinite", BY__KEY_TEXT, BY__FIELD(guard.nonfinite), "skip", .choices = "skip|stop",
     .help = "what to do about a step whose loss or gradient is NaN or infinite, which is never "
             "applied: skip continues with the next batch and logs where it arose, stop ends the "
             "run with exit code 7"},
    {"guard", "max_skips", BY__KEY_INT, BY__FIELD(guard.max_skips), "10", 0, BY__COUNT_LIMIT,
     .help = "steps in a row that may be skipped; one more ends the run with exit code 7"},
    {"guard", "spike", BY__KEY_TEXT, BY__FIELD(guard.spike), "off",
     .choices = "off|warn|skip|rollback",
     .help = "what to do about a loss far above the previous ones: warn applies the step and "
             "reports it; skip does not apply it; rollback returns to the newest checkpoint and "
             "continues with the samples after the step"},
    {"guard", "spike_zscore", BY__KEY_REAL, BY__FIELD(guard.spike_zscore), "8", 1, 1e6,
     .help = "threshold of a spike: (loss - median) / (1.4826 x median absolute deviation), which "
             "is robust against spikes in the window"},
    {"guard", "spike_window", BY__KEY_INT, BY__FIELD(guard.spike_window), "128", 8, BY_GUARD_WINDOW,
     .help = "number of previous applied steps whose losses form the window; nothing counts as a "
             "spike before it is half full"},
    {"guard", "max_rollbacks", BY__KEY_INT, BY__FIELD(guard.max_rollbacks), "3", 0, BY__COUNT_LIMIT,
     .help = "roll-backs to the same checkpoint; one more ends the run with exit code 7"},
    {"guard", "replay_every", BY__KEY_INT, BY__FIELD(guard.replay_every), "0", 0, BY__COUNT_LIMIT,
     .help = "steps between checks that compute the gradients twice; different results mean a "
             "hardware fault: node and host are named, and the exit code is 5; 0: never"},
    {"guard", "abft", BY__KEY_SWITCH, BY__FIELD(guard.abft), "false",
     .help = "check every matrix product by its column sums (algorithm-based fault tolerance); a "
             "difference larger than rounding means a hardware fault: node and host are named, and "
             "the exit code is 5"},

    {"checkpoint", "every", BY__KEY_INT, BY__FIELD(checkpoint.every), "500", 0, BY__COUNT_LIMIT,
     .derived = "as often as loses least of the run to failures and to saves, whose time is "
                "measured (docs/checkpoints.md)",
     .word = "auto", .help = "steps between checkpoints; 0: at the end only"},
    {"checkpoint", "mean_time_between_failures", BY__KEY_TIME,
     BY__FIELD(checkpoint.mean_time_between_failures), "24h", 0, 1e12, BY__ABOVE_MIN, .later = true,
     .help = "with every: auto, of the whole job: that of a host divided by the hosts"},
    {"checkpoint", "keep", BY__KEY_INT, BY__FIELD(checkpoint.keep), "3", 1, 1000000,
     .help = "newest checkpoints to keep, in addition to the best"},
    {"checkpoint", "keep_best", BY__KEY_INT, BY__FIELD(checkpoint.keep_best), "1", 1, 1000000,
     .help = "checkpoints with the lowest validation losses to keep, of those saved right after an "
             "evaluation"},
    {"checkpoint", "keep_every", BY__KEY_INT, BY__FIELD(checkpoint.keep_every), "0", 0,
     BY__COUNT_LIMIT,
     .help = "keep checkpoints of steps that are multiples of this forever; 0: none"},
    {"checkpoint", "async", BY__KEY_SWITCH, BY__FIELD(checkpoint.async), "true",
     .help = "continue training while a checkpoint is written; false: wait until it is on disk"},
    {"checkpoint", "staging", BY__KEY_SIZE, BY__FIELD(checkpoint.staging), "0", 0, BY__COUNT_LIMIT,
     .help = "with async, memory for copies of what is saved; what does not fit is written first, "
             "and the next update of the weights waits for that; 0: a quarter of what the rank "
             "writes, or all of it up to 64 MiB"},

    {"track", "sinks", BY__KEY_TEXTS, BY__FIELD(track.sinks), "[]",
     .help = "further destinations of events: tensorboard (files in RUN/tensorboard), wandb "
             "(offline files of Weights & Biases in RUN/wandb), mlflow (a server), prometheus (a "
             "port)"},
    {"track", "mlflow", BY__KEY_TEXT, BY__FIELD(track.mlflow), "\"http://127.0.0.1:5000\"",
     .help = "URL of the MLflow server; what it does not receive because it is down or slow is "
             "sent later, also by `banyan runs sync`"},
    {"track", "prometheus", BY__KEY_TEXT, BY__FIELD(track.prometheus), "\"127.0.0.1:9464\"",
     .help = "address that serves the newest values to Prometheus; 0.0.0.0:PORT lets every machine "
             "read them"},
    {"track", "norms_every", BY__KEY_INT, BY__FIELD(track.norms_every), "0", 0, BY__COUNT_LIMIT,
     .help = "steps between records of the norms of each tensor: gradient before clipping, "
             "weights, update; needs 4 bytes of memory per parameter; 0: never"},
    {"track", "histograms_every", BY__KEY_INT, BY__FIELD(track.histograms_every), "0", 0,
     BY__COUNT_LIMIT,
     .help = "steps between histograms of the weights and gradient of each tensor, for tensorboard "
             "and wandb; 0: never"},
    {"track", "activations_every", BY__KEY_INT, BY__FIELD(track.activations_every), "0", 0,
     BY__COUNT_LIMIT,
     .help = "steps between statistics of the output of each block and of the model: mean, root "
             "mean square, largest magnitude, shares of zeros and of non-finite values; 0: never"},
    {"track", "noise_every", BY__KEY_INT, BY__FIELD(track.noise_every), "0", 0, BY__COUNT_LIMIT,
     .later = true,
     .help = "steps between measurements of the gradient noise scale, the batch beyond which more "
             "examples a step help little (McCandlish et al. 2018): of steps with several "
             "micro-batches on a rank that has whole gradients; 0: never"},
    {"track", "system_every", BY__KEY_INT, BY__FIELD(track.system_every), "0", 0, BY__COUNT_LIMIT,
     .help = "steps between records of the machine: CPU use, temperature if the kernel reports it, "
             "memory, disk, seconds of a step spent waiting for data; 0: never"},
    {"track", "sample_every", BY__KEY_INT, BY__FIELD(track.sample_every), "0", 0, BY__COUNT_LIMIT,
     .help = "steps between samples of text that the model generates, for the terminal, "
             "tensorboard and wandb; language models only; 0: never"},
    {"track", "sample_prompt", BY__KEY_TEXT, BY__FIELD(track.sample_prompt), "\"\\n\"", .min = 1,
     .help = "prompt of the samples"},
    {"track", "sample_tokens", BY__KEY_INT, BY__FIELD(track.sample_tokens), "64", 1, 4096,
     .help = "tokens to generate for a sample"},
    {"track", "project", BY__KEY_TEXT, BY__FIELD(track.project), "banyan", .min = 1,
     .help = "experiment of MLflow, project of Weights & Biases"},

    {"run", "dir", BY__KEY_TEXT, BY__FIELD(run.dir), "runs", .min = 1,
     .help = "directory in which the run directory is created, under the name of the run"},
};
/* clang-format on */
const by__config_key_list by__config_run_keys = BY__KEY_LIST(common);

const by__config_section *by__config_section_find(const by__config_schema *schema, const char *name)
{
    for (size_t i = 1; i < schema->sections->count; i++) {
        if (strcmp(schema->sections->rows[i].name, name) == 0) {
            return &schema->sections->rows[i];
        }
    }
    return NULL;
}

const char *by__config_key_path(char buffer[BY__CONFIG_PATH], const by__config_key *key)
{
    size_t at = strlen(key->section);
    size_t length = strlen(key->name);
    assert(at + 1 + length < BY__CONFIG_PATH);
    memcpy(buffer, key->section, at);
    if (at > 0) {
        buffer[at++] = '.';
    }
    memcpy(buffer + at, key->name, length + 1);
    return buffer;
}

/* Appends a range: "from 1 to 10", "above 0 and at most 1". */
static void add_range(by_string *out, const by__config_key *key)
{
    bool above = (key->open & BY__ABOVE_MIN) != 0;
    bool below = (key->open & BY__BELOW_MAX) != 0;
    if (!above && !below) {
        by_string_format(out, "from %.10g to %.10g", key->min, key->max);
    } else {
        by_string_format(out, "%s %.10g and %s %.10g", above ? "above" : "at least", key->min,
                         below ? "below" : "at most", key->max);
    }
}

void by__config_key_accepts(by_string *out, const by__config_key *key)
{
    if (key->derived != NULL) {
        by_string_format(out, "%s or ", key->word != NULL ? key->word : "-1");
    }
    switch (key->type) {
    case BY__KEY_INT:
        by__string_append(out, "a whole number ");
        add_range(out, key);
        break;
    case BY__KEY_SIZE:
        by__string_append(out, "a size such as 6GiB or 500MB, or a number of bytes");
        break;
    case BY__KEY_SEED:
        by__string_append(out, "a whole number from 0 to 18446744073709551615");
        break;
    case BY__KEY_REAL:
        by__string_append(out, "a number ");
        add_range(out, key);
        break;
    case BY__KEY_TIME:
        by__string_append(out, "a time such as 500ms, 30s, 10m or 1h, or a number of seconds ");
        add_range(out, key);
        break;
    case BY__KEY_SHARE:
        by_string_format(out, "a whole number up to %.10g, or a share below 1", key->max);
        break;
    case BY__KEY_PAIR:
        by__string_append(out, "a list of two numbers, each ");
        add_range(out, key);
        break;
    case BY__KEY_SWITCH:
        by__string_append(out, "true or false");
        break;
    case BY__KEY_TEXT:
        if (key->choices != NULL) {
            by__string_append(out, "one of ");
            for (const char *p = key->choices; *p != '\0'; p++) {
                by_string_add(out, *p == '|' ? ", " : p, *p == '|' ? 2 : 1);
            }
        } else {
            by__string_append(out, key->min > 0 ? "non-empty UTF-8 text" : "UTF-8 text");
        }
        break;
    case BY__KEY_TEXTS:
        by__string_append(out, "UTF-8 text or a list of them");
        break;
    case BY__KEY_RECORDS:
        by__string_append(out, "a list of mappings with keys");
        for (size_t i = 0; i < key->fields->count; i++) {
            by_string_format(out, "%s %s", i == 0 ? "" : ",", key->fields->rows[i].name);
        }
        break;
    }
}
