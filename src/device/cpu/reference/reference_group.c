#include <math.h>
#include <string.h>

#include "device/cpu/reference.h"

static bool present(const by__device_call *call, int input)
{
    return input < call->input_count && by__present(&call->in[input]);
}

/* ---- ROUTER ---- */

static bool is_chosen(const by__device_tensor *index, int64_t begin, int64_t end, int64_t expert)
{
    for (int64_t i = begin; i < end; i++) {
        if (by__id(index, i) == expert) {
            return true;
        }
    }
    return false;
}

/* The largest logit that is not among places first .. at - 1 of index. NaN is less than any
 * number. */
static int64_t next_choice(const by__device_call *call, int64_t row, int64_t first, int64_t at)
{
    int64_t experts = by__tensor_columns(&call->in[0]);
    int64_t best = -1;
    for (int64_t e = 0; e < experts; e++) {
        if (is_chosen(&call->out[1], first, at, e)) {
            continue;
        }
        double value = by__get(&call->in[0], row * experts + e);
        double highest = best < 0 ? 0.0 : by__get(&call->in[0], row * experts + best);
        if (best < 0 || value > highest || (isnan(highest) && !isnan(value))) {
            best = e;
        }
    }
    return best;
}

static by_status prepare_router(by__device_call *call, const by__device_context *context,
                                by_error *error)
{
    BY_UNUSED(context);
    return by__reference_work(call, by__tensor_columns(&call->in[0]), error);
}

static by_status run_router(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by__device_tensor *logits = &call->in[0];
    int64_t experts = by__tensor_columns(logits);
    int64_t chosen = call->attrs.chosen;
    double *mass = call->work;
    memset(mass, 0, (size_t)experts * sizeof *mass);
    for (int64_t row = 0, rows = by__tensor_rows(logits); row < rows; row++) {
        int64_t first = row * chosen;
        double all = 0.0;
        double sum = 0.0;
        for (int64_t j = first; j < first + chosen; j++) {
            ((int32_t *)call->out[1].data)[j] = (int32_t)next_choice(call, row, first, j);
        }
        double high = by__get(logits, row * experts + by__id(&call->out[1], first));
        for (int64_t e = 0; e < experts; e++) {
            all += exp(by__get(logits, row * experts + e) - high);
        }
        for (int64_t e = 0; e < experts; e++) {
            mass[e] += exp(by__get(logits, row * experts + e) - high) / all;
        }
        for (int64_t j = first; j < first + chosen; j++) {
            sum += exp(by__get(logits, row * experts + by__id(&call->out[1], j)) - high);
        }
        for (int64_t j = first; j < first + chosen; j++) {
            double e = exp(by__get(logits, row * experts + by__id(&call->out[1], j)) - high);
            by__set(&call->out[0], j, e / sum);
        }
    }
    for (int64_t e = 0; e < experts; e++) {
        by__set(&call->out[2], e, mass[e]);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_ROUTER, router, prepare_router, run_router);

/* Adds w_i (d_i - sum w d) to the gradient of each of `count` logits, where w is their softmax
 * and d begins at `first` of `gradient`. index NULL: the logits are the row's. */
static void add_softmax_gradient(double *sum, const by__device_tensor *logits, int64_t at,
                                 const by__device_tensor *index, const by__device_tensor *gradient,
                                 int64_t first, int64_t count)
{
    int64_t experts = by__tensor_columns(logits);
    double high = -INFINITY;
    double all = 0.0;
    double mean = 0.0;
    for (int pass = 0; pass < 3; pass++) {
        for (int64_t i = 0; i < count; i++) {
            int64_t e = index == NULL ? i : by__id(index, first + i);
            if (e < 0 || e >= experts) {
                continue;
            }
            double logit = by__get(logits, at + e);
            double d = by__get(gradient, index == NULL ? i : first + i);
            if (pass == 0) {
                high = logit > high ? logit : high;
            } else if (pass == 1) {
                all += exp(logit - high);
                mean += exp(logit - high) * d;
            } else {
                sum[e] += exp(logit - high) / all * (d - mean / all);
            }
        }
    }
}

static by_status run_router_grad(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by__device_tensor *logits = &call->in[0];
    int64_t experts = by__tensor_columns(logits);
    int64_t chosen = by__tensor_columns(&call->in[1]);
    double *sum = call->work;
    for (int64_t row = 0, rows = by__tensor_rows(logits); row < rows; row++) {
        memset(sum, 0, (size_t)experts * sizeof *sum);
        if (present(call, 2)) {
            add_softmax_gradient(sum, logits, row * experts, &call->in[1], &call->in[2],
                                 row * chosen, chosen);
        }
        if (present(call, 3)) {
            add_softmax_gradient(sum, logits, row * experts, NULL, &call->in[3], 0, experts);
        }
        for (int64_t e = 0; e < experts; e++) {
            by__set(&call->out[0], row * experts + e, sum[e]);
        }
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_ROUTER_GRAD, router_grad, prepare_router, run_router_grad);

/* ---- GROUP, COUNT_IDS: a counting sort, also used at the other levels ---- */

/* Index of entry i among the ranges; -1: it is in no group. */
static int64_t range_at(const by__device_call *call, int64_t i)
{
    int64_t blocks = call->attrs.blocks > 1 ? call->attrs.blocks : 1;
    int64_t block = i / (by__tensor_count(&call->in[0]) / blocks);
    int32_t id = by__id(&call->in[0], i);
    return id < 0 || id >= call->attrs.rows ? -1 : id * blocks + block;
}

static by_status run_group(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    int32_t *slot = call->out[0].data;
    int32_t *member = call->out[1].data;
    int32_t(*range)[2] = call->out[2].data;
    int64_t entries = by__tensor_count(&call->in[0]);
    int64_t ranges = call->out[2].shape.dim[0];
    int64_t capacity = call->attrs.capacity;
    int32_t begin = 0;
    memset(range, 0, (size_t)ranges * sizeof *range);
    memset(member, 0xff, (size_t)by__tensor_count(&call->out[1]) * sizeof *member);
    for (int64_t i = 0; i < entries; i++) {
        int64_t g = range_at(call, i);
        if (g >= 0) {
            range[g][1]++;
        }
    }
    for (int64_t g = 0; g < ranges; g++) {
        int32_t count = range[g][1];
        range[g][0] = capacity > 0 ? (int32_t)(g * capacity) : begin;
        range[g][1] = range[g][0];
        begin += count;
    }
    for (int64_t i = 0; i < entries; i++) {
        int64_t g = range_at(call, i);
        slot[i] = -1;
        if (g >= 0 && (capacity == 0 || range[g][1] - range[g][0] < capacity)) {
            slot[i] = range[g][1]++;
            member[slot[i]] = (int32_t)i;
        }
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_GROUP, group, NULL, run_group);

static by_status run_count_ids(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    float *count = call->out[0].data;
    int64_t groups = call->attrs.rows;
    memset(count, 0, (size_t)groups * sizeof *count);
    for (int64_t i = 0; i < by__tensor_count(&call->in[0]); i++) {
        int32_t id = by__id(&call->in[0], i);
        if (id >= 0 && id < groups) {
            count[id] += 1.0f;
        }
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_COUNT_IDS, count_ids, NULL, run_count_ids);

/* ---- rows ---- */

static by_status run_scatter_rows(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by__device_tensor *x = &call->in[0];
    int64_t columns = by__tensor_columns(x);
    int64_t chosen = by__tensor_columns(&call->in[1]);
    int64_t entries = by__tensor_count(&call->in[1]);
    for (int64_t s = 0; s < by__tensor_rows(&call->out[0]); s++) {
        int64_t entry = by__id(&call->in[2], s);
        bool real = entry >= 0 && entry < entries;
        double weight = real && present(call, 3) ? by__get(&call->in[3], entry) : 1.0;
        for (int64_t i = 0; i < columns; i++) {
            double value = real ? weight * by__get(x, entry / chosen * columns + i) : 0.0;
            by__set(&call->out[0], s * columns + i, value);
        }
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_SCATTER_ROWS, scatter_rows, NULL, run_scatter_rows);

static by_status run_gather_rows(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by__device_tensor *x = &call->in[0];
    int64_t columns = by__tensor_columns(x);
    int64_t rows = by__tensor_rows(x);
    int64_t chosen = by__tensor_columns(&call->in[1]);
    for (int64_t row = 0; row < by__tensor_rows(&call->out[0]); row++) {
        for (int64_t i = 0; i < columns; i++) {
            double sum = 0.0;
            for (int64_t j = row * chosen; j < (row + 1) * chosen; j++) {
                int64_t slot = by__id(&call->in[1], j);
                double weight = present(call, 3) ? by__get(&call->in[3], j) : 1.0;
                sum += slot >= 0 && slot < rows ? weight * by__get(x, slot * columns + i) : 0.0;
            }
            by__set(&call->out[0], row * columns + i, sum);
        }
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_GATHER_ROWS, gather_rows, NULL, run_gather_rows);

static by_status run_row_dots(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    int64_t columns = by__tensor_columns(&call->in[0]);
    int64_t rows = by__tensor_rows(&call->in[1]);
    int64_t chosen = by__tensor_columns(&call->in[2]);
    for (int64_t j = 0; j < by__tensor_count(&call->in[2]); j++) {
        int64_t slot = by__id(&call->in[2], j);
        double sum = 0.0;
        for (int64_t i = 0; i < columns && slot >= 0 && slot < rows; i++) {
            sum += by__get(&call->in[0], j / chosen * columns + i) *
                   by__get(&call->in[1], slot * columns + i);
        }
        by__set(&call->out[0], j, sum);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_ROW_DOTS, row_dots, NULL, run_row_dots);

/* ---- products ---- */

void by__cpu_reference_range(const by__device_call *call, int64_t g, int64_t *begin, int64_t *end)
{
    int64_t capacity = call->attrs.capacity;
    *begin = by__id(&call->in[2], 2 * g);
    *end = by__id(&call->in[2], 2 * g + 1);
    if (capacity > 0) {
        *end += g * capacity - *begin;
        *begin = g * capacity;
    }
    if (*begin < 0 || *end < *begin || *end > by__tensor_rows(&call->in[0]) ||
        (capacity > 0 && *end - *begin > capacity)) {
        *end = *begin = 0;
    }
}

static by_status run_grouped_matmul(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by__device_tensor *a = &call->in[0];
    const by__device_tensor *b = &call->in[1];
    int64_t groups = call->in[2].shape.dim[0];
    int64_t ranges = groups / b->shape.dim[0];
    int64_t k = by__tensor_columns(a);
    int64_t n = by__tensor_columns(&call->out[0]);
    for (int64_t i = 0; i < by__tensor_count(&call->out[0]); i++) {
        by__set(&call->out[0], i, 0.0);
    }
    for (int64_t g = 0; g < groups; g++) {
        int64_t begin;
        int64_t end;
        by__cpu_reference_range(call, g, &begin, &end);
        for (int64_t at = begin * n; at < end * n; at++) {
            int64_t matrix = g / ranges * k * n;
            double sum = 0.0;
            for (int64_t i = 0; i < k; i++) {
                int64_t place = call->attrs.trans_b ? at % n * k + i : i * n + at % n;
                sum += by__get(a, at / n * k + i) * by__get(b, matrix + place);
            }
            by__set(&call->out[0], at, sum);
        }
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_GROUPED_MATMUL, grouped_matmul, NULL, run_grouped_matmul);

static by_status run_grouped_matmul_grad(const by__device_call *call,
                                         const by__device_context *context)
{
    BY_UNUSED(context);
    const by__device_tensor *a = &call->in[0];
    const by__device_tensor *b = &call->in[1];
    int64_t m = by__tensor_columns(a);
    int64_t n = by__tensor_columns(b);
    int64_t ranges = call->in[2].shape.dim[0] / call->attrs.rows;
    for (int64_t at = 0; at < by__tensor_count(&call->out[0]); at++) {
        int64_t first = at / (m * n) * ranges;
        double sum = 0.0;
        for (int64_t g = first; g < first + ranges; g++) {
            int64_t begin;
            int64_t end;
            by__cpu_reference_range(call, g, &begin, &end);
            for (int64_t row = begin; row < end; row++) {
                sum += by__get(a, row * m + at / n % m) * by__get(b, row * n + at % n);
            }
        }
        by__set(&call->out[0], at, sum);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_GROUPED_MATMUL_GRAD, grouped_matmul_grad, NULL, run_grouped_matmul_grad);
