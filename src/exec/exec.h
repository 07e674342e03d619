/* exec: compiled programs and their submission to a device.
 *
 * A by_program takes a graph whose passes are done, gets the place of each activation from the
 * memory pass and the kernel of each node from the device, keeps one by__device_call per node, and
 * gives the device the list of its commands once. Addresses are resolved only after a new binding,
 * so that a run submits the same list again: no allocation, no lock, no system call.
 *
 * Ownership: the program owns its calls and its memory plan; the graph, the device, the arena, the
 * workspace and all bound buffers belong to the caller.
 *
 * Nodes that communicate go to the collective queue: a collective runs after the preceding work of
 * the compute queue and concurrently with the following work; a node that waits is an order between
 * queues and no call. They have a separate workspace, after that of the other nodes.
 * by__exec_mesh_collectives (collectives.c) is what a device's collective kernels call to reach
 * other ranks.
 *
 * A by__exec_program_set (program_set.c) is a list of named programs over one model: graph, program
 * and the arena it runs in. Programs that never run at the same time share an arena; all share one
 * workspace.
 *
 * Never put here: knowledge of models, training or files.
 */
#ifndef BY_EXEC_EXEC_H
#define BY_EXEC_EXEC_H

#include "banyan/comm.h"
#include "banyan/program.h"
#include "device/device.h"
#include "passes/passes.h"
#include "store/store.h"

/* ---- collectives ---- */

/* Implements REDUCE_GRADIENTS and GATHER_PARAMETER: `call` has the gradients in call->in and the
 * bucket in call->attrs.bucket, or the parameter's memory in call->out[0] and its number. Called on
 * the thread of the collective queue. */
typedef by_status by__exec_call_fn(void *user, const by__device_call *call, by_error *error);

/* Moves the data of a device's collectives over the communicators of a mesh. */
typedef struct by__exec_mesh_collectives {
    by__device_collectives base; /* passed to by__device_set_collectives */
    by_mesh *mesh;
    by_comm *comms[1 << BY_MESH_AXES]; /* of the sets of axes that graphs use; owned by the mesh */
    size_t *counts;
    double seconds; /* time spent in exchanges */
    /* Set by the caller; NULL: graphs have no such nodes. */
    by__exec_call_fn *gradients;
    by__exec_call_fn *parameters;
    void *user; /* of both */
} by__exec_mesh_collectives;

/* The caller keeps the mesh, which must outlive it. */
by_status by__exec_mesh_collectives_open(by__exec_mesh_collectives **out, by_mesh *mesh,
                                         by_error *error);
void by__exec_mesh_collectives_close(by__exec_mesh_collectives **collectives);
/* Opens the communicators that a graph needs, before it runs. Collective. */
by_status by__exec_mesh_collectives_use(by__exec_mesh_collectives *collectives,
                                        const by_graph *graph, by_error *error);

/* The call of a node, with the addresses of the last run; owned by the program. When a hook
 * (by_program_set_hook) is called for a node, what it has read and written is still in memory,
 * except for collectives, which run concurrently. */
const by__device_call *by__exec_program_call(const by_program *program, size_t node);

/* What the device keeps for the program besides its arena and workspace. */
by__device_recording_bytes by__exec_program_recording_bytes(const by_program *program);

/* ---- sets of programs ---- */

/* A value of a graph and its entry in a store. */
typedef struct by__exec_link {
    by_value value;
    by__store_handle entry;
} by__exec_link;

/* A named graph and the program compiled from it, both owned by the set. Its address is a handle:
 * it stays the same until the set is closed. */
typedef struct by__exec_program_row {
    const char *name; /* static */
    size_t index;     /* in the set */
    by_graph *graph;
    by_program *program;
    by__exec_link *links; /* parameters, states and gradients, after by__exec_row_link */
    size_t link_count;
} by__exec_program_row;

typedef struct by__exec_program_set {
    by_device *device;           /* owned by the caller, set before the first program is added */
    by__exec_program_row **rows; /* in the order in which they were added */
    size_t count;
    size_t capacity;
    by_memory arena;
    by_memory workspace;
} by__exec_program_set;

/* Runs the passes meant for `purpose` over `graph`, compiles it and appends it as `name`; *out: its
 * row. The set owns the graph from here on, also when this fails. */
by_status by__exec_set_add(by__exec_program_set *set, const char *name, by_graph *graph,
                           by_purpose purpose, const by_pass_options *options,
                           by__exec_program_row **out, by_error *error);
/* The row with that name, for those who ask by name from outside; NULL if there is none. */
by__exec_program_row *by__exec_set_row(const by__exec_program_set *set, const char *name);
/* Bytes of the largest arena, and of the largest workspace, of the set's programs. */
size_t by__exec_set_arena_bytes(const by__exec_program_set *set);
size_t by__exec_set_workspace_bytes(const by__exec_program_set *set);
/* What devices keep for all of the set's programs: memory of the device, and pinned memory. */
by__device_recording_bytes by__exec_set_recording_bytes(const by__exec_program_set *set);
/* Allocates arena and workspace and assigns them to all programs. */
by_status by__exec_set_allocate(by__exec_program_set *set, by_error *error);
/* Binds the value named `value` of a row, if the row (may be NULL) has one. */
by_status by__exec_row_bind(by__exec_program_row *row, const char *value, by_memory memory,
                            by_error *error);
/* Calls by_program_check for the value with that name; does nothing if the row lacks it or it is
 * not i32. */
by_status by__exec_row_check(const by__exec_program_row *row, const char *value, const void *data,
                             by_error *error);
/* Looks up the entries of all parameters, states and gradients ("grad.NAME") by name, once.
 * BY_ESTATE names a value that has no entry in the store. */
by_status by__exec_row_link(by__exec_program_row *row, const by__store *store, by_error *error);
/* Binds the linked values of a role to their buffers in the flat buffer; those that have none
 * there, to the ones in `other`. */
by_status by__exec_row_bind_flat(by__exec_program_row *row, const by__store *store, by_role role,
                                 int flat, int other, by_error *error);
/* {0} is accepted. */
void by__exec_set_close(by__exec_program_set *set);

#endif
