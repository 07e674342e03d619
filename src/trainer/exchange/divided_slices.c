/* The slices that a rank holds of a tensor that ranks of `shard` divide or that is on disk: ranges
 * of its elements. If the rank has only a part of the tensor, split along other axes, a range of
 * the part's elements consists of several boxes of the tensor. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/storage.h"
#include "trainer/exchange/exchange.h"
#include "trainer/state/trainer.h"

/* A slice, and where its values are. */
typedef struct found {
    by__trainer_held held;
    by__store_held_piece piece;
    by_tensor_slice place; /* of the elements of the rank's part */
} found;

/* Iterates over the slices; a callback returns true for the one sought. */
typedef struct slice_search {
    size_t left; /* number of slices before it */
    found *out;
} slice_search;

static bool is_sought(slice_search *s, const found *next)
{
    if (s->left-- > 0) {
        return false;
    }
    *s->out = *next;
    return true;
}

/* Visits the boxes of the tensor that make up what a piece has of box k of the part. */
static bool find_in_box(slice_search *s, const by__store_tensor *entry, int64_t k, found *next)
{
    by_tensor_slice boxes[BY__SLICE_BOXES];
    by_tensor_slice place;
    by_tensor_slice whole = by__store_box(entry, k, &place);
    by_tensor_slice range = by__store_box_range(entry, k, next->piece.part);
    int count = by__slice_boxes(boxes, entry->shape.rank, whole.shape, &range);
    for (int i = 0; i < count; i++) {
        next->held = (by__trainer_held){entry->shape, boxes[i], !entry->trainable};
        next->place = boxes[i];
        for (int axis = 0; axis < entry->shape.rank; axis++) {
            next->held.slice.offset[axis] += whole.offset[axis];
            next->place.offset[axis] += place.offset[axis];
        }
        if (is_sought(s, next)) {
            return true;
        }
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
        found next = {.piece = piece,
                      .held = {by__store_shape(t->store, flat, handle),
                               {true, {piece.part.first}, {piece.part.count}},
                               !entry->trainable}};
        if (!part && is_sought(s, &next)) {
            return true;
        }
        for (int64_t box = 0; part && box < by__store_box_count(entry); box++) {
            if (find_in_box(s, entry, box, &next)) {
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
    const by__store_tensor tensor = by__store_held(t->store, flat, handle);
    const by__store_part part = find(t, flat, handle, &s) ? slice.piece.part : (by__store_part){0};
    size_t size = by_dtype_size(by__store_dtype(t->store, flat, handle));
    *data = (const void *)slice.piece.memory.address;
    if (!slice.piece.on_disk && !t->device->host_memory && slice.piece.memory.bytes > 0) {
        BY_TRY(by__alloc_aligned(&read, slice.piece.memory.bytes, "a part of a tensor", error));
        *data = read;
        by_status status = by_device_read(read, slice.piece.memory, error);
        if (status != BY_OK) {
            free(read);
            return status;
        }
    }
    if (slice.piece.on_disk) {
        BY_TRY(by__alloc_aligned(&read, (size_t)part.count * size, "a part of a tensor", error));
        *data = read;
        by_status status =
            by__store_read_part(t->store, flat, handle, part.first, part.count, read, error);
        if (status != BY_OK) {
            free(read);
            return status;
        }
    }
    if (!by__store_is_part(&tensor)) {
        *owned = read;
        return BY_OK;
    }
    uint64_t elements = by__slice_elements(tensor.shape.rank, &slice.place);
    by_status status =
        by__alloc_aligned(owned, (size_t)elements * sizeof(float), "a part of a tensor", error);
    if (status == BY_OK) {
        by__slice_runs runs;
        uint64_t at;
        size_t count;
        char *out = *owned;
        by__slice_runs_begin(&runs, tensor.shape.rank, tensor.local.dim, &slice.place);
        for (; by__slice_runs_next(&runs, &at, &count); out += count * size) {
            /* A part has memory, or was read.
             * NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker) */
            memcpy(out, (const char *)*data + (at - (uint64_t)part.first) * size, count * size);
        }
        *data = *owned;
    }
    free(read);
    return status;
}
