/* The engine: many requests at once on one model.
 *
 * A session is one request: a prompt and what follows it, `n` times if asked for. by_engine_step
 * runs one step of all sessions together (continuous batching: Yu et al. 2022, Orca): a row for
 * each sequence that decodes, and the rows that are left for pieces of prompts, so that a long
 * prompt delays the tokens of the others by no more than the time of a step of `rows` rows. Keys
 * and values are in pages of BY_PAGE_TOKENS tokens of one pool (Kwon et al. 2023, PagedAttention);
 * sequences with equal beginnings and the same salt share pages.
 *
 * The tokens of a session and their log-probabilities are a function of its request and of the
 * weights: bit for bit the same alone and in company, for any arrival, chunk of a prompt, hit of
 * the prefix cache or preemption. (Mixtral's to rounding: the products of its experts sum in an
 * order that depends on how many rows an expert has.)
 *
 * Memory is planned and taken when the engine is opened: nothing later allocates, and a session
 * that was accepted never fails for want of memory. Where the pool is full, sequences with the
 * lowest rank give up their pages and are computed again later. The rank is the priority, and
 * among equals the order of submission.
 *
 * An engine is driven by one thread at a time: submit, cancel and step are calls of that thread,
 * which a server gives what its connections want between two steps. Two engines share nothing.
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

/* Rows of a step, at most, where no option says so. */
#define BY_ENGINE_ROWS 256

typedef struct by_engine_options {
    /* most tokens of a prompt with what follows; 0: the model's context. More than that is
     * possible where positions are rotary, not where they are a table */
    int64_t context;
    int64_t sessions;      /* sequences that run at a time, at most; 0: 16 */
    int64_t waiting;       /* sequences that may wait for a place; 0: four times `sessions` */
    int64_t rows;          /* rows of a step, at most, at least `sessions`; 0: 256 */
    int64_t pages;         /* of the pool; 0: so that `sessions` sequences of full length fit */
    uint64_t pool_bytes;   /* the pool in bytes; 0: by `pages`; not both */
    bool no_prefix_cache;  /* keys and values of earlier sequences are not used again */
    int threads;           /* compute threads; 0: config.train.threads */
    const char *precision; /* "f32", "bf16" or "fp16", of weights and pool; NULL:
                              precision.compute */
    /* "int8": the pool holds keys and values as integers of 8 bits, with a scale for each token and
     * head; NULL: as `precision` says */
    const char *kv;
    /* ids below it are tokens: the tokenizer's size where the model's table is padded; 0: the
     * model's */
    int64_t vocab;
    /* proposes tokens that a step computes with the others (banyan/draft.h); stays the caller's,
     * and outlives the engine; NULL: none */
    const by_draft_source *draft;
    int32_t draft_tokens; /* proposed for a sequence and step, at most BY_DRAFT_TOKENS; 0: 7 */
    /* as many as there are in every step; false: as many as the chances of tokens and the measured
     * times of steps make worth it, none perhaps */
    bool draft_always;
    /* a model of the caller's own; NULL: the one that the config names */
    by_model_builder *builder;
    void *user;
    by_device *device; /* stays the caller's; NULL: the CPU */
} by_engine_options;

/* Bytes that an engine holds. Their sum is `total`. */
typedef struct by_engine_memory_report {
    uint64_t weights;
    uint64_t pool;        /* keys and values */
    uint64_t activations; /* one arena for all programs */
    uint64_t workspace;   /* scratch memory of the most demanding kernel */
    uint64_t data;        /* tokens, page tables, logits, records of sessions and pages */
    uint64_t drafts;      /* of the source of drafts */
    uint64_t total;
} by_engine_memory_report;

/* Compiles a model, takes its memory and loads the weights. config: resolved, vocab known.
 * `options` may be NULL. weights NULL: initial weights by the model's rules and config.seed, to
 * measure with. config and weights may be closed afterwards. BY_EFORMAT names a tensor that is
 * missing or has another shape; BY_EARG an option that is out of range; BY_EMEMORY what does not
 * fit into memory. */
BY_API by_status by_engine_open(by_engine **out, const by_config *config, const by_weights *weights,
                                const by_engine_options *options, by_error *error);
/* Ends all sessions without events. */
BY_API void by_engine_close(by_engine **engine);
BY_API const by_engine_memory_report *by_engine_memory(const by_engine *engine);
/* by_embed_open with the weights of an engine, which must outlive it: they are there once, as the
 * engine has packed them. `config` is the one that the engine was opened with, and may be closed
 * afterwards; precision and threads of the options are the engine's. It has activations and threads
 * of its own, so another thread than the engine's may run it at the same time; the memory that
 * by_embed_memory tells is taken by the first run. BY_EARG: the engine's device has memory of its
 * own; BY_EMEMORY: what it takes is not free. */
BY_API by_status by_embed_open_beside(by_embed **out, const by_engine *engine,
                                      const by_config *config, const by_embed_options *options,
                                      by_error *error);
/* One of the programs that steps run, counted from 0, to watch it (banyan/profile.h); NULL behind
 * the last. It stays the engine's. */
BY_API by_program *by_engine_program(const by_engine *engine, int index);

/* ---- sessions ---- */

/* Stop tokens of a request, at most. */
#define BY_STOP_TOKENS 32
/* Most probable tokens that a request asks for, at most. */
#define BY_TOP_TOKENS 20

typedef struct by_request {
    const int32_t *prompt; /* copied */
    size_t prompt_count;   /* 1 .. context */
    /* Tokens to generate, at most; 0: until the context is full, where every sequence ends. */
    int64_t tokens;
    by_sampling sampling; /* sequence i of n draws with sampling.seed + i */
    int32_t n;            /* sequences that follow the prompt; 0: 1 */
    int32_t top;          /* most probable tokens that events tell, at most BY_TOP_TOKENS */
    const int32_t *stop;  /* tokens that end a sequence, copied */
    size_t stop_count;    /* at most BY_STOP_TOKENS */
    double deadline;      /* seconds from submission after which it ends; 0: none */
    int32_t priority;     /* higher goes first */
    uint64_t salt;        /* pages are shared among requests of one salt alone: a tenant's number */
    by_logits_processor *process; /* NULL: none; by_logit_process_run is one */
    void *user;                   /* of process; the caller's while the session lives */
} by_request;

/* Accepts a request; *session is its number, which no other session of the engine has had. BY_EARG
 * names what is out of range, such as a request that the pool could never hold; BY_ESTATE: as many
 * sequences are waiting as there is room for (submit again after some steps). */
BY_API by_status by_engine_submit(by_engine *engine, const by_request *request, uint64_t *session,
                                  by_error *error);
/* Ends a session now; its memory is free. The next step tells it by an event for each sequence
 * that was not finished. BY_EARG: no such session lives; it may have finished. */
BY_API by_status by_engine_cancel(by_engine *engine, uint64_t session, by_error *error);

/* ---- steps ---- */

typedef enum by_finish {
    BY_FINISH_NONE = 0,  /* it goes on */
    BY_FINISH_STOP,      /* its token is a stop token, or `process` says that it is complete */
    BY_FINISH_LENGTH,    /* as many tokens as asked for, or the context is full */
    BY_FINISH_CANCELLED, /* by by_engine_cancel */
    BY_FINISH_DEADLINE,
    BY_FINISH_FAILED /* no token could be chosen: the event says why */
} by_finish;

/* "stop", "length", "cancelled", "deadline", "failed"; "" for BY_FINISH_NONE. Static. */
BY_API const char *by_finish_name(by_finish finish);

/* A token, and the natural logarithm of its probability. */
typedef struct by_top_token {
    int32_t token;
    float log_probability;
} by_top_token;

typedef struct by_event {
    uint64_t session;
    int32_t index; /* of n */
    int32_t token; /* -1: none, the sequence ended without one */
    /* Natural logarithm of the probability that the model gives the token: softmax of its logits,
     * before `process` and sampling change them. */
    float log_probability;
    /* What the model holds for most probable in place of the token, in falling order (equal ones by
     * id), by the same softmax: as many as the request asked for, fewer of a smaller vocabulary.
     * Without a token there are none. */
    const by_top_token *top;
    int32_t top_count;
    by_finish finish;    /* the last event of a sequence says why it ended */
    const char *failure; /* with BY_FINISH_FAILED, why; else NULL */
    by_status status;    /* then that of `process` or of the draw; else BY_OK */
} by_event;

/* Runs one step and says what it brought: a token for each sequence that decodes, and with drafts
 * perhaps more; those of a sequence are in order. *events are valid until the next call for the
 * engine. No event: all rows were parts of prompts, or nothing is left to do (by_engine_busy). An
 * error is one of the device; the engine can only be closed then. */
BY_API by_status by_engine_step(by_engine *engine, const by_event **events, size_t *count,
                                by_error *error);
/* Whether a step has something to do or to tell. */
BY_API bool by_engine_busy(const by_engine *engine);

/* Sums since the engine was opened, and, from `running` on, the present state. */
typedef struct by_engine_statistics {
    uint64_t steps;
    uint64_t rows;         /* tokens that went through the model */
    uint64_t padding;      /* rows of programs that were none */
    uint64_t generated;    /* tokens chosen */
    uint64_t found;        /* tokens whose keys and values were in the prefix cache */
    uint64_t recomputed;   /* tokens computed again behind a preemption */
    uint64_t preemptions;  /* sequences that lost their pages */
    uint64_t evictions;    /* pages that left the prefix cache */
    uint64_t copied_pages; /* copies on write */
    uint64_t drafted;      /* tokens that were proposed and computed */
    uint64_t accepted;     /* of them, those that the sequence went on with */
    double flops;          /* two for each weight in a product and row, and attention */
    double bytes;          /* that the steps had to read: each weight once, keys and values */
    int64_t running;
    int64_t waiting;
    int64_t pages;
    int64_t pages_used;   /* by running sequences */
    int64_t pages_cached; /* by nobody, but kept by the prefix cache */
} by_engine_statistics;
BY_API by_engine_statistics by_engine_statistics_now(const by_engine *engine);

#ifdef __cplusplus
}
#endif
#endif
