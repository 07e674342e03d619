/* The worker's own records, for worker.c (the loop), worker_request.c (what a request asks for) and
 * worker_engine.c (the thread of the engine). */
#ifndef BY_SERVE_WORKER_H
#define BY_SERVE_WORKER_H

#include "banyan/chat.h"
#include "banyan/engine.h"
#include "banyan/logit_process.h"
#include "banyan/text_stream.h"
#include "serve/serve.h"

/* Sequences of one request, at most. */
#define BY__MOST_N 8
#define BY__STOPS  8

/* What the loop knows of its model; read-only once it is open. */
typedef struct by__served_model {
    by_tokenizer *tokenizer;
    by_chat *chat;         /* NULL: the model has no template */
    by_token_list *tokens; /* for constraints */
    int32_t ends[BY_STOP_TOKENS];
    size_t end_count;
    int64_t context;
    size_t longest; /* bytes of a token */
} by__served_model;

/* A request in the worker. The engine's thread has it from by__engine_submit until it gives it back
 * with BY__OUT_LAST; of it that thread reads `request` and writes `session` alone. */
typedef struct by__work {
    char id[65];
    int64_t attempt;
    by_request request;
    by_token_buffer prompt;
    int32_t *bias_tokens;
    float *biases;
    by_constraint *constraint;
    by_logit_process *process;
    by_text_stream *streams[BY__MOST_N];
    bool done[BY__MOST_N]; /* that sequence has ended for the client */
    int64_t generated;
    bool logprobs;
    bool silent; /* nobody waits for it */
    bool began;
    bool held;  /* the engine has not got it yet */
    double due; /* by__now when it gets it */
    uint64_t session;
    int32_t open; /* sequences that the engine has not ended */
    struct by__work *next;
} by__work;

/* ---- what a request asks for (worker_request.c) ---- */

/* Reads "request" of a message; checks, encodes and compiles all of it. BY_EARG, BY_EFORMAT: a
 * sentence for the client; *param as by__fields_read gives it. */
by_status by__work_open(by__work **out, const by__served_model *model, const json_t *message,
                        const char **param, by_error *error);
void by__work_close(by__work **work);

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
    by_event event; /* of BY__OUT_TOKEN */
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
/* What has happened since the last call, in its order; *outs is valid until the next call. */
void by__engine_take(by__engine_thread *thread, const by__out **outs, size_t *count);
/* Statistics as of the last step, and whether there is work. BY_EDEVICE...: the engine has failed,
 * and nothing more will come. */
by_status by__engine_look(by__engine_thread *thread, by_engine_statistics *statistics, bool *busy,
                          by_error *error);

#endif
