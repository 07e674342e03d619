/* Parameters that several stages of a pipeline read. */

#include "trainer/exchange/exchange.h"
#include "trainer/pipeline/pipe.h"

by_status by__pipeline_share(by_trainer *t, by_error *error)
{
    const by__trainer_pipe *pipe = t->pipe;
    for (size_t i = 0; i < pipe->share_count; i++) {
        const by__trainer_pipe_share *s = &pipe->shares[i];
        if (s->from != pipe->rank && s->to != pipe->rank) {
            continue;
        }
        by__store_handle entry = by__store_find(t->store, s->name);
        int flat = by__store_shape(t->store, t->flats.copies, entry).rank >= 0 ? t->flats.copies
                                                                               : t->flats.masters;
        const by_memory memory = by__store_buffer(t->store, flat, entry);
        by__device_staging *staging = &t->ranks.staging;
        bool sends = s->from == pipe->rank;
        void *whole;
        by_shape shape = by__store_shape(t->store, flat, entry);
        size_t elements = (size_t)by_shape_count(&shape);
        by_dtype dtype = by__store_dtype(t->store, flat, entry);
        BY_TRY(by__device_queue_finish(t->device, BY__QUEUE_COMPUTE, error));
        int group = by__store_entry(t->store, entry)->group;
        if (sends && (t->shard.parameters >> group & 1u) != 0) {
            BY_TRY(by__trainer_shard_collect(t, flat, entry, pipe->shared, error));
            whole = pipe->shared;
        } else {
            BY_TRY(by__device_staging_begin(staging, t->device, error));
            BY_TRY(by__device_stage(staging, memory, sends, &whole, error));
            BY_TRY(by__device_staging_wait(staging, error));
        }
        if (sends) {
            BY_TRY(by_comm_send(pipe->comm, whole, elements, dtype, s->to, 0, s->name, error));
            continue;
        }
        BY_TRY(by_comm_receive(pipe->comm, whole, elements, dtype, s->from, 0, s->name, error));
        BY_TRY(by__device_unstage(staging, memory, whole, error));
        BY_TRY(by__device_staging_wait(staging, error));
    }
    return BY_OK;
}
