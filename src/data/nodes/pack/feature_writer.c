#include "data/nodes/pack/feature_writer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/half.h"
#include "base/paths.h"

/* Bytes of rows that are converted at a time. */
#define BLOCK ((size_t)1 << 20)

by_status by__nodes_features_open(by__nodes_feature_writer *w, const char *directory,
                                  by__nodes_feature_type type, uint64_t columns, by_error *error)
{
    *w = (by__nodes_feature_writer){.array = {.file = -1},
                                    .directory = directory,
                                    .type = type,
                                    .columns = columns,
                                    .spool = -1};
    BY_TRY(by__nodes_writer_open(&w->array, directory, BY__NODES_FEATURES, error));
    if (type != BY__NODES_FEATURES_U8) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&w->range, 2 * (size_t)columns, sizeof *w->range, "scales", error));
    for (uint64_t c = 0; c < columns; c++) {
        w->range[c] = INFINITY;
        w->range[columns + c] = -INFINITY;
    }
    return by__open_nameless(&w->spool, directory, "features", error);
}

static by_status reserve(by__nodes_feature_writer *w, size_t bytes, by_error *error)
{
    return by__reserve(&w->block, &w->capacity, bytes, 1, error);
}

static by_status add_halves(by__nodes_feature_writer *w, const float *x, size_t count,
                            by_error *error)
{
    BY_TRY(reserve(w, count * sizeof(uint16_t), error));
    uint16_t *out = w->block;
    for (size_t i = 0; i < count; i++) {
        out[i] = by__f32_to_f16(x[i]);
    }
    return by__nodes_writer_add(&w->array, out, count * sizeof *out, error);
}

static by_status add_to_spool(by__nodes_feature_writer *w, const float *x, uint64_t rows,
                              by_error *error)
{
    float *least = w->range;
    float *most = w->range + w->columns;
    for (uint64_t i = 0; i < rows; i++) {
        for (uint64_t c = 0; c < w->columns; c++) {
            float value = x[i * w->columns + c];
            least[c] = value < least[c] ? value : least[c];
            most[c] = value > most[c] ? value : most[c];
        }
    }
    size_t bytes = (size_t)(rows * w->columns) * sizeof *x;
    for (const char *at = (const char *)x; bytes > 0;) {
        ssize_t n = write(w->spool, at, bytes);
        if (n < 0) {
            return by__io_error(error, "write features in", w->directory);
        }
        at += n;
        bytes -= (size_t)n;
    }
    return BY_OK;
}

by_status by__nodes_features_add(by__nodes_feature_writer *w, const float *x, uint64_t rows,
                                 by_error *error)
{
    size_t count = (size_t)(rows * w->columns);
    w->rows += rows;
    switch (w->type) {
    case BY__NODES_FEATURES_F32:
        return by__nodes_writer_add(&w->array, x, count * sizeof *x, error);
    case BY__NODES_FEATURES_F16:
        return add_halves(w, x, count, error);
    default:
        return add_to_spool(w, x, rows, error);
    }
}

/* Turns least and largest values into offset and step of 256 values. */
static void take_scales(const by__nodes_feature_writer *w)
{
    for (uint64_t c = 0; c < w->columns; c++) {
        float *most = &w->range[w->columns + c];
        *most = (*most - w->range[c]) / 255.0f;
    }
}

static void to_codes(const by__nodes_feature_writer *w, const float *x, uint64_t rows, uint8_t *out)
{
    for (uint64_t i = 0; i < rows * w->columns; i++) {
        float step = w->range[w->columns + i % w->columns];
        float code = step > 0.0f ? rintf((x[i] - w->range[i % w->columns]) / step) : 0.0f;
        out[i] = (uint8_t)(code < 0.0f ? 0.0f : code > 255.0f ? 255.0f : code);
    }
}

static by_status write_codes(by__nodes_feature_writer *w, by_error *error)
{
    size_t row = (size_t)w->columns * sizeof(float);
    uint64_t each = row > 0 && row < BLOCK ? BLOCK / row : 1;
    float *x;
    BY_TRY(by__alloc((void **)&x, (size_t)each * w->columns, sizeof *x, "features", error));
    by_status status = reserve(w, (size_t)(each * w->columns), error);
    for (uint64_t at = 0; at < w->rows && status == BY_OK; at += each) {
        uint64_t rows = w->rows - at < each ? w->rows - at : each;
        status = by__read_at(w->spool, w->directory, at * row, x, (size_t)rows * row, error);
        if (status == BY_OK) {
            to_codes(w, x, rows, w->block);
            status = by__nodes_writer_add(&w->array, w->block, (size_t)(rows * w->columns), error);
        }
    }
    free(x);
    return status;
}

by_status by__nodes_features_finish(by__nodes_feature_writer *w, by__nodes_manifest *manifest,
                                    by_error *error)
{
    manifest->features = w->columns;
    manifest->type = w->type;
    if (w->type == BY__NODES_FEATURES_U8) {
        take_scales(w);
        BY_TRY(write_codes(w, error));
        BY_TRY(by__nodes_array_write(manifest, w->directory, BY__NODES_SCALES, w->range,
                                     2 * (size_t)w->columns * sizeof *w->range, error));
    }
    return by__nodes_writer_finish(&w->array, manifest, error);
}

void by__nodes_features_close(by__nodes_feature_writer *w)
{
    by__nodes_writer_close(&w->array);
    if (w->spool >= 0) {
        (void)close(w->spool);
    }
    free(w->range);
    free(w->block);
    *w = (by__nodes_feature_writer){.array = {.file = -1}, .spool = -1};
}
