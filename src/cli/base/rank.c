/* This process as a rank of a job: its number, as set by mpirun or srun, and its heartbeat. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cli.h"

/* Global to the process, like its standard streams. */
static by_heartbeat *heartbeat;
static by_error failure;

static bool read_number(int *out, const char *name)
{
    const char *text = getenv(name);
    char *end;
    if (text == NULL || text[0] < '0' || text[0] > '9') {
        return false;
    }
    long value = strtol(text, &end, 10);
    if (*end != '\0' || value > 1000000) {
        return false;
    }
    *out = (int)value;
    return true;
}

void cli_find_rank(int *rank, int *ranks)
{
    /* Set by Open MPI, and by the plug-ins of srun. */
    static const char *const names[][2] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                           {"PMI_RANK", "PMI_SIZE"},
                                           {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (read_number(rank, names[i][0]) && read_number(ranks, names[i][1]) && *rank < *ranks) {
            return;
        }
    }
    *rank = 0;
    *ranks = 1;
}

static void on_abandoned(void *unused)
{
    (void)unused;
    static const char text[] =
        "banyan: the supervisor is gone and this rank makes no progress: it exits\n";
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    _exit(BY_EXIT_PEER);
}

int cli_open_heartbeat(void)
{
    by_heartbeat_options options = {.abandoned = on_abandoned};
    by_error error = {0};
    cli_find_rank(&options.rank, &options.ranks);
    by_status status = by_heartbeat_open(&heartbeat, &options, &error);
    if (status != BY_OK) {
        fprintf(stderr, "banyan: %s\n", error.message);
        return (int)by_exit_of(status);
    }
    return -1;
}

static void last_collective(void *user, uint64_t *number, char *text, size_t size)
{
    by_comm_last(user, number, text, size);
}

void cli_watch_comm(by_comm *comm)
{
    by_heartbeat_watch(heartbeat, comm == NULL ? NULL : last_collective, comm);
}

void cli_record_failure(const by_error *error)
{
    failure = *error;
}

int cli_close_heartbeat(int code)
{
    by_heartbeat_close(&heartbeat, code, &failure);
    return code;
}

by_heartbeat *cli_heartbeat(void)
{
    return heartbeat;
}
