/* A tensor stored in parts, one for each index of the first axis. Its name has a '*' in place of
 * the index ("experts.*.w1.weight": "experts.0.w1.weight", ...). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/storage.h"

bool by__checkpoint_name_is_stacked(const char *name)
{
    return strchr(name, '*') != NULL;
}

void by__checkpoint_stacked_name(char *out, size_t size, const char *name, int64_t part)
{
    const char *star = strchr(name, '*');
    (void)snprintf(out, size, "%.*s%" PRId64 "%s", (int)(star - name), name, part, star + 1);
}

size_t by__checkpoint_stacked_part(by_tensor_view *view, char *name, size_t size, int64_t part)
{
    size_t count = 1;
    by__checkpoint_stacked_name(name, size, view->name, part);
    view->name = name;
    view->rank--;
    for (int i = 0; i < view->rank; i++) {
        view->shape[i] = view->shape[i + 1];
        count *= (size_t)view->shape[i];
    }
    size_t first = (size_t)part * count;
    if (view->data != NULL) {
        view->data = (const char *)view->data + first * by_dtype_size(view->dtype);
    }
    return first;
}

/* Finds a part in the file, which must have the shape of `want`. */
static by_status find_part(const by_weights *weights, const by_tensor_view *want, by_error *error)
{
    by_tensor_view have;
    BY_TRY(by__weights_describe(weights, want->name, &have, error));
    if (have.rank != want->rank ||
        memcmp(have.shape, want->shape, (size_t)want->rank * sizeof want->shape[0]) != 0 ||
        !by_dtype_is_float(have.dtype)) {
        char text[128];
        by_shape shape = {.rank = want->rank};
        memcpy(shape.dim, want->shape, (size_t)want->rank * sizeof shape.dim[0]);
        return by_error_set(error, BY_EFORMAT,
                            "%s: tensor '%s' does not fit; the model needs floats %s",
                            by_weights_path(weights), want->name, by_shape_print(&shape, text));
    }
    return BY_OK;
}

by_status by__checkpoint_stacked_read(float *out, const by_weights *weights, const char *name,
                                      const by_shape *shape, const by_tensor_slice *slice,
                                      by_error *error)
{
    by_tensor_view whole = {.name = name, .dtype = BY_F32, .rank = shape->rank};
    memcpy(whole.shape, shape->dim, (size_t)shape->rank * sizeof shape->dim[0]);
    for (int64_t i = 0; i < slice->shape[0]; i++) {
        char part_name[512];
        by_tensor_view want = whole;
        by_tensor_slice part = {0};
        size_t count;
        (void)by__checkpoint_stacked_part(&want, part_name, sizeof part_name, slice->offset[0] + i);
        for (int k = 0; k < want.rank; k++) {
            part.offset[k] = slice->offset[k + 1];
            part.shape[k] = slice->shape[k + 1];
        }
        BY_TRY(by__checkpoint_slice_check(&want, &part, &count, error));
        BY_TRY(find_part(weights, &want, error));
        if (out != NULL) {
            BY_TRY(by_weights_read_f32(weights, part_name, &part, out, count, error));
            out += count;
        }
    }
    return BY_OK;
}
