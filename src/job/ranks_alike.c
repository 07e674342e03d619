/* Checks that the ranks of a job compute alike, before they train. Weights are equal bit for bit on
 * any hosts if all run the same build with kernels of the same level (docs/determinism.md), the
 * same config and the same data. */
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "device/rank_device.h"
#include "job/job.h"

typedef struct rank_build {
    char version[32];
    char hash[36]; /* of the program; "": not known */
    char level[32];
} rank_build;

by_status by__job_ranks_compute_alike(by_comm *comm, const char *version, const char *hash,
                                      const char *level, by_error *error)
{
    static const char what[] = "the builds of the ranks";
    rank_build first = {{0}, {0}, {0}};
    rank_build mine = {{0}, {0}, {0}};
    int rank = by_comm_rank(comm);
    (void)snprintf(mine.version, sizeof mine.version, "%s", version);
    (void)snprintf(mine.hash, sizeof mine.hash, "%s", hash);
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
    if (strcmp(first.hash, mine.hash) != 0) {
        return by_error_set(error, BY_ECONFIG,
                            "rank %d (%s) runs another build of banyan %s (%.8s) than rank 0 (%s, "
                            "%.8s), whose results may differ in bits: copy one program to all "
                            "hosts",
                            rank, by_comm_host(comm, rank), mine.version, mine.hash,
                            by_comm_host(comm, 0), first.hash);
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

/* Compares what determines the results, and the layout of the ranks, which the config's hash leaves
 * out but the ranks' messages depend on. */
static by_status same_config(const by__job *job, by_error *error)
{
    static const char section[] = "\nparallel:\n";
    char hash[33];
    char *text;
    BY_TRY(by_config_hash(job->config, hash, error));
    BY_TRY(by__job_same(job, hash, "the hash of the config", error));
    BY_TRY(by_config_print(job->config, &text, error));
    const char *begin = strstr(text, section);
    size_t length = 0;
    if (begin != NULL) {
        begin += sizeof section - 1;
        while (begin[length] == ' ') {
            length += strcspn(begin + length, "\n") + 1;
        }
    }
    by__hash128_hex(hash, begin == NULL ? "" : begin, length);
    free(text);
    return by__job_same(job, hash, "the hash of the config's section parallel", error);
}

by_status by__job_same_data(const by__job *job, by_error *error)
{
    by_task_kept kept = {0};
    by_string all = {0};
    char hash[33];
    const by_task *task = job->data->task;
    if (job->comm == NULL) {
        return BY_OK;
    }
    BY_TRY(task->keep == NULL ? BY_OK : task->keep(job->data, job->config, &kept, error));
    for (size_t i = 0; i < kept.value_count; i++) {
        if (kept.values[i].kind == BY_VALUE_STRING) { /* hashes of the training data */
            by_string_format(&all, "%s=%s\n", kept.values[i].key, kept.values[i].as.string);
        }
    }
    by__hash128_hex(hash, all.length == 0 ? "" : all.data, all.length);
    by_status status = all.failed
                           ? by_error_set(error, BY_EMEMORY, "out of memory: the data's hash")
                           : by__job_same(job, hash, "the hash of the training data", error);
    by_string_free(&all);
    return status;
}

by_status by__job_alike(const by__job *job, by_error *error)
{
    by_device_info info;
    char hash[33] = "";
    const by_trainer_options *own = job->options->trainer;
    by_device *opened = NULL;
    if (job->comm == NULL) {
        return BY_OK;
    }
    if (own->device == NULL) {
        BY_TRY(by__device_open_of_rank(&opened, job->config->device, -1,
                                       by__comm_local_rank(job->comm), error));
    }
    by_status status = by_device_describe(&info, opened == NULL ? own->device : opened, error);
    by_device_close(&opened);
    BY_TRY(status);
    (void)by_build_hash(hash, NULL); /* unknown if /proc is missing */
    BY_TRY(by__job_ranks_compute_alike(job->comm, BY_VERSION, hash, info.level, error));
    return same_config(job, error);
}
