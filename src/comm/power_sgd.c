#include "comm/power_sgd.h"

#include <math.h>
#include <string.h>

/* Independent sums per loop: their number fixes the order of additions. */
#define LANES 16

static double dot(const float *a, const float *b, size_t count)
{
    double lanes[LANES] = {0.0};
    double sum = 0.0;
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        for (size_t k = 0; k < LANES; k++) {
            lanes[k] += (double)a[i + k] * (double)b[i + k];
        }
    }
    for (; i < count; i++) {
        lanes[i % LANES] += (double)a[i] * (double)b[i];
    }
    for (size_t k = 0; k < LANES; k++) {
        sum += lanes[k];
    }
    return sum;
}

/* y += s x */
static void add_scaled(float *y, float s, const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        y[i] += s * x[i];
    }
}

void by__comm_power_begin(float *q, size_t columns, size_t rank, uint64_t seed, uint32_t tensor)
{
    uint32_t key[2];
    by__philox_key(key, seed, tensor);
    for (size_t i = 0; i < columns * rank; i++) {
        uint32_t bits[4];
        const uint32_t counter[4] = {(uint32_t)i, (uint32_t)((uint64_t)i >> 32), 0, 0};
        by__philox(bits, key, counter);
        /* A sum of uniform values is close enough to normal: only the directions of the columns
         * matter. */
        q[i] = by__unit_float(bits[0]) + by__unit_float(bits[1]) - by__unit_float(bits[2]) -
               by__unit_float(bits[3]);
    }
}

void by__comm_power_left(const float *m, size_t rows, size_t columns, size_t rank, const float *q,
                         float *p)
{
    for (size_t i = 0; i < rows; i++) {
        for (size_t k = 0; k < rank; k++) {
            p[k * rows + i] = (float)dot(m + i * columns, q + k * columns, columns);
        }
    }
}

void by__comm_power_orthonormalize(float *p, size_t rows, size_t rank)
{
    for (size_t k = 0; k < rank; k++) {
        float *column = p + k * rows;
        double before = sqrt(dot(column, column, rows));
        for (size_t j = 0; j < k; j++) {
            const float *other = p + j * rows;
            add_scaled(column, -(float)dot(column, other, rows), other, rows);
        }
        double norm = sqrt(dot(column, column, rows));
        /* What rounding leaves of a linearly dependent column is not a direction. */
        float inverse = norm > 1e-6 * before && norm > 0.0 ? (float)(1.0 / norm) : 0.0f;
        inverse = isfinite(before) ? inverse : NAN;
        for (size_t i = 0; i < rows; i++) {
            column[i] = inverse == 0.0f ? 0.0f : column[i] * inverse;
        }
    }
}

void by__comm_power_right(const float *m, size_t rows, size_t columns, size_t rank, const float *p,
                          float *q)
{
    memset(q, 0, rank * columns * sizeof *q);
    for (size_t i = 0; i < rows; i++) {
        for (size_t k = 0; k < rank; k++) {
            add_scaled(q + k * columns, p[k * rows + i], m + i * columns, columns);
        }
    }
}

void by__comm_power_product(const float *p, const float *q, size_t rows, size_t columns,
                            size_t rank, float *out)
{
    memset(out, 0, rows * columns * sizeof *out);
    for (size_t i = 0; i < rows; i++) {
        for (size_t k = 0; k < rank; k++) {
            add_scaled(out + i * columns, p[k * rows + i], q + k * columns, columns);
        }
    }
}
