/* LINEAR_DISTILL, _GRAD and _TRAIN. As linear_cross_entropy.c, with a second block of logits: the
 * teacher's, x' w'^T. Rows are processed in chunks (vocabulary_products.h); each row of the second
 * block is replaced by the gradient of the student's logits, and the chunk adds to dx and dw. */
#include <math.h>
#include <stdlib.h>

#include "device/cpu/kernels/vocabulary_rows.h"

/* For a token that is not included in the sums; finite, and its exponential is 0. */
#define LEAST_LOGIT (-1e30f)

enum { X, W, TARGETS, HIDDEN, HEAD, IDS, LOGARITHMS, DLOSS };

typedef struct distill_plan {
    bool forward;  /* only the loss is computed */
    bool has_loss; /* output 0 exists */
    by__cpu_vocabulary v;
    int64_t width;  /* of the teacher; 0: its probabilities are stored, */
    int64_t stored; /* this many tokens of each row */
    float inverse;  /* 1 / temperature */
    float hard;     /* weight of the cross-entropy */
    float soft;     /* weight of the divergence times temperature */
    by__cpu_gemm *logits[2], *teacher[2];
    size_t second, losses, gemm_work; /* offsets in the workspace; the student's logits are at 0 */
} distill_plan;

/* Statistics of a row's logits. */
typedef struct distill_row {
    float top; /* maximum of the student's */
    float top_teacher;
    float plain;   /* sum of exp(z - top) */
    float soft;    /* sum of exp((z - top) / T) */
    float teacher; /* sum of exp((y - top_teacher) / T) */
    double gap;    /* sum of that times y - z */
    /* If probabilities q are stored, top_teacher and teacher are computed from the student's own
     * logits of all other tokens, and: */
    double all;    /* sum of q */
    double others; /* stored probability of all other tokens */
    double cross;  /* sum of q (log q - log of the student's part of `soft`) */
} distill_row;

/* Adds the first `count` lanes in order. */
static inline float add_lanes(by__vf v, int count)
{
    float sum = 0.0f;
    for (int lane = 0; lane < count; lane++) {
        sum += v[lane];
    }
    return sum;
}

/* y NULL: statistics of the student only. */
static void sum_row(distill_row *s, const float *z, const float *y, int64_t n, float inverse)
{
    by__vf plain = by__zero();
    by__vf soft = by__zero();
    by__vf teacher = by__zero();
    by__vf gap = by__zero();
    s->top = by__kernel_highest(z, n);
    s->top_teacher = y == NULL ? 0.0f : by__kernel_highest(y, n);
    int64_t i = 0;
    for (; i + BY__LANES <= n; i += BY__LANES) {
        by__vf a = by__kernel_load(z, i, BY_F32);
        plain += by__exp(a - s->top);
        soft += by__exp((a - s->top) * inverse);
        if (y != NULL) {
            by__vf b = by__kernel_load(y, i, BY_F32);
            by__vf e = by__exp((b - s->top_teacher) * inverse);
            teacher += e;
            gap += e * (b - a);
        }
    }
    s->plain = by__sum(plain);
    s->soft = by__sum(soft);
    s->teacher = by__sum(teacher);
    s->gap = (double)by__sum(gap);
    if (i < n) {
        int count = (int)(n - i);
        by__vf a = by__load_n(z, i, BY_F32, count);
        s->plain += add_lanes(by__exp(a - s->top), count);
        s->soft += add_lanes(by__exp((a - s->top) * inverse), count);
        if (y != NULL) {
            by__vf b = by__load_n(y, i, BY_F32, count);
            by__vf e = by__exp((b - s->top_teacher) * inverse);
            s->teacher += add_lanes(e, count);
            s->gap += (double)add_lanes(e * (b - a), count);
        }
    }
}

/* Statistics for stored probabilities: y has the logarithms of those of k tokens and then of all
 * others. rest [n] becomes the student's logits of these others. */
static void sum_stored(distill_row *s, const float *z, const int32_t *ids, const float *y,
                       int64_t k, int64_t n, float inverse, float *rest)
{
    by__vf sum = by__zero();
    memcpy(rest, z, (size_t)n * sizeof *rest);
    for (int64_t i = 0; i < k; i++) {
        double q = exp((double)y[i]);
        rest[ids[i]] = LEAST_LOGIT;
        s->all += q;
        /* A probability of 0 adds nothing, though its logarithm is -inf. */
        s->cross += q > 0.0 ? q * ((double)y[i] - (double)((z[ids[i]] - s->top) * inverse)) : 0.0;
    }
    s->top_teacher = by__kernel_highest(rest, n);
#define STEP(i, count)                                                                             \
    do {                                                                                           \
        by__vf e = by__exp((by__load_n(rest, (i), BY_F32, (count)) - s->top_teacher) * inverse);   \
        sum += by__select((by__vi)by__lane_numbers() < (int32_t)(count), e, by__zero());           \
    } while (0)
    BY__STEPS(0, n, STEP);
#undef STEP
    s->teacher = by__sum(sum);
    s->others = k == n ? 0.0 : exp((double)y[k]);
    if (s->others > 0.0) {
        double least = (double)((s->top_teacher - s->top) * inverse);
        s->all += s->others;
        s->cross += s->others * ((double)y[k] - least - log((double)s->teacher));
    }
}

/* Factors of a row's gradient: hard exp(z - top) + soft exp((z - top) / T) - teacher exp((y -
 * top_teacher) / T). For tokens with stored probabilities q, the last term is stored q. */
typedef struct row_factors {
    float hard;
    float soft;
    float teacher;
    float stored;
} row_factors;

/* `to` may be y: a narrower row begins where the wide one does, so writing never overtakes
 * reading. */
static inline __attribute__((always_inline)) void write_row(const distill_row *s,
                                                            const row_factors *f, const float *z,
                                                            const float *y, float *to, int64_t n,
                                                            float inverse, by_dtype dtype)
{
#define GRADIENT(i, count)                                                                         \
    by__vf a = by__load_n(z, (i), BY_F32, (count)) - s->top;                                       \
    by__vf g = by__exp(a) * f->hard + by__exp(a * inverse) * f->soft;                              \
    if (y != NULL) {                                                                               \
        by__vf b = by__load_n(y, (i), BY_F32, (count)) - s->top_teacher;                           \
        g -= by__exp(b * inverse) * f->teacher;                                                    \
    }                                                                                              \
    by__store_flushed_n(to, (i), g, dtype, (count))
    BY__STEPS(0, n, GRADIENT);
#undef GRADIENT
}

/* The gradient of one logit of the student, without the teacher's term. */
static float one(const distill_plan *p, const distill_row *s, const row_factors *f, float z)
{
    return expf(z - s->top) * f->hard + expf((z - s->top) * p->inverse) * f->soft;
}

/* y: of all tokens; `to` may be y. ids NULL: no probabilities are stored. */
static inline __attribute__((always_inline)) void
set_row(const distill_plan *p, const distill_row *s, const row_factors *f, float hot,
        const float *z, const float *y, const int32_t *ids, const float *logarithms, float *to,
        int64_t target, by_dtype dtype)
{
    /* From y, which `to` may overwrite. */
    float own = expf((y[target] - s->top_teacher) * p->inverse) * f->teacher;
    write_row(s, f, z, y, to, p->v.vocabulary, p->inverse, dtype);
    by__store_n(to, target, by__splat(one(p, s, f, z[target]) - own - hot), dtype, 1);
    for (int64_t i = 0; ids != NULL && i < p->stored; i++) {
        float g = one(p, s, f, z[ids[i]]) - expf(logarithms[i]) * f->stored;
        g -= ids[i] == target ? hot : 0.0f;
        by__store_n(to, ids[i], by__splat(g), dtype, 1);
    }
}

/* KL(teacher || student) of a row. */
static double divergence_of(const distill_row *s, bool stored, double inverse)
{
    double soft = log((double)s->soft);
    if (stored) {
        return s->cross + s->all * soft;
    }
    double student = (double)s->top * inverse + soft;
    double teacher = (double)s->top_teacher * inverse + log((double)s->teacher);
    return student - teacher + s->gap / (double)s->teacher * inverse;
}

static row_factors factors_of(const distill_plan *p, const distill_row *s, bool stored, float dloss)
{
    float soft = dloss * p->soft;
    row_factors f = {dloss * p->hard / s->plain, soft / s->soft, soft / s->teacher, 0.0f};
    if (stored) {
        f.soft = (float)(s->all * (double)f.soft);
        f.teacher = (float)(s->others * (double)f.teacher);
        f.stored = soft;
    }
    return f;
}

/* Processes one row: returns its loss, and stores the gradient of its logits in `to`. ids NULL: y
 * are all of the teacher's logits, and `to` may be y; else the stored logarithms. */
static double run_row(const distill_plan *p, const by__device_call *call, int64_t r, const float *z,
                      const float *y, const int32_t *ids, float *to)
{
    int64_t target = ((const int32_t *)call->in[TARGETS].data)[r];
    distill_row s = {0};
    if (target < 0 || target >= p->v.vocabulary) {
        if (!p->forward) {
            memset(to, 0, (size_t)p->v.vocabulary * by_dtype_size(p->v.dtype));
        }
        return 0.0;
    }
    sum_row(&s, z, ids == NULL ? y : NULL, p->v.vocabulary, p->inverse);
    if (ids != NULL) {
        sum_stored(&s, z, ids, y, p->stored, p->v.vocabulary, p->inverse, to);
    }
    double inverse = (double)p->inverse;
    double divergence = divergence_of(&s, ids != NULL, inverse);
    double loss = (double)p->hard * ((double)s.top + log((double)s.plain) - (double)z[target]) +
                  (double)p->soft / inverse * divergence;
    if (p->forward) {
        return loss;
    }
    float dloss = *(const float *)call->in[DLOSS].data;
    float hot = dloss * p->hard;
    const row_factors f = factors_of(p, &s, ids != NULL, dloss);
    const float *row = ids == NULL ? y : to;
    if (p->v.dtype == BY_F32) {
        set_row(p, &s, &f, hot, z, row, ids, y, to, target, BY_F32);
    } else if (p->v.dtype == BY_F16) {
        set_row(p, &s, &f, hot, z, row, ids, y, to, target, BY_F16);
    } else {
        set_row(p, &s, &f, hot, z, row, ids, y, to, target, BY_BF16);
    }
    return loss;
}

static const char *row_of(const by__device_tensor *tensor, int64_t row)
{
    size_t bytes = (size_t)by__tensor_columns(tensor) * by_dtype_size(tensor->dtype);
    return (const char *)tensor->data + (size_t)row * bytes;
}

static void run_chunk(const by__device_call *call, const by__device_context *context, int64_t begin)
{
    const distill_plan *p = call->state;
    int last;
    int64_t rows = by__cpu_vocabulary_rows(&p->v, begin, &last);
    char *work = call->work;
    float *logits = call->work;
    float *second = (float *)(void *)(work + p->second);
    double *losses = (double *)(void *)(work + p->losses);
    void *gemm_work = work + p->gemm_work;
    const void *x = row_of(&call->in[X], begin);
    const void *w = call->in[W].data;
    by__cpu_gemm_run(p->logits[last],
                     &(by__cpu_gemm_operands){.a = x, .b = w, .c = logits, .work = gemm_work});
    if (p->width > 0) {
        by__cpu_gemm_run(p->teacher[last],
                         &(by__cpu_gemm_operands){.a = row_of(&call->in[HIDDEN], begin),
                                                  .b = call->in[HEAD].data,
                                                  .c = second,
                                                  .work = gemm_work});
    }
#pragma omp parallel for schedule(static) num_threads(context->threads) if (context->threads > 1)
    for (int64_t r = 0; r < rows; r++) {
        float *to = second + r * p->v.stride;
        int64_t at = begin + r;
        const int32_t *ids =
            p->width > 0 ? NULL : (const int32_t *)call->in[IDS].data + at * p->stored;
        const float *y =
            p->width > 0 ? to : (const float *)call->in[LOGARITHMS].data + at * (p->stored + 1);
        losses[begin + r] = run_row(p, call, begin + r, logits + r * p->v.stride, y, ids, to);
    }
    if (p->forward) {
        return;
    }
    int first = p->has_loss ? 1 : 0;
    by__cpu_vocabulary_gradients(
        &p->v, begin,
        &(by__cpu_vocabulary_operands){.gradients = second,
                                       .x = x,
                                       .w = w,
                                       .dx = (void *)(uintptr_t)row_of(&call->out[first], begin),
                                       .dw = call->out[first + 1].data,
                                       .work = gemm_work});
}

static by_status run(const by__device_call *call, const by__device_context *context)
{
    const distill_plan *p = call->state;
    for (int64_t begin = 0; begin < p->v.rows; begin += p->v.chunk) {
        run_chunk(call, context, begin);
    }
    if (p->has_loss) {
        const double *losses = (const double *)((const char *)call->work + p->losses);
        *(float *)call->out[0].data = by__cpu_vocabulary_loss(&p->v, losses);
    }
    return BY_OK;
}

static void release(by__device_call *call)
{
    distill_plan *p = call->state;
    if (p != NULL) {
        for (int i = 0; i < 2; i++) {
            by__cpu_gemm_close(&p->logits[i]);
            by__cpu_gemm_close(&p->teacher[i]);
        }
        by__cpu_vocabulary_close(&p->v);
        free(p);
        call->state = NULL;
    }
}

static by_status open_products(distill_plan *p, by_error *error)
{
    by__cpu_vocabulary *v = &p->v;
    BY_TRY(by__cpu_vocabulary_open_logits(p->logits, v, v->columns, v->stride, error));
    if (p->width > 0) {
        BY_TRY(by__cpu_vocabulary_open_logits(p->teacher, v, p->width, v->stride, error));
    }
    return p->forward ? BY_OK : by__cpu_vocabulary_open_gradients(v, error);
}

static by_status prepare(by__device_call *call, const by__device_context *context, by_error *error)
{
    distill_plan *p = NULL;
    BY_TRY(by__alloc((void **)&p, 1, sizeof *p, "the loss of a student", error));
    call->state = p;
    p->forward = call->op == BY_OP_LINEAR_DISTILL;
    p->has_loss = call->op != BY_OP_LINEAR_DISTILL_GRAD;
    p->v = by__kernel_vocabulary(call, context, 2);
    bool is_stored = call->in[HIDDEN].shape.rank < 1;
    p->width = is_stored ? 0 : by__tensor_columns(&call->in[HIDDEN]);
    p->stored = is_stored ? by__tensor_columns(&call->in[IDS]) : 0;
    p->inverse = 1.0f / call->attrs.theta;
    p->hard = 1.0f - call->attrs.p;
    p->soft = call->attrs.p * call->attrs.theta;
    by_status status = open_products(p, error);
    if (status != BY_OK) {
        release(call);
        return status;
    }
    p->second = (size_t)(p->v.chunk * p->v.stride) * sizeof(float);
    p->losses = 2 * p->second;
    p->gemm_work = by__round_up(p->losses + (size_t)p->v.rows * sizeof(double), 4096);
    call->work_bytes = p->gemm_work + p->v.work;
    return BY_OK;
}

BY__VOCABULARY_KERNEL(BY_OP_LINEAR_DISTILL, linear_distill);
BY__VOCABULARY_KERNEL(BY_OP_LINEAR_DISTILL_GRAD, linear_distill_grad);
BY__VOCABULARY_KERNEL(BY_OP_LINEAR_DISTILL_TRAIN, linear_distill_train);
