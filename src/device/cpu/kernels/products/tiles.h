/* tiles: the AMX tile registers of a thread, and products of rows with a packed panel on them.
 *
 * A tile is 16 rows of 64 bytes. An instruction adds to a tile of 16 x 16 sums the product of a
 * tile of rows, each with 16 steps of 4 bytes, and a tile of 16 steps of 16 columns: pairs of bf16,
 * or four bytes, which panels for vdpbf16ps and vpdpbusd hold in the same order.
 *
 * Linux enables tiles only for processes that ask for them: by__cpu_panel_tiles() first. At levels
 * that have no tiles it returns false, and the functions do nothing.
 *
 * Never put here: packing, or what is done with sums.
 */
#ifndef BY_DEVICE_CPU_KERNELS_PRODUCTS_TILES_H
#define BY_DEVICE_CPU_KERNELS_PRODUCTS_TILES_H

#include "base/base.h"

/* Rows of a tile, and steps of a row in it. */
enum { BY__TILE = 16 };

#if defined(__AVX512BF16__) && defined(__linux__)
#include <immintrin.h>

#define BY__TILES_TARGET __attribute__((target("amx-tile,amx-bf16,amx-int8")))

/* Rows of two tiles, which share what is loaded of a panel. */
enum { BY__TILES_ROWS = 2 * BY__TILE };

typedef struct by__kernel_tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} by__kernel_tile_config;

static inline void by__tile_shape(by__kernel_tile_config *config, int tile, int rows)
{
    config->rows[tile] = (uint8_t)rows;
    config->row_bytes[tile] = rows == 0 ? 0 : 64;
}

/* Shapes this thread's tiles for `height` rows, 1 to 32: sums in 0 to 3, rows in 4 and 5, columns
 * in 6 and 7. *open is the height that they have, 0 at first. */
BY__TILES_TARGET static inline void by__tiles_open(int *open, int height)
{
    by__kernel_tile_config config = {.palette = 1};
    int upper = height < BY__TILE ? height : BY__TILE;
    static const int upper_tiles[] = {0, 1, 4};
    static const int lower_tiles[] = {2, 3, 5};
    if (*open == height) {
        return;
    }
    for (int i = 0; i < 3; i++) {
        by__tile_shape(&config, upper_tiles[i], upper);
        by__tile_shape(&config, lower_tiles[i], height - upper);
    }
    by__tile_shape(&config, 6, BY__TILE);
    by__tile_shape(&config, 7, BY__TILE);
    _tile_loadconfig(&config);
    *open = height;
}

BY__TILES_TARGET static inline void by__tiles_close(const int *open)
{
    if (*open != 0) {
        _tile_release();
    }
}

/* c += a b; is_bf16 is a constant, c, a and b are numbers of tiles. Bytes of rows are signed, those
 * of panels are not. */
#define BY__TILE_PRODUCT(c, a, b)                                                                  \
    do {                                                                                           \
        if (is_bf16) {                                                                             \
            _tile_dpbf16ps(c, a, b);                                                               \
        } else {                                                                                   \
            _tile_dpbsud(c, a, b);                                                                 \
        }                                                                                          \
    } while (0)

BY__TILES_TARGET static inline __attribute__((always_inline)) void
by__tiles_add(bool is_bf16, void *sums, const char *x, size_t row_bytes, const char *panel,
              int64_t steps, bool resume, int height)
{
    enum { SUMS_BYTES = 2 * BY__TILE * 4 };
    char *upper = sums;
    char *lower = upper + BY__TILE * SUMS_BYTES;
    const bool is_tall = height > BY__TILE;
    /* gcc does not know that a load of a tile reads memory. */
    __asm__ volatile("" ::: "memory");
    _tile_zero(0);
    _tile_zero(1);
    if (resume) {
        _tile_loadd(0, upper, SUMS_BYTES);
        _tile_loadd(1, upper + SUMS_BYTES / 2, SUMS_BYTES);
    }
    if (!is_tall) {
        for (int64_t s = 0; s < steps; s += BY__TILE) {
            _tile_loadd(4, x, row_bytes);
            _tile_loadd(6, panel, SUMS_BYTES);
            BY__TILE_PRODUCT(0, 4, 6);
            _tile_loadd(7, panel + SUMS_BYTES / 2, SUMS_BYTES);
            BY__TILE_PRODUCT(1, 4, 7);
            x += BY__TILE * 4;
            panel += BY__TILE * SUMS_BYTES;
        }
    } else {
        const size_t below = BY__TILE * row_bytes;
        _tile_zero(2);
        _tile_zero(3);
        if (resume) {
            _tile_loadd(2, lower, SUMS_BYTES);
            _tile_loadd(3, lower + SUMS_BYTES / 2, SUMS_BYTES);
        }
        for (int64_t s = 0; s < steps; s += BY__TILE) {
            _tile_loadd(4, x, row_bytes);
            _tile_loadd(6, panel, SUMS_BYTES);
            _tile_loadd(7, panel + SUMS_BYTES / 2, SUMS_BYTES);
            BY__TILE_PRODUCT(0, 4, 6);
            _tile_loadd(5, x + below, row_bytes);
            BY__TILE_PRODUCT(1, 4, 7);
            BY__TILE_PRODUCT(2, 5, 6);
            BY__TILE_PRODUCT(3, 5, 7);
            x += BY__TILE * 4;
            panel += BY__TILE * SUMS_BYTES;
        }
        _tile_stored(2, lower, SUMS_BYTES);
        _tile_stored(3, lower + SUMS_BYTES / 2, SUMS_BYTES);
    }
    _tile_stored(0, upper, SUMS_BYTES);
    _tile_stored(1, upper + SUMS_BYTES / 2, SUMS_BYTES);
}

/* sums[height, 32] of `height` rows of x, row_bytes apart, and a panel of 32 columns, of `steps`
 * steps each, a multiple of 16; with `resume` it continues from the stored sums. */
BY__TILES_TARGET static inline void by__tiles_add_bf16(float *sums, const void *x, size_t row_bytes,
                                                       const char *panel, int64_t steps,
                                                       bool resume, int64_t height, int *open)
{
    by__tiles_open(open, (int)height);
    by__tiles_add(true, sums, x, row_bytes, panel, steps, resume, (int)height);
}

BY__TILES_TARGET static inline void by__tiles_add_bytes(int32_t *sums, const void *x,
                                                        size_t row_bytes, const char *panel,
                                                        int64_t steps, bool resume, int64_t height,
                                                        int *open)
{
    by__tiles_open(open, (int)height);
    by__tiles_add(false, sums, x, row_bytes, panel, steps, resume, (int)height);
}

#else
enum { BY__TILES_ROWS = 0 }; /* none: the compiler drops what depends on it */

static inline void by__tiles_add_bf16(float *sums, const void *x, size_t row_bytes,
                                      const char *panel, int64_t steps, bool resume, int64_t height,
                                      int *open)
{
    (void)sums, (void)x, (void)row_bytes, (void)panel, (void)steps, (void)resume, (void)height;
    (void)open;
}

static inline void by__tiles_add_bytes(int32_t *sums, const void *x, size_t row_bytes,
                                       const char *panel, int64_t steps, bool resume,
                                       int64_t height, int *open)
{
    (void)sums, (void)x, (void)row_bytes, (void)panel, (void)steps, (void)resume, (void)height;
    (void)open;
}

static inline void by__tiles_close(const int *open)
{
    (void)open;
}
#endif

#endif
