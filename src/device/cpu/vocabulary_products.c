#include "device/cpu/vocabulary_products.h"

/* Most bytes of the logits of a chunk (of more than one row). */
#define CHUNK_BYTES (128 << 20)

void by__cpu_vocabulary_cut(by__cpu_vocabulary *v, int blocks)
{
    v->stride = (int64_t)by__round_up((size_t)v->vocabulary, 16);
    if (v->stride % 1024 == 0) {
        v->stride += 16; /* rows at multiples of a page would share cache sets */
    }
    int64_t most = CHUNK_BYTES / (blocks * v->stride * 4);
    int64_t chunks = by__ceil_div(v->rows, most < 1 ? 1 : most);
    v->chunk = by__ceil_div(v->rows, chunks);
}

static by_status open_gemm(by__cpu_gemm **out, by__cpu_vocabulary *v, by__cpu_gemm_options options,
                           by_error *error)
{
    options.dtype = v->dtype;
    options.isa = v->isa;
    options.threads = v->threads;
    BY_TRY(by__cpu_gemm_open(out, &options, error));
    size_t bytes = by__cpu_gemm_work(*out);
    v->work = bytes > v->work ? bytes : v->work;
    return BY_OK;
}

by_status by__cpu_vocabulary_open_logits(by__cpu_gemm *out[2], by__cpu_vocabulary *v,
                                         int64_t columns, int64_t ldc, by_error *error)
{
    by__cpu_gemm_options logits = {.n = v->vocabulary, .k = columns, .trans_b = true};
    logits.ldc = ldc;
    logits.out = BY_F32;
    logits.m = v->chunk;
    BY_TRY(open_gemm(&out[0], v, logits, error));
    logits.m = v->rows % v->chunk;
    return logits.m == 0 ? BY_OK : open_gemm(&out[1], v, logits, error);
}

by_status by__cpu_vocabulary_open_gradients(by__cpu_vocabulary *v, by_error *error)
{
    /* A row of gradients occupies the bytes of a row of logits. */
    int64_t ld = v->stride * 4 / (int64_t)by_dtype_size(v->dtype);
    int64_t sizes[2] = {v->chunk, v->rows % v->chunk};
    for (int i = 0; i < 2 && sizes[i] > 0; i++) {
        by__cpu_gemm_options dx = {.m = sizes[i], .n = v->columns, .k = v->vocabulary, .lda = ld};
        dx.out = v->dtype;
        BY_TRY(open_gemm(&v->dx[i], v, dx, error));
        by__cpu_gemm_options dw = {.m = v->vocabulary, .n = v->columns, .k = sizes[i], .lda = ld};
        dw.trans_a = true;
        dw.out = BY_F32;
        if (i == 0) {
            BY_TRY(open_gemm(&v->dw[2], v, dw, error));
        }
        dw.accumulate = true;
        BY_TRY(open_gemm(&v->dw[i], v, dw, error));
    }
    return BY_OK;
}

void by__cpu_vocabulary_close(by__cpu_vocabulary *v)
{
    for (int i = 0; i < 2; i++) {
        by__cpu_gemm_close(&v->dx[i]);
    }
    for (int i = 0; i < 3; i++) {
        by__cpu_gemm_close(&v->dw[i]);
    }
}

int64_t by__cpu_vocabulary_rows(const by__cpu_vocabulary *v, int64_t begin, int *which)
{
    int64_t rows = by__min_i64(v->chunk, v->rows - begin);
    *which = rows < v->chunk ? 1 : 0;
    return rows;
}

void by__cpu_vocabulary_gradients(const by__cpu_vocabulary *v, int64_t begin,
                                  const by__cpu_vocabulary_operands *o)
{
    int which;
    (void)by__cpu_vocabulary_rows(v, begin, &which);
    by__cpu_gemm_operands dx = {.a = o->gradients, .b = o->w, .c = o->dx, .work = o->work};
    by__cpu_gemm_run(v->dx[which], &dx);
    by__cpu_gemm_operands dw = {.a = o->gradients, .b = o->x, .c = o->dw, .work = o->work};
    by__cpu_gemm_run(v->dw[begin == 0 ? 2 : which], &dw);
}

float by__cpu_vocabulary_loss(const by__cpu_vocabulary *v, const double *losses)
{
    double loss = 0.0;
    for (int64_t r = 0; r < v->rows; r++) {
        loss += losses[r];
    }
    return (float)loss;
}
