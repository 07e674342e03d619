/* Checksummed matrix products: algorithm-based fault tolerance (Huang and Abraham 1984), after
 * every product of the forward and the backward pass.
 *
 * Of Y = A B + bias + add with M rows, N columns and inner size K, the column sums of Y are
 * compared with those computed from the operands:
 *
 *     c_j = sum_i Y_ij          e_j = sum_k (sum_i A_ik) B_kj + M bias_j + sum_i add_ij
 *
 * which takes M K + K N + M N operations in addition to the 2 M N K of the product. Both sums are
 * in double.
 *
 * Bound. The kernel forms Y_ij in f32 from products that are exact (of bf16) or rounded once, in
 * any order, and rounds the result to the format of Y. With u = 2^-24, gamma_n = n u / (1 - n u),
 *
 *   |Y_ij - (A B + bias + add)_ij| <= gamma_(2K+4) (|A| |B| + |bias| + |add|)_ij + v |Y_ij|
 *
 * (Higham 2002, section 3.5; 2 K since the bf16 instructions of a processor may round a product and
 * its sum apart), where v is 2^-8, 2^-11 or 0 for bf16, f16 or f32. Its sum over i bounds |c_j -
 * e_j| except for the rounding of the sums in double, which (M + K + 8) 2^-52 of the same sums of
 * absolute values covers; values below the smallest normal number may be flushed to zero, which
 * adds (K + 2) M 2^-126. A difference above the bound cannot be rounding, so there are no false
 * alarms. A fault that changes Y_ij by more than twice the bound of its column is detected. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "ops/row.h"
#include "trainer/probes/finding.h"
#include "trainer/probes/node_watch.h"
#include "trainer/probes/probes.h"

/* Sums of a matrix's values and of their absolute values. */
typedef struct sums {
    double *value;
    double *absolute;
} sums;

struct by__trainer_abft {
    by_trainer *t;
    sums inner;    /* of A: one per inner index */
    sums expected; /* one per column */
    sums made;
    by__trainer_finding first;
};

typedef struct abft_matrix {
    const by__device_tensor *x;
    int64_t rows; /* as stored */
    int64_t columns;
} abft_matrix;

static abft_matrix matrix_of(const by__device_tensor *x)
{
    int64_t columns = x->shape.dim[x->shape.rank - 1];
    return (abft_matrix){x, by_shape_count(&x->shape) / columns, columns};
}

#define PIECE 512 /* columns whose sums stay in the first-level cache */

static void load(float *out, const by__device_tensor *x, int64_t at, int64_t count)
{
    const uint16_t *halves = x->data;
    if (x->dtype == BY_F32) {
        memcpy(out, (const float *)x->data + at, (size_t)count * sizeof *out);
    } else if (x->dtype == BY_BF16) {
        for (int64_t i = 0; i < count; i++) {
            out[i] = by__bf16_to_f32(halves[at + i]);
        }
    } else {
        for (int64_t i = 0; i < count; i++) {
            out[i] = by__f16_to_f32(halves[at + i]);
        }
    }
}

static int64_t piece_at(const abft_matrix *m, int64_t first)
{
    return m->columns - first < PIECE ? m->columns - first : PIECE;
}

/* out_j += sum_r w_r x_rj, and the same of absolute values; w NULL: 1. */
static void add_rows(const abft_matrix *m, const sums *w, sums out, int threads)
{
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t first = 0; first < m->columns; first += PIECE) {
        float x[PIECE];
        double *value = out.value + first;
        double *absolute = out.absolute + first;
        int64_t count = piece_at(m, first);
        for (int64_t r = 0; r < m->rows; r++) {
            double by = w == NULL ? 1.0 : w->value[r];
            double absolute_by = w == NULL ? 1.0 : w->absolute[r];
            load(x, m->x, r * m->columns + first, count);
#pragma omp simd
            for (int64_t j = 0; j < count; j++) {
                value[j] += by * (double)x[j];
                absolute[j] += absolute_by * (double)fabsf(x[j]);
            }
        }
    }
}

/* out_r += sum_j w_j x_rj, and the same of absolute values; w NULL: 1. */
static void add_columns(const abft_matrix *m, const sums *w, sums out, int threads)
{
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t r = 0; r < m->rows; r++) {
        double sum = 0.0;
        double absolute = 0.0;
        for (int64_t first = 0; first < m->columns; first += PIECE) {
            float x[PIECE];
            int64_t count = piece_at(m, first);
            load(x, m->x, r * m->columns + first, count);
#pragma omp simd reduction(+ : sum, absolute)
            for (int64_t j = 0; j < count; j++) {
                sum += (w == NULL ? 1.0 : w->value[first + j]) * (double)x[j];
                absolute += (w == NULL ? 1.0 : w->absolute[first + j]) * (double)fabsf(x[j]);
            }
        }
        out.value[r] += sum;
        out.absolute[r] += absolute;
    }
}

static void clear(sums s, int64_t count)
{
    memset(s.value, 0, (size_t)count * sizeof *s.value);
    memset(s.absolute, 0, (size_t)count * sizeof *s.absolute);
}

static bool has_operand(const by__device_call *call, int i)
{
    return i < call->input_count && call->in[i].shape.rank >= 0 && call->in[i].data != NULL;
}

static double rounding_of(by_dtype dtype)
{
    return dtype == BY_BF16 ? 0x1p-8 : dtype == BY_F16 ? 0x1p-11 : 0.0;
}

/* The first column whose sum differs from the operands'; -1: none. */
static int64_t check(by__trainer_abft *a, const by__device_call *call, double *off, double *most)
{
    abft_matrix left = matrix_of(&call->in[0]);
    abft_matrix right = matrix_of(&call->in[1]);
    abft_matrix y = matrix_of(&call->out[0]);
    int threads = a->t->threads;
    int64_t k = call->attrs.trans_a ? left.rows : left.columns;
    clear(a->inner, k);
    clear(a->expected, y.columns);
    clear(a->made, y.columns);
    (call->attrs.trans_a ? add_columns : add_rows)(&left, NULL, a->inner, threads);
    (call->attrs.trans_b ? add_columns : add_rows)(&right, &a->inner, a->expected, threads);
    if (has_operand(call, 3)) {
        abft_matrix add = matrix_of(&call->in[3]);
        add_rows(&add, NULL, a->expected, threads);
    }
    add_rows(&y, NULL, a->made, threads);
    double n = 2.0 * (double)k + 4.0;
    double gamma = n * 0x1p-24 / (1.0 - n * 0x1p-24);
    double sums_off = (double)(y.rows + k + 8) * 0x1p-52;
    double tiny = call->out[0].dtype == BY_F16 ? 0x1p-25 : 0.0; /* results below 2^-14 */
    double flushed = (double)y.rows * ((double)(k + 2) * 0x1p-126 + tiny);
    double largest = call->out[0].dtype == BY_F16 ? 65504.0 : (double)FLT_MAX;
    for (int64_t j = 0; j < y.columns; j++) {
        float bias_j = 0.0f;
        if (has_operand(call, 2)) {
            load(&bias_j, &call->in[2], j, 1);
        }
        double bias = (double)y.rows * (double)bias_j;
        double whole = a->expected.absolute[j] + fabs(bias);
        double bound = (gamma + sums_off) * whole +
                       (rounding_of(call->out[0].dtype) + sums_off) * a->made.absolute[j] + flushed;
        double difference = fabs(a->made.value[j] - a->expected.value[j] - bias);
        /* An overflow is not finite, which the norm detects, and not a fault of the product. */
        if (difference > bound ||
            (!isfinite(a->made.absolute[j]) && isfinite(whole) && whole < largest / 4.0)) {
            *off = difference;
            *most = bound;
            return j;
        }
    }
    return -1;
}

static void check_node(void *user, const by__exec_program_row *row, size_t node,
                       const by__device_call *call)
{
    by__trainer_abft *a = user;
    char what[160];
    double off;
    double most;
    bool overwritten = has_operand(call, 3) && call->in[3].data == call->out[0].data;
    if (!by__op_row_of(call->op)->is_product || overwritten || a->first.leaf != INT64_MAX) {
        return;
    }
    int64_t column = check(a, call, &off, &most);
    if (column >= 0) {
        a->first = (by__trainer_finding){.leaf = a->t->feed.leaf,
                                         .part = a->t->strategy->part(a->t, row),
                                         .node = (int64_t)node,
                                         .row = -1};
        by__trainer_node_watch_describe(row, node, what, sizeof what);
        (void)snprintf(a->first.what, sizeof a->first.what,
                       "%s, column %lld: off by %.3g, rounding is at most %.3g", what,
                       (long long)column, off, most);
    }
}

static by_status allocate(sums *out, int64_t count, by_error *error)
{
    BY_TRY(by__alloc((void **)&out->value, (size_t)count, sizeof *out->value, "guards", error));
    return by__alloc((void **)&out->absolute, (size_t)count, sizeof *out->absolute, "guards",
                     error);
}

/* The largest inner size and the most columns of a product. */
static void measure(const by_trainer *t, int64_t *inner, int64_t *columns)
{
    *inner = 1;
    *columns = 1;
    for (size_t p = 0; p < t->programs.count; p++) {
        const by_graph *graph = t->programs.rows[p]->graph;
        for (size_t n = 0; n < graph->node_count; n++) {
            const by__graph_node *node = &graph->nodes[n];
            if (!by__op_row_of(node->op)->is_product) {
                continue;
            }
            const by_shape *a = &graph->values[node->in[0]].shape;
            const by_shape *y = &graph->values[node->out[0]].shape;
            int64_t last = a->dim[a->rank - 1];
            int64_t k = node->attrs.trans_a ? by_shape_count(a) / last : last;
            *inner = k > *inner ? k : *inner;
            *columns = y->dim[y->rank - 1] > *columns ? y->dim[y->rank - 1] : *columns;
        }
    }
}

size_t by__trainer_abft_bytes(const by_trainer *t)
{
    int64_t inner;
    int64_t columns;
    if (t->config->guard.abft == 0) {
        return 0;
    }
    measure(t, &inner, &columns);
    return (size_t)(inner + 2 * columns) * 2 * sizeof(double);
}

by_status by__trainer_abft_open(by_trainer *t, by_error *error)
{
    int64_t inner;
    int64_t columns;
    if (t->config->guard.abft == 0) {
        return BY_OK;
    }
    measure(t, &inner, &columns);
    BY_TRY(by__alloc((void **)&t->probes.abft, 1, sizeof *t->probes.abft, "guards", error));
    t->probes.abft->t = t;
    t->probes.abft->first = (by__trainer_finding){.leaf = INT64_MAX};
    BY_TRY(allocate(&t->probes.abft->inner, inner, error));
    BY_TRY(allocate(&t->probes.abft->expected, columns, error));
    BY_TRY(allocate(&t->probes.abft->made, columns, error));
    return by__trainer_node_watch_set(t, BY__WATCH_ABFT, check_node, t->probes.abft, error);
}

by_status by__trainer_abft_verdict(by_trainer *t, by_error *error)
{
    int32_t rank;
    if (t->probes.abft == NULL) {
        return BY_OK;
    }
    BY_TRY(by__device_queue_finish(t->device, BY__QUEUE_COMPUTE, error));
    BY_TRY(by__trainer_node_watch_failure(t, error));
    BY_TRY(by__trainer_finding_share(t, &t->probes.abft->first, &rank, error));
    if (t->probes.abft->first.leaf == INT64_MAX) {
        return BY_OK;
    }
    return by_error_set(
        error, BY_ECORRUPT,
        "step %lld, micro-batch %lld: rank %d (%s) computed a wrong matrix product: %s; the step "
        "was not applied; a hardware fault of that machine is suspected",
        (long long)t->steps.updates + 1, (long long)t->probes.abft->first.leaf, (int)rank,
        t->ranks.all == NULL ? "this machine" : by_comm_host(t->ranks.all, rank),
        t->probes.abft->first.what);
}

void by__trainer_abft_close(by_trainer *t)
{
    by__trainer_abft *a = t->probes.abft;
    if (a == NULL) {
        return;
    }
    const sums all[] = {a->inner, a->expected, a->made};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(all); i++) {
        free(all[i].value);
        free(all[i].absolute);
    }
    free(a);
    t->probes.abft = NULL;
}
