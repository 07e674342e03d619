/* Things by name of which ranks have some, or parts of the same: ranks tell each other once which,
 * and then send a fixed number of numbers for each, in that order. */
#ifndef BY_TRAIN_JOB_NAMES_H
#define BY_TRAIN_JOB_NAMES_H

#include "train/loop.h"

typedef struct by__job_names {
    const char **names; /* of all ranks, each once */
    size_t count;
    size_t all;     /* those of all ranks, one behind another */
    int32_t *row;   /* of each of them: which name it is */
    size_t *told;   /* of each rank: how many it has */
    size_t *counts; /* of each rank: bytes that it sends */
    char *text;     /* owns the names */
} by__job_names;

/* Collective. `own`: this rank's `count` names, each with its NUL. `what` is for errors. Freed with
 * by__job_names_close, also when this fails; {0} is accepted. */
by_status by__job_names_open(by__job_names *out, const by__job *job, const by__text *own,
                             size_t count, const char *what, by_error *error);
void by__job_names_close(by__job_names *names);
/* Collective: out [all][width] = the `mine` [own count][width] of all ranks. */
by_status by__job_names_gather(by__job_names *names, const by__job *job, const double *mine,
                               double *out, size_t width, const char *what, by_error *error);
/* Collective: out = the `bytes` of each rank, in turn. */
by_status by__job_gather(by__job_names *names, const by__job *job, const void *mine, void *out,
                         size_t bytes, const char *what, by_error *error);
int by__job_ranks(const by__job *job);

#endif
