/* Layer norm and RMS norm. A row is read again from the first-level cache by each pass over it. */
#include "functions.cuh"

/* Calls what(v, k, i) for the thread's elements i of a row, as v[k]: 8 neighbours at a time where
 * rows begin at multiples of 16 bytes. */
__device__ bool by__row_vectors(int64_t columns)
{
    return columns % BY__EACH == 0;
}

BY__KERNEL(norm, 256)
{
    by__team team = by__row_team(a.wide != 0);
    int64_t at = team.row * a.columns;
    int64_t step = by__row_vectors(a.columns) ? BY__EACH : 1;
    int64_t end = at + a.columns;
    if (team.row >= a.rows) {
        return;
    }
    float v[BY__EACH];
    float mean = 0.0f;
    if (a.b != nullptr) {
        float sum = 0.0f;
        for (int64_t i = at + team.lane * step; i < end; i += team.lanes * step) {
            by__get_some(v, a.x, a.dtype, i, step == 1 ? i + 1 : end);
            for (int k = 0; k < BY__EACH; k++) {
                sum += v[k];
            }
        }
        mean = by__team_sum(team, sum) / (float)a.columns;
    }
    float squares = 0.0f;
    for (int64_t i = at + team.lane * step; i < end; i += team.lanes * step) {
        by__get_some(v, a.x, a.dtype, i, step == 1 ? i + 1 : end);
        for (int k = 0; k < BY__EACH; k++) {
            float d = v[k] - mean;
            squares += step == 1 && k > 0 ? 0.0f : d * d;
        }
    }
    float variance = by__team_sum(team, squares) / (float)a.columns;
    float rstd = 1.0f / by__root(variance + a.eps);
    for (int64_t i = at + team.lane * step; i < end; i += team.lanes * step) {
        int64_t n = step == 1 ? i + 1 : end;
        float w[BY__EACH];
        by__get_some(v, a.x, a.dtype, i, n);
        by__get_some(w, a.w, BY__F32, i - at, n - at);
        for (int k = 0; k < BY__EACH; k++) {
            v[k] = (v[k] - mean) * rstd * w[k];
        }
        if (a.b != nullptr) {
            by__get_some(w, a.b, BY__F32, i - at, n - at);
            for (int k = 0; k < BY__EACH; k++) {
                v[k] += w[k];
            }
        }
        by__put_some(a.y, a.dtype, i, n, v);
    }
    if (team.lane == 0) {
        if (a.b != nullptr) {
            a.mean[team.row] = mean;
        }
        a.rstd[team.row] = rstd;
    }
}

/* With n the normal row and g = dy w: dx = rstd (g - mean(g) - n mean(g n)), without mean(g) for
 * RMS norm. */
BY__KERNEL(norm_grad, 256)
{
    by__team team = by__row_team(a.wide != 0);
    int64_t at = team.row * a.columns;
    int64_t step = by__row_vectors(a.columns) ? BY__EACH : 1;
    int64_t end = at + a.columns;
    if (team.row >= a.rows) {
        return;
    }
    float mean = a.mean == nullptr ? 0.0f : a.mean[team.row];
    float rstd = a.rstd[team.row];
    float x[BY__EACH];
    float g[BY__EACH];
    float w[BY__EACH];
    float sum = 0.0f;
    float product = 0.0f;
    for (int64_t i = at + team.lane * step; i < end; i += team.lanes * step) {
        int64_t n = step == 1 ? i + 1 : end;
        by__get_some(x, a.x, a.dtype, i, n);
        by__get_some(g, a.dy, a.dtype, i, n);
        by__get_some(w, a.w, BY__F32, i - at, n - at);
        for (int k = 0; k < BY__EACH; k++) {
            float d = g[k] * w[k];
            sum += d;
            product = by__fma(d, (x[k] - mean) * rstd, product);
        }
    }
    float mean_g = 0.0f;
    if (a.mean != nullptr) {
        mean_g = by__team_sum(team, sum) / (float)a.columns;
    }
    float mean_gn = by__team_sum(team, product) / (float)a.columns;
    for (int64_t i = at + team.lane * step; i < end; i += team.lanes * step) {
        int64_t n = step == 1 ? i + 1 : end;
        by__get_some(x, a.x, a.dtype, i, n);
        by__get_some(g, a.dy, a.dtype, i, n);
        by__get_some(w, a.w, BY__F32, i - at, n - at);
        for (int k = 0; k < BY__EACH; k++) {
            float normal = (x[k] - mean) * rstd;
            g[k] = rstd * (by__fma(-normal, mean_gn, g[k] * w[k]) - mean_g);
        }
        if (a.add != nullptr) {
            by__get_some(w, a.add, a.dtype, i, n);
            for (int k = 0; k < BY__EACH; k++) {
                g[k] += w[k];
            }
        }
        by__put_some(a.dx, a.dtype, i, n, g);
    }
}

/* A thread has one column of its block's rows: neighbours read neighbouring elements. */
BY__KERNEL(norm_weights, 256)
{
    int64_t column = (int64_t)blockIdx.y * 256 + threadIdx.x;
    int64_t first = (int64_t)blockIdx.x * BY__CUDA_SUM_ROWS;
    int64_t last = first + BY__CUDA_SUM_ROWS < a.rows ? first + BY__CUDA_SUM_ROWS : a.rows;
    float dw = 0.0f;
    float db = 0.0f;
    if (column >= a.columns) {
        return;
    }
    for (int64_t row = first; row < last; row++) {
        float mean = a.mean == nullptr ? 0.0f : a.mean[row];
        float normal = (by__get(a.x, a.dtype, row * a.columns + column) - mean) * a.rstd[row];
        float dy = by__get(a.dy, a.dtype, row * a.columns + column);
        dw = by__fma(dy, normal, dw);
        db += dy;
    }
    a.dw[(int64_t)blockIdx.x * a.columns + column] = dw;
    if (a.db != nullptr) {
        a.db[(int64_t)blockIdx.x * a.columns + column] = db;
    }
}
