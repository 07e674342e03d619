/* Removes whole layers: those that change the residual stream least. The influence of a block is 1
 * - the mean over tokens of cos(x, y), for the stream x before it and y after it (ShortGPT, Men et
 * al. 2024, equation 1). The blocks with the least influence are removed all at once; the others
 * are renumbered and stay unchanged. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compress/compress.h"
#include "nn/nn.h"

static const by_compress_setting settings[] = {{.name = "layers",
                                                .fallback = "1",
                                                .least = 1.0,
                                                .most = 9999.0,
                                                .whole = true,
                                                .help = "how many are taken out"},
                                               {0}};

/* Sums for each block over the tokens so far. */
typedef struct influence {
    double *alike; /* sum of cosines */
    int64_t *rows;
} influence;

/* Finds the layer number in a name, which is the first number in it. Returns NULL if there is
 * none. */
static const char *find_number(size_t *digits, const char *name)
{
    for (const char *at = strchr(name, '.'); at != NULL; at = strchr(at, '.')) {
        at++;
        *digits = strspn(at, "0123456789");
        if (*digits > 0 && *digits < 10 && at[*digits] == '.') {
            return at;
        }
    }
    return NULL;
}

int64_t by__compress_layer_of_name(const char *name)
{
    size_t digits;
    const char *at = find_number(&digits, name);
    return at == NULL ? -1 : strtol(at, NULL, 10);
}

static by_status watch(by__compress_state *c, int block, const float *before, const float *behind,
                       int64_t rows, int64_t width, void *user, by_error *error)
{
    influence *sums = user;
    BY_UNUSED(c);
    for (int64_t r = 0; r < rows; r++) {
        const float *x = before + r * width;
        const float *y = behind + r * width;
        double xy = 0.0;
        double xx = 0.0;
        double yy = 0.0;
        for (int64_t i = 0; i < width; i++) {
            xy += (double)x[i] * (double)y[i];
            xx += (double)x[i] * (double)x[i];
            yy += (double)y[i] * (double)y[i];
        }
        if (!isfinite(xx) || !isfinite(yy)) {
            return by_error_set(error, BY_ESTATE,
                                "depth: the residual stream of block %d is not finite: the "
                                "model's weights are damaged, or its training diverged",
                                block);
        }
        sums->alike[block] += xx > 0.0 && yy > 0.0 ? xy / sqrt(xx * yy) : 1.0;
    }
    sums->rows[block] += rows;
    return BY_OK;
}

/* Chooses the blocks that stay; of equal ones the first are removed. */
static void choose(bool *stays, const influence *sums, int64_t layers, int64_t count)
{
    for (int64_t i = 0; i < layers; i++) {
        stays[i] = true;
    }
    for (; count > 0; count--) {
        int64_t least = -1;
        double most_alike = -INFINITY;
        for (int64_t i = 0; i < layers; i++) {
            double alike = sums->rows[i] > 0 ? sums->alike[i] / (double)sums->rows[i] : -1.0;
            if (stays[i] && alike > most_alike) {
                least = i;
                most_alike = alike;
            }
        }
        if (least >= 0) {
            stays[least] = false;
        }
    }
}

by_status by__compress_renumber(char **out, const char *name, int64_t number, by_error *error)
{
    size_t digits;
    by_string text = {0};
    const char *at = find_number(&digits, name);
    by_string_format(&text, "%.*s%lld%s", (int)(at - name), name, (long long)number, at + digits);
    return by__string_release(&text, out, error);
}

/* Renames a layer's tensor to the layer's new number. */
static by_status rename_tensor(by__compress_state *c, size_t i, int64_t number, by_error *error)
{
    char *renamed;
    BY_TRY(by__compress_renumber(&renamed, by_weights_name(c->weights, i), number, error));
    by_status status = by__compress_rename(c, i, renamed, error);
    free(renamed);
    return status;
}

static by_status remove_layers(by__compress_state *c, const bool *stays, by_error *error)
{
    int64_t layers = c->config->model.layers;
    by_config *to;
    for (size_t i = 0; i < by_weights_count(c->weights); i++) {
        int64_t layer = by__compress_layer_of_name(by_weights_name(c->weights, i));
        int64_t number = 0;
        if (layer < 0 || layer >= layers) {
            continue;
        }
        for (int64_t k = 0; k < layer; k++) {
            number += stays[k];
        }
        if (!stays[layer]) {
            by__compress_drop(c, by_weights_name(c->weights, i));
        } else if (number != layer) {
            BY_TRY(rename_tensor(c, i, number, error));
        }
    }
    BY_TRY(by_config_copy(&to, c->config, error));
    by_status status = by__nn_model_reduce(to, &(by__nn_reduction){.layers = stays}, error);
    if (status == BY_OK) {
        status = by__compress_resize(c, &to->model, error);
    }
    by_config_close(&to);
    return status;
}

static by_status check(by__compress_state *c, by_error *error)
{
    int64_t layers = c->config->model.layers;
    int64_t count = (int64_t)by__compress_setting_number(c, "layers");
    return count < layers
               ? BY_OK
               : by_error_set(error, BY_EARG,
                              "depth: layers is %lld, but the model has %lld layers; at most %lld "
                              "can be removed",
                              (long long)count, (long long)layers, (long long)layers - 1);
}

static void note(by__compress_state *c, const bool *stays)
{
    by__string_append(&c->notes, "; taken out:");
    for (int64_t i = 0; i < c->config->model.layers; i++) {
        if (!stays[i]) {
            by_string_format(&c->notes, " %lld", (long long)i);
            c->changed++;
        }
    }
}

static by_status prune_layers(by__compress_state *c, by_error *error)
{
    size_t layers = (size_t)c->config->model.layers;
    int64_t count = (int64_t)by__compress_setting_number(c, "layers");
    influence sums = {0};
    bool *stays = NULL;
    by_status status = by__alloc((void **)&sums.alike, layers, sizeof *sums.alike, "layers", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&sums.rows, layers, sizeof *sums.rows, "layers", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&stays, layers, sizeof *stays, "layers", error);
    }
    if (status == BY_OK) {
        status = by__compress_calibrate_blocks(c, watch, &sums, error);
    }
    if (status == BY_OK) {
        choose(stays, &sums, (int64_t)layers, count);
        note(c, stays);
        status = remove_layers(c, stays, error);
    }
    free(stays);
    free(sums.rows);
    free(sums.alike);
    return status;
}

/* All layers have the same shapes, so a plan removes the last ones. */
static void resize(const by__compress_state *c, by_tensor_view *tensor)
{
    int64_t left = c->config->model.layers - (int64_t)by__compress_setting_number(c, "layers");
    if (c->config->model.layers > 0 &&
        by__compress_layer_of_name(tensor->name) >= (left > 1 ? left : 1)) {
        tensor->shape[0] = 0;
    }
}

const by__compress_method by__compress_method_depth = {
    .shown = {.name = "depth",
              .summary = "layers of the least influence go",
              .settings = settings,
              .calibrates = true},
    .run = prune_layers,
    .takes = check,
    .resize = resize};
