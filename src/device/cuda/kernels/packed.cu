/* Products with packed weights (banyan/packing.h), plain. */
#include "tile.cuh"

/* An FP8 number, e4m3: 0x7f is NaN. */
__device__ __forceinline__ float by__from_f8(uint32_t code)
{
    uint32_t rest = code & 0x7f;
    float value = rest < 8 ? (float)rest * by__float(0x3b000000u) /* 2^-9 */
                           : by__float((rest << 20) + (120u << 23));
    value = rest == 0x7f ? BY__NAN : value;
    return (code & 0x80) != 0 ? -value : value;
}

/* Element (input i, output j) of a packed matrix. */
__device__ __forceinline__ float by__packed_at(const by__cuda_packing &p,
                                               const unsigned char *matrix, int64_t j, int64_t i)
{
    const unsigned char *panel = matrix + j / 32 * p.panel_bytes;
    int64_t c = j % 32;
    int64_t in = i & ((1 << p.block_bits) - 1);
    if (p.codes == BY__CUDA_CODES_NONE) {
        return by__get(panel, p.dtype,
                       p.dtype == BY__BF16 ? (i / 2 * 32 + c) * 2 + i % 2 : i * 32 + c);
    }
    if (p.codes == BY__CUDA_CODES_4) {
        const unsigned char *block = panel + (i >> p.block_bits) * p.block_bytes;
        uint32_t code = block[(in / 8 * 32 + c) * 4 + in % 4] >> (in % 8 >= 4 ? 4 : 0) & 15u;
        const uint16_t *scales = (const uint16_t *)(block + p.block_bytes) - 32;
        return by__from_f16(scales[c]) * ((float)code - 8.0f);
    }
    float scale = ((const float *)(panel + p.panel_bytes))[c - 32];
    if (p.codes == BY__CUDA_CODES_F8) {
        return scale * by__from_f8(panel[(i / 2 * 32 + c) * 2 + i % 2]);
    }
    const unsigned char *block = panel + (i >> p.block_bits) * p.block_bytes;
    return scale * ((float)block[(in / 4 * 32 + c) * 4 + in % 4] - 128.0f);
}

/* A warp for each piece of a row: whole numbers up to `most` times a scale. */
BY__KERNEL(packed_rows, 256)
{
    int64_t piece = (int64_t)blockIdx.x * 8 + threadIdx.x / 32;
    if (piece >= a.pieces) {
        return; /* a whole warp */
    }
    int64_t begin = piece / a.pieces_each * a.k + piece % a.pieces_each * a.piece;
    int64_t row_end = (piece / a.pieces_each + 1) * a.k;
    int64_t end = begin + a.piece < row_end ? begin + a.piece : row_end;
    float largest = 0.0f;
    for (int64_t i = begin + by__lane(); i < end; i += 32) {
        largest = by__at_least(largest, by__magnitude(by__get(a.x, a.dtype, i)));
    }
    largest = by__warp_largest(largest);
    /* The inverse of less would not be finite. */
    float inverse = largest >= by__power_of_two(-100) ? a.most / largest : 0.0f;
    float scale = largest / a.most;
    for (int64_t i = begin + by__lane(); i < end; i += 32) {
        /* To whole numbers, ties to even. */
        float rounded = by__get(a.x, a.dtype, i) * inverse + 12582912.0f;
        a.y[i] = (rounded - 12582912.0f) * scale;
    }
}

BY__KERNEL(packed_matmul, 256)
{
    __shared__ by__tile tile;
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    int64_t row = (int64_t)blockIdx.y * BY__CUDA_TILE;
    int64_t column = (int64_t)blockIdx.x * BY__CUDA_TILE;
    const unsigned char *w = (const unsigned char *)a.w;
    by__add_products(
        sum, tile, a.packing.k,
        [&](int64_t r, int64_t k) {
            return row + r < a.m ? by__get(a.a, a.a_dtype, (row + r) * a.packing.k + k) : 0.0f;
        },
        [&](int64_t k, int64_t c) {
            return column + c < a.packing.n ? by__packed_at(a.packing, w, column + c, k) : 0.0f;
        });
    by__put_tile(sum, a.y, a.dtype, 0, a.m, a.packing.n, row, column, a.bias, a.bias_dtype, a.add);
}

BY__KERNEL(packed_grouped_matmul, 256)
{
    __shared__ by__tile tile;
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    int64_t row = (int64_t)blockIdx.y * BY__CUDA_TILE;
    int64_t column = (int64_t)blockIdx.x * BY__CUDA_TILE;
    for (int64_t g = 0; g < a.groups; g++) {
        int64_t begin;
        int64_t end;
        by__range_of(a.range, g, a.capacity, a.rows, &begin, &end);
        if (begin >= row + BY__CUDA_TILE || end <= row) {
            continue; /* none of the tile's rows */
        }
        const unsigned char *w = (const unsigned char *)a.w + g / a.ranges_each * a.matrix_bytes;
        by__add_products(
            sum, tile, a.packing.k,
            [&](int64_t r, int64_t k) {
                return row + r >= begin && row + r < end
                           ? by__get(a.a, a.a_dtype, (row + r) * a.packing.k + k)
                           : 0.0f;
            },
            [&](int64_t k, int64_t c) {
                return column + c < a.packing.n ? by__packed_at(a.packing, w, column + c, k) : 0.0f;
            });
    }
    by__put_tile(sum, a.y, a.dtype, 0, a.rows, a.packing.n, row, column);
}

BY__KERNEL(packed_embedding, 256)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < a.count) {
        int64_t id = a.ids == nullptr ? i / a.packing.k : a.ids[i / a.packing.k];
        const unsigned char *w = (const unsigned char *)a.w;
        by__put(a.y, a.dtype, i,
                id >= 0 && id < a.packing.n ? by__packed_at(a.packing, w, id, i % a.packing.k)
                                            : 0.0f);
    }
}
