/* Vectors of the nodes of a graph, for `banyan embed`. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "banyan/train.h"
#include "base/node_vectors.h"

/* Bytes in front of the elements of an npy file: a multiple of 64. */
#define HEAD 128

typedef struct node_writer {
    FILE *file; /* npy; NULL: JSON lines on standard output */
    uint64_t rows;
    size_t columns;
    bool failed;
    bool begun;
} node_writer;

/* The head of numpy/lib/_format_impl.py, version 1. */
static void write_head(node_writer *w)
{
    char head[HEAD];
    uint16_t length = HEAD - 10;
    char shape[100];
    int used = snprintf(shape, sizeof shape,
                        "{'descr': '<f4', 'fortran_order': False, 'shape': (%llu, %zu), }",
                        (unsigned long long)w->rows, w->columns);
    memset(head, ' ', sizeof head);
    memcpy(head, "\x93NUMPY\x01\x00", 8);
    head[8] = (char)(length & 0xff);
    head[9] = (char)(length >> 8);
    memcpy(head + 10, shape, (size_t)used);
    head[HEAD - 1] = '\n';
    w->failed = fwrite(head, 1, sizeof head, w->file) != sizeof head || w->failed;
    w->begun = true;
}

static void write_row(node_writer *w, const by_field *vector)
{
    if (!w->begun) {
        w->columns = vector->list_count;
        write_head(w);
    }
    for (size_t i = 0; i < vector->list_count; i++) {
        uint32_t bits;
        memcpy(&bits, &vector->list[i], sizeof bits);
        const unsigned char bytes[4] = {
            (unsigned char)(bits & 0xff), (unsigned char)(bits >> 8 & 0xff),
            (unsigned char)(bits >> 16 & 0xff), (unsigned char)(bits >> 24)};
        w->failed = fwrite(bytes, 1, 4, w->file) != 4 || w->failed;
    }
}

/* fields: "index", which is the node, and its vector. */
static void take_row(void *user, const by_field *fields, size_t count)
{
    node_writer *w = user;
    char text[32];
    (void)count;
    if (w->file != NULL) {
        write_row(w, &fields[1]);
        return;
    }
    printf("{\"node\":%.0f,\"embedding\":[", fields[0].number);
    for (size_t i = 0; i < fields[1].list_count; i++) {
        printf("%s%s", i == 0 ? "" : ",", cli_json_number(text, (double)fields[1].list[i], 9));
    }
    printf("]}\n");
}

static bool stop(void *user)
{
    const node_writer *w = user;
    return w->failed || cli_stop_requested(NULL);
}

/* A file gets its name once it is complete. */
static by_status write_all(const by_config *config, const by_weights *weights, by_task_data *data,
                           const cli_node_vectors *r, by_error *error)
{
    const char *out = r->out;
    node_writer w = {.rows = data->valid_examples};
    char part[4096];
    /* Scores of links are made of what the last layer puts out. */
    const char *output = strcmp(config->task.kind, "links") == 0 ? "output" : "features";
    if (out == NULL) {
        return by_predict_output(config, weights, data, output, take_row, stop, &w, error);
    }
    int length = snprintf(part, sizeof part, "%s.part", out);
    w.file = length < (int)sizeof part ? fopen(part, "wb") : NULL;
    if (w.file == NULL) {
        return by_error_set(error, BY_EIO, "cannot write %s: %s", out, strerror(errno));
    }
    by_status status = by_predict_output(config, weights, data, output, take_row, stop, &w, error);
    bool written = fclose(w.file) == 0 && !w.failed;
    if (!written || (status == BY_OK && rename(part, out) != 0)) {
        status = by_error_set(error, BY_EIO, "cannot write %s: %s", out, strerror(errno));
    }
    if (status != BY_OK) {
        (void)remove(part);
        return status;
    }
    if (r->json) {
        printf("{\"out\":");
        cli_print_json_string(out);
        printf(",\"nodes\":%llu,\"width\":%zu}\n", (unsigned long long)w.rows, w.columns);
    } else {
        cli_tell_written(out);
    }
    return BY_OK;
}

by_status cli_embed_nodes(void *user, const by_pretrained *model, const char *run, by_error *error)
{
    cli_node_vectors *r = user;
    by_task_data *data = NULL;
    by_config *config;
    cli_spool spool = {.path = NULL};
    by_task_request what = {.purpose = BY_TASK_PREDICT};
    by_status status = cli_copy_config(&config, model, error);
    if (status != BY_OK) {
        return status;
    }
    if (!cli_reads_graph(config)) {
        status =
            by_error_set(error, BY_ECONFIG, "a model of kind %s reads %s: name texts with --batch",
                         config->model.kind, by_model_reads(&config->model));
    }
    if (status == BY_OK && strcmp(config->task.kind, "graphs") == 0) {
        status = by_error_set(error, BY_ECONFIG,
                              "task.kind graphs predicts whole graphs and has no vectors of nodes: "
                              "use `banyan predict`");
    }
    if (status == BY_OK) {
        status = cli_choose_nodes(config, &what, &r->nodes, error);
    }
    if (status == BY_OK) {
        status = cli_open_task_data(&data, &spool, config, model, run, &what, error);
    }
    if (status == BY_OK) {
        status = by_task_complete(data, config, error);
    }
    if (status == BY_OK) {
        status = write_all(config, by_pretrained_weights(model), data, r, error);
    }
    by_task_close(&data);
    cli_spool_close(&spool);
    cli_node_choice_free(&r->nodes);
    by_config_close(&config);
    return status;
}
