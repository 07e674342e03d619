/* edges: the rows of sparse matrices, as kernels of graphs read them.
 *
 * Work is cut so that all ranges have about as many entries, however many one row has: row r of a
 * matrix is at place offsets[r] + r of rows + entries places (the merge path of Merrill and Garland
 * 2016), and a range of places has the rows that begin in it. A row is made by one thread.
 *
 * Never put here: what is done with an entry.
 */
#ifndef BY_DEVICE_CPU_EDGES_H
#define BY_DEVICE_CPU_EDGES_H

#include "device/cpu/cpu.h"

/* A batch of matrices [rows, columns]. */
typedef struct by__cpu_edges {
    const int32_t *offsets; /* [batch, rows + 1] */
    const int32_t *sources; /* [batch, entries] */
    const int32_t *numbers; /* [batch, entries] the edge of each entry; NULL: its own number */
    int64_t batch, rows, columns, entries;
} by__cpu_edges;

/* A matrix with these operands; `numbers` may be absent (-1, or an absent operand). */
static inline by__cpu_edges by__cpu_edges_of(const by__device_call *call, int offsets, int sources,
                                             int numbers, int64_t columns)
{
    const by__device_tensor *o = &call->in[offsets];
    bool numbered = numbers >= 0 && numbers < call->input_count && by__present(&call->in[numbers]);
    return (by__cpu_edges){.offsets = o->data,
                           .sources = sources < 0 ? NULL : call->in[sources].data,
                           .numbers = numbered ? call->in[numbers].data : NULL,
                           .batch = o->shape.dim[0],
                           .rows = o->shape.dim[1] - 1,
                           .columns = columns,
                           .entries = sources < 0 ? 0 : call->in[sources].shape.dim[1]};
}

/* Where entries begin in row r of matrix b (the end of row r - 1), whatever the offsets are. */
static inline int64_t by__cpu_edges_begin(const by__cpu_edges *e, int64_t b, int64_t r)
{
    int64_t at = e->offsets[b * (e->rows + 1) + r];
    return at < 0 ? 0 : by__min_i64(at, e->entries);
}

/* The column of entry k of matrix b; -1: none. */
static inline int64_t by__cpu_edges_source(const by__cpu_edges *e, int64_t b, int64_t k)
{
    int64_t source = e->sources[b * e->entries + k];
    return source < 0 || source >= e->columns ? -1 : source;
}

/* The edge of entry k of matrix b; -1: none. */
static inline int64_t by__cpu_edges_number(const by__cpu_edges *e, int64_t b, int64_t k)
{
    int64_t number = e->numbers == NULL ? k : e->numbers[b * e->entries + k];
    return number < 0 || number >= e->entries ? -1 : number;
}

static inline int64_t by__cpu_edges_places(const by__cpu_edges *e)
{
    return e->batch * (e->rows + e->entries);
}

/* The first row of matrix b at place `place` of its places or behind it. */
static inline int64_t by__cpu_edges_row_at(const by__cpu_edges *e, int64_t b, int64_t place)
{
    int64_t low = 0;
    int64_t high = e->rows;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (by__cpu_edges_begin(e, b, middle) + middle < place) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Computes row r of matrix b. */
#define BY__EDGE_ROWS(e, begin, end, row)                                                          \
    do {                                                                                           \
        int64_t places_ = (e)->rows + (e)->entries;                                                \
        for (int64_t b_ = (begin) / places_; b_ < (e)->batch && b_ * places_ < (end); b_++) {      \
            int64_t first_ = by__cpu_edges_row_at((e), b_, (begin)-b_ * places_);                  \
            int64_t last_ = by__cpu_edges_row_at((e), b_, (end)-b_ * places_);                     \
            for (int64_t r_ = first_; r_ < last_; r_++) {                                          \
                row(b_, r_);                                                                       \
            }                                                                                      \
        }                                                                                          \
    } while (0)

#endif
