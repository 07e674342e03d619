/* Sets of programs that share an arena and a workspace, and the binding of their values to entries
 * of a store. */
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

by_status by__exec_set_add(by__exec_program_set *set, const char *name, by_graph *graph,
                           by_purpose purpose, const by_pass_options *options,
                           by__exec_program_row **out, by_error *error)
{
    by__exec_program_row *row = NULL;
    by_status status =
        by__reserve((void **)&set->rows, &set->capacity, set->count + 1, sizeof *set->rows, error);
    if (status == BY_OK) {
        status = by__alloc((void **)&row, 1, sizeof *row, "a program", error);
    }
    if (status != BY_OK) {
        by_graph_close(&graph);
        return status;
    }
    *row = (by__exec_program_row){.name = name, .index = set->count, .graph = graph};
    set->rows[set->count++] = row;
    BY_TRY(by_passes_run(graph, purpose, options, NULL, error));
    BY_TRY(by_program_compile(&row->program, graph, set->device, name, error));
    *out = row;
    return BY_OK;
}

by__exec_program_row *by__exec_set_row(const by__exec_program_set *set, const char *name)
{
    for (size_t i = 0; i < set->count; i++) {
        if (strcmp(set->rows[i]->name, name) == 0) {
            return set->rows[i];
        }
    }
    return NULL;
}

size_t by__exec_set_arena_bytes(const by__exec_program_set *set)
{
    size_t bytes = 0;
    for (size_t i = 0; i < set->count; i++) {
        bytes = larger(bytes, by_program_arena_bytes(set->rows[i]->program));
    }
    return bytes;
}

size_t by__exec_set_workspace_bytes(const by__exec_program_set *set)
{
    size_t bytes = 0;
    for (size_t i = 0; i < set->count; i++) {
        bytes = larger(bytes, by_program_workspace_bytes(set->rows[i]->program));
    }
    return bytes;
}

by__device_recording_bytes by__exec_set_recording_bytes(const by__exec_program_set *set)
{
    by__device_recording_bytes all = {0, 0};
    for (size_t i = 0; i < set->count; i++) {
        by__device_recording_bytes own = by__exec_program_recording_bytes(set->rows[i]->program);
        all.of_device += own.of_device;
        all.pinned += own.pinned;
    }
    return all;
}

by_status by__exec_set_allocate(by__exec_program_set *set, by_error *error)
{
    size_t workspace = by__exec_set_workspace_bytes(set);
    by_device_free(&set->arena); /* from an earlier call that failed half-way */
    by_device_free(&set->workspace);
    BY_TRY(by_device_alloc(&set->arena, set->device, by__exec_set_arena_bytes(set),
                           "the activations", error));
    BY_TRY(by_device_alloc(&set->workspace, set->device, workspace, "the workspace", error));
    for (size_t i = 0; i < set->count; i++) {
        by_program_set_memory(set->rows[i]->program, set->arena, set->workspace);
    }
    return BY_OK;
}

by_status by__exec_row_bind(by__exec_program_row *row, const char *value, by_memory memory,
                            by_error *error)
{
    by_value found = row == NULL ? BY_NONE : by_graph_find(row->graph, value);
    return found == BY_NONE ? BY_OK : by_program_bind(row->program, found, memory, error);
}

by_status by__exec_row_check(const by__exec_program_row *row, const char *value, const void *data,
                             by_error *error)
{
    by_value found = by_graph_find(row->graph, value);
    return found == BY_NONE || row->graph->values[found].dtype != BY_I32
               ? BY_OK
               : by_program_check(row->program, found, data, error);
}

/* ---- entries of a store ---- */

/* The entry of an external value: "grad.NAME" is the gradient of NAME. */
static by__store_handle entry_of(const by__graph_value *value, const by__store *store)
{
    const char *name = value->name;
    if (value->role == BY_ROLE_GRADIENT) {
        name += strlen("grad.");
    }
    return by__store_find(store, name);
}

by_status by__exec_row_link(by__exec_program_row *row, const by__store *store, by_error *error)
{
    const by_graph *graph = row->graph;
    free(row->links);
    row->links = NULL;
    row->link_count = 0;
    BY_TRY(by__alloc((void **)&row->links, graph->value_count, sizeof *row->links, "links", error));
    for (size_t v = 0; v < graph->value_count; v++) {
        const by__graph_value *value = &graph->values[v];
        if (value->role != BY_ROLE_PARAMETER && value->role != BY_ROLE_STATE &&
            value->role != BY_ROLE_GRADIENT) {
            continue;
        }
        if (value->role == BY_ROLE_STATE && value->frozen) {
            continue;
        }
        by__store_handle entry = entry_of(value, store);
        if (entry == BY__NO_ENTRY) {
            return by_error_set(error, BY_ESTATE, "%s: the store has no tensor for '%s'", row->name,
                                value->name);
        }
        if (value->role == BY_ROLE_PARAMETER &&
            value->transposed != by__store_entry(store, entry)->transposed) {
            return by_error_set(error, BY_ESTATE, "%s: '%s' is transposed in one program only",
                                row->name, value->name);
        }
        if (value->role == BY_ROLE_PARAMETER &&
            value->packing.kind != by__store_entry(store, entry)->packing.kind) {
            return by_error_set(error, BY_ESTATE, "%s: '%s' is packed in one program only",
                                row->name, value->name);
        }
        row->links[row->link_count++] = (by__exec_link){(by_value)v, entry};
    }
    return BY_OK;
}

by_status by__exec_row_bind_flat(by__exec_program_row *row, const by__store *store, by_role role,
                                 int flat, int other, by_error *error)
{
    for (size_t i = 0; i < row->link_count; i++) {
        const by__exec_link *link = &row->links[i];
        if (row->graph->values[link->value].role == role) {
            by_memory memory = by__store_buffer(store, flat, link->entry);
            if (memory.bytes == 0) {
                memory = by__store_buffer(store, other, link->entry);
            }
            BY_TRY(by_program_bind(row->program, link->value, memory, error));
        }
    }
    return BY_OK;
}

void by__exec_set_close(by__exec_program_set *set)
{
    for (size_t i = 0; i < set->count; i++) {
        by_program_close(&set->rows[i]->program);
        by_graph_close(&set->rows[i]->graph);
        free(set->rows[i]->links);
        free(set->rows[i]);
    }
    by_device_free(&set->arena);
    by_device_free(&set->workspace);
    free(set->rows);
    *set = (by__exec_program_set){.device = set->device};
}
