/* trainer/offload: the state of the optimizer on disk. */
#ifndef BY_TRAINER_OFFLOAD_OFFLOAD_H
#define BY_TRAINER_OFFLOAD_OFFLOAD_H

#include "trainer/state/trainer.h"

/* ---- offload_windows.c ---- */

by_status by__offload_open(by_trainer *t, by_error *error);
void by__offload_close(by_trainer *t);
by_status by__offload_update(by_trainer *t, by_error *error);
by_status by__offload_copy(by_trainer *t, by_error *error);
by_status by__offload_swap(by_trainer *t, bool back, by_error *error);
double by__offload_waited(const by_trainer *t);

/* ---- trainer_offload.c ---- */

/* Returns true if the config puts anything on disk. */
bool by__offload_is_wanted(const by_config *config);
/* Updates window by window. An update is complete on return, except for writes. */
extern const by__trainer_updater by__offload_updater;

#endif
