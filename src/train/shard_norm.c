/* The gradient's norm where each rank of `shard` has the sums of its own slices alone.
 *
 * One rank sums the squares of each BY_SUM_BLOCK neighbouring elements of a group and adds up these
 * numbers. Slices begin at multiples of a block, so each number is that of one rank. The ranks
 * gather them, a number a block, and the norm is the sum of the same numbers in the same order. */
#include <stdlib.h>
#include <string.h>

#include "train/trainer.h"

static size_t blocks_of(int64_t elements)
{
    return (size_t)((elements + BY_SUM_BLOCK - 1) / BY_SUM_BLOCK);
}

/* Room for so many elements' numbers, so that what is behind them is aligned. */
static size_t room_of(int64_t elements)
{
    return by__round_up(blocks_of(elements), BY_CACHE_LINE / sizeof(float));
}

/* ---- the plan ---- */

static by_status lay_out(by_trainer *t, by_error *error)
{
    by__shard_norm *n = &t->shard.norm;
    size_t all = 0;
    size_t groups = 0;
    BY_TRY(by__alloc((void **)&n->counts, (size_t)t->layout.size[BY_MESH_SHARD], sizeof *n->counts,
                     "gradient norm", error));
    for (size_t i = 0; i < t->shard.count; i++) {
        size_t room = room_of(t->shard.all[i].count);
        n->counts[t->shard.all[i].owner] += room;
        all += room;
    }
    for (size_t i = 0; i < t->trained_groups; i++) {
        groups += room_of(by_shape_count(&t->groups[i].shape));
    }
    n->groups_at = all * sizeof(float);
    n->bytes = n->groups_at + groups * sizeof(float);
    return BY_OK;
}

static by_status build_squares(const by_trainer *t, by_graph *graph, by_error *error)
{
    for (size_t i = 0; i < t->shard.own_count; i++) {
        const by__slice *own = &t->shard.own[i];
        char name[48];
        (void)snprintf(name, sizeof name, "squares.%s", own->name);
        by_value x = by_graph_input(graph, own->name, BY_F32, BY_SHAPE(own->count));
        by_graph_output(graph, by__sum_squares(graph, x), name);
    }
    return by_graph_check(graph, error);
}

static by_status build_norm(const by_trainer *t, by_graph *graph, by_error *error)
{
    by_update_unit units[BY__GROUPS];
    for (size_t i = 0; i < t->trained_groups; i++) {
        units[i] = t->groups[i];
        units[i].squared = true;
    }
    return by_optimizer_norm_graph(graph, &t->config->optimizer, units, t->trained_groups,
                                   t->all_micro_batches, error);
}

by_status by__shard_norm_plan(by_trainer *t, by_error *error)
{
    BY_TRY(lay_out(t, error));
    BY_TRY(by__trainer_add_update(t, "gradient squares", build_squares, error));
    return by__trainer_add_update(t, "gradient norm", build_norm, error);
}

size_t by__shard_norm_bytes(const by_trainer *t)
{
    return t->shard.norm.bytes;
}

/* ---- memory ---- */

/* Numbers of the ranks before one. */
static size_t before(const by__shard_norm *n, int rank)
{
    size_t sum = 0;
    for (int r = 0; r < rank; r++) {
        sum += n->counts[r];
    }
    return sum;
}

by_status by__shard_norm_open(by_trainer *t, by_error *error)
{
    by__shard_norm *n = &t->shard.norm;
    char name[64];
    BY_TRY(by_device_alloc(&n->memory, t->device, n->bytes, "the norm's numbers", error));
    size_t at = before(n, t->layout.place[BY_MESH_SHARD]) * sizeof(float);
    for (size_t i = 0; i < t->shard.own_count; i++) {
        const by__slice *own = &t->shard.own[i];
        (void)snprintf(name, sizeof name, "squares.%s", own->name);
        BY_TRY(by__row_bind(n->squares, name,
                            by_memory_at(n->memory, at, blocks_of(own->count) * sizeof(float)),
                            error));
        at += room_of(own->count) * sizeof(float);
    }
    at = n->groups_at;
    for (size_t i = 0; i < t->trained_groups; i++) {
        int64_t elements = by_shape_count(&t->groups[i].shape);
        (void)snprintf(name, sizeof name, "squares.%s", t->groups[i].name);
        BY_TRY(by__row_bind(t->norm, name,
                            by_memory_at(n->memory, at, blocks_of(elements) * sizeof(float)),
                            error));
        at += room_of(elements) * sizeof(float);
    }
    return BY_OK;
}

void by__shard_norm_close(by_trainer *t)
{
    by_device_free(&t->shard.norm.memory);
    free(t->shard.norm.counts);
}

by_status by__shard_norm_bind(by_trainer *t, int set, by_error *error)
{
    for (size_t i = 0; i < t->shard.own_count; i++) {
        const by__slice *own = &t->shard.own[i];
        BY_TRY(by__row_bind(t->shard.norm.squares, own->name,
                            by__shard_memory(t, t->gradient_sets[set], own), error));
    }
    return BY_OK;
}

/* ---- a step ---- */

/* Where the numbers of a group begin. */
static float *group_numbers(const by_trainer *t, int group)
{
    const by__shard_norm *n = &t->shard.norm;
    float *at = (float *)(n->memory.address + n->groups_at);
    for (size_t i = 0; t->group_of_unit[i] != group; i++) {
        at += room_of(by_shape_count(&t->groups[i].shape));
    }
    return at;
}

by_status by__shard_norm_run(by_trainer *t, by_error *error)
{
    const by__shard_norm *n = &t->shard.norm;
    float *all = (float *)n->memory.address;
    BY_TRY(by_program_submit(n->squares->program, error));
    BY_TRY(by__queue_finish(t->device, BY__QUEUE_COMPUTE, error));
    BY_TRY(by_comm_all_gather(t->shard.comm, all + before(n, t->layout.place[BY_MESH_SHARD]), all,
                              n->counts, BY_F32, "squares of gradients", error));
    for (int rank = 0; rank < t->layout.size[BY_MESH_SHARD]; rank++) {
        for (size_t i = 0; i < t->shard.count; i++) {
            const by__slice *slice = &t->shard.all[i];
            if (slice->owner == rank) {
                memcpy(group_numbers(t, slice->group) + slice->first / BY_SUM_BLOCK, all,
                       blocks_of(slice->count) * sizeof *all);
                all += room_of(slice->count);
            }
        }
    }
    return BY_OK;
}
