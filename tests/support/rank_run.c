#include "rank_run.h"

#include <stdlib.h>

#include "runner.h"

by_status rank_open(rank_run *r, by_comm *comm, by_graph *graph, by_error *error)
{
    int sizes[BY_MESH_AXES] = {1, 1, 1, 1, 1, 1};
    *r = (rank_run){.graph = graph};
    sizes[BY_MESH_TENSOR] = by_comm_size(comm);
    BY_TRY(by_graph_verify(graph, error));
    BY_TRY(by_mesh_open(&r->mesh, comm, sizes, error));
    BY_TRY(by__exec_mesh_collectives_open(&r->collectives, r->mesh, error));
    BY_TRY(by__exec_mesh_collectives_use(r->collectives, graph, error));
    BY_TRY(by_device_open(&r->device, "cpu", 1, error));
    by__device_set_collectives(r->device, &r->collectives->base);
    BY_TRY(by_program_compile(&r->program, graph, r->device, "test", error));
    size_t arena = by_program_arena_bytes(r->program);
    size_t workspace = by_program_workspace_bytes(r->program);
    BY_TRY(by_device_alloc(&r->arena, r->device, arena, "a test", error));
    BY_TRY(by_device_alloc(&r->workspace, r->device, workspace, "a test", error));
    by_program_set_memory(r->program, r->arena, r->workspace);
    BY_TRY(by__alloc((void **)&r->memory, graph->value_count, sizeof *r->memory, "a test", error));
    for (size_t v = 0; v < graph->value_count; v++) {
        if (by__role_is_external(graph->values[v].role)) {
            BY_TRY(by_device_alloc(&r->memory[v], r->device,
                                   by__graph_value_bytes(&graph->values[v]), "a test", error));
            BY_TRY(by_program_bind(r->program, (by_value)v, r->memory[v], error));
        }
    }
    return BY_OK;
}

void *rank_data(const rank_run *r, const char *name)
{
    return (void *)r->memory[by_graph_find(r->graph, name)].address;
}

void rank_close(rank_run *r)
{
    by_program_close(&r->program);
    for (size_t v = 0; r->memory != NULL && v < r->graph->value_count; v++) {
        by_device_free(&r->memory[v]);
    }
    free(r->memory);
    by_device_free(&r->arena);
    by_device_free(&r->workspace);
    by_device_close(&r->device);
    by__exec_mesh_collectives_close(&r->collectives);
    by_mesh_close(&r->mesh);
    by_graph_close(&r->graph);
}

void run_ranks(int ranks, by_status (*rank_main)(by_comm *comm, void *user, by_error *error),
               void *user)
{
    by_error error = {0};
    by_comm_options options = {.timeout = 1700.0};
    check_ok(by_comm_run_threads(ranks, &options, rank_main, user, &error), &error);
}
