/* worker: the process that runs a model: requests from the broker in, events out, in a sandbox.
 *
 * The loop (worker.c, worker_output.c) reads messages and sends events. Other threads do the work:
 * one parses requests (worker_prepare.c, with worker_generation.c and worker_messages.c), one runs
 * the engine's steps (worker_engine.c) or, for embeddings and predictions, batches of examples
 * (worker_batch.c, with worker_embed.c and worker_predict.c), and one detects when the others hang
 * (worker_watch.c). This header has the records that they share; worker_model.c opens the model.
 *
 * Types: by__worker_served_model, the model; by__worker_job, a request as the broker gave it;
 * by__worker_generation, what the engine does for one; by__worker, the process.
 *
 * Who owns what: a job belongs to the loop, but to the preparer between by__worker_preparer_submit
 * and by__worker_preparer_next, then to the batcher or the engine's thread, until
 * by__worker_batcher_next or BY__OUT_LAST. Threads exchange pointers under one lock each.
 *
 * Never put here: HTTP, the choice of requests to run, kernels. */
#ifndef BY_SERVE_WORKER_WORKER_H
#define BY_SERVE_WORKER_WORKER_H

#include "banyan/chat.h"
#include "banyan/engine.h"
#include "banyan/logit_process.h"
#include "banyan/text_stream.h"
#include "serve/base/serve.h"
#include "serve/base/stop.h"
#include "serve/base/thread.h"
#include "serve/link/broker_link.h"
#include "serve/protocol/event_list.h"
#include "serve/protocol/served_version.h"
#include "serve/telemetry/log.h"
#include "serve/telemetry/served_drift.h"
#include "serve/telemetry/trace_context.h"
#include "serve/worker/form_cache.h"

/* Most sequences of one request. */
#define BY__MAX_N 8
#define BY__STOPS 8

typedef struct by__worker_predicting by__worker_predicting;

/* What is served: a language model, an encoder of texts (engine NULL), or (predicting not NULL) a
 * model of rows or images. Read-only once it is open, except for the members that one thread alone
 * uses. */
typedef struct by__worker_served_model {
    by_engine *engine; /* used by the engine's thread alone */
    by_embed *embed;   /* shares the weights of an engine; used by the batcher's thread alone */
    by__worker_predicting *predicting; /* used by the batcher's thread alone */
    by__telemetry_served_drift
        *drift;       /* used by the loop alone; NULL: the weights have no reference */
    int64_t slots;    /* requests that the worker takes at a time */
    int64_t sessions; /* sequences, or examples of a batch, that it runs at a time */
    int64_t created;  /* seconds since 1970 when its files were written; 0: unknown */
    by_tokenizer *tokenizer;
    by_chat *chat;         /* NULL: the model has no chat template */
    by_token_list *tokens; /* for constraints */
    by__worker_form_cache *forms;
    int32_t ends[BY_END_TOKENS];
    size_t end_count;
    int64_t context;
    int64_t width;  /* width of its hidden states */
    size_t longest; /* most bytes of a token */
} by__worker_served_model;

/* Opens the model and runs a warm-up request. Even on failure by__worker_served_close must be
 * called. */
by_status by__worker_served_open(by__worker_served_model *model, const by_worker_options *options,
                                 const by__telemetry_log *log, by_error *error);
void by__worker_served_close(by__worker_served_model *model);
/* The model's entry in /v1/models. */
json_t *by__worker_served_info(const by__worker_served_model *model);
/* Logs the memory of a language model in bytes, as planned when it was opened. */
void by__worker_served_log_memory(const by__worker_served_model *model,
                                  const by__telemetry_log *log);
/* Encodes a text that must have 1 token to the context. *code: BY__TOO_LONG for one that has
 * more. */
by_status by__worker_served_encode(by_token_buffer *out, const by__worker_served_model *model,
                                   const char *text, size_t length, unsigned flags,
                                   const char **code, by_error *error);
/* The same check of a number of tokens. */
by_status by__worker_served_fits(const by__worker_served_model *model, size_t count,
                                 const char **code, by_error *error);
/* Copies a list of ids; `name` is the field, for errors. */
by_status by__worker_served_ids(by_token_buffer *out, const by__worker_served_model *model,
                                const json_t *list, const char *name, by_error *error);
/* Encodes a conversation, with what its template ends it with (worker_messages.c). The parts of a
 * content are joined unless the template iterates over them. tools, variables (of the template):
 * NULL for none. */
by_status by__worker_served_messages(by_token_buffer *out, const by__worker_served_model *model,
                                     const json_t *messages, const json_t *tools,
                                     const json_t *variables, const char **code, by_error *error);

/* ---- jobs (worker_job.c) ---- */

/* What the engine does for a job: the sequences of its answer. The engine's thread reads only
 * `request` and writes only `session` and `open`. */
typedef struct by__worker_generation {
    by_request request;
    by_token_buffer prompt;
    int32_t *bias_tokens;
    float *biases;
    int32_t stops[BY_STOP_TOKENS]; /* stop tokens of the request */
    by__worker_form_cache *forms;  /* the cache that owns the constraint */
    const by_constraint *constraint;
    by_logit_process *process;
    by_text_stream *streams[BY__MAX_N];
    bool done[BY__MAX_N]; /* the sequence has ended for the client */
    int64_t generated;
    bool logprobs;
    by_string echo; /* text before each sequence, sent with its first text */
    bool decoded;   /* it was made of tokens: special ones are in it */
    bool echoed[BY__MAX_N];
    /* Log-probabilities of tokens of the prompt that were not sent yet, if they are asked for;
     * NULL: of none so far. */
    json_t *prompt_scores;
    size_t prompt_offset;      /* characters of these tokens so far */
    bool scored;               /* the end of each sequence reports its mean log-probability */
    double sums[BY__MAX_N];    /* sums of log-probabilities */
    int64_t counts[BY__MAX_N]; /* numbers of tokens */
    size_t offsets[BY__MAX_N]; /* characters of the tokens so far, if `logprobs` */
    double accepted;           /* by__now when the engine accepted it; 0: not yet */
    double first;              /* by__now of its first token; 0: none yet */
    bool delayed;              /* not passed to the engine yet */
    double due;                /* by__now when it will be */
    uint64_t session;
    int32_t open; /* sequences still running in the engine */
} by__worker_generation;

/* A request that the broker has given to the worker. Once it is prepared, its answer is made by the
 * engine, or its examples (texts, rows, images) run in batches with those of others. */
typedef struct by__worker_job {
    char id[65];
    char trace[BY__TRACE_ID_BYTES]; /* trace id for the log entry of its end; "": none */
    int64_t attempt;
    json_t *message; /* NULL once it is prepared */
    size_t bytes;    /* of the request's text */
    double since;    /* by__now when it arrived, or was submitted to the batcher */
    double deadline; /* by__now after which no client waits for it; 0: none */
    bool cancelled;  /* no client waits for it */
    by_status status;
    by_error error;
    const char *param; /* static; the field that `error` is about; NULL: none */
    const char *code;  /* static error code for the client; NULL: "invalid_request" */
    by__worker_generation *generation; /* NULL: it has examples */
    struct by__worker_job *next;
    /* Of a job with examples: */
    size_t count;   /* number of examples */
    size_t rest;    /* pixels that are not decoded yet */
    bool more;      /* by__worker_predicting_more is to be called */
    int64_t tokens; /* tokens of the examples, for its usage */
    void *input;    /* freed by `close`; NULL: none */
    void (*close)(void *input);
    json_t *results; /* a list: the results of the examples, in their order */
    json_t *rows;    /* the rows as they were sent; NULL: none */
    bool late;       /* its deadline passed before its first batch */
    size_t batched;  /* examples that were put into batches */
    size_t ended;    /* examples that were computed */
} by__worker_job;

/* Makes a job of a message. BY_EARG: it has no id. */
by_status by__worker_job_new(by__worker_job **out, json_t *message, by_error *error);
void by__worker_job_free(by__worker_job *job);

/* Lists of jobs, linked by `next`. */
void by__worker_jobs_append(by__worker_job **list, by__worker_job *job);
/* The link to a job; if it is not in the list, the link at its end. */
by__worker_job **by__worker_jobs_find(by__worker_job **list, const by__worker_job *job);
/* Removes the job at a link; NULL: there is none. */
by__worker_job *by__worker_jobs_remove(by__worker_job **link);
void by__worker_jobs_free(by__worker_job *list);

/* ---- parsing of requests (worker_generation.c) ---- */

/* Parses a request for the engine: checks, encodes and compiles all of it. BY_EARG, BY_EFORMAT: a
 * sentence for the client, and param and code of the job are set. */
by_status by__worker_generation_open(by__worker_job *job, const by__worker_served_model *model,
                                     const json_t *request, by_error *error);
void by__worker_generation_close(by__worker_generation **generation);

/* ---- requests that run in batches (worker_batch.c) ---- */

typedef struct by__worker_batcher by__worker_batcher;

typedef struct by__worker_batch_place {
    by__worker_job *job;
    size_t example;
} by__worker_batch_place;

typedef struct by__worker_batch_options {
    size_t most;  /* most examples in a batch */
    double delay; /* most seconds that an example waits for others */
    /* Computes a batch, and appends the result of each example to its job, in order. */
    by_status (*compute)(void *user, const by__worker_batch_place *places, size_t count,
                         by_error *error);
    void *user;
} by__worker_batch_options;

typedef struct by__worker_batch_statistics {
    size_t jobs; /* jobs that are not done */
    uint64_t batches;
    uint64_t examples;
} by__worker_batch_statistics;

/* Starts the thread; `wake` is sent when a job can be taken. */
by_status by__worker_batcher_open(by__worker_batcher **out, const by__worker_batch_options *options,
                                  uv_async_t *wake, by_error *error);
/* Waits for the end of the running batch. */
void by__worker_batcher_close(by__worker_batcher **batcher);
/* Submits a job, which the batcher then owns. */
void by__worker_batcher_submit(by__worker_batcher *batcher, by__worker_job *job);
/* Cancels a job, or (id NULL) all. */
void by__worker_batcher_cancel(by__worker_batcher *batcher, const char *id);
/* The next finished job; NULL: none yet. */
by__worker_job *by__worker_batcher_next(by__worker_batcher *batcher);
by__worker_batch_statistics by__worker_batcher_statistics(by__worker_batcher *batcher);

/* ---- embeddings of texts (worker_embed.c) ---- */

typedef struct by__worker_embedder by__worker_embedder;

/* The model must outlive it. */
by_status by__worker_embedder_open(by__worker_embedder **out, const by__worker_served_model *model,
                                   by_error *error);
void by__worker_embedder_close(by__worker_embedder **embedder);
/* Most examples in a batch. */
size_t by__worker_embedder_batch(void);
/* Fills a job from "request" of its message; errors as for by__worker_generation_open. */
by_status by__worker_embedder_prepare(const by__worker_embedder *embedder, by__worker_job *job,
                                      const json_t *request, by_error *error);
/* by__worker_batch_options.compute; user: an embedder. */
by_status by__worker_embedder_compute(void *user, const by__worker_batch_place *places,
                                      size_t count, by_error *error);

/* ---- predictions of rows and images (worker_predict.c) ---- */

/* BY_EARG: the model predicts neither. */
by_status by__worker_predicting_open(by__worker_predicting **out, const by_pretrained *pretrained,
                                     const by_worker_options *options, by_error *error);
void by__worker_predicting_close(by__worker_predicting **predicting);
size_t by__worker_predicting_batch(const by__worker_predicting *predicting);
/* Its part of the entry in /v1/models: its columns, or the size of its images. */
json_t *by__worker_predicting_info(const by__worker_predicting *predicting);
by_status by__worker_predicting_prepare(const by__worker_predicting *predicting,
                                        by__worker_job *job, const json_t *request,
                                        by_error *error);
/* Decodes one image of a job that has more. */
by_status by__worker_predicting_more(const by__worker_predicting *predicting, by__worker_job *job,
                                     by_error *error);
/* by__worker_batch_options.compute; user: a by__worker_predicting. */
by_status by__worker_predicting_compute(void *user, const by__worker_batch_place *places,
                                        size_t count, by_error *error);

/* ---- the thread that parses requests (worker_prepare.c) ---- */

typedef struct by__worker_preparer by__worker_preparer;

/* Prepares a job, on the preparer's thread. If the job then has `more`, it is called again for it,
 * after others had their turn. */
typedef by_status by__worker_prepare(void *user, by__worker_job *job, by_error *error);

/* Starts the thread; `wake` is sent when a job is prepared. `most`: limit on the jobs that it
 * has. */
by_status by__worker_preparer_open(by__worker_preparer **out, size_t most,
                                   by__worker_prepare *prepare, void *user, uv_async_t *wake,
                                   by_error *error);
/* Waits for the end of the job in progress. */
void by__worker_preparer_close(by__worker_preparer **preparer);
/* Submits a job. BY_ESTATE: there are too many; the caller still owns it. */
by_status by__worker_preparer_submit(by__worker_preparer *preparer, by__worker_job *job,
                                     by_error *error);
/* Drops a job, or (id NULL) all of them; the one in progress is returned with `cancelled`. */
void by__worker_preparer_cancel(by__worker_preparer *preparer, const char *id);
/* The next prepared job, in order of submission; NULL: none yet. */
by__worker_job *by__worker_preparer_next(by__worker_preparer *preparer);
/* Number of jobs that it has, and of all steps of preparing that ever ended. */
void by__worker_preparer_count(by__worker_preparer *preparer, size_t *count, uint64_t *ended);

/* ---- the engine's thread (worker_engine.c) ---- */

typedef struct by__worker_engine_thread by__worker_engine_thread;

typedef enum by__worker_out_kind {
    BY__OUT_BEGUN, /* the engine has accepted it */
    BY__OUT_TOKEN,
    BY__OUT_REFUSED, /* the engine has refused it: `error` */
    BY__OUT_LAST     /* the engine has ended all its sequences: the loop owns the job again */
} by__worker_out_kind;

typedef struct by__worker_out {
    by__worker_job *job;
    by__worker_out_kind kind;
    by_event event; /* of BY__OUT_TOKEN; its `top` is the member below */
    by_top_token top[BY_TOP_TOKENS];
    by_error error; /* of BY__OUT_REFUSED, and of a sequence that failed */
} by__worker_out;

/* Starts the thread; `wake` is sent when there is output. The caller keeps the engine, but
 * only the thread may use it until it is closed. */
by_status by__worker_engine_thread_open(by__worker_engine_thread **out, by_engine *engine,
                                        uv_async_t *wake, by_error *error);
/* Waits for the end of the running step. */
void by__worker_engine_thread_close(by__worker_engine_thread **thread);
/* Passes a job to the engine. BY_EMEMORY: the caller still owns it. */
by_status by__worker_engine_submit(by__worker_engine_thread *thread, by__worker_job *job,
                                   by_error *error);
/* Cancels a job before the next step. */
void by__worker_engine_cancel(by__worker_engine_thread *thread, by__worker_job *job);
/* Output since the last call, in order; *outs is valid until the next call. thread may be NULL here
 * and below: nothing is done. */
void by__worker_engine_outs(by__worker_engine_thread *thread, const by__worker_out **outs,
                            size_t *count);
/* Statistics as of the last step, and whether there is work. BY_EDEVICE...: the engine has failed,
 * and no more output will come. */
by_status by__worker_engine_state(by__worker_engine_thread *thread,
                                  by_engine_statistics *statistics, bool *busy, by_error *error);

/* ---- the thread that detects a hanging worker (worker_watch.c) ---- */

typedef struct by__worker_hang_watch by__worker_hang_watch;

/* Starts the thread, which calls `hangs` if by__worker_hang_watch_moved is not called for
 * `seconds`. */
by_status by__worker_hang_watch_open(by__worker_hang_watch **out, double seconds,
                                     void (*hangs)(void *user, double seconds), void *user,
                                     by_error *error);
/* Reports progress: the loop turns, and there is no work or it advances. watch may be NULL. */
void by__worker_hang_watch_moved(by__worker_hang_watch *watch);
void by__worker_hang_watch_close(by__worker_hang_watch **watch);

/* ---- the worker and its output (worker_events.c) ---- */

/* A worker (worker.c, worker_output.c, worker_events.c). */
typedef struct by__worker {
    by_worker_options options;
    by__telemetry_log log;
    by__worker_served_model model;
    by__worker_preparer *preparer;
    by__worker_embedder *embedder; /* NULL: it does not serve text */
    by__worker_batcher *batcher;
    by__worker_engine_thread *thread;
    by__worker_hang_watch *watch; /* NULL: not watched */
    int64_t steps;                /* steps of all threads at the last beat */
    uv_loop_t loop;
    uv_async_t wake;
    uv_timer_t beat;
    by__link_dialer *dialer; /* NULL: not in a sandbox */
    by__link_broker broker;
    int ready_file;  /* the open ready file; -1: none */
    uv_timer_t due;  /* for the next job that max_rate delays */
    double next_due; /* by__now before which the next job does not start */
    by__serve_stop *stop;
    by__worker_job **jobs; /* those that the engine's thread has, or that are delayed */
    size_t job_count;
    size_t job_capacity;
    by_string events; /* gathered into one list (event_list.h) */
    char id[BY__ID_BYTES];
    char name[256];
    char version[65];
    char run[256]; /* name of the run or directory that the weights are of, as a header has it */
    by__protocol_served_version
        served;                  /* its lease keeps the weights; if path is NULL, `lease` does */
    by__checkpoint_lease *lease; /* of the checkpoint named by the options */
    by_error failure;
    bool leaving;
} by__worker;

/* Sends a message, which is taken; does nothing without a broker. */
void by__worker_post(by__worker *w, json_t *message);
/* Queues an event of a job, which is taken, for by__worker_flush. */
void by__worker_add_event(by__worker *w, const by__worker_job *job, json_t *event);
void by__worker_flush(by__worker *w);
/* Takes what the threads have put out. */
void by__worker_on_wake(uv_async_t *async);
/* Ends the loop of a worker that leaves once nothing is left to do. */
void by__worker_finish_leaving(by__worker *w);
/* Ends a job of the engine for the client; the engine may need one more step. */
void by__worker_cancel(by__worker *w, by__worker_job *job);
void by__worker_fail(by__worker *w, by__worker_job *job, int status, const char *code,
                     const char *message);
/* Handles a token of the engine: sends its text, and the end of its sequence if it is the last. */
void by__worker_handle_token(by__worker *w, by__worker_job *job, const by__worker_out *out);
/* Reports a job that was not accepted; code and param as in by__worker_job. */
void by__worker_refuse(by__worker *w, const char *id, int64_t attempt, const char *code,
                       const char *param, const by_error *error);
/* Sends the result of a job that the batcher has given back. */
void by__worker_send_results(by__worker *w, by__worker_job *job);

#endif
