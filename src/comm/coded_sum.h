/* Sums over ranks whose values are sent as codes (codec.h).
 *
 * As in the compressed all-reduce of 1-bit Adam (Tang et al. 2021, arXiv:2102.02888): elements are
 * cut into slices, one for each rank to own; every rank codes its values slice by slice for their
 * owners; an owner decodes what the ranks sent, adds it in the order of the sum tree and codes the
 * sum; all ranks decode those codes. Every rank thus has the same bits, and twice the bytes of the
 * codes are sent. Both encodings have error feedback: a rank has a residual for all elements, an
 * owner one for the sums of its slice.
 *
 * Slices are processed in chunks, so that scratch memory does not grow with the model.
 */
#ifndef BY_COMM_CODED_SUM_H
#define BY_COMM_CODED_SUM_H

#include "banyan/comm.h"
#include "comm/codec.h"

typedef struct by__comm_coded_sum by__comm_coded_sum;

/* For sums of `count` elements over `comm`. The caller owns the residual, `count` values; it and
 * comm must outlive the sum. density: see codec.h. Runs on `threads` threads. */
by_status by__comm_coded_sum_open(by__comm_coded_sum **out, by_comm *comm,
                                  const by__comm_codec *codec, double density, float *residual,
                                  size_t count, int threads, by_error *error);
void by__comm_coded_sum_close(by__comm_coded_sum **sum);
/* Bytes that opening one allocates. */
size_t by__comm_coded_sum_bytes(int ranks, const by__comm_codec *codec, double density,
                                size_t count);

/* Collective: data[i] = sum over ranks of data[i], within the error of the codes. */
by_status by__comm_coded_sum_run(by__comm_coded_sum *sum, float *data, const char *what,
                                 by_error *error);

/* Collective: data = its sum over ranks, where each rank's values and the sum are sent as bf16:
 * half the bytes of f32. With one rank the data stay unrounded. */
by_status by__comm_rounded_sum(by_comm *comm, float *data, size_t count, const char *what,
                               by_error *error);

/* Collective: sets the residual of every rank to the sum of the residuals of all ranks and owners:
 * one tensor, which a checkpoint keeps and any number of ranks can resume from. Before the next sum
 * the caller fills the residuals of all ranks but one with zero. */
by_status by__comm_coded_sum_settle(by__comm_coded_sum *sum, by_error *error);

#endif
