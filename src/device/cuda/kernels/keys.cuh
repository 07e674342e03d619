/* keys: which keys a query of attention reads, and how far they are. */
#ifndef BY_DEVICE_CUDA_KERNELS_KEYS_CUH
#define BY_DEVICE_CUDA_KERNELS_KEYS_CUH

#include "functions.cuh"

/* Valid rows of a sample. */
__device__ inline int64_t by__sample_rows(const int32_t *lengths, int64_t length, int64_t b)
{
    if (lengths == nullptr) {
        return length;
    }
    int64_t rows = lengths[b];
    return rows < 0 ? 0 : rows > length ? length : rows;
}

/* The first key that query t reads, and the one behind the last; none from `rows` on. */
template <class ARGS>
__device__ inline void by__key_limits(const ARGS &a, int64_t b, int64_t t, int64_t rows, int *first,
                                      int *end)
{
    int64_t from = a.window > 0 ? t - a.window + 1 : 0;
    if (a.starts != nullptr && t < rows) {
        int64_t start = a.starts[b * a.length + t];
        from = start > from ? start : from;
    }
    from = from < 0 ? 0 : from > t ? t : from;
    int64_t to = t >= rows ? 0 : t + 1 + a.behind < rows ? t + 1 + a.behind : rows;
    *first = to == 0 ? 0 : (int)from;
    *end = (int)to;
}

/* By how much a score falls from token to token (ALiBi). */
template <class ARGS> __device__ inline float by__slope_of(const ARGS &a, int64_t head)
{
    return a.sloped != 0 ? a.slope[head] : 0.0f;
}

#endif
