/* Held-out pictures by the shards in which they are: loss and metrics of each, and of all. */
#include <stdlib.h>
#include <string.h>

#include "data/loader/array_set.h"
#include "tasks/examples/examples.h"

/* The held-out pictures of one shard. */
struct by__task_examples_shard {
    const char *path; /* of the shard, borrowed from the folder */
    char name[40];
    char key[64];
    char metric_key[64];
    uint64_t *rows; /* of the held-out set */
    by_part part;
};

/* The name of a shard without folders and without what follows its first dot, made different from
 * those of earlier ones; letters, digits, dashes and underscores. */
static void name_shard(by__task_examples_shard *shards, size_t index, const by_task *task)
{
    by__task_examples_shard *s = &shards[index];
    const char *slash = strrchr(s->path, '/');
    const char *from = slash == NULL ? s->path : slash + 1;
    from = strcspn(from, ".") > 0 ? from : "shard";
    size_t length = strcspn(from, ".");
    length = length < 28 ? length : 28;
    memcpy(s->name, from, length);
    s->name[length] = '\0';
    for (size_t i = 0; i < length; i++) {
        bool fits = (from[i] >= 'a' && from[i] <= 'z') || (from[i] >= 'A' && from[i] <= 'Z') ||
                    (from[i] >= '0' && from[i] <= '9') || from[i] == '-';
        s->name[i] = fits ? from[i] : '_';
    }
    for (size_t i = 0; i < index; i++) {
        if (strcmp(shards[i].name, s->name) == 0) {
            (void)snprintf(s->name + length, sizeof s->name - length, "_%zu", index);
            break;
        }
    }
    (void)snprintf(s->key, sizeof s->key, "valid_loss_%s", s->name);
    (void)snprintf(s->metric_key, sizeof s->metric_key, "%.20s_%s",
                   task->metric_count > 0 ? task->metrics[0].name : "", s->name);
}

/* Which of the shards found so far a picture is in; a new one if there is room. */
static size_t shard_of(by__task_examples_shard *shards, size_t *count, const char *path)
{
    size_t i = 0;
    while (i < *count && strcmp(shards[i].path, path) != 0) {
        i++;
    }
    if (i == *count && *count < BY_TASK_PARTS) {
        shards[(*count)++].path = path;
    }
    return i;
}

static int compare_shards(const void *a, const void *b)
{
    return strcmp(((const by__task_examples_shard *)a)->path,
                  ((const by__task_examples_shard *)b)->path);
}

/* Finds up to BY_TASK_PARTS shards, in the order of their paths; *count 0: they are more, or
 * something else. */
static void find_shards(by__task_examples_shard *shards, size_t *count, const by__image_folder *f)
{
    *count = 0;
    for (size_t i = 0; i < f->count; i++) {
        if (f->files[i].range.sample == NULL ||
            shard_of(shards, count, f->files[i].path) == BY_TASK_PARTS) {
            *count = 0;
            return;
        }
    }
    qsort(shards, *count, sizeof *shards, compare_shards);
}

static by_status list_rows(by__task_examples_shard *shards, size_t count, const by__image_folder *f,
                           by_error *error)
{
    for (size_t i = 0; i < f->count; i++) {
        shards[shard_of(shards, &count, f->files[i].path)].part.count++;
    }
    for (size_t s = 0; s < count; s++) {
        by_part *part = &shards[s].part;
        BY_TRY(by__alloc((void **)&shards[s].rows, part->count, sizeof *shards[s].rows,
                         "held-out pictures", error));
        *part = (by_part){.total = f->count, .rows = shards[s].rows};
    }
    for (size_t i = 0; i < f->count; i++) {
        by__task_examples_shard *s = &shards[shard_of(shards, &count, f->files[i].path)];
        s->rows[s->part.count++] = i;
    }
    return BY_OK;
}

by_status by__task_examples_find_parts(by__task_examples *d, by_error *error)
{
    const by__image_folder *f = d->train != NULL ? &d->others : &d->folder;
    size_t count;
    if (d->valid == NULL || d->is_predicted || f->count != by_array_set_examples(d->valid)) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&d->shards, BY_TASK_PARTS, sizeof *d->shards, "shards", error));
    find_shards(d->shards, &count, f);
    if (count < 2) {
        return BY_OK;
    }
    BY_TRY(list_rows(d->shards, count, f, error));
    for (size_t i = 0; i < count; i++) {
        by__task_examples_shard *s = &d->shards[i];
        name_shard(d->shards, i, d->base.task);
        d->base.parts[i] =
            (by_task_part){.name = s->name,
                           .key = s->key,
                           .metric_key = d->base.task->metric_count > 0 ? s->metric_key : NULL};
    }
    d->base.part_count = count;
    return BY_OK;
}

void by__task_examples_close_parts(by__task_examples *d)
{
    for (size_t i = 0; d->shards != NULL && i < BY_TASK_PARTS; i++) {
        free(d->shards[i].rows);
    }
    free(d->shards);
}

by_status by__task_examples_source_parts(by_source **out, by__task_examples *d,
                                         const by_config *config, by_error *error)
{
    by_source *parts[BY_TASK_PARTS];
    uint64_t ends[BY_TASK_PARTS];
    uint64_t unit = (uint64_t)config->train.micro_batch;
    int64_t batches = config->train.eval_batches;
    size_t count = d->base.part_count;
    for (size_t i = 0; i < count; i++) {
        by_status status =
            by__task_examples_source_of(&parts[i], d, d->valid, &d->shards[i].part, false, error);
        if (status != BY_OK) {
            while (i-- > 0) {
                by_source_close(&parts[i]);
            }
            return status;
        }
    }
    BY_TRY(by_joined_source_open(out, parts, count, unit,
                                 batches < 0 ? 0 : (uint64_t)batches * unit, ends, error));
    for (size_t i = 0; i < count; i++) {
        d->base.parts[i].end = ends[i];
    }
    return BY_OK;
}
