#include "tiny_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/storage.h"

/* Tensors of a directory. */
#define MOST 128

static void check(by_status status, const by_error *error)
{
    if (status != BY_OK) {
        fail_msg("%s", error->message);
    }
}

by_config *tiny_config(const char *const *settings, size_t count)
{
    by_error error = {0};
    by_config *config;
    check(by_config_default(&config, &error), &error);
    check(by_config_set(config, "precision.compute=f32", &error), &error);
    for (size_t i = 0; i < count; i++) {
        check(by_config_set(config, settings[i], &error), &error);
    }
    check(by_config_resolve(config, &error), &error);
    return config;
}

/* Appends a tensor to `views`, or its parts where files hold it in parts. Their names are in
 * `names`. */
static size_t add_views(by_tensor_view *views, char names[][128], size_t count, size_t most,
                        const by_tensor_view *whole)
{
    int64_t parts = by__checkpoint_name_is_stacked(whole->name) ? whole->shape[0] : 1;
    for (int64_t part = 0; part < parts; part++, count++) {
        assert_true(count < most);
        views[count] = *whole;
        if (by__checkpoint_name_is_stacked(whole->name)) {
            (void)by__checkpoint_stacked_part(&views[count], names[count], sizeof names[count],
                                              part);
        }
    }
    return count;
}

void tiny_model_write(const by_config *config, const char *directory)
{
    by_error error = {0};
    by_graph *graph;
    by_model model;
    by_model_request request = {.mode = BY_MODEL_LOGITS, .batch = 1, .time = 1};
    by_tensor_view views[MOST];
    char names[MOST][128];
    float *owned[MOST];
    size_t count = 0;
    size_t owned_count = 0;
    char *text;
    check(by_graph_open(&graph, &error), &error);
    check(by_model_build(&model, graph, &config->model, &request, &error), &error);
    for (by_value v = 0; v < by_graph_value_count(graph); v++) {
        by_value_info info;
        check(by_graph_value(graph, v, &info, &error), &error);
        if (info.role != BY_ROLE_PARAMETER) {
            continue;
        }
        float *data = malloc((size_t)by_shape_count(&info.shape) * sizeof *data);
        assert_non_null(data);
        assert_true(owned_count < BY_ARRAY_LENGTH(owned));
        owned[owned_count++] = data;
        check(by_parameter_init(data, graph, v, config->seed, &error), &error);
        by_tensor_view whole = {
            .name = info.name, .dtype = BY_F32, .rank = info.shape.rank, .data = data};
        memcpy(whole.shape, info.shape.dim, (size_t)info.shape.rank * sizeof(int64_t));
        count = add_views(views, names, count, BY_ARRAY_LENGTH(views), &whole);
    }
    check(by_weights_write(directory, views, count, 0, &error), &error);
    for (size_t i = 0; i < owned_count; i++) {
        free(owned[i]);
    }
    by_graph_close(&graph);
    char *path = by__path_join(directory, "config.json");
    assert_non_null(path);
    check(by_model_config_json(&text, &config->model, -1, &error), &error);
    check(by__file_write(path, text, strlen(text), &error), &error);
    free(text);
    free(path);
}

void tiny_model_set(const char *directory, const char *name, size_t at, float value)
{
    by_error error = {0};
    by_weights *weights;
    by_tensor_view views[MOST];
    size_t elements;
    float *values = NULL;
    check(by_weights_open(&weights, directory, &error), &error);
    size_t count = by_weights_count(weights);
    assert_true(count <= BY_ARRAY_LENGTH(views));
    for (size_t i = 0; i < count; i++) {
        by_tensor_view *view = &views[i];
        check(by_weights_tensor(weights, by_weights_name(weights, i), view, &error), &error);
        if (strcmp(view->name, name) == 0) {
            check(by_tensor_size(view, &elements, NULL, &error), &error);
            values = malloc(elements * sizeof *values);
            assert_non_null(values);
            assert_true(at < elements);
            check(by_tensor_read_f32(view, values, elements, &error), &error);
            values[at] = value;
            view->data = values;
        }
    }
    assert_non_null(values);
    check(by_weights_write(directory, views, count, 0, &error), &error);
    by_weights_close(&weights);
    free(values);
}
