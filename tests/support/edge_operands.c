/* Matrices of edges for the cases of ops: rows with many entries and with none, entries without a
 * source, a last one behind those of all rows; and the same matrices transposed. */
#include "kernel_test.h"

/* Rows, columns and entries of the matrices. */
typedef struct matrix {
    int64_t rows, columns, entries;
} matrix;

static matrix matrix_of(const op_case *source)
{
    const operand *in = source->in;
    int other = source->op == BY_OP_EDGE_DOTS ? 1 : 0;
    matrix m = {.rows = in[0].type.shape.dim[1], .columns = in[other].type.shape.dim[1]};
    for (int i = 0; i < source->input_count; i++) {
        const by_shape *shape = &in[i].type.shape;
        if (in[i].kind == OFFSETS) {
            m.rows = shape->dim[1] - 1;
        } else if (in[i].kind == BACK_OFFSETS) {
            m.columns = shape->dim[1] - 1;
        } else if (in[i].kind >= SOURCES) {
            m.entries = shape->dim[1];
        }
    }
    m.entries = source->op == BY_OP_EDGE_SUM ? in[0].type.shape.dim[1] : m.entries;
    return m;
}

static int64_t used(const matrix *m)
{
    return m->entries > 2 ? m->entries - 1 : m->entries;
}

static int64_t row_of(const matrix *m, int64_t k)
{
    return k * k * m->rows / (used(m) * used(m));
}

static int64_t source_of(const matrix *m, int64_t b, int64_t k)
{
    return k >= used(m) || k % 11 == 5 ? -1 : (k * 7 + k / 3 + b) % m->columns;
}

/* Number of entries of the matrix in rows before `row`. */
static int64_t ahead(const matrix *m, int64_t row)
{
    int64_t count = 0;
    while (count < used(m) && row_of(m, count) < row) {
        count++;
    }
    return count;
}

/* The entry of the matrix that is entry k of the transposed one; -1: none. */
static int64_t back_edge(const matrix *m, int64_t b, int64_t k)
{
    for (int64_t column = 0; column < m->columns; column++) {
        for (int64_t i = 0; i < used(m); i++) {
            if (source_of(m, b, i) == column && k-- == 0) {
                return i;
            }
        }
    }
    return -1;
}

static int64_t back_offset(const matrix *m, int64_t b, int64_t column)
{
    int64_t count = 0;
    for (int64_t i = 0; i < used(m); i++) {
        int64_t source = source_of(m, b, i);
        count += source >= 0 && source < column;
    }
    return count;
}

int32_t edge_operand(const op_case *source, int i, int64_t k)
{
    matrix m = matrix_of(source);
    int64_t last = source->in[i].type.shape.dim[1];
    int64_t b = k / last;
    int64_t edge;
    switch (source->in[i].kind) {
    case OFFSETS:
        return (int32_t)ahead(&m, k % last);
    case SOURCES:
        return (int32_t)source_of(&m, b, k % last);
    case BACK_OFFSETS:
        return (int32_t)back_offset(&m, b, k % last);
    case BACK_SOURCES:
        edge = back_edge(&m, b, k % last);
        return edge < 0 ? -1 : (int32_t)row_of(&m, edge);
    default:
        return (int32_t)back_edge(&m, b, k % last);
    }
}
