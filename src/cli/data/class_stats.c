/* banyan data stats of a config: the classes of its data. */
#include <inttypes.h>
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

static void print_json(const class_counts *c, const by_task_kept *kept, int64_t epoch)
{
    char text[32];
    printf("{\"epoch\":%" PRId64 ",\"classes\":[", epoch);
    for (size_t i = 0; i < c->classes; i++) {
        printf("%s{\"class\":", i == 0 ? "" : ",");
        cli_print_json_string(cli_class_name(text, kept, (int64_t)i));
        printf(",\"training\":%" PRIu64 ",\"held_out\":%" PRIu64 ",\"drawn\":%" PRIu64 "}",
               c->trained[i], c->held_out[i], c->drawn[i]);
    }
    printf("]}\n");
}

static void print_text(const class_counts *c, const by_task_kept *kept, int64_t epoch)
{
    char text[32];
    printf("class\ttraining\theld out\tdrawn in epoch %" PRId64 "\n", epoch);
    for (size_t i = 0; i < c->classes; i++) {
        cli_print_cell(cli_class_name(text, kept, (int64_t)i));
        printf("\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\n", c->trained[i], c->held_out[i],
               c->drawn[i]);
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
    by_status status = cli_open_training_data(&data, config, error);
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
    if (status == BY_OK) {
        (r->json ? print_json : print_text)(&c, &kept, r->epoch);
    }
    free(c.trained);
    free(c.held_out);
    free(c.drawn);
    by_task_close(&data);
    return status;
}
