/* Converts a value from one split to another. */
#include "passes/shard.h"

#include <stdlib.h>

/* Reorders a gathered tensor, which concatenates the ranks' slices, into sections: [outer, ranks,
 * parts, inner] <-> [outer, parts, ranks, inner]. */
static by_value in_sections(by__pass_sharder *s, by_value value, const by_shape *whole,
                            by__graph_split split)
{
    static const int order[BY_MAX_RANK] = {0, 2, 1, 3};
    by_graph *graph = s->graph;
    int64_t outer = 1;
    int64_t inner = 1;
    for (int i = 0; i < whole->rank; i++) {
        outer *= i < split.axis ? whole->dim[i] : 1;
        inner *= i > split.axis ? whole->dim[i] : 1;
    }
    inner *= whole->dim[split.axis] / split.sections / s->axis->ranks;
    by_value cells =
        by_reshape(graph, value, BY_SHAPE(outer, s->axis->ranks, split.sections, inner));
    return by_reshape(graph, by_permute(graph, cells, order), *whole);
}

/* Concatenates values along an axis. One CONCAT takes at most eight. */
static by_value join(by_graph *graph, by_value *values, int count, int axis)
{
    while (count > 1) {
        int groups = 0;
        for (int i = 0; i < count; i += 8) {
            int size = count - i < 8 ? count - i : 8;
            values[groups++] = size == 1 ? values[i] : by_concat(graph, values + i, size, axis);
        }
        count = groups;
    }
    return values[0];
}

/* The same for zig-zag splits, in which each rank has two chunks of a section: [outer, ranks,
 * parts, 2, inner] -> [outer, parts, 2 ranks, inner]. */
static by_value in_chunks(by__pass_sharder *s, by_value value, const by_shape *whole,
                          by__graph_split split)
{
    by_graph *graph = s->graph;
    int ranks = s->axis->ranks;
    by_value *chunks;
    int64_t outer = 1;
    int64_t inner = 1;
    for (int i = 0; i < whole->rank; i++) {
        outer *= i < split.axis ? whole->dim[i] : 1;
        inner *= i > split.axis ? whole->dim[i] : 1;
    }
    inner *= whole->dim[split.axis] / split.sections / (2 * ranks);
    if (by__alloc((void **)&chunks, 2 * (size_t)ranks, sizeof *chunks, "chunks", &graph->error) !=
        BY_OK) {
        return BY_NONE;
    }
    by_value cells = by_reshape(graph, value, BY_SHAPE(outer, ranks, split.sections, 2, inner));
    for (int i = 0; i < 2 * ranks; i++) {
        bool back = i >= ranks;
        by_value of_rank = by_slice(graph, cells, 1, back ? 2 * ranks - 1 - i : i, 1);
        chunks[i] = by_reshape(graph, by_slice(graph, of_rank, 3, back, 1),
                               BY_SHAPE(outer, split.sections, 1, inner));
    }
    by_value all = by_reshape(graph, join(graph, chunks, 2 * ranks, 2), *whole);
    free(chunks);
    return all;
}

static by_value gather(by__pass_sharder *s, by_value value, const by_shape *whole,
                       by__graph_split split)
{
    if (split.sections > 1 && !by__op_split_even(whole, split, s->axis->ranks)) {
        by__graph_fail(s->graph, BY_EARG,
                       "shard: an axis of %lld entries in %lld sections cannot be put together "
                       "from %d ranks",
                       (long long)whole->dim[split.axis], (long long)split.sections,
                       s->axis->ranks);
        return BY_NONE;
    }
    by_value all = by_all_gather(s->graph, value, split.axis, whole->dim[split.axis], s->axis->mesh,
                                 s->axis->ranks);
    if (s->kind == BY_SHARD_SEQUENCE) {
        return in_chunks(s, all, whole, split);
    }
    return split.sections == 1 ? all : in_sections(s, all, whole, split);
}

/* Takes this rank's two chunks of an axis with one section and concatenates them. */
static by_value slice_chunks(by__pass_sharder *s, by_value value, const by_shape *whole, int axis)
{
    int rank = s->axis->rank;
    int last = 2 * s->axis->ranks - 1;
    int64_t extent = whole->dim[axis] / (2 * s->axis->ranks);
    by_value chunks[2] = {by_slice(s->graph, value, axis, rank * extent, extent),
                          by_slice(s->graph, value, axis, (last - rank) * extent, extent)};
    return by_concat(s->graph, chunks, 2, axis);
}

/* Takes this rank's slice of each section and concatenates them. */
static by_value slice_sections(by__pass_sharder *s, by_value value, const by_shape *whole,
                               by__graph_split split)
{
    by_value slices[8];
    int64_t section = whole->dim[split.axis] / split.sections;
    int64_t begin = by__op_cut(section, s->axis->ranks, s->axis->rank);
    int64_t extent = by__op_cut(section, s->axis->ranks, s->axis->rank + 1) - begin;
    if (split.sections > (int64_t)BY_ARRAY_LENGTH(slices)) {
        by__graph_fail(s->graph, BY_EARG, "shard: %lld sections are too many to be cut",
                       (long long)split.sections);
        return BY_NONE;
    }
    for (int64_t i = 0; i < split.sections; i++) {
        slices[i] = by_slice(s->graph, value, split.axis, i * section + begin, extent);
    }
    return split.sections == 1 ? slices[0]
                               : by_concat(s->graph, slices, (int)split.sections, split.axis);
}

bool by__pass_shard_exchanges(const by__pass_sharder *s, const by_shape *whole,
                              by__graph_split from, by__graph_split to)
{
    return s->groups > 1 && whole->rank == 2 && from.axis == 0 && to.axis == 0 &&
           whole->dim[0] % (s->groups * s->axis->ranks) == 0 &&
           ((from.sections == s->groups && to.sections == 1) ||
            (from.sections == 1 && to.sections == s->groups));
}

/* Converts between [groups, rows, C] of a rank's own examples and [groups of a rank, ranks, rows,
 * C] of all examples. */
static by_value exchange(by__pass_sharder *s, by_value value, const by_shape *whole, bool to_groups)
{
    by_graph *graph = s->graph;
    int ranks = s->axis->ranks;
    int64_t rows = whole->dim[0] / s->groups / ranks;
    by_shape flat = BY_SHAPE(whole->dim[0] / ranks, whole->dim[1]);
    by_shape shape = to_groups ? BY_SHAPE(s->groups, rows, whole->dim[1])
                               : BY_SHAPE(s->groups / ranks, ranks * rows, whole->dim[1]);
    value = by_reshape(graph, value, shape);
    value = by_all_to_all(graph, value, to_groups ? 0 : 1, to_groups ? 1 : 0, s->axis->mesh, ranks);
    return by_reshape(graph, value, flat);
}

/* Makes addends of a replicated value: the value itself on the first rank and zero on the
 * others. */
static by_value as_addend(by__pass_sharder *s, by_value value)
{
    float factor = s->axis->rank == 0 ? 1.0f : 0.0f;
    return by_scale(s->graph, value, by_fill(s->graph, BY_F32, BY_SHAPE(1), factor));
}

by_value by__pass_shard_convert(by__pass_sharder *s, by_value value, const by_shape *whole,
                                by__graph_split from, by__graph_split to)
{
    if (by__op_split_equal(from, to)) {
        return value;
    }
    if (by__pass_shard_exchanges(s, whole, from, to)) {
        return exchange(s, value, whole, to.sections == 1);
    }
    bool zigzag = s->kind == BY_SHARD_SEQUENCE;
    if (from.axis == BY__PARTIAL && to.axis >= 0 && to.sections == 1 && !zigzag) {
        return by_reduce_scatter(s->graph, value, to.axis, s->axis->mesh, s->axis->ranks,
                                 s->axis->rank);
    }
    if (from.axis == BY__PARTIAL) {
        value = by_all_reduce(s->graph, value, s->axis->mesh, s->axis->ranks);
    } else if (from.axis >= 0) {
        value = gather(s, value, whole, from);
    }
    return to.axis == BY__PARTIAL ? as_addend(s, value)
           : to.axis < 0          ? value
           : zigzag               ? slice_chunks(s, value, whole, to.axis)
                                  : slice_sections(s, value, whole, to);
}

by_value by__pass_shard_form(by__pass_sharder *s, by_value v, by__graph_split to)
{
    by__graph_split from = s->split[v];
    if (by__op_split_equal(from, to)) {
        return s->now[v];
    }
    if (from.axis == BY__PARTIAL) { /* from now on the value is the completed sum */
        s->now[v] = by__pass_shard_convert(s, s->now[v], &s->whole[v].shape, from, to);
        s->split[v] = to;
        return s->now[v];
    }
    /* Outside of blocks the backward pass follows at once, and exchanged rows take no more
     * memory. */
    bool kept = s->graph->block < 0 || by__pass_shard_exchanges(s, &s->whole[v].shape, from, to);
    by__graph_phase phase = kept ? BY__FORWARD : s->graph->phase;
    by_value *gathered = &s->gathered[phase][v];
    if (*gathered == BY_NONE) {
        *gathered = by__pass_shard_convert(s, s->now[v], &s->whole[v].shape, from, to);
    }
    return *gathered;
}
