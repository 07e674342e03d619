/* Images out of noise: a model of task.kind diffuse, run from the last time to the first. With
 * guidance, a run has each image twice, once with its class and once without. */
#include "banyan/diffusion.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/task.h"
#include "formats/image/png_write.h"
#include "infer/diffusion_step.h"
#include "infer/infer.h"

#define PURPOSE_NOISE 0x73616d70u /* "samp" in ASCII */

#define MAX_BATCH   1024
#define USUAL_BATCH 16
#define USUAL_STEPS 50

struct by_diffusion {
    by_config *config;
    by_task_data *data; /* scales of pixels, */
    by_task_kept kept;  /* and names of classes */
    by__task_diffusion process;
    by__infer_forward forward;
    by__exec_program_row *row;
    by_diffusion_options options;
    int64_t rows;        /* of a run: the batch, or with guidance twice that */
    size_t elements;     /* of an image */
    by_memory device[4]; /* images, timesteps, classes, output */
    by_pinned host;      /* the same */
    float *images;       /* [rows, elements] */
    int32_t *timesteps;  /* [rows] */
    int32_t *classes;    /* [rows] */
    float *predicted;    /* [rows, elements] */
};

static const char *const names[] = {"images", "timesteps", "classes", "predicted"};
enum { IMAGES, TIMESTEPS, CLASSES, PREDICTED };

static bool is_guided(const by_diffusion *d)
{
    return d->options.guidance != 1.0;
}

/* ---- opening ---- */

static by_status build(void *user, by_model *out, by_graph *graph, const by_model_config *config,
                       const by_model_request *request, by_error *error)
{
    BY_UNUSED(user);
    BY_TRY(by_model_build(out, graph, config, request, error));
    by_graph_output(graph, by_cast(graph, out->output, BY_F32), names[PREDICTED]);
    return by_graph_check(graph, error);
}

static by_status check_options(by_diffusion *d, const by_diffusion_options *options,
                               by_error *error)
{
    by_diffusion_options *o = &d->options;
    *o = *options;
    o->batch = o->batch == 0 ? USUAL_BATCH : o->batch;
    o->steps = o->steps != 0                    ? o->steps
               : d->process.steps < USUAL_STEPS ? d->process.steps
                                                : USUAL_STEPS;
    if (o->steps < 1 || o->steps > d->process.steps) {
        return by_error_set(error, BY_EARG,
                            "%lld steps: the model has learned %lld times (task.timesteps), so 1 "
                            "to %lld are possible",
                            (long long)o->steps, (long long)d->process.steps,
                            (long long)d->process.steps);
    }
    if (o->batch < 1 || o->batch > MAX_BATCH || !isfinite(o->guidance)) {
        return by_error_set(error, BY_EARG,
                            "%lld images together with guidance %g: there are 1 to %d, and "
                            "guidance is a number",
                            (long long)o->batch, o->guidance, MAX_BATCH);
    }
    d->rows = is_guided(d) ? 2 * o->batch : o->batch;
    return BY_OK;
}

static by_status open_task(by_diffusion *d, const char *learned, by_error *error)
{
    const by_task *task;
    const by_task_request what = {
        .purpose = BY_TASK_PREDICT, .config = d->config, .learned = learned};
    BY_TRY(by_task_find(&task, d->config, error));
    BY_TRY(task->open(&d->data, &what, error));
    return task->keep == NULL ? BY_OK : task->keep(d->data, d->config, &d->kept, error);
}

static by_status open_program(by_diffusion *d, const by_weights *weights, by_error *error)
{
    by_model model;
    by__infer_forward_options how;
    const by_model_request request = {.mode = BY_MODEL_LOSS, .batch = d->rows};
    BY_TRY(by__infer_forward_options_read(&how, d->config, weights, d->options.precision,
                                          d->options.threads, error));
    how.builder = build;
    BY_TRY(by__infer_forward_open(&d->forward, &how, error));
    BY_TRY(by__infer_forward_add(&d->forward, "denoise", &request, &model, &d->row, error));
    BY_TRY(by__infer_forward_plan(&d->forward, weights, error));
    return by__infer_forward_start(&d->forward, weights, error);
}

static by_status allocate(by_diffusion *d, by_error *error)
{
    size_t numbers = (size_t)d->rows * sizeof(int32_t);
    size_t images = (size_t)d->rows * d->elements * sizeof(float);
    const size_t bytes[] = {images, numbers, numbers, images};
    char *host;
    BY_TRY(by_device_pin(&d->host, d->forward.device,
                         2 * images + 2 * by__round_up(numbers, BY_CACHE_LINE), "images", error));
    for (size_t i = 0; i < BY_ARRAY_LENGTH(bytes); i++) {
        BY_TRY(by_device_alloc(&d->device[i], d->forward.device, bytes[i], "images", error));
        BY_TRY(by__exec_row_bind(d->row, names[i], d->device[i], error));
    }
    host = d->host.data;
    d->images = (float *)(void *)host;
    d->predicted = (float *)(void *)(host + images);
    d->timesteps = (int32_t *)(void *)(host + 2 * images);
    d->classes = (int32_t *)(void *)(host + 2 * images + by__round_up(numbers, BY_CACHE_LINE));
    return BY_OK;
}

static by_status set_up(by_diffusion *d, const by_config *config, const by_weights *weights,
                        const char *learned, const by_diffusion_options *options, by_error *error)
{
    const by_model_config *m;
    BY_TRY(by_config_copy(&d->config, config, error));
    d->config->model.from[0] = '\0';
    m = &d->config->model;
    BY_TRY(by__task_diffuse_process(&d->process, d->config, error));
    BY_TRY(check_options(d, options, error));
    d->elements = (size_t)(m->channels * m->image_height * m->image_width);
    BY_TRY(open_task(d, learned, error));
    BY_TRY(open_program(d, weights, error));
    return allocate(d, error);
}

by_status by_diffusion_open(by_diffusion **out, const by_config *config, const by_weights *weights,
                            const char *learned, const by_diffusion_options *options,
                            by_error *error)
{
    by_diffusion *d;
    BY_TRY(by__alloc((void **)&d, 1, sizeof *d, "a diffusion", error));
    by_status status = set_up(d, config, weights, learned, options, error);
    if (status != BY_OK) {
        by_diffusion_close(&d);
        return status;
    }
    *out = d;
    return BY_OK;
}

void by_diffusion_close(by_diffusion **diffusion)
{
    if (diffusion == NULL || *diffusion == NULL) {
        return;
    }
    by_diffusion *d = *diffusion;
    by_device_unpin(&d->host);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(d->device); i++) {
        by_device_free(&d->device[i]);
    }
    by__infer_forward_close(&d->forward);
    by__task_diffusion_close(&d->process);
    by_task_close(&d->data);
    by_config_close(&d->config);
    free(d);
    *diffusion = NULL;
}

int64_t by_diffusion_batch(const by_diffusion *diffusion)
{
    return diffusion->options.batch;
}

int64_t by_diffusion_classes(const by_diffusion *diffusion)
{
    return diffusion->config->model.outputs;
}

const char *by_diffusion_class_name(const by_diffusion *diffusion, int64_t class_number)
{
    const by_task_kept *kept = &diffusion->kept;
    return class_number >= 0 && (uint64_t)class_number < kept->label_count
               ? kept->labels[class_number]
               : NULL;
}

void by_diffusion_image(const by_diffusion *diffusion, int64_t size[3])
{
    const by_model_config *m = &diffusion->config->model;
    size[0] = m->channels;
    size[1] = m->image_height;
    size[2] = m->image_width;
}

/* ---- running ---- */

/* Sets the first images to noise, each of its number. */
static by_status begin(by_diffusion *d, size_t count, uint64_t first, by_error *error)
{
    uint32_t key[2];
    by__philox_key(key, d->options.seed, PURPOSE_NOISE);
    memset(d->images, 0, (size_t)d->rows * d->elements * sizeof *d->images);
    for (size_t i = 0; i < count; i++) {
        uint32_t own[4];
        uint64_t number = first + i;
        by__philox(own, key, (uint32_t[4]){(uint32_t)number, (uint32_t)(number >> 32)});
        BY_TRY(by__task_diffusion_normals(d->images + i * d->elements, d->elements, own, error));
    }
    return BY_OK;
}

/* The classes of a run; with guidance its second half has none. */
static by_status set_classes(by_diffusion *d, const int32_t *classes, size_t count, by_error *error)
{
    int32_t none = (int32_t)d->config->model.outputs;
    for (int64_t i = 0; i < d->rows; i++) {
        d->classes[i] = none;
    }
    for (size_t i = 0; i < count; i++) {
        if (classes[i] < -1 || classes[i] >= none) {
            return by_error_set(error, BY_EARG, "class %d: the model has classes 0 to %d",
                                classes[i], none - 1);
        }
        d->classes[i] = classes[i] < 0 ? none : classes[i];
    }
    return BY_OK;
}

/* Runs the model once for all rows. */
static by_status predict(by_diffusion *d, int64_t time, by_error *error)
{
    size_t half = (size_t)d->options.batch * d->elements;
    for (int64_t i = 0; i < d->rows; i++) {
        d->timesteps[i] = by__task_diffusion_input(&d->process, time);
    }
    if (is_guided(d)) {
        memcpy(d->images + half, d->images, half * sizeof *d->images);
    }
    BY_TRY(by__device_copy_in(BY__QUEUE_COMPUTE, d->device[IMAGES], d->images, error));
    BY_TRY(by__device_copy_in(BY__QUEUE_COMPUTE, d->device[TIMESTEPS], d->timesteps, error));
    BY_TRY(by__device_copy_in(BY__QUEUE_COMPUTE, d->device[CLASSES], d->classes, error));
    BY_TRY(by_program_submit(d->row->program, error));
    BY_TRY(by__device_copy_out(BY__QUEUE_COMPUTE, d->predicted, d->device[PREDICTED], error));
    return by__device_queue_finish(d->forward.device, BY__QUEUE_COMPUTE, error);
}

static by_status finish(by_diffusion *d, size_t count, uint8_t *pixels, by_error *error)
{
    const by_model_config *m = &d->config->model;
    const by_array images = {
        .name = names[IMAGES],
        .dtype = BY_F32,
        .shape = BY_SHAPE((int64_t)count, m->channels, m->image_height, m->image_width),
        .data = d->images};
    for (size_t i = 0; i < count * d->elements; i++) {
        if (!isfinite(d->images[i])) {
            return by_error_set(error, BY_ESTATE,
                                "image %zu has a pixel of %g: the weights are not usable, or "
                                "exceed the range of the precision",
                                i / d->elements, (double)d->images[i]);
        }
    }
    for (size_t i = 0; i < count; i++) {
        d->data->task->pixels(d->data, &images, i, pixels + i * d->elements);
    }
    return BY_OK;
}

by_status by_diffusion_run(by_diffusion *d, const int32_t *classes, size_t count, uint64_t first,
                           uint8_t *pixels, by_error *error)
{
    if (count < 1 || count > (size_t)d->options.batch) {
        return by_error_set(error, BY_EARG, "%zu images; 1 to %lld are made together", count,
                            (long long)d->options.batch);
    }
    size_t numbers = (size_t)d->options.batch * d->elements;
    BY_TRY(set_classes(d, classes, count, error));
    BY_TRY(by__exec_row_check(d->row, names[CLASSES], d->classes, error));
    BY_TRY(begin(d, count, first, error));
    for (int64_t i = d->options.steps; i > 0; i--) {
        int64_t from = by__infer_diffusion_time(&d->process, i, d->options.steps);
        int64_t to = by__infer_diffusion_time(&d->process, i - 1, d->options.steps);
        BY_TRY(predict(d, from, error));
        if (is_guided(d)) {
            by__infer_diffusion_guide(d->predicted, d->predicted + numbers, d->options.guidance,
                                      numbers);
        }
        by__infer_diffusion_step(&d->process, from, to, d->images, d->predicted, numbers);
    }
    return finish(d, count, pixels, error);
}

by_status by_diffusion_write(const char *path, const uint8_t *pixels, const int64_t size[3],
                             by_error *error)
{
    uint8_t *png;
    size_t length;
    const by__format_image_pixels image = {
        .pixels = pixels, .channels = size[0], .height = size[1], .width = size[2]};
    BY_TRY(by__format_png_encode(&png, &length, &image, error));
    by_status status = by__file_write(path, png, length, error);
    free(png);
    return status;
}
