/* bench: the measurements of `banyan bench`, one file each, dispatched by bench.c. */
#ifndef BY_CLI_BENCH_H
#define BY_CLI_BENCH_H

#include "cli.h"

/* One measurement: its command (usage, text, run) is that of `banyan bench NAME`. */
extern const cli_command cli_bench_machine, cli_bench_train, cli_bench_generate, cli_bench_pack,
    cli_bench_kernels;

/* Median of `count` values, which it sorts. */
double cli_median(double *values, size_t count);
/* Milliseconds since this process was started. */
double cli_process_age_ms(void);
/* Peak resident bytes of this process. */
uint64_t cli_peak_resident(void);

#endif
