/* vocabulary_products: the matrix products of a loss over a vocabulary (LINEAR_CROSS_ENTROPY,
 * LINEAR_DISTILL and their gradients), whose logits exist for a chunk of rows only:
 *
 *   logits = x w^T (f32), dx = dlogits w, dw += dlogits^T x
 *
 * Every chunk reads and writes all of dw, so chunks are as large as a limit in bytes allows; they
 * depend on the shapes alone. dlogits, in x's dtype, overwrite the logits row by row.
 */
#ifndef BY_DEVICE_CPU_VOCABULARY_PRODUCTS_H
#define BY_DEVICE_CPU_VOCABULARY_PRODUCTS_H

#include "device/cpu/gemm.h"

typedef struct by__cpu_vocabulary {
    int64_t rows, columns, vocabulary; /* x [rows, columns], w [vocabulary, columns] */
    by_dtype dtype;                    /* of x, w and dx */
    by__cpu_isa isa;
    int threads;
    int64_t chunk;       /* rows of a chunk; the last may have fewer */
    int64_t stride;      /* f32 elements between rows of logits, or of their gradient */
    by__cpu_gemm *dx[2]; /* [1]: for the last chunk if it is shorter */
    by__cpu_gemm *dw[3]; /* [2]: for the first chunk, which overwrites dw */
    size_t work;         /* bytes of scratch memory that any of the products needs */
} by__cpu_vocabulary;

/* Sets stride and chunk. A chunk has `blocks` matrices of logits. */
void by__cpu_vocabulary_cut(by__cpu_vocabulary *v, int blocks);
/* Opens logits = x w^T for whole chunks, out[0], and for a shorter last one, out[1] (else NULL),
 * with `columns` of x and `ldc` elements between rows. The caller closes them. */
by_status by__cpu_vocabulary_open_logits(by__cpu_gemm *out[2], by__cpu_vocabulary *v,
                                         int64_t columns, int64_t ldc, by_error *error);
/* Opens dx and dw. */
by_status by__cpu_vocabulary_open_gradients(by__cpu_vocabulary *v, by_error *error);
/* Closes dx and dw if they are open. */
void by__cpu_vocabulary_close(by__cpu_vocabulary *v);
/* Number of rows of the chunk that begins at row `begin`; *which: the index of its products. */
int64_t by__cpu_vocabulary_rows(const by__cpu_vocabulary *v, int64_t begin, int *which);

/* Operands of a chunk; x and dx point to its first row. */
typedef struct by__cpu_vocabulary_operands {
    const void *gradients, *x, *w;
    void *dx, *dw;
    void *work;
} by__cpu_vocabulary_operands;

void by__cpu_vocabulary_gradients(const by__cpu_vocabulary *v, int64_t begin,
                                  const by__cpu_vocabulary_operands *o);
/* The sum of the losses of all rows, added in order. */
float by__cpu_vocabulary_loss(const by__cpu_vocabulary *v, const double *losses);

#endif
