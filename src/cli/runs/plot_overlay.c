/* banyan plot --show overlay: the classes of pixels of a segmentation, over held-out images. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/plot.h"
#include "banyan/train.h"
#include "runs/plot_scores.h"

#define LINE 64

typedef struct overlay_grid {
    const by_task_data *data;
    size_t most;
    by_tiles tiles; /* of the image, with its classes, and with those that are said */
    by_tile *items;
    char (*lines)[LINE];
    uint8_t *pixels; /* [most, 3, 3, height, width] */
    uint8_t *image;  /* [channels, height, width] of the data */
    size_t channels;
} overlay_grid;

static by_status allocate(overlay_grid *g, const by_array *images, by_error *error)
{
    size_t height = (size_t)images->shape.dim[2];
    size_t width = (size_t)images->shape.dim[3];
    g->channels = (size_t)images->shape.dim[1];
    g->items = calloc(g->most, sizeof *g->items);
    g->lines = calloc(g->most, sizeof *g->lines);
    g->pixels = calloc(g->most, 9 * height * width);
    g->image = calloc(g->channels, height * width);
    g->tiles = (by_tiles){.tiles = g->items,
                          .images = 3,
                          .channels = 3,
                          .height = height,
                          .width = width,
                          .title = "held-out images, their classes, and what is said of them"};
    return g->items != NULL && g->lines != NULL && g->pixels != NULL && g->image != NULL
               ? BY_OK
               : by_error_set(error, BY_EMEMORY, "out of memory: images");
}

/* Paints a pixel of a class other than 0 half with its colour; one of no class is darkened. */
static void paint(uint8_t *rgb, size_t plane, size_t i, int64_t class)
{
    uint8_t color[3] = {0};
    if (class == 0) {
        return;
    }
    if (class > 0) {
        by_class_color(color, (unsigned)class);
    }
    for (size_t c = 0; c < 3; c++) {
        rgb[c * plane + i] = (uint8_t)((rgb[c * plane + i] + color[c]) / 2);
    }
}

/* The class with the largest of the logits. */
static size_t largest(const float *logits, size_t classes)
{
    size_t best = 0;
    for (size_t c = 1; c < classes; c++) {
        best = logits[c] > logits[best] ? c : best;
    }
    return best;
}

static void add_image(overlay_grid *g, const by_batch *batch, size_t i, const float *logits,
                      size_t classes)
{
    size_t plane = g->tiles.height * g->tiles.width;
    size_t at = g->tiles.count++;
    uint8_t *pixels = g->pixels + at * 9 * plane;
    const int32_t *labels = by_batch_array(batch, "labels")->data;
    size_t right = 0;
    size_t all = 0;
    g->data->task->pixels(g->data, by_batch_array(batch, "images"), i, g->image);
    for (size_t k = 0; k < 3; k++) {
        for (size_t c = 0; c < 3; c++) {
            size_t from = g->channels == 3 ? c : 0;
            memcpy(pixels + (3 * k + c) * plane, g->image + from * plane, plane);
        }
    }
    for (size_t p = 0; p < plane; p++) {
        int32_t class = labels[i * plane + p];
        size_t said = largest(logits + p * classes, classes);
        paint(pixels + 3 * plane, plane, p, class);
        paint(pixels + 6 * plane, plane, p, (int64_t)said);
        all += class >= 0;
        right += class >= 0 && (size_t) class == said;
    }
    (void)snprintf(g->lines[at], LINE, "%.1f %% right",
                   100.0 * (double)right / (double)(all > 0 ? all : 1));
    g->items[at] = (by_tile){.pixels = pixels, .lines = {g->lines[at]}};
}

static by_status take_batch(void *user, const by_batch *batch, const float *values, size_t width,
                            by_error *error)
{
    overlay_grid *g = user;
    const by_array *weights = by_batch_array(batch, "weight");
    const by_array *images = by_batch_array(batch, "images");
    const by_array *labels = by_batch_array(batch, "labels");
    if (images == NULL || labels == NULL || labels->shape.rank != 3) {
        return by_error_set(error, BY_EARG,
                            "--show overlay draws images whose pixels have classes, and there are "
                            "none");
    }
    by_status status = g->items == NULL ? allocate(g, images, error) : BY_OK;
    size_t plane = (size_t)(labels->shape.dim[1] * labels->shape.dim[2]);
    for (size_t i = 0; i < batch->batch && status == BY_OK && g->tiles.count < g->most; i++) {
        if (weights == NULL || ((const float *)weights->data)[i] > 0.0f) {
            add_image(g, batch, i, values + i * width, width / plane);
        }
    }
    return status;
}

static bool is_full(void *user)
{
    const overlay_grid *g = user;
    return (g->items != NULL && g->tiles.count == g->most) || cli_stop_requested(NULL);
}

by_status cli_draw_overlays(const by_config *config, const by_pretrained *model, by_task_data *data,
                            size_t most, const char *out, by_error *error)
{
    overlay_grid g = {.data = data, .most = most};
    by_status status = by_evaluate_each(config, by_pretrained_weights(model), data, NULL,
                                        take_batch, is_full, &g, error);
    if (status == BY_ESTOPPED && g.tiles.count == most) {
        status = BY_OK;
    }
    if (status == BY_OK) {
        status = by_tiles_write(&g.tiles, out, error);
    }
    free(g.items);
    free(g.lines);
    free(g.pixels);
    free(g.image);
    return status;
}
