/* ZeRO-3 (Rajbhandari et al. 2020; FSDP, Zhao et al. 2023): the ranks of `shard` also divide the
 * parameters that programs compute with.
 *
 * A rank holds only its slices of the trained matrices. Programs gather a matrix before they use it
 * (passes/gather.c), a bucket's part of it at a time, and reuse its memory afterwards. Vectors,
 * which have few elements, and frozen parameters are not divided. */
#include <stdlib.h>

#include "trainer/exchange/exchange.h"

/* Bytes of the matrices of the largest block, or of the largest matrix outside of blocks: the limit
 * on what is gathered in advance. */
static size_t largest_unit(const by_trainer *t, const by_graph *graph)
{
    size_t size = by_dtype_size(by__trainer_compute_dtype(t->config));
    size_t largest = 0;
    for (size_t v = 0; v < graph->value_count; v++) {
        size_t bytes = 0;
        int block = graph->values[v].block;
        for (size_t w = v; w < graph->value_count; w++) {
            const by__graph_value *value = &graph->values[w];
            bool together = w == v || (block >= 0 && value->block == block);
            if (together && value->role == BY_ROLE_PARAMETER && value->shape.rank >= 2) {
                bytes += (size_t)by_shape_count(&value->shape) * size;
            }
        }
        largest = bytes > largest ? bytes : largest;
    }
    return largest;
}

void by__trainer_gathered_options(const by_trainer *t, const by_graph *graph,
                                  by_pass_options *options)
{
    if (t->shard.parameters != 0) {
        options->gather = (by_gather_options){.mesh = 1u << BY_MESH_SHARD,
                                              .ranks = t->layout.size[BY_MESH_SHARD],
                                              .parameters = t->model.parameters,
                                              .keep = t->config->parallel.keep != 0};
        options->prefetch_bytes = largest_unit(t, graph);
    }
}

by_status by__trainer_gathered_run(void *user, const by__device_call *call, by_error *error)
{
    by_trainer *t = user;
    by__store_handle handle = (by__store_handle)call->attrs.bucket;
    bool wide = (by__store_entry(t->store, handle)->group & BY__GROUP_WIDE) != 0;
    return by__trainer_shard_collect(t, wide ? t->flats.masters : t->flats.copies, handle,
                                     call->out[0].data, error);
}
