#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

by_status by__set_add(by__program_set *set, const char *name, by_graph *graph, by_purpose purpose,
                      const by_pass_options *options, by_error *error)
{
    by_status status =
        by__reserve((void **)&set->rows, &set->capacity, set->count + 1, sizeof *set->rows, error);
    if (status != BY_OK) {
        by_graph_close(&graph);
        return status;
    }
    by__program_row *row = &set->rows[set->count++];
    *row = (by__program_row){.name = name, .graph = graph};
    BY_TRY(by_passes_run(graph, purpose, options, NULL, error));
    return by_program_compile(&row->program, graph, set->device, name, error);
}

by__program_row *by__set_row(const by__program_set *set, const char *name)
{
    for (size_t i = 0; i < set->count; i++) {
        if (strcmp(set->rows[i].name, name) == 0) {
            return &set->rows[i];
        }
    }
    return NULL;
}

size_t by__set_arena_bytes(const by__program_set *set)
{
    size_t bytes = 0;
    for (size_t i = 0; i < set->count; i++) {
        bytes = larger(bytes, by_program_arena_bytes(set->rows[i].program));
    }
    return bytes;
}

size_t by__set_workspace_bytes(const by__program_set *set)
{
    size_t bytes = 0;
    for (size_t i = 0; i < set->count; i++) {
        bytes = larger(bytes, by_program_workspace_bytes(set->rows[i].program));
    }
    return bytes;
}

by_status by__set_allocate(by__program_set *set, size_t workspace_bytes, by_error *error)
{
    size_t workspace = larger(workspace_bytes, by__set_workspace_bytes(set));
    BY_TRY(by_device_alloc(&set->arena, set->device, by__set_arena_bytes(set), "the activations",
                           error));
    BY_TRY(by_device_alloc(&set->workspace, set->device, workspace, "the workspace", error));
    for (size_t i = 0; i < set->count; i++) {
        by_program_set_memory(set->rows[i].program, set->arena, set->workspace);
    }
    return BY_OK;
}

by_status by__row_bind(by__program_row *row, const char *value, by_memory memory, by_error *error)
{
    by_value found = row == NULL ? BY_NONE : by_graph_find(row->graph, value);
    return found == BY_NONE ? BY_OK : by_program_bind(row->program, found, memory, error);
}

void by__set_close(by__program_set *set)
{
    for (size_t i = 0; i < set->count; i++) {
        by_program_close(&set->rows[i].program);
        by_graph_close(&set->rows[i].graph);
    }
    by_device_free(&set->arena);
    by_device_free(&set->workspace);
    free(set->rows);
    *set = (by__program_set){.device = set->device};
}
