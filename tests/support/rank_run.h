/* rank_run: a graph compiled for one of several ranks that are threads. cmocka's checks jump out of
 * the thread, so that what runs on ranks returns errors. */
#ifndef BY_TESTS_RANK_RUN_H
#define BY_TESTS_RANK_RUN_H

#include "exec/exec.h"

/* The mesh axis of all ranks, as a set. */
#define RANK_MESH (1u << BY_MESH_TENSOR)

typedef struct rank_run {
    by_graph *graph; /* owned */
    by_device *device;
    by_program *program;
    by_mesh *mesh;
    by__exec_mesh_collectives *collectives;
    by_memory *memory; /* of external values, by value */
    by_memory arena, workspace;
} rank_run;

/* Takes the graph, also when this fails. Collective. */
by_status rank_open(rank_run *r, by_comm *comm, by_graph *graph, by_error *error);
/* Zeroed when it is opened. */
void *rank_data(const rank_run *r, const char *name);
/* {0} is accepted. */
void rank_close(rank_run *r);

/* Fails the running test with the first error of a rank. */
void run_ranks(int ranks, by_status (*rank_main)(by_comm *comm, void *user, by_error *error),
               void *user);

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            return by_error_set(error, BY_ESTATE, "line %d: not %s", __LINE__, #condition);        \
        }                                                                                          \
    } while (0)

#endif
