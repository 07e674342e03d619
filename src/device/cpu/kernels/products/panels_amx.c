/* Panels of bf16 for AMX tiles: a register tile is 32 x 32, and one instruction multiplies 16 x 32
 * by 32 x 16. B is packed as for vdpbf16ps. A is packed in tiles of [16 rows][32 elements of k],
 * the operand layout of the instruction. */
#include "device/cpu/cpu.h"
#include "device/cpu/panel.h"

#if defined(__AVX512BF16__) && defined(__linux__)

#include <sys/syscall.h>
#include <unistd.h>

#include "device/cpu/kernels/products/panel_pack.h"
#include "device/cpu/kernels/products/tiles.h"

enum { TILE = BY__TILE, BLOCK = BY__TILES_ROWS, TILE_UNITS = TILE * TILE };

/* Units of k, padded to whole tiles. */
static int64_t steps_of(int64_t k)
{
    return by__ceil_div(k, BLOCK) * TILE;
}

/* Loads v[i] = units of row r + i from step `step` on. */
static inline void load_a_tile(by__vu v[TILE], const panel_source *x, int64_t r, int64_t step)
{
    if (x->k_stride == 1) {
        load_rows(v, x, r, step);
        return;
    }
    int n = (int)by__min_i64(x->rows - r, TILE);
    for (int s = 0; s < TILE; s++) {
        v[s] = load_along_rows(x, r, step + s, n, false);
    }
    by__transpose(v);
}

static void pack_a(void *out, size_t stride, const void *a, int64_t row_stride, int64_t k_stride,
                   int64_t rows, int64_t k)
{
    int64_t steps = steps_of(k);
    panel_source x = {a, SOURCE_PAIR, row_stride, k_stride, rows, k};
    for (int64_t r = 0; r < rows; r += BLOCK) {
        uint32_t *panel = (uint32_t *)((char *)out + (size_t)(r / BLOCK) * stride);
        for (int64_t step = 0; step < steps; step += TILE) {
            for (int64_t i = 0; i < BLOCK && r + i < rows; i += TILE) {
                by__vu v[TILE];
                load_a_tile(v, &x, r + i, step);
                memcpy(panel + step * BLOCK + i * TILE, v, sizeof v);
            }
        }
    }
}

static void pack_b(void *out, size_t stride, const void *b, int64_t column_stride, int64_t k_stride,
                   int64_t columns, int64_t k)
{
    panel_source x = {b, SOURCE_PAIR, column_stride, k_stride, columns, k};
    pack(out, stride, x, steps_of(k), BLOCK);
}

/* to[32, 32] = A B (+ c). */
BY__TILES_TARGET static void block(float *to, int64_t ldt, const float *c, int64_t ldc,
                                   const char *a, const char *b, int64_t steps)
{
    size_t row = (size_t)ldc * 4;
    if (c != NULL) {
        _tile_loadd(0, c, row);
        _tile_loadd(1, c + TILE, row);
        _tile_loadd(2, c + TILE * ldc, row);
        _tile_loadd(3, c + TILE * ldc + TILE, row);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t s = 0; s < steps; s += TILE) {
        _tile_loadd(4, a, TILE * 4);
        _tile_loadd(6, b, BLOCK * 4);
        _tile_loadd(7, b + TILE * 4, BLOCK * 4);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, a + TILE_UNITS * 4, TILE * 4);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        a += BLOCK * TILE * 4;
        b += BLOCK * TILE * 4;
    }
    row = (size_t)ldt * 4;
    _tile_stored(0, to, row);
    _tile_stored(1, to + TILE, row);
    _tile_stored(2, to + TILE * ldt, row);
    _tile_stored(3, to + TILE * ldt + TILE, row);
}

BY__TILES_TARGET static void multiply(float *c, int64_t ldc, const void *a, size_t a_stride,
                                      const void *b, size_t b_stride, int64_t m, int64_t n,
                                      int64_t k, bool accumulate,
                                      const by__cpu_panel_target *target)
{
    int open = 0;
    by__tiles_open(&open, BLOCK);
    int64_t steps = steps_of(k);
    for (int64_t j = 0; j < n; j += BLOCK) {
        const char *bj = (const char *)b + (size_t)(j / BLOCK) * b_stride;
        for (int64_t i = 0; i < m; i += BLOCK) {
            const char *ai = (const char *)a + (size_t)(i / BLOCK) * a_stride;
            float *ci = c + i * ldc + j;
            int64_t rows = by__min_i64(BLOCK, m - i);
            int64_t columns = by__min_i64(BLOCK, n - j);
            bool whole = rows == BLOCK && columns == BLOCK;
            const float *added = accumulate && (whole || target != NULL) ? ci : NULL;
            if (whole && target == NULL) {
                block(ci, ldc, added, ldc, ai, bj, steps);
                continue;
            }
            float sums[BLOCK * BLOCK];
            block(sums, BLOCK, added, ldc, ai, bj, steps);
            by__cpu_panel_target at = {ci, ldc, BY_F32, BY_F32, NULL, accumulate ? ci : NULL};
            at = target != NULL ? by__panel_target_at(target, i, j) : at;
            BY__AT_LEVEL(by__kernel_panel_store)(&at, sums, BLOCK, rows, columns);
        }
    }
    by__tiles_close(&open);
}

static const by__cpu_panel panel = {BLOCK,
                                    BLOCK,
                                    BLOCK,
                                    2,
                                    512,
                                    pack_a,
                                    pack_b,
                                    multiply,
                                    NULL,
                                    BY__AT_LEVEL(by__kernel_panel_store),
                                    BY__AT_LEVEL(by__kernel_gemv)};

/* Linux enables tiles only for processes that request them (ARCH_REQ_XCOMP_PERM of XTILEDATA). */
const by__cpu_panel *by__kernel_panel_amx(void)
{
    unsigned eax = 7, ebx = 0, ecx = 0, edx = 0;
    __asm__("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
    bool tiles = (edx >> 24 & 1) != 0 && (edx >> 22 & 1) != 0 && (edx >> 25 & 1) != 0;
    return tiles && syscall(SYS_arch_prctl, 0x1023, 18) == 0 ? &panel : NULL;
}

#endif
