#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "base/half.h"
#include "base/packing/packing.h"
#include "kernel_test.h"

const run_options plain_run = {1, {-1, -1, -1}};

/* ---- memory: a guard of 64 bytes before and after; all ones, which is NaN to whoever reads it
 * ---- */

#define GUARD      64
#define GUARD_BYTE 0xFF

static void *guarded_open(size_t bytes)
{
    size_t total = by__round_up(bytes, GUARD) + 2 * GUARD;
    uint8_t *base = aligned_alloc(GUARD, total);
    if (base == NULL) {
        abort();
    }
    memset(base, GUARD_BYTE, total);
    return base + GUARD;
}

static void guarded_close(void *data)
{
    if (data != NULL) {
        free((uint8_t *)data - GUARD);
    }
}

static bool guard_whole(const void *data, size_t bytes)
{
    const uint8_t *p = data;
    size_t after = by__round_up(bytes, GUARD) - bytes + GUARD;
    for (size_t i = 0; i < GUARD; i++) {
        if (p[-1 - (ptrdiff_t)i] != GUARD_BYTE) {
            return false;
        }
    }
    for (size_t i = 0; i < after; i++) {
        if (p[bytes + i] != GUARD_BYTE) {
            return false;
        }
    }
    return true;
}

static bool present(const by__graph_type *type)
{
    return type->shape.rank >= 0;
}

static int64_t count_of(const by__graph_type *type)
{
    return present(type) ? by_shape_count(&type->shape) : 0;
}

static size_t bytes_of(const by__graph_type *type)
{
    return (size_t)count_of(type) * by_dtype_size(type->dtype);
}

double element(const void *data, by_dtype dtype, int64_t i)
{
    switch (dtype) {
    case BY_F32:
        return (double)((const float *)data)[i];
    case BY_BF16:
        return (double)by__bf16_to_f32(((const uint16_t *)data)[i]);
    case BY_F16:
        return (double)by__f16_to_f32(((const uint16_t *)data)[i]);
    case BY_U8:
        return (double)((const uint8_t *)data)[i];
    default:
        return (double)((const int32_t *)data)[i];
    }
}

static void set_element(void *data, by_dtype dtype, int64_t i, float value)
{
    switch (dtype) {
    case BY_F32:
        ((float *)data)[i] = value;
        break;
    case BY_BF16:
        ((uint16_t *)data)[i] = by__f32_to_bf16(value);
        break;
    case BY_U8: /* codes: values are from -2 to 2 */
        ((uint8_t *)data)[i] = (uint8_t)(int)(value * 63.0f + 128.0f);
        break;
    default:
        ((uint16_t *)data)[i] = by__f32_to_f16(value);
    }
}

/* ---- inputs ---- */

static uint32_t random_bits(uint32_t input, int64_t i)
{
    uint32_t key[2] = {20240229u, input};
    uint32_t counter[4] = {(uint32_t)i, 0, 0, 0};
    uint32_t bits[4];
    by__philox(bits, key, counter);
    return bits[0];
}

static float random_value(uint32_t input, int64_t i, pattern kind)
{
    uint32_t bits = random_bits(input, i);
    float uniform = by__unit_float(bits) * 4.0f - 2.0f;
    if (kind == PATTERN_ZERO || (kind == PATTERN_WIDE && bits % 16 == 0)) {
        return 0.0f;
    }
    return kind == PATTERN_WIDE ? ldexpf(uniform, (int)(bits / 16 % 32) - 20) : uniform;
}

/* Ids and targets below `limit`, a few of them out of range on either side. */
static int32_t random_id(uint32_t input, int64_t i, int64_t limit)
{
    uint32_t bits = random_bits(input, i);
    if (bits % 13 == 0) {
        return bits % 2 == 0 ? -1 : (int32_t)limit;
    }
    return (int32_t)(bits / 13 % (uint64_t)limit);
}

/* Ranges of rows in turn, a third of them without any; with a capacity their lengths count
 * alone. */
static void fill_ranges(problem *p, int index)
{
    int32_t *data = p->data[index];
    int64_t rows = p->in[0].shape.dim[0];
    int64_t ranges = p->in[index].shape.dim[0];
    for (int64_t g = 0; g < ranges; g++) {
        int64_t capacity = p->attrs.capacity;
        if (capacity > 0) {
            data[2 * g] = (int32_t)(7 * g - 3);
            data[2 * g + 1] = data[2 * g] + (int32_t)(g * 5 % (capacity + 1));
            continue;
        }
        data[2 * g] = (int32_t)(rows * g / ranges);
        data[2 * g + 1] = g % 3 == 1 ? data[2 * g] : (int32_t)(rows * (g + 1) / ranges);
    }
}

/* Rows of a ragged batch: of each session in turn a run of neighbouring tokens that ends at the
 * last place of its pages, and every seventh row is none; no page belongs to two sessions. */
static void fill_paged(problem *p, int index)
{
    int32_t *data = p->data[index];
    int64_t rows = p->in[0].shape.dim[1];
    int64_t sessions = p->in[7].shape.dim[0];
    int64_t table = p->in[7].shape.dim[1];
    int64_t pages = p->in[3].shape.dim[0];
    int64_t each = (rows + sessions - 1) / sessions;
    for (int64_t i = 0; i < count_of(&p->in[index]); i++) {
        int64_t last = table * BY_PAGE_TOKENS - 1 - i / each;
        int64_t position = i % 7 == 6 ? -1 : last - (each - 1 - i % each);
        data[i] = (int32_t)(index == 5 ? position : index == 6 ? i / each : (i * 5 + 3) % pages);
    }
}

/* Rows of each session in turn, of which the first one begins, and the last one of every second is
 * none; or the position of the first row of all samples. */
static void fill_carried(problem *p, int index)
{
    int32_t *data = p->data[index];
    int64_t rows = p->in[0].shape.dim[1];
    int64_t sessions = p->in[3].shape.dim[0];
    int64_t each = (rows + sessions - 1) / sessions;
    for (int64_t i = 0; i < count_of(&p->in[index]); i++) {
        int64_t session = i / each;
        bool none = session % 2 == 1 && i % each == each - 1;
        int64_t position = none ? -1 : 5 * session + i % each;
        data[i] = (int32_t)(!present(&p->in[5]) ? 3 : index == 4 ? position : session);
    }
}

/* First keys: of the first sample in any order, some of them out of range; then of documents. */
static void fill_starts(problem *p, int index)
{
    int32_t *data = p->data[index];
    int64_t time = p->in[index].shape.dim[1];
    for (int64_t i = 0; i < count_of(&p->in[index]); i++) {
        data[i] = i < time ? random_id((uint32_t)index, i, time) : (int32_t)(i % time / 37 * 37);
    }
}

static void fill_integers(problem *p, int index)
{
    int32_t *data = p->data[index];
    int64_t limit = 1;
    int64_t empty = -1;
    for (int64_t i = 0; p->source->in[index].kind >= OFFSETS && i < count_of(&p->in[index]); i++) {
        data[i] = edge_operand(p->source, index, i);
    }
    if (p->source->in[index].kind >= OFFSETS) {
        return;
    }
    switch (p->source->op) {
    case BY_OP_EMBEDDING:
        limit = p->in[1].shape.dim[0];
        break;
    case BY_OP_EMBEDDING_GRAD:
    case BY_OP_GROUP:
    case BY_OP_COUNT_IDS:
    case BY_OP_OFFSET_IDS:
    case BY_OP_CROSS_ENTROPY_COMBINE:
        limit = p->attrs.rows;
        break;
    case BY_OP_PACKED_EMBEDDING:
        limit = p->attrs.packing.n;
        break;
    case BY_OP_LINEAR_CROSS_ENTROPY_PART:
    case BY_OP_LINEAR_CROSS_ENTROPY_GRAD:
        limit = p->attrs.rows > 0 ? p->attrs.rows : p->in[1].shape.dim[0];
        break;
    case BY_OP_LINEAR_DISTILL: /* ids of a row are distinct */
    case BY_OP_LINEAR_DISTILL_GRAD:
    case BY_OP_LINEAR_DISTILL_TRAIN:
        limit = p->in[1].shape.dim[0];
        for (int64_t i = 0; index == 5 && i < count_of(&p->in[5]); i++) {
            int64_t k = p->in[5].shape.dim[p->in[5].shape.rank - 1];
            ((int32_t *)p->data[5])[i] = (int32_t)((i / k * 5 + i % k) % limit);
        }
        if (index == 5) {
            return;
        }
        break;
    case BY_OP_ROUTER_GRAD:
        limit = p->in[3].shape.dim[0];
        break;
    case BY_OP_GATHER_ROWS: /* slots, then members, which only gradients read */
        limit = p->in[0].shape.dim[0];
        break;
    case BY_OP_SCATTER_ROWS: /* slots, which only gradients read, then members */
        limit = by_shape_count(&p->in[1].shape);
        break;
    case BY_OP_GROUPED_MATMUL:
    case BY_OP_GROUPED_MATMUL_GRAD:
    case BY_OP_PACKED_GROUPED_MATMUL:
        fill_ranges(p, index);
        return;
    case BY_OP_SPARSE_MAX_GRAD:
        limit = p->in[3].shape.dim[1];
        break;
    case BY_OP_ROPE:
        limit = 4000;
        break;
    case BY_OP_PAGED_ATTENTION:
        fill_paged(p, index);
        return;
    case BY_OP_CARRIED_LINEAR_ATTENTION:
        fill_carried(p, index);
        return;
    case BY_OP_CACHED_ATTENTION: /* the last place that leaves room for the new tokens */
        data[0] = (int32_t)(p->in[3].shape.dim[2] - p->in[0].shape.dim[1]);
        return;
    case BY_OP_DROPOUT:
        limit = INT32_MAX;
        break;
    case BY_OP_CROSS_ENTROPY:
    case BY_OP_CROSS_ENTROPY_GRAD:
        limit = p->in[0].shape.dim[p->in[0].shape.rank - 1];
        break;
    case BY_OP_ATTENTION:
    case BY_OP_ATTENTION_GRAD:
    case BY_OP_LINEAR_ATTENTION:
    case BY_OP_LINEAR_ATTENTION_GRAD: /* lengths in 0 .. T, or out of range, and one of them 0 */
        if (index == 4) {
            fill_starts(p, index);
            return;
        }
        limit = p->in[0].shape.dim[1] + 1;
        empty = 1;
        break;
    case BY_OP_PERMUTE:
        limit = INT32_MAX;
        break;
    default:
        limit = p->in[1].shape.dim[0];
    }
    for (int64_t i = 0; i < count_of(&p->in[index]); i++) {
        data[i] = i == empty ? 0 : random_id((uint32_t)index, i, limit);
    }
}

/* Inputs that an op promises to be something: standard deviations and squares are positive. */
static void fill_floats(problem *p, int index, pattern kind)
{
    by_op op = p->source->op;
    bool scores = op == BY_OP_ATTENTION_GRAD || (op == BY_OP_EDGE_ATTENTION && index < 2);
    bool zero = op == BY_OP_CLIP_SCALE && index == 0; /* no step has failed */
    bool factor = op == BY_OP_CLIP_SCALE && index == 2;
    bool positive =
        op == BY_OP_CLIP_SCALE || (op == BY_OP_CARRIED_LINEAR_ATTENTION && index == 3) ||
        (op == BY_OP_ADAMW && index == 3) || (op == BY_OP_ADAMW8 && (index == 4 || index == 5));
    bool rstd = (op == BY_OP_LAYER_NORM_GRAD && index == 3) ||
                (op == BY_OP_RMS_NORM_GRAD && index == 2) ||
                (op == BY_OP_BATCH_NORM_GRAD && index == 4);
    bool recurrent = op >= BY_OP_LSTM && op <= BY_OP_GRU_GRAD;
    bool negative = index == 6 && (op == BY_OP_LINEAR_DISTILL || op == BY_OP_LINEAR_DISTILL_GRAD ||
                                   op == BY_OP_LINEAR_DISTILL_TRAIN); /* of probabilities */
    bool hyper = (op == BY_OP_ADAMW && index == 4) || (op == BY_OP_ADAMW8 && index == 6);
    static const float hyper_values[4] = {1e-3f, 0.19f, 0.0975f, 0.0f};
    for (int64_t i = 0; i < count_of(&p->in[index]); i++) {
        float value = random_value((uint32_t)index, i, rstd ? PATTERN_RANDOM : kind);
        /* exp(score - lse) keeps no digits once f32 cannot hold the fraction of a score. */
        value = scores && kind == PATTERN_WIDE ? value * 0x1p-9f : value;
        /* Without saturation, and states that forget an error rather than amplify it. */
        value = recurrent ? 0.125f * value / (1.0f + fabsf(value)) : value;
        value = zero       ? 0.0f
                : factor   ? 1024.0f
                : positive ? fabsf(value)
                : negative ? -fabsf(value) - 3.0f
                : rstd     ? 0.5f + fabsf(value)
                : hyper    ? hyper_values[i]
                           : value;
        set_element(p->data[index], p->in[index].dtype, i, value);
    }
}

/* y and lse of a gradient must be those of its forward op, or the probabilities would not sum to 1:
 * the reference computes them. */
/* The scales of pages of codes. */
static void fill_page_scales(problem *p, int index)
{
    const by_shape *shape = &p->in[index].shape;
    int64_t head = BY_PAGE_TOKENS * shape->dim[3];
    for (int64_t i = 0; i < shape->dim[0] * shape->dim[1]; i++) {
        for (int64_t token = 0; token < BY_PAGE_TOKENS; token++) {
            float scale = (float)(1 + (i + token) % 7) * 0x1p-9f;
            int64_t at = head * i + head - (BY_PAGE_TOKENS - token) * BY_PAGE_SCALE;
            memcpy((char *)p->data[index] + at, &scale, sizeof scale);
        }
    }
}

static void fill_from_forward(problem *p, by_op forward, int operands)
{
    op_case source = *p->source;
    source.op = forward;
    problem q = *p;
    q.source = &source;
    source.input_count = operands;
    const by__graph_type *ins = p->in;
    by__op_signature s = {forward, &q.attrs, ins, operands};
    by_error error = {0};
    for (int o = 0; o < BY_MAX_OUTPUTS; o++) {
        q.out[o].shape.rank = -1;
    }
    q.mutates = 0;
    by__device_tensor in[BY__MAX_INPUTS];
    result r;
    if (by__op_infer(&s, q.out, &error) != BY_OK) {
        abort();
    }
    by__device_call call = problem_call(&q, in);
    if (kernel_run(by__cpu_kernel_at(&call, BY__ISA_REFERENCE), &q, &plain_run, &r) != NULL) {
        abort();
    }
    int first = forward == BY_OP_ATTENTION ? 0 : 1; /* the loss itself is not an operand */
    for (int o = first; o < 2; o++) {
        memcpy(p->data[operands + o - first], r.data[o], bytes_of(&q.out[o]));
    }
    result_close(&r);
}

/* A weight of random values, packed. */
static void fill_packed(problem *p, int index, pattern kind)
{
    const by_packing *packing = &p->attrs.packing;
    int64_t count = by__packed_matrices(packing) * packing->n * packing->k;
    float *values = malloc((size_t)count * sizeof *values);
    by_error error = {0};
    for (int64_t i = 0; values != NULL && i < count; i++) {
        values[i] = random_value((uint32_t)index, i, kind);
    }
    if (values == NULL || by__pack_weight(p->data[index], packing, true, values, BY_F32, packing->n,
                                          1, &error) != BY_OK) {
        abort();
    }
    free(values);
}

static by__graph_type concrete(by__graph_type type, by_dtype act)
{
    type.dtype = type.dtype == ACT ? act : type.dtype;
    return type;
}

void problem_open(problem *p, const op_case *source, by_dtype act, pattern kind)
{
    *p = (problem){.source = source, .attrs = source->attrs};
    p->attrs.dtype = source->attrs.dtype == ACT ? act : source->attrs.dtype;
    for (int i = 0; i < BY__MAX_INPUTS; i++) {
        p->in[i].shape.rank = -1;
        if (i < source->input_count) {
            p->in[i] = concrete(source->in[i].type, act);
        }
    }
    bool packed = p->attrs.packing.kind != BY_PACKING_NONE;
    if (packed) {
        p->attrs.packing.dtype = source->attrs.packing.dtype == ACT ? act : p->attrs.packing.dtype;
        p->in[1] = (by__graph_type){BY_U8, by__packed_shape(&p->attrs.packing)};
    }
    for (int o = 0; o < BY_MAX_OUTPUTS; o++) {
        p->out[o].shape.rank = -1;
    }
    by__op_signature s = {source->op, &p->attrs, p->in, source->input_count};
    by_error error = {0};
    if (by__op_infer(&s, p->out, &error) != BY_OK) {
        fprintf(stderr, "%s\n", error.message);
        abort();
    }
    p->mutates = by__op_mutates(source->op, &p->attrs);
    for (int i = 0; i < source->input_count; i++) {
        if (present(&p->in[i])) {
            p->data[i] = guarded_open(bytes_of(&p->in[i]));
            if (packed && i == 1) {
                fill_packed(p, i, kind);
            } else if (p->in[i].dtype == BY_I32) {
                fill_integers(p, i);
            } else {
                fill_floats(p, i, kind);
                if (source->op == BY_OP_PAGED_ATTENTION && p->in[i].dtype == BY_U8) {
                    fill_page_scales(p, i);
                }
            }
        }
    }
    if (source->op == BY_OP_ATTENTION_GRAD && source->use != FOR_BENCH) {
        fill_from_forward(p, BY_OP_ATTENTION, source->input_count - 3);
    } else if (source->op == BY_OP_LINEAR_CROSS_ENTROPY_GRAD) {
        fill_from_forward(p, BY_OP_LINEAR_CROSS_ENTROPY, 3);
    } else if (source->op == BY_OP_CROSS_ENTROPY_GRAD) {
        fill_from_forward(p, BY_OP_CROSS_ENTROPY, 2);
    }
}

void problem_close(problem *p)
{
    for (int i = 0; i < BY__MAX_INPUTS; i++) {
        guarded_close(p->data[i]);
    }
    *p = (problem){0};
}

/* ---- runs ---- */

by__device_call problem_call(const problem *p, by__device_tensor *in)
{
    by__device_call call = {
        .op = p->source->op, .attrs = p->attrs, .input_count = p->source->input_count, .in = in};
    for (int i = 0; i < BY__MAX_INPUTS; i++) {
        in[i] = (by__device_tensor){NULL, p->in[i].dtype, p->in[i].shape};
    }
    for (int o = 0; o < BY_MAX_OUTPUTS; o++) {
        call.out[o] = (by__device_tensor){NULL, p->out[o].dtype, p->out[o].shape};
        call.output_count += present(&p->out[o]) ? 1 : 0;
    }
    return call;
}

/* Inputs are copied, so that runs start alike; outputs begin as ones (NaN), so that an element that
 * is not written shows. */
static void attach(by__device_call *call, const problem *p, by__device_tensor *in,
                   const run_options *options)
{
    for (int i = 0; i < p->source->input_count; i++) {
        if (present(&p->in[i])) {
            in[i].data = guarded_open(bytes_of(&p->in[i]));
            memcpy(in[i].data, p->data[i], bytes_of(&p->in[i]));
        }
    }
    for (int o = 0; o < call->output_count; o++) {
        int on = options->overlay[o];
        call->out[o].data = on >= 0 ? in[on].data : guarded_open(bytes_of(&p->out[o]));
    }
    call->work = guarded_open(call->work_bytes);
}

static const char *check_guards(const by__device_call *call, const problem *p)
{
    for (int i = 0; i < p->source->input_count; i++) {
        if (call->in[i].data != NULL && !guard_whole(call->in[i].data, bytes_of(&p->in[i]))) {
            return "wrote outside an input";
        }
    }
    for (int o = 0; o < call->output_count; o++) {
        if (!guard_whole(call->out[o].data, bytes_of(&p->out[o]))) {
            return "wrote outside an output";
        }
    }
    return guard_whole(call->work, call->work_bytes) ? NULL : "wrote outside the workspace";
}

/* Inputs that are neither updated nor overlaid must be as they were. */
static const char *check_inputs(const by__device_call *call, const problem *p,
                                const run_options *options)
{
    for (int i = 0; i < p->source->input_count; i++) {
        bool overlaid =
            options->overlay[0] == i || options->overlay[1] == i || options->overlay[2] == i;
        if (call->in[i].data != NULL && !overlaid && (p->mutates >> i & 1) == 0 &&
            memcmp(call->in[i].data, p->data[i], bytes_of(&p->in[i])) != 0) {
            return "changed an input";
        }
    }
    return NULL;
}

/* Moves what the run made into `out` and frees the rest. */
static void detach(by__device_call *call, const problem *p, by__device_tensor *in,
                   const run_options *options, result *out)
{
    *out = (result){0};
    for (int o = 0; o < call->output_count; o++) {
        out->data[o] = call->out[o].data;
        out->type[o] = p->out[o];
    }
    for (int i = 0; i < p->source->input_count; i++) {
        bool overlaid =
            options->overlay[0] == i || options->overlay[1] == i || options->overlay[2] == i;
        if ((p->mutates >> i & 1) != 0) {
            out->data[BY_MAX_OUTPUTS + i] = in[i].data;
            out->type[BY_MAX_OUTPUTS + i] = p->in[i];
        } else if (!overlaid) {
            guarded_close(in[i].data);
        }
    }
    guarded_close(call->work);
}

const char *kernel_run(const by__device_kernel *kernel, const problem *p,
                       const run_options *options, result *out)
{
    by__device_tensor in[BY__MAX_INPUTS];
    by__device_call call = problem_call(p, in);
    by_error error = {0};
    by__device_context context = {.threads = options->threads};
    *out = (result){0};
    if (kernel->prepare != NULL && kernel->prepare(&call, &context, &error) != BY_OK) {
        return "prepare failed";
    }
    attach(&call, p, in, options);
    const char *problem_found = kernel->run(&call, &context) != BY_OK ? "run failed" : NULL;
    problem_found = problem_found == NULL ? check_guards(&call, p) : problem_found;
    problem_found = problem_found == NULL ? check_inputs(&call, p, options) : problem_found;
    detach(&call, p, in, options, out);
    if (kernel->release != NULL) {
        kernel->release(&call);
    }
    return problem_found;
}

/* One thread is timed by its own processor time, which a busy machine disturbs less. */
static double clock_of(int threads)
{
    struct timespec t;
    (void)clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double kernel_time(const by__device_kernel *kernel, const problem *p, int threads, int repeats)
{
    by__device_tensor in[BY__MAX_INPUTS];
    by__device_call call = problem_call(p, in);
    by_error error = {0};
    by__device_context context = {.threads = threads};
    if (kernel->prepare != NULL && kernel->prepare(&call, &context, &error) != BY_OK) {
        return NAN;
    }
    attach(&call, p, in, &plain_run);
    double fastest = INFINITY;
    for (int i = 0; i <= repeats; i++) {
        double start = clock_of(threads);
        (void)kernel->run(&call, &context);
        double seconds = clock_of(threads) - start;
        fastest = i > 0 && seconds < fastest ? seconds : fastest;
    }
    result r;
    detach(&call, p, in, &plain_run, &r);
    result_close(&r);
    if (kernel->release != NULL) {
        kernel->release(&call);
    }
    return fastest;
}

/* ---- results ---- */

void result_close(result *r)
{
    for (int i = 0; i < MAX_TENSORS; i++) {
        guarded_close(r->data[i]);
    }
    *r = (result){0};
}

bool result_same_bits(const result *a, const result *b)
{
    for (int i = 0; i < MAX_TENSORS; i++) {
        if (a->data[i] != NULL && memcmp(a->data[i], b->data[i], bytes_of(&a->type[i])) != 0) {
            return false;
        }
    }
    return true;
}

/* Half a unit in the last place (ulp) of f32 is at most 2^-24 = 6e-8 of the value, of bf16 2^-8 =
 * 4e-3.
 *
 * Operations that round once must agree to the bit: the double reference rounds the same exact
 * value. The others are given what their formula loses in f32: a few ulp for the functions; for
 * sums, a multiple of the ulp of the largest element of the output, since the terms of a sum may
 * cancel. A result of 16 bits may fall on the other side of a rounding boundary, which is one whole
 * ulp of its own. */
tolerance kernel_tolerance(by_op op, by_dtype input, by_dtype output)
{
    tolerance t = {1e-6, 0.0};
    switch (op) {
    case BY_OP_ADAMW8: /* codes differ where f32 is on the other side of the middle of two */
        t = output == BY_U8 ? (tolerance){0.0, 1.0 / 127.0} : (tolerance){1e-5, 1e-6};
        break;
    case BY_OP_ADD:
    case BY_OP_SUB:
    case BY_OP_MUL:
    case BY_OP_SCALE:
    case BY_OP_CAST:
    case BY_OP_EMBEDDING:
    case BY_OP_PACKED_EMBEDDING:
    case BY_OP_POSITION:
    case BY_OP_FILL:
    case BY_OP_RESHAPE:
    case BY_OP_PERMUTE:
    case BY_OP_CONCAT:
    case BY_OP_SLICE:
    case BY_OP_PAD:
    case BY_OP_EXPAND:
    case BY_OP_ALL_REDUCE:
    case BY_OP_ALL_GATHER:
    case BY_OP_REDUCE_SCATTER:
    case BY_OP_ALL_TO_ALL:
    case BY_OP_RING_SHIFT:
    case BY_OP_REDUCE_GRADIENTS:
    case BY_OP_GATHER_PARAMETER:
    case BY_OP_REPLICATE:
    case BY_OP_GROUP:
    case BY_OP_COUNT_IDS:
    case BY_OP_ENCODE8:
    case BY_OP_DECODE8:
    case BY_OP_FAKE_QUANTIZE:
    case BY_OP_SPARSE_MAX:
        return (tolerance){0.0, 0.0};
    case BY_OP_SPARSE_MATMUL: /* sums of many */
    case BY_OP_EDGE_DOTS:
    case BY_OP_EDGE_SUM:
    case BY_OP_EDGE_ATTENTION_GRAD:
        t = (tolerance){1e-5, 1e-5};
        break;
    case BY_OP_LIKELIHOOD: /* 1 - d^2 of the deviation's derivative cancels */
    case BY_OP_LIKELIHOOD_GRAD:
        t = (tolerance){1e-5, 1e-6};
        break;
    case BY_OP_UNARY: /* the argument of GELU's exponential reaches 87 and keeps 2^-24 of itself */
    case BY_OP_UNARY_GRAD:
    case BY_OP_SWIGLU:
    case BY_OP_SWIGLU_GRAD:
        t = (tolerance){2e-6, 1e-7};
        break;
    case BY_OP_MATMUL:
    case BY_OP_PACKED_MATMUL:
    case BY_OP_PACKED_GROUPED_MATMUL:
    case BY_OP_GROUPED_MATMUL:
    case BY_OP_GROUPED_MATMUL_GRAD:
    case BY_OP_CONV:
    case BY_OP_CONV_TRANSPOSED:
    case BY_OP_CONV_WEIGHT_GRAD:
    case BY_OP_LINEAR_TOKEN_LOSS:
    case BY_OP_LINEAR_CROSS_ENTROPY:
    case BY_OP_LINEAR_CROSS_ENTROPY_GRAD:
    case BY_OP_LINEAR_CROSS_ENTROPY_PART:
    case BY_OP_LINEAR_CROSS_ENTROPY_TRAIN:
    case BY_OP_LINEAR_DISTILL:
    case BY_OP_LINEAR_DISTILL_GRAD:
    case BY_OP_LINEAR_DISTILL_TRAIN:
    case BY_OP_ATTENTION:
    case BY_OP_ATTENTION_GRAD:
    case BY_OP_CACHED_ATTENTION:
    case BY_OP_PAGED_ATTENTION:
        t = (tolerance){1e-5, 1e-5};
        /* Probabilities and their gradients are rounded to bf16 before the second product. */
        if (input == BY_BF16 && op != BY_OP_MATMUL && op != BY_OP_PACKED_MATMUL &&
            op != BY_OP_PACKED_GROUPED_MATMUL && op != BY_OP_GROUPED_MATMUL &&
            op != BY_OP_GROUPED_MATMUL_GRAD && op != BY_OP_CONV && op != BY_OP_CONV_TRANSPOSED &&
            op != BY_OP_CONV_WEIGHT_GRAD) {
            t = (tolerance){8e-3, 8e-3};
        }
        /* Of f16 only the gradients of logits: attention widens its operands. */
        if (input == BY_F16 &&
            ((op >= BY_OP_LINEAR_CROSS_ENTROPY_GRAD && op <= BY_OP_LINEAR_CROSS_ENTROPY_TRAIN) ||
             op == BY_OP_LINEAR_DISTILL_GRAD || op == BY_OP_LINEAR_DISTILL_TRAIN)) {
            t = (tolerance){1e-3, 1e-3};
        }
        break;
    case BY_OP_LSTM: /* the recurrence is f32, whatever the operands are */
    case BY_OP_LSTM_GRAD:
    case BY_OP_GRU:
    case BY_OP_GRU_GRAD:
        t = (tolerance){1e-5, 1e-5};
        break;
    case BY_OP_BATCH_NORM: /* x without its mean keeps what x kept */
    case BY_OP_BATCH_NORM_GRAD:
    case BY_OP_GROUP_NORM:
    case BY_OP_GROUP_NORM_GRAD:
        t = (tolerance){4e-6, 4e-6};
        break;
    case BY_OP_DROPOUT:
    case BY_OP_CLIP_SCALE:
    case BY_OP_SUM_SQUARES:
        break;
    default:
        t = (tolerance){2e-6, 2e-6};
    }
    if (output == BY_BF16) {
        t.relative += 1.0 / 128.0;
    } else if (output == BY_F16) {
        t.relative += 1.0 / 1024.0;
    }
    return t;
}

double result_error(const result *got, const result *want, by_op op, by_dtype input)
{
    double worst = 0.0;
    for (int k = 0; k < MAX_TENSORS; k++) {
        if (got->data[k] == NULL) {
            continue;
        }
        by_dtype dtype = got->type[k].dtype;
        tolerance t = kernel_tolerance(op, input, dtype);
        int64_t count = count_of(&got->type[k]);
        double largest = 0.0;
        for (int64_t i = 0; i < count; i++) {
            largest = fmax(largest, fabs(element(want->data[k], dtype, i)));
        }
        for (int64_t i = 0; i < count; i++) {
            double a = element(got->data[k], dtype, i);
            double b = element(want->data[k], dtype, i);
            double error = a == b || (isnan(a) && isnan(b)) ? 0.0 : fabs(a - b);
            double allowed = t.relative * fabs(b) + t.absolute * largest;
            /* Subnormals keep no relative precision: one step of them is always allowed. */
            error = error <= (dtype == BY_F16 ? 6e-8 : 1.5e-45) ? 0.0 : error;
            error = error == 0.0 ? 0.0 : error / fmax(allowed, 1e-300);
            worst =
                fmax(worst, isnan(error) ? INFINITY : error); /* an element not written is NaN */
        }
    }
    return worst;
}
