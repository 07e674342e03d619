/* Segmentation: each pixel of an image belongs to one of several classes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/ops.h"
#include "formats/image/png_write.h"
#include "graph/graph.h"
#include "tasks/examples/examples.h"

typedef struct segment_keys {
    by__task_examples_keys set;
    char *loss;
    double dice_weight;
    double smoothing;
} segment_keys;

static const by__config_key keys[] = {
    {"task", "loss", BY__KEY_TEXT, BY__OWN(segment_keys, loss), "cross_entropy",
     .choices = "cross_entropy|dice|both",
     .help = "cross-entropy of the pixels; the soft Dice loss of each image; or both, added"},
    {"task", "dice_weight", BY__KEY_REAL, BY__OWN(segment_keys, dice_weight), "1", 0, 1000,
     BY__ABOVE_MIN, .help = "factor on the Dice loss, where both are added"},
    {"task", "smoothing", BY__KEY_REAL, BY__OWN(segment_keys, smoothing), "0", 0, 1, BY__BELOW_MAX,
     .help = "label smoothing of the cross-entropy in training (Szegedy et al. 2016)"},
    {"task", "ignore", BY__KEY_INT, BY__OWN(segment_keys, set.unlabelled), "255", 0, BY__MI24,
     .help = "the number in label maps of pixels that have no class: they count nowhere"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

extern const by__task_row by__task_segment;

/* Added to both sides of the quotient of Dice, so that a class that is nowhere counts as found. */
#define DICE_SMOOTH 1.0f

static by_status check_output(const by_config *config, const by_graph *graph, by_value output,
                              by_error *error)
{
    const by_model_config *m = &config->model;
    bool known = by__graph_has(graph, output);
    const by_shape *shape = known ? &graph->values[output].shape : NULL;
    return !known || (shape->rank == 4 && shape->dim[1] == m->image_height &&
                      shape->dim[2] == m->image_width)
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "task.kind segment needs an output at each pixel, which model.kind "
                              "%s does not have: set model.kind to unet",
                              m->kind);
}

static by_status loss(const by_config *config, const by_model_request *request, by_graph *graph,
                      by_model *model, by_error *error)
{
    const segment_keys *own = by__config_kind_own(config->task.own, &by__task_segment.kind);
    const by_model_config *m = &config->model;
    bool training = request->mode == BY_MODEL_TRAIN;
    BY_TRY(by__task_examples_needs_output(config, model, error));
    BY_TRY(check_output(config, graph, model->output, error));
    by_value labels = by_graph_input(graph, "labels", BY_I32,
                                     BY_SHAPE(request->batch, m->image_height, m->image_width));
    const char *kind = own == NULL ? "cross_entropy" : own->loss;
    by_value entropy = BY_NONE;
    by_value dice = BY_NONE;
    if (strcmp(kind, "dice") != 0) {
        float smoothing = training && own != NULL ? (float)own->smoothing : 0.0f;
        entropy = by_cross_entropy(graph, model->output, labels, smoothing);
    }
    if (strcmp(kind, "cross_entropy") != 0) {
        dice = by_dice(graph, model->output, labels, DICE_SMOOTH);
    }
    if (entropy != BY_NONE && dice != BY_NONE) {
        by_value weight = by_fill(graph, BY_F32, BY_SHAPE(1), (float)own->dice_weight);
        dice = by_add(graph, entropy, by_scale(graph, dice, weight));
    }
    model->loss = dice != BY_NONE ? dice : entropy;
    model->evaluated = training ? BY_NONE : model->output;
    return BY_OK;
}

/* ---- metrics ---- */

enum { SUM_PIXELS, SUM_CORRECT, SUM_WIDTH, SUM_BOTH, SUM_SAID, SUM_TRUE };

static size_t count_classes(const by_task_data *data, const by_config *config)
{
    BY_UNUSED(data);
    return config->model.outputs > 0 ? (size_t)config->model.outputs : 1;
}

/* Of the pixels that have a class: their number, of those that are right, that times the number of
 * classes; for each class those that are said to be of it and are, that are said to be, and that
 * are. */
static const by_task_sum sums_of[] = {
    [SUM_PIXELS] = {.name = "pixels"},
    [SUM_CORRECT] = {.name = "correct"},
    [SUM_WIDTH] = {.name = "width"},
    [SUM_BOTH] = {.name = "both", .count = count_classes},
    [SUM_SAID] = {.name = "said", .count = count_classes},
    [SUM_TRUE] = {.name = "true", .count = count_classes},
};

/* Of equal logits the lower class. */
static size_t largest(const float *logits, size_t classes)
{
    size_t best = 0;
    for (size_t c = 1; c < classes; c++) {
        best = logits[c] > logits[best] ? c : best;
    }
    return best;
}

static size_t plane_of(const by_array *labels)
{
    return (size_t)(labels->shape.dim[1] * labels->shape.dim[2]);
}

static void measure(const by_task_data *data, double *const *sums, const by_batch *batch,
                    const float *values, size_t width)
{
    const by_array *labels = by_batch_array(batch, "labels");
    BY_UNUSED(data);
    size_t plane = labels == NULL ? 0 : plane_of(labels);
    size_t classes = plane == 0 ? 0 : width / plane;
    for (size_t i = 0; i < batch->batch * plane; i++) {
        int32_t label = ((const int32_t *)labels->data)[i];
        if (label >= 0 && (size_t)label < classes) {
            size_t said = largest(values + i * classes, classes);
            *sums[SUM_PIXELS] += 1.0;
            *sums[SUM_WIDTH] += (double)classes;
            *sums[SUM_CORRECT] += said == (size_t)label ? 1.0 : 0.0;
            sums[SUM_BOTH][label] += said == (size_t)label ? 1.0 : 0.0;
            sums[SUM_SAID][said] += 1.0;
            sums[SUM_TRUE][label] += 1.0;
        }
    }
}

/* The mean of intersection over union of the classes that are somewhere, in all images together
 * (the Jaccard index, macro-averaged). */
static double mean_iou(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    double sum = 0.0;
    double count = 0.0;
    size_t classes = *sums[SUM_PIXELS] > 0.0 ? (size_t)(*sums[SUM_WIDTH] / *sums[SUM_PIXELS]) : 0;
    BY_UNUSED(data);
    BY_UNUSED(e);
    for (size_t c = 0; c < classes; c++) {
        double either = sums[SUM_SAID][c] + sums[SUM_TRUE][c] - sums[SUM_BOTH][c];
        sum += either > 0.0 ? sums[SUM_BOTH][c] / either : 0.0;
        count += either > 0.0 ? 1.0 : 0.0;
    }
    return count > 0.0 ? sum / count : (double)NAN;
}

static double pixel_accuracy(const by_task_data *data, const double *const *sums,
                             const by_evaluation *e)
{
    BY_UNUSED(data);
    BY_UNUSED(e);
    return *sums[SUM_CORRECT] / *sums[SUM_PIXELS];
}

static const by_metric metrics[] = {{"mean_iou", true, 4, mean_iou},
                                    {"pixel_accuracy", true, 4, pixel_accuracy}};

/* ---- predictions ---- */

void by_class_color(uint8_t rgb[3], unsigned class_number)
{
    memset(rgb, 0, 3);
    for (unsigned bit = 0, rest = class_number; bit < 8; bit++, rest >>= 3) {
        for (unsigned k = 0; k < 3; k++) {
            rgb[k] = (uint8_t)(rgb[k] | ((rest >> k & 1u) << (7 - bit)));
        }
    }
}

/* What a prediction is made in. */
typedef struct mask_drawing {
    uint8_t *classes; /* [height, width] */
    float *shares;    /* [count] of the pixels that each class has */
    size_t count;
    int64_t height;
    int64_t width;
    uint8_t palette[256][3];
} mask_drawing;

static by_status predict_one(const by__task_examples *d, uint64_t index, const float *logits,
                             mask_drawing *w, by_predicted *report, void *user, by_error *error)
{
    uint8_t *png;
    size_t size;
    size_t plane = (size_t)(w->height * w->width);
    by_example_name of = {.index = index};
    by__task_examples_name(&d->base, index, &of);
    memset(w->shares, 0, w->count * sizeof *w->shares);
    for (size_t i = 0; i < plane; i++) {
        w->classes[i] = (uint8_t)largest(logits + i * w->count, w->count);
        w->shares[w->classes[i]] += 1.0f;
    }
    for (size_t c = 0; c < w->count; c++) {
        w->shares[c] /= (float)plane;
    }
    const by__format_image_pixels image = {.pixels = w->classes,
                                           .channels = 1,
                                           .height = w->height,
                                           .width = w->width,
                                           .palette = (const uint8_t(*)[3])w->palette,
                                           .colours = 256};
    BY_TRY(by__format_png_encode(&png, &size, &image, error));
    const by_field fields[] = {{.name = "index", .number = (double)of.index, .is_whole = true},
                               {.name = "shares", .list = w->shares, .list_count = w->count},
                               {.name = "mask", .png = png, .png_size = size},
                               {.name = "file", .text = of.file},
                               {.name = "sample", .text = of.sample}};
    report(user, fields,
           BY_ARRAY_LENGTH(fields) - (size_t)(of.file == NULL) - (size_t)(of.sample == NULL));
    free(png);
    return BY_OK;
}

static by_status predict(by_task_data *data, const by_batch *batch, double sum, const float *values,
                         size_t width, by_predicted *report, void *user, by_error *error)
{
    const by_array *weight = by_batch_array(batch, "weight");
    const by_array *labels = by_batch_array(batch, "labels");
    BY_UNUSED(sum);
    if (weight == NULL || labels == NULL || plane_of(labels) == 0) {
        return BY_OK;
    }
    size_t plane = plane_of(labels);
    mask_drawing w = {
        .count = width / plane, .height = labels->shape.dim[1], .width = labels->shape.dim[2]};
    if (w.count > 256) {
        return by_error_set(error, BY_EARG, "a PNG has up to 256 classes, the model %zu", w.count);
    }
    for (unsigned c = 0; c < 256; c++) {
        by_class_color(w.palette[c], c);
    }
    by_status status = by__alloc((void **)&w.classes, plane, 1, "a mask", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&w.shares, w.count, sizeof *w.shares, "a mask", error);
    }
    for (size_t i = 0; i < batch->batch && status == BY_OK; i++) {
        if (((const float *)weight->data)[i] > 0.0f) {
            status = predict_one((const by__task_examples *)data, batch->first_sample + i,
                                 values + i * width, &w, report, user, error);
        }
    }
    free(w.classes);
    free(w.shares);
    return status;
}

static const char *loss_label(const by_config *config)
{
    const segment_keys *own = by__config_kind_own(config->task.own, &by__task_segment.kind);
    return own == NULL || strcmp(own->loss, "cross_entropy") == 0 ? "cross-entropy (nats per pixel)"
           : strcmp(own->loss, "dice") == 0                       ? "Dice loss"
                                                                  : "cross-entropy and Dice loss";
}

const by__task_row by__task_segment = {
    .kind = {.name = "segment",
             .help = "Segmentation: a class for each pixel of an image.",
             .keys = {&key_list, &by__task_image_data_keys, &by__task_split_keys},
             .size = sizeof(segment_keys)},
    .task = {.name = "segment",
             .examples = "images",
             .best_by_metric = true,
             BY__TASK_LEARNS,
             .predict = predict,
             BY__TASK_EXAMPLES},
    .classes = true,
    .maps = true};
