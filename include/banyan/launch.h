/* Starting the ranks of a job, and the supervisor that watches them.
 *
 * The supervisor is a separate process. It starts the ranks (with mpirun, or the program itself for
 * a single rank), receives heartbeats from each over TCP, and restarts the job from the newest
 * checkpoint when one fails. A rank opens a heartbeat if its environment names a supervisor. What a
 * rank reports there is not lost when mpirun ends with an exit code of its own.
 */
#ifndef BANYAN_LAUNCH_H
#define BANYAN_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- hosts ---- */

/* Size of a host name's buffer. */
#define BY_HOST_NAME 64

/* A host of the job. */
typedef struct by_host {
    char name[BY_HOST_NAME];
    int slots; /* number of ranks it may run */
} by_host;

/* A list of hosts. */
typedef struct by_host_list {
    by_host *items;
    size_t count;
} by_host_list;

/* Reads an Open MPI host file: one host per line as "NAME [slots=N]" (default: 1 slot), with "#"
 * comments. Release the list with by_hosts_free. Returns BY_ECONFIG if the file cannot be read or,
 * with its number, for an invalid line. */
BY_API by_status by_hosts_read(by_host_list *out, const char *path, by_error *error);
/* Frees the list and empties it. */
BY_API void by_hosts_free(by_host_list *hosts);

/* ---- command lines ---- */

/* What is known about the machine that starts the job. */
typedef struct by_launch_facts {
    int cores;        /* physical cores available to this process */
    bool quota;       /* a control group limits processor time, and `cores` is that limit */
    bool root;        /* running as root, which mpirun refuses unless told otherwise */
    bool single_copy; /* a process may read another's memory (process_vm_readv) */
    bool no_shell;    /* no ssh, rsh or other way to start processes on another host */
    /* The mpirun of the bundle that this program came in, else "mpirun", looked up in PATH; "" is
     * the latter too. */
    char mpirun[4096];
    char network[64]; /* common to all hosts, "10.0.0.0/24"; "": none, or one host */
} by_launch_facts;

/* Examines the machine. `hosts` are those of the job; count 0: this machine. `network` overrides
 * the detected network; may be NULL. */
BY_API void by_launch_inspect(by_launch_facts *out, const by_host_list *hosts, const char *network);

/* How to start the ranks. */
typedef struct by_launch_options {
    int ranks;            /* at least 1 */
    by_host_list hosts;   /* empty: this machine */
    int threads;          /* of each rank; 0: cores / ranks on a host */
    const char *program;  /* path of banyan, the same on every host */
    char *const *command; /* [command_count], its arguments */
    size_t command_count;
    bool watched; /* a supervisor watches the ranks; the environment names it */
} by_launch_options;

/* A command line. */
typedef struct by_launch_line {
    char **words; /* [count], followed by NULL */
    size_t count;
    int threads; /* OMP_NUM_THREADS of each rank */
    bool bound;  /* each rank is bound to cores of its own */
} by_launch_line;

/* Makes the command line: the program itself for one rank without hosts, otherwise mpirun. Release
 * it with by_launch_line_free. Returns BY_ECONFIG if the hosts have fewer slots than ranks. */
BY_API by_status by_launch_line_make(by_launch_line *out, const by_launch_options *options,
                                     const by_launch_facts *facts, by_error *error);
/* Formats the line for a shell, with OMP_NUM_THREADS in front. Free the text with free(). */
BY_API by_status by_launch_line_print(char **out, const by_launch_line *line, by_error *error);
/* Frees the words and zeroes the line. */
BY_API void by_launch_line_free(by_launch_line *line);

/* ---- the supervisor ---- */

typedef struct by_supervisor_options {
    by_launch_options launch; /* its command is that of the first start */
    const char *network;      /* as for by_launch_inspect */
    /* Command of later starts, to which "--resume RUN" is appended once the ranks have reported
     * RUN; count 0: the first command. */
    char *const *again;
    size_t again_count;
    bool resumed;     /* the first command goes on from a checkpoint, too */
    bool from_start;  /* the job began at step 0: without a checkpoint it restarts there */
    int multiple;     /* ranks must be a multiple of this, the product of the fixed axes; 0: 1 */
    int max_restarts; /* consecutive restarts without a new checkpoint */
    int host_faults;  /* failures after which a host is no longer used; 0: 3 */
    double grace;     /* seconds for saving after a request to stop; 0: 30 */
    double timeout;   /* seconds a rank may make no progress; 0: 600 */
    double silence;   /* seconds a rank may send no heartbeat; 0: 60 */
    double back_off;  /* seconds before the first restart, doubled for each further one; 0: 1 */
    /* Polled ten times per second; may be NULL. Returns 0 to continue, 1 to save and end, 2 to end
     * at once. */
    int (*stop)(void *user);
    /* Receives a line about each event; may be NULL. */
    void (*report)(void *user, const char *line);
    void *user;
} by_supervisor_options;

/* Runs the job to its end and sets *code to the exit code to use (banyan/exit.h). Errors are those
 * of the supervisor itself: BY_EIO if it cannot start processes or listen, BY_EPEER if the
 * remaining hosts have no room for the ranks, BY_ECONFIG. All processes that the job leaves behind
 * on this host are killed: the calling process becomes their reaper (PR_SET_CHILD_SUBREAPER) and
 * must have no other children. */
BY_API by_status by_supervise(const by_supervisor_options *options, int *code, by_error *error);

/* ---- heartbeats ---- */

/* Connection of a rank to its supervisor. All functions below accept NULL and do nothing; any
 * thread may call them. */
typedef struct by_heartbeat by_heartbeat;

typedef struct by_heartbeat_options {
    int rank;  /* of this process */
    int ranks; /* number of ranks */
    /* Called on a thread of the heartbeat if the supervisor has been gone for its grace time while
     * the rank is still running, which nobody would end otherwise. */
    void (*abandoned)(void *user);
    void *user;
} by_heartbeat_options;

/* Connects to the supervisor named by the environment; *out is NULL if there is none. Returns
 * BY_EPEER if it cannot be reached, BY_ECONFIG if the environment variable is malformed. */
BY_API by_status by_heartbeat_open(by_heartbeat **out, const by_heartbeat_options *options,
                                   by_error *error);
/* Reports the rank's exit code and, for an error (may be NULL), its message and whether something
 * malformed was read, and closes the connection. */
BY_API void by_heartbeat_close(by_heartbeat **heartbeat, int code, const by_error *error);
/* Reports progress. `phase` is "gradients", "save", ...; cheap enough to call for every
 * micro-batch. */
BY_API void by_heartbeat_progress(by_heartbeat *heartbeat, int64_t step, const char *phase);
/* Sets a callback that yields the number of the last collective, a change of which counts as
 * progress, and a description of it. It is called on a thread of the heartbeat until it is unset
 * (NULL). */
BY_API void by_heartbeat_watch(by_heartbeat *heartbeat,
                               void (*last)(void *user, uint64_t *number, char *text, size_t size),
                               void *user);
/* Reports the run directory; for rank 0. */
BY_API void by_heartbeat_run(by_heartbeat *heartbeat, const char *run);
/* Reports that the checkpoint of this step is on disk; for rank 0. */
BY_API void by_heartbeat_saved(by_heartbeat *heartbeat, int64_t step);
/* Returns whether the supervisor asks to save and end, or is gone. */
BY_API bool by_heartbeat_stop(const by_heartbeat *heartbeat);
/* Reports that this rank itself was asked to stop (SIGTERM): its host is going away. */
BY_API void by_heartbeat_stopping(by_heartbeat *heartbeat);

#ifdef __cplusplus
}
#endif
#endif
