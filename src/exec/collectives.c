/* Executes the collectives of a graph over the communicators of a mesh. */
#include <stdlib.h>
#include <string.h>

#include "base/sum_tree.h"
#include "comm/comm.h"
#include "exec/exec.h"

/* Number of elements in each rank's slice. */
static const size_t *slice_counts(by__exec_mesh_collectives *c, const by__device_exchange *e)
{
    for (int r = 0; r < e->ranks; r++) {
        int64_t first;
        int64_t count;
        by__sum_tree_block(e->entries, e->ranks, r, &first, &count);
        c->counts[r] = (size_t)(count * e->elements);
    }
    return c->counts;
}

/* Sends all elements to the next rank and receives those of the previous one. */
static by_status ring_shift(by__exec_mesh_collectives *c, by_comm *comm,
                            const by__device_exchange *e, by_error *error)
{
    int rank = by_comm_rank(comm);
    size_t *send = c->counts;
    size_t *receive = c->counts + e->ranks;
    for (int r = 0; r < e->ranks; r++) {
        size_t all = (size_t)(e->entries * e->elements);
        send[r] = r == (rank + 1) % e->ranks ? all : 0;
        receive[r] = rank == (r + 1) % e->ranks ? all : 0;
    }
    return by_comm_all_to_all(comm, e->in, send, e->out, receive, e->dtype, e->what, error);
}

static by_status call_back(by__exec_call_fn *fn, void *user, const by__device_exchange *e,
                           by_error *error)
{
    return fn == NULL ? by_error_set(error, BY_ESTATE, "%s: nothing was given to do it", e->what)
                      : fn(user, e->call, error);
}

static by_status exchange(by__exec_mesh_collectives *c, by_comm *comm, const by__device_exchange *e,
                          by_error *error)
{
    if (comm == NULL || by_comm_size(comm) != e->ranks) {
        return by_error_set(error, BY_ESTATE,
                            "%s: the graph has a group of %d ranks over the mesh axes %#x; the "
                            "mesh has %d there",
                            e->what, e->ranks, e->mesh, comm == NULL ? 0 : by_comm_size(comm));
    }
    const size_t *counts = slice_counts(c, e);
    switch (e->kind) {
    case BY__EXCHANGE_ALL_REDUCE:
        if (e->out != e->in) {
            memcpy(e->out, e->in, (size_t)(e->entries * e->elements) * by_dtype_size(e->dtype));
        }
        return by_comm_all_reduce(comm, e->out, (size_t)(e->entries * e->elements), e->dtype,
                                  e->what, error);
    case BY__EXCHANGE_ALL_GATHER:
        return by_comm_all_gather(comm, e->in, e->out, counts, e->dtype, e->what, error);
    case BY__EXCHANGE_REDUCE_SCATTER:
        return by_comm_reduce_scatter(comm, e->in, e->out, counts, e->dtype, e->what, error);
    case BY__EXCHANGE_ALL_TO_ALL:
        return by_comm_all_to_all(comm, e->in, counts, e->out, counts, e->dtype, e->what, error);
    case BY__EXCHANGE_RING_SHIFT:
        return ring_shift(c, comm, e, error);
    case BY__EXCHANGE_PARAMETER:
        return call_back(c->parameters, c->user, e, error);
    default:
        return call_back(c->gradients, c->user, e, error);
    }
}

static by_status run_exchange(void *user, const by__device_exchange *e, by_error *error)
{
    by__exec_mesh_collectives *c = user;
    by_comm *comm = e->mesh < BY_ARRAY_LENGTH(c->comms) ? c->comms[e->mesh] : NULL;
    double before = comm == NULL ? 0.0 : by__comm_spent(comm); /* on all communicators of the job */
    by_status status = exchange(c, comm, e, error);
    c->seconds += comm == NULL ? 0.0 : by__comm_spent(comm) - before;
    return status;
}

by_status by__exec_mesh_collectives_open(by__exec_mesh_collectives **out, by_mesh *mesh,
                                         by_error *error)
{
    by__exec_mesh_collectives *c;
    size_t ranks = 1;
    BY_TRY(by__alloc((void **)&c, 1, sizeof *c, "collectives", error));
    for (int axis = 0; axis < BY_MESH_AXES; axis++) {
        ranks *= (size_t)by_mesh_size(mesh, (by_mesh_axis)axis);
    }
    by_status status =
        by__alloc((void **)&c->counts, 2 * ranks, sizeof *c->counts, "collectives", error);
    if (status != BY_OK) {
        free(c);
        return status;
    }
    c->mesh = mesh;
    c->base = (by__device_collectives){.user = c, .run = run_exchange};
    *out = c;
    return BY_OK;
}

void by__exec_mesh_collectives_close(by__exec_mesh_collectives **collectives)
{
    if (collectives != NULL && *collectives != NULL) {
        free((*collectives)->counts);
        free(*collectives);
        *collectives = NULL;
    }
}

by_status by__exec_mesh_collectives_use(by__exec_mesh_collectives *c, const by_graph *graph,
                                        by_error *error)
{
    for (size_t n = 0; n < graph->node_count; n++) {
        uint32_t set = graph->nodes[n].attrs.mesh;
        if (by__op_row_of(graph->nodes[n].op)->communicates && set < BY_ARRAY_LENGTH(c->comms) &&
            c->comms[set] == NULL) {
            BY_TRY(by_mesh_comm(&c->comms[set], c->mesh, set, error));
        }
    }
    return BY_OK;
}
