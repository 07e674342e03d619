/* Norms and histograms of tensors, combined from all ranks by rank 0.
 *
 * A rank has some tensors, or pieces of them (layer_norms.h); rank 0 adds the numbers of each name
 * in the order of ranks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "job/job_names.h"
#include "trainer/probes/layer_norms.h"

struct by__job_layers {
    by__store_handle *own; /* entries of which this rank has pieces */
    size_t own_count;
    by__job_names tensors;
    double *mine;
    double *theirs;
};

static size_t entries_of(const by__job *job)
{
    return by__store_count(job->trainer->store);
}

static by_status list_own(by__job_layers *l, const by__job *job, by_string *names, by_error *error)
{
    BY_TRY(by__alloc((void **)&l->own, entries_of(job), sizeof *l->own, "norms", error));
    for (size_t i = 0; i < entries_of(job); i++) {
        if (by__trainer_layers_has(job->trainer, (by__store_handle)i)) {
            const char *name = by__store_entry(job->trainer->store, (by__store_handle)i)->name;
            l->own[l->own_count++] = (by__store_handle)i;
            by_string_add(names, name, strlen(name) + 1);
        }
    }
    return BY_OK;
}

by_status by__job_layers_open(by__job *job, by_error *error)
{
    by_string names = {0};
    if (job->trainer->probes.norms == NULL) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&job->layers, 1, sizeof *job->layers, "norms", error));
    by__job_layers *l = job->layers;
    by_status status = list_own(l, job, &names, error);
    if (status == BY_OK) {
        status =
            by__job_names_open(&l->tensors, job, &names, l->own_count, "names of norms", error);
    }
    by_string_free(&names);
    BY_TRY(status);
    BY_TRY(by__alloc((void **)&l->mine, l->own_count * BY__NORMS, sizeof *l->mine, "norms", error));
    return by__alloc((void **)&l->theirs, (l->tensors.all + l->tensors.count) * BY__NORMS,
                     sizeof *l->theirs, "norms", error);
}

void by__job_layers_close(by__job_layers **layers)
{
    by__job_layers *l = *layers;
    if (l != NULL) {
        free(l->own);
        by__job_names_close(&l->tensors);
        free(l->mine);
        free(l->theirs);
        free(l);
        *layers = NULL;
    }
}

/* ---- norms ---- */

static void log_norms(by__job *job, int64_t step, const double *sums)
{
    static const char *const names[BY__NORMS] = {[BY__NORM_GRADIENT] = "gradient_norm",
                                                 [BY__NORM_WEIGHT] = "weight_norm",
                                                 [BY__NORM_UPDATE] = "update_norm"};
    const by__job_layers *l = job->layers;
    for (int kind = 0; kind < BY__NORMS; kind++) {
        by__track_begin(job->tracker, BY__EVENT_LAYERS, names[kind], (uint64_t)step);
        for (size_t i = 0; i < l->tensors.count; i++) {
            by__track_number(job->tracker, l->tensors.names[i],
                             sqrt(sums[i * BY__NORMS + (size_t)kind]));
        }
        by__track_end(job->tracker);
    }
}

by_status by__job_norms(by__job *job, int64_t step, by_error *error)
{
    by__job_layers *l = job->layers;
    const double *sums = by__trainer_layers_sums(job->trainer);
    if (sums == NULL) {
        return BY_OK;
    }
    for (size_t i = 0; i < l->own_count; i++) {
        memcpy(l->mine + i * BY__NORMS, sums + (size_t)l->own[i] * BY__NORMS,
               BY__NORMS * sizeof *sums);
    }
    BY_TRY(by__job_names_gather(&l->tensors, job, l->mine, l->theirs, BY__NORMS, "norms", error));
    if (!by__job_leads(job)) {
        return BY_OK;
    }
    double *total = l->theirs + l->tensors.all * BY__NORMS;
    memset(total, 0, l->tensors.count * BY__NORMS * sizeof *total);
    for (size_t i = 0; i < l->tensors.all; i++) {
        for (size_t kind = 0; kind < BY__NORMS; kind++) {
            total[(size_t)l->tensors.row[i] * BY__NORMS + kind] += l->theirs[i * BY__NORMS + kind];
        }
    }
    log_norms(job, step, total);
    return BY_OK;
}

/* ---- histograms ---- */

typedef struct counted_values {
    double facts[4]; /* sum, sum of squares, minimum, maximum */
    double count[BY__BUCKETS];
} counted_values;

static void log_histogram(by__job *job, int64_t step, const char *what, const char *tensor,
                          const counted_values *c)
{
    double limit[BY__BUCKETS];
    double count[BY__BUCKETS];
    by__track_histogram h = {.min = c->facts[2],
                             .max = c->facts[3],
                             .sum = c->facts[0],
                             .squares = c->facts[1],
                             .limit = limit,
                             .count = count};
    for (uint32_t i = 0; i < BY__BUCKETS; i++) {
        if (c->count[i] == 0.0) {
            continue;
        }
        if (i > 0 && c->count[i - 1] == 0.0 && h.buckets > 0) { /* all buckets before are empty */
            limit[h.buckets] = by__trainer_bucket_limit(i - 1);
            count[h.buckets++] = 0.0;
        }
        limit[h.buckets] = by__trainer_bucket_limit(i);
        count[h.buckets++] = c->count[i];
    }
    if (h.buckets == 0) {
        return;
    }
    by__track_begin(job->tracker, BY__EVENT_HISTOGRAM, what, (uint64_t)step);
    by__track_text(job->tracker, "tensor", tensor);
    by__track_add_histogram(job->tracker, &h);
    by__track_end(job->tracker);
}

static by__store_handle own_entry(const by__job *job, const char *name)
{
    by__store_handle found = by__store_find(job->trainer->store, name);
    return found != BY__NO_ENTRY && by__trainer_layers_has(job->trainer, found) ? found
                                                                                : BY__NO_ENTRY;
}

/* Combines one tensor over all ranks. `all` has room for the counts of each rank. */
static by_status add_histogram(by__job *job, int64_t step, size_t tensor, bool gradient,
                               counted_values *mine, counted_values *all, by_error *error)
{
    by__job_names *tensors = &job->layers->tensors;
    by__store_handle entry = own_entry(job, tensors->names[tensor]);
    *mine = (counted_values){.facts = {0.0, 0.0, INFINITY, -INFINITY}};
    BY_TRY(entry == BY__NO_ENTRY ? BY_OK
                                 : by__trainer_layers_histogram(job->trainer, entry, gradient,
                                                                mine->count, mine->facts, error));
    BY_TRY(by__job_gather(tensors, job, mine, all, sizeof *mine, "histograms", error));
    if (!by__job_leads(job)) {
        return BY_OK;
    }
    for (int r = 1; r < by__job_ranks(job); r++) {
        all[0].facts[0] += all[r].facts[0];
        all[0].facts[1] += all[r].facts[1];
        all[0].facts[2] = fmin(all[0].facts[2], all[r].facts[2]);
        all[0].facts[3] = fmax(all[0].facts[3], all[r].facts[3]);
        for (size_t i = 0; i < BY__BUCKETS; i++) {
            all[0].count[i] += all[r].count[i];
        }
    }
    log_histogram(job, step, gradient ? "gradient" : "weight", tensors->names[tensor], all);
    return BY_OK;
}

by_status by__job_histograms(by__job *job, int64_t step, by_error *error)
{
    by__job_layers *l = job->layers;
    counted_values *scratch;
    size_t ranks = (size_t)by__job_ranks(job);
    BY_TRY(by__alloc((void **)&scratch, ranks + 1, sizeof *scratch, "histograms", error));
    by_status status = BY_OK;
    for (size_t i = 0; i < 2 * l->tensors.count && status == BY_OK; i++) {
        status = add_histogram(job, step, i / 2, i % 2 != 0, scratch, scratch + 1, error);
    }
    free(scratch);
    return status;
}
