#include "base/packing.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static const char *const kind_names[BY_PACKING_KINDS] = {"plain", "packed"};

const char *by_packing_kind_name(by_packing_kind kind)
{
    return (unsigned)kind < BY_PACKING_KINDS ? kind_names[kind] : "?";
}

const char *by__packing_wrong(const by_packing *packing)
{
    if (packing->kind != BY_PACKING_PACKED || !by_dtype_is_float(packing->dtype)) {
        return "a packed weight has elements of f32, bf16 or f16";
    }
    if (packing->n < 1 || packing->k < 1 || by__packed_panel_bytes(packing) == SIZE_MAX) {
        return "a packed weight has one output and one input or more, and fits in memory";
    }
    return NULL;
}

size_t by__packed_panel_bytes(const by_packing *packing)
{
    size_t bytes;
    size_t k = (size_t)packing->k;
    k = packing->dtype == BY_BF16 ? by__round_up(k, BY__PACKED_PAIR) : k;
    return by__size_mul(k, BY_PACKED_COLUMNS * by_dtype_size(packing->dtype), &bytes) ? bytes
                                                                                      : SIZE_MAX;
}

static int64_t panels_of(const by_packing *packing)
{
    return (packing->n + BY_PACKED_COLUMNS - 1) / BY_PACKED_COLUMNS;
}

by_shape by__packed_shape(const by_packing *packing)
{
    return BY_SHAPE(panels_of(packing), (int64_t)by__packed_panel_bytes(packing));
}

/* ---- filling ---- */

static float value_at(const void *values, by_dtype dtype, int64_t i)
{
    uint16_t half;
    float value;
    if (dtype == BY_F32) {
        memcpy(&value, (const char *)values + i * (int64_t)sizeof value, sizeof value);
        return value;
    }
    memcpy(&half, (const char *)values + i * (int64_t)sizeof half, sizeof half);
    return dtype == BY_BF16 ? by__bf16_to_f32(half) : by__f16_to_f32(half);
}

/* The values to pack. */
typedef struct source {
    const void *values;
    by_dtype dtype;
    bool out_in;
    int64_t given;
} source;

/* column[c][i] = input i of output first + c; zeros where there is none. */
static void read_panel(float *column, const by_packing *p, const source *s, int64_t first)
{
    int64_t n = p->n - first < BY_PACKED_COLUMNS ? p->n - first : BY_PACKED_COLUMNS;
    memset(column, 0, (size_t)(BY_PACKED_COLUMNS * p->k) * sizeof *column);
    if (s->out_in) {
        n = s->given - first < n ? s->given - first : n;
        for (int64_t c = 0; c < n; c++) {
            for (int64_t i = 0; i < p->k; i++) {
                column[c * p->k + i] = value_at(s->values, s->dtype, (first + c) * p->k + i);
            }
        }
        return;
    }
    for (int64_t i = 0; i < s->given; i++) {
        for (int64_t c = 0; c < n; c++) {
            column[c * p->k + i] = value_at(s->values, s->dtype, i * p->n + first + c);
        }
    }
}

static void write_panel(void *out, const by_packing *p, const float *column)
{
    for (int64_t i = 0; i < p->k; i++) {
        for (int64_t c = 0; c < BY_PACKED_COLUMNS; c++) {
            float value = column[c * p->k + i];
            int64_t at = i * BY_PACKED_COLUMNS + c;
            if (p->dtype == BY_F32) {
                ((float *)out)[at] = value;
            } else if (p->dtype == BY_F16) {
                ((uint16_t *)out)[at] = by__f32_to_f16(value);
            } else {
                at = (i / BY__PACKED_PAIR * BY_PACKED_COLUMNS + c) * BY__PACKED_PAIR +
                     i % BY__PACKED_PAIR;
                ((uint16_t *)out)[at] = by__f32_to_bf16(value);
            }
        }
    }
}

by_status by__pack_weight(void *out, const by_packing *packing, bool out_in, const void *values,
                          by_dtype dtype, int64_t given, int threads, by_error *error)
{
    source s = {values, dtype, out_in, given};
    size_t panel_bytes = by__packed_panel_bytes(packing);
    size_t columns = (size_t)packing->k * BY_PACKED_COLUMNS; /* below a panel's bytes */
    int64_t panels = panels_of(packing);
    size_t count;
    float *scratch;
    if (!by__size_mul(columns, (size_t)threads, &count)) {
        return by_error_set(error, BY_EMEMORY, "a weight of %lld inputs does not fit in memory",
                            (long long)packing->k);
    }
    BY_TRY(by__alloc((void **)&scratch, count, sizeof *scratch, "a weight to pack", error));
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t p = 0; p < panels; p++) {
        float *column = scratch + (size_t)omp_get_thread_num() * columns;
        char *panel = (char *)out + (size_t)p * panel_bytes;
        memset(panel, 0, panel_bytes);
        read_panel(column, packing, &s, p * BY_PACKED_COLUMNS);
        write_panel(panel, packing, column);
    }
    free(scratch);
    return BY_OK;
}
