/* LINEAR_ATTENTION and its gradient. With features a of a query and b of a key, and values v' = (v,
 * 1), a causal query reads
 *   S = sum of b v'^T over the keys up to its own,   (n, d) = a^T S,   y = n / (d + eps),
 * so that one matrix S [width, width + 1] is carried from token to token. Backward, with g = dy /
 * (d + eps) and g' = (g, -g . y),
 *   da = S g',   R = sum of a g'^T over the queries from its own on,   db = R v',   dv' = b^T R,
 * in a second pass from the last token to the first. The heads of a group share S and R. A task is
 * one (sample, key head), so that the bits do not depend on the number of threads.
 *
 * CARRIED_LINEAR_ATTENTION keeps S in an operand from run to run; a task is the rows of one session
 * and key head, which are computed in the order in which one run would have computed them all. */
#include <stdlib.h>

#include "device/cpu/kernels/attention/attention.h"

/* Keeps the quotient finite when all features underflow. */
#define LEAST 1e-6f

typedef struct linear_plan {
    attention_shape s;
    bool packed;
    bool causal;
    int64_t columns; /* of S: width + 1, rounded up to whole vectors, or as the operand has them */
    size_t state, key, value, query, n; /* offsets in a thread's part, in bytes */
    size_t given;                       /* g' of all queries of a task: [group][length][columns] */
    size_t thread_bytes;
} linear_plan;

/* A task, and the addresses in its thread's part. */
typedef struct linear_job {
    const linear_plan *p;
    float *state, *key, *value, *query, *n, *given;
    head_view in[3], out[3], y;
    int64_t b, kv, rows;
} linear_job;

/* f(x) = elu(x) + 1 of the elements of a row. */
static void load_features(const linear_plan *p, float *out, const void *row)
{
#define FEATURE(i, n)                                                                              \
    by__vf x = by__load_n(row, (i), p->s.dtype, (n));                                              \
    by__store_n(out, (i),                                                                          \
                by__select(x > 0.0f, x + 1.0f, by__exp_of_negative(by__at_most(0.0f, x))), BY_F32, \
                (n))
    BY__STEPS(0, p->s.width, FEATURE);
#undef FEATURE
}

static void load_row(const linear_plan *p, float *out, const void *row)
{
#define WIDEN(i, n) by__store_n(out, (i), by__load_n(row, (i), p->s.dtype, (n)), BY_F32, (n))
    BY__STEPS(0, p->s.width, WIDEN);
#undef WIDEN
}

/* Stores a row times min(f, 1), the derivative of features f; NULL: as it is. */
static void store_row(const linear_plan *p, void *out, const float *row, const float *features)
{
#define STORE(i, n)                                                                                \
    by__vf x = by__load_n(row, (i), BY_F32, (n));                                                  \
    by__vf slope = features == NULL ? by__splat(1.0f)                                              \
                                    : by__at_most(1.0f, by__load_n(features, (i), BY_F32, (n)));   \
    by__store_flushed_n(out, (i), x *slope, p->s.dtype, (n))
    BY__STEPS(0, p->s.width, STORE);
#undef STORE
}

/* state += a b^T */
static void add_outer(const linear_job *j, const float *a, const float *b)
{
    int64_t columns = j->p->columns;
    for (int64_t d = 0; d < j->p->s.width; d++) {
        float *row = j->state + d * columns;
        for (int64_t i = 0; i < columns; i += BY__LANES) {
            by__kernel_store(row, i,
                             by__kernel_load(row, i, BY_F32) + by__kernel_load(b, i, BY_F32) * a[d],
                             BY_F32);
        }
    }
}

/* out [columns] = a^T state */
static void multiply_left(const linear_job *j, float *out, const float *a)
{
    int64_t columns = j->p->columns;
    for (int64_t i = 0; i < columns; i += BY__LANES) {
        by__vf sum = by__zero();
        for (int64_t d = 0; d < j->p->s.width; d++) {
            sum += by__kernel_load(j->state, d * columns + i, BY_F32) * a[d];
        }
        by__kernel_store(out, i, sum, BY_F32);
    }
}

/* out [width] = state b */
static void multiply_right(const linear_job *j, float *out, const float *b)
{
    int64_t columns = j->p->columns;
    for (int64_t d = 0; d < j->p->s.width; d++) {
        by__vf sum = by__zero();
        for (int64_t i = 0; i < columns; i += BY__LANES) {
            sum +=
                by__kernel_load(j->state, d * columns + i, BY_F32) * by__kernel_load(b, i, BY_F32);
        }
        out[d] = by__sum(sum);
    }
}

static void load_key(const linear_job *j, int64_t t)
{
    const attention_shape *s = &j->p->s;
    load_features(j->p, j->key, head_at(&j->in[1], s, j->b, t, j->kv));
    load_row(j->p, j->value, head_at(&j->in[2], s, j->b, t, j->kv));
    j->value[s->width] = 1.0f;
}

static void open_job(linear_job *j, const by__device_call *call, int64_t task,
                     const int32_t *lengths)
{
    const linear_plan *p = call->state;
    char *work = (char *)call->work + p->thread_bytes * (size_t)omp_get_thread_num();
    j->p = p;
    j->state = (float *)(void *)(work + p->state);
    j->key = (float *)(void *)(work + p->key);
    j->value = (float *)(void *)(work + p->value);
    j->query = (float *)(void *)(work + p->query);
    j->n = (float *)(void *)(work + p->n);
    j->given = (float *)(void *)(work + p->given);
    j->b = task / p->s.kv_heads;
    j->kv = task % p->s.kv_heads;
    j->rows = attention_rows_of(lengths, &p->s, j->b);
    memset(work, 0, p->given);
}

/* Sums all keys, if queries read later ones, too. */
static void add_all_keys(const linear_job *j)
{
    for (int64_t t = 0; t < j->rows && !j->p->causal; t++) {
        load_key(j, t);
        add_outer(j, j->key, j->value);
    }
}

/* Sums the key of token t, if queries read up to their own. */
static void add_own_key(const linear_job *j, int64_t t)
{
    if (j->p->causal) {
        load_key(j, t);
        add_outer(j, j->key, j->value);
    }
}

/* ---- forward ---- */

/* What the queries of token t read. */
static void read_sums(const linear_job *j, int64_t t)
{
    const attention_shape *s = &j->p->s;
    int64_t group = s->heads / s->kv_heads;
    for (int64_t head = j->kv * group; head < (j->kv + 1) * group; head++) {
        load_features(j->p, j->query, head_at(&j->in[0], s, j->b, t, head));
        multiply_left(j, j->n, j->query);
        float factor = 1.0f / (j->n[s->width] + LEAST);
        for (int64_t d = 0; d < s->width; d++) {
            j->n[d] *= factor;
        }
        store_row(j->p, head_at(&j->y, s, j->b, t, head), j->n, NULL);
    }
}

static void run_task(linear_job *j)
{
    const attention_shape *s = &j->p->s;
    int64_t group = s->heads / s->kv_heads;
    add_all_keys(j);
    for (int64_t t = 0; t < j->rows; t++) {
        add_own_key(j, t);
        read_sums(j, t);
    }
    for (int64_t head = j->kv * group; head < (j->kv + 1) * group; head++) {
        attention_clear(&j->y, s, j->b, j->rows, s->length, head);
    }
}

static by_status run_linear(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const linear_plan *p = call->state;
    const attention_shape *s = &p->s;
    const int32_t *lengths = attention_lengths(call, 0);
#pragma omp parallel for schedule(static) num_threads(context->threads) if (context->threads > 1)
    for (int64_t task = 0; task < s->batch * s->kv_heads; task++) {
        linear_job j = {.y = {call->out[0].data, s->heads * s->width, 0}};
        attention_views(j.in, call->in, p->packed, s);
        open_job(&j, call, task, lengths);
        run_task(&j);
    }
    return BY_OK;
}

/* ---- backward ---- */

/* g' of a head's query at token t. */
static float *given_at(const linear_job *j, int64_t head, int64_t t)
{
    const attention_shape *s = &j->p->s;
    return j->given + (head % (s->heads / s->kv_heads) * s->length + t) * j->p->columns;
}

/* From the first query to the last: g', and dq. */
static void run_queries(linear_job *j)
{
    const attention_shape *s = &j->p->s;
    int64_t group = s->heads / s->kv_heads;
    add_all_keys(j);
    for (int64_t t = 0; t < j->rows; t++) {
        add_own_key(j, t);
        for (int64_t head = j->kv * group; head < (j->kv + 1) * group; head++) {
            float *g = given_at(j, head, t);
            load_features(j->p, j->query, head_at(&j->in[0], s, j->b, t, head));
            multiply_left(j, j->n, j->query);
            float factor = 1.0f / (j->n[s->width] + LEAST);
            float sum = 0.0f;
            memset(g, 0, (size_t)j->p->columns * sizeof *g);
            load_row(j->p, g, head_at(&j->y, s, j->b, t, head));
            for (int64_t d = 0; d < s->width; d++) {
                g[d] *= factor;
                sum += g[d] * j->n[d];
            }
            g[s->width] = -sum * factor;
            multiply_right(j, j->n, g);
            store_row(j->p, head_at(&j->out[0], s, j->b, t, head), j->n, j->query);
        }
    }
}

/* Sums the queries of token t. */
static void add_queries(const linear_job *j, int64_t t)
{
    const attention_shape *s = &j->p->s;
    int64_t group = s->heads / s->kv_heads;
    for (int64_t head = j->kv * group; head < (j->kv + 1) * group; head++) {
        load_features(j->p, j->query, head_at(&j->in[0], s, j->b, t, head));
        add_outer(j, j->query, given_at(j, head, t));
    }
}

/* From the last key to the first: dk and dv. */
static void run_keys(linear_job *j)
{
    const attention_shape *s = &j->p->s;
    memset(j->state, 0, (size_t)(s->width * j->p->columns) * sizeof(float));
    for (int64_t t = j->rows; t-- > 0 && !j->p->causal;) {
        add_queries(j, t);
    }
    for (int64_t t = j->rows; t-- > 0;) {
        if (j->p->causal) {
            add_queries(j, t);
        }
        load_key(j, t);
        multiply_right(j, j->n, j->value);
        store_row(j->p, head_at(&j->out[1], s, j->b, t, j->kv), j->n, j->key);
        multiply_left(j, j->n, j->key);
        store_row(j->p, head_at(&j->out[2], s, j->b, t, j->kv), j->n, NULL);
    }
}

static by_status run_linear_grad(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const linear_plan *p = call->state;
    const attention_shape *s = &p->s;
    const int32_t *lengths = attention_lengths(call, 1);
    int64_t group = s->heads / s->kv_heads;
#pragma omp parallel for schedule(static) num_threads(context->threads) if (context->threads > 1)
    for (int64_t task = 0; task < s->batch * s->kv_heads; task++) {
        linear_job j = {.y = {call->in[call->input_count - 1].data, s->heads * s->width, 0}};
        attention_views(j.in, call->in, p->packed, s);
        attention_views(j.out, call->out, p->packed, s);
        open_job(&j, call, task, lengths);
        run_queries(&j);
        run_keys(&j);
        for (int64_t head = j.kv * group; head < (j.kv + 1) * group; head++) {
            attention_clear(&j.out[0], s, j.b, j.rows, s->length, head);
        }
        attention_clear(&j.out[1], s, j.b, j.rows, s->length, j.kv);
        attention_clear(&j.out[2], s, j.b, j.rows, s->length, j.kv);
    }
    return BY_OK;
}

/* ---- with sums from earlier runs ---- */

enum { SUMS = 3, POSITIONS, SESSIONS };

/* Where rows are: their session, and position in it. */
typedef struct row_places {
    const int32_t *positions;
    const int32_t *sessions; /* NULL: rows of sample b are at positions[0] and on */
    int64_t length;          /* rows of a sample */
} row_places;

static int64_t session_of(const row_places *at, int64_t row)
{
    return at->sessions == NULL ? row / at->length : at->sessions[row];
}

static int64_t position_of(const row_places *at, int64_t row)
{
    return at->sessions == NULL ? at->positions[0] + row % at->length : at->positions[row];
}

static bool is_of_session(const row_places *at, int64_t row, int64_t session)
{
    return position_of(at, row) >= 0 && session_of(at, row) == session;
}

/* The rows from `first` on of its session, if it is the first one: in each, S with its key. */
static void run_rows(const by__device_call *call, const row_places *at, int64_t kv, int64_t first)
{
    const linear_plan *p = call->state;
    const attention_shape *s = &p->s;
    int64_t session = session_of(at, first);
    int64_t rows = s->batch * s->length;
    linear_job j = {.y = {call->out[0].data, s->heads * s->width, 0}};
    if (position_of(at, first) < 0) {
        int64_t group = s->heads / s->kv_heads;
        for (int64_t head = kv * group; head < (kv + 1) * group; head++) {
            attention_clear(&j.y, s, first / s->length, first % s->length, first % s->length + 1,
                            head);
        }
        return;
    }
    if (first > 0 && is_of_session(at, first - 1, session)) {
        return;
    }
    attention_views(j.in, call->in, p->packed, s);
    open_job(&j, call, kv, NULL);
    size_t numbers = (size_t)(s->width * p->columns);
    j.state = (float *)call->in[SUMS].data + (size_t)(session * s->kv_heads + kv) * numbers;
    for (int64_t row = first; row < rows && is_of_session(at, row, session); row++) {
        j.b = row / s->length;
        if (position_of(at, row) == 0) {
            memset(j.state, 0, numbers * sizeof *j.state);
        }
        add_own_key(&j, row % s->length);
        read_sums(&j, row % s->length);
    }
}

static by_status run_carried(const by__device_call *call, const by__device_context *context)
{
    const linear_plan *p = call->state;
    int64_t rows = p->s.batch * p->s.length;
    const row_places at = {.positions = call->in[POSITIONS].data,
                           .sessions =
                               by__present(&call->in[SESSIONS]) ? call->in[SESSIONS].data : NULL,
                           .length = p->s.length};
#pragma omp parallel for schedule(static) num_threads(context->threads) if (context->threads > 1)
    for (int64_t task = 0; task < p->s.kv_heads * rows; task++) {
        run_rows(call, &at, task / rows, task % rows);
    }
    return BY_OK;
}

/* ---- plans ---- */

static bool supports(const by__device_call *call)
{
    return by__tensor_is_act(&call->in[0]) && call->in[0].shape.rank == 3 &&
           by__tensor_count(&call->in[0]) > 0;
}

static by_status plan(by__device_call *call, const by__device_context *context, int others,
                      by_error *error)
{
    linear_plan *p = NULL;
    const by__device_tensor *q = &call->in[0];
    BY_TRY(by__alloc((void **)&p, 1, sizeof *p, "linear attention", error));
    p->packed = attention_packed(call, others);
    p->causal = !call->attrs.bidirectional;
    p->s = (attention_shape){.dtype = q->dtype,
                             .batch = q->shape.dim[0],
                             .length = q->shape.dim[1],
                             .heads = call->attrs.heads,
                             .kv_heads = call->attrs.kv_heads};
    attention_shape *s = &p->s;
    s->width = q->shape.dim[2] / (p->packed ? s->heads + 2 * s->kv_heads : s->heads);
    bool carried = call->op == BY_OP_CARRIED_LINEAR_ATTENTION;
    p->columns =
        carried ? BY_SUM_COLUMNS(s->width) : (int64_t)by__round_up((size_t)s->width + 1, BY__LANES);
    size_t row = (size_t)p->columns * sizeof(float);
    size_t used = 0;
    p->state = by__work_reserve(&used, carried ? 0 : (size_t)s->width * row);
    p->key = by__work_reserve(&used, row);
    p->value = by__work_reserve(&used, row);
    p->query = by__work_reserve(&used, row);
    p->n = by__work_reserve(&used, row);
    size_t queries =
        call->op != BY_OP_LINEAR_ATTENTION_GRAD ? 0 : (size_t)(s->heads / s->kv_heads * s->length);
    p->given = by__work_reserve(&used, queries * row);
    p->thread_bytes = by__round_up(used, 4096);
    call->state = p;
    call->work_bytes = p->thread_bytes * (size_t)context->threads;
    return BY_OK;
}

static by_status prepare(by__device_call *call, const by__device_context *context, by_error *error)
{
    return plan(call, context, 0, error);
}

static by_status prepare_grad(by__device_call *call, const by__device_context *context,
                              by_error *error)
{
    return plan(call, context, 1, error);
}

static by_status prepare_carried(by__device_call *call, const by__device_context *context,
                                 by_error *error)
{
    return plan(call, context, 3, error);
}

static void release(by__device_call *call)
{
    free(call->state);
    call->state = NULL;
}

BY__KERNEL(linear_attention) = {BY_OP_LINEAR_ATTENTION,
                                BY__KERNEL_NAME("linear_attention"),
                                supports,
                                prepare,
                                release,
                                run_linear};
BY__KERNEL(linear_attention_grad) = {BY_OP_LINEAR_ATTENTION_GRAD,
                                     BY__KERNEL_NAME("linear_attention_grad"),
                                     supports,
                                     prepare_grad,
                                     release,
                                     run_linear_grad};
BY__KERNEL(carried_linear_attention) = {BY_OP_CARRIED_LINEAR_ATTENTION,
                                        BY__KERNEL_NAME("carried_linear_attention"),
                                        supports,
                                        prepare_carried,
                                        release,
                                        run_carried};
