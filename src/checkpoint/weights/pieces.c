/* A tensor in several pieces, in mapped files: any slice of it is assembled from the boxes of the
 * pieces. */
#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/storage.h"

typedef struct tensor_piece {
    by__checkpoint_box box;
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

static uint64_t box_elements(const by__checkpoint_box *box, int rank)
{
    uint64_t n = 1;
    for (int i = 0; i < rank; i++) {
        n *= (uint64_t)box->shape[i];
    }
    return n;
}

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
    by__checkpoint_box boxes[BY__SLICE_BOXES];
    int n = by__checkpoint_slice_boxes(boxes, &p->tensor, slice);
    BY_TRY(by__reserve((void **)&p->items, &p->capacity, p->count + (size_t)n, sizeof *p->items,
                       error));
    for (int i = 0; i < n; i++) {
        p->items[p->count++] = (tensor_piece){boxes[i], data};
        data += box_elements(&boxes[i], p->tensor.rank) * by_dtype_size(p->tensor.dtype);
    }
    return BY_OK;
}

/* Index of an element in the dense memory of a box that contains it. */
static uint64_t place_in(const by__checkpoint_box *box, const int64_t *index, int rank)
{
    uint64_t at = 0;
    for (int i = 0; i < rank; i++) {
        at = at * (uint64_t)box->shape[i] + (uint64_t)(index[i] - box->offset[i]);
    }
    return at;
}

/* Copies the intersection of two boxes from the memory of one to that of the other. */
static void copy_common(uint8_t *to, const by__checkpoint_box *to_box, const uint8_t *from,
                        const by__checkpoint_box *from_box, int rank, size_t size)
{
    by__checkpoint_box common;
    int64_t index[BY_TENSOR_MAX_RANK] = {0};
    uint64_t run = size;
    assert(rank >= 0 && rank <= BY_TENSOR_MAX_RANK);
    int axes = rank; /* number of leading axes that a run does not span */
    for (int i = 0; i < rank; i++) {
        int64_t to_end = to_box->offset[i] + to_box->shape[i];
        int64_t from_end = from_box->offset[i] + from_box->shape[i];
        int64_t end = to_end < from_end ? to_end : from_end;
        common.offset[i] =
            to_box->offset[i] > from_box->offset[i] ? to_box->offset[i] : from_box->offset[i];
        common.shape[i] = end - common.offset[i];
        if (common.shape[i] <= 0) {
            return;
        }
        index[i] = common.offset[i];
    }
    while (axes > 0) {
        axes--;
        run *= (uint64_t)common.shape[axes];
        if (common.shape[axes] != to_box->shape[axes] ||
            common.shape[axes] != from_box->shape[axes]) {
            break;
        }
    }
    for (;;) {
        memcpy(to + place_in(to_box, index, rank) * size,
               from + place_in(from_box, index, rank) * size, (size_t)run);
        int i = axes - 1;
        while (i >= 0 && ++index[i] == common.offset[i] + common.shape[i]) {
            index[i] = common.offset[i];
            i--;
        }
        if (i < 0) {
            return;
        }
    }
}

/* Copies a checked slice. The pieces must make up the whole tensor. */
static void read_slice(const by__checkpoint_pieces *p, const by_tensor_slice *slice, void *out)
{
    by__checkpoint_box boxes[BY__SLICE_BOXES];
    uint8_t *to = out;
    int rank = p->tensor.rank;
    size_t size = by_dtype_size(p->tensor.dtype);
    int n = by__checkpoint_slice_boxes(boxes, &p->tensor, slice);
    for (int i = 0; i < n; i++) {
        for (size_t k = 0; k < p->count; k++) {
            copy_common(to, &boxes[i], p->items[k].data, &p->items[k].box, rank, size);
        }
        to += box_elements(&boxes[i], rank) * size;
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
                               size_t elements, void *out)
{
    by__checkpoint_runs runs;
    size_t length;
    uint64_t first;
    uint8_t *to = out;
    size_t size = by_dtype_size(tensor->dtype);
    if (entry->delta != NULL) {
        by__checkpoint_delta_read(entry->delta, slice, elements, tensor->dtype, out);
        return;
    }
    if (entry->computed != NULL) {
        by__checkpoint_runs_begin(&runs, tensor, slice, elements);
        while (by__checkpoint_runs_next(&runs, &first, &length)) {
            entry->computed->read(entry->computed, first, length, to);
            to += length * size;
        }
        return;
    }
    if (entry->data == NULL) {
        read_slice(entry->pieces, slice, out);
        return;
    }
    by__checkpoint_runs_begin(&runs, tensor, slice, elements);
    while (by__checkpoint_runs_next(&runs, &first, &length)) {
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
        by__checkpoint_entry_read(entry, &tensor, &slice, n, buffer);
        status = take(user, buffer, n * size, error);
    }
    free(buffer);
    return status;
}
