/* What kernels take from the device: ranges of their work for each thread, and the state of
 * dropout. */
#include <math.h>
#include <string.h>

#include "device/cpu/cpu.h"

/* Waking the team takes about as long as one core takes for this many elements. */
#define SERIAL_ELEMENTS 32768

void by__cpu_parallel(const by__device_context *context, const by__device_call *call, int64_t count,
                      int64_t grain, int64_t elements, by__cpu_range_fn *fn)
{
    int64_t ranges = by__ceil_div(count, grain);
    if (context->threads <= 1 || ranges <= 1 || elements < SERIAL_ELEMENTS) {
        for (int64_t i = 0; i < ranges; i++) {
            fn(call, i * grain, by__min_i64(count, (i + 1) * grain));
        }
        return;
    }
#pragma omp parallel for schedule(static) num_threads(context->threads)
    for (int64_t i = 0; i < ranges; i++) {
        fn(call, i * grain, by__min_i64(count, (i + 1) * grain));
    }
}

by__cpu_dropout by__cpu_dropout_setup(const by__device_call *call)
{
    uint32_t rng[4];
    memcpy(rng, call->in[1].data, sizeof rng);
    by__cpu_dropout dropout = {.step = rng[2], .first_sample = rng[3] + (uint32_t)call->attrs.rows};
    by__philox_key(dropout.key, (uint64_t)rng[1] << 32 | rng[0], call->attrs.stream);
    dropout.threshold = (uint32_t)ceilf(call->attrs.p * 16777216.0f);
    dropout.scale = 1.0f / (1.0f - call->attrs.p);
    return dropout;
}
