/* Keeps what a micro-batch has measured of its activations until the step is over. */
#include "trainer/state/activation_values.h"

by_status by__trainer_activations_keep(by_trainer *t, const by__exec_program_row *row, int64_t i,
                                       by_error *error)
{
    const by__trainer_activations *a = t->probes.activations;
    const by__trainer_range *r = a == NULL ? NULL : &a->ranges[row->index];
    if (r == NULL || r->bytes == 0) {
        return BY_OK;
    }
    size_t kept = a->bytes * (size_t)(1 + i) + r->at;
    return by__device_copy(BY__QUEUE_COMPUTE, by_memory_at(a->numbers, kept, r->bytes),
                           by_memory_at(a->numbers, r->at, r->bytes), error);
}
