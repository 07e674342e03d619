/* The cores of a job's ranks: the peak of ranks that share cores is that of the cores, not of their
 * threads. */
#include <stdlib.h>
#include <string.h>

#include "job/job.h"

/* Number of cores that a rank can use at the same time. */
static int used_by(const by__job_rank_cores *rank)
{
    int cores = by__cores_count(&rank->cores);
    return cores > 0 && cores < rank->threads ? cores : rank->threads;
}

double by__job_cores_of_ranks(const by__job_rank_cores *ranks, int count)
{
    double sum = 0.0;
    for (int r = 0; r < count; r++) {
        by__cores all = {{0}};
        int threads = 0;
        bool first = true;
        for (int k = 0; k < count; k++) {
            if (ranks[k].host != ranks[r].host) {
                continue;
            }
            first = first && k >= r;
            threads += used_by(&ranks[k]);
            for (size_t i = 0; i < BY_ARRAY_LENGTH(all.bits); i++) {
                all.bits[i] |= ranks[k].cores.bits[i];
            }
        }
        int cores = by__cores_count(&all);
        if (first) { /* first rank of its host */
            sum += cores > 0 && cores < threads ? cores : threads;
        }
    }
    return sum / used_by(&ranks[0]);
}

by_status by__job_cores(by__job *job, by_error *error)
{
    by__job_rank_cores mine = {.threads = by__thread_count((int)job->config->train.threads)};
    by__job_rank_cores *all;
    size_t *counts = NULL;
    job->timing.peaks = 1.0;
    if (job->comm == NULL) {
        return BY_OK;
    }
    size_t size = (size_t)by_comm_size(job->comm);
    (void)by__cores_usable(&mine.cores);
    while (strcmp(by_comm_host(job->comm, mine.host),
                  by_comm_host(job->comm, by_comm_rank(job->comm))) != 0) {
        mine.host++;
    }
    BY_TRY(by__alloc((void **)&all, size, sizeof *all, "cores", error));
    by_status status = by__alloc((void **)&counts, size, sizeof *counts, "cores", error);
    for (size_t r = 0; r < size && status == BY_OK; r++) {
        counts[r] = sizeof *all;
    }
    if (status == BY_OK) {
        status = by_comm_all_gather(job->comm, &mine, all, counts, BY_U8, "cores", error);
    }
    if (status == BY_OK) {
        job->timing.peaks = by__job_cores_of_ranks(all, (int)size);
    }
    free(counts);
    free(all);
    return status;
}
