/* Parts of tensors (by_tensor_slice), whatever holds the tensors. `shape` has the extents of a
 * whole tensor of `rank` axes; a box is a slice that is not flat. */
#ifndef BY_BASE_TENSOR_SLICE_H
#define BY_BASE_TENSOR_SLICE_H

#include "banyan/shape.h"
#include "base/base.h"

by_tensor_slice by__slice_whole(int rank, const int64_t *shape);
/* Number of elements; it must fit. */
uint64_t by__slice_elements(int rank, const by_tensor_slice *slice);
/* The box that two boxes have in common. Returns false if there is none. */
bool by__slice_common(by_tensor_slice *out, int rank, const by_tensor_slice *a,
                      const by_tensor_slice *b);
/* Copies a box, which is not empty, between the dense memory of two boxes that contain it. */
void by__slice_copy(int rank, const by_tensor_slice *box, void *to, const by_tensor_slice *to_box,
                    const void *from, const by_tensor_slice *from_box, size_t size);

/* The boxes that a slice consists of, contiguous in its memory: a flat one may begin and end within
 * a row of any axis but the first. Fills `boxes` and returns their number. The slice must be within
 * the tensor. */
#define BY__SLICE_BOXES (2 * BY_TENSOR_MAX_RANK - 1)
int by__slice_boxes(by_tensor_slice boxes[BY__SLICE_BOXES], int rank, const int64_t *shape,
                    const by_tensor_slice *slice);

/* Iterates over the runs of consecutive elements of a slice, in row-major order, all of one
 * length. */
typedef struct by__slice_runs {
    int rank;
    const int64_t *shape;
    const by_tensor_slice *slice;
    uint64_t left; /* elements left */
    size_t length; /* length of a run */
    int axes;      /* number of leading axes that a run does not span */
    int64_t index[BY_TENSOR_MAX_RANK];
} by__slice_runs;
/* The slice must be within the tensor; it and the shape are borrowed. */
void by__slice_runs_begin(by__slice_runs *runs, int rank, const int64_t *shape,
                          const by_tensor_slice *slice);
/* The next run, elements [*first, *first + *count) of the tensor; false after the last. */
bool by__slice_runs_next(by__slice_runs *runs, uint64_t *first, size_t *count);

#endif
