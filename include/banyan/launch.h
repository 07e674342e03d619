/* Many ranks of one job: how they are started, and the supervisor that watches them.
 *
 * The supervisor is a process of its own. It starts the ranks (mpirun, or the program itself where
 * there is one rank), hears from each over TCP several times a minute, and starts them again from
 * the newest checkpoint when one fails. A rank opens a heartbeat when the environment names a
 * supervisor; what it says there survives mpirun, which ends with a code of its own.
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

#define BY_HOST_NAME 64

typedef struct by_host {
    char name[BY_HOST_NAME];
    int slots; /* ranks that it may run */
} by_host;

typedef struct by_host_list {
    by_host *items;
    size_t count;
} by_host_list;

/* Reads a host file of Open MPI: a line "NAME [slots=N]" a host (slots: 1 where it is not given),
 * "#" begins a comment. BY_ECONFIG names the line. Released with by_hosts_free. */
BY_API by_status by_hosts_read(by_host_list *out, const char *path, by_error *error);
BY_API void by_hosts_free(by_host_list *hosts);

/* ---- the line that starts the ranks ---- */

/* What the machine that starts the job is like. */
typedef struct by_launch_facts {
    int cores;        /* physical cores that this process may use */
    bool quota;       /* a control group gives less time than that: cores has what it gives */
    bool root;        /* mpirun refuses to run as root unless it is told to */
    bool single_copy; /* a process may read another's memory (process_vm_readv) */
    char network[64]; /* of all hosts, "10.0.0.0/24"; "": none or one host */
} by_launch_facts;

/* hosts: those of the job, count 0: this one. network (may be NULL): given by the user. */
BY_API void by_launch_look(by_launch_facts *out, const by_host_list *hosts, const char *network);

typedef struct by_launch_options {
    int ranks;
    by_host_list hosts;   /* none: this machine */
    int threads;          /* of each rank; 0: cores by ranks */
    const char *program;  /* path of banyan, the same on every host */
    char *const *command; /* its arguments */
    size_t command_count;
    bool watched; /* the ranks have a supervisor, which the environment names */
} by_launch_options;

typedef struct by_launch_line {
    char **words; /* NULL behind the last */
    size_t count;
    int threads; /* OMP_NUM_THREADS of each rank */
    bool bound;  /* each rank has cores of its own */
} by_launch_line;

/* One rank without hosts is the program itself; else mpirun. BY_ECONFIG: the hosts have fewer slots
 * than ranks. Released with by_launch_line_free. */
BY_API by_status by_launch_line_make(by_launch_line *out, const by_launch_options *options,
                                     const by_launch_facts *facts, by_error *error);
/* As a shell would take it, with OMP_NUM_THREADS in front. Freed with free(). */
BY_API by_status by_launch_line_print(char **out, const by_launch_line *line, by_error *error);
BY_API void by_launch_line_free(by_launch_line *line);

/* ---- the supervisor ---- */

typedef struct by_supervisor_options {
    by_launch_options launch; /* command: of the first start */
    const char *network;      /* see by_launch_look */
    /* of a later start, to which "--resume RUN" is added once the ranks have said what RUN is;
     * none: the first command again */
    char *const *again;
    size_t again_count;
    bool from_start;  /* the job began at step 0: a run without a checkpoint begins again there */
    int multiple;     /* ranks are a multiple of this: the product of the other axes; 0: 1 */
    int max_restarts; /* in a row without a new checkpoint */
    int host_faults;  /* a host that failed so often is not used any more; 0: 3 */
    double grace;     /* seconds for saving after a request to stop; 0: 30 */
    double timeout;   /* seconds that a rank may go without progress; 0: 600 */
    double silence;   /* seconds that a rank may be silent; 0: 60 */
    double back_off;  /* seconds before the first restart, doubled with each; 0: 1 */
    /* asked ten times a second: 0 go on, 1 save and end, 2 end at once. May be NULL */
    int (*stop)(void *user);
    void (*say)(void *user, const char *line); /* what happens, a line each. May be NULL */
    void *user;
} by_supervisor_options;

/* Runs the job to its end. *code: what to exit with (banyan/exit.h). An error is one of the
 * supervisor itself. All processes that the job leaves behind on this host are ended: the calling
 * process adopts them (PR_SET_CHILD_SUBREAPER) and must have no children of its own. */
BY_API by_status by_supervise(const by_supervisor_options *options, int *code, by_error *error);

/* ---- the heartbeat of a rank ---- */

typedef struct by_heartbeat by_heartbeat;

typedef struct by_heartbeat_options {
    int rank;
    int ranks;
    /* Called on a thread of the heartbeat's own when the supervisor has been gone for its grace
     * time and the rank still runs: nobody would end it. */
    void (*abandoned)(void *user);
    void *user;
} by_heartbeat_options;

/* *out is NULL where the environment names no supervisor; every call below accepts that. BY_EPEER:
 * it cannot be reached. */
BY_API by_status by_heartbeat_open(by_heartbeat **out, const by_heartbeat_options *options,
                                   by_error *error);
/* Says how the rank ends: its exit code and, for an error, why. */
BY_API void by_heartbeat_close(by_heartbeat **heartbeat, int code, const char *message);
/* The rank got on. phase: "gradients", "save", ...; cheap enough for every micro-batch. */
BY_API void by_heartbeat_progress(by_heartbeat *heartbeat, int64_t step, const char *phase);
/* `last` is asked for the last collective: its number, which counts as progress, and what it was.
 * It is called on a thread of the heartbeat's own until it is unset (NULL). */
BY_API void by_heartbeat_watch(by_heartbeat *heartbeat,
                               void (*last)(void *user, uint64_t *number, char *text, size_t size),
                               void *user);
/* The run directory, and that a checkpoint of this step is on disk; for rank 0. */
BY_API void by_heartbeat_run(by_heartbeat *heartbeat, const char *run);
BY_API void by_heartbeat_saved(by_heartbeat *heartbeat, int64_t step);
/* Whether the supervisor asks to save and end, or has gone. */
BY_API bool by_heartbeat_stop(const by_heartbeat *heartbeat);
/* This rank was asked itself (SIGTERM): its host is going away. */
BY_API void by_heartbeat_stopping(by_heartbeat *heartbeat);

#ifdef __cplusplus
}
#endif
#endif
