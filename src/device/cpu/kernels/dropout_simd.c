/* DROPOUT: x [B, ...] activations. The mask is defined in cpu.h; it is recomputed wherever it is
 * needed. */
#include "device/cpu/cpu.h"
#include "device/cpu/kernels/simd_math.h"

/* A block is 64 neighbouring elements of one sample; the last one of a sample may be shorter. */
#define BLOCK 64

static int64_t sample_size(const by__device_tensor *x)
{
    return x->shape.rank == 0 ? 1 : by__tensor_count(x) / x->shape.dim[0];
}

/* Processes elements [at, at + size) with the block of this counter. For whole blocks size is the
 * constant 64. */
BY__INLINE void drop_block(const by__device_call *call, const by__cpu_dropout *dropout,
                           const uint32_t counter[4], int64_t at, int64_t size, by_dtype type)
{
    for (int64_t j = 0; j < 16; j += BY__LANES) {
        by__vu c[4];
        for (int word = 0; word < 4; word++) {
            c[word] = (by__vu){0} + counter[word];
        }
        c[0] += by__lane_numbers() + (uint32_t)j;
        by__philox_lanes(c, dropout->key[0], dropout->key[1]);
        for (int word = 0; word < 4; word++) {
            int64_t i = 16 * word + j;
            int64_t left = size - i;
            by__vi kept = (by__vi)((c[word] >> 8) >= dropout->threshold);
            if (left >= BY__LANES) {
                by__vf x = by__kernel_load(call->in[0].data, at + i, type) * dropout->scale;
                by__kernel_store(call->out[0].data, at + i, (by__vf)((by__vi)x & kept), type);
            } else if (left > 0) {
                by__vf x = by__load_n(call->in[0].data, at + i, type, (int)left) * dropout->scale;
                by__store_n(call->out[0].data, at + i, (by__vf)((by__vi)x & kept), type, (int)left);
            }
        }
    }
}

BY__INLINE void drop(const by__device_call *call, int64_t begin, int64_t end, by_dtype type)
{
    by__cpu_dropout dropout = by__cpu_dropout_setup(call);
    int64_t size = sample_size(&call->in[0]);
    int64_t blocks = by__ceil_div(size, BLOCK);
    for (int64_t block = begin; block < end; block++) {
        int64_t sample = block / blocks;
        int64_t place = block % blocks * BLOCK;
        uint32_t counter[4];
        by__dropout_counter(counter, &dropout, (uint32_t)sample, by__place_of(&call->attrs, place));
        drop_block(call, &dropout, counter, sample * size + place, by__min_i64(BLOCK, size - place),
                   type);
    }
}

/* Processes elements [begin, end) one by one, for slices of samples that do not consist of whole
 * blocks. */
static void drop_elements(const by__device_call *call, int64_t begin, int64_t end)
{
    by__cpu_dropout dropout = by__cpu_dropout_setup(call);
    int64_t size = sample_size(&call->in[0]);
    by_dtype type = call->in[0].dtype;
    for (int64_t i = begin; i < end; i++) {
        uint32_t counter[4];
        uint32_t bits[4];
        int64_t place = by__place_of(&call->attrs, i % size);
        by__dropout_counter(counter, &dropout, (uint32_t)(i / size), place);
        by__philox(bits, dropout.key, counter);
        bool kept = (bits[place % BLOCK / 16] >> 8) >= dropout.threshold;
        by__vf x = by__load_n(call->in[0].data, i, type, 1) * dropout.scale;
        by__store_n(call->out[0].data, i, kept ? x : by__zero(), type, 1);
    }
}

BY__ACT_RANGES(drop)

static bool supports_dropout(const by__device_call *call)
{
    return by__tensor_is_act(&call->in[0]);
}

static by_status run_dropout(const by__device_call *call, const by__device_context *context)
{
    const by__device_tensor *x = &call->in[0];
    int64_t count = by__tensor_count(x);
    const by_attrs *a = &call->attrs;
    bool whole_blocks = (a->begin | a->turn | a->gap) % BLOCK == 0;
    if (!whole_blocks) {
        by__cpu_parallel(context, call, count, 1024, count, drop_elements);
    } else if (count > 0) {
        int64_t size = sample_size(x);
        by__cpu_parallel(context, call, count / size * by__ceil_div(size, BLOCK), 128, count,
                         drop_ranges[x->dtype]);
    }
    return BY_OK;
}

BY__KERNEL(dropout) = {BY_OP_DROPOUT, BY__KERNEL_NAME("dropout"), supports_dropout, NULL, NULL,
                       run_dropout};
