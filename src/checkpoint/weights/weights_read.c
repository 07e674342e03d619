/* Reads values of tensors: whole, or a slice, converted to f32. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/weights/adapter.h"

static void refuse_tensor(const by_weights *weights, const char *name, by_error *error)
{
    const char **names = NULL;
    const char *nearest = NULL;
    if (by__alloc((void **)&names, by_weights_count(weights), sizeof *names, "names", NULL) ==
        BY_OK) {
        for (size_t i = 0; i < by_weights_count(weights); i++) {
            names[i] = by_weights_name(weights, i);
        }
        nearest = by_nearest_name(name, names, by_weights_count(weights));
        free(names);
    }
    (void)by_error_set(error, BY_EFORMAT, "%s: no tensor '%.150s' among %zu%s%.150s%s",
                       by_weights_path(weights), name, by_weights_count(weights),
                       nearest == NULL ? "" : "; nearest: '", nearest == NULL ? "" : nearest,
                       nearest == NULL ? "" : "'");
}

/* Finds the tensor's entry, and its view, whose data is NULL if it is cut over files. */
static by_status describe(const by__checkpoint_tensor_entry **found, by_tensor_view *out,
                          const by_weights *weights, const char *name, by_error *error)
{
    const by__checkpoint_tensor_entry *entry = by__weights_find(weights, name);
    if (entry == NULL) {
        refuse_tensor(weights, name, error);
        return BY_EFORMAT;
    }
    if (entry->dtype < 0 || entry->rank > BY_TENSOR_MAX_RANK) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: tensor '%.200s' is %s of rank %zu; banyan reads F32, BF16, F16, "
                            "I32, I8, U8, F8_E4M3 and BOOL up to rank %d",
                            entry->file, name, entry->type, entry->rank, BY_TENSOR_MAX_RANK);
    }
    by_tensor_view view = {
        .name = entry->name,
        .dtype = (by_dtype)entry->dtype,
        .rank = (int)entry->rank,
        .data = entry->data,
    };
    memcpy(view.shape, entry->shape, sizeof view.shape);
    *found = entry;
    *out = view;
    return BY_OK;
}

by_status by__weights_describe(const by_weights *weights, const char *name, by_tensor_view *out,
                               by_error *error)
{
    const by__checkpoint_tensor_entry *entry;
    return describe(&entry, out, weights, name, error);
}

by_status by_weights_tensor(const by_weights *weights, const char *name, by_tensor_view *out,
                            by_error *error)
{
    const by__checkpoint_tensor_entry *entry;
    by_tensor_view view;
    BY_TRY(describe(&entry, &view, weights, name, error));
    if (entry->delta != NULL || entry->computed != NULL) {
        return by_error_set(error, BY_ESTATE,
                            "tensor '%.200s' is computed %s as it is read: there is no memory that "
                            "holds it",
                            name, entry->delta != NULL ? "with an adapter" : "from its file");
    }
    if (entry->data == NULL && entry->pieces != NULL) {
        BY_TRY(by__checkpoint_pieces_whole(entry->pieces, &view.data, error));
    }
    *out = view;
    return BY_OK;
}

by_status by_weights_read(const by_weights *weights, const char *name, const by_tensor_slice *slice,
                          void *out, size_t count, by_error *error)
{
    const by__checkpoint_tensor_entry *entry;
    by_tensor_view tensor;
    size_t elements;
    BY_TRY(describe(&entry, &tensor, weights, name, error));
    BY_TRY(by__checkpoint_slice_check(&tensor, slice, &elements, error));
    if (elements != count) {
        return by_error_set(error, BY_EARG, "tensor '%.200s': a slice of %zu elements, not %zu",
                            name, elements, count);
    }
    if (elements > 0) {
        by__checkpoint_entry_read(entry, &tensor, slice, out);
    }
    return BY_OK;
}

by_status by_weights_read_f32(const by_weights *weights, const char *name,
                              const by_tensor_slice *slice, float *out, size_t count,
                              by_error *error)
{
    by_tensor_view tensor;
    void *raw;
    BY_TRY(by__weights_describe(weights, name, &tensor, error));
    if (tensor.dtype == BY_F32) {
        return by_weights_read(weights, name, slice, out, count, error);
    }
    BY_TRY(by__alloc(&raw, count, by_dtype_size(tensor.dtype), "a slice", error));
    by_status status = by_weights_read(weights, name, slice, raw, count, error);
    by_tensor_view part = {.name = tensor.name, .dtype = tensor.dtype, .rank = 1, .data = raw};
    part.shape[0] = (int64_t)count;
    if (status == BY_OK) {
        status = by_tensor_read_f32(&part, out, count, error);
    }
    free(raw);
    return status;
}
