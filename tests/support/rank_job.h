/* rank_job: trainers of one job on threads, which take some steps on data that the test makes, and
 * what they have in the end: to compare with one process that works alone. */
#ifndef BY_TESTS_RANK_JOB_H
#define BY_TESTS_RANK_JOB_H

#include "trainer/state/trainer.h"

#define RANK_JOB_STEPS 3
#define RANK_JOB_RANKS 12

/* What a job is to do, and what its ranks have in the end. */
typedef struct rank_job {
    const char *const *settings; /* NULL at the end */
    /* What its ranks compute on: the CPU; a late device each; or devices of a kind ("cuda"). */
    bool late;
    uint64_t seed;
    size_t alignment; /* of a late device, or of the CPU in its place; 0: the CPU's own */
    const char *device;
    by_step_result results[RANK_JOB_RANKS][RANK_JOB_STEPS];
    /* Parameters, gradients, states of the optimizer; with train.eval_ema before them the average
     * of the weights when it was in their place, after the second step. */
    float *weights[RANK_JOB_RANKS];
    size_t count[RANK_JOB_RANKS];
    size_t capacity[RANK_JOB_RANKS];
    by_memory_report memory[RANK_JOB_RANKS];
    by_status status[RANK_JOB_RANKS];
    by_error errors[RANK_JOB_RANKS];
} rank_job;

/* The config of a small model with these settings. */
by_config *rank_job_config(const char *const *settings);
/* A rank of a job: a function for by_comm_run_threads, `user` is the job. */
by_status rank_job_run(by_comm *comm, void *user, by_error *error);
/* Runs a job; ranks 0: without a communicator. */
rank_job *rank_job_open(int ranks, const char *const *settings);
/* The same on late devices, whose memory the host cannot read, or on those of a kind. */
rank_job *rank_job_open_late(int ranks, const char *const *settings, uint64_t seed);
/* The same on CPUs with the alignment of those. */
rank_job *rank_job_open_aligned(int ranks, const char *const *settings);
rank_job *rank_job_open_on(int ranks, const char *const *settings, const char *device);
/* All that ranks have in the end is that of `alone`, bit for bit. */
void rank_job_check(const rank_job *alone, const rank_job *job, int ranks);
void rank_job_close(rank_job *job);
/* Every rank of a job of each of these sizes ends as the process that works alone. A sanitizer
 * looks at the memory that ranks use, not at how many they are: there only the last size is run. */
void rank_job_compare(const int *ranks, size_t count, const char *const *settings);
/* The same of ranks with late devices. */
void rank_job_compare_late(const int *ranks, size_t count, const char *const *settings);
/* The same of one job, and of a process that works alone with other settings. */
void rank_job_agree(const char *const *alone, int ranks, const char *const *settings);

#endif
