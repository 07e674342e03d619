/* Descriptions of a batch's arrays, for the programs that read or make one. */
#include <string.h>

#include "banyan/data.h"
#include "base/base.h"

#define STREAM_SAMPLE 0x73616d706c65u /* "sample" in ASCII */

const by_array *by_batch_array(const by_batch *batch, const char *name)
{
    for (size_t i = 0; i < batch->array_count; i++) {
        if (strcmp(batch->arrays[i].name, name) == 0) {
            return &batch->arrays[i];
        }
    }
    return NULL;
}

by_batch by_batch_of_tokens(by_array arrays[2], const int32_t *tokens, const int32_t *targets,
                            size_t batch, size_t context)
{
    by_shape shape = BY_SHAPE((int64_t)batch, (int64_t)context);
    uint64_t valid = 0;
    for (size_t i = 0; i < batch * context; i++) {
        valid += targets[i] >= 0;
    }
    arrays[0] = (by_array){"tokens", BY_I32, shape, tokens};
    arrays[1] = (by_array){"targets", BY_I32, shape, targets};
    return (by_batch){.arrays = arrays,
                      .array_count = 2,
                      .batch = batch,
                      .valid_targets = valid,
                      .global_targets = valid};
}

void by_source_random(const by_source_sample *sample, uint64_t purpose, uint32_t out[4])
{
    uint32_t key[2];
    const uint32_t counter[4] = {(uint32_t)sample->index, (uint32_t)(sample->index >> 32),
                                 (uint32_t)purpose, (uint32_t)(purpose >> 32)};
    by__philox_key(key, sample->seed, STREAM_SAMPLE);
    by__philox(out, key, counter);
}

void by_source_close(by_source **source)
{
    if (source != NULL && *source != NULL) {
        if ((*source)->close != NULL) {
            (*source)->close(*source);
        }
        *source = NULL;
    }
}
