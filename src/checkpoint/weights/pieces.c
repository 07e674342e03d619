/* A tensor in several pieces, in mapped files: any slice of it is assembled from the boxes of the
 * pieces. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/storage.h"

typedef struct tensor_piece {
    by_tensor_slice box;
    const uint8_t *data;
} tensor_piece;

struct by__checkpoint_pieces {
    by_tensor_view tensor;
    tensor_piece *items;
    size_t count;
    size_t capacity;
    pthread_mutex_t mutex; /* protects the following members */
    void *whole;           /* the whole tensor, once it was requested */
};

by_status by__checkpoint_pieces_open(by__checkpoint_pieces **out, const by_tensor_view *tensor,
                                     by_error *error)
{
    by__checkpoint_pieces *p;
    BY_TRY(by__alloc((void **)&p, 1, sizeof *p, "pieces of a tensor", error));
    p->tensor = *tensor;
    (void)pthread_mutex_init(&p->mutex, NULL);
    *out = p;
    return BY_OK;
}

void by__checkpoint_pieces_close(by__checkpoint_pieces **pieces)
{
    by__checkpoint_pieces *p = *pieces;
    if (p != NULL) {
        (void)pthread_mutex_destroy(&p->mutex);
        free(p->whole);
        free(p->items);
        free(p);
        *pieces = NULL;
    }
}

by_status by__checkpoint_pieces_add(by__checkpoint_pieces *p, const by_tensor_slice *slice,
                                    const uint8_t *data, by_error *error)
{
    by_tensor_slice boxes[BY__SLICE_BOXES];
    int n = by__slice_boxes(boxes, p->tensor.rank, p->tensor.shape, slice);
    BY_TRY(by__reserve((void **)&p->items, &p->capacity, p->count + (size_t)n, sizeof *p->items,
                       error));
    for (int i = 0; i < n; i++) {
        p->items[p->count++] = (tensor_piece){boxes[i], data};
        data += by__slice_elements(p->tensor.rank, &boxes[i]) * by_dtype_size(p->tensor.dtype);
    }
    return BY_OK;
}

/* Copies a checked slice. The pieces must make up the whole tensor. */
static void read_slice(const by__checkpoint_pieces *p, const by_tensor_slice *slice, void *out)
{
    by_tensor_slice boxes[BY__SLICE_BOXES];
    uint8_t *to = out;
    int rank = p->tensor.rank;
    size_t size = by_dtype_size(p->tensor.dtype);
    int n = by__slice_boxes(boxes, p->tensor.rank, p->tensor.shape, slice);
    for (int i = 0; i < n; i++) {
        for (size_t k = 0; k < p->count; k++) {
            const tensor_piece *piece = &p->items[k];
            by_tensor_slice common;
            if (by__slice_common(&common, rank, &boxes[i], &piece->box)) {
                by__slice_copy(rank, &common, to, &boxes[i], piece->data, &piece->box, size);
            }
        }
        to += by__slice_elements(rank, &boxes[i]) * size;
    }
}

by_status by__checkpoint_pieces_whole(by__checkpoint_pieces *p, const void **data, by_error *error)
{
    size_t bytes;
    by_status status = BY_OK;
    (void)pthread_mutex_lock(&p->mutex);
    if (p->whole == NULL) {
        status = by_tensor_size(&p->tensor, NULL, &bytes, error);
        if (status == BY_OK) {
            status = by__alloc_aligned(&p->whole, bytes, p->tensor.name, error);
        }
        if (status == BY_OK) {
            by_tensor_slice slice = by_tensor_whole(&p->tensor);
            read_slice(p, &slice, p->whole);
        }
    }
    *data = p->whole;
    (void)pthread_mutex_unlock(&p->mutex);
    return status;
}

void by__checkpoint_entry_read(const by__checkpoint_tensor_entry *entry,
                               const by_tensor_view *tensor, const by_tensor_slice *slice,
                               void *out)
{
    by__slice_runs runs;
    size_t length;
    uint64_t first;
    uint8_t *to = out;
    size_t size = by_dtype_size(tensor->dtype);
    if (entry->delta != NULL) {
        by__checkpoint_delta_read(entry->delta, slice, tensor->dtype, out);
        return;
    }
    if (entry->computed != NULL) {
        by__slice_runs_begin(&runs, tensor->rank, tensor->shape, slice);
        while (by__slice_runs_next(&runs, &first, &length)) {
            entry->computed->read(entry->computed, first, length, to);
            to += length * size;
        }
        return;
    }
    if (entry->data == NULL) {
        read_slice(entry->pieces, slice, out);
        return;
    }
    by__slice_runs_begin(&runs, tensor->rank, tensor->shape, slice);
    while (by__slice_runs_next(&runs, &first, &length)) {
        memcpy(to, entry->data + first * size, length * size);
        to += length * size;
    }
}

by_status by__checkpoint_entry_bytes(const by__checkpoint_tensor_entry *entry,
                                     by_status (*take)(void *user, const void *bytes, size_t n,
                                                       by_error *error),
                                     void *user, by_error *error)
{
    size_t most = (size_t)1 << 18;
    size_t total;
    uint8_t *buffer;
    by_status status = BY_OK;
    bool is_made = entry->pieces != NULL || entry->delta != NULL || entry->computed != NULL;
    if (entry->data != NULL || !is_made) {
        return take(user, entry->data, (size_t)(entry->end - entry->begin), error);
    }
    by_tensor_view tensor = {
        .name = entry->name, .dtype = (by_dtype)entry->dtype, .rank = (int)entry->rank};
    size_t size = by_dtype_size(tensor.dtype);
    memcpy(tensor.shape, entry->shape, sizeof tensor.shape);
    BY_TRY(by_tensor_size(&tensor, &total, NULL, error));
    most = total < most ? total : most;
    BY_TRY(by__alloc((void **)&buffer, most, size, "a part of a tensor", error));
    for (size_t first = 0; first < total && status == BY_OK; first += most) {
        size_t n = total - first < most ? total - first : most;
        by_tensor_slice slice = {.flat = true, .offset = {(int64_t)first}, .shape = {(int64_t)n}};
        by__checkpoint_entry_read(entry, &tensor, &slice, buffer);
        status = take(user, buffer, n * size, error);
    }
    free(buffer);
    return status;
}
