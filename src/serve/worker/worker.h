/* The worker's own records, for worker.c (the loop), worker_model.c (what it serves),
 * worker_embed.c and worker_predict.c, worker_prepare.c (the thread that makes work of requests),
 * worker_request.c and worker_messages.c (what a request asks for), worker_engine.c (the thread of
 * the engine) and worker_watch.c (the thread that notices when the others hang). */
#ifndef BY_SERVE_WORKER_H
#define BY_SERVE_WORKER_H

#include "banyan/chat.h"
#include "banyan/engine.h"
#include "banyan/logit_process.h"
#include "banyan/text_stream.h"
#include "serve/event_list.h"
#include "serve/link/broker_link.h"
#include "serve/observe/log.h"
#include "serve/observe/served_drift.h"
#include "serve/observe/trace_context.h"
#include "serve/serve.h"
#include "serve/served_version.h"
#include "serve/stop.h"
#include "serve/thread.h"
#include "serve/worker/form_cache.h"

/* Sequences of one request, at most. */
#define BY__MOST_N 8
#define BY__STOPS  8

typedef struct by__predicting by__predicting;

/* What is served: a model of text, or (predicting not NULL) of rows or images. But for the engine
 * and that, read-only once it is open. */
typedef struct by__served_model {
    by_engine *engine;          /* the engine's thread alone calls it */
    by_embed *embed;            /* on the engine's weights; the batcher's thread alone runs it */
    by__predicting *predicting; /* the batcher's thread alone runs it */
    by__served_drift *drift;    /* the loop alone calls it; NULL: the weights have no reference */
    int64_t slots;              /* requests that the worker takes at a time */
    int64_t sessions;           /* sequences, or examples of a batch, that it runs at a time */
    int64_t created;            /* seconds since 1970 when its files were written; 0: unknown */
    by_tokenizer *tokenizer;
    by_chat *chat;         /* NULL: the model has no template */
    by_token_list *tokens; /* for constraints */
    by__form_cache *forms;
    int32_t ends[BY_END_TOKENS];
    size_t end_count;
    int64_t context;
    int64_t width;  /* of its hidden states */
    size_t longest; /* bytes of a token */
} by__served_model;

/* Opens it and runs a request through it. On failure too by__served_close frees what is there. */
by_status by__served_open(by__served_model *model, const by_worker_options *options,
                          const by__log *log, by_error *error);
void by__served_close(by__served_model *model);
/* What /v1/models says of it. */
json_t *by__served_info(const by__served_model *model);
/* Tells the log what a model of text holds, in bytes: what was planned when it was opened. */
void by__served_log_memory(const by__served_model *model, const by__log *log);
/* The tokens of a text that may fit into the context, or of a list of ids; `name` is the field. */
by_status by__served_encode(by_token_buffer *out, const by__served_model *model, const char *text,
                            size_t length, unsigned flags, by_error *error);
by_status by__served_ids(by_token_buffer *out, const by__served_model *model, const json_t *list,
                         const char *name, by_error *error);
/* Those of a conversation, with what its template ends it with (worker_messages.c). Parts of a
 * content are joined where the template does not go through them. */
by_status by__served_messages(by_token_buffer *out, const by__served_model *model,
                              const json_t *messages, const json_t *tools, by_error *error);

/* A request in the worker. The engine's thread has it from by__engine_submit until it gives it back
 * with BY__OUT_LAST; of it that thread reads `request` and writes `session` alone. */
typedef struct by__work {
    char id[65];
    char trace[BY__TRACE_ID_BYTES]; /* that the log tells its end with; "": none */
    int64_t attempt;
    by_request request;
    by_token_buffer prompt;
    int32_t *bias_tokens;
    float *biases;
    int32_t stops[BY_STOP_TOKENS]; /* of the request */
    by__form_cache *forms;         /* that have the constraint */
    const by_constraint *constraint;
    by_logit_process *process;
    by_text_stream *streams[BY__MOST_N];
    bool done[BY__MOST_N]; /* that sequence has ended for the client */
    int64_t generated;
    bool logprobs;
    by__text echo; /* text in front of each sequence, taken when it is told */
    bool echoed[BY__MOST_N];
    bool scored;                /* ends of sequences tell their mean log-probability */
    double sums[BY__MOST_N];    /* of log-probabilities */
    int64_t counts[BY__MOST_N]; /* of tokens */
    size_t offsets[BY__MOST_N]; /* characters of the tokens so far, where `logprobs` */
    bool silent;                /* nobody waits for it */
    double since;               /* by__now when the engine accepted it */
    double first;               /* by__now of its first token; 0: none yet */
    bool began;
    bool held;  /* the engine has not got it yet */
    double due; /* by__now when it gets it */
    uint64_t session;
    int32_t open; /* sequences that the engine has not ended */
    struct by__work *next;
} by__work;

/* ---- what a request asks for (worker_request.c) ---- */

/* Reads "request" of a message that came at `since` (by__now); checks, encodes and compiles all of
 * it. BY_EARG, BY_EFORMAT: a sentence for the client; *param as by__fields_read gives it, *code as
 * by__prepared has it. */
by_status by__work_open(by__work **out, const by__served_model *model, const json_t *message,
                        double since, const char **param, const char **code, by_error *error);
void by__work_close(by__work **work);

/* ---- requests that run in batches (worker_batch.c) ---- */

typedef struct by__batcher by__batcher;

/* A request whose examples (texts, rows, images) run in batches with those of others. The batcher
 * has it from by__batcher_give until by__batcher_take gives it back. */
typedef struct by__batch_job {
    char id[65];
    char trace[BY__TRACE_ID_BYTES]; /* as by__work has it */
    int64_t attempt;
    double deadline; /* by__now after which it is not begun; 0: none */
    size_t count;    /* examples */
    int64_t tokens;  /* of them, for its usage */
    void *input;     /* freed by `close`; NULL: none */
    void (*close)(void *input);
    json_t *results; /* a list: what came of the examples, in their order */
    json_t *rows;    /* that it asks about, as they came; NULL: none */
    by_status status;
    by_error error;
    bool late;      /* its deadline came before its first batch */
    bool cancelled; /* nobody waits for it */
    size_t taken;   /* examples that batches have had */
    size_t ended;   /* of them, those that are computed */
    double since;   /* by__now when it was given */
    struct by__batch_job *next;
} by__batch_job;

typedef struct by__batch_place {
    by__batch_job *job;
    size_t example;
} by__batch_place;

typedef struct by__batch_options {
    size_t most;  /* examples of a batch */
    double delay; /* seconds that an example waits for others, at most */
    /* Computes examples, and adds to the results of each one's job, in order. */
    by_status (*run)(void *user, const by__batch_place *places, size_t count, by_error *error);
    void *user;
} by__batch_options;

typedef struct by__batch_statistics {
    size_t jobs; /* that are not done */
    uint64_t batches;
    uint64_t examples;
} by__batch_statistics;

/* Starts the thread; `wake` is sent when there is something to take. */
by_status by__batcher_open(by__batcher **out, const by__batch_options *options, uv_async_t *wake,
                           by_error *error);
/* Waits for the end of the batch that runs. */
void by__batcher_close(by__batcher **batcher);
void by__batcher_give(by__batcher *batcher, by__batch_job *job);
/* Marks a job, or (id NULL) all. */
void by__batcher_cancel(by__batcher *batcher, const char *id);
/* The next job that is done; NULL: none yet. */
by__batch_job *by__batcher_take(by__batcher *batcher);
by__batch_statistics by__batcher_look(by__batcher *batcher);
void by__batch_job_free(by__batch_job *job);

/* ---- vectors of texts (worker_embed.c) ---- */

typedef struct by__embedder by__embedder;

/* The model outlives it. */
by_status by__embedder_open(by__embedder **out, const by__served_model *model, by_error *error);
void by__embedder_close(by__embedder **embedder);
/* Examples of a batch. */
size_t by__embedder_batch(void);
/* Fills a job by "request" of a message; as by__work_open. */
by_status by__embedder_prepare(const by__embedder *embedder, by__batch_job *job,
                               const json_t *request, const char **param, by_error *error);
/* by__batch_options.run; user: an embedder. */
by_status by__embedder_run(void *user, const by__batch_place *places, size_t count,
                           by_error *error);

/* ---- predictions of rows and images (worker_predict.c) ---- */

/* BY_EARG: the model predicts nothing of either. */
by_status by__predicting_open(by__predicting **out, const by_pretrained *pretrained,
                              const by_worker_options *options, by_error *error);
void by__predicting_close(by__predicting **predicting);
size_t by__predicting_batch(const by__predicting *predicting);
/* What /v1/models says of it: its columns, or the size of its images. */
json_t *by__predicting_info(const by__predicting *predicting);
by_status by__predicting_prepare(const by__predicting *predicting, by__batch_job *job,
                                 const json_t *request, const char **param, by_error *error);
/* by__batch_options.run; user: a by__predicting. */
by_status by__predicting_run(void *user, const by__batch_place *places, size_t count,
                             by_error *error);

/* ---- the thread that prepares work (worker_prepare.c) ---- */

typedef struct by__preparer by__preparer;

/* A request that is, or was, prepared. */
typedef struct by__prepared {
    char id[65];
    int64_t attempt;
    json_t *message;
    double since; /* by__now when it was given */
    bool cancelled;
    by__work *work;     /* with BY_OK one of the two, and the taker's then */
    by__batch_job *job; /* of requests that run in batches */
    by_status status;
    by_error error;
    const char *param; /* static */
    const char *code;  /* of an error of the client, static; NULL: "invalid_request" */
    struct by__prepared *next;
} by__prepared;

/* Makes the work of item->message, on the preparer's thread. */
typedef by_status by__prepare(void *user, by__prepared *item, const char **param, by_error *error);

/* Starts the thread; `wake` is sent when there is something to take. At most `most` requests are
 * there at a time, until they are taken. */
by_status by__preparer_open(by__preparer **out, size_t most, by__prepare *prepare, void *user,
                            uv_async_t *wake, by_error *error);
/* Waits for the end of the request that is prepared. */
void by__preparer_close(by__preparer **preparer);
/* BY_ESTATE: too many are there; BY_EARG: the message has no id. */
by_status by__preparer_give(by__preparer *preparer, json_t *message, by_error *error);
/* Drops a request, or (id NULL) all of them; the one that is prepared just then comes out with
 * `cancelled`. */
void by__preparer_cancel(by__preparer *preparer, const char *id);
/* The next one that is prepared, in the order in which they were given; NULL: none yet. Freed with
 * by__prepared_free. */
by__prepared *by__preparer_take(by__preparer *preparer);
void by__prepared_free(by__prepared *item);
/* How many are there, and how many have ever been prepared. */
void by__preparer_look(by__preparer *preparer, size_t *count, uint64_t *ended);

/* ---- the engine's thread (worker_engine.c) ---- */

typedef struct by__engine_thread by__engine_thread;

typedef enum by__out_kind {
    BY__OUT_BEGUN, /* the engine has accepted it */
    BY__OUT_TOKEN,
    BY__OUT_REFUSED, /* the engine has not accepted it: `error` */
    BY__OUT_LAST     /* the engine has ended all its sequences: the work is the loop's again */
} by__out_kind;

typedef struct by__out {
    by__work *work;
    by__out_kind kind;
    by_event event; /* of BY__OUT_TOKEN; its `top` is the member below */
    by_top_token top[BY_TOP_TOKENS];
    by_error error; /* of BY__OUT_REFUSED, and of a sequence that failed */
} by__out;

/* Starts the thread; `wake` is sent when there is something to take. The engine stays the
 * caller's, and is the thread's until it is closed. */
by_status by__engine_thread_open(by__engine_thread **out, by_engine *engine, uv_async_t *wake,
                                 by_error *error);
/* Waits for the end of the step that runs. */
void by__engine_thread_close(by__engine_thread **thread);
/* BY_EMEMORY: the work is still the caller's. */
by_status by__engine_submit(by__engine_thread *thread, by__work *work, by_error *error);
/* Ends a work before the next step. */
void by__engine_cancel(by__engine_thread *thread, by__work *work);
/* What has happened since the last call, in its order; *outs is valid until the next call. thread
 * may be NULL here and below: nothing has, and nothing is done. */
void by__engine_take(by__engine_thread *thread, const by__out **outs, size_t *count);
/* Statistics as of the last step, and whether there is work. BY_EDEVICE...: the engine has failed,
 * and nothing more will come. */
by_status by__engine_look(by__engine_thread *thread, by_engine_statistics *statistics, bool *busy,
                          by_error *error);

/* ---- the thread that notices that the worker hangs (worker_watch.c) ---- */

typedef struct by__hang_watch by__hang_watch;

/* Starts the thread, which calls `hangs` when by__hang_watch_moved was not called for that long. */
by_status by__hang_watch_open(by__hang_watch **out, double seconds,
                              void (*hangs)(void *user, double seconds), void *user,
                              by_error *error);
/* The loop turns, and there is no work or it goes on. watch may be NULL. */
void by__hang_watch_moved(by__hang_watch *watch);
void by__hang_watch_close(by__hang_watch **watch);

/* ---- the worker, and what it tells (worker_events.c) ---- */

/* A worker (worker.c, worker_events.c). */
typedef struct by__worker {
    by_worker_options options;
    by__log log;
    by__served_model model;
    by__preparer *preparer;
    by__embedder *embedder; /* NULL: it serves no text */
    by__batcher *batcher;
    by__engine_thread *thread;
    by__hang_watch *watch; /* NULL: nobody looks */
    int64_t steps;         /* of the last beat, of all threads */
    uv_loop_t loop;
    uv_async_t wake;
    uv_timer_t beat;
    by__broker_link broker;
    int ready_file;  /* -1: none */
    uv_timer_t due;  /* of the next work that max_rate holds back */
    double next_due; /* by__now; the next work begins no earlier */
    by__stop *stop;
    by__work **works; /* that the engine's thread has, or that wait for its last word */
    size_t work_count;
    size_t work_capacity;
    by__text events; /* gathered for one list (event_list.h) */
    char id[BY__ID_BYTES];
    char name[256];
    char version[65];
    by__served_version served; /* its lease keeps the weights; path NULL: `lease` does */
    by__lease *lease;          /* of the checkpoint that the options name */
    by_error failure;
    bool leaving;
} by__worker;

/* Sends a message, which is taken; nothing without a broker. */
void by__worker_post(by__worker *w, json_t *message);
/* Adds an event of a work, which is taken, to those that by__worker_flush sends. */
void by__worker_tell(by__worker *w, const by__work *work, json_t *event);
void by__worker_flush(by__worker *w);
/* The work ends for the client; the engine may need a step more. */
void by__worker_silence(by__worker *w, by__work *work);
void by__worker_fail(by__worker *w, by__work *work, int status, const char *code,
                     const char *message);
/* Text, and perhaps the end, of a token. */
void by__worker_token(by__worker *w, by__work *work, const by__out *out);
/* A request that was not accepted; code as by__prepared has it. */
void by__worker_refuse(by__worker *w, const char *id, int64_t attempt, const char *code,
                       const char *param, const by_error *error);
/* The end of a job that the batcher has given back. */
void by__worker_job(by__worker *w, by__batch_job *job);

#endif
