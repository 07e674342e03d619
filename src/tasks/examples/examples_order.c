/* How the order of an epoch mixes the files of training data, beside that of a shuffle of all. */
#include <stdlib.h>
#include <string.h>

#include "data/loader/array_set.h"
#include "data/loader/order_quality.h"
#include "tasks/examples/examples.h"

/* Where each example of the set lies, and which ones the samples of an epoch are. */
typedef struct epoch_samples {
    uint64_t *place_of; /* [examples] place in the order of the files */
    uint32_t *file_of;  /* [examples] */
    size_t files;
    uint64_t *places; /* [samples] */
    uint32_t *numbers;
    int32_t *classes;
} epoch_samples;

/* An example, by where it lies. */
typedef struct placed_example {
    const char *path;
    uint64_t begin;
    uint64_t row;
} placed_example;

static int compare_places(const void *a, const void *b)
{
    const placed_example *x = a;
    const placed_example *y = b;
    int paths = x->path == y->path ? 0 : strcmp(x->path, y->path);
    return paths != 0             ? paths
           : x->begin != y->begin ? (x->begin > y->begin) - (x->begin < y->begin)
                                  : (x->row > y->row) - (x->row < y->row);
}

/* Pictures of folders and shards have places; what is in one array has those of its rows. */
static by_status find_places(epoch_samples *e, const by__task_examples *d, uint64_t examples,
                             by_error *error)
{
    placed_example *sorted;
    bool listed = d->folder.count == examples;
    BY_TRY(by__alloc((void **)&sorted, examples, sizeof *sorted, "an order", error));
    for (uint64_t i = 0; i < examples; i++) {
        const by__image_picture_file *file = listed ? &d->folder.files[i] : NULL;
        sorted[i] = (placed_example){
            .path = listed ? file->path : "", .begin = listed ? file->range.begin : i, .row = i};
    }
    if (listed) {
        qsort(sorted, examples, sizeof *sorted, compare_places);
    }
    for (uint64_t i = 0; i < examples; i++) {
        e->files += i == 0 || strcmp(sorted[i].path, sorted[i - 1].path) != 0;
        e->place_of[sorted[i].row] = i;
        e->file_of[sorted[i].row] = (uint32_t)e->files - 1;
    }
    free(sorted);
    return BY_OK;
}

/* Lists the samples of an epoch as a loader draws them; `all`: as it would without windows. */
static void list_samples(epoch_samples *e, const by__task_examples *d, const by_source *source,
                         uint64_t seed, uint64_t epoch, bool all)
{
    const by_array *labels = by_array_set_find(d->train, "labels");
    by__loader_order order;
    by__loader_windows windows;
    by__loader_order_init(&order, source->samples, seed, epoch);
    if (source->order_window > 0) {
        by__loader_windows_init(&windows, source->samples, source->order_block,
                                source->order_window, seed, epoch);
    }
    for (uint64_t i = 0; i < source->samples; i++) {
        by_source_sample sample = {.epoch = epoch, .seed = seed};
        sample.place = all || source->order_window == 0 ? by__loader_order_at(&order, i)
                                                        : by__loader_windows_at(&windows, i);
        uint64_t row = by__loader_array_source_row(source, &sample);
        e->places[i] = e->place_of[row];
        e->numbers[i] = e->file_of[row];
        if (e->classes != NULL) {
            e->classes[i] = ((const int32_t *)labels->data)[row];
        }
    }
}

static by_status measure(by_epoch_order *out, epoch_samples *e, const by__task_examples *d,
                         const by_source *source, const by_config *config, uint64_t epoch,
                         by_error *error)
{
    by__loader_drawn drawn = {.count = source->samples,
                              .places = e->places,
                              .examples = by_array_set_examples(d->train),
                              .files = e->numbers,
                              .file_count = e->files,
                              .classes = e->classes,
                              .class_count = (size_t)by__task_examples_classes(d),
                              .batch = (uint64_t)config->train.batch,
                              .window = source->order_block * source->order_window};
    drawn.window = drawn.window < drawn.count ? drawn.window : 0;
    *out = (by_epoch_order){
        .samples = drawn.count, .batch = drawn.batch, .window = drawn.window, .files = e->files};
    list_samples(e, d, source, config->seed, epoch, false);
    BY_TRY(by__loader_order_measure(&out->drawn, &drawn, error));
    list_samples(e, d, source, config->seed, epoch, true);
    return by__loader_order_measure(&out->shuffled, &drawn, error);
}

by_status by__task_examples_order(by_task_data *data, const by_config *config, uint64_t epoch,
                                  by_epoch_order *out, by_error *error)
{
    by__task_examples *d = (by__task_examples *)data;
    const by_array *labels = by_array_set_find(d->train, "labels");
    bool classes = labels != NULL && labels->dtype == BY_I32 && labels->shape.rank == 1;
    uint64_t examples = by_array_set_examples(d->train);
    by_source *source = NULL;
    epoch_samples e = {0};
    by_status status = by__task_examples_plain(&source, data, error);
    if (status == BY_OK) {
        status = by__alloc((void **)&e.place_of, examples, sizeof *e.place_of, "an order", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&e.file_of, examples, sizeof *e.file_of, "an order", error);
    }
    if (status == BY_OK) {
        status =
            by__alloc((void **)&e.places, source->samples, sizeof *e.places, "an order", error);
    }
    if (status == BY_OK) {
        status =
            by__alloc((void **)&e.numbers, source->samples, sizeof *e.numbers, "an order", error);
    }
    if (status == BY_OK && classes) {
        status =
            by__alloc((void **)&e.classes, source->samples, sizeof *e.classes, "an order", error);
    }
    if (status == BY_OK) {
        status = find_places(&e, d, examples, error);
    }
    if (status == BY_OK) {
        status = measure(out, &e, d, source, config, epoch, error);
    }
    by_source_close(&source);
    free(e.place_of);
    free(e.file_of);
    free(e.places);
    free(e.numbers);
    free(e.classes);
    return status;
}
