/* The engine: serves many requests on one model at the same time.
 *
 * A session is one request: a prompt and its continuation, or `n` continuations. by_engine_step
 * runs one step of all sessions together (continuous batching; Orca, Yu et al. 2022): one row for
 * each decoding sequence, and the remaining rows for pieces of prompts, so that a long prompt
 * delays the tokens of the others by at most the time of a step of `rows` rows. Keys and values are
 * kept in pages of BY_PAGE_TOKENS tokens from one pool (PagedAttention, Kwon et al. 2023);
 * sequences with a common prefix and the same salt share pages.
 *
 * The tokens of a session and their log-probabilities depend only on its request and the weights.
 * They are bit for bit the same whatever other requests run with it, whenever it arrives, however
 * its prompt is cut, and with or without prefix-cache hits and preemption.
 *
 * All memory is planned and allocated when the engine is opened: an accepted session never fails
 * for lack of memory. When the pool is full, the sequences of lowest rank (by priority, then order
 * of submission) give up their pages and are recomputed later.
 *
 * An engine is driven by one thread at a time, which calls submit, cancel and step; a server hands
 * it the requests of its connections between steps. Two engines share nothing.
 */
#ifndef BANYAN_ENGINE_H
#define BANYAN_ENGINE_H

#include "banyan/draft.h"
#include "banyan/infer.h"
#include "banyan/program.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_engine by_engine;

/* Default maximum of rows in a step. */
#define BY_ENGINE_ROWS 256

typedef struct by_engine_options {
    /* Maximum tokens of prompt and continuation; 0: the model's context. It may be exceeded with
     * rotary positions, but not with learned ones. */
    int64_t context;
    int64_t sessions; /* maximum number of running sequences; 0: 16 */
    int64_t waiting;  /* maximum number of waiting sequences; 0: 4 * sessions */
    int64_t rows;     /* maximum rows in a step, >= sessions; 0: BY_ENGINE_ROWS */
    /* Pages in the pool; 0: enough for `sessions` sequences of full length, but at most half of the
     * device's memory that the weights leave free, and at least one sequence. */
    int64_t pages;
    uint64_t pool_bytes;  /* size of the pool instead of `pages`; 0: by `pages` */
    bool no_prefix_cache; /* do not reuse keys and values of earlier sequences */
    int threads;          /* compute threads; 0: config.train.threads */
    /* Of weights and pool: "f32", "bf16" or "fp16". NULL: config.precision.compute. */
    const char *precision;
    /* "int8": store keys and values as 8-bit integers with a scale per token and head. NULL: as
     * `precision`. */
    const char *kv;
    /* Only tokens below this are generated: the tokenizer's size if the embedding is padded. 0: the
     * model's vocabulary. */
    int64_t vocab;
    /* Source of drafts (banyan/draft.h), which must outlive the engine. NULL: none. */
    const by_draft_source *draft;
    int32_t draft_tokens; /* drafts per sequence and step, up to BY_DRAFT_TOKENS; 0: 7 */
    /* Use all available drafts in every step. false: as many as are worthwhile given their chances
     * and the measured times of steps, possibly none. */
    bool draft_always;
    /* A model of the caller's own, built with `user`; NULL: the one named by the config. */
    by_model_builder *builder;
    void *user;
    by_device *device; /* must outlive the engine; NULL: config.device is opened */
} by_engine_options;

/* Bytes of memory that an engine holds. */
typedef struct by_engine_memory_report {
    uint64_t weights;
    uint64_t pool;        /* keys and values */
    uint64_t activations; /* one arena shared by all programs */
    uint64_t workspace;   /* scratch memory of the most demanding kernel */
    uint64_t data;        /* tokens, page tables, logits, records of sessions and pages */
    uint64_t drafts;      /* of the source of drafts */
    uint64_t total;       /* sum of the above */
} by_engine_memory_report;

/* Compiles the model, allocates all memory and loads the weights. `config` is resolved and has the
 * vocabulary size; `options` may be NULL; `weights` NULL: random initial weights, for measurements.
 * Config and weights may be closed afterwards. Returns BY_EFORMAT with the tensor that is missing
 * or has another shape, BY_EARG with the option that is out of range, BY_EMEMORY with what does not
 * fit into memory. */
BY_API by_status by_engine_open(by_engine **out, const by_config *config, const by_weights *weights,
                                const by_engine_options *options, by_error *error);
/* Opens an engine without a model, for simulations of serving (banyan/capacity.h): it takes
 * requests, plans steps and shares pages as any other, computes nothing, and always chooses token 0
 * of a vocabulary of two. What a step would have computed is by_engine_last_work. options->context
 * and ->pages must be given; drafts, weights and devices do not apply. The memory is that of
 * records of sequences and pages. */
BY_API by_status by_engine_open_dry(by_engine **out, const by_engine_options *options,
                                    by_error *error);
/* Closes an engine. Ends all sessions without events. */
BY_API void by_engine_close(by_engine **engine);
/* Sets *out to a weight by the name that it has in the graph: f32, in host memory, valid until the
 * next call. */
typedef by_status by_weight_reader(void *user, const char *name, by_tensor_view *out,
                                   by_error *error);
/* Replaces the values of all weights, converted to the engine's format, and forgets the keys and
 * values of earlier sequences. Sequences submitted afterwards get the tokens that they would get
 * from an engine opened with these weights. Returns BY_ESTATE while there are sequences, BY_EARG
 * for a tensor of another shape, and what `read` returns. */
BY_API by_status by_engine_set_weights(by_engine *engine, by_weight_reader *read, void *user,
                                       by_error *error);
/* Returns the memory that the engine holds. */
BY_API const by_engine_memory_report *by_engine_memory(const by_engine *engine);
/* Like by_embed_open, but shares the weights of an engine, which must outlive it. `config` is the
 * one the engine was opened with and may be closed afterwards; precision and threads are the
 * engine's. It has activations and threads of its own, so that it may run on another thread
 * concurrently with the engine. The memory that by_embed_memory reports is allocated by the first
 * run. Returns BY_EMEMORY if too little memory is free. */
BY_API by_status by_embed_open_with(by_embed **out, const by_engine *engine,
                                    const by_config *config, const by_embed_options *options,
                                    by_error *error);
/* Returns the index-th of the engine's programs, from 0, for profiling (banyan/profile.h); NULL
 * past the last. */
BY_API by_program *by_engine_program(const by_engine *engine, int index);

/* Sets the numbers of rows and of rows with logits that the index-th program computes, whatever
 * part of them a step fills. Returns false past the last. */
BY_API bool by_engine_program_size(const by_engine *engine, int index, int64_t *rows,
                                   int64_t *wanted);

/* ---- sessions ---- */

/* Maximum number of stop tokens of a request. */
#define BY_STOP_TOKENS 32
/* Maximum number of alternatives reported for a token. */
#define BY_TOP_TOKENS 20

typedef struct by_request {
    const int32_t *prompt; /* [prompt_count] token ids; copied */
    size_t prompt_count;   /* 1 to the context */
    /* Maximum number of tokens to generate; 0: until the context is full, which ends every
     * sequence. */
    int64_t tokens;
    by_sampling sampling; /* sequence i of n uses sampling.seed + i */
    int32_t n;            /* number of continuations; 0: 1 */
    int32_t top;          /* most probable tokens to report with each token, 0 to BY_TOP_TOKENS */
    /* Report the log-probability of each token of the prompt but the first, which has none, in
     * events with a `prompt_position`, in order, before those of generated tokens; of n
     * continuations with the first. These tokens are then computed, also where the prefix cache
     * has them, at most as many in a step as the engine has sessions. */
    bool score;
    /* With `score`: the first token of the prompt that is reported, so that the tokens before it
     * may come from the prefix cache: what several prompts have in common is computed once. 0 and
     * 1: all are reported but the first. */
    int64_t score_from;
    bool only_prompt;             /* generate no token: the sequence ends behind its prompt */
    const int32_t *stop;          /* [stop_count] tokens that end a sequence; copied */
    size_t stop_count;            /* 0 to BY_STOP_TOKENS */
    double deadline;              /* seconds from submission until it is ended; 0: none */
    int32_t priority;             /* higher runs first */
    uint64_t salt;                /* only requests with equal salt share pages;
                             for instance, a tenant */
    by_logits_processor *process; /* changes logits before sampling (by_logit_process_run);
                                     NULL: none */
    /* Bounds the work for `process` in a step: while this returns false, the sequence lets others
     * go on and tries again in the next step, which does not change its tokens. NULL: none. */
    by_logits_preparer *prepare;
    void *user; /* passed to both; must stay valid while the session lives */
} by_request;

/* Submits a request and sets *session to its number: one more than that of the request before, so
 * that it is unique within the engine. Returns BY_EARG
 * with what is out of range, such as a request that exceeds the pool; BY_ESTATE if there is no room
 * for more waiting sequences (retry after a step). */
BY_API by_status by_engine_submit(by_engine *engine, const by_request *request, uint64_t *session,
                                  by_error *error);
/* Ends a session and frees its memory. The next step reports an event for each sequence that was
 * not finished. Returns BY_EARG if there is no such session; it may have finished. */
BY_API by_status by_engine_cancel(by_engine *engine, uint64_t session, by_error *error);

/* ---- steps ---- */

/* Why a sequence ended. */
typedef enum by_finish {
    BY_FINISH_NONE = 0,  /* it continues */
    BY_FINISH_STOP,      /* stop token, or `process` reported that the text is complete */
    BY_FINISH_LENGTH,    /* number of tokens reached, or the context is full */
    BY_FINISH_CANCELLED, /* by_engine_cancel */
    BY_FINISH_DEADLINE,  /* deadline passed */
    BY_FINISH_FAILED     /* no token could be chosen: see by_event.failure */
} by_finish;

/* Returns "stop", "length", "cancelled", "deadline" or "failed"; "" for BY_FINISH_NONE. */
BY_API const char *by_finish_name(by_finish finish);

/* A token and its log-probability in nats. */
typedef struct by_top_token {
    int32_t token;
    float log_probability;
} by_top_token;

/* A token of a sequence, or its end. */
typedef struct by_event {
    uint64_t session; /* as returned by by_engine_submit */
    int32_t index;    /* which of the n continuations */
    int32_t token;    /* -1: the sequence ended without another token */
    /* > 0: the token is this one of the prompt, counted from 0, of a request with `score`; 0: it
     * was generated. */
    int32_t prompt_position;
    /* Log-probability of the token in nats: log-softmax of the model's logits, before `process` and
     * sampling change them. */
    float log_probability;
    /* The most probable tokens by the same softmax, in descending order, ties by id: as many as the
     * request asked for, or the whole vocabulary. None if there is no token. */
    const by_top_token *top;
    int32_t top_count;
    by_finish finish;    /* set in the last event of a sequence */
    const char *failure; /* reason with BY_FINISH_FAILED; otherwise NULL */
    by_status status;    /* with BY_FINISH_FAILED, that of `process` or of sampling;
                            otherwise BY_OK */
} by_event;

/* Runs one step and returns its events, valid until the next call with this engine: a token for
 * each decoding sequence, with drafts possibly several, in order. There may be none if all rows
 * were parts of prompts or nothing is left to do (by_engine_busy). An error is one of the device;
 * the engine can then only be closed. */
BY_API by_status by_engine_step(by_engine *engine, const by_event **events, size_t *count,
                                by_error *error);
/* What the last step computed, and how long it took. */
typedef struct by_engine_work {
    int program;        /* index of its program; -1: there was nothing to compute */
    int64_t rows;       /* tokens that went through the model */
    int64_t wanted;     /* of them, those with logits */
    double decode_keys; /* keys that rows of decoding sequences read, added over rows */
    double prompt_keys; /* likewise of rows of prompts */
    double seconds;     /* of by_engine_step as a whole; of a dry engine without meaning */
} by_engine_work;
/* Returns the work of the last by_engine_step. */
BY_API by_engine_work by_engine_last_work(const by_engine *engine);
/* Returns whether a step has work to do or events to report. */
BY_API bool by_engine_busy(const by_engine *engine);

/* Number of classes in by_engine_statistics.step_sizes. */
#define BY_STEP_SIZES 10

/* Totals since the engine was opened and, from `running` on, its current state. */
typedef struct by_engine_statistics {
    uint64_t steps;     /* steps run */
    uint64_t rows;      /* tokens that went through the model */
    uint64_t padding;   /* rows of programs that held no token */
    uint64_t sequences; /* sequences of each step, added */
    /* Steps by their number of sequences: at most 1, 2, 4, ..., 256, and more. */
    uint64_t step_sizes[BY_STEP_SIZES];
    uint64_t generated;    /* tokens chosen */
    uint64_t looked_up;    /* tokens of the sequences that were looked up in the prefix cache */
    uint64_t found;        /* of them, tokens found there */
    uint64_t recomputed;   /* tokens computed again after a preemption */
    uint64_t preemptions;  /* sequences that lost their pages */
    uint64_t evictions;    /* pages dropped from the prefix cache */
    uint64_t copied_pages; /* copies on write */
    uint64_t drafted;      /* drafts computed */
    uint64_t accepted;     /* drafts that were right */
    double flops;          /* two per weight and row of each product, plus attention */
    double bytes;          /* bytes that steps had to read:
                              each weight once per step, keys and values */
    int64_t running;       /* sequences */
    int64_t waiting;       /* sequences */
    int64_t pages;         /* in the pool */
    int64_t pages_used;    /* used by running sequences */
    int64_t pages_cached;  /* kept only by the prefix cache */
} by_engine_statistics;
/* Returns the current statistics. */
BY_API by_engine_statistics by_engine_statistics_now(const by_engine *engine);

#ifdef __cplusplus
}
#endif
#endif
