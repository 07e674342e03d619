/* What the weights at the start make of the samples of a task that compares a model with them
 * (by_task_reference): the program of the loss computes it before the first step, and data.cache
 * keeps it in a file that is named by a hash of weights and samples. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/paths.h"
#include "job/job.h"
#include "tasks/text/preference_keys.h"
#include "trainer/exchange/exchange.h"
#include "trainer/step/trainer_step.h"

/* A data set. */
typedef struct reference_set {
    by_source *source; /* NULL: it needs no values */
    char content[33];
    uint64_t samples;
    float *values; /* [samples, BY_REFERENCE_VALUES] */
    char name[24]; /* in the file */
} reference_set;

typedef struct references {
    by_trainer *trainer;
    by_task_data *data;
    const by__job_reference_user *user;
    reference_set *sets;
    size_t count;
    char *path; /* of the file */
    size_t ranks;
    size_t rank;
} references;

/* ---- names ---- */

static by_status add_tensor(by__hasher *hasher, const by_weights *weights, size_t i,
                            by_error *error)
{
    by_tensor_view view;
    size_t bytes;
    const char *name = by_weights_name(weights, i);
    BY_TRY(by_weights_tensor(weights, name, &view, error));
    BY_TRY(by_tensor_size(&view, NULL, &bytes, error));
    by__hasher_add(hasher, name, strlen(name) + 1);
    by__hasher_add_u64(hasher, (uint64_t)view.dtype);
    by__hasher_add_u64(hasher, bytes);
    by__hasher_add(hasher, view.data, bytes);
    return BY_OK;
}

static by_status add_weights(by__hasher *hasher, const char *path, by_error *error)
{
    by_weights *weights;
    BY_TRY(by_weights_open(&weights, path, error));
    by_status status = BY_OK;
    for (size_t i = 0; i < by_weights_count(weights) && status == BY_OK; i++) {
        status = add_tensor(hasher, weights, i, error);
    }
    by_weights_close(&weights);
    return status;
}

/* The file's path: of everything that the values depend on. */
static by_status name_file(references *r, by_error *error)
{
    const by_config *c = r->trainer->config;
    by__hasher *hasher;
    char key[33];
    char name[64];
    BY_TRY(by__hasher_open(&hasher, error));
    by__hasher_add(hasher, "reference 1", 11);
    by__hasher_add(hasher, c->precision.compute, strlen(c->precision.compute) + 1);
    by__hasher_add(hasher, c->device, strlen(c->device) + 1);
    if (strcmp(c->lora.base, "full") != 0) {
        by__hasher_add(hasher, c->lora.base, strlen(c->lora.base) + 1);
        by__hasher_add_u64(hasher, (uint64_t)c->lora.base_group);
    }
    const int64_t sizes[] = {c->model.context, c->model.vocab, c->train.micro_batch,
                             (int64_t)c->seed};
    by__hasher_add(hasher, sizes, sizeof sizes);
    for (size_t i = 0; i < r->count; i++) {
        by__hasher_add(hasher, r->sets[i].content, sizeof r->sets[i].content);
    }
    by_status status = add_weights(hasher, by__task_reference_path(c), error);
    if (status == BY_OK && c->lora.from[0] != '\0') {
        by__hasher_add_u64(hasher, (uint64_t)c->lora.rank);
        status = add_weights(hasher, c->lora.from, error);
    }
    by__hasher_hex(hasher, key);
    by__hasher_close(&hasher);
    BY_TRY(status);
    (void)snprintf(name, sizeof name, "reference-%s.safetensors", key);
    return by__path_make(&r->path, c->data.cache, name, error);
}

/* ---- the file ---- */

static by_status read_set(const by_weights *file, const reference_set *s, by_error *error)
{
    by_tensor_view view;
    BY_TRY(by_weights_tensor(file, s->name, &view, error));
    return by_tensor_read_f32(&view, s->values, (size_t)s->samples * BY_REFERENCE_VALUES, error);
}

/* Reads the values of all sets; *there is false, on all ranks, if one of these has no file. */
static by_status read_file(const references *r, bool *there, by_error *error)
{
    by_weights *file;
    int32_t *all;
    size_t *counts;
    *there = by__path_exists(r->path);
    BY_TRY(by__alloc((void **)&all, r->ranks, sizeof *all, "ranks", error));
    by_status status = by__alloc((void **)&counts, r->ranks, sizeof *counts, "ranks", error);
    for (size_t i = 0; i < r->ranks && status == BY_OK; i++) {
        counts[i] = 1;
    }
    if (status == BY_OK) {
        bool lacks = !*there;
        status = by__trainer_ranks_agree(r->trainer, &lacks, error);
        all[r->rank] = lacks ? 0 : 1;
    }
    if (status == BY_OK) {
        status = by__trainer_ranks_gather(r->trainer, &all[r->rank], all, counts, error);
    }
    *there = status == BY_OK;
    for (size_t i = 0; i < r->ranks; i++) {
        *there = *there && all[i] != 0;
    }
    free(all);
    free(counts);
    if (!*there) {
        return status;
    }
    BY_TRY(by_weights_open(&file, r->path, error));
    for (size_t i = 0; i < r->count && status == BY_OK; i++) {
        status = r->sets[i].source == NULL ? BY_OK : read_set(file, &r->sets[i], error);
    }
    by_weights_close(&file);
    return status == BY_OK
               ? BY_OK
               : by_error_prefix(error, status, "%s: remove it, to compute it again", r->path);
}

static by_status write_file(const references *r, by_error *error)
{
    by_tensor_view *views;
    size_t count = 0;
    BY_TRY(by__make_dirs(r->trainer->config->data.cache, error));
    BY_TRY(by__alloc((void **)&views, r->count, sizeof *views, "references", error));
    for (size_t i = 0; i < r->count; i++) {
        const reference_set *s = &r->sets[i];
        if (s->source != NULL) {
            views[count++] = (by_tensor_view){.name = s->name,
                                              .dtype = BY_F32,
                                              .rank = 2,
                                              .shape = {(int64_t)s->samples, BY_REFERENCE_VALUES},
                                              .data = s->values};
        }
    }
    by_status status = by_tensors_write(r->path, views, count, error);
    free(views);
    return status;
}

/* ---- values ---- */

/* This rank's micro-batch of a round, or none. */
static by_status rate_own(const references *r, by_loader *loader, bool has, float *out,
                          by_error *error)
{
    by_batch batch;
    double sum;
    const float *values;
    size_t width;
    if (!has) {
        return by__job_ranks_evaluate_together(r->trainer)
                   ? by__job_ranks_evaluate_nothing(r->trainer, error)
                   : BY_OK;
    }
    BY_TRY(by_loader_next(loader, &batch, error));
    BY_TRY(by_trainer_evaluate(r->trainer, &batch, &sum, &values, &width, error));
    for (size_t i = 0; i < batch.batch; i++) {
        memcpy(out + i * BY_REFERENCE_VALUES, values + i * width,
               BY_REFERENCE_VALUES * sizeof *out);
    }
    return BY_OK;
}

/* Ranks rate micro-batches in turn; each gets the values of all. `all` and `counts` are of one
 * round. */
static by_status rate_rounds(const references *r, reference_set *s, by_loader *loader, float *all,
                             size_t *counts, by_error *error)
{
    uint64_t micro = (uint64_t)r->trainer->config->train.micro_batch;
    size_t numbers = (size_t)micro * BY_REFERENCE_VALUES;
    for (size_t i = 0; i < r->ranks; i++) {
        counts[i] = numbers;
    }
    for (uint64_t at = 0; at < s->samples; at += micro * r->ranks) {
        bool stopped = r->user->stop != NULL && r->user->stop(r->user->user);
        BY_TRY(by__trainer_ranks_agree(r->trainer, &stopped, error));
        float *own = all + r->rank * numbers;
        memset(own, 0, numbers * sizeof *own);
        if (r->ranks == 1 && stopped) {
            return by_error_set(error, BY_ESTOPPED, "stopped before the first step");
        }
        BY_TRY(rate_own(r, loader, at + r->rank * micro < s->samples, own, error));
        BY_TRY(by__trainer_ranks_gather(r->trainer, own, all, counts, error));
        uint64_t left = s->samples - at;
        uint64_t count = left < micro * r->ranks ? left : micro * r->ranks;
        memcpy(s->values + at * BY_REFERENCE_VALUES, all,
               (size_t)count * BY_REFERENCE_VALUES * sizeof *all);
    }
    return BY_OK;
}

static by_status rate(const references *r, reference_set *s, by_error *error)
{
    size_t micro = (size_t)r->trainer->config->train.micro_batch;
    const by_loader_options options = {.seed = r->trainer->config->seed,
                                       .threads = 1,
                                       .batch = micro * r->ranks,
                                       .first = micro * r->rank,
                                       .count = micro};
    by_loader *loader = NULL;
    float *all = NULL;
    size_t *counts = NULL;
    by_source *source = s->source;
    by_status status = by__alloc((void **)&all, r->ranks * micro * BY_REFERENCE_VALUES, sizeof *all,
                                 "values", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&counts, r->ranks, sizeof *counts, "values", error);
    }
    if (status == BY_OK) {
        char content[33];
        status = r->data->task->reference->source(&source, content, r->data, r->trainer->config,
                                                  (size_t)(s - r->sets), error);
    }
    if (status == BY_OK) {
        status = by_loader_open(&loader, source, &options, error);
    }
    if (status == BY_OK) {
        status = rate_rounds(r, s, loader, all, counts, error);
    }
    by_loader_close(&loader);
    free(all);
    free(counts);
    return status;
}

/* A run needs what it began on as long as it is trained or evaluated. */
static by_status check_there(const by_config *c, by_error *error)
{
    const char *path = by__task_reference_path(c);
    const char *key = "task.reference_from";
    if (by__path_exists(path)) {
        path = c->lora.from;
        key = "lora.from";
    }
    return path[0] == '\0' || by__path_exists(path)
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "the reference, %s: there is no such directory, and the preferences "
                              "are compared with its weights: restore it, or set %s to a copy of "
                              "it (banyan train --resume RUN --set %s=DIR)",
                              path, key, key);
}

/* Loads the weights at the start. */
static by_status load_start(const references *r, by_error *error)
{
    const by_config *c = r->trainer->config;
    by_weights *weights;
    const by__trainer_recipe recipe = r->user->recipe;
    if (r->user->begins) {
        BY_TRY(by_trainer_initialize(r->trainer, error));
    }
    BY_TRY(by_weights_open(&weights, by__task_reference_path(c), error));
    by_status status = by__trainer_start_from(r->trainer, weights, r->data->known_tokens, error);
    by_weights_close(&weights);
    return status == BY_OK ? by__trainer_adapters_load(r->trainer, c, &recipe, error) : status;
}

static by_status make(const references *r, by_error *error)
{
    BY_TRY(load_start(r, error));
    for (size_t i = 0; i < r->count; i++) {
        if (r->sets[i].source != NULL) {
            BY_TRY(rate(r, &r->sets[i], error));
        }
    }
    return r->user->leads ? write_file(r, error) : BY_OK;
}

/* ---- everything ---- */

static by_status open_sets(references *r, by_error *error)
{
    const by_task_reference *of = r->data->task->reference;
    for (size_t i = 0; i < r->count; i++) {
        reference_set *s = &r->sets[i];
        BY_TRY(of->source(&s->source, s->content, r->data, r->trainer->config, i, error));
        (void)snprintf(s->name, sizeof s->name, "%zu", i);
        if (s->source != NULL) {
            s->samples = s->source->samples;
            BY_TRY(by__alloc((void **)&s->values, (size_t)s->samples * BY_REFERENCE_VALUES,
                             sizeof *s->values, "references", error));
        }
    }
    return BY_OK;
}

static by_status find_values(references *r, by_error *error)
{
    bool there;
    BY_TRY(open_sets(r, error));
    BY_TRY(name_file(r, error));
    BY_TRY(read_file(r, &there, error));
    if (!there) {
        BY_TRY(make(r, error));
    }
    for (size_t i = 0; i < r->count; i++) {
        if (r->sets[i].source != NULL) {
            r->data->task->reference->keep(r->data, i, r->sets[i].values);
            r->sets[i].values = NULL;
        }
    }
    return BY_OK;
}

bool by__job_has_references(const by_task_data *data, const by_config *config)
{
    return data->task->reference != NULL && data->task->reference->sets(data, config) > 0;
}

by_status by__job_references(by_trainer *trainer, by_task_data *data,
                             const by__job_reference_user *user, by_error *error)
{
    references r = {.trainer = trainer, .data = data, .user = user};
    const char *from = by__task_reference_path(trainer->config);
    BY_TRY(check_there(trainer->config, error));
    r.count = data->task->reference->sets(data, trainer->config);
    r.ranks = by__trainer_ranks_replicas(trainer, &r.rank);
    BY_TRY(by__alloc((void **)&r.sets, r.count, sizeof *r.sets, "references", error));
    by_status status = find_values(&r, error);
    for (size_t i = 0; i < r.count; i++) {
        by_source_close(&r.sets[i].source);
        free(r.sets[i].values);
    }
    free(r.sets);
    free(r.path);
    return status == BY_OK || status == BY_ESTOPPED
               ? status
               : by_error_prefix(error, status, "the reference, %s", from);
}
