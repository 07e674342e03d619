/* plan: what a machine can do and where a run's time goes.
 *
 * machine.c puts together a by_machine; products.c, bandwidth.c and onednn.c measure its figures;
 * machine_cache.c keeps them between processes. program_profile.c records when the nodes of
 * programs ran and sums them up by operation, layer and shape; rank_times.c sums up what ranks
 * computed, exchanged and waited for, and rank_profile.c gathers it; profile_trace.c writes all of
 * it for a trace viewer.
 *
 * A peak is a roof, so it is the best of what the machine was seen to do: the larger of our own
 * matrix products and of oneDNN's, the field's library. oneDNN is loaded when a peak is measured
 * and at no other time (it is 40 MB that training does not need); a build or a machine without it
 * measures our own kernels alone.
 *
 * The best of several times counts, never the mean: what disturbs a measurement only makes it
 * slower.
 *
 * Never put here: anything on the path of a training step; a figure that was not measured.
 */
#ifndef BY_PLAN_PLAN_H
#define BY_PLAN_PLAN_H

#include "banyan/machine.h"
#include "device/cpu/pages.h"
#include "exec/exec.h"

/* One product: y [m, n] = op(a) op(b), of which the inner size is k. */
typedef struct by__product {
    int64_t m;
    int64_t n;
    int64_t k;
    bool trans_a;
    bool trans_b;
} by__product;

/* The products that peaks are measured with, in ascending size; the first is small enough for the
 * slowest machine. */
extern const by__product by__products[];
extern const size_t by__product_count;

static inline double by__product_flops(const by__product *product)
{
    return 2.0 * (double)product->m * (double)product->n * (double)product->k;
}

/* Whether a product would take longer than half a second once, at the best rate so far (operations
 * a second, 0 before the first): then it is left out, and the smaller ones must do. */
static inline bool by__product_too_long(const by__product *product, double best)
{
    return best > 0.0 && by__product_flops(product) > 0.5 * best;
}

/* Seconds of the fastest of several runs of `run`: at least two, as many as fit into `budget`
 * seconds. */
by_status by__best_seconds(double *best, double budget,
                           by_status (*run)(void *user, by_error *error), void *user,
                           by_error *error);

/* The best rate of our own kernels over by__products, 1e9 operations a second. dtype f32 or bf16.
 */
by_status by__measure_products(double *gflops, by_dtype dtype, int threads, by_error *error);
/* The same of oneDNN, where BY_U8 stands for u8 x s8 to i32. 0 when the library is not installed,
 * was not known when banyan was built, or has no such product at instruction-set level `level`:
 * that is not an error. */
double by__measure_onednn(by_dtype dtype, const char *level, int threads);
/* The rate at which products of bytes are added up from registers at instruction-set level `level`,
 * 1e9 operations a second; 0 where that is not known. */
double by__measure_byte_products(const char *level, int threads);
/* "2.6.3"; "" when there is none. Returns `buffer`. */
const char *by__onednn_version(char buffer[32]);

by_status by__measure_memory(double *read_gbps, double *copy_gbps, int threads, by_error *error);

/* Fills cpu and key from a file like /proc/cpuinfo. */
void by__machine_identify(by_machine *out, const char *path);
/* Fills what the cache file at `path` knows of a described machine; does nothing when it knows
 * nothing or is broken. */
void by__machine_recall(by_machine *machine, const char *path);
/* Of each figure the larger of the two, into `machine`. */
void by__machine_raise(by_machine *machine, const by_machine *other);
/* Puts the machine into the cache file at `path`. */
by_status by__machine_remember(const by_machine *machine, const char *path, by_error *error);

#endif
