/* Communicators: groups of ranks that exchange data. A rank is a process (backends "self" and
 * "mpi") or a thread of one process (backend "threads", for tests and tools).
 *
 * Collectives must be called by every rank of a communicator, in the same order, with the same
 * kind, count and dtype; `what` names the data in errors ("gradients of h.3"). Each call carries a
 * header (sequence number, kind, bytes, dtype, what) that the ranks compare before moving data. If
 * they disagree, all get BY_EPEER with a message that shows both sides. A rank that does not arrive
 * within the communicator's timeout is reported in the same way, with its host and its last
 * operation.
 *
 * Sums are deterministic: they follow the sum tree (src/base/sum_tree.h) with the ranks as leaves,
 * element by element in f32 (bf16 and f16 are rounded once, at the end), and depend neither on
 * timing, hosts nor backend. Reduce-scatter is an all-to-all of slices followed by a local sum in
 * tree order, which transfers as many bytes as a ring (Patarasuk and Yuan 2009); all-reduce is that
 * followed by an all-gather. Ranks on one host access each other's memory directly; to other hosts
 * they send the sum of values that one host can add.
 *
 * A communicator is used by one thread at a time; different ones may be used concurrently. All
 * calls block until the caller may use and overwrite the buffers. Any of them returns BY_EPEER if
 * another rank fails, disagrees or is late, and BY_EARG for an invalid dtype, rank or size.
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
    /* "self" (one rank), "mpi", or NULL: mpi if the process was started by mpirun or srun, else
     * self. */
    const char *backend;
    double timeout; /* seconds a rank may be late for a collective; 0: 600 */
} by_comm_options;

/* Opens the communicator of all ranks of the job; `options` may be NULL. Returns BY_EARG for an
 * unknown backend, a build without MPI, or a process not started by an MPI launcher. */
BY_API by_status by_comm_open(by_comm **out, const by_comm_options *options, by_error *error);
/* Runs ranks as threads: calls `rank_main` on `ranks` new threads, each with its own communicator,
 * which is closed when it returns. Returns the first error of any rank; that error makes the other
 * ranks' collectives fail with BY_EPEER. */
BY_API by_status by_comm_run_threads(int ranks, const by_comm_options *options,
                                     by_status (*rank_main)(by_comm *comm, void *user,
                                                            by_error *error),
                                     void *user, by_error *error);
/* Closes a communicator. Collective with backend "mpi": unless an error has been reported, it waits
 * for all ranks. NULL and a pointer to NULL are accepted. */
BY_API void by_comm_close(by_comm **comm);

/* Returns this rank, 0 to size - 1. */
BY_API int by_comm_rank(const by_comm *comm);
/* Returns the number of ranks. */
BY_API int by_comm_size(const by_comm *comm);
/* Returns "self", "threads" or "mpi". */
BY_API const char *by_comm_backend(const by_comm *comm);
/* Returns the name of the host that a rank runs on. */
BY_API const char *by_comm_host(const by_comm *comm, int rank);
/* Returns whether a rank is on this host, so that the two access each other's memory directly. */
BY_API bool by_comm_is_near(const by_comm *comm, int rank);

/* Collective. Ranks with the same color form a new communicator, ordered by key, then by their rank
 * in `comm`; color -1: none (*out is NULL). Returns BY_EARG for a color below -1. */
BY_API by_status by_comm_split(by_comm **out, by_comm *comm, int color, int key, by_error *error);

/* ---- collectives ---- */

/* Replaces data[i] by its sum over all ranks. f32, bf16, f16 or i32. */
BY_API by_status by_comm_all_reduce(by_comm *comm, void *data, size_t count, by_dtype dtype,
                                    const char *what, by_error *error);
/* All-reduce of the underlying library (MPI_Allreduce), for comparison; its summation order is its
 * own. At most INT_MAX elements. Returns BY_EARG if the communicator is not that of all ranks over
 * MPI. */
BY_API by_status by_comm_native_all_reduce(by_comm *comm, float *data, size_t count,
                                           by_error *error);
/* Sums slices over ranks: `in` holds one slice per rank in rank order, slice r with counts[r]
 * elements (equal on every rank), and `out` of rank r receives the sum of all slices r. `out` may
 * be the rank's own slice of `in`. f32, bf16, f16 or i32. */
BY_API by_status by_comm_reduce_scatter(by_comm *comm, const void *in, void *out,
                                        const size_t *counts, by_dtype dtype, const char *what,
                                        by_error *error);
/* Concatenates: `out` receives the `in` of all ranks in rank order, counts[r] elements of rank r.
 * `in` may be the rank's own place in `out`. */
BY_API by_status by_comm_all_gather(by_comm *comm, const void *in, void *out, const size_t *counts,
                                    by_dtype dtype, const char *what, by_error *error);
/* Copies `data` of rank `root` to all ranks. */
BY_API by_status by_comm_broadcast(by_comm *comm, void *data, size_t count, by_dtype dtype,
                                   int root, const char *what, by_error *error);
/* Sends slice r of `in` (send[r] elements) to rank r; `out` receives the slices sent to this rank
 * in rank order (receive[s] elements from rank s). */
BY_API by_status by_comm_all_to_all(by_comm *comm, const void *in, const size_t *send, void *out,
                                    const size_t *receive, by_dtype dtype, const char *what,
                                    by_error *error);
/* Waits until all ranks have called it. */
BY_API by_status by_comm_barrier(by_comm *comm, const char *what, by_error *error);

/* Point to point. Count, dtype and `tag` (0 to 8189) must match on both sides; data sent from one
 * rank to another with one tag arrives in order. A send copies the data and returns without waiting
 * for the receiver, unless 16 sends to that rank are outstanding: two ranks may first send to each
 * other and then receive. */
BY_API by_status by_comm_send(by_comm *comm, const void *data, size_t count, by_dtype dtype, int to,
                              int tag, const char *what, by_error *error);
/* Receives what by_comm_send of rank `from` sent with `tag`; blocks until it is there. */
BY_API by_status by_comm_receive(by_comm *comm, void *data, size_t count, by_dtype dtype, int from,
                                 int tag, const char *what, by_error *error);

/* Tells all ranks that this one cannot continue: their current or next collective returns BY_EPEER
 * with this rank and message (`error` may be NULL). Does nothing for BY_OK. Returns `status`. */
BY_API by_status by_comm_fail(by_comm *comm, by_status status, const by_error *error);
/* Returns the status of the first rank of the job that failed; BY_OK if none has, as far as is
 * known here. */
BY_API by_status by_comm_failure(const by_comm *comm);

/* Describes the last operation of this rank on any communicator of its job, for heartbeats: *number
 * is the count of collectives entered, text ("all-reduce \"gradients of h.3\"", preceded by "waits
 * in " while blocked; "" before the first) is truncated to `size` bytes. May be called by any
 * thread while the communicator is open. */
BY_API void by_comm_last(const by_comm *comm, uint64_t *number, char *text, size_t size);

/* The MPI library of this build. */
typedef struct by_comm_library {
    char version[96];         /* "Open MPI v4.1.4"; "" in a build without MPI */
    const char *thread_level; /* "serialized", ...; "" unless MPI is initialized in this process */
} by_comm_library;
/* Fills in a description of the MPI library. */
BY_API void by_comm_library_describe(by_comm_library *out);

/* Totals of a communicator since it was opened. */
typedef struct by_comm_counters {
    uint64_t collectives;
    uint64_t bytes_sent;    /* to ranks on other hosts, as messages */
    uint64_t bytes_read;    /* from the memory of ranks on this host */
    uint64_t bytes_written; /* to the memory of ranks on this host */
    double seconds;         /* spent in collectives, including waiting */
    double waited;          /* seconds spent waiting for late ranks */
} by_comm_counters;
/* Copies the counters. */
BY_API void by_comm_count(by_comm_counters *out, const by_comm *comm);

/* A completed call on a communicator. Times are by_clock() in seconds. */
typedef struct by_comm_call {
    const char *kind; /* "all-reduce", "send", ...; static */
    const char *what; /* valid during the callback */
    uint64_t bytes;
    double begin; /* when it was called */
    /* All ranks had arrived; for a send: there was room; for a receive: the data had been sent. */
    double ready;
    double end; /* when it returned */
} by_comm_call;

/* Receives each call on any communicator of this rank's job when it completes, on the thread that
 * made the call; several threads may call it concurrently. */
typedef void by_comm_watcher(void *user, const by_comm_call *call);
/* Sets the watcher of this rank's job; NULL removes it. No call may be in progress. */
BY_API void by_comm_watch(by_comm *comm, by_comm_watcher *watcher, void *user);

/* ---- the mesh ---- */

/* Axes of a mesh, outermost first. Ranks adjacent along the last axis have consecutive numbers, so
 * that the axes with the most communication stay on one host. */
typedef enum by_mesh_axis {
    BY_MESH_PIPELINE = 0,
    BY_MESH_DATA,
    BY_MESH_SHARD,
    BY_MESH_EXPERT,
    BY_MESH_SEQUENCE,
    BY_MESH_TENSOR,
    BY_MESH_AXES
} by_mesh_axis;

/* A communicator arranged as a grid of ranks. */
typedef struct by_mesh by_mesh;

/* Returns "pipeline", "data", "shard", "expert", "sequence" or "tensor"; "?" for an invalid
 * value. */
BY_API const char *by_mesh_axis_name(by_mesh_axis axis);
/* Collective. Arranges the ranks of a communicator, which must outlive the mesh. sizes[a] >= 1 is
 * the extent of axis a. Returns BY_EARG if their product is not the communicator's size. */
BY_API by_status by_mesh_open(by_mesh **out, by_comm *comm, const int sizes[BY_MESH_AXES],
                              by_error *error);
/* Closes a mesh and the communicators it made; collective as by_comm_close. */
BY_API void by_mesh_close(by_mesh **mesh);
/* Returns the extent of an axis. */
BY_API int by_mesh_size(const by_mesh *mesh, by_mesh_axis axis);
/* Returns this rank's coordinate on an axis. */
BY_API int by_mesh_rank(const by_mesh *mesh, by_mesh_axis axis);
/* Gets the communicator of the ranks that differ from this one only in the given axes (bit i: axis
 * i), in mesh order; it belongs to the mesh. Collective on the first use of a set; equal sets share
 * one communicator. */
BY_API by_status by_mesh_comm(by_comm **out, by_mesh *mesh, unsigned axes, by_error *error);

#ifdef __cplusplus
}
#endif
#endif
