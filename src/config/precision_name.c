#include <string.h>

#include "banyan/config.h"
#include "base/base.h"

by_status by_precision_parse(by_dtype *out, const char *name, by_error *error)
{
    static const struct {
        const char *name;
        by_dtype dtype;
    } names[] = {{"f32", BY_F32}, {"bf16", BY_BF16}, {"fp16", BY_F16}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(names); i++) {
        if (strcmp(name, names[i].name) == 0) {
            *out = names[i].dtype;
            return BY_OK;
        }
    }
    return by_error_set(error, BY_EARG, "cannot compute in '%s'; must be f32, bf16 or fp16", name);
}
