/* The parts of examples in memory: a share of them, or those that lists name; and how often they
 * are drawn. */
#include <stdlib.h>
#include <string.h>

#include "data/loader/array_set.h"
#include "data/loader/draws.h"
#include "data/loader/row_list.h"
#include "tasks/examples/examples.h"

static by_status refuse_common(const by__task_examples *d, uint64_t example, by_error *error)
{
    return by_error_set(error, BY_ECONFIG,
                        "example %llu is in both %s and %s: what is held out is not trained on",
                        (unsigned long long)example, d->keys->train_rows, d->keys->valid_rows);
}

/* Reads the lists of both parts; the one to train on has the examples that are not held out if the
 * config names none. */
static by_status read_lists(by__task_examples *d, uint64_t examples, bool valid_apart,
                            by_error *error)
{
    const by__task_examples_keys *k = d->keys;
    bool trains = k->train_rows[0] != '\0';
    bool validates = k->valid_rows[0] != '\0';
    uint64_t example;
    bool found;
    if (validates == valid_apart) {
        return by_error_set(error, BY_ECONFIG,
                            valid_apart ? "data.valid_rows: the data to evaluate on is named by "
                                          "itself; leave one of the two out"
                                        : "data.train_rows: which examples are held out? set "
                                          "data.valid_rows");
    }
    if (validates) {
        BY_TRY(by__loader_row_list_read(&d->valid_rows, &d->valid_part.count, k->valid_rows,
                                        examples, error));
    }
    if (trains) {
        BY_TRY(by__loader_row_list_read(&d->train_rows, &d->train_part.count, k->train_rows,
                                        examples, error));
    } else {
        BY_TRY(by__loader_row_list_complement(&d->train_rows, &d->train_part.count, d->valid_rows,
                                              d->valid_part.count, examples, error));
    }
    if (trains && validates) {
        BY_TRY(by__loader_row_list_common(&found, &example, d->train_rows, d->train_part.count,
                                          d->valid_rows, d->valid_part.count, examples, error));
        return found ? refuse_common(d, example, error) : BY_OK;
    }
    return d->train_part.count > 0
               ? BY_OK
               : by_error_set(error, BY_ECONFIG, "%s leaves no example to train on", k->valid_rows);
}

by_status by__task_examples_split(by__task_examples *d, const by_config *config, uint64_t examples,
                                  bool valid_apart, by_error *error)
{
    const by__task_examples_keys *k = d->keys;
    if (k->train_rows[0] == '\0' && k->valid_rows[0] == '\0') {
        const by_split how = {
            .valid = valid_apart ? 0 : by_split_count(examples, config->data.valid_fraction),
            .seed = config->seed,
            .random = strcmp(k->split, "random") == 0};
        return by_split_parts(&d->train_part, &d->valid_part, NULL, examples, &how, error);
    }
    BY_TRY(read_lists(d, examples, valid_apart, error));
    d->train_part.total = examples;
    d->train_part.rows = d->train_rows;
    d->valid_part.total = examples;
    d->valid_part.rows = d->valid_rows;
    return BY_OK;
}

by_status by__task_examples_read_draws(by__task_examples *d, uint64_t examples, by_error *error)
{
    const by__task_examples_keys *k = d->keys;
    const by__task_row *row = by__task_row_of(d->base.task);
    if (strcmp(k->balance, "classes") == 0 && (!row->classes || row->tags || row->maps)) {
        return by_error_set(error, BY_ECONFIG,
                            "data.balance classes: task.kind %s has no classes; data.draws says of "
                            "each example how often it is drawn",
                            d->base.task->name);
    }
    return k->draws[0] == '\0' ? BY_OK
                               : by__loader_draws_read(&d->draws, k->draws, examples, error);
}

static void hash_part(by__hasher *hasher, const by_part *part)
{
    by__hasher_add(hasher, &part->count, sizeof part->count);
    for (uint64_t i = 0; i < part->count; i++) {
        uint64_t row = part->rows[i];
        by__hasher_add(hasher, &row, sizeof row);
    }
}

by_status by__task_examples_hash(by__task_examples *d, by_error *error)
{
    by__hasher *hasher;
    const char *hash = by_array_set_hash(d->train);
    memcpy(d->train_hash, hash, sizeof d->train_hash);
    if (d->train_part.rows == NULL && d->draws == NULL) {
        return BY_OK;
    }
    BY_TRY(by__hasher_open(&hasher, error));
    by__hasher_add(hasher, hash, strlen(hash));
    if (d->train_part.rows != NULL) {
        hash_part(hasher, &d->train_part);
    }
    for (uint64_t i = 0; i < d->train_part.total && d->draws != NULL; i++) {
        by__hasher_add(hasher, &d->draws[i], sizeof d->draws[i]);
    }
    by__hasher_hex(hasher, d->train_hash);
    by__hasher_close(&hasher);
    return BY_OK;
}

/* ---- classes ---- */

static by_status count_part(uint64_t *counts, size_t classes, const by_array_set *set,
                            const by_part *part, by_error *error)
{
    const by_array *labels = set == NULL ? NULL : by_array_set_find(set, "labels");
    by__loader_part_rows rows;
    by__loader_part_rows_init(&rows, part);
    for (uint64_t i = 0; labels != NULL && i < part->count; i++) {
        int32_t label = ((const int32_t *)labels->data)[by__part_row(&rows, i)];
        if (label < 0 || (size_t)label >= classes) {
            return by_error_set(error, BY_EARG, "%s: an example has the class %d, of %zu",
                                by_array_set_name(set), label, classes);
        }
        counts[label]++;
    }
    return BY_OK;
}

by_status by__task_examples_count_classes(by_task_data *data, const by_config *config,
                                          uint64_t epoch, size_t classes, uint64_t *trained,
                                          uint64_t *held_out, uint64_t *drawn, by_error *error)
{
    const by__task_examples *d = (const by__task_examples *)data;
    by_source *source;
    const by_array_set *valid = d->valid == NULL ? d->train : d->valid;
    BY_TRY(count_part(trained, classes, d->train, &d->train_part, error));
    BY_TRY(count_part(held_out, classes, valid, &d->valid_part, error));
    BY_TRY(data->task->plain(&source, data, error));
    const int32_t *labels = by_array_set_find(d->train, "labels")->data;
    for (uint64_t i = 0; i < source->samples; i++) {
        const by_source_sample sample = {.place = i, .epoch = epoch, .seed = config->seed};
        drawn[labels[by__loader_array_source_row(source, &sample)]]++;
    }
    by_source_close(&source);
    return BY_OK;
}
