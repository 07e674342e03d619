/* banyan plot --show wrong and filters: grids of images. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/plot.h"
#include "runs/plot_scores.h"

#define LINE 96 /* bytes of a line below an image */

static by_status no_memory(by_error *error)
{
    return by_error_set(error, BY_EMEMORY, "out of memory: images");
}

/* ---- wrong examples ---- */

/* The probability of the class that a row of logits says. */
static double softmax_of(const float *logits, size_t classes, size_t said)
{
    double sum = 0.0;
    for (size_t c = 0; c < classes; c++) {
        sum += exp((double)logits[c] - (double)logits[said]);
    }
    return 1.0 / sum;
}

/* Makes room for an example of this probability, behind those that are as sure; NULL: there are
 * enough of them. */
static cli_wrong *make_room(cli_wrongs *w, double probability)
{
    size_t at = w->count;
    while (at > 0 && w->items[at - 1].probability < probability) {
        at--;
    }
    if (at == w->most) {
        return NULL;
    }
    uint8_t *pixels = w->count == w->most ? w->items[w->most - 1].pixels : NULL;
    w->count += w->count < w->most;
    memmove(w->items + at + 1, w->items + at, (w->count - 1 - at) * sizeof *w->items);
    w->items[at] = (cli_wrong){.pixels = pixels};
    return &w->items[at];
}

static by_status add_wrong(cli_wrongs *w, const by_task_data *data, const by_array *images,
                           size_t i, const cli_wrong *wrong, by_error *error)
{
    size_t bytes = w->shape[0] * w->shape[1] * w->shape[2];
    cli_wrong *item = make_room(w, wrong->probability);
    if (item == NULL) {
        return BY_OK;
    }
    uint8_t *pixels = item->pixels == NULL ? malloc(bytes) : item->pixels;
    *item = *wrong;
    item->pixels = pixels;
    if (pixels == NULL) {
        return no_memory(error);
    }
    data->task->pixels(data, images, i, pixels);
    return BY_OK;
}

by_status cli_add_wrongs(cli_wrongs *w, const by_task_data *data, const by_batch *batch,
                         const float *values, size_t width, by_error *error)
{
    const by_array *images = by_batch_array(batch, "images");
    const by_array *labels = by_batch_array(batch, "labels");
    if (images == NULL || images->shape.rank != 4 || data->task->pixels == NULL) {
        return by_error_set(error, BY_EARG,
                            "--show wrong draws images; this model reads none: `banyan predict` "
                            "writes what it says of rows");
    }
    if (w->items == NULL && (w->items = calloc(w->most, sizeof *w->items)) == NULL) {
        return no_memory(error);
    }
    for (int k = 0; k < 3; k++) {
        w->shape[k] = (size_t)images->shape.dim[k + 1];
    }
    by_status status = BY_OK;
    for (size_t i = 0; i < batch->batch && status == BY_OK; i++) {
        const float *row = values + i * width;
        int32_t class = ((const int32_t *)labels->data)[i];
        size_t said = 0;
        for (size_t c = 1; c < width; c++) {
            said = row[c] > row[said] ? c : said;
        }
        if (class >= 0 && said != (size_t) class) {
            const cli_wrong wrong = {
                .class = class, .said = (int64_t)said, .probability = softmax_of(row, width, said)};
            status = add_wrong(w, data, images, i, &wrong, error);
        }
    }
    return status;
}

/* Tiles with room for their text. */
typedef struct wrong_tiles {
    by_tile *tiles;
    char (*lines)[2][LINE];
} wrong_tiles;

by_status cli_draw_wrongs(const cli_wrongs *w, const by_task_kept *kept, const char *out,
                          by_error *error)
{
    char text[2][32];
    wrong_tiles t = {.tiles = NULL};
    if (w->count == 0) {
        return by_error_set(error, BY_ESTATE, "--show wrong: there is no wrong example");
    }
    t.tiles = calloc(w->count, sizeof *t.tiles);
    t.lines = calloc(w->count, sizeof *t.lines);
    by_status status = t.tiles == NULL || t.lines == NULL ? no_memory(error) : BY_OK;
    for (size_t i = 0; i < w->count && status == BY_OK; i++) {
        const cli_wrong *item = &w->items[i];
        (void)snprintf(t.lines[i][0], LINE, "%.70s %.2f", cli_class_name(text[0], kept, item->said),
                       item->probability);
        (void)snprintf(t.lines[i][1], LINE, "is %.70s", cli_class_name(text[1], kept, item->class));
        t.tiles[i] = (by_tile){.pixels = item->pixels, .lines = {t.lines[i][0], t.lines[i][1]}};
    }
    if (status == BY_OK) {
        const by_tiles tiles = {.tiles = t.tiles,
                                .count = w->count,
                                .images = 1,
                                .channels = w->shape[0],
                                .height = w->shape[1],
                                .width = w->shape[2],
                                .title = "wrong, the surest first"};
        status = by_tiles_write(&tiles, out, error);
    }
    free(t.tiles);
    free(t.lines);
    return status;
}

void cli_free_wrongs(cli_wrongs *w)
{
    for (size_t i = 0; i < w->count; i++) {
        free(w->items[i].pixels);
    }
    free(w->items);
    *w = (cli_wrongs){0};
}

/* ---- filters ---- */

/* Finds the weights of the first layer: [out, channels, height, width], by their name if several
 * have this form. */
static by_status find_filters(by_tensor_view *out, const by_pretrained *model, by_error *error)
{
    const by_weights *weights = by_pretrained_weights(model);
    const by_config *config = by_pretrained_config(model);
    bool found = false;
    for (size_t i = 0; i < by_weights_count(weights); i++) {
        by_tensor_view view;
        const char *name = by_weights_name(weights, i);
        by_status status = by_weights_tensor(weights, name, &view, error);
        if (status != BY_OK) {
            return status;
        }
        bool begins = strstr(name, "embed") != NULL || strstr(name, "stem") != NULL;
        if (view.rank == 4 && view.shape[1] == config->model.channels && view.shape[2] > 1 &&
            (!found || begins)) {
            *out = view;
            found = true;
            if (begins) {
                break;
            }
        }
    }
    return found ? BY_OK
                 : by_error_set(error, BY_EARG,
                                "--show filters: a model of kind %s has no convolution of images",
                                config->model.kind);
}

/* Pixels of filters: 0 is the middle, and the largest of all is black or white. */
static void draw_weights(uint8_t *out, const float *weights, size_t count)
{
    float most = 0.0f;
    for (size_t i = 0; i < count; i++) {
        most = fmaxf(most, fabsf(weights[i]));
    }
    for (size_t i = 0; i < count; i++) {
        float share = most > 0.0f && isfinite(weights[i]) ? weights[i] / most : 0.0f;
        out[i] = (uint8_t)lrintf(127.5f + 127.5f * fminf(fmaxf(share, -1.0f), 1.0f));
    }
}

by_status cli_draw_filters(const by_pretrained *model, size_t most, const char *out,
                           by_error *error)
{
    by_tensor_view view;
    char title[96];
    by_status status = find_filters(&view, model, error);
    if (status != BY_OK) {
        return status;
    }
    /* Of images with other channels than grey or RGB, each channel is an image of its own. */
    bool whole = view.shape[1] == 1 || view.shape[1] == 3;
    size_t plane = (size_t)(view.shape[2] * view.shape[3]);
    size_t all = (size_t)(view.shape[0] * view.shape[1]) * plane;
    size_t bytes = whole ? (size_t)view.shape[1] * plane : plane;
    size_t count = all / bytes < most ? all / bytes : most;
    float *weights = malloc(all * sizeof *weights);
    uint8_t *pixels = malloc(all);
    by_tile *tiles = calloc(count, sizeof *tiles);
    status = weights == NULL || pixels == NULL || tiles == NULL
                 ? no_memory(error)
                 : by_tensor_read_f32(&view, weights, all, error);
    if (status == BY_OK) {
        draw_weights(pixels, weights, all);
        for (size_t i = 0; i < count; i++) {
            tiles[i] = (by_tile){.pixels = pixels + i * bytes};
        }
        (void)snprintf(title, sizeof title, "%zu of %zu filters of %lld x %lld", count, all / bytes,
                       (long long)view.shape[3], (long long)view.shape[2]);
        const by_tiles page = {.tiles = tiles,
                               .count = count,
                               .images = 1,
                               .channels = whole ? (size_t)view.shape[1] : 1,
                               .height = (size_t)view.shape[2],
                               .width = (size_t)view.shape[3],
                               .title = title};
        status = by_tiles_write(&page, out, error);
    }
    free(weights);
    free(pixels);
    free(tiles);
    return status;
}
