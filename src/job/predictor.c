/* The predictor: runs a trained model on examples in memory, in batches. */
#include "banyan/predictor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/train.h"
#include "base/base.h"
#include "data/table/row_table.h"
#include "job/job.h"
#include "job/table_cells.h"
#include "nn/nn.h"

#define MAX_BATCH  4096
#define MAX_ARRAYS 24

struct by_predictor {
    by_config *config;
    by_task_data *data;
    by_trainer *trainer;
    by_array arrays[MAX_ARRAYS]; /* a batch; names and data belong to the predictor */
    char names[MAX_ARRAYS][32];
    size_t row_bytes[MAX_ARRAYS];
    size_t array_count;
    size_t batch;
};

struct by_predictor_input {
    by_array_set *set;
    by_source *source;
};

/* ---- examples ---- */

by_status by_predictor_input_open(by_predictor_input **out, const by_predictor *p,
                                  const by_task_examples *examples, by_error *error)
{
    by_predictor_input *in;
    const by_array *images = examples->images;
    const by_model_config *m = &p->config->model;
    if (images != NULL && images->shape.rank == 4 && m->channels > 0 &&
        (images->shape.dim[1] != m->channels || images->shape.dim[2] != m->image_height ||
         images->shape.dim[3] != m->image_width)) {
        return by_error_set(
            error, BY_EARG,
            "images of %lld channels and %lld x %lld pixels; the model reads %lld and %lld x %lld",
            (long long)images->shape.dim[1], (long long)images->shape.dim[3],
            (long long)images->shape.dim[2], (long long)m->channels, (long long)m->image_width,
            (long long)m->image_height);
    }
    by_task_examples taken = *examples;
    by_predictor_image(p, taken.size);
    BY_TRY(by__alloc((void **)&in, 1, sizeof *in, "examples", error));
    by_status status = p->data->task->open_examples(p->data, &taken, &in->set, &in->source, error);
    if (status != BY_OK) {
        free(in);
        return status;
    }
    *out = in;
    return BY_OK;
}

by_status by_predictor_graph_open(by_predictor_input **out, const by_predictor *p,
                                  const by_task_graph *graph, by_error *error)
{
    by_predictor_input *in;
    if (p->data->task->open_graph == NULL) {
        return by_error_set(error, BY_EARG, "task.kind %s reads no graphs", p->config->task.kind);
    }
    BY_TRY(by__alloc((void **)&in, 1, sizeof *in, "a graph", error));
    by_status status = p->data->task->open_graph(p->data, graph, &in->source, error);
    if (status != BY_OK) {
        free(in);
        return status;
    }
    *out = in;
    return BY_OK;
}

void by_predictor_input_close(by_predictor_input **input)
{
    by_predictor_input *in = *input;
    if (in != NULL) {
        by_source_close(&in->source);
        by_array_set_close(&in->set);
        free(in);
        *input = NULL;
    }
}

size_t by_predictor_input_count(const by_predictor_input *input)
{
    return (size_t)input->source->samples;
}

/* ---- tables ---- */

static size_t count_columns(const by_task_data *data)
{
    by_column_type column;
    size_t count = 0;
    while (data->task->column(data, count, &column)) {
        count++;
    }
    return count;
}

by_status by__job_table_of_cells(by_table **out, const by_task_data *data, const char *const *cells,
                                 size_t rows, by_error *error)
{
    by_column_type *types = NULL;
    size_t columns = count_columns(data);
    const by_encoding *learned = data->task->encoding == NULL ? NULL : data->task->encoding(data);
    BY_TRY(by__alloc((void **)&types, columns + 1, sizeof *types, "column types", error));
    for (size_t i = 0; i < columns; i++) {
        (void)data->task->column(data, i, &types[i]);
    }
    by_status status = by__table_row(out, types, columns, learned, cells, rows, error);
    free(types);
    return status;
}

by_status by_predictor_table(by_table **out, const by_predictor *p, const char *const *cells,
                             size_t rows, by_error *error)
{
    return by__job_table_of_cells(out, p->data, cells, rows, error);
}

/* ---- opening ---- */

/* One node without edges; all features are 0. */
static by_status make_graph(by_predictor_input **out, const by_predictor *p, by_error *error)
{
    float *features;
    size_t width = (size_t)p->config->model.channels;
    size_t own = (size_t)by__nn_node_sizes_of(&p->config->model)->graph_features;
    BY_TRY(by__alloc((void **)&features, width + own + 1, sizeof *features, "an example", error));
    const by_task_graph graph = {.features = features,
                                 .nodes = 1,
                                 .width = width,
                                 .graph_features = features + width,
                                 .graph_width = own};
    by_status status = by_predictor_graph_open(out, p, &graph, error);
    free(features);
    return status;
}

/* Makes one placeholder example: a row with all values missing, a black image, or a node. */
static by_status make_placeholder(by_predictor_input **out, const by_predictor *p, by_error *error)
{
    if (p->data->task->open_graph != NULL) {
        return make_graph(out, p, error);
    }
    by_table *table = NULL;
    void *memory = NULL;
    int64_t size[3];
    by_task_examples examples = {0};
    by_predictor_image(p, size);
    by_array images = {
        .name = "images", .dtype = BY_U8, .shape = BY_SHAPE(1, size[0], size[1], size[2])};
    bool is_image = size[0] > 0;
    size_t bytes =
        is_image ? (size_t)by_shape_count(&images.shape) : count_columns(p->data) * sizeof(char *);
    by_status status = by__alloc(&memory, bytes + 1, 1, "an example", error);
    if (status == BY_OK && is_image) {
        images.data = memory;
        examples.images = &images;
    } else if (status == BY_OK) {
        status = by_predictor_table(&table, p, memory, 1, error);
        examples.table = table;
    }
    if (status == BY_OK) {
        status = by_predictor_input_open(out, p, &examples, error);
    }
    by_table_close(&table);
    free(memory);
    return status;
}

/* Allocates a batch of examples like those of an input. */
static by_status allocate_batch(by_predictor *p, const by_predictor_input *like, by_error *error)
{
    const by_source *source = like->source;
    if (source->array_count > MAX_ARRAYS) {
        return by_error_set(error, BY_EARG, "examples of %zu arrays; %d are possible",
                            source->array_count, MAX_ARRAYS);
    }
    for (size_t i = 0; i < source->array_count; i++) {
        const by_array *in = &source->arrays[i];
        by_array *a = &p->arrays[i];
        void *data = NULL;
        p->row_bytes[i] = (size_t)by_shape_count(&in->shape) * by_dtype_size(in->dtype);
        BY_TRY(by__alloc(&data, p->batch, p->row_bytes[i] + 1, "a batch", error));
        (void)snprintf(p->names[i], sizeof p->names[i], "%s", in->name);
        *a = (by_array){.name = p->names[i], .dtype = in->dtype, .data = data};
        a->shape.rank = in->shape.rank + 1;
        a->shape.dim[0] = (int64_t)p->batch;
        memcpy(a->shape.dim + 1, in->shape.dim, (size_t)in->shape.rank * sizeof in->shape.dim[0]);
        p->array_count = i + 1;
    }
    return BY_OK;
}

static void ignore_fields(void *user, const by_field *fields, size_t count)
{
    BY_UNUSED(user);
    BY_UNUSED(fields);
    BY_UNUSED(count);
}

/* Makes the config of a program for batches of this size. */
static by_status copy_config(by_predictor *p, const by_config *config,
                             const by_predictor_options *o, by_error *error)
{
    char setting[64];
    int64_t usual = config->train.micro_batch < BY__JOB_PREDICTED ? BY__JOB_PREDICTED
                                                                  : config->train.micro_batch;
    p->batch = (size_t)(o->batch > 0 ? o->batch : usual);
    if (p->batch < 1 || p->batch > MAX_BATCH || o->batch < 0 || o->threads < 0) {
        return by_error_set(error, BY_EARG,
                            "a batch of %lld examples, or %d threads; a batch has 1 to %d",
                            (long long)p->batch, o->threads, MAX_BATCH);
    }
    BY_TRY(by_config_copy(&p->config, config, error));
    p->config->model.from[0] = '\0';
    if ((int64_t)p->batch != config->train.micro_batch) {
        (void)snprintf(setting, sizeof setting, "train.micro_batch=%zu", p->batch);
        BY_TRY(by_config_set(p->config, setting, error));
        (void)snprintf(setting, sizeof setting, "train.batch=%zu", p->batch);
        BY_TRY(by_config_set(p->config, setting, error));
    }
    if (o->threads > 0) {
        (void)snprintf(setting, sizeof setting, "train.threads=%d", o->threads);
        BY_TRY(by_config_set(p->config, setting, error));
    }
    return by_config_resolve(p->config, error);
}

static by_status open_task(by_predictor *p, const char *learned, by_error *error)
{
    const by_task *task;
    BY_TRY(by_task_find(&task, p->config, error));
    if (task->open_examples == NULL && task->open_graph == NULL) {
        return by_error_set(error, BY_EARG,
                            "task.kind %s predicts nothing of rows, images or graphs in memory",
                            p->config->task.kind);
    }
    const by_task_request what = {.purpose = BY_TASK_PREDICT,
                                  .config = p->config,
                                  .learned = learned,
                                  .graphs = task->open_graph != NULL};
    return by_task_open(&p->data, NULL, &what, error);
}

static by_status set_up(by_predictor *p, const by_config *config, const by_weights *weights,
                        const char *learned, const by_predictor_options *options, by_error *error)
{
    by_predictor_input *nothing = NULL;
    const by_trainer_options how = {.mode = BY_TRAINER_LOSS};
    BY_TRY(copy_config(p, config, options, error));
    BY_TRY(open_task(p, learned, error));
    BY_TRY(by_trainer_open(&p->trainer, p->config, &how, error));
    BY_TRY(by_trainer_allocate(p->trainer, error));
    BY_TRY(by_trainer_set_data(p->trainer, p->data, error));
    BY_TRY(by_trainer_load_weights(p->trainer, weights, error));
    BY_TRY(make_placeholder(&nothing, p, error));
    by_status status = allocate_batch(p, nothing, error);
    if (status == BY_OK) {
        const by_predictor_place place = {nothing, 0};
        status = by_predictor_run(p, &place, 1, ignore_fields, NULL, error);
    }
    by_predictor_input_close(&nothing);
    return status;
}

by_status by_predictor_open(by_predictor **out, const by_config *config, const by_weights *weights,
                            const char *learned, const by_predictor_options *options,
                            by_error *error)
{
    by_predictor *p;
    const by_predictor_options defaults = {0};
    BY_TRY(by__alloc((void **)&p, 1, sizeof *p, "a predictor", error));
    by_status status =
        set_up(p, config, weights, learned, options == NULL ? &defaults : options, error);
    if (status != BY_OK) {
        by_predictor_close(&p);
        return status;
    }
    *out = p;
    return BY_OK;
}

void by_predictor_close(by_predictor **predictor)
{
    by_predictor *p = *predictor;
    if (p == NULL) {
        return;
    }
    for (size_t i = 0; i < p->array_count; i++) {
        free((void *)(uintptr_t)p->arrays[i].data);
    }
    by_trainer_close(&p->trainer);
    by_task_close(&p->data);
    by_config_close(&p->config);
    free(p);
    *predictor = NULL;
}

int64_t by_predictor_batch(const by_predictor *predictor)
{
    return (int64_t)predictor->batch;
}

void by_predictor_image(const by_predictor *predictor, int64_t size[3])
{
    const by_model_config *m = &predictor->config->model;
    bool is_image = strcmp(by_model_reads(m), "images") == 0;
    size[0] = is_image ? m->channels : 0;
    size[1] = is_image ? m->image_height : 0;
    size[2] = is_image ? m->image_width : 0;
}

bool by_predictor_column(const by_predictor *predictor, size_t i, by_column_type *out)
{
    const by_task *task = predictor->data->task;
    return task->column != NULL && task->column(predictor->data, i, out);
}

/* ---- running ---- */

by_status by_predictor_run(by_predictor *p, const by_predictor_place *places, size_t count,
                           by_predicted *report, void *user, by_error *error)
{
    double loss;
    const float *values;
    size_t width;
    if (count < 1 || count > p->batch) {
        return by_error_set(error, BY_EARG, "%zu examples; 1 to %zu run together", count, p->batch);
    }
    for (size_t i = 0; i < p->batch; i++) {
        const by_source *source = places[i < count ? i : 0].input->source;
        by_source_sample sample = {.place = i < count ? places[i].example : source->samples};
        void *rows[MAX_ARRAYS];
        for (size_t k = 0; k < p->array_count; k++) {
            rows[k] = (char *)(uintptr_t)p->arrays[k].data + i * p->row_bytes[k];
        }
        if (source->scratch > 0) {
            BY_TRY(by__alloc_aligned(&sample.scratch, source->scratch, "scratch", error));
            memset(sample.scratch, 0, source->scratch);
        }
        by_status status = source->fill(source, &sample, rows, error);
        free(sample.scratch);
        BY_TRY(status);
    }
    const by_batch batch = {.arrays = p->arrays,
                            .array_count = p->array_count,
                            .batch = p->batch,
                            .valid_targets = count,
                            .global_targets = count};
    BY_TRY(by_trainer_evaluate(p->trainer, &batch, &loss, &values, &width, error));
    return p->data->task->predict(p->data, &batch, loss, values, width, report, user, error);
}
