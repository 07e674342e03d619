/* Completes a config with the sizes of examples in memory. */
#include <stdlib.h>
#include <string.h>

#include "banyan/ops.h"
#include "nn/nn.h"
#include "tasks/examples/examples_open.h"

static by_status set_size(int64_t *size, int64_t have, const char *key, const char *set,
                          by_error *error)
{
    if (*size > 0 && *size != have) {
        return by_error_set(error, BY_ECONFIG,
                            "model.%s is %lld, but %s has %lld; leave it out to take the data's%s",
                            key, (long long)*size, set, (long long)have,
                            strncmp(key, "image_", 6) == 0 ? ", or resize with data.resize" : "");
    }
    *size = have;
    return BY_OK;
}

/* The same for a side of images. That of the weights to start from is a default: it holds where
 * positions were learned for it. */
static by_status set_side(int64_t *size, int64_t have, const char *key, const char *set,
                          const by_config *config, by_error *error)
{
    char path[64];
    (void)snprintf(path, sizeof path, "model.%s", key);
    bool inherited = config->model.from[0] != '\0' && !by__config_is_given(config, path);
    bool learned = by__nn_model_grid(&config->model).name != NULL;
    if (inherited && *size > 0 && *size != have && learned) {
        return by_error_set(error, BY_ECONFIG,
                            "the weights of model.from have positions for %s %lld, and %s has "
                            "%lld: set data.resize to resize images, or model.image_height and "
                            "model.image_width to those of the data to interpolate the positions",
                            key, (long long)*size, set, (long long)have);
    }
    if (inherited && !learned) {
        *size = have;
    }
    return set_size(size, have, key, set, error);
}

static by_status set_categories(by_model_config *m, const by__task_examples *d, const char *set,
                                by_error *error)
{
    size_t count = by_encoding_categories(d->encoding);
    bool given = m->categories.count > 0;
    if (given && m->categories.count != count) {
        return by_error_set(error, BY_ECONFIG,
                            "model.categories has %zu sizes, but %s has %zu "
                            "columns of categories; leave it out",
                            m->categories.count, set, count);
    }
    if (!given && count > 0) {
        BY_TRY(by__alloc((void **)&m->categories.items, count, sizeof *m->categories.items,
                         "the config", error));
    }
    for (size_t i = 0; i < count; i++) {
        char text[24];
        (void)snprintf(text, sizeof text, "%zu", by_encoding_category_size(d->encoding, i));
        if (given && strcmp(m->categories.items[i], text) != 0) {
            return by_error_set(error, BY_ECONFIG,
                                "model.categories: column %zu has %s ids, but %s has %s", i,
                                m->categories.items[i], set, text);
        }
        if (!given) {
            m->categories.items[i] = by__strdup(text);
            m->categories.count = i + 1;
            if (m->categories.items[i] == NULL) {
                m->categories.count = i;
                return by_error_set(error, BY_EMEMORY, "out of memory: the config");
            }
        }
    }
    return BY_OK;
}

by_status by__task_examples_complete(by_task_data *data, by_config *config, by_error *error)
{
    by__task_examples *d = (by__task_examples *)data;
    bool classes = by__task_row_of(data->task)->classes;
    int64_t outputs =
        classes ? by__task_examples_classes(d) : (int64_t)by__task_examples_numbers(d);
    by_model_config *m = &config->model;
    const by_array_set *set = d->train != NULL ? d->train : d->valid;
    const char *name = by_array_set_name(set);
    bool texts = d->texts.tokenizer != NULL;
    bool windows = d->windows.context > 0;
    const char *reads = d->encoding == NULL ? "images"
                        : texts             ? "tokens"
                        : windows           ? "series"
                                            : "table";
    if (strcmp(by_model_reads(m), reads) != 0) {
        char kinds[256];
        return by_error_set(error, BY_ECONFIG,
                            "model.kind %s reads %s, but the data is %s: set model.kind to %s",
                            m->kind, by_model_reads(m),
                            d->encoding == NULL ? "images"
                            : texts             ? "a column of texts"
                                                : "a table",
                            by__nn_families_reading(kinds, reads));
    }
    if (d->encoding == NULL) {
        const by_shape *shape = &by_array_set_find(set, "images")->shape;
        if ((size_t)shape->dim[1] != d->scales.channels) {
            return by_error_set(error, BY_ECONFIG,
                                "%s has images of %lld channels; those of the weights have %zu",
                                name, (long long)shape->dim[1], d->scales.channels);
        }
        BY_TRY(set_size(&m->channels, shape->dim[1], "channels", name, error));
        BY_TRY(set_side(&m->image_height, shape->dim[2], "image_height", name, config, error));
        BY_TRY(set_side(&m->image_width, shape->dim[3], "image_width", name, config, error));
    } else if (texts) {
        BY_TRY(by__task_examples_complete_texts(d, config, error));
    } else if (windows) {
        BY_TRY(set_size(&m->channels, (int64_t)by_encoding_numbers(d->encoding), "channels", name,
                        error));
    } else {
        if (m->numbers != 0 || by_encoding_numbers(d->encoding) != 0) {
            BY_TRY(set_size(&m->numbers, (int64_t)by_encoding_numbers(d->encoding), "numbers", name,
                            error));
        }
        BY_TRY(set_categories(m, d, name, error));
    }
    BY_TRY(by__task_examples_keep_classes(d, config, error));
    BY_TRY(by__task_examples_check_labels(d, m->outputs, error));
    if (m->outputs < 1) {
        m->outputs = outputs;
    }
    if (!classes && m->outputs != outputs) {
        return by_error_set(error, BY_ECONFIG,
                            "model.outputs is %lld, but there are %lld columns to predict "
                            "(data.target): leave it out",
                            (long long)m->outputs, (long long)outputs);
    }
    if (m->outputs < outputs) {
        return by_error_set(error, BY_ECONFIG, "model.outputs is %lld, but %s has %lld",
                            (long long)m->outputs, name, (long long)outputs);
    }
    if (d->labels != NULL && (int64_t)d->label_count != m->outputs) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: there are names for %zu classes, but the model has %lld outputs",
                            name, d->label_count, (long long)m->outputs);
    }
    return by_config_resolve(config, error);
}

void by__task_examples_count(by_graph *graph, const by_model_request *request, by_model *model)
{
    if (model->auxiliary != BY_NONE) {
        by_value weight = by_graph_find(graph, "weight");
        weight = weight != BY_NONE
                     ? weight
                     : by_graph_input(graph, "weight", BY_F32, BY_SHAPE(request->batch));
        model->counted = by_sum(graph, weight, &(const int){0}, 1, true);
    }
}

by_status by__task_examples_needs_output(const by_config *config, const by_model *model,
                                         by_error *error)
{
    char images[256];
    char tables[256];
    return model->output != BY_NONE
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "task.kind %s needs a model of images, tables or whole texts; "
                              "model.kind %s reads %s: set it to %s for a table, to %s for images, "
                              "or to one that reads tokens for a column of texts",
                              config->task.kind, config->model.kind, by_model_reads(&config->model),
                              by__nn_families_reading(tables, "table"),
                              by__nn_families_reading(images, "images"));
}
