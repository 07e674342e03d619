/* LINEAR_TOKEN_LOSS, LINEAR_CROSS_ENTROPY, its _PART, _GRAD and _TRAIN. Rows are processed in
 * chunks (vocabulary_products.h): logits are computed, each row of them is replaced by its
 * gradient, and the chunk adds to dx and dw. */
#include <math.h>
#include <stdlib.h>

#include "device/cpu/kernels/vocabulary_rows.h"

typedef enum mode { FORWARD, TOKENS, PART, GRAD, TRAIN } mode;

typedef struct cross_entropy_plan {
    mode mode;
    by__cpu_vocabulary v;
    int64_t first, all; /* w has entries first ... first + v.vocabulary - 1 of `all` */
    bool outside;       /* logits are PART's result, or GRAD's operand, which is not overwritten */
    by__cpu_gemm *logits[2];
    size_t losses, gemm_work; /* offsets in the workspace; logits are at 0 */
} cross_entropy_plan;

typedef struct cross_entropy_operands {
    const void *x, *w;
    const int32_t *targets;
    const float *weights; /* of rows; NULL: 1 */
    float *lse;           /* output of FORWARD, TOKENS and PART, input of GRAD */
    float *own;           /* logits of the targets, output of PART */
    float *logits;        /* of all rows, contiguous, if plan.outside */
    float dloss;
    float *loss;
    void *dx;
    float *dw;
} cross_entropy_operands;

/* The weights of rows, the last input if there are any. */
static const float *weights_of(const by__device_call *call)
{
    int at = call->op == BY_OP_LINEAR_CROSS_ENTROPY        ? 3
             : call->op == BY_OP_LINEAR_CROSS_ENTROPY_GRAD ? 6
                                                           : 4;
    return call->input_count > at ? call->in[at].data : NULL;
}

static cross_entropy_operands bind(const by__device_call *call)
{
    const cross_entropy_plan *p = call->state;
    cross_entropy_operands o = {
        .x = call->in[0].data,
        .w = call->in[1].data,
        .targets = call->in[2].data,
        .weights = weights_of(call),
        .dloss = 1.0f,
    };
    if (p->mode == FORWARD || p->mode == TOKENS) {
        o.loss = call->out[0].data;
        o.lse = call->out[1].data;
        return o;
    }
    if (p->mode == PART) {
        o.lse = call->out[0].data;
        o.own = o.lse + p->v.rows;
        o.logits = p->outside ? call->out[1].data : NULL;
        return o;
    }
    int first = 0;
    if (p->mode == GRAD) {
        o.lse = call->in[3].data;
        o.dloss = *(const float *)call->in[4].data;
        o.logits = p->outside ? call->in[5].data : NULL;
    } else {
        o.dloss = *(const float *)call->in[3].data;
        o.loss = call->out[0].data;
        first = 1;
    }
    o.dx = call->out[first].data;
    o.dw = call->out[first + 1].data;
    return o;
}

/* Sum of exp(logit - base); with `keep` the exponentials replace the logits. Uses four sums in
 * rotation, because a single one would wait for each addition. */
static inline __attribute__((always_inline)) float sum_exponentials(float *logits, int64_t n,
                                                                    float base, bool keep)
{
    by__vf sums[4] = {by__zero(), by__zero(), by__zero(), by__zero()};
    int64_t i = 0;
    for (; i + 4 * BY__LANES <= n; i += 4 * BY__LANES) {
        for (int s = 0; s < 4; s++) {
            by__vf e = by__exp(by__kernel_load(logits, i + s * BY__LANES, BY_F32) - base);
            sums[s] += e;
            if (keep) {
                by__kernel_store(logits, i + s * BY__LANES, e, BY_F32);
            }
        }
    }
    float total = by__sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
    for (; i < n; i += BY__LANES) {
        int count = (int)by__min_i64(BY__LANES, n - i);
        by__vf e = by__exp(by__load_n(logits, i, BY_F32, count) - base);
        if (keep) {
            by__store_n(logits, i, e, BY_F32, count);
        }
        for (int lane = 0; lane < count; lane++) {
            total += e[lane];
        }
    }
    return total;
}

/* Converts a row of f32 to row `to` in dtype: each value times `factor`, or with `exponentiate`
 * exp(value - base) times factor. `to` may be the same row: a narrower row begins where the wide
 * one does, so writing never overtakes reading. */
static inline __attribute__((always_inline)) void finish_row(const float *row, float *to, int64_t n,
                                                             bool exponentiate, float base,
                                                             float factor, by_dtype dtype)
{
#define FINISH(i, count)                                                                           \
    by__vf v = by__load_n(row, (i), BY_F32, (count));                                              \
    v = exponentiate ? by__exp(v - base) : v;                                                      \
    by__store_flushed_n(to, (i), v *factor, dtype, (count))
    BY__STEPS(0, n, FINISH);
#undef FINISH
}

static inline __attribute__((always_inline)) void set_row(const float *row, float *to, int64_t n,
                                                          bool exponentiate, float base,
                                                          float factor, int64_t target, float hot,
                                                          by_dtype dtype)
{
    finish_row(row, to, n, exponentiate, base, factor, dtype);
    if (target >= 0) {
        by__store_n(to, target, by__splat(hot), dtype, 1);
    }
}

/* Processes one row: its loss, its log-sum-exp, and the gradient of the logits in `to`, which may
 * be the row. */
static void run_row(const cross_entropy_plan *p, const cross_entropy_operands *o, int64_t r,
                    float *row, float *to, double *loss)
{
    int64_t n = p->v.vocabulary;
    int64_t target = o->targets[r];
    float weight = o->weights == NULL ? 1.0f : o->weights[r];
    bool counts = target >= 0 && target < p->all && weight != 0.0f;
    target = counts && target >= p->first && target < p->first + n ? target - p->first : -1;
    float own = target >= 0 ? row[target] : 0.0f;
    float base = p->mode == GRAD ? o->lse[r] : by__kernel_highest(row, n);
    float total = 1.0f;
    if (p->mode <= PART) {
        total = sum_exponentials(row, n, base, false);
        o->lse[r] = base + logf(total);
        if (p->mode == PART) {
            o->own[r] = own;
        }
    } else if (p->mode == TRAIN && counts) {
        total = sum_exponentials(row, n, base, true);
    }
    *loss = counts ? ((double)base - (double)own + log((double)total)) * (double)weight : 0.0;
    if (p->mode <= PART) {
        return;
    }
    if (!counts) {
        memset(to, 0, (size_t)n * by_dtype_size(p->v.dtype));
        return;
    }
    float dloss = o->dloss * weight;
    float hot = (expf(own - base) / total - 1.0f) * dloss;
    bool exponentiate = p->mode == GRAD;
    if (p->v.dtype == BY_F32) {
        set_row(row, to, n, exponentiate, base, dloss / total, target, hot, BY_F32);
    } else if (p->v.dtype == BY_F16) {
        set_row(row, to, n, exponentiate, base, dloss / total, target, hot, BY_F16);
    } else {
        set_row(row, to, n, exponentiate, base, dloss / total, target, hot, BY_BF16);
    }
}

static void run_chunk(const by__device_call *call, const by__device_context *context,
                      const cross_entropy_operands *o, int64_t begin)
{
    const cross_entropy_plan *p = call->state;
    int last;
    int64_t rows = by__cpu_vocabulary_rows(&p->v, begin, &last);
    char *work = call->work;
    float *gradients = call->work;
    float *logits = p->outside ? o->logits + begin * p->v.vocabulary : gradients;
    int64_t stride = p->outside ? p->v.vocabulary : p->v.stride;
    double *losses = (double *)(work + p->losses);
    size_t offset = (size_t)(begin * p->v.columns) * by_dtype_size(p->v.dtype);
    const char *x = (const char *)o->x + offset;
    void *gemm_work = work + p->gemm_work;
    if (p->logits[last] != NULL) {
        by__cpu_gemm_run(p->logits[last], &(by__cpu_gemm_operands){
                                              .a = x, .b = o->w, .c = logits, .work = gemm_work});
    }
#pragma omp parallel for schedule(static) num_threads(context->threads) if (context->threads > 1)
    for (int64_t r = 0; r < rows; r++) {
        float *row = logits + r * stride;
        float *to = p->mode == GRAD ? gradients + r * p->v.stride : row;
        run_row(p, o, begin + r, row, to, &losses[begin + r]);
    }
    if (p->mode <= PART) {
        return;
    }
    by__cpu_vocabulary_gradients(&p->v, begin,
                                 &(by__cpu_vocabulary_operands){.gradients = gradients,
                                                                .x = x,
                                                                .w = o->w,
                                                                .dx = (char *)o->dx + offset,
                                                                .dw = o->dw,
                                                                .work = gemm_work});
}

static by_status run(const by__device_call *call, const by__device_context *context)
{
    const cross_entropy_plan *p = call->state;
    cross_entropy_operands o = bind(call);
    for (int64_t begin = 0; begin < p->v.rows; begin += p->v.chunk) {
        run_chunk(call, context, &o, begin);
    }
    const double *losses = (const double *)((const char *)call->work + p->losses);
    if (p->mode == TOKENS) {
        for (int64_t r = 0; r < p->v.rows; r++) {
            o.loss[r] = (float)losses[r];
        }
    } else if (o.loss != NULL) {
        *o.loss = by__cpu_vocabulary_loss(&p->v, losses);
    }
    return BY_OK;
}

static void release(by__device_call *call)
{
    cross_entropy_plan *p = call->state;
    if (p != NULL) {
        by__cpu_gemm_close(&p->logits[0]);
        by__cpu_gemm_close(&p->logits[1]);
        by__cpu_vocabulary_close(&p->v);
        free(p);
        call->state = NULL;
    }
}

static by_status open_products(cross_entropy_plan *p, by_error *error)
{
    if (p->mode != GRAD || !p->outside) {
        int64_t ldc = p->outside ? p->v.vocabulary : p->v.stride;
        BY_TRY(by__cpu_vocabulary_open_logits(p->logits, &p->v, p->v.columns, ldc, error));
    }
    return p->mode <= PART ? BY_OK : by__cpu_vocabulary_open_gradients(&p->v, error);
}

static by_status prepare(by__device_call *call, const by__device_context *context, by_error *error)
{
    cross_entropy_plan *p = NULL;
    BY_TRY(by__alloc((void **)&p, 1, sizeof *p, "the vocabulary loss", error));
    call->state = p;
    p->mode = call->op == BY_OP_LINEAR_CROSS_ENTROPY        ? FORWARD
              : call->op == BY_OP_LINEAR_TOKEN_LOSS         ? TOKENS
              : call->op == BY_OP_LINEAR_CROSS_ENTROPY_PART ? PART
              : call->op == BY_OP_LINEAR_CROSS_ENTROPY_GRAD ? GRAD
                                                            : TRAIN;
    p->v = by__kernel_vocabulary(call, context, 1);
    p->first = call->attrs.begin;
    p->all = call->attrs.rows > 0 ? call->attrs.rows : p->v.vocabulary;
    p->outside = p->mode == PART
                     ? call->attrs.keep
                     : p->mode == GRAD && call->input_count > 5 && call->in[5].shape.rank > 0;
    by_status status = open_products(p, error);
    if (status != BY_OK) {
        release(call);
        return status;
    }
    p->losses =
        p->mode == PART && p->outside ? 0 : (size_t)(p->v.chunk * p->v.stride) * sizeof(float);
    p->gemm_work = by__round_up(p->losses + (size_t)p->v.rows * sizeof(double), 4096);
    call->work_bytes = p->gemm_work + p->v.work;
    return BY_OK;
}

BY__VOCABULARY_KERNEL(BY_OP_LINEAR_CROSS_ENTROPY, linear_cross_entropy);
BY__VOCABULARY_KERNEL(BY_OP_LINEAR_TOKEN_LOSS, linear_token_loss);
BY__VOCABULARY_KERNEL(BY_OP_LINEAR_CROSS_ENTROPY_PART, linear_cross_entropy_part);
BY__VOCABULARY_KERNEL(BY_OP_LINEAR_CROSS_ENTROPY_GRAD, linear_cross_entropy_grad);
BY__VOCABULARY_KERNEL(BY_OP_LINEAR_CROSS_ENTROPY_TRAIN, linear_cross_entropy_train);
