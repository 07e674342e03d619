#include "base/packing/packing.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static const char *const kind_names[BY_PACKING_KINDS] = {"plain", "packed", "int8",
                                                         "int4",  "w8a8",   "fp8"};

const char *by_packing_kind_name(by_packing_kind kind)
{
    return (unsigned)kind < BY_PACKING_KINDS ? kind_names[kind] : "?";
}

/* Returns true if the codes have 8 bits; each output then has a single scale. */
static bool has_bytes(const by_packing *packing)
{
    return packing->kind == BY_PACKING_INT8 || packing->kind == BY_PACKING_W8A8 ||
           packing->kind == BY_PACKING_FP8;
}

const char *by__packing_wrong(const by_packing *packing)
{
    int64_t g = packing->group;
    if (packing->kind == BY_PACKING_NONE || (unsigned)packing->kind >= BY_PACKING_KINDS ||
        !by_dtype_is_float(packing->dtype)) {
        return "a packed weight has elements of f32, bf16 or f16";
    }
    if (packing->kind == BY_PACKING_INT4 ? g != 32 && g != 64 && g != 128 : g != 0) {
        return "int4 has groups of 32, 64 or 128 inputs, and nothing else has groups";
    }
    if (packing->kind == BY_PACKING_W8A8 && packing->k > BY__W8A8_INPUTS) {
        return "w8a8 has at most 131072 inputs";
    }
    size_t bytes = by__packed_panel_bytes(packing);
    if (packing->n < 1 || packing->k < 1 || packing->stack < 0 || bytes == SIZE_MAX ||
        !by__size_mul(bytes, (size_t)by__packed_panels(packing), &bytes) ||
        !by__size_mul(bytes, (size_t)by__packed_matrices(packing), &bytes)) {
        return "a packed weight has one output and one input or more, and fits in memory";
    }
    return NULL;
}

size_t by__packed_panel_bytes(const by_packing *packing)
{
    size_t bytes;
    size_t k = (size_t)packing->k;
    size_t pairs = by__round_up(k, BY__PACKED_PAIR);
    if (packing->kind == BY_PACKING_FP8) {
        bool fits = by__size_mul(pairs, BY_PACKED_COLUMNS, &bytes);
        return fits && by__size_add(bytes, BY_PACKED_COLUMNS * sizeof(float), &bytes) ? bytes
                                                                                      : SIZE_MAX;
    }
    if (packing->kind != BY_PACKING_PACKED) {
        size_t block = (size_t)by__packed_block(packing);
        size_t scales = has_bytes(packing) ? BY_PACKED_COLUMNS * sizeof(float) : 0;
        bool fits = by__size_mul((k + block - 1) / block, by__packed_block_bytes(packing), &bytes);
        return fits && by__size_add(bytes, scales, &bytes) ? bytes : SIZE_MAX;
    }
    k = packing->dtype == BY_BF16 ? pairs : k;
    return by__size_mul(k, BY_PACKED_COLUMNS * by_dtype_size(packing->dtype), &bytes) ? bytes
                                                                                      : SIZE_MAX;
}

int64_t by__packed_panels(const by_packing *packing)
{
    return (packing->n + BY_PACKED_COLUMNS - 1) / BY_PACKED_COLUMNS;
}

by_shape by__packed_shape(const by_packing *packing)
{
    return BY_SHAPE(by__packed_matrices(packing) * by__packed_panels(packing),
                    (int64_t)by__packed_panel_bytes(packing));
}

by_shape by__unpacked_shape(const by_packing *packing, bool out_in)
{
    int64_t rows = out_in ? packing->n : packing->k;
    int64_t columns = out_in ? packing->k : packing->n;
    return packing->stack > 0 ? BY_SHAPE(packing->stack, rows, columns) : BY_SHAPE(rows, columns);
}

/* ---- packing weights ---- */

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

/* The matrix to pack: `given` entries of its first axis exist. */
typedef struct source_matrix {
    const void *values;
    by_dtype dtype;
    bool out_in;
    int64_t given;
} source_matrix;

/* Fills column[c][i] with input i of output first + c, or zero where the weight has no such
 * element. */
static void read_panel(float *column, const by_packing *p, const source_matrix *s, int64_t first)
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

/* Returns the index of (input i, column c) in a bf16 panel, which holds pairs of inputs. */
static int64_t pair_at(int64_t c, int64_t i)
{
    return (i / BY__PACKED_PAIR * BY_PACKED_COLUMNS + c) * BY__PACKED_PAIR + i % BY__PACKED_PAIR;
}

/* Returns the byte that holds the code of (input i, column c); *half is 4 if it is the upper
 * half. */
static uint8_t *code_at(const by_packing *p, void *panel, int64_t c, int64_t i, int *half)
{
    if (p->kind == BY_PACKING_FP8) {
        *half = 0;
        return (uint8_t *)panel + pair_at(c, i);
    }
    int64_t block = by__packed_block(p);
    char *at = (char *)panel + (size_t)(i / block) * by__packed_block_bytes(p);
    int64_t in = i % block;
    bool is_half = p->kind == BY_PACKING_INT4;
    int64_t step = is_half ? 8 : 4;
    *half = is_half && in % 8 >= 4 ? 4 : 0;
    return (uint8_t *)at + (in / step * BY_PACKED_COLUMNS + c) * 4 + in % 4;
}

/* Returns where the scale of (input i, column c) is stored: f16 for INT4, f32 for 8-bit codes. */
static char *scale_at(const by_packing *p, void *panel, int64_t c, int64_t i)
{
    if (has_bytes(p)) {
        return (char *)panel + by__packed_panel_bytes(p) + (c - BY_PACKED_COLUMNS) * 4;
    }
    size_t block = (size_t)(i / p->group + 1) * by__packed_block_bytes(p);
    return (char *)panel + block + (c - BY_PACKED_COLUMNS) * 2;
}

float by__packed_code_at(const by_packing *packing, const void *panel, int64_t c, int64_t i)
{
    int half;
    void *data = (void *)(uintptr_t)panel;
    int code = *code_at(packing, data, c, i, &half);
    const char *at = scale_at(packing, data, c, i);
    if (has_bytes(packing)) {
        float scale;
        memcpy(&scale, at, sizeof scale);
        return scale * (packing->kind == BY_PACKING_FP8 ? by__f8_to_f32((uint8_t)code)
                                                        : (float)(code - BY__INT8_OFFSET));
    }
    uint16_t bits;
    memcpy(&bits, at, sizeof bits);
    return by__f16_to_f32(bits) * (float)((code >> half & 15) - BY__INT4_OFFSET);
}

static float limited(float x, float low, float high)
{
    return x < low ? low : x > high ? high : x;
}

static int code_of(const by_packing *p, float value, float scale)
{
    float part = scale == 0.0f || isnan(scale) ? 0.0f : value / scale;
    switch (p->kind) {
    case BY_PACKING_FP8:
        return by__f32_to_f8(part);
    case BY_PACKING_INT4:
        return (int)limited(rintf(part) + BY__INT4_OFFSET, 0.0f, 15.0f);
    default:
        return (int)limited(rintf(part) + BY__INT8_OFFSET, 0.0f, 255.0f);
    }
}

/* Encodes `count` inputs of column c from input `first` on, which share one scale. */
static void encode(const by_packing *p, void *panel, const float *values, int64_t c, int64_t first,
                   int64_t count)
{
    float extreme = 0.0f;
    bool finite = true; /* weights with a NaN or an infinity get the scale NaN */
    char *at = scale_at(p, panel, c, first);
    for (int64_t i = 0; i < count; i++) {
        finite = finite && isfinite(values[i]);
        extreme = fabsf(values[i]) > fabsf(extreme) ? values[i] : extreme;
    }
    bool wide = has_bytes(p);
    float most = p->kind == BY_PACKING_FP8 ? BY__F8_LARGEST : 127.0f;
    float scale = !finite ? NAN : wide ? fabsf(extreme) / most : extreme / -8.0f;
    if (wide) {
        memcpy(at, &scale, sizeof scale);
    } else {
        uint16_t bits = by__f32_to_f16(limited(scale, -65504.0f, 65504.0f));
        memcpy(at, &bits, sizeof bits);
        scale = by__f16_to_f32(bits);
    }
    for (int64_t i = 0; i < count; i++) {
        int half;
        uint8_t *to = code_at(p, panel, c, first + i, &half);
        *to = (uint8_t)(*to | code_of(p, finite ? values[i] : 0.0f, scale) << half);
    }
}

static void write_codes(void *panel, const by_packing *p, const float *column)
{
    int64_t together = has_bytes(p) ? p->k : p->group;
    for (int64_t c = 0; c < BY_PACKED_COLUMNS; c++) {
        for (int64_t i = 0; i < p->k; i += together) {
            encode(p, panel, column + c * p->k + i, c, i,
                   p->k - i < together ? p->k - i : together);
        }
    }
}

static void write_panel(void *out, const by_packing *p, const float *column)
{
    if (p->kind != BY_PACKING_PACKED) {
        write_codes(out, p, column);
        return;
    }
    for (int64_t i = 0; i < p->k; i++) {
        for (int64_t c = 0; c < BY_PACKED_COLUMNS; c++) {
            float value = column[c * p->k + i];
            int64_t at = i * BY_PACKED_COLUMNS + c;
            if (p->dtype == BY_F32) {
                ((float *)out)[at] = value;
            } else if (p->dtype == BY_F16) {
                ((uint16_t *)out)[at] = by__f32_to_f16(value);
            } else {
                ((uint16_t *)out)[pair_at(c, i)] = by__f32_to_bf16(value);
            }
        }
    }
}

by_status by__pack_weight(void *out, const by_packing *packing, bool out_in, const void *values,
                          by_dtype dtype, int64_t given, int threads, by_error *error)
{
    size_t panel_bytes = by__packed_panel_bytes(packing);
    size_t columns = (size_t)packing->k * BY_PACKED_COLUMNS; /* below a panel's bytes */
    int64_t panels = by__packed_panels(packing);
    size_t matrix_bytes = (size_t)(packing->n * packing->k) * by_dtype_size(dtype);
    size_t count;
    float *scratch;
    if (!by__size_mul(columns, (size_t)threads, &count)) {
        return by_error_set(error, BY_EMEMORY, "a weight of %lld inputs does not fit in memory",
                            (long long)packing->k);
    }
    BY_TRY(by__alloc((void **)&scratch, count, sizeof *scratch, "a weight to pack", error));
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t p = 0; p < by__packed_matrices(packing) * panels; p++) {
        const source_matrix s = {(const char *)values + (size_t)(p / panels) * matrix_bytes, dtype,
                                 out_in, given};
        float *column = scratch + (size_t)omp_get_thread_num() * columns;
        char *panel = (char *)out + (size_t)p * panel_bytes;
        memset(panel, 0, panel_bytes);
        read_panel(column, packing, &s, p % panels * BY_PACKED_COLUMNS);
        write_panel(panel, packing, column);
    }
    free(scratch);
    return BY_OK;
}

/* ---- packing coded weights ---- */

bool by__packing_accepts(const by_packing *packing, const by__coded *coded)
{
    bool fits = coded->k == packing->k && coded->n <= packing->n;
    if (packing->kind == BY_PACKING_FP8) {
        return fits && coded->kind == BY__CODE_F8 && coded->scale_row <= 1;
    }
    if (has_bytes(packing)) {
        return fits && coded->kind == BY__CODE_INT8 && coded->scale_row == 1 &&
               coded->scale_dtype == BY_F32;
    }
    return fits && coded->scale_row > 0 && packing->kind == BY_PACKING_INT4 &&
           coded->kind == BY__CODE_INT4 &&
           (coded->scale_row == 1 || coded->group % packing->group == 0) &&
           coded->scale_dtype == BY_F16;
}

/* Stores output `j` as column c of a panel. A NaN among FP8 codes sets the scale to NaN, because
 * products do not treat the code of NaN specially. */
static void put_coded(void *panel, const by_packing *p, const by__coded *coded, int64_t j,
                      int64_t c)
{
    bool wide = has_bytes(p);
    int offset = p->kind == BY_PACKING_FP8 ? 0 : wide ? BY__INT8_OFFSET : BY__INT4_OFFSET;
    int64_t together = wide ? p->k : p->group;
    for (int64_t i = 0; i < p->k; i++) {
        int half;
        bool given = j < coded->n;
        uint8_t *to = code_at(p, panel, c, i, &half);
        int code = given ? by__coded_code(coded, j, i) : 0;
        *to = (uint8_t)(*to | (code + offset) << half);
        if (given && i % together == 0) {
            float scale = by__coded_scale(coded, j, i);
            uint16_t bits = by__f32_to_f16(scale);
            memcpy(scale_at(p, panel, c, i), wide ? (void *)&scale : (void *)&bits, wide ? 4 : 2);
        }
        if (p->kind == BY_PACKING_FP8 && isnan(by__f8_to_f32(*to))) {
            float none = NAN;
            memcpy(scale_at(p, panel, c, i), &none, sizeof none);
        }
    }
}

by_status by__pack_coded(void *out, const by_packing *packing, int64_t matrix,
                         const by__coded *coded, int threads, by_error *error)
{
    size_t panel_bytes = by__packed_panel_bytes(packing);
    int64_t panels = by__packed_panels(packing);
    char *first = (char *)out + (size_t)(matrix * panels) * panel_bytes;
    if (!by__packing_accepts(packing, coded)) {
        return by_error_set(error, BY_EARG, "a weight of codes cannot be packed as %s",
                            by_packing_kind_name(packing->kind));
    }
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t p = 0; p < panels; p++) {
        char *panel = first + (size_t)p * panel_bytes;
        memset(panel, 0, panel_bytes);
        for (int64_t c = 0; c < BY_PACKED_COLUMNS; c++) {
            put_coded(panel, packing, coded, p * BY_PACKED_COLUMNS + c, c);
        }
    }
    return BY_OK;
}

/* ---- reading codes ---- */

/* Input i of column c of a panel is byte i % 4 of word i / 4 of its column: all blocks of 8-bit
 * codes have the same width, so that they are one sequence. */
static void read_bytes(float *out, const uint8_t *panel, float scale, int64_t c, int64_t first,
                       int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t at = first + i;
        int code = panel[(at / 4 * BY_PACKED_COLUMNS + c) * 4 + at % 4];
        out[i] = scale * (float)(code - BY__INT8_OFFSET);
    }
}

static void read_nibbles(float *out, const by_packing *p, const uint8_t *panel, int64_t c,
                         int64_t first, int64_t count)
{
    size_t bytes = by__packed_block_bytes(p);
    for (int64_t i = 0; i < count;) {
        int64_t in = (first + i) % p->group;
        int64_t rest = p->group - in < count - i ? p->group - in : count - i;
        const uint8_t *block = panel + (size_t)((first + i) / p->group) * bytes;
        uint16_t bits;
        memcpy(&bits, block + bytes + (c - BY_PACKED_COLUMNS) * 2, sizeof bits);
        float scale = by__f16_to_f32(bits);
        for (int64_t end = in + rest; in < end; in++, i++) {
            int code = block[(in / 8 * BY_PACKED_COLUMNS + c) * 4 + in % 4] >> (in % 8 / 4 * 4);
            out[i] = scale * (float)((code & 15) - BY__INT4_OFFSET);
        }
    }
}

void by__packed_row(float *out, const by_packing *packing, const void *data, int64_t j,
                    int64_t first, int64_t count)
{
    size_t bytes = by__packed_panel_bytes(packing);
    const uint8_t *panel = (const uint8_t *)data + (size_t)(j / BY_PACKED_COLUMNS) * bytes;
    int64_t c = j % BY_PACKED_COLUMNS;
    if (packing->kind == BY_PACKING_INT4) {
        read_nibbles(out, packing, panel, c, first, count);
    } else if (packing->kind == BY_PACKING_INT8 || packing->kind == BY_PACKING_W8A8) {
        float scale;
        memcpy(&scale, panel + bytes + (c - BY_PACKED_COLUMNS) * 4, sizeof scale);
        read_bytes(out, panel, scale, c, first, count);
    } else {
        for (int64_t i = 0; i < count; i++) {
            out[i] = by__packed_at(packing, data, j, first + i);
        }
    }
}

int64_t by__packed_together(const by_packing *packing)
{
    bool grouped = packing->kind == BY_PACKING_INT4 && packing->group < packing->k;
    return grouped ? packing->group : packing->k;
}

int64_t by__packed_scale_row(const by_packing *packing)
{
    int64_t together = by__packed_together(packing);
    return (packing->k + together - 1) / together;
}

void by__unpack_codes(uint8_t *codes, void *scales, const by_packing *packing, const void *data,
                      int threads)
{
    bool narrow = packing->kind == BY_PACKING_INT4;
    size_t row = by__coded_row_bytes(narrow ? BY__CODE_INT4 : BY__CODE_INT8, packing->k);
    size_t size = narrow ? sizeof(uint16_t) : sizeof(float);
    size_t panel_bytes = by__packed_panel_bytes(packing);
    int64_t together = by__packed_together(packing);
    int64_t scale_row = by__packed_scale_row(packing);
    if (codes != NULL) {
        memset(codes, 0, (size_t)packing->n * row);
    }
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t j = 0; j < packing->n; j++) {
        char *panel = (char *)(uintptr_t)data + (size_t)(j / BY_PACKED_COLUMNS) * panel_bytes;
        int64_t c = j % BY_PACKED_COLUMNS;
        for (int64_t i = 0; i < packing->k && codes != NULL; i++) {
            uint8_t *out = codes + (size_t)j * row;
            int half;
            int code = *code_at(packing, panel, c, i, &half);
            if (narrow) {
                out[i / 2] = (uint8_t)(out[i / 2] | (code >> half & 15) << (i % 2 * 4));
            } else {
                out[i] = (uint8_t)(int8_t)(code - BY__INT8_OFFSET);
            }
        }
        for (int64_t g = 0; g < scale_row && scales != NULL; g++) {
            memcpy((char *)scales + (size_t)(j * scale_row + g) * size,
                   scale_at(packing, panel, c, g * together), size);
        }
    }
}
