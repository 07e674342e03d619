#include <math.h>
#include <string.h>

#include "device/cpu/reference.h"

enum { X, W, TARGETS, HIDDEN, HEAD, IDS, LOGITS, DLOSS };

/* softmax(z / temperature) of n logits; minus infinity: not among them. Returns the logarithm of
 * the sum. */
static double soften(double *p, const double *z, int64_t n, double temperature)
{
    double highest = -INFINITY;
    double sum = 0.0;
    for (int64_t v = 0; v < n; v++) {
        highest = z[v] > highest ? z[v] : highest;
    }
    for (int64_t v = 0; v < n; v++) {
        sum += p[v] = exp((z[v] - highest) / temperature);
    }
    for (int64_t v = 0; v < n; v++) {
        p[v] /= sum;
    }
    return highest / temperature + log(sum);
}

static void multiply(double *z, const by__tensor *x, const by__tensor *w, int64_t row)
{
    int64_t columns = by__tensor_columns(x);
    for (int64_t v = 0; v < by__tensor_rows(w); v++) {
        z[v] = 0.0;
        for (int64_t i = 0; i < columns; i++) {
            z[v] += by__get(x, row * columns + i) * by__get(w, v * columns + i);
        }
    }
}

static void teach(double *y, const by__call *call, int64_t row)
{
    if (call->in[HIDDEN].data != NULL) {
        multiply(y, &call->in[HIDDEN], &call->in[HEAD], row);
        return;
    }
    int64_t k = by__tensor_columns(&call->in[IDS]);
    for (int64_t v = 0; v < by__tensor_rows(&call->in[W]); v++) {
        y[v] = -INFINITY;
    }
    for (int64_t i = 0; i < k; i++) {
        y[by__id(&call->in[IDS], row * k + i)] = by__get(&call->in[LOGITS], row * k + i);
    }
}

/* The loss of a row; its gradient by the logits replaces z. y, p, q: scratch of V each. */
static double run_row(const by__call *call, int64_t row, double *z, double *y, double *p, double *q)
{
    int64_t n = by__tensor_rows(&call->in[W]);
    double t = (double)call->attrs.theta;
    double share = (double)call->attrs.p;
    int32_t target = by__id(&call->in[TARGETS], row);
    if (target < 0 || target >= n) {
        memset(z, 0, (size_t)n * sizeof *z);
        return 0.0;
    }
    multiply(z, &call->in[X], &call->in[W], row);
    teach(y, call, row);
    double student = soften(p, z, n, t);
    double teacher = soften(q, y, n, t);
    double divergence = 0.0;
    for (int64_t v = 0; v < n; v++) {
        divergence += q[v] > 0.0 ? q[v] * ((y[v] - z[v]) / t + student - teacher) : 0.0;
        q[v] = share * t * (p[v] - q[v]);
    }
    double hard = soften(p, z, n, 1.0) - z[target];
    for (int64_t v = 0; v < n; v++) {
        z[v] = q[v] + (1.0 - share) * (p[v] - (v == target ? 1.0 : 0.0));
    }
    return (1.0 - share) * hard + share * t * t * divergence;
}

static by_status prepare(by__call *call, const by__context *context, by_error *error)
{
    BY_UNUSED(context);
    const by__tensor *w = &call->in[W];
    return by__reference_work(
        call, by__tensor_rows(w) * (4 + by__tensor_columns(w)) + by__tensor_columns(w), error);
}

static by_status run(const by__call *call, const by__context *context)
{
    const by__tensor *x = &call->in[X];
    int64_t n = by__tensor_rows(&call->in[W]);
    int64_t columns = by__tensor_columns(x);
    bool train = call->op == BY_OP_LINEAR_DISTILL_TRAIN;
    bool forward = call->op == BY_OP_LINEAR_DISTILL;
    double dloss = forward ? 0.0 : by__get(&call->in[DLOSS], 0);
    double loss = 0.0;
    double *z = call->work;
    double *dw = z + 4 * n;
    double *dx = dw + n * columns;
    BY_UNUSED(context);
    memset(dw, 0, (size_t)(n * columns) * sizeof *dw);
    for (int64_t row = 0; row < by__tensor_rows(x); row++) {
        loss += run_row(call, row, z, z + n, z + 2 * n, z + 3 * n);
        memset(dx, 0, (size_t)columns * sizeof *dx);
        for (int64_t v = 0; v < n && !forward; v++) {
            for (int64_t i = 0; i < columns; i++) {
                dx[i] += z[v] * dloss * by__get(&call->in[W], v * columns + i);
                dw[v * columns + i] += z[v] * dloss * by__get(x, row * columns + i);
            }
        }
        for (int64_t i = 0; i < columns && !forward; i++) {
            by__set(&call->out[train ? 1 : 0], row * columns + i, dx[i]);
        }
    }
    for (int64_t i = 0; i < n * columns && !forward; i++) {
        by__set(&call->out[train ? 2 : 1], i, dw[i]);
    }
    if (forward || train) {
        by__set(&call->out[0], 0, loss);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_LINEAR_DISTILL, linear_distill, prepare, run);
BY__REFERENCE_KERNEL(BY_OP_LINEAR_DISTILL_GRAD, linear_distill_grad, prepare, run);
BY__REFERENCE_KERNEL(BY_OP_LINEAR_DISTILL_TRAIN, linear_distill_train, prepare, run);
