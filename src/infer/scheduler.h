/* The parts of an engine (banyan/engine.h): slots of sequences, the plan of a step, the programs
 * that run it.
 *
 *   engine.c         opens, measures and closes it
 *   session.c        accepts requests and ends them
 *   scheduler.c      which rows the next step has, and whose pages it takes for them
 *   speculate.c      drafts that a step computes behind the tokens of sequences
 *   engine_step.c    runs the step and gives out what it brought
 *   step_programs.c  programs by the number of rows, their inputs and outputs
 *   page_pool.c, prefix_cache.c   pages (page_pool.h)
 *
 * A sequence is in a slot from its submission to its end. Its state:
 *
 *   CANCELLED  has ended, and its event has not been told yet
 *   PARKED   one of n behind another one's prompt: goes on when that is computed, from its pages
 *   WAITING  has no pages and no row of the page table: new, or preempted
 *   RUNNING  has a row of the page table; keys and values of its first `cached` tokens are in pages
 *
 * Slots in `order` are sorted by rank. Pages are taken from sequences of a lower rank alone, so the
 * first one always gets on, and what a plan has given to a sequence is not taken away again.
 *
 * Ownership: everything belongs to the engine; slots, tokens, tables and events are taken when it
 * is opened.
 *
 * Never put here: models, kernels, files.
 */
#ifndef BY_INFER_SCHEDULER_H
#define BY_INFER_SCHEDULER_H

#include "banyan/engine.h"
#include "infer/infer.h"
#include "infer/page_pool.h"

typedef enum by__sequence_state {
    BY__SLOT_FREE = 0,
    BY__CANCELLED, /* holds nothing; free when its event was told */
    BY__PARKED,
    BY__WAITING,
    BY__RUNNING
} by__sequence_state;

typedef struct by__sequence {
    by__sequence_state state;
    uint64_t session;
    uint64_t id;   /* that no other sequence has had */
    int32_t index; /* of n */
    int32_t top;   /* most probable tokens that are told */
    int32_t n;
    int32_t priority;
    uint64_t salt;
    double deadline; /* by__now() at which it ends; 0: none */
    by_sampling sampling;
    int32_t stop[BY_STOP_TOKENS];
    size_t stop_count;
    by_logits_processor *process;
    void *user;
    int32_t *tokens;
    int64_t prompt;   /* tokens that were given */
    int64_t count;    /* tokens */
    int64_t limit;    /* of count */
    int64_t computed; /* tokens that were in pages once: those below are computed again */
    int64_t cached;
    int32_t row;        /* of the page table */
    int32_t pages;      /* that it has */
    int32_t registered; /* of them, those that the prefix cache was told of */
    by__prefix prefix;  /* what follows them is behind this */
    int64_t rows;       /* of the step that is planned */
    int32_t drafts;     /* the last of them: tokens behind `count` that may turn out right */
    bool drafting;      /* it had some in the last step */
    by_error failure;   /* why it ended with BY_FINISH_FAILED */
} by__sequence;

/* A row of a step whose logits are wanted: they follow the first `count` tokens of a slot. */
typedef struct by__wanted {
    int32_t slot;
    int64_t count;
} by__wanted;

/* The token that follows logits, or why there is none. */
typedef struct by__choice {
    by_status status;
    int32_t token;
    double log_probability;
    by_top_token top[BY_TOP_TOKENS]; /* as many as the sequence wants */
    by_error error;
} by__choice;

/* Of a sequence that may have drafts in a step. */
typedef struct by__drafting {
    int32_t slot;
    int32_t picked; /* drafts */
} by__drafting;

/* A page that is copied before the step, because a sequence writes into it that is not alone. */
typedef struct by__page_copy {
    int32_t to;
    int32_t from;
} by__page_copy;

/* ---- programs by the number of rows (step_programs.c) ---- */

#define BY__STEP_SIZES    24
#define BY__STEP_PROGRAMS 72

/* The program for up to `rows` rows, of which up to `wanted` have logits. */
typedef struct by__step_program {
    int64_t rows;
    int64_t wanted;
    char name[40];
    by__program_row *program;
    double seconds; /* that a run takes, as far as is known; 0: none was measured */
} by__step_program;

typedef struct by__step_programs {
    by__forward *forward;
    by__step_program list[BY__STEP_PROGRAMS];
    int count;
    int64_t sessions; /* rows and columns of the page table */
    int64_t table;
    int64_t pages;
    int64_t rows;                                                     /* of the largest program */
    int64_t wanted;                                                   /* the same */
    int64_t vocab;                                                    /* of the model */
    size_t tokens_at, positions_at, sessions_at, wanted_at, pages_at; /* in a block of inputs */
    size_t input_bytes;
    by_memory inputs;
    by_memory logits_memory;
    by_pinned host; /* inputs, then logits */
    /* In the host's memory, for the next run. */
    int32_t *tokens;
    int32_t *positions;
    int32_t *row_sessions;
    int32_t *wanted_rows;
    int32_t *page_table; /* [sessions][table] */
    float *logits;       /* [wanted][vocab], of the last run */
    double weight_bytes; /* that a step reads */
    double row_flops;    /* of products, for each row, and for each wanted row */
    double wanted_flops;
    /* Of attention, for each row and key that it reads, in layers that read all keys and in those
     * that read the last `window` ones. */
    double key_flops, key_bytes;
    double window_flops, window_bytes;
    double window; /* the largest of them */
} by__step_programs;

/* Compiles the programs. `sizes`: numbers of rows, rising, the last is the most. `wanted`: rows
 * with logits, at most; from `sessions` on. */
by_status by__steps_compile(by__step_programs *out, by__forward *forward, const int64_t *sizes,
                            int count, int64_t sessions, int64_t wanted, int64_t table,
                            int64_t pages, by_error *error);
/* Bytes of inputs and outputs. */
size_t by__steps_bytes(const by__step_programs *steps);
/* Takes them, behind by__forward_start. */
by_status by__steps_allocate(by__step_programs *steps, by_error *error);
void by__steps_close(by__step_programs *steps);
/* The program for so many rows; what it has room for and the rest of the inputs is none. */
by__step_program *by__steps_choose(by__step_programs *steps, int64_t rows, int64_t wanted);
/* Runs it over the inputs, of which `rows` and `wanted` are filled; the logits are there when this
 * returns. Measures the time. */
by_status by__steps_run(by__step_programs *steps, by__step_program *program, int64_t rows,
                        int64_t wanted, by_error *error);
/* Seconds that a run is expected to take, from those that were measured; relative to others of the
 * same programs where none was. */
double by__steps_seconds(const by__step_programs *steps, const by__step_program *program);
/* How a time that decisions are made by is kept. One that was disturbed raises what is known but
 * little; and what is known wears off with each step, so that what was once disturbed is tried
 * again. */
void by__learn_seconds(double *known, double seconds);
void by__forget_seconds(double *known);
/* Copies keys and values of every layer, before the next run. */
by_status by__steps_copy_page(by__step_programs *steps, by__page_copy copy, by_error *error);

/* ---- the engine ---- */

struct by_engine {
    by_engine_options options; /* without zeros */
    by__forward forward;
    by__step_programs steps;
    by__page_pool pool;
    int64_t context;
    int64_t vocab;
    by__sequence *slots;
    int64_t slot_count;
    int32_t *tokens; /* of all slots, context + 1 each */
    int32_t *order;  /* slots in use, by rank */
    int64_t live;
    int32_t *found;     /* [table]: pages of a beginning that the prefix cache has */
    int32_t *free_rows; /* of the page table */
    int64_t free_row_count;
    uint64_t sessions; /* numbers given so far, to requests and to sequences */
    uint64_t ids;
    by__page_copy *copies;
    int64_t copy_count;
    by__wanted *wanted;
    by__choice *choices;    /* of the wanted rows */
    by_draft_text *texts;   /* [sessions]: those that may have drafts */
    by__drafting *drafting; /* of them */
    int32_t *picks;         /* [wanted rows]: whose draft is likeliest, the next one, ... */
    double draft_seconds;   /* that the source takes for one token of each of its texts */
    double draft_credit;    /* seconds that drafts have gained; below 0: lost */
    double draft_worth;     /* seconds that a right one of the last step gains */
    uint64_t draft_settled; /* right ones that are in the credit */
    int64_t wanted_count;
    int64_t cancelled; /* slots that wait for their event to be told */
    by_event *events;  /* of this step: one a slot and wanted row at most */
    by_top_token *top; /* [events][BY_TOP_TOKENS]: of each event */
    size_t event_count;
    bool events_told;     /* the next event begins anew */
    void *scratch;        /* of by_sample, for each thread */
    size_t scratch_bytes; /* of one */
    float *processed;     /* logits that `process` may change */
    by_engine_statistics statistics;
    by_engine_memory_report memory;
};

/* Appends an event; choice NULL: it has no token. */
void by__tell(by_engine *e, const by__sequence *s, const by__choice *choice, by_finish finish);
/* Gives up the pages and the row of the page table. */
void by__release(by_engine *e, by__sequence *s);
/* Ends the sequence in place `at` of the order. */
void by__end(by_engine *e, int64_t at);
/* A parked sequence goes on from the pages of `first`, whose prompt is computed; without a row of
 * the page table, it waits for one. */
void by__fork(by_engine *e, by__sequence *s, const by__sequence *first);
/* Decides what the next step computes: s->rows of each sequence, pages for them, copies. Returns
 * the number of rows. */
int64_t by__plan(by_engine *e);
/* Takes pages that nobody uses for a running sequence's tokens below `end`; returns how many tokens
 * there is room for. */
int64_t by__grow(by_engine *e, by__sequence *s, int64_t end);
/* Adds drafts to the plan of a step, and their number to its `rows` (speculate.c). */
by_status by__speculate(by_engine *e, int64_t *rows, by_error *error);
/* Shows the source of drafts a sequence at its end, so that it learns what became of the last. */
void by__speculate_end(by_engine *e, const by__sequence *s);
/* Tells the prefix cache which pages of a sequence are full. */
void by__register(by_engine *e, by__sequence *s);

#endif
