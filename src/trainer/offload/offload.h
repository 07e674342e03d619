/* trainer/offload: the state of the optimizer on disk. */
#ifndef BY_TRAINER_OFFLOAD_OFFLOAD_H
#define BY_TRAINER_OFFLOAD_OFFLOAD_H

#include "trainer/state/trainer.h"

/* ---- offload_windows.c ---- */

/* Seconds that the last update waited for the disk. */
double by__offload_waited(const by_trainer *t);
by_status by__offload_open(by_trainer *t, by_error *error);
/* Called before the store is closed. */
void by__offload_close(by_trainer *t);
/* Updates all trained parameters. Complete on return, except for writes. */
by_status by__offload_update(by_trainer *t, by_error *error);
/* Computes all compute copies. */
by_status by__offload_copy(by_trainer *t, by_error *error);

/* Swaps the averages of the weights in, or (`back`) the weights back. */
by_status by__offload_swap(by_trainer *t, bool back, by_error *error);

/* ---- trainer_offload.c ---- */

/* Divides the trained parameters into windows, before flat buffers are declared. */
by_status by__offload_plan(by_trainer *t, by_error *error);
/* Declares a flat buffer with spec.on_disk, of which the windows are held; of other groups this
 * rank holds its slices if they are in `divided`, else everything. */
by_status by__offload_add_flat(by_trainer *t, by__store_flat_spec spec, unsigned divided, int *out,
                               by_error *error);
/* Adds the programs that replace "update" and "compute copies". */
by_status by__offload_add_programs(by_trainer *t, by_error *error);
/* Bytes of memory for windows and transfers; 0 if nothing is on disk. */
size_t by__offload_bytes(const by_trainer *t);

#endif
