#include "data/corpus/token_weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/corpus/dataset.h"
#include "formats/npy.h"

struct by_token_weights {
    by__map map;
    const float *values; /* NULL: */
    const uint8_t *mask; /* 0 or 1 */
    char hash[33];
};

static by_status check_values(const float *values, int64_t count, const char *path, by_error *error)
{
    for (int64_t i = 0; i < count; i++) {
        if (!(values[i] >= 0.0f) || isinf(values[i])) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: element %lld is %g: a weight must be finite and at least 0",
                                path, (long long)i, (double)values[i]);
        }
    }
    return BY_OK;
}

static by_status check_mask(const uint8_t *mask, int64_t count, const char *path, by_error *error)
{
    for (int64_t i = 0; i < count; i++) {
        if (mask[i] > 1) {
            return by_error_set(error, BY_EFORMAT, "%s: element %lld is %d: a mask has 0 and 1",
                                path, (long long)i, mask[i]);
        }
    }
    return BY_OK;
}

static by_status open_file(by_token_weights *w, const char *path, const by_dataset *dataset,
                           by_error *error)
{
    by__format_array_view view;
    int64_t tokens = (int64_t)by_dataset_tokens(dataset);
    BY_TRY(by__map_open(&w->map, path, error));
    BY_TRY(
        by__format_npy_parse_array(&view, path, (const uint8_t *)w->map.data, w->map.size, error));
    bool mask = view.element == BY__ELEMENT_U8;
    if ((view.element != BY__ELEMENT_F32 && !mask) || view.big_endian || view.shape.rank != 1 ||
        (!mask && (uintptr_t)view.data % sizeof(float) != 0)) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: weights of tokens are an npy array of one axis, '<f4' or '|u1'",
                            path);
    }
    if (view.shape.dim[0] != tokens) {
        return by_error_set(error, BY_EFORMAT,
                            "%s has %lld weights, but %s has %lld tokens: there must be one for "
                            "each",
                            path, (long long)view.shape.dim[0], by__data_directory_name(dataset),
                            (long long)tokens);
    }
    by__hash128_hex(w->hash, view.data, (size_t)tokens * (mask ? 1 : sizeof(float)));
    if (mask) {
        w->mask = view.data;
        return check_mask(w->mask, tokens, path, error);
    }
    w->values = (const float *)(const void *)view.data;
    return check_values(w->values, tokens, path, error);
}

by_status by_token_weights_open(by_token_weights **out, const char *path, const by_dataset *dataset,
                                by_error *error)
{
    by_token_weights *w;
    BY_TRY(by__alloc((void **)&w, 1, sizeof *w, "weights of tokens", error));
    by_status status = open_file(w, path, dataset, error);
    if (status != BY_OK) {
        by_token_weights_close(&w);
        return status;
    }
    *out = w;
    return BY_OK;
}

void by_token_weights_close(by_token_weights **weights)
{
    if (weights != NULL && *weights != NULL) {
        by__map_close(&(*weights)->map);
        free(*weights);
        *weights = NULL;
    }
}

void by_token_weights_hash(const by_token_weights *weights, char out[33])
{
    memcpy(out, weights->hash, sizeof weights->hash);
}

float by__data_token_weight(const by_token_weights *w, uint64_t token)
{
    return w->mask != NULL ? (float)w->mask[token] : w->values[token];
}
