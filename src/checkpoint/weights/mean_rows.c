/* Rows that a table over the vocabulary gets for new tokens: the mean of the known ones, so that
 * they are no more surprising to the model than an average token (Hewitt, "Initializing new word
 * embeddings for pretrained language models", 2021). */
#include <stdlib.h>

#include "checkpoint/storage.h"

/* Sums the first `known` rows of a tensor in f64, in their order. */
static by_status sum_rows(double *sums, float *values, int64_t row, int64_t known,
                          const by_weights *weights, const char *name, by_error *error)
{
    for (int64_t i = 0; i < known; i++) {
        const by_tensor_slice slice = {.flat = true, .offset = {i * row}, .shape = {row}};
        BY_TRY(by_weights_read_f32(weights, name, &slice, values, (size_t)row, error));
        for (int64_t k = 0; k < row; k++) {
            sums[k] += (double)values[k];
        }
    }
    return BY_OK;
}

by_status by__checkpoint_mean_rows(by__store *store, int flat, by__store_handle handle,
                                   const by_weights *weights, const by_tensor_view *tensor,
                                   const by__checkpoint_load_options *options, by_error *error)
{
    const by__store_tensor held = by__store_held(store, flat, handle);
    int64_t known = options->known_rows;
    int64_t rows = held.shape.dim[0];
    int64_t row = by_shape_count(&held.shape) / rows;
    double *sums = NULL;
    float *values = NULL;
    if (!held.grows || known <= 0 || known >= rows) {
        return BY_OK;
    }
    if (by__store_is_part(&held) || known > tensor->shape[0]) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: '%s' gets rows for new tokens only where no ranks divide it: set "
                            "parallel.tensor to 1",
                            by_weights_path(weights), tensor->name);
    }
    BY_TRY(by__alloc((void **)&sums, (size_t)row, sizeof *sums, "rows of new tokens", error));
    by_status status =
        by__alloc((void **)&values, (size_t)row, sizeof *values, "rows of new tokens", error);
    if (status == BY_OK) {
        status = sum_rows(sums, values, row, known, weights, tensor->name, error);
    }
    for (int64_t k = 0; k < row && status == BY_OK; k++) {
        values[k] = (float)(sums[k] / (double)known);
    }
    for (int64_t i = known; i < rows && status == BY_OK; i++) {
        status = by__store_write_part(store, flat, handle, i * row, values, BY_F32, row,
                                      options->threads, error);
    }
    free(sums);
    free(values);
    return status;
}
