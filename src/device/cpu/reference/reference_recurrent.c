#include <math.h>
#include <string.h>

#include "device/cpu/reference.h"

typedef struct recurrent_sizes {
    int64_t samples;
    int64_t steps;
    int64_t width; /* states */
    int64_t sums;  /* of a step */
} recurrent_sizes;

/* y: a tensor of states; hidden: the weights of the states. */
static recurrent_sizes sizes_of(const by__device_tensor *y, const by__device_tensor *hidden)
{
    return (recurrent_sizes){y->shape.dim[0], y->shape.dim[1], y->shape.dim[2],
                             hidden->shape.dim[0]};
}

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* Row `row` of the weights times entries first, first + 1, ... of a tensor, plus a bias. */
static double input_sum(const by__device_call *call, int64_t row, int64_t first)
{
    int64_t channels = call->in[1].shape.dim[1];
    double sum = by__get(&call->in[3], row);
    for (int64_t c = 0; c < channels; c++) {
        sum += by__get(&call->in[1], row * channels + c) * by__get(&call->in[0], first + c);
    }
    return sum;
}

static double hidden_sum(const by__device_call *call, int64_t row, const double *state,
                         int64_t width)
{
    double sum = by__get(&call->in[4], row);
    for (int64_t k = 0; k < width; k++) {
        sum += by__get(&call->in[2], row * width + k) * state[k];
    }
    return sum;
}

static by_status prepare(by__device_call *call, const by__device_context *context, by_error *error)
{
    BY_UNUSED(context);
    int64_t width = call->in[2].shape.dim[1];
    return by__reference_work(call, 3 * width, error); /* state before and after; cell */
}

static by_status run_lstm(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    recurrent_sizes s = sizes_of(&call->out[0], &call->in[2]);
    double *before = call->work;
    double *after = before + s.width;
    double *cell = after + s.width;
    for (int64_t row = 0; row < s.samples * s.steps; row++) { /* step by step of each sample */
        if (row % s.steps == 0) {
            memset(before, 0, 3 * (size_t)s.width * sizeof *before);
        }
        for (int64_t j = 0; j < s.width; j++) {
            double gate[4];
            for (int64_t g = 0; g < 4; g++) {
                int64_t at = g * s.width + j;
                double z = input_sum(call, at, row * call->in[0].shape.dim[2]) +
                           hidden_sum(call, at, before, s.width);
                gate[g] = g == 2 ? tanh(z) : sigmoid(z);
                by__set(&call->out[1], row * s.sums + at, gate[g]);
            }
            cell[j] = gate[1] * cell[j] + gate[0] * gate[2];
            after[j] = gate[3] * tanh(cell[j]);
            by__set(&call->out[2], row * s.width + j, cell[j]);
            by__set(&call->out[0], row * s.width + j, after[j]);
        }
        memcpy(before, after, (size_t)s.width * sizeof *before);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_LSTM, lstm, prepare, run_lstm);

static by_status run_gru(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    recurrent_sizes s = sizes_of(&call->out[0], &call->in[2]);
    double *before = call->work;
    double *after = before + s.width;
    for (int64_t row = 0; row < s.samples * s.steps; row++) {
        if (row % s.steps == 0) {
            memset(before, 0, (size_t)s.width * sizeof *before);
        }
        for (int64_t j = 0; j < s.width; j++) {
            double v[3];
            double q[3];
            for (int64_t g = 0; g < 3; g++) {
                v[g] = input_sum(call, g * s.width + j, row * call->in[0].shape.dim[2]);
                q[g] = hidden_sum(call, g * s.width + j, before, s.width);
            }
            double reset = sigmoid(v[0] + q[0]);
            double update = sigmoid(v[1] + q[1]);
            double new = tanh(v[2] + reset * q[2]);
            const double gates[4] = {reset, update, new, q[2]};
            for (int64_t g = 0; g < 4; g++) {
                by__set(&call->out[1], (row * 4 + g) * s.width + j, gates[g]);
            }
            after[j] = (1.0 - update) * new + update *before[j];
            by__set(&call->out[0], row * s.width + j, after[j]);
        }
        memcpy(before, after, (size_t)s.width * sizeof *before);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_GRU, gru, prepare, run_gru);

/* ---- gradients, from the last step to the first ---- */

static by_status prepare_grad(by__device_call *call, const by__device_context *context,
                              by_error *error)
{
    BY_UNUSED(context);
    /* Gradients of the states, what is carried on beside them, and gradients of a step's sums. */
    return by__reference_work(call, 2 * call->in[2].shape.dim[1] + call->in[2].shape.dim[0], error);
}

/* What a step's sums give the states before them. */
static void states_before(const by__device_call *call, const recurrent_sizes *s, const double *sums,
                          double *state)
{
    for (int64_t k = 0; k < s->width; k++) {
        state[k] = 0.0;
        for (int64_t row = 0; row < s->sums; row++) {
            state[k] += by__get(&call->in[2], row * s->width + k) * sums[row];
        }
    }
}

static by_status run_lstm_grad(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    recurrent_sizes s = sizes_of(&call->in[3], &call->in[2]);
    double *state = call->work;
    double *carried = state + s.width;
    double *sums = carried + s.width;
    for (int64_t row = s.samples * s.steps - 1; row >= 0; row--) {
        if (row % s.steps == s.steps - 1) {
            memset(state, 0, 2 * (size_t)s.width * sizeof *state);
        }
        for (int64_t j = 0; j < s.width; j++) {
            double g[4];
            for (int64_t i = 0; i < 4; i++) {
                g[i] = by__get(&call->in[0], row * s.sums + i * s.width + j);
            }
            double t = tanh(by__get(&call->in[1], row * s.width + j));
            double before =
                row % s.steps == 0 ? 0.0 : by__get(&call->in[1], (row - 1) * s.width + j);
            double dy = by__get(&call->in[3], row * s.width + j) + state[j];
            double dc = carried[j] + dy * g[3] * (1.0 - t * t);
            sums[j] = dc * g[2] * g[0] * (1.0 - g[0]);
            sums[s.width + j] = dc * before * g[1] * (1.0 - g[1]);
            sums[2 * s.width + j] = dc * g[0] * (1.0 - g[2] * g[2]);
            sums[3 * s.width + j] = dy * t * g[3] * (1.0 - g[3]);
            carried[j] = dc * g[1];
        }
        for (int64_t i = 0; i < s.sums; i++) {
            by__set(&call->out[0], row * s.sums + i, sums[i]);
        }
        states_before(call, &s, sums, state);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_LSTM_GRAD, lstm_grad, prepare_grad, run_lstm_grad);

static by_status run_gru_grad(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    recurrent_sizes s = sizes_of(&call->in[3], &call->in[2]);
    double *state = call->work;
    double *carried = state + s.width;
    double *sums = carried + s.width;
    for (int64_t row = s.samples * s.steps - 1; row >= 0; row--) {
        if (row % s.steps == s.steps - 1) {
            memset(state, 0, 2 * (size_t)s.width * sizeof *state);
        }
        for (int64_t j = 0; j < s.width; j++) {
            double g[4];
            for (int64_t i = 0; i < 4; i++) {
                g[i] = by__get(&call->in[0], (row * 4 + i) * s.width + j);
            }
            double before =
                row % s.steps == 0 ? 0.0 : by__get(&call->in[1], (row - 1) * s.width + j);
            double dy = by__get(&call->in[3], row * s.width + j) + state[j] + carried[j];
            double dn = dy * (1.0 - g[1]) * (1.0 - g[2] * g[2]);
            sums[j] = dn * g[3] * g[0] * (1.0 - g[0]);
            sums[s.width + j] = dy * (before - g[2]) * g[1] * (1.0 - g[1]);
            sums[2 * s.width + j] = dn * g[0];
            carried[j] = dy * g[1];
            for (int64_t i = 0; i < 3; i++) {
                int64_t at = row * s.sums + i * s.width + j;
                by__set(&call->out[0], at, i == 2 ? dn : sums[i * s.width + j]);
                by__set(&call->out[1], at, sums[i * s.width + j]);
            }
        }
        states_before(call, &s, sums, state);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_GRU_GRAD, gru_grad, prepare_grad, run_gru_grad);
