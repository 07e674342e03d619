/* The configuration of a run: one YAML file, `base:` inheritance, `section.key=value` overrides.
 *
 * by_config is plain data: keys that several rooms read are fields here, in a section of the same
 * name. A section with a key `kind` (task, model, optimizer) has further keys for each kind,
 * declared in the file of that kind (src/nn/models/llama.c, src/optim/adamw.c) and stored where
 * only that file looks: behind `own`. The parser, the printer, the hash and docs/config.md are made
 * from the declarations.
 */
#ifndef BANYAN_CONFIG_H
#define BANYAN_CONFIG_H

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

/* A list of structs of a type that the key says, owned by the config. */
typedef struct by_record_list {
    void *items;
    size_t count;
} by_record_list;

/* The values of keys that belong to single kinds of a section. Made and owned by the config; the
 * same for every kind that is chosen. */
typedef struct by_kind_values by_kind_values;

typedef struct by_model_config {
    char *kind;           /* "gpt2", "llama": a row of the model table */
    by_kind_values *own;  /* keys of single families */
    int64_t layers;       /* transformer blocks */
    int64_t heads;        /* query heads */
    int64_t kv_heads;     /* key and value heads (grouped-query attention); -1: equal to heads; a
                              key of families that group them, equal to heads in others */
    int64_t width;        /* embedding width */
    int64_t head_dim;     /* width of a head; set when a config of a transformer is resolved: width
                              / heads, or a key of families that choose it */
    int64_t mlp_width;    /* hidden width of the MLP; -1: by family */
    int64_t context;      /* positions of a sequence, in tokens */
    int64_t vocab;        /* rows of the embedding; -1: the tokenizer's size */
    int64_t pad_vocab_to; /* the embedding is padded up to a multiple of this; 1: not padded */
    int64_t tied;         /* 1: the output head shares the token embedding; 0: it does not; -1: by
                              family */
    double norm_eps;      /* epsilon of layer norm or RMS norm */
    double dropout;       /* probability, on embeddings, attention output and MLP output */
    /* standard deviation of initial weights; -1: sqrt(2 / (5 width)) (Nguyen & Salazar 2019), which
     * is GPT-2's 0.02 near its width of 768 */
    double init_std;
    int64_t outputs;  /* classes of a classifier, or numbers that are predicted; -1: by the data */
    int64_t channels; /* of an image; -1: by the data */
    int64_t image_height; /* in pixels; -1: by the data */
    int64_t image_width;
    int64_t numbers;           /* numbers in a row of a table; -1: by the data */
    by_string_list categories; /* ids of each category column of a table ("7"), in order */
    char *from;                /* directory in Hugging Face form to start from; "" for none */
} by_model_config;

typedef struct by_task_config {
    char *kind;          /* "language": a row of the task table */
    by_kind_values *own; /* keys of single tasks */
} by_task_config;

typedef struct by_data_config {
    by_string_list text;     /* text files or directories: packed on first use, cached by content */
    char *tokenizer;         /* "char", "bpe", or a path: tokenizer.json, a directory that holds
                              one, or a directory with encoder.json + vocab.bpe */
    int64_t tokenizer_vocab; /* size of a BPE that is trained here (tokenizer: bpe) */
    char *dedup;             /* of text: "none", "exact" or "near" */
    char *field;             /* field of JSON lines that holds the text */
    double valid_fraction;   /* last part of the text that is held out */
    char *corrupt;           /* "fail" or "skip" */
    double corrupt_budget;   /* of skip: below 1 a share of the examples, else their number */
    char *train;             /* packed directory to train on (instead of text); "" for none */
    by_string_list mix;      /* DIR=WEIGHT: packed directories to train on, instead of train */
    char *mix_order;         /* "exact" or "random" */
    by_string_list curriculum; /* STEP=WEIGHT:WEIGHT...: weights of mix from a step on */
    char *documents;           /* "join" or "mask": attention across documents of a sample */
    char *packing;             /* "stream" or "best_fit": how documents become samples */
    char *valid;               /* packed directory to evaluate on; "" for none */
    by_string_list valid_sets; /* NAME=DIR: packed directories to evaluate on, each by its name */
    char *cache;               /* where packed text is kept */
} by_data_config;

typedef struct by_train_config {
    int64_t steps;
    int64_t batch;               /* sequences a step, over all ranks and micro-batches */
    by_record_list batch_warmup; /* by_batch_stage: the first steps have smaller batches */
    int64_t micro_batch;         /* sequences a micro-batch; divides batch; -1: batch */
    int64_t eval_every;          /* steps between evaluations; 0: only at the end */
    int64_t eval_batches; /* micro-batches of an evaluation; -1 ("all"): the whole held-out set */
    int64_t eval_ema;     /* 1: evaluations are of the average of the weights (optimizer.ema) */
    int64_t log_every;    /* steps between log lines */
    int64_t threads;      /* compute threads; -1: one a core that this process may use */
} by_train_config;

/* So many steps of so many sequences, behind those of the stages before it. */
typedef struct by_batch_stage {
    int64_t batch;
    int64_t steps;
} by_batch_stage;

/* What the parameters whose names match a pattern have of their own. */
typedef struct by_parameter_group {
    char *match;         /* shell pattern (fnmatch) of whole names: "*.bias" */
    double lr_scale;     /* their learning rate is the optimizer's times this */
    double weight_decay; /* on all of them; -1: the optimizer's, on matrices */
    int64_t frozen;      /* 1: they are not trained */
} by_parameter_group;

typedef struct by_optimizer_config {
    char *kind;            /* "adamw": a row of the optimizer table */
    by_kind_values *own;   /* keys of single optimizers */
    double lr;             /* peak learning rate */
    double min_lr;         /* last learning rate of cosine, linear and wsd; -1: lr / 10 */
    char *schedule;        /* "cosine", "linear", "constant", "wsd" */
    int64_t warmup;        /* steps of linear warm-up; -1: 100, or a tenth of the steps if fewer */
    int64_t decay;         /* wsd: steps of the final decay; -1: a tenth of the steps */
    double weight_decay;   /* on matrices only */
    double clip;           /* bound of the global gradient norm; 0: none */
    char *lr_scaling;      /* "none", "linear", "sqrt": how lr grows with train.batch */
    int64_t lr_batch;      /* the batch that lr is for; -1: train.batch */
    by_record_list groups; /* by_parameter_group; the first that matches a name counts */
    double layer_decay;    /* learning rates of blocks: layer_decay^(how many come after), ... */
    double ema;            /* decay of the moving average of the weights; 0: none is kept */
    int64_t keep_zeros;    /* 1: elements of matrices that are 0 stay 0 */
    int64_t ema_warmup;    /* 1: the decay of update t is at most (1 + t) / (10 + t) */
} by_optimizer_config;

/* Low-rank adapters (LoRA, Hu et al. 2021) in the place of the model's weights. */
typedef struct by_lora_config {
    int64_t rank;              /* of the adapters; 0: none, all weights are trained */
    double alpha;              /* what they add is multiplied by alpha / rank; -1: rank */
    int64_t rslora;            /* 1: by alpha / sqrt(rank) (Kalajdzievski 2023) */
    double dropout;            /* probability, on their input */
    by_string_list targets;    /* modules that get one; empty: by family */
    by_string_list train_also; /* patterns of parameters that are trained besides */
    char *from; /* directory with adapters in PEFT's form to start from; "" for none */
} by_lora_config;

/* A teacher that a student learns from (Hinton, Vinyals and Dean 2015). */
typedef struct by_distill_config {
    char *teacher;      /* run, or directory with config.json and weights; "" for none */
    char *logits;       /* directory of stored logits instead; "" for none */
    double temperature; /* by which both models' logits are divided */
    double weight;      /* of the teacher's part of the loss; 1 - weight: of the targets' */
    double hidden;      /* of the squared error of the last hidden state, projected; 0: none */
} by_distill_config;

typedef struct by_precision_config {
    char *compute;  /* "f32", "bf16" or "fp16": of activations and products */
    char *weights;  /* "f32"; "bf16": of matrices and the optimizer's state of them, with no f32 */
    char *rounding; /* of an update of bf16: "stochastic", "nearest" */
    char *loss_scaling; /* "auto" (dynamic with fp16), "none", "static", "dynamic" */
    double loss_scale;  /* the static one, or the first of the dynamic ones */
    double growth_factor;
    double backoff_factor;
    int64_t growth_interval; /* steps that are applied before the scale grows */
    double min_loss_scale;
    double max_loss_scale;
    char *qat; /* codes that weights are trained for: "none", "int8", "int4" */
    int64_t qat_group;
} by_precision_config;

typedef struct by_memory_config {
    char *recompute; /* "none", "block", "every", "full": what the backward pass computes again */
    int64_t recompute_every; /* every: blocks between inputs that are kept */
    char *activations;       /* "same" or "bf16": the format that they are kept in */
    int64_t budget;          /* bytes that the run may take; 0: what is free */
} by_memory_config;

/* Axes of the mesh of ranks (banyan/comm.h); their product is the number of ranks. */
typedef struct by_parallel_config {
    int64_t data;  /* -1: what the other axes leave of the ranks */
    int64_t shard; /* the same where data is given */
    int64_t zero;  /* what shard divides: 1 optimizer state, 2 gradients too, 3 parameters too */
    int64_t keep;  /* with zero 3: 1: what the forward pass gathers stays for the backward pass */
    int64_t tensor;
    int64_t sequence_parallel; /* 1: with tensor, what is between split products is split by time */
    int64_t sequence;
    int64_t pipeline;
    char *schedule; /* of the pipeline: "1f1b", ... (banyan/pipeline.h) */
    int64_t chunks; /* stages of each of its ranks */
    int64_t expert;
    int64_t overlap;   /* 1: gradients are added up during the backward pass; 0: behind it */
    double bucket_mib; /* MiB of gradients that are added up at once; -1: chosen */
    int64_t replica_hash_every; /* steps between comparisons of replicas; 0: none */
    int64_t writers;            /* ranks that write a checkpoint; -1: chosen */
} by_parallel_config;

/* When ranks of the axis data exchange what they have learned, and how it is coded. */
typedef struct by_sync_config {
    int64_t every;   /* steps from one synchronisation to the next; 1: gradients, every step */
    double outer_lr; /* every > 1: of the outer optimizer, SGD with Nesterov's momentum */
    double outer_momentum;
    int64_t staleness; /* every > 1: steps between the beginning of an exchange and its end */
    char *compress;    /* "none", "bf16", "int8", "one_bit", "top_k", "power_sgd" */
    double density;    /* top_k: share of the values that is sent */
    int64_t rank;      /* power_sgd: columns of a factor */
    int64_t warmup;    /* synchronisations that are not compressed */
} by_sync_config;

/* What is on disk instead of in memory while a run trains. */
typedef struct by_offload_config {
    char *optimizer;   /* "none"; "disk": the optimizer's state, with bf16 also the f32 weights */
    char *path;        /* directory; "": run.dir */
    double buffer_mib; /* memory through which it passes */
} by_offload_config;

/* What is done about steps that would harm the weights. */
#define BY_GUARD_WINDOW 1024 /* the largest spike_window */
typedef struct by_guard_config {
    char *nonfinite;   /* "skip", "stop": a step whose loss or gradient is not finite */
    int64_t max_skips; /* steps in a row that may be skipped; one more ends the run */
    char *spike;       /* "off", "warn", "skip", "rollback": a loss far above those before */
    double spike_zscore;
    int64_t spike_window;  /* losses that one is compared with */
    int64_t max_rollbacks; /* to one checkpoint */
    int64_t replay_every;  /* steps between those that are computed twice; 0: none */
    int64_t abft;          /* 1: the sums of matrix products are checked */
} by_guard_config;

typedef struct by_checkpoint_config {
    int64_t every;      /* steps between checkpoints; 0: only at the end */
    int64_t keep;       /* newest checkpoints kept, in addition to the best; at least 1 */
    int64_t keep_best;  /* of the lowest validation losses; at least 1 */
    int64_t keep_every; /* steps that are multiples of this; 0: none */
    int64_t async;      /* steps go on while a checkpoint is written */
    int64_t staging;    /* bytes of memory that it is written from then; 0: chosen */
} by_checkpoint_config;

/* What is recorded of a run, and where, beside events.jsonl and the terminal. */
typedef struct by_track_config {
    by_string_list sinks; /* "tensorboard", "wandb", "mlflow", "prometheus" */
    char *mlflow;         /* URL of the server */
    char *prometheus;     /* address to serve on */
    int64_t norms_every;  /* steps between norms of each tensor; 0: none */
    int64_t histograms_every;
    int64_t activations_every; /* steps between statistics of each block's output */
    int64_t system_every;      /* steps between looks at the machine */
    int64_t sample_every;      /* steps between texts that the model continues */
    char *sample_prompt;       /* what it continues */
    int64_t sample_tokens;     /* that it adds */
    char *project;             /* experiment of MLflow, project of Weights & Biases */
} by_track_config;

typedef struct by_run_config {
    char *dir; /* where the run directory DIR/NAME is made */
} by_run_config;

typedef struct by_config {
    char *name;
    uint64_t seed;
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

/* Reads a file, its chain of `base:` files (paths relative to the file that names them) and then
 * `overrides` ("section.key=value", `count` of them), checks every key, type and range, and returns
 * a config that the caller closes. A file's key replaces its base's, lists whole. Derived values
 * (-1) stay as written; by_config_resolve fills them. BY_ECONFIG names file, line, key, value and
 * the nearest valid name, or the kinds that a key belongs to when the chosen kind does not have it;
 * BY_EIO a file that cannot be read.
 *
 * The file is YAML: sections of keys, comments, quoting, lists in either form. Whole numbers may be
 * written 1_000 or 1e3. Refused: duplicate keys, anchors, aliases, tags, several documents, files
 * over 1 MiB, base chains over 16 files. Paths in values are relative to the working directory.
 * An override's value is taken literally unless it starts with [, " or ', which is read as YAML. */
BY_API by_status by_config_open(by_config **out, const char *path, const char *const *overrides,
                                size_t count, by_error *error);
/* The same from memory; `name` stands for the file in messages, base paths are relative to it. */
BY_API by_status by_config_parse(by_config **out, const char *name, const char *text, size_t length,
                                 const char *const *overrides, size_t count, by_error *error);
/* The config.yaml that a run keeps in its directory `run`. Keys that its kinds do not have are left
 * out: earlier versions printed every key of every kind. */
BY_API by_status by_config_open_run(by_config **out, const char *run, const char *const *overrides,
                                    size_t count, by_error *error);
/* All defaults, no file. */
BY_API by_status by_config_default(by_config **out, by_error *error);
/* A config of its own with the same values, which remembers where each was set. BY_ECONFIG when a
 * program has written a value that is out of its range. */
BY_API by_status by_config_copy(by_config **out, const by_config *config, by_error *error);
/* Applies one "section.key=value" to an open config. Whether the chosen kinds have the key is
 * checked by by_config_resolve, so that a kind and its keys can be set in any order. */
BY_API by_status by_config_set(by_config *config, const char *assignment, by_error *error);
/* Fills every derived value but those that depend on the data (model.vocab) or on the machine
 * (train.threads, train.eval_batches), and checks every range again (a program may have written the
 * fields) and what several keys must agree on (micro_batch divides batch, heads divides width,
 * kv_heads divides heads, ...). `config` comes from one of the calls above. The same values after a
 * second call. */
BY_API by_status by_config_resolve(by_config *config, by_error *error);
/* The config as YAML text that by_config_parse reads back to the same values: the keys that the
 * chosen kinds have. Freed with free(). */
BY_API by_status by_config_print(const by_config *config, char **out, by_error *error);
/* Sequences of step `step` (0-based): train.batch, or what train.batch_warmup says. */
BY_API int64_t by_config_batch(const by_config *config, int64_t step);
/* Sequences of all steps before it. */
BY_API uint64_t by_config_samples(const by_config *config, int64_t step);
/* The directory of what a run has on disk while it trains: offload.path, or run.dir. */
BY_API const char *by_config_offload_path(const by_config *config);
/* 32 hex digits over the printed text without `run`, `track`, `name` and what `parallel` says that
 * changes no bits: equal for equal work, if both configs are resolved. */
BY_API by_status by_config_hash(const by_config *config, char out[33], by_error *error);
/* The format that precision.compute, or --precision, names: "f32", "bf16", "fp16". BY_EARG for
 * another name. */
BY_API by_status by_precision_parse(by_dtype *out, const char *name, by_error *error);
/* docs/config.md: every key of every kind with type, default, range and meaning. Freed with
 * free(). */
BY_API by_status by_config_reference(char **out, by_error *error);
BY_API void by_config_close(by_config **config);

#ifdef __cplusplus
}
#endif
#endif
