/* The mesh: ranks arranged along six axes, and communicators along sets of axes. */
#include <stdlib.h>

#include "comm/comm.h"

enum { SETS = 1 << BY_MESH_AXES };

struct by_mesh {
    by_comm *world;
    int sizes[BY_MESH_AXES];
    int place[BY_MESH_AXES];
    by_comm *comms[SETS]; /* by set; NULL: not opened yet */
};

static const char *const axis_names[BY_MESH_AXES] = {"pipeline", "data",     "shard",
                                                     "expert",   "sequence", "tensor"};

const char *by_mesh_axis_name(by_mesh_axis axis)
{
    return axis >= 0 && axis < BY_MESH_AXES ? axis_names[axis] : "?";
}

by_status by_mesh_open(by_mesh **out, by_comm *comm, const int sizes[BY_MESH_AXES], by_error *error)
{
    by_mesh *mesh;
    int64_t product = 1;
    int ranks = by_comm_size(comm);
    for (int a = 0; a < BY_MESH_AXES; a++) {
        if (sizes[a] < 1) {
            return by_error_set(error, BY_EARG, "axis %s of the mesh has size %d: at least 1",
                                axis_names[a], sizes[a]);
        }
        /* Avoids overflow: a product beyond the number of ranks is wrong anyway. */
        product = product > ranks ? product : product * sizes[a];
    }
    if (product != ranks) {
        return by_error_set(error, BY_EARG,
                            "a mesh of %d x %d x %d x %d x %d x %d (pipeline, data, shard, expert, "
                            "sequence, tensor) does not have the %d ranks of the communicator",
                            sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], ranks);
    }
    BY_TRY(by__alloc((void **)&mesh, 1, sizeof *mesh, "a mesh", error));
    mesh->world = comm;
    int rest = by_comm_rank(comm);
    for (int a = BY_MESH_AXES - 1; a >= 0; a--) {
        mesh->sizes[a] = sizes[a];
        mesh->place[a] = rest % sizes[a];
        rest /= sizes[a];
    }
    *out = mesh;
    return BY_OK;
}

void by_mesh_close(by_mesh **mesh)
{
    if (mesh == NULL || *mesh == NULL) {
        return;
    }
    for (int set = 0; set < SETS; set++) {
        by_comm_close(&(*mesh)->comms[set]);
    }
    free(*mesh);
    *mesh = NULL;
}

int by_mesh_size(const by_mesh *mesh, by_mesh_axis axis)
{
    return mesh->sizes[axis];
}

int by_mesh_rank(const by_mesh *mesh, by_mesh_axis axis)
{
    return mesh->place[axis];
}

by_status by_mesh_comm(by_comm **out, by_mesh *mesh, unsigned axes, by_error *error)
{
    if (axes >= SETS) {
        return by_error_set(error, BY_EARG, "set of axes %#x of a mesh of %d axes", axes,
                            BY_MESH_AXES);
    }
    /* Axes of one rank add nothing: sets that differ only in these are equal. */
    for (int a = 0; a < BY_MESH_AXES; a++) {
        if (mesh->sizes[a] == 1) {
            axes &= ~(1u << a);
        }
    }
    if (mesh->comms[axes] == NULL) {
        /* Ranks with equal positions on the other axes form a group, in the order of the world. */
        int color = 0;
        for (int a = 0; a < BY_MESH_AXES; a++) {
            if ((axes >> a & 1) == 0) {
                color = color * mesh->sizes[a] + mesh->place[a];
            }
        }
        BY_TRY(by_comm_split(&mesh->comms[axes], mesh->world, color, 0, error));
    }
    *out = mesh->comms[axes];
    return BY_OK;
}
