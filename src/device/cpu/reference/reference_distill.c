#include <math.h>
#include <string.h>

#include "device/cpu/reference.h"

enum { X, W, TARGETS, HIDDEN, HEAD, IDS, LOGARITHMS, DLOSS };

/* softmax(z / temperature) of n logits. Returns the logarithm of the sum. */
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

static void multiply(double *z, const by__device_tensor *x, const by__device_tensor *w, int64_t row)
{
    int64_t columns = by__tensor_columns(x);
    for (int64_t v = 0; v < by__tensor_rows(w); v++) {
        z[v] = 0.0;
        for (int64_t i = 0; i < columns; i++) {
            z[v] += by__get(x, row * columns + i) * by__get(w, v * columns + i);
        }
    }
}

/* KL(teacher || student) of a row: p are the student's softened probabilities, z its logits over
 * the temperature minus their log-sum-exp. r becomes the gradient by these logits. */
static double diverge_live(double *r, const by__device_call *call, int64_t row, const double *p,
                           const double *z, double *y)
{
    int64_t n = by__tensor_rows(&call->in[W]);
    double t = (double)call->attrs.theta;
    double sum = 0.0;
    multiply(y, &call->in[HIDDEN], &call->in[HEAD], row);
    double all = soften(r, y, n, t);
    for (int64_t v = 0; v < n; v++) {
        sum += r[v] * (y[v] / t - all - z[v]);
        r[v] = p[v] - r[v];
    }
    return sum;
}

/* The logarithm of the sum of exp(z) over the tokens of an event. */
static double log_mass(const double *z, const double *event, double wanted, int64_t n)
{
    double highest = -INFINITY;
    double sum = 0.0;
    for (int64_t v = 0; v < n; v++) {
        highest = event[v] == wanted && z[v] > highest ? z[v] : highest;
    }
    for (int64_t v = 0; v < n; v++) {
        sum += event[v] == wanted ? exp(z[v] - highest) : 0.0;
    }
    return highest + log(sum);
}

/* The same for stored probabilities: of some tokens, and of all others as one event. event: which
 * event each token belongs to. */
static double diverge_stored(double *r, const by__device_call *call, int64_t row, const double *p,
                             const double *z, double *event)
{
    int64_t n = by__tensor_rows(&call->in[W]);
    int64_t k = by__tensor_columns(&call->in[IDS]);
    int64_t events = k < n ? k + 1 : k;
    double all = 0.0;
    double sum = 0.0;
    for (int64_t v = 0; v < n; v++) {
        event[v] = (double)k;
    }
    for (int64_t i = 0; i < k; i++) {
        event[by__id(&call->in[IDS], row * k + i)] = (double)i;
    }
    for (int64_t i = 0; i < events; i++) {
        all += exp(by__get(&call->in[LOGARITHMS], row * (k + 1) + i));
    }
    for (int64_t v = 0; v < n; v++) {
        r[v] = all * p[v];
    }
    for (int64_t i = 0; i < events; i++) {
        double logarithm = by__get(&call->in[LOGARITHMS], row * (k + 1) + i);
        double q = exp(logarithm);
        double mass = log_mass(z, event, (double)i, n);
        for (int64_t v = 0; v < n && q > 0.0; v++) {
            r[v] -= event[v] == (double)i ? q * exp(z[v] - mass) : 0.0;
        }
        sum += q > 0.0 ? q * (logarithm - mass) : 0.0;
    }
    return sum;
}

/* Returns the loss of a row; its gradient by the logits replaces z. y, p, q and the space after
 * them: scratch of V each. */
static double run_row(const by__device_call *call, int64_t row, double *z, double *y, double *p,
                      double *q)
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
    double hard = soften(p, z, n, 1.0) - z[target];
    double all = soften(p, z, n, t);
    double *softened = y + 3 * n;
    for (int64_t v = 0; v < n; v++) {
        softened[v] = z[v] / t - all;
    }
    double divergence = call->in[HIDDEN].data != NULL
                            ? diverge_live(q, call, row, p, softened, y)
                            : diverge_stored(q, call, row, p, softened, y);
    for (int64_t v = 0; v < n; v++) {
        q[v] *= share * t;
    }
    (void)soften(p, z, n, 1.0);
    for (int64_t v = 0; v < n; v++) {
        z[v] = q[v] + (1.0 - share) * (p[v] - (v == target ? 1.0 : 0.0));
    }
    return (1.0 - share) * hard + share * t * t * divergence;
}

static by_status prepare(by__device_call *call, const by__device_context *context, by_error *error)
{
    BY_UNUSED(context);
    const by__device_tensor *w = &call->in[W];
    return by__reference_work(
        call, by__tensor_rows(w) * (5 + by__tensor_columns(w)) + by__tensor_columns(w), error);
}

static by_status run_distill(const by__device_call *call, const by__device_context *context)
{
    const by__device_tensor *x = &call->in[X];
    int64_t n = by__tensor_rows(&call->in[W]);
    int64_t columns = by__tensor_columns(x);
    bool train = call->op == BY_OP_LINEAR_DISTILL_TRAIN;
    bool forward = call->op == BY_OP_LINEAR_DISTILL;
    double dloss = forward ? 0.0 : by__get(&call->in[DLOSS], 0);
    double loss = 0.0;
    double *z = call->work;
    double *dw = z + 5 * n;
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

BY__REFERENCE_KERNEL(BY_OP_LINEAR_DISTILL, linear_distill, prepare, run_distill);
BY__REFERENCE_KERNEL(BY_OP_LINEAR_DISTILL_GRAD, linear_distill_grad, prepare, run_distill);
BY__REFERENCE_KERNEL(BY_OP_LINEAR_DISTILL_TRAIN, linear_distill_train, prepare, run_distill);
