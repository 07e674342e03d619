/* Exchange of numbers for named things of which ranks have different ones, or parts of the same:
 * ranks exchange the names once, and then send a fixed number of values for each, in that order. */
#ifndef BY_JOB_JOB_NAMES_H
#define BY_JOB_JOB_NAMES_H

#include "job/job.h"

typedef struct by__job_names {
    const char **names; /* distinct names of all ranks */
    size_t count;
    size_t all;     /* total over all ranks, with repetitions */
    int32_t *row;   /* [all] index in `names` */
    size_t *told;   /* [ranks] number of names of each */
    size_t *counts; /* [ranks] bytes that each sends */
    char *text;     /* owns the names */
} by__job_names;

/* Collective. `own`: this rank's `count` names, each ended by NUL. `what` is for errors. Freed with
 * by__job_names_close, also on failure; {0} is accepted. */
by_status by__job_names_open(by__job_names *out, const by__job *job, const by_string *own,
                             size_t count, const char *what, by_error *error);
void by__job_names_close(by__job_names *names);
/* Collective: out [all][width] = the rows `mine` [own count][width] of all ranks. */
by_status by__job_names_gather(by__job_names *names, const by__job *job, const double *mine,
                               double *out, size_t width, const char *what, by_error *error);
/* Collective: out = the `bytes` of each rank, concatenated. */
by_status by__job_gather(by__job_names *names, const by__job *job, const void *mine, void *out,
                         size_t bytes, const char *what, by_error *error);
int by__job_ranks(const by__job *job);

#endif
