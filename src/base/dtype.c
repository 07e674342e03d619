#include "banyan/dtype.h"

static const struct {
    const char *name;
    size_t size;
    bool is_float;
} dtypes[BY_DTYPE_COUNT] = {
    [BY_F32] = {"f32", 4, true},  [BY_BF16] = {"bf16", 2, true}, [BY_F16] = {"f16", 2, true},
    [BY_I32] = {"i32", 4, false}, [BY_U8] = {"u8", 1, false},    [BY_BOOL] = {"bool", 1, false},
    [BY_I8] = {"i8", 1, false},   [BY_F8] = {"f8", 1, false},
};

static bool valid(by_dtype dtype)
{
    return (unsigned)dtype < BY_DTYPE_COUNT;
}

size_t by_dtype_size(by_dtype dtype)
{
    return valid(dtype) ? dtypes[dtype].size : 0;
}

const char *by_dtype_name(by_dtype dtype)
{
    return valid(dtype) ? dtypes[dtype].name : "?";
}

bool by_dtype_is_float(by_dtype dtype)
{
    return valid(dtype) && dtypes[dtype].is_float;
}
