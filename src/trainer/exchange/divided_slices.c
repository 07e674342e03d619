/* The slices that a rank holds of a tensor that ranks of `shard` divide or that is on disk: ranges
 * of its elements. If the rank has only a part of the tensor, split along other axes, a range of
 * the part's elements consists of several boxes of the tensor. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/storage.h"
#include "trainer/exchange/exchange.h"
#include "trainer/state/trainer.h"

/* A slice, and the address of its values. */
typedef struct found {
    by__trainer_held held;
    by__store_held_piece piece;
    bool in_box; /* the slice is elements begin, ... of box k of the part */
    int64_t k;
    int64_t begin;
    int64_t elements;
} found;

/* Iterates over the slices; a callback returns true for the one sought. */
typedef struct slice_search {
    size_t left; /* number of slices before it */
    found *out;
} slice_search;

static bool take(slice_search *s, const found *next)
{
    if (s->left-- > 0) {
        return false;
    }
    *s->out = *next;
    return true;
}

/* Visits the boxes of the tensor that make up elements [first, first + count) of box k of the
 * part. */
static bool visit_box(slice_search *s, const by__store_tensor *entry, found *next)
{
    by__checkpoint_box boxes[BY__SLICE_BOXES];
    by__store_box whole = by__store_box_at(entry, next->k);
    by_tensor_view view = {.dtype = BY_F32, .rank = whole.shape.rank};
    by_tensor_slice range = {.flat = true};
    memcpy(view.shape, whole.shape.dim, (size_t)view.rank * sizeof view.shape[0]);
    by__store_box_range(entry, next->k, next->piece.first, next->piece.count, &range.offset[0],
                        &range.shape[0]);
    next->begin = range.offset[0];
    int boxes_count = by__checkpoint_slice_boxes(boxes, &view, &range);
    for (int i = 0; i < boxes_count; i++) {
        next->elements = 1;
        next->held = (by__trainer_held){.whole = entry->shape, .is_copy = !entry->trainable};
        for (int axis = 0; axis < view.rank; axis++) {
            next->held.slice.offset[axis] = whole.offset[axis] + boxes[i].offset[axis];
            next->held.slice.shape[axis] = boxes[i].shape[axis];
            next->elements *= boxes[i].shape[axis];
        }
        if (take(s, next)) {
            return true;
        }
        next->begin += next->elements;
    }
    return false;
}

static bool find(const by_trainer *t, int flat, by__store_handle handle, slice_search *s)
{
    const by__store_tensor tensor = by__store_held(t->store, flat, handle);
    const by__store_tensor *entry = &tensor;
    bool part = by__store_is_part(entry);
    by__store_held_piece piece;
    for (size_t k = 0; by__store_piece(t->store, flat, handle, k, &piece); k++) {
        found next = {.piece = piece, .in_box = part};
        if (!part) {
            next.held = (by__trainer_held){.whole = by__store_shape(t->store, flat, handle),
                                           .slice = {.flat = true},
                                           .is_copy = !entry->trainable};
            next.held.slice.offset[0] = piece.first;
            next.held.slice.shape[0] = piece.count;
            if (take(s, &next)) {
                return true;
            }
        }
        for (next.k = 0; part && next.k < by__store_box_count(entry); next.k++) {
            if (visit_box(s, entry, &next)) {
                return true;
            }
        }
    }
    return false;
}

size_t by__trainer_divided_slices(const by_trainer *t, int flat, by__store_handle handle)
{
    slice_search s = {.left = SIZE_MAX};
    (void)find(t, flat, handle, &s);
    return SIZE_MAX - s.left;
}

void by__trainer_divided_slice(by__trainer_held *out, const by_trainer *t, int flat,
                               by__store_handle handle, size_t i)
{
    found slice = {0};
    slice_search s = {.left = i, .out = &slice};
    (void)find(t, flat, handle, &s);
    *out = slice.held;
}

by_status by__trainer_divided_read(const by_trainer *t, int flat, by__store_handle handle, size_t i,
                                   const void **data, void **owned, by_error *error)
{
    found slice = {0};
    slice_search s = {.left = i, .out = &slice};
    void *read = NULL;
    (void)find(t, flat, handle, &s);
    const by__store_held_piece *piece = &slice.piece;
    *data = (const void *)piece->memory.address; /* ranks only work on devices with host memory */
    if (piece->on_disk) {
        BY_TRY(by__alloc_aligned(
            &read, (size_t)piece->count * by_dtype_size(by__store_dtype(t->store, flat, handle)),
            "a part of a tensor", error));
        *data = read;
        by_status status =
            by__store_read_part(t->store, flat, handle, piece->first, piece->count, read, error);
        if (status != BY_OK) {
            free(read);
            return status;
        }
    }
    if (!slice.in_box) {
        *owned = read;
        return BY_OK;
    }
    by_status status = by__alloc_aligned(owned, (size_t)slice.elements * sizeof(float),
                                         "a part of a tensor", error);
    if (status == BY_OK) {
        const by__store_tensor tensor = by__store_held(t->store, flat, handle);
        by__store_box_read(&tensor, slice.k, slice.begin, slice.elements, *owned, *data,
                           piece->first, by_dtype_size(by__store_dtype(t->store, flat, handle)));
        *data = *owned;
    }
    free(read);
    return status;
}
