/* A weight with the adapter's product added, computed when it is read: element (i, j) of W + scale
 * B A needs row i of one factor and column j of the other, so any slice can be computed
 * independently, with the same bits for any slicing. */
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "checkpoint/weights/adapter.h"

/* Elements computed at a time. */
#define CHUNK 256

struct by__checkpoint_delta {
    const by__checkpoint_tensor_entry *base;
    by_tensor_view view; /* of base */
    int64_t columns;
    int64_t rank;
    float scale;
    float *left;  /* [rows of W, rank] */
    float *right; /* [rank, columns of W] */
};

/* to [columns, rows] = from [rows, columns] transposed. */
static void transpose(float *to, const float *from, int64_t rows, int64_t columns)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) {
            to[j * rows + i] = from[i * columns + j];
        }
    }
}

by_status by__checkpoint_delta_open(by__checkpoint_delta **out,
                                    const by__checkpoint_tensor_entry *base, const float *a,
                                    const float *b, int64_t rank, double scale, bool in_out,
                                    by_error *error)
{
    by__checkpoint_delta *d;
    int64_t rows = base->shape[0];
    int64_t columns = base->shape[1];
    size_t left = (size_t)(rows * rank) * sizeof(float);
    size_t right = (size_t)(rank * columns) * sizeof(float);
    BY_TRY(by__alloc((void **)&d, 1, sizeof *d, "an adapter", error));
    *d = (by__checkpoint_delta){
        .base = base,
        .view = {.name = base->name, .dtype = (by_dtype)base->dtype, .rank = 2},
        .columns = columns,
        .rank = rank,
        .scale = (float)scale};
    memcpy(d->view.shape, base->shape, sizeof d->view.shape);
    by_status status = by__alloc_aligned((void **)&d->left, left, "an adapter", error);
    if (status == BY_OK) {
        status = by__alloc_aligned((void **)&d->right, right, "an adapter", error);
    }
    if (status != BY_OK) {
        by__checkpoint_delta_close(&d);
        return status;
    }
    if (in_out) { /* W [in, out] += scale (B A)^T = scale A^T B^T */
        transpose(d->left, a, rank, rows);
        transpose(d->right, b, columns, rank);
    } else {
        memcpy(d->left, b, left);
        memcpy(d->right, a, right);
    }
    *out = d;
    return BY_OK;
}

void by__checkpoint_delta_close(by__checkpoint_delta **delta)
{
    if (*delta != NULL) {
        free((*delta)->left);
        free((*delta)->right);
        free(*delta);
        *delta = NULL;
    }
}

static float widen(by_dtype dtype, const uint8_t *from)
{
    float value;
    uint16_t half;
    if (dtype == BY_F32) {
        memcpy(&value, from, sizeof value);
        return value;
    }
    memcpy(&half, from, sizeof half);
    return dtype == BY_BF16 ? by__bf16_to_f32(half) : by__f16_to_f32(half);
}

static void narrow(by_dtype dtype, uint8_t *to, float value)
{
    uint16_t half = dtype == BY_BF16 ? by__f32_to_bf16(value) : by__f32_to_f16(value);
    if (dtype == BY_F32) {
        memcpy(to, &value, sizeof value);
    } else {
        memcpy(to, &half, sizeof half);
    }
}

/* Computes `count` neighbouring elements of a row, at most CHUNK, from element `first` of W on. */
static void read_chunk(const by__checkpoint_delta *d, uint64_t first, size_t count, by_dtype dtype,
                       uint8_t *out)
{
    float added[CHUNK] = {0};
    uint8_t raw[CHUNK * sizeof(float)];
    int64_t row = (int64_t)first / d->columns;
    int64_t column = (int64_t)first % d->columns;
    const by_tensor_slice slice = {
        .flat = true, .offset = {(int64_t)first}, .shape = {(int64_t)count}};
    size_t from = by_dtype_size(d->view.dtype);
    size_t to = by_dtype_size(dtype);
    by__checkpoint_entry_read(d->base, &d->view, &slice, raw);
    for (int64_t k = 0; k < d->rank; k++) {
        float factor = d->left[row * d->rank + k];
        const float *values = d->right + k * d->columns + column;
        for (size_t i = 0; i < count; i++) {
            added[i] += factor * values[i];
        }
    }
    for (size_t i = 0; i < count; i++) {
        float sum = widen(d->view.dtype, raw + i * from) + d->scale * added[i];
        narrow(dtype, out + i * to, sum);
    }
}

void by__checkpoint_delta_read(const by__checkpoint_delta *d, const by_tensor_slice *slice,
                               by_dtype dtype, void *out)
{
    by__slice_runs runs;
    uint64_t first;
    size_t length;
    uint8_t *to = out;
    by__slice_runs_begin(&runs, d->view.rank, d->view.shape, slice);
    while (by__slice_runs_next(&runs, &first, &length)) {
        while (length > 0) {
            size_t in_row = (size_t)(d->columns - (int64_t)first % d->columns);
            size_t count = length < in_row ? length : in_row;
            count = count < CHUNK ? count : CHUNK;
            read_chunk(d, first, count, dtype, to);
            to += count * by_dtype_size(dtype);
            first += count;
            length -= count;
        }
    }
}
