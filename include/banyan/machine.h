/* What this machine can do, measured: the roof under every speed that banyan prints. */
#ifndef BANYAN_MACHINE_H
#define BANYAN_MACHINE_H

#include "banyan/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Matrix-product peak in GFLOP/s at f32 or bf16 with `threads` threads (-1: all): the best of several large
 * products in the layouts that training uses. Taken from the cache (see by_machine_cache_path) when this
 * machine, thread count and instruction-set cap were measured before, else measured in about a second
 * and remembered. */
BY_API by_status by_machine_peak(double *gflops, by_dtype dtype, int threads, by_error *error);
/* The same, always measured. */
BY_API by_status by_machine_measure_peak(double *gflops, by_dtype dtype, int threads,
                                         by_error *error);

#ifdef __cplusplus
}
#endif
#endif
