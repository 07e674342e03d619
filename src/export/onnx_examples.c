#include "export/onnx_examples.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"

#define MAX_TEXT ((size_t)64 << 20)

/* ---- learned preprocessing ---- */

static void read_labels(by__export_onnx_examples *x, const by_weights *weights)
{
    const char *text = by_weights_config(weights);
    json_t *root = text == NULL ? NULL : by__json_read(text, 0, NULL);
    const json_t *labels = json_object_get(root, "id2label");
    x->labels = json_is_object(labels) ? by__json_dump(labels, JSON_COMPACT) : NULL;
    json_decref(root);
}

/* Where what was learned is stored: beside the weights, and in the metadata of the file. */
typedef struct learned_file {
    const char *reads; /* what an example of the model is */
    const char *name;
    const char *key;
} learned_file;

static const learned_file learned_files[] = {
    {"images", "preprocessor_config.json", "banyan.preprocessor_config"},
    {"table", "encoding.json", "banyan.encoding"},
    {"series", "series.json", "banyan.series"},
};

static by_status read_learned(by__export_onnx_examples *x, const learned_file *file,
                              const char *path, int64_t channels, by_error *error)
{
    size_t length;
    x->key = file->key;
    BY_TRY(by__file_read(&x->text, &length, path, MAX_TEXT, error));
    if (strcmp(file->reads, "images") == 0) {
        return by__loader_pixel_scales_parse(&x->scales, path, x->text, length, channels, error);
    }
    if (strcmp(file->reads, "series") == 0) {
        BY_TRY(by__series_scales_parse(&x->series, path, x->text, error));
        return !x->series->scaling.each
                   ? BY_OK
                   : by_error_set(
                         error, BY_ECONFIG,
                         "%s: each series has scales of its own (data.standardize: series), "
                         "and a file of ONNX has one of each channel",
                         path);
    }
    BY_TRY(by_encoding_parse(&x->encoding, path, x->text, length, error));
    return by_encoding_targets(x->encoding) > 0
               ? BY_OK
               : by_error_set(error, BY_EFORMAT, "%s: there is no target", path);
}

by_status by__export_onnx_examples_open(by__export_onnx_examples *x, const by__export *e,
                                        by_error *error)
{
    const char *reads = by_model_reads(&e->source->config->model);
    const learned_file *file = NULL;
    if (by__nn_series_is_whole(&e->source->config->model)) { /* windows of the rows of a table */
        reads = "table";
    }
    *x = (by__export_onnx_examples){
        .noisy = strcmp(by_model_usual_task(&e->source->config->model), "diffuse") == 0,
        .forecasts = by__nn_series_kind_of(&e->source->config->model)};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(learned_files); i++) {
        file = strcmp(learned_files[i].reads, reads) == 0 ? &learned_files[i] : file;
    }
    if (file == NULL) {
        if (strcmp(reads, "nodes") == 0) {
            read_labels(x, e->source->weights);
        }
        return BY_OK;
    }
    char *path = by__path_join(e->source->directory, file->name);
    if (path == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    by_status status = read_learned(x, file, path, e->source->config->model.channels, error);
    free(path);
    BY_TRY(status);
    if (x->series == NULL && (x->encoding == NULL || by_encoding_classes(x->encoding) > 0)) {
        read_labels(x, e->source->weights);
    }
    return BY_OK;
}

void by__export_onnx_examples_close(by__export_onnx_examples *x)
{
    by__loader_pixel_scales_free(&x->scales);
    by_encoding_close(&x->encoding);
    by__series_scales_close(&x->series);
    free(x->text);
    free(x->labels);
}

/* ---- inputs ---- */

static int cast(by__op_onnx *o, int value, int type)
{
    int y = by__op_onnx_node1(o, "Cast", value);
    o->set_int(o, "to", type);
    return y;
}

/* Adds (pixel / 255 - mean) / deviation, and the extent of the batch, which rows may need. */
static by_status read_images(const by__export_onnx_examples *x, by__export_onnx_writer *w,
                             int64_t channels, int *out, by_error *error)
{
    by__op_onnx *o = &w->rows;
    const by_shape shape = BY_SHAPE(1, channels, 1, 1);
    if (x->scales.channels != (size_t)channels) {
        return by_error_set(error, BY_EFORMAT,
                            "preprocessor_config.json is of images of %zu channels, the model "
                            "reads %lld",
                            x->scales.channels, (long long)channels);
    }
    if (!x->noisy) {
        int y = cast(o, 0, BY__ONNX_FLOAT);
        y = by__op_onnx_node2(o, "Div", y, by__op_onnx_float(o, 255.0f));
        y = by__op_onnx_node2(o, "Sub", y, o->floats(o, x->scales.mean, &shape));
        *out = by__op_onnx_node2(o, "Div", y, o->floats(o, x->scales.deviation, &shape));
    }
    o->batch = by__op_onnx_reshape(o, by__op_onnx_extent(o, 0, 0), (const int64_t[]){1}, 1);
    return BY_OK;
}

/* Adds (number - mean) / deviation in f64, as in training; 0 for NaN, which marks a missing
 * number. scales: `count` means, then as many deviations, in the last axis. */
static int standardize(by__export_onnx_writer *w, const double *scales, size_t count, int rank)
{
    by__op_onnx *o = &w->rows;
    by_shape shape = {.rank = rank, .dim = {1, 1, 1}};
    shape.dim[rank - 1] = (int64_t)count;
    int mean = by__export_onnx_writer_doubles(w, scales, &shape);
    int deviation = by__export_onnx_writer_doubles(w, scales + count, &shape);
    int y = by__op_onnx_node2(o, "Div", by__op_onnx_node2(o, "Sub", 0, mean), deviation);
    y = cast(o, y, BY__ONNX_FLOAT);
    int missing = by__op_onnx_node1(o, "IsNaN", y);
    return by__op_onnx_node3(o, "Where", missing, by__op_onnx_float(o, 0.0f), y);
}

/* The scales of numbers that a model reads. */
static by_status input_scales(const by__export_onnx_examples *x, int64_t columns, double **out,
                              by_error *error)
{
    size_t n = (size_t)columns;
    size_t known = x->series != NULL ? x->series->channels.count : by_encoding_numbers(x->encoding);
    if (known != n) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: %zu columns of numbers, but the model reads %zu", x->key, known,
                            n);
    }
    BY_TRY(by__alloc((void **)out, 2 * n, sizeof **out, "scales of numbers", error));
    for (size_t i = 0; i < n; i++) {
        if (x->series != NULL) {
            (*out)[i] = x->series->mean[i];
            (*out)[n + i] = x->series->deviation[i];
        } else {
            by_encoding_number_scale(x->encoding, i, &(*out)[i], &(*out)[n + i]);
        }
    }
    return BY_OK;
}

static by_status read_numbers(const by__export_onnx_examples *x, by__export_onnx_writer *w,
                              const by_shape *shape, int *out, by_error *error)
{
    double *scales;
    int64_t columns = shape->dim[shape->rank - 1];
    BY_TRY(input_scales(x, columns, &scales, error));
    *out = standardize(w, scales, (size_t)columns, shape->rank);
    free(scales);
    return BY_OK;
}

by_status by__export_onnx_examples_input(const by__export_onnx_examples *x,
                                         by__export_onnx_writer *w, const by__graph_value *v,
                                         const char **name, by_error *error)
{
    by__export_onnx_axis axes[BY_MAX_RANK] = {{0, "batch"}};
    bool images = x->encoding == NULL && x->series == NULL && v->dtype == BY_F32;
    bool numbers = v->dtype == BY_F32;
    bool known = x->series != NULL && strcmp(v->name, "known") == 0; /* read as it is */
    const char *in = v->name;
    int value = 0;
    for (int i = 1; i < v->shape.rank; i++) {
        axes[i] = (by__export_onnx_axis){v->shape.dim[i], NULL};
    }
    by__export_onnx_writer_port(w, 11, v->name,
                                known || (images && x->noisy) ? BY__ONNX_FLOAT
                                : images                      ? BY__ONNX_UINT8
                                : numbers                     ? BY__ONNX_DOUBLE
                                                              : BY__ONNX_INT64,
                                axes, v->shape.rank);
    if (known) {
        *name = v->name;
        return BY_OK;
    }
    by__export_onnx_writer_node(w, &in, 1, NULL);
    by_status status = images    ? read_images(x, w, v->shape.dim[1], &value, error)
                       : numbers ? read_numbers(x, w, &v->shape, &value, error)
                                 : BY_OK;
    by__export_onnx_writer_end(w);
    *name = value == 0 ? v->name : by__export_onnx_writer_name(w, value);
    return status;
}

/* ---- outputs ---- */

/* The scales of what a model forecasts of `n` channels: means, then deviations. Of a distribution,
 * those of its first parameter, then those of the second, which has no mean, and no unit where it
 * is a dispersion. */
static by_status forecast_scales(const by__export_onnx_examples *x, size_t n, double **out,
                                 by_error *error)
{
    bool counts = x->forecasts == BY__NN_SERIES_NEGATIVE_BINOMIAL;
    bool two = counts || x->forecasts == BY__NN_SERIES_NORMAL;
    size_t all = two ? 2 * n : n;
    BY_TRY(by__alloc((void **)out, 2 * all, sizeof **out, "scales of targets", error));
    for (size_t i = 0; i < n; i++) {
        (*out)[i] = x->series->mean[i];
        (*out)[all + i] = x->series->deviation[i];
        if (two) {
            (*out)[all + n + i] = counts ? 1.0 : x->series->deviation[i];
        }
    }
    return BY_OK;
}

/* Adds mean + deviation * y in f64, in the units of each target. */
static by_status scale_targets(const by__export_onnx_examples *x, by__export_onnx_writer *w,
                               int *out, by_error *error)
{
    by__op_onnx *o = &w->rows;
    size_t n = x->series != NULL ? x->series->channels.count : by_encoding_targets(x->encoding);
    bool two = x->series != NULL && x->forecasts >= BY__NN_SERIES_NORMAL;
    const by_shape shape = two      ? BY_SHAPE(2, (int64_t)n)
                           : n == 1 ? (by_shape){0}
                                    : BY_SHAPE((int64_t)n);
    size_t all = two ? 2 * n : n;
    double *scales;
    if (x->series != NULL) {
        BY_TRY(forecast_scales(x, n, &scales, error));
    } else {
        BY_TRY(by__alloc((void **)&scales, 2 * n, sizeof *scales, "scales of targets", error));
    }
    for (size_t i = 0; x->series == NULL && i < n; i++) {
        by_encoding_target_scale(x->encoding, i, &scales[i], &scales[n + i]);
    }
    int y = cast(o, 0, BY__ONNX_DOUBLE);
    y = by__op_onnx_node2(o, "Mul", y, by__export_onnx_writer_doubles(w, scales + all, &shape));
    *out = by__op_onnx_node2(o, "Add", y, by__export_onnx_writer_doubles(w, scales, &shape));
    free(scales);
    return BY_OK;
}

by_status by__export_onnx_examples_output(const by__export_onnx_examples *x,
                                          by__export_onnx_writer *w, const char *name,
                                          const by__graph_value *result, const char *named,
                                          by_error *error)
{
    by__export_onnx_axis axes[BY_MAX_RANK] = {{0, "batch"}};
    int rank = result->shape.rank;
    int y = 0;
    for (int i = 1; i < rank; i++) {
        axes[i] = (by__export_onnx_axis){result->shape.dim[i], NULL};
    }
    if (named[0] != '\0') {
        by__export_onnx_writer_output(w, name, named, BY__ONNX_FLOAT, axes, rank);
        return BY_OK;
    }
    if (x->series == NULL && (x->encoding == NULL || by_encoding_classes(x->encoding) > 0)) {
        by__export_onnx_writer_output(w, name, x->noisy ? "predicted" : "logits", BY__ONNX_FLOAT,
                                      axes, rank);
        return BY_OK;
    }
    if (x->series == NULL && result->shape.dim[1] != (int64_t)by_encoding_targets(x->encoding)) {
        return by_error_set(error, BY_EFORMAT,
                            "encoding.json has %zu targets, the model predicts %lld numbers",
                            by_encoding_targets(x->encoding), (long long)result->shape.dim[1]);
    }
    by__export_onnx_writer_node(w, &name, 1, NULL);
    by_status status = scale_targets(x, w, &y, error);
    by__export_onnx_writer_end(w);
    BY_TRY(status);
    by__export_onnx_writer_output(w, by__export_onnx_writer_name(w, y), "values", BY__ONNX_DOUBLE,
                                  axes, rank);
    return BY_OK;
}
