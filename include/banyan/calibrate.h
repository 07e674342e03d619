/* Calibration: the figures of a cluster from steps that were measured on it.
 *
 * A table has a measured step a row, with the model's shape and the layout.
 * Each is planned as by_layout_search plans a layout (banyan/layout_search.h),
 * and the cluster's figures are moved, one after another and then all together,
 * as long as the sum of |log(planned / measured)| falls (pattern search, Hooke
 * and Jeeves 1961). To it, |log(figure / start)| / 50 of each figure is added:
 * one that the steps do not tell stays where it was. At most 14 figures are
 * fitted: the shares of the peak of products and attention, the memory's
 * bandwidth, the launch of an operation on the device and on the host, what a
 * step takes besides, the two slow-downs, and latency and bandwidth of the
 * first three levels. */
#ifndef BANYAN_CALIBRATE_H
#define BANYAN_CALIBRATE_H

#include "banyan/layout_search.h"
#include "banyan/table.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A step that was measured. */
typedef struct by_measured_step {
    size_t model;            /* index into the calibration's models */
    int64_t batch;           /* of the step */
    by_search_choice layout; /* without what a search fills in */
    bool adds;               /* gradients of micro-batches are added up, as banyan does */
    double gradient;         /* bytes of an element of gradients as they are exchanged, */
    double bucket;           /* and how many elements at a time; 0: as banyan does */
    bool overlaps_gradients; /* their exchange runs during the backward pass, */
    bool overlaps_sends;     /* that between stages of a pipeline during computation, */
    bool overlaps_tensor;    /* and that along `tensor` during products */
    bool splits_sends;       /* ranks along `tensor` each send a part to the next stage */
    double seconds;          /* measured */
} by_measured_step;

typedef struct by_calibration by_calibration;

/* Reads a table. Columns: layers, width, heads, context, batch, micro_batch,
 * devices, and step_s, step_ms or tokens_per_s; where there are any, kind (gpt2
 * or llama), kv_heads, mlp_width, vocabulary, tied, tensor, sequence, pipeline,
 * shard, zero, virtual_stages, recompute (none, selective or full),
 * sequence_parallel, and what other programs do otherwise: sums (0: products
 * add to gradients in place), gradient_bytes (4), bucket_mib (of gradients that
 * are exchanged at a time), overlap (a list such as
 * "gradients+sends+tensor", or none; gradients), split_sends (0). `data` takes
 * the devices that the other axes leave. Compiles the models, in blocks.
 * Returns BY_EARG if a column is absent, BY_EFORMAT, with the row, for a wrong
 * value or a layout that banyan does not have. */
BY_API by_status by_calibration_open(by_calibration **out, const by_table *table,
                                     const by_cluster *cluster, by_error *error);
BY_API void by_calibration_close(by_calibration **calibration);
/* Returns the steps, in the order of rows, and sets *count to their number. */
BY_API const by_measured_step *by_calibration_steps(const by_calibration *calibration,
                                                    size_t *count);
/* Sets planned[i] to the seconds of step i on a cluster. */
BY_API by_status by_calibration_plan(double *planned, by_calibration *calibration,
                                     const by_cluster *cluster, by_error *error);
/* Fits the cluster's figures, from those that it has. *fitted: how many. */
BY_API by_status by_calibration_fit(by_cluster *cluster, int *fitted, by_calibration *calibration,
                                    by_error *error);

#ifdef __cplusplus
}
#endif
#endif
