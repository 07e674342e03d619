/* Slices of tensors: checks and names, and the check that slices make up a tensor. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/storage.h"

by_status by__checkpoint_slice_check(const by_tensor_view *tensor, const by_tensor_slice *slice,
                                     size_t *elements, by_error *error)
{
    size_t total;
    size_t count = 1;
    BY_TRY(by_tensor_size(tensor, &total, NULL, error));
    if (slice->flat) {
        if (slice->offset[0] < 0 || slice->shape[0] < 0 || (uint64_t)slice->offset[0] > total ||
            (uint64_t)slice->shape[0] > total - (uint64_t)slice->offset[0]) {
            return by_error_set(error, BY_EARG,
                                "tensor '%.200s': elements %" PRId64 " + %" PRId64
                                " are not within its %zu",
                                tensor->name, slice->offset[0], slice->shape[0], total);
        }
        *elements = (size_t)slice->shape[0];
        return BY_OK;
    }
    for (int i = 0; i < tensor->rank; i++) {
        if (slice->offset[i] < 0 || slice->shape[i] < 0 || slice->offset[i] > tensor->shape[i] ||
            slice->shape[i] > tensor->shape[i] - slice->offset[i]) {
            return by_error_set(error, BY_EARG,
                                "tensor '%.200s': %" PRId64 " + %" PRId64
                                " along axis %d is not within its %" PRId64,
                                tensor->name, slice->offset[i], slice->shape[i], i,
                                tensor->shape[i]);
        }
        count *= (size_t)slice->shape[i]; /* at most the tensor's elements, or 0 */
        if (slice->shape[i] == 0) {
            break;
        }
    }
    *elements = count;
    return BY_OK;
}

by_tensor_slice by_tensor_whole(const by_tensor_view *tensor)
{
    return by__slice_whole(tensor->rank, tensor->shape);
}

bool by__checkpoint_slice_is_whole(const by_tensor_view *tensor, const by_tensor_slice *slice)
{
    size_t total = 0;
    size_t elements = 0;
    return by_tensor_size(tensor, &total, NULL, NULL) == BY_OK &&
           by__checkpoint_slice_check(tensor, slice, &elements, NULL) == BY_OK && elements == total;
}

by_status by__checkpoint_slice_name(char **out, const by_tensor_view *tensor,
                                    const by_tensor_slice *slice, by_error *error)
{
    by_string text = {0};
    int axes = slice->flat ? 1 : tensor->rank;
    by__string_append(&text, tensor->name);
    if (!by__checkpoint_slice_is_whole(tensor, slice)) {
        for (int i = 0; i < axes; i++) {
            by_string_format(&text, "%s%" PRId64 ":%" PRId64, i == 0 ? "[" : ",", slice->offset[i],
                             slice->offset[i] + slice->shape[i]);
        }
        by__string_append(&text, "]");
    }
    return by__string_release(&text, out, error);
}

/* ---- whether slices make up a tensor ---- */

/* One run of elements. */
typedef struct element_range {
    uint64_t first;
    uint64_t count;
} element_range;

static int by_first(const void *a, const void *b)
{
    const element_range *x = a;
    const element_range *y = b;
    return x->first < y->first ? -1 : x->first > y->first ? 1 : 0;
}

static by_status not_once(const by_tensor_view *tensor, const char *what, by_error *error)
{
    return by_error_set(error, BY_ESTATE, "tensor '%.200s': %s: each element must be written once",
                        tensor->name, what);
}

static by_status ranges_cover(const by_tensor_view *tensor, element_range *ranges, size_t count,
                              uint64_t total, by_error *error)
{
    uint64_t end = 0;
    if (count > 1) {
        qsort(ranges, count, sizeof *ranges, by_first);
    }
    for (size_t i = 0; i < count; i++) {
        if (ranges[i].first != end) {
            return not_once(tensor, ranges[i].first < end ? "slices overlap" : "a part is missing",
                            error);
        }
        end += ranges[i].count;
    }
    return end == total ? BY_OK : not_once(tensor, "a part is missing", error);
}

/* Disjoint boxes whose sizes add up to the tensor's elements make up the tensor. */
static by_status boxes_cover(const by_tensor_view *tensor, const by_tensor_slice *const *slices,
                             size_t count, uint64_t total, by_error *error)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        size_t elements;
        if (slices[i]->flat) {
            return by_error_set(error, BY_EARG,
                                "tensor '%.200s' is written both by ranges and by boxes that are "
                                "no ranges",
                                tensor->name);
        }
        BY_TRY(by__checkpoint_slice_check(tensor, slices[i], &elements, error));
        for (size_t k = 0; k < i; k++) {
            by_tensor_slice common;
            if (by__slice_common(&common, tensor->rank, slices[i], slices[k])) {
                return not_once(tensor, "slices overlap", error);
            }
        }
        sum += elements;
    }
    return sum == total ? BY_OK : not_once(tensor, "a part is missing", error);
}

by_status by__checkpoint_slices_cover(const by_tensor_view *tensor,
                                      const by_tensor_slice *const *slices, size_t count,
                                      by_error *error)
{
    element_range *ranges;
    size_t total;
    bool simple = true;
    BY_TRY(by_tensor_size(tensor, &total, NULL, error));
    BY_TRY(by__alloc((void **)&ranges, count, sizeof *ranges, "slices", error));
    by_status status = BY_OK;
    for (size_t i = 0; i < count && simple && status == BY_OK; i++) {
        by__slice_runs runs;
        size_t elements = 0;
        size_t length = 0;
        status = by__checkpoint_slice_check(tensor, slices[i], &elements, error);
        if (status == BY_OK) {
            by__slice_runs_begin(&runs, tensor->rank, tensor->shape, slices[i]);
            (void)by__slice_runs_next(&runs, &ranges[i].first, &length);
            ranges[i].count = length;
            simple = length == elements;
        }
    }
    if (status == BY_OK) {
        status = simple ? ranges_cover(tensor, ranges, count, total, error)
                        : boxes_cover(tensor, slices, count, total, error);
    }
    free(ranges);
    return status;
}
