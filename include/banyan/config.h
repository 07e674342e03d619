/* The configuration of a run: a YAML file, with `base:` inheritance and `section.key=value`
 * overrides.
 *
 * by_config is plain data. A field has the name of its key and section; its comment gives meaning,
 * range and default, where -1 mostly stands for a value that by_config_resolve derives. Sections
 * with a key `kind` (task, model, optimizer) have further keys for each kind, declared in the
 * source file of that kind (src/nn/models/llama.c, src/optim/adamw.c) and visible only there,
 * through `own`. The parser, the printer, the hash and docs/config.md are generated from the
 * declarations.
 *
 * A config is used by one thread at a time while it is changed; afterwards threads may share it.
 */
#ifndef BANYAN_CONFIG_H
#define BANYAN_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/dtype.h"
#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A list of strings, owned by the config. */
typedef struct by_string_list {
    char **items;
    size_t count;
} by_string_list;

/* A list of structs, owned by the config; the key determines their type. */
typedef struct by_record_list {
    void *items;
    size_t count;
} by_record_list;

/* Values of the keys that belong to individual kinds of a section. Owned by the config; the same
 * object whatever kind is chosen. */
typedef struct by_kind_values by_kind_values;

/* A part of a model that families choose from a table of kinds. */
typedef struct by_part_config {
    char *kind;          /* a row of the table */
    by_kind_values *own; /* keys of its kinds */
} by_part_config;

/* What is trained. Fields that the chosen family does not use keep their defaults. */
typedef struct by_model_config {
    char *kind;          /* model family: "gpt2" (default), "llama", "mixtral", "vit", "mlp" */
    by_kind_values *own; /* keys of individual families */
    int64_t layers;      /* blocks; 1 to 10000, default 4 */
    int64_t heads;       /* query heads; 1 to 65536, divides width; default 4 */
    /* Key/value heads (grouped-query attention, Ainslie et al. 2023); divides heads. A key of
     * families with grouped heads, equal to heads in others; default -1: heads. */
    int64_t kv_heads;
    int64_t width; /* embedding width; 1 to 2^20, default 128 */
    /* Width of a head, even. A key of some families; otherwise, and by default (-1), set to
     * width / heads when the config of a transformer is resolved. */
    int64_t head_dim;
    int64_t mlp_width;    /* hidden width of the MLP; default -1: by family */
    int64_t context;      /* maximum sequence length in tokens; 1 to 2^24, default 64 */
    int64_t vocab;        /* rows of the embedding; default -1: the tokenizer's vocabulary size */
    int64_t pad_vocab_to; /* the embedding is padded to a multiple of this; default 1: not padded */
    int64_t tied;         /* 1: the output head shares the token embedding; 0: not;
                             default -1: by family */
    /* Parts of a model that transformers choose by name, each a section of its own; by default what
     * the family was published with. */
    by_part_config attention;  /* "full" (default), "window", "local_global", "alibi", "none",
                                  "mixed" */
    by_part_config position;   /* "auto" (default), "learned", "rope", "sinusoidal" or "none" */
    by_part_config norm;       /* "auto" (default), "layer", "rms" or "batch" */
    by_part_config mlp;        /* "auto" (default), "plain" or "gated" */
    by_part_config values;     /* "projected" (default) or "embedded" */
    by_part_config residual;   /* "plain" (default) or "mixed" */
    by_part_config activation; /* "auto" (default), "gelu", "gelu_tanh", "silu", "relu", "relu2" or
                                  "tanh" */
    double norm_eps;           /* epsilon of layer norm or RMS norm, > 0; default by family */
    double dropout;            /* probability, on embeddings, attention output and MLP output;
                             [0, 1), default 0 */
    /* Standard deviation of initial weights; default -1: sqrt(2 / (5 width)) (Nguyen and Salazar
     * 2019), which is close to GPT-2's 0.02 at its width of 768. */
    double init_std;
    /* "standard" (default), or "mup": initial weights and learning rates by Yang et al. 2022, with
     * which lr and init_std are those of the base width. */
    char *parameterisation;
    int64_t mup_base_width;    /* default -1: width */
    int64_t mup_base_head_dim; /* default -1: head_dim */
    int64_t outputs;           /* classes, or numbers to predict; default -1: as in the data */
    int64_t channels;          /* of an image; default -1: as in the data */
    int64_t image_height;      /* in pixels; default -1: as in the data */
    int64_t image_width;       /* in pixels; default -1: as in the data */
    int64_t numbers;           /* numeric features of a table; default -1: as in the data */
    by_string_list categories; /* number of ids ("7") of each categorical feature, in order;
                                  default: as in the data */
    char *from;                /* Hugging Face directory to start from; default "": none */
    /* Patterns of parameters that begin anew where `from` lacks them or has another shape; key
     * model.new; default: none. */
    by_string_list new_parameters;
    char
        *output; /* name of the output that is used (by_model_register); default "": the main one */
} by_model_config;

/* What the model is trained to do. */
typedef struct by_task_config {
    char *kind;          /* "language" (default), "classify" or "regress" */
    by_kind_values *own; /* keys of individual tasks */
} by_task_config;

/* Training data of language models; other tasks have keys of their own. */
typedef struct by_data_config {
    by_string_list text; /* text files or directories; packed on first use and cached by content */
    /* "char", "bpe" (default), or a path: a tokenizer.json, a directory with one, or a directory
     * with encoder.json and vocab.bpe. */
    char *tokenizer;
    int64_t tokenizer_vocab; /* vocabulary size of a "bpe" trained here;
                                257 to 2^24, default 8192 */
    char *dedup;             /* which duplicate documents to drop:
                                "none" (default), "exact", "near" */
    char *field;             /* member of JSON lines or column of Parquet files; default "text" */
    double valid_fraction;   /* fraction held out, for text from the end; [0, 1), default 0.1 */
    char *corrupt;           /* what to do with damaged data: "fail" (default) or "skip" */
    /* How much "skip" may leave out: below 1, a fraction of the examples; from 1 on, their number.
     * Default 0.01. */
    double corrupt_budget;
    int64_t threads; /* that make batches, per rank; default -1: one for each core that the compute
                        threads leave, from 1 to 16 */
    char *remote_cache; /* where parts of remote files are kept; default "": by_remote_options */
    int64_t remote_cache_size; /* bytes that it holds at most; default 20 GiB */
    char *train;               /* packed directory to train on, instead of text; default "": none */
    by_string_list mix;        /* packed directories "DIR=WEIGHT" to train on, instead of train */
    char *mix_order;           /* "exact" (default) or "random" proportions (by_mix_options) */
    by_string_list curriculum; /* "STEP=WEIGHT:WEIGHT...": weights of `mix` from a step on */
    /* Attention across the documents of a sample: "join" (default) permits it, "mask" does not. */
    char *documents;
    char *packing;             /* how documents become samples:
                                  "stream" (default) or "best_fit" (by_token_packing) */
    char *valid;               /* packed directory to evaluate on; default "": none */
    by_string_list valid_sets; /* several packed directories "NAME=DIR" to evaluate on, instead
                                  of valid */
    char *cache;               /* where packed text is kept; default "runs/.cache" */
} by_data_config;

/* Length of training and intervals. Counts are at least 1 unless 0 is described. */
typedef struct by_train_config {
    int64_t steps;               /* optimizer steps; default 2000 */
    int64_t batch;               /* sequences per step, over all ranks and micro-batches;
                                    default 12 */
    by_record_list batch_warmup; /* by_batch_stage: smaller batches for the first steps;
                                    default: none */
    int64_t micro_batch;         /* sequences per micro-batch; divides batch; default -1: batch, or
                                    what by_config_fit_ranks and by_trainer_open_fitting choose */
    int64_t eval_every;          /* steps between evaluations; 0: only at the end; default 250 */
    int64_t eval_batches;        /* micro-batches per evaluation;
                                    default -1 ("all"): the whole held-out set */
    int64_t eval_ema;            /* 1: evaluate the moving average of the weights (optimizer.ema);
                                    default 0 */
    int64_t log_every;           /* steps between log lines; default 10 */
    int64_t threads; /* compute threads; default -1: one per core available to the process */
} by_train_config;

/* A stage of the batch warm-up, following the stages before it. */
typedef struct by_batch_stage {
    int64_t batch; /* sequences per step; a multiple of micro_batch */
    int64_t steps; /* length of the stage */
} by_batch_stage;

/* Settings for the parameters whose names match a pattern. */
typedef struct by_parameter_group {
    char *match;         /* shell pattern (fnmatch) for the complete name: "*.bias" */
    double lr_scale;     /* factor on the optimizer's learning rate, > 0; default 1 */
    double weight_decay; /* for all of them; default -1: the optimizer's, on matrices only */
    int64_t frozen;      /* 1: not trained; default 0 */
} by_parameter_group;

/* The update rule and the learning-rate schedule (docs/optimizers.md). */
typedef struct by_optimizer_config {
    char *kind;            /* "adamw" (default), "adamw8bit", "muon", "sgd", "lion", "lamb",
                              "adafactor" */
    by_kind_values *own;   /* keys of individual optimizers */
    double lr;             /* peak learning rate, > 0; default 1e-3 */
    double min_lr;         /* final learning rate of cosine, linear and wsd; default -1: lr / 10 */
    char *schedule;        /* "cosine" (default), "linear", "constant", "wsd" (constant, then
                              decay) */
    double warmup;         /* steps of linear warm-up; until it is resolved, below 1: a share of
                              the steps; default -1: 100, or steps / 10 if that is less */
    double decay;          /* wsd: steps of the final decay; until it is resolved, below 1: a
                              share of the steps; default -1: a tenth of the steps */
    double weight_decay;   /* decoupled, on matrices only; >= 0, default 0.1 */
    double clip;           /* bound on the global gradient norm; 0: none; default 1 */
    char *lr_scaling;      /* how lr grows with train.batch / lr_batch:
                              "none" (default), "linear", "sqrt" */
    int64_t lr_batch;      /* batch size that lr is meant for; default -1: train.batch */
    by_record_list groups; /* by_parameter_group; the first that matches a name applies;
                              default: none */
    /* The learning rate of a block is multiplied by this once for each part of the model after it;
     * (0, 1], default 1. */
    double layer_decay;
    double ema;         /* decay of the moving average of the weights, [0, 1);
                           default 0: none is kept */
    int64_t keep_zeros; /* 1: elements of matrices that are 0 stay 0 (pruned models); default 0 */
    int64_t ema_warmup; /* 1: the decay at update t is at most (1 + t) / (10 + t); default 0 */
} by_optimizer_config;

/* Low-rank adapters (LoRA, Hu et al. 2021), trained instead of the model's weights. */
typedef struct by_lora_config {
    int64_t rank;              /* rank of the adapters, up to 65536; default 0: no adapters */
    double alpha;              /* the update is multiplied by alpha / rank; default -1: rank */
    int64_t rslora;            /* 1: multiplied by alpha / sqrt(rank) (Kalajdzievski 2023);
                                  default 0 */
    double dropout;            /* probability, on the adapters' input; [0, 1), default 0 */
    by_string_list targets;    /* modules that get an adapter; default: by family */
    by_string_list train_also; /* patterns of parameters that are trained as well; default: none */
    char *from;                /* PEFT directory with adapters to start from; default "": none */
    /* How frozen weights of linear layers are held (QLoRA, Dettmers et al. 2023): "full" (default),
     * as they are, "int8" or "int4". */
    char *base;
    int64_t base_group; /* int4: inputs that share a scale, 32, 64 or 128; default 64 */
} by_lora_config;

/* A teacher to learn from (Hinton, Vinyals and Dean 2015; docs/compression.md). */
typedef struct by_distill_config {
    char *teacher;      /* run, or directory with config.json and weights; default "": none */
    char *logits;       /* directory of stored logits instead (by_logit_store); default "": none */
    double temperature; /* divides the logits of both models, > 0; default 2 */
    double weight;      /* share of the teacher's part of the loss;
                           the targets' is 1 - weight; default 0.5 */
    double hidden;      /* weight of the squared error of the projected last hidden state;
                           default 0: none */
} by_distill_config;

/* Number formats (docs/precision.md). */
typedef struct by_precision_config {
    /* Of activations and products: "f32", "bf16", "fp16" or "auto" (default). by_config_resolve
     * replaces "auto" by "bf16" if the machine multiplies bf16 faster, or weights is "bf16", and
     * otherwise by "f32". */
    char *compute;
    int64_t tf32; /* GPUs multiply f32 in tf32; default 0 */
    /* Storage of matrices and their optimizer state: "f32" (default), or "bf16" without an f32
     * copy. */
    char *weights;
    char *rounding;          /* of updates to bf16 weights: "stochastic" (default) or "nearest" */
    char *loss_scaling;      /* "auto" (default: dynamic with fp16), "none", "static", "dynamic" */
    double loss_scale;       /* the static scale, or the initial dynamic one; default 65536 */
    double growth_factor;    /* dynamic: factor on the scale after growth_interval steps;
                                default 2 */
    double backoff_factor;   /* dynamic: factor on the scale after an overflow, (0, 1);
                                default 0.5 */
    int64_t growth_interval; /* dynamic: applied steps before the scale grows; default 2000 */
    double min_loss_scale;   /* dynamic: lower bound; default 1 */
    double max_loss_scale;   /* dynamic: upper bound; default 2^24 */
    char *qat;               /* quantization-aware training: "none" (default), "int8", "int4" */
    int64_t qat_group;       /* int4: inputs that share a scale: 32, 64 or 128 (default) */
} by_precision_config;

/* Trading time or precision for memory (docs/memory.md). */
typedef struct by_memory_config {
    /* What the backward pass recomputes instead of keeping: "none" (default), "block", "every",
     * "full". Does not change results. */
    char *recompute;
    int64_t recompute_every; /* every: blocks between inputs that are kept; default 2 */
    char *activations;       /* format of kept activations: "same" (default), "bf16" or "int8" */
    int64_t budget;          /* bytes that a rank may use; default 0: the free memory */
} by_memory_config;

/* Axes of the mesh of ranks (banyan/comm.h; docs/parallelism.md). Their product is the number of
 * ranks; sizes are 1 by default unless stated. */
typedef struct by_parallel_config {
    int64_t data;  /* default -1: the ranks that the other axes leave */
    int64_t shard; /* ranks that share the training state;
                      -1: the same, if data is given */
    /* What the ranks of shard divide (ZeRO, Rajbhandari et al. 2020): 1 (default) optimizer state,
     * 2 gradients too, 3 parameters too. */
    int64_t zero;
    int64_t keep;   /* with zero 3, 1: parameters gathered in the forward pass stay
                       for the backward pass; default 0 */
    int64_t tensor; /* ranks that divide heads, hidden units and vocabulary */
    /* With tensor, 1: between split products the ranks divide the sequence (Korthikanti et al.
     * 2022); default 0. */
    int64_t sequence_parallel;
    int64_t sequence;           /* ranks that divide each sequence */
    int64_t pipeline;           /* ranks that divide the layers */
    char *schedule;             /* of the pipeline: "1f1b" (default), ... (banyan/pipeline.h) */
    int64_t chunks;             /* stages per pipeline rank; 1 to 64, default 1 */
    int64_t expert;             /* ranks that divide the experts of each layer */
    int64_t overlap;            /* 1: reduce gradients during the backward pass (default);
                                   0: after it */
    double bucket_mib;          /* MiB of gradients reduced at once; default -1: chosen */
    int64_t replica_hash_every; /* steps between comparisons of replicas; default 0: none */
    int64_t sync_batch_norm;    /* 1: batch norm over the micro-batches of all replicas; default
                                   0: over one */
    int64_t writers;            /* ranks that write a checkpoint; default -1: chosen */
} by_parallel_config;

/* When data-parallel ranks exchange updates, and how these are compressed. */
typedef struct by_sync_config {
    int64_t every;         /* steps between exchanges; default 1: gradients, every step;
                              > 1: DiLoCo */
    double outer_lr;       /* with every > 1: learning rate of the outer optimizer (SGD, Nesterov
                              momentum); default 0.7 */
    double outer_momentum; /* its momentum, [0, 1); default 0.9 */
    int64_t staleness;     /* with every > 1: steps between start and end of an exchange, <=
                              every; default 0 */
    char *compress;        /* "none" (default), "bf16", "int8", "one_bit", "top_k", "power_sgd" */
    double density;        /* top_k: fraction of the values that is sent, (0, 1]; default 0.01 */
    int64_t rank;          /* power_sgd: columns of a factor, 1 to 32; default 4 */
    int64_t warmup;        /* exchanges at the beginning that are not compressed; default 0 */
} by_sync_config;

/* State that is kept on disk instead of in memory during training. Does not change results. */
typedef struct by_offload_config {
    char *optimizer;   /* "none" (default); "disk": optimizer state and, with bf16, the f32
                          weights */
    char *path;        /* directory; default "": run.dir */
    double buffer_mib; /* MiB of memory it passes through, > 0; default 64 */
} by_offload_config;

#define BY_GUARD_WINDOW 1024 /* maximum of guard.spike_window */
/* How steps that would harm the weights are handled (docs/guards.md). */
typedef struct by_guard_config {
    char *nonfinite;       /* on a loss or gradient that is not finite:
                              "skip" (default) or "stop" */
    int64_t max_skips;     /* consecutive steps that may be skipped;
                              one more ends the run; default 10 */
    char *spike;           /* on an outlier of the loss:
                              "off" (default), "warn", "skip", "rollback" */
    double spike_zscore;   /* threshold: robust z-score of the loss; 1 to 1e6, default 8 */
    int64_t spike_window;  /* losses it is compared with; 8 to BY_GUARD_WINDOW, default 128 */
    int64_t max_rollbacks; /* rollbacks to one checkpoint; one more ends the run; default 3 */
    int64_t replay_every;  /* steps between those that are computed twice; default 0: none */
    int64_t abft;          /* 1: verify the checksums of matrix products; default 0 */
} by_guard_config;

/* What is saved, and what is kept (docs/checkpoints.md). */
typedef struct by_checkpoint_config {
    int64_t every; /* steps between checkpoints; 0: only at the end; -1: by measured times and
                           mean_time_between_failures; default 500 */
    double mean_time_between_failures; /* seconds, of the job; default a day */
    int64_t keep;       /* newest checkpoints to keep, besides the best; >= 1, default 3 */
    int64_t keep_best;  /* checkpoints with the lowest validation loss to keep; >= 1, default 1 */
    int64_t keep_every; /* keep checkpoints of steps that are multiples of this; default 0: none */
    int64_t async;      /* 1: training continues while a checkpoint is written (default) */
    int64_t staging;    /* async: bytes of memory to write from; default 0: chosen */
} by_checkpoint_config;

/* What is recorded of a run besides events.jsonl and the terminal (docs/tracking.md). All intervals
 * are in steps; 0, the default, disables them. */
typedef struct by_track_config {
    by_string_list sinks;      /* "tensorboard", "wandb", "mlflow", "prometheus"; default: none */
    char *mlflow;              /* URL of the server; default "http://127.0.0.1:5000" */
    char *prometheus;          /* address to serve on; default "127.0.0.1:9464" */
    int64_t norms_every;       /* between records of each tensor's norms */
    int64_t histograms_every;  /* between histograms of each tensor's weights and gradients */
    int64_t activations_every; /* between statistics of each block's output */
    int64_t noise_every;       /* between measurements of the gradient noise scale */
    int64_t system_every;      /* between records of CPU, memory and disk use */
    int64_t sample_every;      /* between generated sample texts */
    char *sample_prompt;       /* text that samples continue; default "\n" */
    int64_t sample_tokens;     /* tokens per sample; 1 to 4096, default 64 */
    char *project;             /* experiment of MLflow, project of Weights & Biases;
                                  default "banyan" */
} by_track_config;

/* Where a run keeps its files. */
typedef struct by_run_config {
    char *dir; /* directory that contains the run directory DIR/NAME; default "runs" */
} by_run_config;

/* A complete configuration. */
typedef struct by_config {
    char *name;    /* name of the run; default "run" */
    uint64_t seed; /* source of all randomness; default 1337 */
    char *device;  /* as for by_device_open; default "auto" */
    by_task_config task;
    by_model_config model;
    by_data_config data;
    by_train_config train;
    by_optimizer_config optimizer;
    by_lora_config lora;
    by_distill_config distill;
    by_precision_config precision;
    by_memory_config memory;
    by_parallel_config parallel;
    by_sync_config sync;
    by_offload_config offload;
    by_guard_config guard;
    by_checkpoint_config checkpoint;
    by_track_config track;
    by_run_config run;
} by_config;

/* Reads a file, the chain of its `base:` files (paths relative to the file that names them) and
 * then `count` overrides "section.key=value", checks every key, type and range, and makes a config.
 * A file's keys replace those of its base; lists are replaced as a whole. Derived values (-1) are
 * left for by_config_resolve. Returns BY_ECONFIG with file, line, key, value and the nearest valid
 * name, or the kinds that have the key if the chosen one does not; BY_EIO if a file cannot be read.
 *
 * The file is YAML: sections of keys, comments, quoting, lists in either form. Integers may be
 * written 1_000 or 1e3. Duplicate keys, anchors, aliases, tags, multiple documents, files over 1
 * MiB and base chains over 16 files are errors. Paths in values are relative to the working
 * directory. The value of an override is literal text, unless it starts with [, " or ' and is then
 * parsed as YAML.
 */
BY_API by_status by_config_open(by_config **out, const char *path, const char *const *overrides,
                                size_t count, by_error *error);
/* Like by_config_open for text in memory. `name` stands for the file in messages; base paths are
 * relative to it. */
BY_API by_status by_config_parse(by_config **out, const char *name, const char *text, size_t length,
                                 const char *const *overrides, size_t count, by_error *error);
/* Like by_config_open for the config of a run directory: config.yaml or, where the run was resumed
 * with another one, the last of its config-STEP.yaml. Ignores keys that the chosen kinds do
 * not have, because earlier versions printed the keys of all kinds. */
BY_API by_status by_config_open_run(by_config **out, const char *run, const char *const *overrides,
                                    size_t count, by_error *error);
/* Makes a config with all defaults. */
BY_API by_status by_config_default(by_config **out, by_error *error);
/* Makes an independent copy that still knows where each value was set. Returns BY_ECONFIG if a
 * program has stored a value out of range. */
BY_API by_status by_config_copy(by_config **out, const by_config *config, by_error *error);
/* Applies one "section.key=value". Returns BY_ECONFIG for an unknown key or invalid value. Whether
 * the chosen kinds have the key is checked by by_config_resolve, so that kinds and keys may be set
 * in any order. */
BY_API by_status by_config_set(by_config *config, const char *assignment, by_error *error);
/* Fills in derived values, except those that depend on the data (model.vocab, train.eval_batches)
 * or on the number of cores (train.threads). Checks all ranges again, since a program may have
 * changed fields, and constraints between keys (micro_batch divides batch, heads divides width,
 * kv_heads divides heads, ...). The config must be from one of the functions above. Idempotent.
 * Returns BY_ECONFIG, or BY_EARG if BANYAN_ISA is not an instruction-set level. */
BY_API by_status by_config_resolve(by_config *config, by_error *error);
/* What of the files is not used since a later file or an override sets another kind or number of
 * steps, a line each, for people. NULL: all is used. Owned by the config; copies have none. */
BY_API const char *by_config_notes(const by_config *config);
/* Writes the config as YAML with the keys of the chosen kinds; by_config_parse restores the same
 * values. Free the text with free(). */
BY_API by_status by_config_print(const by_config *config, char **out, by_error *error);
/* Returns the batch size of step `step` (from 0): train.batch, or that of its stage in
 * train.batch_warmup. */
BY_API int64_t by_config_batch(const by_config *config, int64_t step);
/* Returns the number of sequences in all steps before `step`. */
BY_API uint64_t by_config_samples(const by_config *config, int64_t step);
/* Returns the directory for offloaded state: offload.path, or run.dir if that is empty. */
BY_API const char *by_config_offload_path(const by_config *config);
/* Writes a hash of the printed config as 32 hex digits, leaving out `run`, `track`, `name` and the
 * keys of `parallel` that do not affect results. For resolved configs, equal hashes mean equal
 * work. */
BY_API by_status by_config_hash(const by_config *config, char out[33], by_error *error);
/* Finds the key that is meant by a name: a key of any section, or what another program calls one.
 * Fills `out` with a suggestion, "did you mean \"optimizer.lr\"?", and returns true; false if no
 * key is known to be meant. */
BY_API bool by_config_suggest(char out[256], const char *name);
/* Parses a value of precision.compute or --precision: "f32", "bf16", "fp16". Returns BY_EARG for
 * another name. */
BY_API by_status by_precision_parse(by_dtype *out, const char *name, by_error *error);
/* Generates docs/config.md: every key of every kind with type, default, range and meaning. Free the
 * text with free(). */
BY_API by_status by_config_reference(char **out, by_error *error);
BY_API void by_config_close(by_config **config);

#ifdef __cplusplus
}
#endif
#endif
