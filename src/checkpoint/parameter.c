#include <string.h>

#include "checkpoint/storage.h"

static bool fits(const by_tensor_view *tensor, const by_shape *shape, bool padded)
{
    bool same = tensor->rank == shape->rank;
    for (int i = 0; i < tensor->rank && same; i++) {
        bool shorter = i == 0 && padded && tensor->shape[0] <= shape->dim[0];
        same = tensor->shape[i] == shape->dim[i] || shorter;
    }
    return same;
}

by_status by__weights_parameter(const by_weights *weights, const char *prefix, const char *name,
                                const by_shape *shape, bool padded, by_tensor_view *out,
                                by_error *error)
{
    char prefixed[256];
    by_tensor_view tensor;
    if (!by_weights_has(weights, name) && prefix != NULL) {
        (void)snprintf(prefixed, sizeof prefixed, "%s%s", prefix, name);
        if (by_weights_has(weights, prefixed)) {
            name = prefixed;
        }
    }
    BY_TRY(by_weights_tensor(weights, name, &tensor, error));
    if (!fits(&tensor, shape, padded)) {
        char wanted[128];
        char have[128];
        by_shape found = {.rank = tensor.rank > BY_MAX_RANK ? BY_MAX_RANK : tensor.rank};
        memcpy(found.dim, tensor.shape, (size_t)found.rank * sizeof found.dim[0]);
        return by_error_set(error, BY_EFORMAT, "%s: tensor '%s' is %s; the model needs %s",
                            by_weights_path(weights), tensor.name, by_shape_print(&found, have),
                            by_shape_print(shape, wanted));
    }
    *out = tensor;
    return BY_OK;
}
