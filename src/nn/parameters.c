/* A model's parameters as entries of a tensor store: the layout shared by training and
 * inference. */
#include <stdlib.h>
#include <string.h>

#include "base/packing/packing.h"
#include "device/device.h"
#include "nn/nn.h"

/* Returns true if files may hold fewer rows than the parameter: a table over a vocabulary that was
 * padded after the file was written. */
static bool is_over_vocabulary(const by__graph_value *value)
{
    return value->axes != NULL && strncmp(value->axes, "vocab", 5) == 0;
}

static int group_of(const by__graph_value *value)
{
    int group = (value->shape.rank >= 2 ? 0 : BY__GROUP_VECTOR) |
                (value->dtype != BY_F32 ? 0 : BY__GROUP_WIDE);
    if (value->frozen) {
        bool coded = value->packing.kind != BY_PACKING_NONE;
        return coded ? BY__GROUP_CODES : group | BY__GROUP_FROZEN;
    }
    if (value->statistic) {
        return BY__GROUP_STATISTIC;
    }
    for (int i = 0; i < value->part_count; i++) {
        bool expert = (value->part[i].mesh >> BY_MESH_EXPERT & 1u) != 0;
        group |= expert ? BY__GROUP_EXPERT : BY__GROUP_TENSOR;
    }
    return group;
}

/* Sets the part of the whole tensor that the graph has. */
static void set_part(by__store_tensor *entry, const by__graph_value *value)
{
    entry->shape = value->whole;
    entry->local = value->shape;
    for (int i = 0; i < value->part_count; i++) {
        const by__graph_value_part *part = &value->part[i];
        int64_t section = value->whole.dim[part->split.axis] / part->split.sections;
        entry->first[part->split.axis] = by__op_cut(section, part->ranks, part->rank);
        entry->sections[part->split.axis] = part->split.sections;
    }
}

by_status by__nn_declare_parameters(by__store *store, const by_graph *graph, by_error *error)
{
    for (size_t v = 0; v < graph->value_count; v++) {
        const by__graph_value *value = &graph->values[v];
        if (value->role != BY_ROLE_PARAMETER) {
            continue;
        }
        by__store_handle handle;
        by__store_tensor entry = {.name = value->name,
                                  .axes = value->axes,
                                  .shape = value->shape,
                                  .format = value->dtype,
                                  .group = group_of(value),
                                  .trainable = !value->frozen,
                                  .transposed = value->transposed,
                                  .packing = value->packing,
                                  .out_in = value->out_in,
                                  .grows = !value->transposed && is_over_vocabulary(value)};
        if (value->transposed) {
            entry.shape = BY_SHAPE(value->shape.dim[1], value->shape.dim[0]);
        }
        if (value->packing.kind != BY_PACKING_NONE) {
            entry.shape = by__unpacked_shape(&value->packing, value->out_in);
        }
        if (value->part_count > 0) {
            set_part(&entry, value);
        }
        BY_TRY(by__store_add(store, &entry, &handle, error));
    }
    return BY_OK;
}

/* Initializes the part of an entry that the graph has; the whole tensor is drawn, so that values do
 * not depend on the number of ranks. */
static by_status initialize_part(by__store *store, int flat, by__store_handle handle,
                                 const by_graph *graph, by_value value, uint64_t seed, int threads,
                                 by_error *error)
{
    const by__store_tensor *entry = by__store_entry(store, handle);
    int64_t count = by_shape_count(&entry->local);
    float *whole;
    float *part = NULL;
    BY_TRY(by__alloc_aligned((void **)&whole, (size_t)by_shape_count(&entry->shape) * sizeof *whole,
                             "initial weights", error));
    by_status status =
        by__alloc_aligned((void **)&part, (size_t)count * sizeof *part, "initial weights", error);
    if (status == BY_OK) {
        status = by_parameter_init(whole, graph, value, seed, error);
    }
    if (status == BY_OK) {
        by__store_cut(entry, whole, part, sizeof *part);
        status = by__store_write(store, flat, handle, part, BY_F32, count, threads, error);
    }
    free(part);
    free(whole);
    return status;
}

/* Elements drawn at a time if memory does not hold the whole tensor. */
#define DRAWN (64 * BY__NORMAL_BLOCK)

/* Initializes a whole tensor, of which this process may hold only a part, or hold it on disk. */
static by_status initialize_in_parts(by__store *store, int flat, by__store_handle handle,
                                     const by_graph *graph, by_value value, uint64_t seed,
                                     int threads, by_error *error)
{
    int64_t count = by_shape_count(&by__store_entry(store, handle)->local);
    float *drawn;
    by_status status = BY_OK;
    size_t most = (size_t)(count < DRAWN ? count : DRAWN);
    BY_TRY(by__alloc_aligned((void **)&drawn, most * sizeof *drawn, "initial weights", error));
    for (int64_t first = 0; first < count && status == BY_OK; first += DRAWN) {
        int64_t part = count - first < DRAWN ? count - first : DRAWN;
        status = by__nn_parameter_init_part(drawn, graph, value, seed, first, part, error);
        if (status == BY_OK) {
            status = by__store_write_part(store, flat, handle, first, drawn, BY_F32, part, threads,
                                          error);
        }
    }
    free(drawn);
    return status;
}

/* Initial values must not depend on the layout: a transposed parameter is drawn in the order of the
 * matrix in files, whose columns are the rows of the value. */
static by_status initialize_one(by__store *store, int flat, by__store_handle handle,
                                const by_graph *graph, by_value value, uint64_t seed, int threads,
                                by_error *error)
{
    const by__store_tensor *entry = by__store_entry(store, handle);
    int64_t count = by_shape_count(&entry->local);
    float *host = by__store_host(store, flat, handle);
    float *drawn;
    if (by__store_is_part(entry)) {
        return initialize_part(store, flat, handle, graph, value, seed, threads, error);
    }
    if (host != NULL && !by__store_rearranges(entry) &&
        by__store_dtype(store, flat, handle) == BY_F32) {
        return by_parameter_init(host, graph, value, seed, error);
    }
    if (!by__store_rearranges(entry)) {
        return initialize_in_parts(store, flat, handle, graph, value, seed, threads, error);
    }
    BY_TRY(by__alloc_aligned((void **)&drawn, (size_t)count * sizeof *drawn, "initial weights",
                             error));
    by_status status = by_parameter_init(drawn, graph, value, seed, error);
    if (status == BY_OK) {
        status = by__store_write(store, flat, handle, drawn, BY_F32, count, threads, error);
    }
    free(drawn);
    return status;
}

by_status by__nn_initialize_parameters(by__store *store, int flat, const by_graph *graph,
                                       uint64_t seed, int threads, by_error *error)
{
    for (size_t v = 0; v < graph->value_count; v++) {
        if (graph->values[v].role == BY_ROLE_PARAMETER) {
            by__store_handle handle = by__store_find(store, graph->values[v].name);
            BY_TRY(initialize_one(store, flat, handle, graph, (by_value)v, seed, threads, error));
        }
    }
    return BY_OK;
}
