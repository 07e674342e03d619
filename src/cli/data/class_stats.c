/* banyan data stats of a config: the classes of its data, and how an epoch mixes them. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "data/show.h"

/* Numbers of examples of each class. */
typedef struct class_counts {
    size_t classes;
    uint64_t *trained;
    uint64_t *held_out;
    uint64_t *drawn;
} class_counts;

/* The measures of an order: how JSON and people call them, and what they are of a random order. */
typedef struct order_measure {
    const char *key;
    const char *name;
    size_t offset; /* in by_order_quality */
} order_measure;

static const order_measure measures[] = {
    {"displacement", "distance from its place in the files (0 to 1)",
     offsetof(by_order_quality, displacement)},
    {"rank_correlation", "correlation with the order of the files",
     offsetof(by_order_quality, rank_correlation)},
    {"neighbor_correlation", "correlation of neighbors' places",
     offsetof(by_order_quality, neighbor_correlation)},
    {"same_file", "pairs of a batch from one file", offsetof(by_order_quality, same_file)},
    {"files_per_batch", "files in a batch", offsetof(by_order_quality, files_per_batch)},
    {"batch_class_distance", "classes of a batch, distance from all (0 to 1)",
     offsetof(by_order_quality, batch_class_distance)},
    {"window_class_distance", "classes of a window, distance from all (0 to 1)",
     offsetof(by_order_quality, window_class_distance)}};

static double measure_of(const by_order_quality *q, size_t i)
{
    return *(const double *)(const void *)((const char *)q + measures[i].offset);
}

static void print_order_json(const by_epoch_order *o)
{
    const by_order_quality *const both[] = {&o->drawn, &o->shuffled};
    char text[32];
    printf(",\"order\":{\"samples\":%" PRIu64 ",\"batch\":%" PRIu64 ",\"window\":%" PRIu64
           ",\"files\":%" PRIu64,
           o->samples, o->batch, o->window, o->files);
    for (size_t k = 0; k < 2; k++) {
        printf(",\"%s\":{", k == 0 ? "drawn" : "shuffled");
        for (size_t i = 0; i < sizeof measures / sizeof *measures; i++) {
            printf("%s\"%s\":%s", i == 0 ? "" : ",", measures[i].key,
                   cli_json_number(text, measure_of(both[k], i), 6));
        }
        printf("}");
    }
    printf("}");
}

static void print_order_text(const by_epoch_order *o)
{
    printf("\norder of %" PRIu64 " samples in %" PRIu64 " file%s, batches of %" PRIu64, o->samples,
           o->files, o->files == 1 ? "" : "s", o->batch);
    if (o->window > 0) {
        printf(", windows of %" PRIu64, o->window);
    }
    printf("\tdrawn\tif all were shuffled\n");
    for (size_t i = 0; i < sizeof measures / sizeof *measures; i++) {
        double drawn = measure_of(&o->drawn, i);
        if (!isnan(drawn)) {
            printf("%s\t%.4f\t%.4f\n", measures[i].name, drawn, measure_of(&o->shuffled, i));
        }
    }
}

static void print_json(const class_counts *c, const by_task_kept *kept, const by_epoch_order *o,
                       int64_t epoch)
{
    char text[32];
    printf("{\"epoch\":%" PRId64 ",\"classes\":[", epoch);
    for (size_t i = 0; i < c->classes; i++) {
        printf("%s{\"class\":", i == 0 ? "" : ",");
        cli_print_json_string(cli_class_name(text, kept, (int64_t)i));
        printf(",\"training\":%" PRIu64 ",\"held_out\":%" PRIu64 ",\"drawn\":%" PRIu64 "}",
               c->trained[i], c->held_out[i], c->drawn[i]);
    }
    printf("]");
    if (o != NULL) {
        print_order_json(o);
    }
    printf("}\n");
}

static void print_text(const class_counts *c, const by_task_kept *kept, const by_epoch_order *o,
                       int64_t epoch)
{
    char text[32];
    printf("class\ttraining\theld out\tdrawn in epoch %" PRId64 "\n", epoch);
    for (size_t i = 0; i < c->classes; i++) {
        cli_print_cell(cli_class_name(text, kept, (int64_t)i));
        printf("\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\n", c->trained[i], c->held_out[i],
               c->drawn[i]);
    }
    if (o != NULL) {
        print_order_text(o);
    }
}

static by_status count_classes(class_counts *c, by_task_data *data, const by_config *config,
                               const cli_show_request *r, by_error *error)
{
    c->trained = calloc(c->classes, sizeof *c->trained);
    c->held_out = calloc(c->classes, sizeof *c->held_out);
    c->drawn = calloc(c->classes, sizeof *c->drawn);
    if (c->trained == NULL || c->held_out == NULL || c->drawn == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: classes");
    }
    return data->task->classes(data, config, (uint64_t)r->epoch, c->classes, c->trained,
                               c->held_out, c->drawn, error);
}

by_status cli_class_stats(void *request, by_config *config, by_error *error)
{
    const cli_show_request *r = request;
    by_task_kept kept = {0};
    by_task_data *data;
    class_counts c = {0};
    by_epoch_order order;
    by_status status = cli_open_training_data(&data, config, r->run, error);
    if (status != BY_OK) {
        return status;
    }
    if (data->task->classes == NULL) {
        status = by_error_set(error, BY_EARG,
                              "stats of a config count the examples of each class, and those of "
                              "task.kind %s have none: name packed text or a table",
                              config->task.kind);
    }
    if (status == BY_OK) {
        c.classes = (size_t)config->model.outputs;
        status = data->task->keep(data, config, &kept, error);
    }
    if (status == BY_OK) {
        status = count_classes(&c, data, config, r, error);
    }
    bool has_order = data->task->order != NULL;
    if (status == BY_OK && has_order) {
        status = data->task->order(data, config, (uint64_t)r->epoch, &order, error);
    }
    if (status == BY_OK) {
        (r->json ? print_json : print_text)(&c, &kept, has_order ? &order : NULL, r->epoch);
    }
    free(c.trained);
    free(c.held_out);
    free(c.drawn);
    by_task_close(&data);
    return status;
}
