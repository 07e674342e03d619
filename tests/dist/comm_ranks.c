/* One rank of tests/dist/test_comm_mpi.sh: `comm_ranks all|mesh|bytes|kind|late|fail|die`.
 * Prints one line, "rank R: ok" or what the error says. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "comm/comm.h"
#include "comm_cases.h"

static by_status mesh(by_comm *comm, by_error *error)
{
    int size = by_comm_size(comm);
    int sizes[BY_MESH_AXES] = {1, 1, 1, 1, 1, 1};
    by_mesh *box;
    sizes[BY_MESH_TENSOR] = size % 2 == 0 ? 2 : 1;
    sizes[BY_MESH_DATA] = size / sizes[BY_MESH_TENSOR];
    BY_TRY(by_mesh_open(&box, comm, sizes, error));
    by_status status = comm_cases_mesh(comm, box, error);
    by_mesh_close(&box);
    return status;
}

/* Two hosts of two ranks: values cross once a host, not once a rank. */
static by_status crossing_bytes(by_comm *comm, by_error *error)
{
    enum { COUNT = 400000 };
    by_comm_counters before;
    by_comm_counters after;
    float *x = calloc(COUNT, sizeof *x);
    if (x == NULL) {
        return by_error_set(error, BY_EMEMORY, "no memory");
    }
    by_comm_count(&before, comm);
    by_status status = by_comm_all_reduce(comm, x, COUNT, BY_F32, "gradients", error);
    by_comm_count(&after, comm);
    free(x);
    BY_TRY(status);
    uint64_t sent = after.bytes_sent - before.bytes_sent;
    if (sent > COUNT * sizeof *x / 2 + 10000) {
        return by_error_set(error, BY_ESTATE, "%llu bytes were sent, more than half of %zu",
                            (unsigned long long)sent, COUNT * sizeof *x);
    }
    return BY_OK;
}

static by_status act(by_comm *comm, const char *mode, by_error *error)
{
    float x[4000] = {0};
    bool last = by_comm_rank(comm) == by_comm_size(comm) - 1;
    if (strcmp(mode, "all") == 0) {
        BY_TRY(comm_cases_all(comm, NULL, error));
        return comm_cases_large(comm, error);
    }
    if (strcmp(mode, "mesh") == 0) {
        return mesh(comm, error);
    }
    if (strcmp(mode, "bytes") == 0) {
        return crossing_bytes(comm, error);
    }
    BY_TRY(by_comm_all_reduce(comm, x, 4000, BY_F32, "warm-up", error));
    if (last && strcmp(mode, "kind") == 0) {
        return by_comm_barrier(comm, "checkpoint", error);
    }
    if (last && strcmp(mode, "fail") == 0) {
        return by_error_set(error, BY_EIO, "disk /data is full");
    }
    if (strcmp(mode, "late") == 0) {
        /* Only now: how far apart processes start depends on the machine. */
        comm->job->timeout = 5.0;
        /* The others give up first, and mpirun ends the ranks that do not see it. */
        while (last && by_comm_failure(comm) == BY_OK) {
            (void)usleep(10000);
        }
    }
    if (last && strcmp(mode, "die") == 0) {
        (void)raise(SIGKILL);
    }
    return by_comm_all_reduce(comm, x, 4000, BY_F32, "gradients", error);
}

int main(int argc, char **argv)
{
    by_comm *comm = NULL;
    by_error error = {.message = ""};
    const char *mode = argc > 1 ? argv[1] : "all";
    by_comm_options options = {.timeout = 300};
    by_status status = by_comm_open(&comm, &options, &error);
    int rank = comm == NULL ? -1 : by_comm_rank(comm);
    if (status == BY_OK) {
        status = by_comm_fail(comm, act(comm, mode, &error), &error);
    }
    (void)printf("rank %d: %s\n", rank, status == BY_OK ? "ok" : error.message);
    (void)fflush(stdout);
    by_comm_close(&comm);
    return status == BY_OK ? 0 : 1;
}
