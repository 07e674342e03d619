/* The panels for AMX tiles, and rows by packed panels, on a processor without them: packing and
 * loops are the device's own, the tile instructions are stood in for by plain C. Machines with AMX
 * are rare where tests run, and this is all of that path but the instructions themselves. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/half.h"

#if defined(__AVX512BF16__) && defined(__linux__)
#include <immintrin.h>

/* Eight tiles, each up to 16 rows of 64 bytes. */
static uint32_t registers[8][16][16];
static uint8_t heights[8];

/* The numbers of rows are behind 16 bytes and 16 numbers of bytes. */
static void configure(const void *config)
{
    memcpy(heights, (const char *)config + 48, sizeof heights);
}

static void load_tile(int tile, const void *from, int64_t stride)
{
    for (int row = 0; row < heights[tile]; row++) {
        memcpy(registers[tile][row], (const char *)from + row * stride,
               sizeof registers[tile][row]);
    }
}

static void store_tile(int tile, void *to, int64_t stride)
{
    for (int row = 0; row < heights[tile]; row++) {
        memcpy((char *)to + row * stride, registers[tile][row], sizeof registers[tile][row]);
    }
}

/* TDPBF16PS: c[m][n] += the pair a[m][k] times the pair b[k][n], over k. */
static void multiply_tiles(int c, int a, int b)
{
    assert_int_equal(heights[a], heights[c]);
    for (int i = 0; i < heights[c] * 16 * 16; i++) {
        uint32_t *sum = &registers[c][i / 256][i / 16 % 16];
        uint32_t x = registers[a][i / 256][i % 16];
        uint32_t y = registers[b][i % 16][i / 16 % 16];
        float low = by__bits_float(x << 16) * by__bits_float(y << 16);
        float high = by__bits_float(x & 0xffff0000u) * by__bits_float(y & 0xffff0000u);
        *sum = by__float_bits(by__bits_float(*sum) + low + high);
    }
}

/* TDPBSUD: four signed bytes by four that are not. */
static void multiply_bytes(int c, int a, int b)
{
    assert_int_equal(heights[a], heights[c]);
    for (int i = 0; i < heights[c] * 16 * 16; i++) {
        uint32_t x = registers[a][i / 256][i % 16];
        uint32_t y = registers[b][i % 16][i / 16 % 16];
        for (int byte = 0; byte < 4; byte++) {
            int product = (int8_t)(x >> 8 * byte & 0xff) * (int)(y >> 8 * byte & 0xff);
            registers[c][i / 256][i / 16 % 16] += (uint32_t)product;
        }
    }
}

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#undef _tile_dpbsud
#define _tile_loadconfig(config)        configure(config)
#define _tile_release()                 ((void)0)
#define _tile_zero(tile)                memset(registers[tile], 0, sizeof registers[tile])
#define _tile_loadd(tile, from, stride) load_tile(tile, from, (int64_t)(stride))
#define _tile_stored(tile, to, stride)  store_tile(tile, to, (int64_t)(stride))
#define _tile_dpbf16ps(c, a, b)         multiply_tiles(c, a, b)
#define _tile_dpbsud(c, a, b)           multiply_bytes(c, a, b)
#define by__kernel_panel_amx            emulated_panel
#include "device/cpu/kernels/products/panels_amx.c"

static uint16_t value_at(uint32_t i)
{
    return by__f32_to_bf16((float)(i * 2654435761u >> 20) / 2048.0f - 1.0f);
}

/* Twice A B, in two passes, with A and B stored along k or across it, over k from `first` on inside
 * the panels, as a caller that multiplies in pieces does. The second pass ends in C or, with a
 * bias, in a target. */
static void check(int64_t m, int64_t n, int64_t k, int64_t first, bool along, bool targeted)
{
    int64_t depth = k - first;
    uint16_t *a = malloc((size_t)(m * k) * 2);
    uint16_t *b = malloc((size_t)(n * k) * 2);
    size_t a_stride = by__panel_a_stride(&panel, k);
    size_t b_stride = by__panel_b_stride(&panel, k);
    void *packed_a = malloc(by__panel_a_bytes(&panel, m, k));
    void *packed_b = malloc(by__panel_b_bytes(&panel, n, k));
    int64_t ldc =
        targeted ? (n + 31) / 32 * 32 : n; /* room for whole panels, where C must have it */
    int64_t rows = targeted ? (m + 31) / 32 * 32 : m;
    float *c = malloc((size_t)(rows * ldc) * sizeof *c);
    float *y = malloc((size_t)(m * n) * sizeof *y);
    assert_true(a != NULL && b != NULL && packed_a != NULL && packed_b != NULL && c != NULL &&
                y != NULL);
    float bias[128];
    for (int64_t i = 0; i < n; i++) {
        bias[i] = (float)i / 16.0f;
    }
    by__cpu_panel_target target = {
        .y = y, .ldy = n, .dtype = BY_F32, .bias_dtype = BY_F32, .bias = bias};
    for (int64_t i = 0; i < m * k; i++) {
        a[i] = value_at((uint32_t)i);
    }
    for (int64_t i = 0; i < n * k; i++) {
        b[i] = value_at((uint32_t)(i + 77777));
    }
    panel.pack_a(packed_a, a_stride, a, along ? k : 1, along ? 1 : m, m, k);
    panel.pack_b(packed_b, b_stride, b, along ? k : 1, along ? 1 : n, n, k);
    for (int64_t i = 0; i < rows * ldc; i++) {
        c[i] = 1.0f;
    }
    for (int pass = 0; pass < 2; pass++) {
        panel.multiply(c, ldc, by__panel_a_at(&panel, packed_a, 0, first, a_stride), a_stride,
                       by__panel_b_at(&panel, packed_b, 0, first, b_stride), b_stride, m, n,
                       by__panel_k(&panel, depth), pass == 1,
                       pass == 1 && targeted ? &target : NULL);
    }
    for (int64_t i = 0; i < m * n; i++) {
        double sum = 0.0;
        for (int64_t s = first; s < k; s++) {
            int64_t at_a = along ? i / n * k + s : s * m + i / n;
            int64_t at_b = along ? i % n * k + s : s * n + i % n;
            sum += (double)by__bf16_to_f32(a[at_a]) * (double)by__bf16_to_f32(b[at_b]);
        }
        double got = targeted ? (double)y[i] - (double)bias[i % n] : (double)c[i];
        assert_true(fabs(got - 2.0 * sum) < 1e-4);
    }
    free(a);
    free(b);
    free(packed_a);
    free(packed_b);
    free(c);
    free(y);
}

enum { STEPS = 48, STRIDE = STEPS + 16, COLUMNS = BY__TILES_ROWS };

/* Sums of `height` rows by a packed panel, in two pieces, of which the second goes on with the sums
 * of the first; nothing is written behind them. */
static void check_rows(int height, bool is_bf16)
{
    static uint32_t x[BY__TILES_ROWS * STRIDE];
    static uint32_t b[STEPS * COLUMNS];
    uint32_t sums[(BY__TILES_ROWS + 1) * COLUMNS];
    int open = 0;
    for (uint32_t i = 0; i < BY_ARRAY_LENGTH(x); i++) {
        x[i] = is_bf16 ? value_at(2 * i) | (uint32_t)value_at(2 * i + 1) << 16 : i * 2654435761u;
    }
    for (uint32_t i = 0; i < BY_ARRAY_LENGTH(b); i++) {
        b[i] = is_bf16 ? value_at(3 * i) | (uint32_t)value_at(3 * i + 1) << 16 : i * 2246822519u;
    }
    memset(sums, 0xa5, sizeof sums);
    for (int piece = 0; piece < 2; piece++) {
        int first = piece * BY__TILE;
        int64_t steps = piece == 0 ? BY__TILE : STEPS - BY__TILE;
        const char *from = (const char *)(b + first * COLUMNS);
        if (is_bf16) {
            by__tiles_add_bf16((float *)sums, x + first, sizeof *x * STRIDE, from, steps, piece > 0,
                               height, &open);
        } else {
            by__tiles_add_bytes((int32_t *)sums, x + first, sizeof *x * STRIDE, from, steps,
                                piece > 0, height, &open);
        }
    }
    for (int i = 0; i < height * COLUMNS; i++) {
        double wanted = 0.0;
        uint32_t bits = 0;
        for (int s = 0; s < STEPS; s++) {
            uint32_t u = x[i / COLUMNS * STRIDE + s];
            uint32_t w = b[s * COLUMNS + i % COLUMNS];
            for (int part = 0; part < 2; part++) {
                wanted += (double)by__bf16_to_f32((uint16_t)(u >> 16 * part)) *
                          (double)by__bf16_to_f32((uint16_t)(w >> 16 * part));
            }
            for (int byte = 0; byte < 4; byte++) {
                bits += (uint32_t)((int8_t)(u >> 8 * byte & 0xff) * (int)(w >> 8 * byte & 0xff));
            }
        }
        if (is_bf16) {
            assert_true(fabs((double)by__bits_float(sums[i]) - wanted) < 1e-4);
        } else {
            assert_true(sums[i] == bits);
        }
    }
    for (size_t i = (size_t)(height * COLUMNS); i < BY_ARRAY_LENGTH(sums); i++) {
        assert_true(sums[i] == 0xa5a5a5a5u);
    }
}

static void test_rows(void **state)
{
    BY_UNUSED(state);
    if (!__builtin_cpu_supports("avx512bf16")) {
        skip();
    }
    for (int height = 1; height <= BY__TILES_ROWS; height++) {
        check_rows(height, true);
        check_rows(height, false);
    }
}

static void test_panels(void **state)
{
    BY_UNUSED(state);
    static const int64_t shapes[][4] = {{1, 1, 1, 0},     {32, 32, 32, 0},  {31, 33, 65, 0},
                                        {70, 64, 96, 32}, {16, 100, 33, 0}, {65, 17, 130, 64}};
    if (!__builtin_cpu_supports("avx512bf16")) {
        skip();
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(shapes); i++) {
        const int64_t *s = shapes[i];
        for (int way = 0; way < 4; way++) {
            check(s[0], s[1], s[2], s[3], way % 2 == 0, way / 2 == 1);
        }
    }
}
#else
static void test_panels(void **state)
{
    BY_UNUSED(state);
    skip();
}

static void test_rows(void **state)
{
    BY_UNUSED(state);
    skip();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_panels), cmocka_unit_test(test_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
