/* banyan plot --show attention: what the class token of a ViT attends to. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/plot.h"
#include "banyan/train.h"
#include "runs/plot_scores.h"

#define MAX_HEADS 8 /* of more heads, their mean is drawn */
#define LINE      96

typedef struct attention_grid {
    const by_config *config;
    const by_task_data *data;
    const by_task_kept *kept;
    size_t most;
    size_t heads; /* that are drawn */
    by_tiles tiles;
    by_tile *items;
    char (*lines)[LINE];
    uint8_t *pixels; /* [most, 1 + heads, channels, height, width] */
} attention_grid;

static by_status allocate(attention_grid *g, const by_array *images, by_error *error)
{
    size_t channels = (size_t)images->shape.dim[1];
    size_t height = (size_t)images->shape.dim[2];
    size_t width = (size_t)images->shape.dim[3];
    size_t all = (size_t)g->config->model.heads;
    g->heads = all <= MAX_HEADS ? all : 1;
    g->items = calloc(g->most, sizeof *g->items);
    g->lines = calloc(g->most, sizeof *g->lines);
    g->pixels = calloc(g->most, (1 + g->heads) * channels * height * width);
    g->tiles = (by_tiles){.tiles = g->items,
                          .images = 1 + g->heads,
                          .channels = channels,
                          .height = height,
                          .width = width,
                          .title = g->heads == all ? "attention of each head in the last layer"
                                                   : "mean attention of the last layer"};
    return g->items != NULL && g->lines != NULL && g->pixels != NULL
               ? BY_OK
               : by_error_set(error, BY_EMEMORY, "out of memory: images");
}

/* Darkens an image where little is attended to. shares: of each patch, in rows. */
static void put_map(uint8_t *out, const uint8_t *image, const by_tiles *t, const double *shares,
                    size_t patch)
{
    size_t across = t->width / patch;
    double most = 0.0;
    for (size_t i = 0; i < across * (t->height / patch); i++) {
        most = fmax(most, shares[i]);
    }
    for (size_t i = 0; i < t->channels * t->height * t->width; i++) {
        size_t y = i / t->width % t->height;
        double share = most > 0.0 ? shares[y / patch * across + i % t->width / patch] / most : 0.0;
        out[i] = (uint8_t)lrint((0.15 + 0.85 * share) * image[i]);
    }
}

/* Adds an image with the attention of each head to [tokens], of which the first is the class
 * token. */
static by_status add_image(attention_grid *g, const by_batch *batch, size_t i, const float *values,
                           size_t tokens, by_error *error)
{
    const by_array *images = by_batch_array(batch, "images");
    const by_array *labels = by_batch_array(batch, "labels");
    const by_tiles *t = &g->tiles;
    size_t plane = t->channels * t->height * t->width;
    size_t at = g->tiles.count;
    size_t all = (size_t)g->config->model.heads;
    size_t patch = (size_t)lrint(sqrt((double)(t->height * t->width) / (double)(tokens - 1)));
    uint8_t *pixels = g->pixels + at * (1 + g->heads) * plane;
    char text[32];
    if (patch == 0 || t->height / patch * (t->width / patch) + 1 != tokens) {
        return by_error_set(error, BY_EARG,
                            "the attention of an image of %zu x %zu to %zu tokens, which are not "
                            "its patches",
                            t->width, t->height, tokens);
    }
    double *shares = calloc(tokens, sizeof *shares);
    if (shares == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: images");
    }
    g->data->task->pixels(g->data, images, i, pixels);
    for (size_t h = 0; h < g->heads; h++) {
        for (size_t k = 1; k < tokens; k++) {
            shares[k - 1] = (double)values[h * tokens + k];
            for (size_t other = 1; other < all && g->heads < all; other++) {
                shares[k - 1] += (double)values[other * tokens + k];
            }
        }
        put_map(pixels + (1 + h) * plane, pixels, t, shares, patch);
    }
    free(shares);
    if (labels != NULL) {
        (void)snprintf(g->lines[at], LINE, "%.90s",
                       cli_class_name(text, g->kept, ((const int32_t *)labels->data)[i]));
    }
    g->items[at] = (by_tile){.pixels = pixels, .lines = {g->lines[at]}};
    g->tiles.count++;
    return BY_OK;
}

static by_status take_batch(void *user, const by_batch *batch, const float *values, size_t width,
                            by_error *error)
{
    attention_grid *g = user;
    const by_array *weights = by_batch_array(batch, "weight");
    const by_array *images = by_batch_array(batch, "images");
    by_status status = BY_OK;
    if (images == NULL) {
        return by_error_set(error, BY_EARG, "--show attention draws images, and there are none");
    }
    if (g->items == NULL) {
        status = allocate(g, images, error);
    }
    for (size_t i = 0; i < batch->batch && status == BY_OK && g->tiles.count < g->most; i++) {
        if (weights == NULL || ((const float *)weights->data)[i] > 0.0f) {
            status = add_image(g, batch, i, values + i * width,
                               width / (size_t)g->config->model.heads, error);
        }
    }
    return status;
}

static bool is_full(void *user)
{
    const attention_grid *g = user;
    return g->tiles.count == g->most || cli_stop_requested(NULL);
}

by_status cli_draw_attention(const by_config *config, const by_pretrained *model,
                             by_task_data *data, const by_task_kept *kept, size_t most,
                             const char *out, by_error *error)
{
    attention_grid g = {.config = config, .data = data, .kept = kept, .most = most};
    by_status status = by_evaluate_each(config, by_pretrained_weights(model), data, "attention",
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
    return status;
}
