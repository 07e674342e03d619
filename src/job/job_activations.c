/* Statistics of activations, combined from all ranks by rank 0. Ranks that hold the same value, as
 * along a tensor axis, add equal numbers to sums and to the count of elements, so that means and
 * fractions are those of one. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "job/job_names.h"
#include "trainer/probes/activations.h"

#define WIDTH BY__ACTIVATION_NUMBERS

struct by__job_activations {
    by__job_names names;
    double *theirs; /* of all ranks, then per name */
};

by_status by__job_activations_open(by__job *job, by_error *error)
{
    const by_trainer *t = job->trainer;
    by_string own = {0};
    if (t->probes.activations == NULL) {
        return BY_OK;
    }
    BY_TRY(
        by__alloc((void **)&job->activations, 1, sizeof *job->activations, "activations", error));
    by__job_activations *a = job->activations;
    size_t count = by__trainer_activations_count(t);
    for (size_t i = 0; i < count; i++) {
        const char *name = by__trainer_activations_name(t, i);
        by_string_add(&own, name, strlen(name) + 1);
    }
    by_status status =
        by__job_names_open(&a->names, job, &own, count, "names of activations", error);
    by_string_free(&own);
    BY_TRY(status);
    return by__alloc((void **)&a->theirs, (a->names.all + a->names.count + 1) * WIDTH,
                     sizeof *a->theirs, "activations", error);
}

void by__job_activations_close(by__job_activations **activations)
{
    by__job_activations *a = *activations;
    if (a != NULL) {
        by__job_names_close(&a->names);
        free(a->theirs);
        free(a);
        *activations = NULL;
    }
}

enum { MEAN, RMS, MAX, ZEROS, NONFINITE, KINDS };

static double statistic(const double *n, int kind)
{
    double count = n[BY__ACTIVATION_COUNT];
    return kind == MEAN    ? n[BY__ACTIVATION_SUM] / count
           : kind == RMS   ? sqrt(n[BY__ACTIVATION_SQUARES] / count)
           : kind == ZEROS ? n[BY__ACTIVATION_ZEROS] / count
           : kind == MAX   ? n[BY__ACTIVATION_LARGEST]
                           : n[BY__ACTIVATION_NONFINITE] / count;
}

static void log_statistics(by__job *job, int64_t step, const double *totals)
{
    static const char *const events[KINDS] = {[MEAN] = "activation_mean",
                                              [RMS] = "activation_rms",
                                              [MAX] = "activation_max",
                                              [ZEROS] = "activation_zeros",
                                              [NONFINITE] = "activation_nonfinite"};
    const by__job_names *names = &job->activations->names;
    for (int kind = 0; kind < KINDS; kind++) {
        by__track_begin(job->tracker, BY__EVENT_LAYERS, events[kind], (uint64_t)step);
        for (size_t i = 0; i < names->count; i++) {
            by__track_number(job->tracker, names->names[i], statistic(totals + i * WIDTH, kind));
        }
        by__track_end(job->tracker);
    }
}

by_status by__job_activations_log(by__job *job, int64_t step, by_error *error)
{
    by__job_activations *a = job->activations;
    const double *mine = by__trainer_activations_numbers(job->trainer);
    if (a == NULL || mine == NULL || a->names.count == 0) {
        return BY_OK;
    }
    BY_TRY(by__job_names_gather(&a->names, job, mine, a->theirs, WIDTH, "activations", error));
    if (!by__job_leads(job)) {
        return BY_OK;
    }
    double *totals = a->theirs + a->names.all * WIDTH;
    memset(totals, 0, a->names.count * WIDTH * sizeof *totals);
    for (size_t i = 0; i < a->names.all; i++) {
        const double *from = a->theirs + i * WIDTH;
        double *to = totals + (size_t)a->names.row[i] * WIDTH;
        for (int k = 0; k < WIDTH; k++) {
            to[k] = k == BY__ACTIVATION_LARGEST ? fmax(to[k], from[k]) : to[k] + from[k];
        }
    }
    log_statistics(job, step, totals);
    return BY_OK;
}
