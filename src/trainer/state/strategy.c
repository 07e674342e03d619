/* Functions for what a way of training does not need. */
#include "trainer/state/strategy.h"

#include "base/base.h"

by_status by__trainer_do_nothing(by_trainer *t, by_error *error)
{
    BY_UNUSED(t);
    BY_UNUSED(error);
    return BY_OK;
}

uint64_t by__trainer_no_bytes(const by_trainer *t)
{
    BY_UNUSED(t);
    return 0;
}

double by__trainer_no_seconds(const by_trainer *t)
{
    BY_UNUSED(t);
    return 0.0;
}

void by__trainer_close_nothing(by_trainer *t)
{
    BY_UNUSED(t);
}
