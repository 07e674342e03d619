/* Adds programs to a trainer: the pass options of its graphs. */

#include "trainer/graphs/graphs.h"

/* Sets this rank's position on the axes that divide the work of a graph. */
static void set_shards(const by_trainer *t, by_shard_axis shards[BY_SHARD_KINDS])
{
    static const by_mesh_axis axes[BY_SHARD_KINDS] = {[BY_SHARD_SEQUENCE] = BY_MESH_SEQUENCE,
                                                      [BY_SHARD_TENSOR] = BY_MESH_TENSOR,
                                                      [BY_SHARD_EXPERT] = BY_MESH_EXPERT};
    for (int kind = 0; kind < BY_SHARD_KINDS; kind++) {
        shards[kind] = (by_shard_axis){.ranks = t->layout.size[axes[kind]],
                                       .rank = t->layout.place[axes[kind]],
                                       .mesh = 1u << axes[kind]};
    }
    shards[BY_SHARD_SEQUENCE].addends = by__trainer_ranks_parts(t) > 1;
    shards[BY_SHARD_TENSOR].sequence = t->config->parallel.sequence_parallel != 0;
}

by_pass_options by__trainer_pass_options(const by_trainer *t, const by_model *model)
{
    by_pass_options options = by__trainer_graph_pass_options(t->config, model);
    set_shards(t, options.shard);
    if (t->config->parallel.sync_batch_norm != 0) {
        options.synchronise = (by_synchronise_options){
            .mesh = 1u << BY_MESH_DATA | 1u << BY_MESH_SHARD, .ranks = t->layout.replicas};
    }
    options.recompute.arena_bytes = t->plan.arena_bytes;
    options.unit = by__device_unit(t->device);
    options.recompute.within_blocks = t->layout.size[BY_MESH_PIPELINE] > 1;
    options.recompute.speeds = t->plan.speeds;
    return options;
}

by_status by__trainer_add_update(by_trainer *t, const char *name, by__trainer_update_builder *build,
                                 by__exec_program_row **out, by_error *error)
{
    by_graph *graph;
    BY_TRY(by_graph_open(&graph, error));
    by_status status = build(t, graph, error);
    if (status != BY_OK) {
        by_graph_close(&graph);
        return status;
    }
    return by__exec_set_add(&t->programs, name, graph, BY_PURPOSE_UPDATE, NULL, out, error);
}
