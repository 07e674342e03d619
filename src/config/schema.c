/* Declares the keys that every run has. */
#include "config/schema.h"

#include <string.h>

static const by__section sections[] = {
    {"", "Keys at the top of the file.", 0},
    {"task", "What a model is trained to do.", offsetof(by_config, task.own)},
    {"model", "What is trained.", offsetof(by_config, model.own)},
    {"data", "What it is trained on. Paths are relative to the working directory.", 0},
    {"train", "How long, in what portions, and how often it is looked at.", 0},
    {"optimizer", "The update rule and the course of the learning rate.",
     offsetof(by_config, optimizer.own)},
    {"lora",
     "Low-rank adapters in the place of the model's weights (docs/lora.md): the weights of "
     "model.from stay as they are, and what is trained are two small matrices beside some of them.",
     0},
    {"distill",
     "A teacher that the model learns from (docs/compression.md), of any family with the same "
     "vocabulary. The reported training loss is (1 - weight) CE + weight T^2 KL(teacher || "
     "student); losses of what is held out are of the model alone.",
     0},
    {"precision", "Number formats.", 0},
    {"memory", "What is traded against memory.", 0},
    {"parallel",
     "How the ranks of a job (mpirun -n 8 banyan train ...) share the work. The product of the "
     "axes is the number of ranks. The bits of the trained weights do not depend on data, shard, "
     "zero, keep, pipeline, overlap and bucket_mib, so a run may be resumed with others; with "
     "sequence, though, zero: 2 and 3 round differently than zero: 1.",
     0},
    {"sync",
     "When ranks that train on different micro-batches exchange what they have learned, and how. "
     "With "
     "every: 1 and compress: none every step is that of a single process, bit for bit; else the "
     "number of ranks is part of what is computed.",
     0},
    {"offload",
     "What is on disk instead of in memory while a run trains (docs/memory.md). The bits of the "
     "trained weights do not depend on it.",
     0},
    {"guard", "What is done about steps that would harm the weights (docs/guards.md).", 0},
    {"checkpoint", "What is saved.", 0},
    {"track",
     "What is recorded of a run, and where (docs/tracking.md). RUN/events.jsonl and the terminal "
     "always get it. User names, passwords and tokens of servers come from environment variables "
     "and are never kept.",
     0},
    {"run", "Where a run keeps its files.", 0},
};
const by__section_list by__run_sections = {sections, BY_ARRAY_LENGTH(sections)};

/* clang-format off: one row a key */
static const by__key group_fields[] = {
    {"optimizer.groups", "match", BY__KEY_TEXT, BY__OWN(by_parameter_group, match), NULL, .min = 1,
     .help = "pattern of whole parameter names, as the shell's: `*`, `?`, `[a-z]`"},
    {"optimizer.groups", "lr_scale", BY__KEY_REAL, BY__OWN(by_parameter_group, lr_scale), "1", 0,
     1e6, BY__ABOVE_MIN, .help = "their learning rate is the run's times this"},
    {"optimizer.groups", "weight_decay", BY__KEY_REAL, BY__OWN(by_parameter_group, weight_decay),
     "-1", 0, 1000, .derived = "optimizer.weight_decay, on matrices only",
     .help = "decoupled weight decay, also on vectors"},
    {"optimizer.groups", "frozen", BY__KEY_SWITCH, BY__OWN(by_parameter_group, frozen), "false",
     .help = "they are not trained: no gradient is computed and no state kept"},
};
static const by__key_list group_list = BY__KEY_LIST(group_fields);

static const by__key stage_fields[] = {
    {"train.batch_warmup", "batch", BY__KEY_INT, BY__OWN(by_batch_stage, batch), NULL, 1, BY__MI24,
     .help = "sequences a step; micro_batch divides it"},
    {"train.batch_warmup", "steps", BY__KEY_INT, BY__OWN(by_batch_stage, steps), NULL, 1, BY__MANY,
     .help = "steps of the stage"},
};
static const by__key_list stage_list = BY__KEY_LIST(stage_fields);

static const by__key common[] = {
    {"", "name", BY__KEY_TEXT, BY__FIELD(name), "run", .min = 1,
     .help = "name of the run and of its directory"},
    {"", "seed", BY__KEY_SEED, BY__FIELD(seed), "1337",
     .help = "source of all randomness: initial weights, data order, dropout"},

    {"task", "kind", BY__KEY_TEXT, BY__FIELD(task.kind), "language", .help = "what is learned"},

    {"model", "kind", BY__KEY_TEXT, BY__FIELD(model.kind), "gpt2", .help = "model family"},
    {"model", "layers", BY__KEY_INT, BY__FIELD(model.layers), "4", 1, 10000, .help = "blocks"},
    {"model", "width", BY__KEY_INT, BY__FIELD(model.width), "128", 1, BY__MI20,
     .help = "embedding width"},
    {"model", "dropout", BY__KEY_REAL, BY__FIELD(model.dropout), "0", 0, 1, BY__BELOW_MAX,
     .help = "dropout probability on embeddings, attention output and MLP output"},
    {"model", "from", BY__KEY_TEXT, BY__FIELD(model.from), "\"\"",
     .help = "directory in Hugging Face form to start from; empty for none"},

    {"data", "valid_fraction", BY__KEY_REAL, BY__FIELD(data.valid_fraction), "0.1", 0, 1,
     BY__BELOW_MAX, .help = "share of the data that is held out; of text, the end"},
    {"data", "corrupt", BY__KEY_TEXT, BY__FIELD(data.corrupt), "fail", .choices = "fail|skip",
     .later = true,
     .help = "damaged data: fail: an error; skip: it is left out, named and counted. Of packed "
             "tokens, no sample has any that is damaged; of tables and CIFAR files, damaged rows "
             "and images are left out"},
    {"data", "corrupt_budget", BY__KEY_REAL, BY__FIELD(data.corrupt_budget), "0.01", 0, 1e15,
     .later = true,
     .help = "damaged tokens, rows or images that corrupt: skip leaves out at most: below 1 a "
             "share of all, from 1 on their number"},

    {"train", "steps", BY__KEY_INT, BY__FIELD(train.steps), "2000", 1, BY__MANY,
     .help = "optimizer steps of the run"},
    {"train", "batch", BY__KEY_INT, BY__FIELD(train.batch), "12", 1, BY__MI24,
     .help = "sequences a step, over all ranks and micro-batches"},
    {"train", "batch_warmup", BY__KEY_RECORDS, BY__FIELD(train.batch_warmup), "[]",
     .fields = &stage_list, .size = sizeof(by_batch_stage), .later = true,
     .help = "smaller batches for the first steps, by more and more micro-batches: "
             "`[{batch: 4, steps: 200}, {batch: 8, steps: 200}]`; the learning rate's schedule "
             "then goes by sequences seen, in steps of batch"},
    {"train", "micro_batch", BY__KEY_INT, BY__FIELD(train.micro_batch), "-1", 1, BY__MI24,
     .derived = "equal to batch", .help = "sequences a micro-batch; divides batch"},
    {"train", "eval_every", BY__KEY_INT, BY__FIELD(train.eval_every), "250", 0, BY__MANY,
     .help = "steps between evaluations; 0 evaluates at the end only"},
    {"train", "eval_batches", BY__KEY_INT, BY__FIELD(train.eval_batches), "all", 1, BY__MANY,
     .derived = "the whole held-out set", .word = "all", .help = "micro-batches of an evaluation"},
    {"train", "eval_ema", BY__KEY_SWITCH, BY__FIELD(train.eval_ema), "false", .later = true,
     .help = "evaluate the moving average of the weights (optimizer.ema) while the run trains, and "
             "let it choose the best checkpoint"},
    {"train", "log_every", BY__KEY_INT, BY__FIELD(train.log_every), "10", 1, BY__MANY,
     .help = "steps between log lines"},
    {"train", "threads", BY__KEY_INT, BY__FIELD(train.threads), "-1", 1, 4096,
     .derived = "one for each core that the process may use", .help = "compute threads"},

    {"optimizer", "kind", BY__KEY_TEXT, BY__FIELD(optimizer.kind), "adamw", .help = "update rule"},
    {"optimizer", "lr", BY__KEY_REAL, BY__FIELD(optimizer.lr), "1e-3", 0, 1000, BY__ABOVE_MIN,
     .help = "peak learning rate"},
    {"optimizer", "min_lr", BY__KEY_REAL, BY__FIELD(optimizer.min_lr), "-1", 0, 1000,
     .derived = "a tenth of lr",
     .help = "last learning rate of the cosine, linear and wsd schedules; at most lr"},
    {"optimizer", "schedule", BY__KEY_TEXT, BY__FIELD(optimizer.schedule), "cosine",
     .choices = "cosine|linear|constant|wsd",
     .help = "course of the learning rate after the warm-up; wsd: constant, then a final decay"},
    {"optimizer", "warmup", BY__KEY_INT, BY__FIELD(optimizer.warmup), "-1", 0, BY__MANY,
     .derived = "100, or a tenth of the steps where that is fewer",
     .help = "steps of linear warm-up; at most train.steps"},
    {"optimizer", "decay", BY__KEY_INT, BY__FIELD(optimizer.decay), "-1", 1, BY__MANY,
     .derived = "a tenth of the steps, at least 1", .help = "steps of the final decay of wsd"},
    {"optimizer", "weight_decay", BY__KEY_REAL, BY__FIELD(optimizer.weight_decay), "0.1", 0, 1000,
     .help = "decoupled weight decay, on matrices only"},
    {"optimizer", "clip", BY__KEY_REAL, BY__FIELD(optimizer.clip), "1", 0, 1e9,
     .help = "bound of the global gradient norm; 0 does not clip"},
    {"optimizer", "lr_scaling", BY__KEY_TEXT, BY__FIELD(optimizer.lr_scaling), "none",
     .choices = "none|linear|sqrt", .later = true,
     .help =
         "how lr and min_lr grow with train.batch, where they are for steps of lr_batch: none, "
         "linear (Goyal et al. 2017, for sgd) or sqrt (Krizhevsky 2014, for adamw and its kin)"},
    {"optimizer", "lr_batch", BY__KEY_INT, BY__FIELD(optimizer.lr_batch), "-1", 1, BY__MI24,
     .derived = "train.batch", .later = true,
     .help = "examples of the step that lr and min_lr are for"},
    {"optimizer", "layer_decay", BY__KEY_REAL, BY__FIELD(optimizer.layer_decay), "1", 0, 1,
     BY__ABOVE_MIN, .later = true,
     .help = "the learning rate of a block is multiplied by this once for each part of the model "
             "behind it: the later blocks, then norm and head; embeddings come before all blocks "
             "(BEiT: Bao et al. 2022; ELECTRA: Clark et al. 2020)"},
    {"optimizer", "ema", BY__KEY_REAL, BY__FIELD(optimizer.ema), "0", 0, 1, BY__BELOW_MAX,
     .later = true,
     .help = "decay of an exponential moving average of the weights (Polyak & Juditsky 1992), such "
             "as 0.999, in f32 in the checkpoints; 0 keeps none"},
    {"optimizer", "ema_warmup", BY__KEY_SWITCH, BY__FIELD(optimizer.ema_warmup), "false",
     .later = true, .help = "the decay of update t is at most (1 + t) / (10 + t)"},
    {"optimizer", "keep_zeros", BY__KEY_SWITCH, BY__FIELD(optimizer.keep_zeros), "false",
     .later = true,
     .help =
         "elements of matrices that are 0 stay 0, so that a pruned model (model.from) keeps its "
         "pattern while it is trained (docs/compression.md); not with muon, whose updates are "
         "not element by element"},
    {"optimizer", "groups", BY__KEY_RECORDS, BY__FIELD(optimizer.groups), "[]",
     .fields = &group_list, .size = sizeof(by_parameter_group), .later = true,
     .help = "parameters with rates of their own; of several that match a name the first counts, "
             "and each must match one: `[{match: \"*.bias\", lr_scale: 2, weight_decay: 0}]`"},

    {"lora", "rank", BY__KEY_INT, BY__FIELD(lora.rank), "0", 0, 65536, .later = true,
     .help = "rank of the adapters (Hu et al. 2021): the weight W of a layer becomes W + alpha / "
             "rank x B A, of which A and B alone are trained; 0: no adapters"},
    {"lora", "alpha", BY__KEY_REAL, BY__FIELD(lora.alpha), "-1", 0, 1e6, BY__ABOVE_MIN,
     .derived = "equal to rank", .later = true,
     .help = "what the adapters add is multiplied by alpha / rank"},
    {"lora", "rslora", BY__KEY_SWITCH, BY__FIELD(lora.rslora), "false", .later = true,
     .help = "it is multiplied by alpha / sqrt(rank) (Kalajdzievski 2023)"},
    {"lora", "dropout", BY__KEY_REAL, BY__FIELD(lora.dropout), "0", 0, 1, BY__BELOW_MAX,
     .later = true, .help = "dropout probability on the input of the adapters"},
    {"lora", "targets", BY__KEY_TEXTS, BY__FIELD(lora.targets), "[]", .later = true,
     .help = "layers that get an adapter: the end of a module's name (`c_attn`, `mlp.c_proj`), "
             "with patterns as the shell's, or `all-linear`; empty: c_attn of gpt2, q_proj and "
             "v_proj of llama and mixtral"},
    {"lora", "train_also", BY__KEY_TEXTS, BY__FIELD(lora.train_also), "[]", .later = true,
     .help = "patterns of whole names of parameters that are trained besides: `[\"ln_f.*\"]`"},
    {"lora", "from", BY__KEY_TEXT, BY__FIELD(lora.from), "\"\"", .later = true,
     .help = "directory with adapters in PEFT's form to start from, which say rank, alpha, rslora "
             "and targets; empty: new ones"},

    {"distill", "teacher", BY__KEY_TEXT, BY__FIELD(distill.teacher), "\"\"", .later = true,
     .help = "run, whose newest checkpoint is taken, or directory with config.json and weights; "
             "empty: none"},
    {"distill", "logits", BY__KEY_TEXT, BY__FIELD(distill.logits), "\"\"", .later = true,
     .help = "directory of a teacher's stored logits (banyan logits) of data.train, instead of a "
             "teacher; windows of the data then begin at multiples of model.context"},
    {"distill", "temperature", BY__KEY_REAL, BY__FIELD(distill.temperature), "2", 0, 1000,
     BY__ABOVE_MIN, .later = true,
     .help = "what the logits of both models are divided by before the softmax (Hinton et al. "
             "2015)"},
    {"distill", "weight", BY__KEY_REAL, BY__FIELD(distill.weight), "0.5", 0, 1, .later = true,
     .help = "share of the teacher's part of the loss; the rest is the targets' cross-entropy"},
    {"distill", "hidden", BY__KEY_REAL, BY__FIELD(distill.hidden), "0", 0, 1e6, .later = true,
     .help = "weight of the mean squared difference of the last hidden states, the student's "
             "through a projection that is learned with it; 0: none"},

    {"precision", "compute", BY__KEY_TEXT, BY__FIELD(precision.compute), "f32",
     .choices = "f32|bf16|fp16",
     .help = "format of activations and matrix products; weights, gradients and optimizer state "
             "are f32 all the same"},
    {"precision", "weights", BY__KEY_TEXT, BY__FIELD(precision.weights), "f32",
     .choices = "f32|bf16", .later = true,
     .help = "format in which matrices and the optimizer's state of them are kept; bf16, with "
             "compute bf16, needs less than half the memory; gradients stay f32"},
    {"precision", "rounding", BY__KEY_TEXT, BY__FIELD(precision.rounding), "stochastic",
     .choices = "stochastic|nearest", .later = true,
     .help = "of updates of weights bf16: stochastic keeps, in the mean, what is smaller than the "
             "distance of two bf16 numbers (Gupta et al. 2015); nearest loses it"},
    {"precision", "loss_scaling", BY__KEY_TEXT, BY__FIELD(precision.loss_scaling), "auto",
     .choices = "auto|none|static|dynamic", .later = true,
     .help = "whether the loss is multiplied before the backward pass, so that small gradients "
             "have values in fp16 (Micikevicius et al. 2018), and the gradients divided behind it; "
             "auto: dynamic with compute fp16, else none"},
    {"precision", "loss_scale", BY__KEY_REAL, BY__FIELD(precision.loss_scale), "65536", 0, 0x1p40,
     BY__ABOVE_MIN, .later = true, .help = "the static scale, or the first of the dynamic ones"},
    {"precision", "growth_factor", BY__KEY_REAL, BY__FIELD(precision.growth_factor), "2", 1, 1024,
     .later = true,
     .help = "dynamic: the scale grows by it after growth_interval steps without overflow"},
    {"precision", "backoff_factor", BY__KEY_REAL, BY__FIELD(precision.backoff_factor), "0.5", 0, 1,
     BY__ABOVE_MIN | BY__BELOW_MAX, .later = true,
     .help = "dynamic: the scale is multiplied by it after a step whose gradient overflowed, which "
             "is not applied"},
    {"precision", "growth_interval", BY__KEY_INT, BY__FIELD(precision.growth_interval), "2000", 1,
     BY__MANY, .later = true, .help = "dynamic: steps without overflow before the scale grows"},
    {"precision", "min_loss_scale", BY__KEY_REAL, BY__FIELD(precision.min_loss_scale), "1", 0,
     0x1p40, BY__ABOVE_MIN, .later = true,
     .help = "dynamic: least scale; a step that overflows with it counts as guard.nonfinite says"},
    {"precision", "max_loss_scale", BY__KEY_REAL, BY__FIELD(precision.max_loss_scale), "16777216",
     0, 0x1p40, BY__ABOVE_MIN, .later = true, .help = "dynamic: greatest scale"},
    {"precision", "qat", BY__KEY_TEXT, BY__FIELD(precision.qat), "none",
     .choices = "none|int8|int4", .later = true,
     .help = "quantisation-aware training: the layers of blocks compute with their weights as "
             "these codes will have them, and the gradient goes straight through the rounding"},
    {"precision", "qat_group", BY__KEY_INT, BY__FIELD(precision.qat_group), "128", 32, 128,
     .later = true, .help = "qat int4: inputs that share a scale: 32, 64 or 128"},

    {"memory", "recompute", BY__KEY_TEXT, BY__FIELD(memory.recompute), "none",
     .choices = "none|block|every|full",
     .help = "what the backward pass computes again instead of keeping it, from the most memory to "
             "the least: block keeps the inputs of blocks, every that of each recompute_every-th, "
             "full that of as few as give the least memory; no bit depends on it"},
    {"memory", "recompute_every", BY__KEY_INT, BY__FIELD(memory.recompute_every), "2", 2, 10000,
     .help = "with recompute: every: blocks between two inputs that are kept"},
    {"memory", "activations", BY__KEY_TEXT, BY__FIELD(memory.activations), "same",
     .choices = "same|bf16|int8",
     .help = "format in which activations are kept for the backward pass: bf16 takes half the "
             "memory of those in f32, int8 (with a scale for each 128 elements of a row) a quarter "
             "of it, and half of bf16; gradients are those of the rounded values"},
    {"memory", "budget", BY__KEY_SIZE, BY__FIELD(memory.budget), "0", 0, BY__MANY,
     .help = "what each rank may take of its machine's memory, all in all; 0: what is free. With "
             "recompute: none the backward pass computes as much again as it takes to fit, what "
             "costs the least time first"},

    {"parallel", "data", BY__KEY_INT, BY__FIELD(parallel.data), "-1", 1, BY__MI20,
     .derived = "what the other axes leave of the ranks",
     .help = "groups of ranks that train on different micro-batches, each with the whole state"},
    {"parallel", "shard", BY__KEY_INT, BY__FIELD(parallel.shard), "1", 1, BY__MI20,
     .derived = "what the other axes leave of the ranks, with data given",
     .help = "ranks that train on different micro-batches and share the state, as zero says"},
    {"parallel", "zero", BY__KEY_INT, BY__FIELD(parallel.zero), "1", 1, 3,
     .help =
         "what the ranks of shard divide (Rajbhandari et al. 2020): 1 the optimizer's state "
         "and, with bf16, the f32 weights; 2 gradients too; 3 parameters too, which are gathered "
         "for their use"},
    {"parallel", "keep", BY__KEY_SWITCH, BY__FIELD(parallel.keep), "false",
     .help = "with zero: 3, what the forward pass has gathered stays for the backward pass: fewer "
             "bytes to send, and the memory of zero: 2"},
    {"parallel", "tensor", BY__KEY_INT, BY__FIELD(parallel.tensor), "1", 1, BY__MI20,
     .help = "ranks that divide heads, hidden units and vocabulary"},
    {"parallel", "sequence_parallel", BY__KEY_SWITCH, BY__FIELD(parallel.sequence_parallel),
     "false",
     .help =
         "between the products that the ranks of tensor divide, they divide each sequence, which "
         "saves activations; tensor must divide model.context"},
    {"parallel", "sequence", BY__KEY_INT, BY__FIELD(parallel.sequence), "1", 1, BY__MI20,
     .help = "ranks that divide each sequence; twice as many divide model.context"},
    {"parallel", "pipeline", BY__KEY_INT, BY__FIELD(parallel.pipeline), "1", 1, BY__MI20,
     .help = "ranks that divide the layers"},
    {"parallel", "schedule", BY__KEY_TEXT, BY__FIELD(parallel.schedule), "1f1b",
     .choices = "gpipe|1f1b|interleaved|zero_bubble",
     .help = "in which order the ranks of pipeline work on micro-batches"},
    {"parallel", "chunks", BY__KEY_INT, BY__FIELD(parallel.chunks), "1", 1, 64,
     .help = "stages of the model on each rank of pipeline; more than 1 for interleaved"},
    {"parallel", "expert", BY__KEY_INT, BY__FIELD(parallel.expert), "1", 1, BY__MI20,
     .help = "ranks that divide the experts of each layer, and the examples of a micro-batch"},
    {"parallel", "overlap", BY__KEY_SWITCH, BY__FIELD(parallel.overlap), "true",
     .help = "gradients are added up between ranks while the backward pass goes on"},
    {"parallel", "bucket_mib", BY__KEY_REAL, BY__FIELD(parallel.bucket_mib), "-1", 0, 65536,
     BY__ABOVE_MIN,
     .derived = "an eighth of the gradients, from 0.25 to 4 and at least 0.125 a rank of shard",
     .help = "MiB of gradients that are added up between ranks at once"},
    {"parallel", "replica_hash_every", BY__KEY_INT, BY__FIELD(parallel.replica_hash_every), "0", 0,
     BY__MANY,
     .help = "steps between comparisons of the weights of the ranks of data and shard, which must "
             "be equal; 0: "
             "none. A rank that differs is named, and the exit code is 5"},
    {"parallel", "writers", BY__KEY_INT, BY__FIELD(parallel.writers), "-1", 1, BY__MI20,
     .derived = "one for each 64 MiB of a checkpoint, all ranks at most",
     .help = "ranks that write a checkpoint, each files of its own"},

    {"sync", "every", BY__KEY_INT, BY__FIELD(sync.every), "1", 1, BY__MANY,
     .help =
         "steps from one exchange to the next; 1: gradients, at every step; more: each rank takes "
         "its own steps, and the mean of the way they went is a step of an outer optimizer "
         "(DiLoCo: Douillard et al. 2023)"},
    {"sync", "outer_lr", BY__KEY_REAL, BY__FIELD(sync.outer_lr), "0.7", 0, 10, BY__ABOVE_MIN,
     .help = "learning rate of the outer optimizer, with every above 1"},
    {"sync", "outer_momentum", BY__KEY_REAL, BY__FIELD(sync.outer_momentum), "0.9", 0, 1,
     BY__BELOW_MAX, .help = "its momentum (Nesterov's); 0: none"},
    {"sync", "staleness", BY__KEY_INT, BY__FIELD(sync.staleness), "0", 0, BY__MANY,
     .help = "steps that each rank takes while an exchange is under way, before it is applied; "
             "every at most; 0: ranks wait for it"},
    {"sync", "compress", BY__KEY_TEXT, BY__FIELD(sync.compress), "none",
     .choices = "none|bf16|int8|one_bit|top_k|power_sgd",
     .help = "code of what is sent; what it loses is added to what is sent next (error feedback)"},
    {"sync", "density", BY__KEY_REAL, BY__FIELD(sync.density), "0.01", 0, 1, BY__ABOVE_MIN,
     .help = "top_k: share of the values that is sent"},
    {"sync", "rank", BY__KEY_INT, BY__FIELD(sync.rank), "4", 1, 32,
     .help = "power_sgd: columns of the two factors that are sent for a matrix"},
    {"sync", "warmup", BY__KEY_INT, BY__FIELD(sync.warmup), "0", 0, BY__MANY,
     .help = "exchanges at the beginning that are not compressed"},

    {"offload", "optimizer", BY__KEY_TEXT, BY__FIELD(offload.optimizer), "none",
     .choices = "none|disk",
     .help = "disk keeps the optimizer's state and, with bf16, the f32 weights in a scratch file, "
             "and updates them piece by piece"},
    {"offload", "path", BY__KEY_TEXT, BY__FIELD(offload.path), "\"\"",
     .help = "directory of the scratch file, on a fast local disk; empty: run.dir"},
    {"offload", "buffer_mib", BY__KEY_REAL, BY__FIELD(offload.buffer_mib), "64", 0, 1048576,
     BY__ABOVE_MIN,
     .help = "MiB of memory through which it passes; more where the optimizer needs whole tensors "
             "and the largest does not fit"},

    {"guard", "nonfinite", BY__KEY_TEXT, BY__FIELD(guard.nonfinite), "skip", .choices = "skip|stop",
     .help = "a step whose loss or gradient is NaN or infinite is never applied: skip goes on with "
             "the next batch and logs where it arose, stop ends the run with exit code 7"},
    {"guard", "max_skips", BY__KEY_INT, BY__FIELD(guard.max_skips), "10", 0, BY__MANY,
     .help = "steps in a row that may be skipped; one more ends the run with exit code 7"},
    {"guard", "spike", BY__KEY_TEXT, BY__FIELD(guard.spike), "off",
     .choices = "off|warn|skip|rollback",
     .help = "what follows a loss that is far above those of the steps before: warn applies the "
             "step and says so, skip does not apply it, rollback goes back to the newest "
             "checkpoint and on with the samples behind the step"},
    {"guard", "spike_zscore", BY__KEY_REAL, BY__FIELD(guard.spike_zscore), "8", 1, 1e6,
     .help = "how far is far: (loss - median) / (1.4826 x median absolute deviation), robust "
             "against spikes in the window itself"},
    {"guard", "spike_window", BY__KEY_INT, BY__FIELD(guard.spike_window), "128", 8, BY_GUARD_WINDOW,
     .help = "losses of the last applied steps that one is compared with; none is judged before "
             "half of them are there"},
    {"guard", "max_rollbacks", BY__KEY_INT, BY__FIELD(guard.max_rollbacks), "3", 0, BY__MANY,
     .help = "times that a run goes back to one checkpoint; one more ends it with exit code 7"},
    {"guard", "replay_every", BY__KEY_INT, BY__FIELD(guard.replay_every), "0", 0, BY__MANY,
     .help = "steps from one whose gradients are computed twice to the next; results that differ "
             "are a fault of the hardware, which is named with its node and host, and the exit "
             "code is 5; 0: none"},
    {"guard", "abft", BY__KEY_SWITCH, BY__FIELD(guard.abft), "false",
     .help = "checks every matrix product by the sums of its columns (algorithm-based fault "
             "tolerance); a sum that is off by more than rounding can make it is a fault of the "
             "hardware, which is named with its node and host, and the exit code is 5"},

    {"checkpoint", "every", BY__KEY_INT, BY__FIELD(checkpoint.every), "500", 0, BY__MANY,
     .help = "steps between checkpoints; 0 saves at the end only"},
    {"checkpoint", "keep", BY__KEY_INT, BY__FIELD(checkpoint.keep), "3", 1, 1000000,
     .help = "newest checkpoints that are kept, in addition to the best"},
    {"checkpoint", "keep_best", BY__KEY_INT, BY__FIELD(checkpoint.keep_best), "1", 1, 1000000,
     .help = "checkpoints with the lowest validation losses that are kept, of those that are saved "
             "behind an evaluation"},
    {"checkpoint", "keep_every", BY__KEY_INT, BY__FIELD(checkpoint.keep_every), "0", 0, BY__MANY,
     .help = "checkpoints of steps that are multiples of this are kept for good; 0: none"},
    {"checkpoint", "async", BY__KEY_SWITCH, BY__FIELD(checkpoint.async), "true",
     .help = "steps go on while a checkpoint is written; false: they wait until it is on the disk"},
    {"checkpoint", "staging", BY__KEY_SIZE, BY__FIELD(checkpoint.staging), "0", 0, BY__MANY,
     .help = "with async, memory that what is saved is copied into; what it has no room for is "
             "written first, and an update of the weights waits for that; 0: a quarter of what the "
             "rank writes, or all of it up to 64 MiB"},

    {"track", "sinks", BY__KEY_TEXTS, BY__FIELD(track.sinks), "[]",
     .help = "where else events go: tensorboard (files in RUN/tensorboard), wandb (offline files "
             "of Weights & Biases in RUN/wandb), mlflow (a server), prometheus (a port)"},
    {"track", "mlflow", BY__KEY_TEXT, BY__FIELD(track.mlflow), "\"http://127.0.0.1:5000\"",
     .help = "URL of the MLflow server; what it does not get, since it is away or slow, is sent "
             "later, also by banyan runs sync"},
    {"track", "prometheus", BY__KEY_TEXT, BY__FIELD(track.prometheus), "\"127.0.0.1:9464\"",
     .help = "address that the newest numbers are served on as Prometheus reads them; 0.0.0.0:PORT "
             "lets every machine read them"},
    {"track", "norms_every", BY__KEY_INT, BY__FIELD(track.norms_every), "0", 0, BY__MANY,
     .help = "steps between records of each tensor's norms: gradient before clipping, weights, "
             "update; takes 4 bytes of memory for each parameter; 0: none"},
    {"track", "histograms_every", BY__KEY_INT, BY__FIELD(track.histograms_every), "0", 0, BY__MANY,
     .help = "steps between histograms of each tensor's weights and gradient, for tensorboard and "
             "wandb; 0: none"},
    {"track", "activations_every", BY__KEY_INT, BY__FIELD(track.activations_every), "0", 0,
     BY__MANY,
     .help = "steps between statistics of the output of each block and of the model: mean, root "
             "mean square, largest magnitude, shares of zeros and of values that are not finite; "
             "0: none"},
    {"track", "system_every", BY__KEY_INT, BY__FIELD(track.system_every), "0", 0, BY__MANY,
     .help =
         "steps between records of the machine: CPU use, temperature where the kernel tells it, "
         "memory, disk, seconds of a step that waited for data; 0: none"},
    {"track", "sample_every", BY__KEY_INT, BY__FIELD(track.sample_every), "0", 0, BY__MANY,
     .help = "steps between texts that the model continues with the weights of the moment, for the "
             "terminal, tensorboard and wandb; language models only; 0: none"},
    {"track", "sample_prompt", BY__KEY_TEXT, BY__FIELD(track.sample_prompt), "\"\\n\"", .min = 1,
     .help = "the text that is continued"},
    {"track", "sample_tokens", BY__KEY_INT, BY__FIELD(track.sample_tokens), "64", 1, 4096,
     .help = "tokens that are added to it"},
    {"track", "project", BY__KEY_TEXT, BY__FIELD(track.project), "banyan", .min = 1,
     .help = "experiment of MLflow, project of Weights & Biases"},

    {"run", "dir", BY__KEY_TEXT, BY__FIELD(run.dir), "runs", .min = 1,
     .help = "the directory of the run is made in it, under its name"},
};
/* clang-format on */
const by__key_list by__run_keys = BY__KEY_LIST(common);

const by__section *by__section_find(const by__schema *schema, const char *name)
{
    for (size_t i = 1; i < schema->sections->count; i++) {
        if (strcmp(schema->sections->rows[i].name, name) == 0) {
            return &schema->sections->rows[i];
        }
    }
    return NULL;
}

const char *by__key_path(char buffer[64], const by__key *key)
{
    (void)snprintf(buffer, 64, "%s%s%s", key->section, key->section[0] == '\0' ? "" : ".",
                   key->name);
    return buffer;
}

/* Appends a range: "from 1 to 10", "above 0 and at most 1". */
static void add_range(by__text *out, const by__key *key)
{
    bool above = (key->open & BY__ABOVE_MIN) != 0;
    bool below = (key->open & BY__BELOW_MAX) != 0;
    if (!above && !below) {
        by__text_format(out, "from %.10g to %.10g", key->min, key->max);
    } else {
        by__text_format(out, "%s %.10g and %s %.10g", above ? "above" : "at least", key->min,
                        below ? "below" : "at most", key->max);
    }
}

void by__key_accepts(by__text *out, const by__key *key)
{
    if (key->derived != NULL) {
        by__text_format(out, "%s or ", key->word != NULL ? key->word : "-1");
    }
    switch (key->type) {
    case BY__KEY_INT:
        by__text_add(out, "a whole number ");
        add_range(out, key);
        break;
    case BY__KEY_SIZE:
        by__text_add(out, "a size as 6GiB or 512MiB, or a number of bytes");
        break;
    case BY__KEY_SEED:
        by__text_add(out, "a whole number from 0 to 18446744073709551615");
        break;
    case BY__KEY_REAL:
        by__text_add(out, "a number ");
        add_range(out, key);
        break;
    case BY__KEY_PAIR:
        by__text_add(out, "a list of two numbers, each ");
        add_range(out, key);
        break;
    case BY__KEY_SWITCH:
        by__text_add(out, "true or false");
        break;
    case BY__KEY_TEXT:
        if (key->choices != NULL) {
            by__text_add(out, "one of ");
            for (const char *p = key->choices; *p != '\0'; p++) {
                by__text_add_bytes(out, *p == '|' ? ", " : p, *p == '|' ? 2 : 1);
            }
        } else {
            by__text_add(out, key->min > 0 ? "non-empty UTF-8 text" : "UTF-8 text");
        }
        break;
    case BY__KEY_TEXTS:
        by__text_add(out, "UTF-8 text or a list of them");
        break;
    case BY__KEY_RECORDS:
        by__text_add(out, "a list of mappings with keys");
        for (size_t i = 0; i < key->fields->count; i++) {
            by__text_format(out, "%s %s", i == 0 ? "" : ",", key->fields->rows[i].name);
        }
        break;
    }
}
