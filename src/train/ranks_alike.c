/* Checks that the ranks of a job compute alike. Weights are equal bit for bit on any hosts if all
 * run the same version with kernels of the same level (docs/determinism.md). */
#include <string.h>

#include "train/loop.h"

typedef struct build {
    char version[32];
    char level[32];
} build;

by_status by__ranks_compute_alike(by_comm *comm, const char *version, const char *level,
                                  by_error *error)
{
    static const char what[] = "the builds of the ranks";
    build first = {{0}, {0}};
    build mine = {{0}, {0}};
    int rank = by_comm_rank(comm);
    (void)snprintf(mine.version, sizeof mine.version, "%s", version);
    (void)snprintf(mine.level, sizeof mine.level, "%s", level);
    first = mine;
    BY_TRY(by_comm_broadcast(comm, &first, sizeof first / sizeof(int32_t), BY_I32, 0, what, error));
    if (strcmp(first.version, mine.version) != 0) {
        return by_error_set(error, BY_ECONFIG,
                            "rank %d (%s) runs banyan %s and rank 0 (%s) %s: install one version "
                            "on all hosts",
                            rank, by_comm_host(comm, rank), mine.version, by_comm_host(comm, 0),
                            first.version);
    }
    if (strcmp(first.level, mine.level) != 0) {
        return by_error_set(error, BY_ECONFIG,
                            "rank %d (%s) computes with kernels for %s and rank 0 (%s) for %s, "
                            "whose results differ in bits: set BANYAN_ISA to the lower of the two "
                            "on all hosts",
                            rank, by_comm_host(comm, rank), mine.level, by_comm_host(comm, 0),
                            first.level);
    }
    return BY_OK;
}

by_status by__job_alike(const by__job *job, by_error *error)
{
    by_device_info info;
    const by_trainer_options *own = job->options->trainer;
    by_device *opened = NULL;
    if (job->comm == NULL) {
        return BY_OK;
    }
    if (own->device == NULL) {
        BY_TRY(by_device_open(&opened, "cpu", -1, error));
    }
    by_status status = by_device_describe(&info, opened == NULL ? own->device : opened, error);
    by_device_close(&opened);
    return status == BY_OK ? by__ranks_compute_alike(job->comm, BY_VERSION, info.level, error)
                           : status;
}
