/* The panels for AMX tiles on a processor without them: packing and loops are the device's own, the
 * tile instructions are stood in for by plain C. Machines with AMX are rare where tests run, and
 * this is all of that path but the instructions themselves. */
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

/* Eight tiles, each 16 rows of 64 bytes. */
static uint32_t registers[8][16][16];

static void load_tile(int tile, const void *from, int64_t stride)
{
    for (int row = 0; row < 16; row++) {
        memcpy(registers[tile][row], (const char *)from + row * stride,
               sizeof registers[tile][row]);
    }
}

static void store_tile(int tile, void *to, int64_t stride)
{
    for (int row = 0; row < 16; row++) {
        memcpy((char *)to + row * stride, registers[tile][row], sizeof registers[tile][row]);
    }
}

/* TDPBF16PS: c[m][n] += the pair a[m][k] times the pair b[k][n], over k. */
static void multiply_tiles(int c, int a, int b)
{
    for (int i = 0; i < 16 * 16 * 16; i++) {
        uint32_t *sum = &registers[c][i / 256][i / 16 % 16];
        uint32_t x = registers[a][i / 256][i % 16];
        uint32_t y = registers[b][i % 16][i / 16 % 16];
        float low = by__bits_float(x << 16) * by__bits_float(y << 16);
        float high = by__bits_float(x & 0xffff0000u) * by__bits_float(y & 0xffff0000u);
        *sum = by__float_bits(by__bits_float(*sum) + low + high);
    }
}

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig(config)        ((void)(config))
#define _tile_release()                 ((void)0)
#define _tile_zero(tile)                memset(registers[tile], 0, sizeof registers[tile])
#define _tile_loadd(tile, from, stride) load_tile(tile, from, (int64_t)(stride))
#define _tile_stored(tile, to, stride)  store_tile(tile, to, (int64_t)(stride))
#define _tile_dpbf16ps(c, a, b)         multiply_tiles(c, a, b)
#define by__panel_amx                   emulated_panel
#include "device/cpu/kernels/panels_amx.c"

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
    by__panel_target target = {
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
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_panels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
