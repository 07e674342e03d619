/* The examples of training data, one by one: what numbers mean that count them. */
#include <stdlib.h>

#include "data/loader/array_set.h"
#include "tasks/examples/examples.h"

/* What is known of each example of the set. */
typedef struct list_counts {
    uint64_t *drawn;
    uint8_t *parts; /* bits of these */
} list_counts;

enum { PART_TRAINED = 1, PART_HELD_OUT = 2 };

static void mark_part(uint8_t *parts, const by_part *part, uint8_t bit)
{
    by__loader_part_rows rows;
    by__loader_part_rows_init(&rows, part);
    for (uint64_t i = 0; i < part->count; i++) {
        parts[by__part_row(&rows, i)] |= bit;
    }
}

static by_status count_draws(list_counts *counts, by_task_data *data, const by_config *config,
                             uint64_t epoch, by_error *error)
{
    by_source *source;
    BY_TRY(by__task_examples_plain(&source, data, error));
    for (uint64_t i = 0; i < source->samples; i++) {
        const by_source_sample sample = {.place = i, .epoch = epoch, .seed = config->seed};
        counts->drawn[by__loader_array_source_row(source, &sample)]++;
    }
    by_source_close(&source);
    return BY_OK;
}

static void report_all(const list_counts *counts, const by__task_examples *d,
                       by_example_listed *report, void *user)
{
    const by_array *labels = by_array_set_find(d->train, "labels");
    bool is_class = labels != NULL && labels->dtype == BY_I32 && labels->shape.rank == 1;
    for (uint64_t i = 0; i < by_array_set_examples(d->train); i++) {
        by_example_use use = {.label = is_class ? ((const int32_t *)labels->data)[i] : -1,
                              .trained = (counts->parts[i] & PART_TRAINED) != 0,
                              .held_out = (counts->parts[i] & PART_HELD_OUT) != 0,
                              .draws = d->draws == NULL ? 1.0 : d->draws[i],
                              .drawn = counts->drawn[i]};
        by__task_examples_name_trained(&d->base, i, &use.name);
        report(user, &use);
    }
}

by_status by__task_examples_list(by_task_data *data, const by_config *config, uint64_t epoch,
                                 by_example_listed *report, void *user, by_error *error)
{
    const by__task_examples *d = (const by__task_examples *)data;
    size_t examples = (size_t)by_array_set_examples(d->train);
    list_counts counts = {0};
    by_status status =
        by__alloc((void **)&counts.drawn, examples, sizeof *counts.drawn, "a list", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&counts.parts, examples, 1, "a list", error);
    }
    if (status == BY_OK) {
        status = count_draws(&counts, data, config, epoch, error);
    }
    if (status == BY_OK) {
        mark_part(counts.parts, &d->train_part, PART_TRAINED);
        if (d->valid == NULL) {
            mark_part(counts.parts, &d->valid_part, PART_HELD_OUT);
        }
        report_all(&counts, d, report, user);
    }
    free(counts.drawn);
    free(counts.parts);
    return status;
}
