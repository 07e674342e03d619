/* Normal values for initial weights, divided into blocks for the threads. */
#include "device/cpu/cpu.h"

/* Number of values per Philox stream position; work is divided here, so the values do not depend on
 * threads. */
#define BLOCK BY__NORMAL_BLOCK

static by__cpu_fill_normal_fn *fill_at(by__cpu_isa isa)
{
#if defined(BY_HAS_AVX512)
    if (isa == BY__ISA_AVX512) {
        return by__kernel_fill_normal_block_avx512;
    }
#endif
#if defined(BY_HAS_AVX2)
    if (isa == BY__ISA_AVX2) {
        return by__kernel_fill_normal_block_avx2;
    }
#endif
    BY_UNUSED(isa);
    return by__kernel_fill_normal_block_baseline;
}

void by__cpu_fill_normal(float *out, int64_t first, int64_t count, float std, const uint32_t key[2],
                         by__cpu_isa isa)
{
    by__cpu_fill_normal_fn *fill = fill_at(isa);
    int64_t blocks = by__ceil_div(count, BLOCK);
#pragma omp parallel for schedule(static) if (blocks > 1)
    for (int64_t block = 0; block < blocks; block++) {
        int64_t at = block * BLOCK;
        fill(out + at, by__min_i64(count - at, BLOCK), std, key, first / BLOCK + block);
    }
}

by_status by__cpu_fill_normal_tensor(float *out, int64_t first, int64_t count, float std,
                                     const uint32_t key[2], by_error *error)
{
    by__cpu_isa isa;
    BY_TRY(by__cpu_isa_read(&isa, error));
    by__cpu_fill_normal(out, first, count, std, key, isa);
    return BY_OK;
}
