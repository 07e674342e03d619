/* Parts of tensors: what boxes have in common, copies, and the boxes and runs of a slice. */
#include "base/tensor_slice.h"

#include <assert.h>
#include <string.h>

by_tensor_slice by__slice_whole(int rank, const int64_t *shape)
{
    by_tensor_slice slice = {.flat = false};
    memcpy(slice.shape, shape, (size_t)rank * sizeof slice.shape[0]);
    return slice;
}

uint64_t by__slice_elements(int rank, const by_tensor_slice *slice)
{
    uint64_t elements = 1;
    for (int i = 0; i < (slice->flat ? 1 : rank); i++) {
        elements *= (uint64_t)slice->shape[i];
    }
    return elements;
}

bool by__slice_common(by_tensor_slice *out, int rank, const by_tensor_slice *a,
                      const by_tensor_slice *b)
{
    *out = (by_tensor_slice){.flat = false};
    for (int i = 0; i < rank; i++) {
        int64_t a_end = a->offset[i] + a->shape[i];
        int64_t b_end = b->offset[i] + b->shape[i];
        out->offset[i] = a->offset[i] > b->offset[i] ? a->offset[i] : b->offset[i];
        out->shape[i] = (a_end < b_end ? a_end : b_end) - out->offset[i];
        if (out->shape[i] <= 0) {
            return false;
        }
    }
    return true;
}

/* Offset of an element in the dense memory of a box. */
static int64_t place_in(const by_tensor_slice *box, const int64_t *index, int rank)
{
    int64_t at = 0;
    for (int i = 0; i < rank; i++) {
        at = at * box->shape[i] + index[i] - box->offset[i];
    }
    return at;
}

void by__slice_copy(int rank, const by_tensor_slice *box, void *to, const by_tensor_slice *to_box,
                    const void *from, const by_tensor_slice *from_box, size_t size)
{
    int64_t index[BY_TENSOR_MAX_RANK] = {0};
    size_t run = size;
    int axes = rank; /* number of leading axes that a run does not span */
    assert(rank >= 0 && rank <= BY_TENSOR_MAX_RANK);
    memcpy(index, box->offset, (size_t)rank * sizeof index[0]);
    while (axes > 0) {
        axes--;
        run *= (size_t)box->shape[axes];
        if (box->shape[axes] != to_box->shape[axes] || box->shape[axes] != from_box->shape[axes]) {
            break;
        }
    }
    for (;;) {
        memcpy((char *)to + (size_t)place_in(to_box, index, rank) * size,
               (const char *)from + (size_t)place_in(from_box, index, rank) * size, run);
        int i = axes - 1;
        while (i >= 0 && ++index[i] == box->offset[i] + box->shape[i]) {
            index[i] = box->offset[i];
            i--;
        }
        if (i < 0) {
            return;
        }
    }
}

/* The largest box at the beginning of a range of elements from `first` on: it spans whole rows of
 * the axes after the first one whose index can grow. Returns its number of elements. */
static uint64_t first_box(by_tensor_slice *box, int rank, const int64_t *shape, uint64_t first,
                          uint64_t count)
{
    uint64_t stride[BY_TENSOR_MAX_RANK] = {0};
    uint64_t block = 1;
    *box = (by_tensor_slice){.flat = false};
    int axis = rank - 1;
    for (int i = rank - 1; i >= 0; i--) {
        stride[i] = block;
        box->offset[i] = (int64_t)(first / block % (uint64_t)shape[i]);
        block *= (uint64_t)shape[i];
    }
    while (axis > 0 && box->offset[axis] == 0 && count >= stride[axis - 1]) {
        axis--;
    }
    int64_t most = shape[axis] - box->offset[axis];
    uint64_t rows = count / stride[axis];
    rows = rows < (uint64_t)most ? rows : (uint64_t)most;
    for (int i = 0; i < rank; i++) {
        box->shape[i] = i < axis ? 1 : i == axis ? (int64_t)rows : shape[i];
    }
    return rows * stride[axis];
}

int by__slice_boxes(by_tensor_slice boxes[BY__SLICE_BOXES], int rank, const int64_t *shape,
                    const by_tensor_slice *slice)
{
    int n = 0;
    if (!slice->flat || rank == 0) {
        boxes[0] = *slice;
        boxes[0].flat = false;
        return !slice->flat || slice->shape[0] > 0 ? 1 : 0;
    }
    uint64_t first = (uint64_t)slice->offset[0];
    uint64_t count = (uint64_t)slice->shape[0];
    while (count > 0) {
        uint64_t done = first_box(&boxes[n++], rank, shape, first, count);
        first += done;
        count -= done;
    }
    return n;
}

void by__slice_runs_begin(by__slice_runs *runs, int rank, const int64_t *shape,
                          const by_tensor_slice *slice)
{
    uint64_t elements = by__slice_elements(rank, slice);
    *runs = (by__slice_runs){rank, shape, slice, .left = elements, .length = 1};
    if (slice->flat) {
        runs->length = (size_t)elements;
        return;
    }
    /* The axes after `axes` are spanned completely, so that a run continues over them. */
    int axis = rank;
    while (axis > 0) {
        axis--;
        runs->length *= (size_t)slice->shape[axis];
        if (slice->shape[axis] != shape[axis]) {
            break;
        }
    }
    runs->axes = axis;
}

bool by__slice_runs_next(by__slice_runs *r, uint64_t *first, size_t *count)
{
    const by_tensor_slice *s = r->slice;
    if (r->left == 0) {
        return false;
    }
    *count = r->length;
    r->left -= r->length;
    if (s->flat) {
        *first = (uint64_t)s->offset[0];
        return true;
    }
    uint64_t at = 0;
    for (int i = 0; i < r->rank; i++) {
        int64_t index = s->offset[i] + (i < r->axes ? r->index[i] : 0);
        at = at * (uint64_t)r->shape[i] + (uint64_t)index;
    }
    *first = at;
    for (int i = r->axes - 1; i >= 0 && ++r->index[i] == s->shape[i]; i--) {
        r->index[i] = 0;
    }
    return true;
}
