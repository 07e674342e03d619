/* Codes and scales of weights, and their format in files (checkpoint/weights/coded_weights.c). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/packing/packing.h"
#include "compress/compress.h"

#define F16_LARGEST 65504.0f
/* A search tries the scale that clips nothing, and smaller ones down to this share of it. */
#define SEARCH_STEPS 20
#define MIN_SEARCH   0.6f

int64_t by__compress_group_setting(const by__compress_state *c)
{
    return (int64_t)by__compress_setting_number(c, "group");
}

by__compress_scale_rule by__compress_scale_setting(const by__compress_state *c)
{
    return strcmp(by__compress_setting_text(c, "scale"), "search") == 0 ? BY__SCALE_SEARCH
                                                                        : BY__SCALE_LARGEST;
}

by_status by__compress_codes_open(by__compress_codes *out, by__code_kind kind, int64_t n, int64_t k,
                                  int64_t group, by_error *error)
{
    by__compress_codes codes = {0};
    bool narrow = kind == BY__CODE_INT4;
    by__coded *c = &codes.coded;
    *c = (by__coded){.kind = kind, .n = n, .k = k, .scale_dtype = narrow ? BY_F16 : BY_F32};
    c->group = group == 0 || group > k ? k : group;
    c->scale_row = (k + c->group - 1) / c->group;
    BY_TRY(
        by__alloc((void **)&codes.codes, (size_t)n, by__coded_row_bytes(kind, k), "codes", error));
    by_status status = by__alloc((void **)&codes.scales, (size_t)(n * c->scale_row),
                                 by_dtype_size(c->scale_dtype), "scales", error);
    if (status != BY_OK) {
        free(codes.codes);
        return status;
    }
    c->codes = codes.codes;
    c->scales = codes.scales;
    *out = codes;
    return BY_OK;
}

void by__compress_codes_close(by__compress_codes *codes)
{
    free(codes->codes);
    free(codes->scales);
    *codes = (by__compress_codes){0};
}

static float limited(float x, float low, float high)
{
    return x < low ? low : x > high ? high : x;
}

static float nearest(by__code_kind kind, float value, float scale)
{
    float code = scale == 0.0f ? 0.0f : value / scale;
    switch (kind) {
    case BY__CODE_INT4:
        return limited(rintf(code), -8.0f, 7.0f);
    case BY__CODE_INT8:
        return limited(rintf(code), -127.0f, 127.0f);
    default:
        return by__f8_to_f32(by__f32_to_f8(code));
    }
}

/* Rounds a scale to the format that it is stored in. */
static float stored(const by__coded *c, float scale)
{
    return c->scale_dtype == BY_F16
               ? by__f16_to_f32(by__f32_to_f16(limited(scale, -F16_LARGEST, F16_LARGEST)))
               : scale;
}

static double error_of(by__code_kind kind, const float *values, const float *importance,
                       int64_t count, float scale)
{
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) {
        double off = (double)values[i] - (double)(scale * nearest(kind, values[i], scale));
        sum += off * off * (importance == NULL ? 1.0 : (double)importance[i]);
    }
    return sum;
}

/* Finds the best of several scales of either sign, since 4-bit codes reach from -8 to 7. */
static float search(const by__coded *c, const float *values, const float *importance, int64_t count,
                    float whole)
{
    float best = whole;
    double least = error_of(c->kind, values, importance, count, whole);
    for (int step = 0; step <= SEARCH_STEPS; step++) {
        float share = 1.0f - (1.0f - MIN_SEARCH) * (float)step / SEARCH_STEPS;
        for (int sign = -1; sign <= 1; sign += 2) {
            float scale = stored(c, (float)sign * fabsf(whole) * share);
            double off = error_of(c->kind, values, importance, count, scale);
            if (off < least) {
                least = off;
                best = scale;
            }
        }
    }
    return best;
}

float by__compress_codes_scale(by__compress_codes *codes, int64_t j, int64_t i, const float *values,
                               const float *importance, int64_t count, by__compress_scale_rule rule)
{
    const by__coded *c = &codes->coded;
    float extreme = 0.0f;
    bool finite = true; /* weights with a NaN or an infinity get the scale NaN */
    for (int64_t at = 0; at < count; at++) {
        finite = finite && isfinite(values[at]);
        extreme = fabsf(values[at]) > fabsf(extreme) ? values[at] : extreme;
    }
    float scale = c->kind == BY__CODE_INT4   ? extreme / -8.0f
                  : c->kind == BY__CODE_INT8 ? fabsf(extreme) / 127.0f
                                             : fabsf(extreme) / BY__F8_LARGEST;
    scale = finite ? stored(c, scale) : NAN;
    if (rule == BY__SCALE_SEARCH && finite && scale != 0.0f) {
        scale = search(c, values, importance, count, scale);
    }
    int64_t place = j * c->scale_row + i / c->group;
    uint16_t half = by__f32_to_f16(scale);
    if (c->scale_dtype == BY_F16) {
        memcpy(codes->scales + place * 2, &half, sizeof half);
    } else {
        memcpy(codes->scales + place * 4, &scale, sizeof scale);
    }
    return scale;
}

float by__compress_codes_set(by__compress_codes *codes, int64_t j, int64_t i, float value,
                             float scale)
{
    const by__coded *c = &codes->coded;
    uint8_t *row = codes->codes + (size_t)j * by__coded_row_bytes(c->kind, c->k);
    float code = isfinite(scale) && !isnan(value) ? nearest(c->kind, value, scale) : 0.0f;
    switch (c->kind) {
    case BY__CODE_INT4:
        row[i / 2] = (uint8_t)(row[i / 2] | ((int)code + 8) << (i % 2 * 4));
        break;
    case BY__CODE_INT8:
        row[i] = (uint8_t)(int8_t)code;
        break;
    default:
        row[i] = by__f32_to_f8(code);
    }
    return scale * code;
}

void by__compress_codes_round(by__compress_codes *codes, const float *weight,
                              by__compress_scale_rule rule, int threads)
{
    const by__coded *c = &codes->coded;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t j = 0; j < c->n; j++) {
        for (int64_t first = 0; first < c->k; first += c->group) {
            int64_t count = c->k - first < c->group ? c->k - first : c->group;
            const float *values = weight + j * c->k + first;
            float scale = by__compress_codes_scale(codes, j, first, values, NULL, count, rule);
            for (int64_t i = 0; i < count; i++) {
                (void)by__compress_codes_set(codes, j, first + i, values[i], scale);
            }
        }
    }
}

void by__compress_codes_read(const by__compress_codes *codes, float *out, int threads)
{
    const by__coded *c = &codes->coded;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t j = 0; j < c->n; j++) {
        by__coded_row(c, j, 0, c->k, out + j * c->k);
    }
}

by_status by__compress_codes_open_layer(by__compress_codes *out, const by__compress_state *c,
                                        const by__compress_linear *linear, by_error *error)
{
    return by__compress_codes_open(out, BY__CODE_INT4, linear->n, linear->k,
                                   by__compress_group_setting(c), error);
}

by_status by__compress_codes_close_layer(by__compress_codes *codes, by__compress_state *c,
                                         by__compress_linear *linear, float *weight,
                                         by_status status, by_error *error)
{
    if (status == BY_OK) {
        by__compress_codes_read(codes, weight, c->threads);
        status = by__compress_codes_put(c, linear, codes, error);
    }
    by__compress_codes_close(codes);
    return status;
}

/* ---- in files ---- */

static by_status put_named(by__compress_state *c, const char *layer, int length, const char *end,
                           by_dtype dtype, const int64_t *shape, int rank, const void *data,
                           by_error *error)
{
    by_string text = {0};
    char *name;
    by_string_format(&text, "%.*s%s", length, layer, end);
    BY_TRY(by__string_release(&text, &name, error));
    by_status status = by__compress_put_tensor(c, name, dtype, rank, shape, data, error);
    free(name);
    return status;
}

by_status by__compress_codes_put(by__compress_state *c, by__compress_linear *linear,
                                 const by__compress_codes *codes, by_error *error)
{
    static const char end[] = ".weight";
    const by__coded *x = &codes->coded;
    size_t all = strlen(linear->weight);
    bool narrow = x->kind == BY__CODE_INT4;
    int length = (int)(all - (sizeof end - 1));
    const int64_t shape[2] = {x->n, narrow ? (x->k + 7) / 8 : x->k};
    const int64_t scales[2] = {x->n, x->scale_row};
    const int64_t two = 2;
    const int32_t sizes[2] = {(int32_t)x->n, (int32_t)x->k};
    if (all < sizeof end || strcmp(linear->weight + length, end) != 0) {
        return by_error_set(error, BY_EARG, "the weight '%s' is not called NAME.weight",
                            linear->weight);
    }
    by__compress_drop(c, linear->weight);
    BY_TRY(put_named(c, linear->weight, length, narrow ? ".weight_packed" : ".weight",
                     narrow                     ? BY_I32
                     : x->kind == BY__CODE_INT8 ? BY_I8
                                                : BY_F8,
                     shape, 2, codes->codes, error));
    BY_TRY(put_named(c, linear->weight, length, ".weight_scale", x->scale_dtype, scales, 2,
                     codes->scales, error));
    if (narrow) {
        BY_TRY(
            put_named(c, linear->weight, length, ".weight_shape", BY_I32, &two, 1, sizes, error));
    }
    if (linear->in_out) {
        json_t *config = json_object_get(c->json, "quantization_config");
        json_t *names = json_object_get(config, "in_out");
        if (config == NULL) {
            config = json_object();
            (void)json_object_set_new(c->json, "quantization_config", config);
        }
        if (names == NULL) {
            names = json_array();
            (void)json_object_set_new(config, "in_out", names);
        }
        (void)json_array_append_new(names, json_stringn(linear->weight, (size_t)length));
    }
    linear->coded = true;
    c->changed++;
    return BY_OK;
}

/* Converts matrices that no method has changed to bf16, in which they are used anyway. */
static by_status narrow_matrices(by__compress_state *c, by_error *error)
{
    for (size_t i = 0; i < by_weights_count(c->weights); i++) {
        const char *name = by_weights_name(c->weights, i);
        by_tensor_view view;
        size_t count;
        float *values;
        BY_TRY(by__weights_describe(c->weights, name, &view, error));
        if (c->dropped[i] || view.dtype != BY_F32 || view.rank < 2) {
            continue;
        }
        BY_TRY(by_tensor_size(&view, &count, NULL, error));
        BY_TRY(by__alloc((void **)&values, count, sizeof *values, "a matrix", error));
        by_tensor_slice whole = by_tensor_whole(&view);
        by_status status = by_weights_read_f32(c->weights, name, &whole, values, count, error);
        uint16_t *halves = (uint16_t *)(void *)values; /* narrowed in place, from the front */
        for (size_t k = 0; k < count && status == BY_OK; k++) {
            float value;
            memcpy(&value, (char *)values + k * sizeof value, sizeof value);
            uint16_t half = by__f32_to_bf16(value);
            memcpy((char *)halves + k * sizeof half, &half, sizeof half);
        }
        if (status == BY_OK) {
            c->dropped[i] = true;
            status =
                by__compress_put_tensor(c, name, BY_BF16, view.rank, view.shape, halves, error);
        }
        free(values);
        BY_TRY(status);
    }
    return BY_OK;
}

/* Layers without codes, by the names that others have for them: without ".weight". */
static json_t *list_ignored(const by__compress_state *c)
{
    json_t *list = json_array();
    for (size_t i = 0; i < c->linear_count; i++) {
        const char *weight = c->linears[i].weight;
        if (by_weights_has(c->weights, weight) && !c->linears[i].coded) {
            (void)json_array_append_new(list,
                                        json_stringn(weight, strlen(weight) - strlen(".weight")));
        }
    }
    if (json_array_size(list) > 0 && !by_weights_has(c->weights, "lm_head.weight")) {
        /* Others know a head that is the token embedding by a name of its own. */
        (void)json_array_append_new(list, json_string("lm_head"));
    }
    return list;
}

by_status by__compress_codes_finish(by__compress_state *c, by__code_kind kind, int64_t group,
                                    bool rows, by_error *error)
{
    json_t *ignored = list_ignored(c);
    json_t *config = json_object_get(c->json, "quantization_config");
    json_t *names = json_incref(json_object_get(config, "in_out"));
    json_t *made = by__checkpoint_codes_describe(kind, group, rows, ignored, names);
    if (made == NULL || json_object_set_new(c->json, "quantization_config", made) != 0) {
        return by_error_set(error, BY_EMEMORY, "out of memory: config.json");
    }
    (void)json_object_set_new(c->json, "torch_dtype", json_string("bfloat16"));
    return narrow_matrices(c, error);
}
