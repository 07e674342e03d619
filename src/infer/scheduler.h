/* The parts of an engine (banyan/engine.h): slots of sequences, the plan of a step, the programs
 * that run it.
 *
 *   engine.c         opens, measures and closes it
 *   session.c        accepts requests and ends them
 *   scheduler.c      decides which rows the next step has, and takes pages for them
 *   speculate.c      adds drafts: tokens computed ahead of the text of a sequence
 *   engine_step.c    runs the step and distributes its results
 *   step_programs.c  programs for different numbers of rows, their inputs and outputs
 *   page_pool.c, prefix_cache.c   pages (page_pool.h)
 *
 * A sequence has a slot from its submission to its end. Its state:
 *
 *   CANCELLED  has ended, but its event has not been reported yet
 *   PARKED     one of n sequences with a common prompt: continues from the pages of the one that
 *              computes the prompt, once that is done
 *   WAITING    has no pages and no row of the page table: new, or preempted
 *   RUNNING    has a row of the page table; the keys and values of its first `cached` tokens are in
 *              pages
 *
 * Slots in `order` are sorted by rank. Pages are only taken from sequences of a lower rank, so the
 * first one always progresses, and what a plan has given to a sequence is not taken away again.
 *
 * Who owns what: the engine owns everything; slots, tokens, tables and events are allocated when it
 * is opened.
 *
 * Never put here: models, kernels, files.
 */
#ifndef BY_INFER_SCHEDULER_H
#define BY_INFER_SCHEDULER_H

#include "banyan/engine.h"
#include "infer/infer.h"
#include "infer/page_pool.h"

typedef enum by__infer_sequence_state {
    BY__SLOT_FREE = 0,
    BY__CANCELLED, /* holds no resources; free after its event was reported */
    BY__PARKED,
    BY__WAITING,
    BY__RUNNING
} by__infer_sequence_state;

typedef struct by__infer_sequence {
    by__infer_sequence_state state;
    uint64_t session;
    uint64_t id;   /* unique among all sequences */
    int32_t index; /* among the n sequences of a request */
    int32_t top;   /* number of most probable tokens to report */
    int32_t n;
    int32_t priority;
    uint64_t salt;
    double deadline; /* by__now() at which the sequence is ended; 0: none */
    by_sampling sampling;
    int32_t stop[BY_STOP_TOKENS];
    size_t stop_count;
    by_logits_processor *process;
    by_logits_preparer *prepare; /* NULL: nothing to do before `process` */
    bool held;                   /* it is not done, so that the sequence has no rows in this step */
    bool scores;                 /* log-probabilities of its prompt are reported */
    bool only_prompt;            /* it ends behind its prompt */
    int64_t scored; /* of a sequence that scores: tokens of the prompt behind which they were */
    void *user;
    int32_t *tokens;
    int64_t prompt;   /* tokens of the prompt */
    int64_t count;    /* tokens so far */
    int64_t limit;    /* upper bound of count */
    int64_t computed; /* tokens that were in pages at some time: those below are being recomputed */
    int64_t cached;
    int32_t row;             /* row of the page table */
    int32_t pages;           /* number of pages */
    int32_t registered;      /* number of pages already reported to the prefix cache */
    by__infer_prefix prefix; /* the prefix of what follows these */
    int64_t rows;            /* its rows in the planned step */
    int32_t drafts;   /* how many of the rows are drafts: tokens after `count` that may turn out
                           right */
    bool drafting;    /* it had drafts in the last step */
    by_error failure; /* why it ended, if with BY_FINISH_FAILED */
} by__infer_sequence;

/* A row of a step whose logits are needed: those after the first `count` tokens of a slot. If the
 * slot has more tokens, the next one is of its prompt and is scored; else it is chosen. */
typedef struct by__infer_wanted {
    int32_t slot;
    int64_t count;
} by__infer_wanted;

/* The token chosen from logits, or why there is none. */
typedef struct by__infer_choice {
    by_status status;
    int32_t token;
    double log_probability;
    by_top_token top[BY_TOP_TOKENS]; /* as many as the sequence asked for */
    by_error error;
} by__infer_choice;

/* A sequence that may have drafts in a step. */
typedef struct by__infer_drafting {
    int32_t slot;
    int32_t picked; /* number of drafts chosen */
} by__infer_drafting;

/* A page to copy before the step, because a sequence writes into a page that it shares. */
typedef struct by__infer_page_copy {
    int32_t to;
    int32_t from;
} by__infer_page_copy;

/* ---- programs by the number of rows (step_programs.c) ---- */

#define BY__STEP_SIZES    24
#define BY__STEP_PROGRAMS 72

/* The program for up to `rows` rows, up to `wanted` of them with logits. */
typedef struct by__infer_step_program {
    int64_t rows;
    int64_t wanted;
    char name[40];
    by__exec_program_row *program;
    double seconds; /* expected time of a run; 0: none was measured */
} by__infer_step_program;

typedef struct by__infer_step_programs {
    by__infer_forward *forward;
    by__infer_step_program list[BY__STEP_PROGRAMS];
    int count;
    int64_t sessions; /* rows and columns of the page table */
    int64_t table;
    int64_t pages;
    int64_t rows;                                                     /* of the largest program */
    int64_t wanted;                                                   /* likewise */
    int64_t vocab;                                                    /* of the model */
    size_t tokens_at, positions_at, sessions_at, wanted_at, pages_at; /* offsets in a block of
                                                                         inputs */
    size_t input_bytes;
    by_memory inputs;
    by_memory logits_memory;
    by_pinned host; /* inputs, then logits */
    /* Inputs of the next run, in host memory. */
    int32_t *tokens;
    int32_t *positions;
    int32_t *row_sessions;
    int32_t *wanted_rows;
    int32_t *page_table; /* [sessions][table] */
    float *logits;       /* [wanted][vocab], of the last run */
    double weight_bytes; /* bytes of weights that a step reads */
    double row_flops;    /* FLOPs of products for each row, and for each wanted row */
    double wanted_flops;
    /* Work of attention for each row and key that it reads, in layers that read all keys and in
     * those that read only the last `window` ones. */
    double key_flops, key_bytes;
    double window_flops, window_bytes;
    double window; /* the largest window */
    bool carries;  /* layers keep something of each sequence that is in no page (row.h) */
} by__infer_step_programs;

/* Compiles the programs. `sizes` are the numbers of rows, ascending; the last one is the maximum.
 * `wanted` is the maximum number of rows with logits, and at least `sessions`. */
by_status by__infer_steps_compile(by__infer_step_programs *out, by__infer_forward *forward,
                                  const int64_t *sizes, int count, int64_t sessions, int64_t wanted,
                                  int64_t table, int64_t pages, by_error *error);
/* The same without programs: only their sizes, with which by__infer_steps_choose chooses. */
void by__infer_steps_list(by__infer_step_programs *out, const int64_t *sizes, int count,
                          int64_t sessions, int64_t wanted, int64_t table, int64_t pages);
/* Returns the bytes of inputs and outputs. */
size_t by__infer_steps_bytes(const by__infer_step_programs *steps);
/* Allocates inputs and outputs; called after by__infer_forward_start. */
by_status by__infer_steps_allocate(by__infer_step_programs *steps, by_error *error);
void by__infer_steps_close(by__infer_step_programs *steps);
/* Returns the smallest program with room for this many rows and wanted rows. */
by__infer_step_program *by__infer_steps_choose(by__infer_step_programs *steps, int64_t rows,
                                               int64_t wanted);
/* Runs a program on the inputs, of which `rows` and `wanted` are filled in; the rest is marked
 * unused. The logits are available when it returns. Measures the time. */
by_status by__infer_steps_run(by__infer_step_programs *steps, by__infer_step_program *program,
                              int64_t rows, int64_t wanted, by_error *error);
/* Returns the expected seconds of a run from measured times; if there are none for this program, a
 * value in proportion to the other programs. */
double by__infer_steps_seconds(const by__infer_step_programs *steps,
                               const by__infer_step_program *program);
/* Maintain an estimate of a time that decisions depend on. A disturbed measurement raises the
 * estimate only a little, and the estimate decays with each step, so that a program that was once
 * disturbed is tried again. */
void by__infer_learn_seconds(double *known, double seconds);
void by__infer_forget_seconds(double *known);
/* Copies a page's keys and values in every layer, before the next run. */
by_status by__infer_steps_copy_page(by__infer_step_programs *steps, by__infer_page_copy copy,
                                    by_error *error);

/* ---- the engine ---- */

/* Returns the number of pages of a pool whose size is not given: enough for `sessions` sequences of
 * `table` pages, but at most half of `free_bytes`, since a pool is touched when it is allocated and
 * other processes may need memory too; at least one sequence. */
int64_t by__infer_pool_default(int64_t table, int64_t sessions, size_t page_bytes,
                               uint64_t free_bytes);

struct by_engine {
    by_engine_options options; /* with defaults filled in for zeros */
    bool sized_pool;           /* the caller gave the size of the pool */
    by__infer_forward forward;
    by__infer_step_programs steps;
    by__infer_page_pool pool;
    int64_t context;
    int64_t vocab;
    by__infer_sequence *slots;
    int64_t slot_count;
    int32_t *tokens; /* of all slots, context + 1 for each */
    int32_t *order;  /* slots in use, by rank */
    int64_t live;
    int32_t *found;     /* [table]: pages of a sequence's beginning that are in the prefix cache */
    int32_t *free_rows; /* unused rows of the page table */
    int64_t free_row_count;
    uint64_t sessions; /* numbers given so far to requests and to sequences */
    uint64_t ids;
    by__infer_page_copy *copies;
    int64_t copy_count;
    by__infer_wanted *wanted;
    by__infer_choice *choices;    /* for the wanted rows */
    by_draft_text *texts;         /* [sessions]: texts that may have drafts */
    by__infer_drafting *drafting; /* their drafts */
    int32_t *picks;         /* [wanted rows]: index of the text of each draft, the likeliest draft
                               first */
    double draft_seconds;   /* time in which the source drafts one token for each of its texts */
    double draft_credit;    /* seconds that drafts have gained, negative if they have lost */
    double draft_worth;     /* seconds gained by each correct draft of the last step */
    uint64_t draft_settled; /* number of correct drafts counted in the credit */
    int64_t wanted_count;
    int64_t cancelled; /* number of slots whose event is still to be reported */
    by_event *events;  /* of this step: at most one for each slot and wanted row */
    by_top_token *top; /* [events][BY_TOP_TOKENS] */
    size_t event_count;
    bool events_reported; /* the events were reported: the next one starts a new list */
    void *scratch;        /* for by_sample, one for each thread */
    size_t scratch_bytes; /* of each */
    float *processed;     /* a copy of logits that `process` may change */
    int64_t spare;        /* rows with logits that prompts may still use in the next step */
    int64_t prepare_left; /* work of `prepare` that this step may still do */
    double prepare_until; /* or until when */
    uint64_t prepare_turn;
    double model_seconds; /* of the model in the last step */
    by_engine_work work;  /* of the last step */
    void *dry;            /* inputs and logits of an engine without a model; else NULL */
    by_engine_statistics statistics;
    by_engine_memory_report memory;
};

/* Appends an event; choice NULL: it has no token. */
void by__infer_report(by_engine *e, const by__infer_sequence *s, const by__infer_choice *choice,
                      by_finish finish);
/* Releases the pages and the row of the page table. */
void by__infer_release(by_engine *e, by__infer_sequence *s);
/* Ends the sequence at index `at` of the order. */
void by__infer_end(by_engine *e, int64_t at);
/* Lets a parked sequence continue from the pages of `first`, whose prompt is computed. If there is
 * no free row of the page table, or more than pages is kept of `first`, it waits as a new one
 * does. */
void by__infer_fork(by_engine *e, by__infer_sequence *s, const by__infer_sequence *first);
/* Decides what the next step computes: s->rows of each sequence, pages for them, page copies.
 * Returns the number of rows. */
int64_t by__infer_plan(by_engine *e);
/* Of the rows of a sequence in the next step, those behind which a token of its prompt is
 * scored. */
int64_t by__infer_scored_rows(const by__infer_sequence *s);
/* Takes unused pages for the tokens of a running sequence below `end`, without preempting others.
 * Returns the number of tokens that there is room for. */
int64_t by__infer_grow(by_engine *e, by__infer_sequence *s, int64_t end);
/* Adds drafts to the plan of a step, and their number to its `rows` (speculate.c). */
by_status by__infer_speculate(by_engine *e, int64_t *rows, by_error *error);
/* Passes a sequence that ends to the source of drafts, so that it learns from the last drafts. */
void by__infer_speculate_end(by_engine *e, const by__infer_sequence *s);
/* Reports a sequence's full pages to the prefix cache. */
void by__infer_register(by_engine *e, by__infer_sequence *s);

#endif
