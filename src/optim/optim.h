/* optim: optimizers and learning-rate schedules, as graphs. optimizers.c has the table of optimizers
 * and what they share, one file each has the rest.
 *
 * An optimizer declares its keys (config/kind.h) and builds the update of flat buckets of
 * parameters: states are values of the graph, so memory plan and checkpoint follow from it.
 *
 * Adding an optimizer: its file, a row in optimizers.c, its test.
 *
 * Never put here: buffers, loops over steps, reductions between ranks. Those are programs.
 */
#ifndef BY_OPTIM_OPTIM_H
#define BY_OPTIM_OPTIM_H

#include "banyan/optimizer.h"
#include "config/kind.h"
#include "ops/ops.h"

typedef struct by__optimizer {
    by__kind kind; /* name and keys */
    /* by_optimizer_update_graph of this kind; `own` is the struct of its keys. */
    by_status (*update)(by_graph *graph, const by_optimizer_config *config, const void *own,
                        const by_buckets *buckets, by_error *error);
    /* by_optimizer_hyper of this kind: hyper[1] to hyper[3], zero when called. */
    void (*hyper)(float hyper[4], const void *own, int64_t step);
} by__optimizer;

/* The kinds of the section `optimizer`, for by__kind_table. */
const by__kind *by__optimizer_kind(size_t index);

/* Elements of bucket 0 (matrices) or 1 (vectors). */
int64_t by__bucket_size(const by_buckets *buckets, int bucket);
/* The f32 value "PREFIXmatrices" or "PREFIXvectors". */
by_value by__bucket_value(by_graph *graph, by_role role, const char *prefix, int bucket,
                          int64_t size);

#endif
