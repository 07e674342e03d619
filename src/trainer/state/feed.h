/* What is sent to the device with a micro-batch, or once, and what comes back: the record of
 * trainer_feed.c and constant_inputs.c. */
#ifndef BY_TRAINER_STATE_FEED_H
#define BY_TRAINER_STATE_FEED_H

#include "banyan/trainer.h"
#include "exec/exec.h"

/* An input of the model's programs that comes from the batch. It has the same offset in the
 * device's input buffer and in each staging buffer of the host. */
typedef struct by__trainer_feed {
    const char *name; /* owned by the graph */
    by_dtype dtype;
    by_shape shape; /* of one micro-batch */
    size_t offset;
    size_t bytes;
} by__trainer_feed;

#define BY__STAGES 2 /* staging buffers: one is filled while another is copied */

typedef struct by__trainer_feeds {
    by__trainer_feed *list;
    size_t count;
    size_t capacity;
    /* feeds, rng and loss scale: bytes copied to the device for a micro-batch */
    size_t input_bytes;
    by__trainer_feed *constants; /* constant inputs, with offsets in their own memory */
    size_t constant_count;
    size_t constant_capacity;
    size_t constant_bytes;
    by_memory constant_memory;
    bool has_constants;     /* they were set */
    size_t evaluated_bytes; /* of the values read by evaluation; 0: none */
    size_t rng_offset;
    size_t seed_offset;
    by_memory inputs;
    by_memory outputs; /* norm, clip factor, loss of a micro-batch, losses of all; "hyper" */
    /* BY__STAGES buffers of inputs; results and "hyper" for each step in flight. */
    by_pinned staging;
    by__device_event *copied[BY__STAGES]; /* reached when a staging buffer may be filled again */
    by__device_event *computed;           /* reached when the device's inputs may be overwritten */
    unsigned fed; /* micro-batches so far: selects the next staging buffer */
    int64_t leaf; /* micro-batch of the step on which programs last ran */
} by__trainer_feeds;

/* ---- constant_inputs.c ---- */

/* Adds a constant input to the list, unless it is there. */
by_status by__trainer_plan_constant(by_trainer *t, const by__graph_value *value, by_error *error);
by_status by__trainer_open_constants(by_trainer *t, by_error *error);
void by__trainer_close_constants(by_trainer *t);
/* Binds them to the inputs of a program. */
by_status by__trainer_bind_constants(by_trainer *t, by__exec_program_row *row, by_error *error);
/* Sets all to 0. */
by_status by__trainer_clear_constants(by_trainer *t, by_error *error);
/* BY_ESTATE if there are any and they were not set. */
by_status by__trainer_need_constants(const by_trainer *t, by_error *error);

/* ---- trainer_feed.c ---- */

/* Lists the inputs that come from the batch and lays out inputs, outputs and staging. */
by_status by__trainer_plan_feeds(by_trainer *t, by_error *error);
/* Bytes of these, on the device and pinned on the host. */
uint64_t by__trainer_feed_bytes(const by_trainer *t);
/* Allocates them and binds all programs. */
by_status by__trainer_open_feeds(by_trainer *t, by_error *error);
void by__trainer_close_feeds(by_trainer *t);
/* Binds what every update reads besides tensors; the row may be NULL. */
by_status by__trainer_bind_update(by_trainer *t, by__exec_program_row *row, by_error *error);
/* Sends micro-batch `index` of a batch of `examples` to the device and submits the program of `row`
 * on it. Its loss is stored at index `kept_as`: that of the micro-batch in the step, or
 * t->part.most_micro_batches for an evaluation, which leaves the losses of a step unchanged. */
by_status by__trainer_feed_micro_batch(by_trainer *t, by__exec_program_row *row,
                                       const by_batch *batch, int64_t examples, int64_t index,
                                       int64_t kept_as, by_error *error);
/* Results read back from the device. */
typedef struct by__trainer_results {
    float norm;
    float failed;        /* not 0: this or an earlier step was vetoed, and nothing was changed */
    float micro;         /* squares of the gradient of a micro-batch, if they were measured */
    const float *losses; /* for each micro-batch of the step */
} by__trainer_results;

/* The losses of all micro-batches, then that of an evaluation, if device memory is host memory. */
by_memory by__trainer_losses(const by_trainer *t);
/* Results of the last evaluation for the task's metrics. */
by_memory by__trainer_evaluated(const by_trainer *t);

/* Submits the copy of the results of slot `slot` (step number modulo BY_STEPS_AHEAD) to pinned
 * memory, and records pending[slot].read. */
by_status by__trainer_fetch(by_trainer *t, unsigned slot, by_error *error);
/* Waits for that copy. */
by_status by__trainer_wait_results(by_trainer *t, unsigned slot, by__trainer_results *out,
                                   by_error *error);
/* Submits the copy of the evaluated values; call before by__trainer_fetch, whose event covers
 * it. */
by_status by__trainer_fetch_evaluated(by_trainer *t, const float **out, by_error *error);
/* Submits the hyper-parameters of the next update. */
by_status by__trainer_send_hyper(by_trainer *t, unsigned slot, const float *hyper, by_error *error);
/* Vetoes the next submitted update, and those after it. */
by_status by__trainer_veto(by_trainer *t, by_error *error);
/* Sets the losses of micro-batches that a step does not have to 0. */
by_status by__trainer_clear_losses(by_trainer *t, by_error *error);
/* Enables updates again after a failed step. Nothing may be in flight. */
by_status by__trainer_reset_failure(by_trainer *t, by_error *error);

#endif
