/* Communicators: groups of ranks that exchange data. A rank is a process (backends "self" and
 * "mpi") or a thread of one process (backend "threads", for tests and tools).
 *
 * A collective is called by every rank of a communicator, in one order, with the same kind, number
 * of elements and dtype; `what` names the data in errors ("gradients of h.3"). Each call carries a
 * header (sequence number, kind, bytes, dtype, what) that the ranks compare before they move data:
 * ranks that disagree all get BY_EPEER, which names both sides. A rank that does not come within
 * the communicator's timeout is named in the same way, with its host and the last thing that it
 * did.
 *
 * Sums are deterministic: they are the expression of the sum tree (src/base/sum_tree.h) whose
 * leaves are the ranks, element by element in f32 (bf16 and f16 are rounded once, at the end), so
 * they depend on neither timing, nor hosts, nor the backend. reduce-scatter is an all-to-all of
 * slices followed by a local sum in tree order, which puts as many bytes on the wire as a ring
 * (Patarasuk & Yuan 2009); all-reduce is that and an all-gather. Ranks of one host reach each
 * other's memory and send no copies; values that one host can add cross to others as their sum.
 *
 * A communicator is used by one thread at a time; different ones may be used at once. Calls return
 * when the data may be used and overwritten. Buffers belong to the caller.
 */
#ifndef BANYAN_COMM_H
#define BANYAN_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/dtype.h"
#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_comm by_comm;

typedef struct by_comm_options {
    /* "self" (one rank), "mpi", or NULL: mpi in a process that mpirun or srun started, else self */
    const char *backend;
    double timeout; /* seconds that a rank may be late for a collective; 0: 600 */
} by_comm_options;

/* The communicator of all ranks of the job. options may be NULL. BY_EARG: no such backend, or this
 * build has no MPI (it says so). */
BY_API by_status by_comm_open(by_comm **out, const by_comm_options *options, by_error *error);
/* Ranks as threads: calls `rank_main` on `ranks` new threads, each with its communicator, which is
 * closed when it returns. Returns the first error of any; that one ends the others' collectives
 * with BY_EPEER. */
BY_API by_status by_comm_run_threads(int ranks, const by_comm_options *options,
                                     by_status (*rank_main)(by_comm *comm, void *user,
                                                            by_error *error),
                                     void *user, by_error *error);
/* Collective for "mpi". Closing without having reported an error waits for all ranks. NULL and a
 * pointer to NULL are accepted. */
BY_API void by_comm_close(by_comm **comm);

BY_API int by_comm_rank(const by_comm *comm);
BY_API int by_comm_size(const by_comm *comm);
/* "self", "threads" or "mpi". */
BY_API const char *by_comm_backend(const by_comm *comm);
/* Host that a rank runs on. */
BY_API const char *by_comm_host(const by_comm *comm, int rank);
/* Whether ranks have one host and may read each other's memory. */
BY_API bool by_comm_is_near(const by_comm *comm, int rank);

/* Collective: ranks with one color form a communicator, ordered by key, then by rank here. color
 * -1: none (*out is NULL). */
BY_API by_status by_comm_split(by_comm **out, by_comm *comm, int color, int key, by_error *error);

/* ---- collectives ---- */

/* data[i] = sum over ranks. f32, bf16, f16 or i32. */
BY_API by_status by_comm_all_reduce(by_comm *comm, void *data, size_t count, by_dtype dtype,
                                    const char *what, by_error *error);
/* The all-reduce of the library that carries the messages (MPI_Allreduce), to compare with: the
 * order of its additions is its own. At most INT_MAX elements. BY_EARG: the communicator is not
 * that of all ranks over MPI. */
BY_API by_status by_comm_native_all_reduce(by_comm *comm, float *data, size_t count,
                                           by_error *error);
/* Slice r of `in` (counts[r] elements, slices one behind the other; counts is the same on every
 * rank) is summed into out of rank r. out may be the rank's own slice of in. */
BY_API by_status by_comm_reduce_scatter(by_comm *comm, const void *in, void *out,
                                        const size_t *counts, by_dtype dtype, const char *what,
                                        by_error *error);
/* out = the in of all ranks, one behind the other: counts[r] elements of rank r. in may be the
 * rank's own place in out. */
BY_API by_status by_comm_all_gather(by_comm *comm, const void *in, void *out, const size_t *counts,
                                    by_dtype dtype, const char *what, by_error *error);
BY_API by_status by_comm_broadcast(by_comm *comm, void *data, size_t count, by_dtype dtype,
                                   int root, const char *what, by_error *error);
/* Slice r of `in` (send[r] elements) goes to rank r, whose out has what came from each rank one
 * behind the other (receive[s] elements from rank s). */
BY_API by_status by_comm_all_to_all(by_comm *comm, const void *in, const size_t *send, void *out,
                                    const size_t *receive, by_dtype dtype, const char *what,
                                    by_error *error);
BY_API by_status by_comm_barrier(by_comm *comm, const char *what, by_error *error);

/* Point to point: of equal size, dtype and `tag` (0 to 8189) on both sides; what one rank sends
 * another with one tag is received in order. A send copies the data and does not wait for the
 * receiver as long as fewer than 16 sends to that rank were not received: two ranks may send to
 * each other and receive then. */
BY_API by_status by_comm_send(by_comm *comm, const void *data, size_t count, by_dtype dtype, int to,
                              int tag, const char *what, by_error *error);
BY_API by_status by_comm_receive(by_comm *comm, void *data, size_t count, by_dtype dtype, int from,
                                 int tag, const char *what, by_error *error);

/* Tells all ranks that this one cannot go on: their present or next collective returns BY_EPEER
 * with this rank and message. Returns `status`; does nothing for BY_OK. */
BY_API by_status by_comm_fail(by_comm *comm, by_status status, const by_error *error);
/* What the first rank of the job that failed did so with; BY_OK: none has, as far as this one has
 * heard. */
BY_API by_status by_comm_failure(const by_comm *comm);

/* What this rank did last on any communicator of its job, for heartbeats: *number counts the
 * collectives that it has entered, text ("all-reduce \"gradients of h.3\"", with "waits in" in
 * front while it does; "" before the first) is cut at `size` bytes. Any thread may ask, as long
 * as the communicator is open. */
BY_API void by_comm_last(const by_comm *comm, uint64_t *number, char *text, size_t size);

/* The MPI library that this build stands on. */
typedef struct by_comm_library {
    char version[96];         /* "Open MPI v4.1.4"; "": this build has none */
    const char *thread_level; /* "serialized", ...; "": MPI was not started in this process */
} by_comm_library;
BY_API void by_comm_library_describe(by_comm_library *out);

/* What a communicator has moved so far. */
typedef struct by_comm_counters {
    uint64_t collectives;
    uint64_t bytes_sent;    /* to ranks of other hosts, as messages */
    uint64_t bytes_read;    /* from the memory of ranks of this host */
    uint64_t bytes_written; /* to it */
    double seconds;         /* in collectives, waiting included */
    double waited;          /* for ranks that came later */
} by_comm_counters;
BY_API void by_comm_count(by_comm_counters *out, const by_comm *comm);

/* A call on a communicator; times are seconds of by_clock(). */
typedef struct by_comm_call {
    const char *kind; /* "all-reduce", "send", ...; static */
    const char *what; /* valid while it is told */
    uint64_t bytes;
    double begin;
    double met; /* all ranks had come; of a send: there was room, of a receive: it was sent */
    double end;
} by_comm_call;

/* Tells of each call on any communicator of this rank's job when it ends, on the thread that made
 * it: of calls on several communicators at once, on several threads. Set while no call is under
 * way; NULL ends it. */
typedef void by_comm_watcher(void *user, const by_comm_call *call);
BY_API void by_comm_watch(by_comm *comm, by_comm_watcher *watcher, void *user);

/* ---- the mesh ---- */

/* Axes, outermost first: neighbours in the last axis have neighbouring ranks, so that what talks
 * most is on one host. */
typedef enum by_mesh_axis {
    BY_MESH_PIPELINE = 0,
    BY_MESH_DATA,
    BY_MESH_SHARD,
    BY_MESH_EXPERT,
    BY_MESH_SEQUENCE,
    BY_MESH_TENSOR,
    BY_MESH_AXES
} by_mesh_axis;

typedef struct by_mesh by_mesh;

/* "pipeline", "data", ... */
BY_API const char *by_mesh_axis_name(by_mesh_axis axis);
/* Collective. sizes: of each axis, at least 1; their product is the communicator's size (BY_EARG
 * names both). comm stays the caller's and outlives the mesh. */
BY_API by_status by_mesh_open(by_mesh **out, by_comm *comm, const int sizes[BY_MESH_AXES],
                              by_error *error);
BY_API void by_mesh_close(by_mesh **mesh);
BY_API int by_mesh_size(const by_mesh *mesh, by_mesh_axis axis);
/* This rank's place on an axis. */
BY_API int by_mesh_rank(const by_mesh *mesh, by_mesh_axis axis);
/* The ranks that differ from this one in the axes of the set alone (bit i: axis i), in mesh order;
 * owned by the mesh. A set is collective on its first use; equal sets give one communicator. */
BY_API by_status by_mesh_comm(by_comm **out, by_mesh *mesh, unsigned axes, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
