/* The instructions of prelude.cuh, one after another, for tests: what a GPU makes of them is what
 * the emulator says they are. */
#include "prelude.cuh"

/* Halves from row to row of the tile: 16 bytes more than a row, as in kernels. */
#define BY__TILE_ROW 24

/* The block of bf16, then that of f16. */
BY__KERNEL(instructions, 32)
{
    __shared__ __align__(16) uint16_t tile[24 * BY__TILE_ROW];
    bool bf16 = blockIdx.x == 0;
    unsigned lane = threadIdx.x;
    const uint16_t *halves = a.halves + blockIdx.x * 24 * 16;
    int64_t at = (int64_t)blockIdx.x * 32 + lane;
    /* 16 rows of a, then 8 of b, of which the last 4 halves stay zeros. */
    by__copy_async(tile + lane / 2 * BY__TILE_ROW + lane % 2 * 8, halves + lane * 8, 16);
    by__copy_commit();
    if (lane < 16) {
        by__copy_async(tile + (16 + lane / 2) * BY__TILE_ROW + lane % 2 * 8,
                       halves + 256 + lane * 8, lane == 15 ? 8 : 16);
    }
    by__copy_commit();
    by__copy_wait<1>();
    __syncwarp();
    uint32_t own[4];
    uint32_t turned[4];
    uint32_t columns[4];
    const uint16_t *row = tile + (lane % 16) * BY__TILE_ROW + lane / 16 * 8;
    by__ldmatrix(own, row);
    by__ldmatrix_transposed(turned, row);
    by__copy_wait<0>();
    __syncwarp();
    by__ldmatrix(columns, tile + (16 + lane % 8) * BY__TILE_ROW + lane / 8 % 2 * 8);
    float d[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        d[k] = (float)(lane * 4 + (unsigned)k);
    }
    if (bf16) {
        by__mma_bf16(d, own, columns);
    } else {
        by__mma_f16(d, own, columns);
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
        a.fragments[at * 8 + k] = own[k];
        a.fragments[at * 8 + 4 + k] = turned[k];
        a.sums[at * 4 + k] = d[k];
    }
    float x = a.numbers[at];
    float y = by__float(by__shuffle_bits(by__bits(x), lane ^ 1));
    uint32_t *results = a.results + at * 12;
    results[0] = by__to_bf16(x);
    results[1] = by__to_f16(x);
    results[2] = by__bits(by__from_bf16((uint16_t)(by__bits(x) >> 16)));
    results[3] = by__bits(by__from_f16((uint16_t)(by__bits(x) >> 16)));
    results[4] = by__pack_bf16(x, y);
    results[5] = by__pack_f16(x, y);
    results[6] = by__bits(by__fma(x, y, 1.0f));
    results[7] = by__bits(by__root(x * x));
    results[8] = by__bits(x / y);
    results[9] = by__bits(by__at_least(x, y));
    results[10] = by__bits(by__at_most(x, y));
    results[11] = by__high_product(by__bits(x), by__bits(y));
}
