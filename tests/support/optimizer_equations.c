#include "optimizer_equations.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runner.h"

/* p (1 - eta lambda) - step: decoupled decay (Loshchilov & Hutter 2019). */
static double decayed(const optimizer_step *u, int64_t i, double step)
{
    return u->p[i] * (1.0 - u->lr * u->lr_scale * u->decay) - step;
}

static double norm_of(const double *x, int64_t count)
{
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) {
        sum += x[i] * x[i];
    }
    return sqrt(sum);
}

double *optimizer_zeros(int64_t count)
{
    double *values = calloc((size_t)count, sizeof *values);
    assert_non_null(values);
    return values;
}

/* Loshchilov & Hutter 2019, algorithm 2; betas 0.9 and 0.99, eps 1e-8. */
static void adamw(const optimizer_step *u)
{
    double t = (double)u->number;
    for (int64_t i = 0; i < u->count; i++) {
        double *m = &u->state[0][i];
        double *v = &u->state[1][i];
        *m = 0.9 * *m + 0.1 * u->g[i];
        *v = 0.99 * *v + 0.01 * u->g[i] * u->g[i];
        double root = sqrt(*v / (1.0 - pow(0.99, t))) + 1e-8;
        u->p[i] = decayed(u, i, u->lr * *m / (1.0 - pow(0.9, t)) / root);
    }
}

/* torch.optim.Adam: the same, of a gradient with weight decay; betas 0.9 and 0.999. */
static void adam(const optimizer_step *u)
{
    double t = (double)u->number;
    for (int64_t i = 0; i < u->count; i++) {
        double *m = &u->state[0][i];
        double *v = &u->state[1][i];
        double g = u->g[i] + u->decay * u->p[i];
        *m = 0.9 * *m + 0.1 * g;
        *v = 0.999 * *v + 0.001 * g * g;
        double root = sqrt(*v / (1.0 - pow(0.999, t))) + 1e-8;
        u->p[i] -= u->lr * u->lr_scale * *m / (1.0 - pow(0.9, t)) / root;
    }
}

/* bitsandbytes.functional.create_dynamic_map(signed, max_exponent_bits=7, total_bits=8). */
static void dynamic_map(double map[256], bool is_signed)
{
    size_t count = 0;
    for (int i = 0; i < 7; i++) {
        int items = (is_signed ? 1 : 2) << i;
        for (int k = 0; k < items; k++) {
            double low = 0.1 + 0.9 * k / items;
            double high = 0.1 + 0.9 * (k + 1) / items;
            map[count++] = pow(10.0, i - 6) * (low + high) / 2.0;
            if (is_signed) {
                map[count] = -map[count - 1];
                count++;
            }
        }
    }
    map[count++] = 0.0;
    map[count++] = 1.0;
    assert_int_equal(count, 256);
    for (size_t i = 1; i < count; i++) { /* ascending */
        double x = map[i];
        size_t k = i;
        for (; k > 0 && map[k - 1] > x; k--) {
            map[k] = map[k - 1];
        }
        map[k] = x;
    }
}

static double nearest(const double map[256], double x)
{
    int low = 0;
    int high = 255;
    while (low < high) {
        int middle = (low + high) / 2;
        if ((map[middle] + map[middle + 1]) / 2.0 < x) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* A block of one moment as codes and the largest magnitude. */
static void encode_block(const double map[256], const double *moments, int64_t count, double *codes,
                         double *scale)
{
    *scale = 0.0;
    for (int64_t i = 0; i < count; i++) {
        *scale = fmax(*scale, fabs(moments[i]));
    }
    for (int64_t i = 0; i < count; i++) {
        codes[i] = nearest(map, *scale > 0.0 ? moments[i] / *scale : 0.0);
    }
}

/* Dettmers et al. 2022, section 2: AdamW on moments that are decoded before an update and encoded
 * behind it, in blocks of 256; below 4096 elements they are not. */
static void adamw8bit(const optimizer_step *u)
{
    double map[2][256];
    double t = (double)u->number;
    if (u->count < 4096) {
        adamw(u);
        return;
    }
    dynamic_map(map[0], true);
    dynamic_map(map[1], false);
    for (int64_t first = 0; first < u->count; first += 256) {
        double m[2][256];
        int64_t count = u->count - first < 256 ? u->count - first : 256;
        for (int64_t k = 0; k < count; k++) {
            int64_t i = first + k;
            for (int s = 0; s < 2; s++) {
                double decoded = map[s][(int)u->state[2 + s][i]] * u->state[4 + s][first / 256];
                m[s][k] = s == 0 ? 0.9 * decoded + 0.1 * u->g[i]
                                 : 0.99 * decoded + 0.01 * u->g[i] * u->g[i];
            }
            double root = sqrt(m[1][k] / (1.0 - pow(0.99, t))) + 1e-8;
            u->p[i] = decayed(u, i, u->lr * m[0][k] / (1.0 - pow(0.9, t)) / root);
        }
        for (int s = 0; s < 2; s++) {
            encode_block(map[s], m[s], count, u->state[2 + s] + first,
                         &u->state[4 + s][first / 256]);
        }
    }
}

/* c = a b, or a b^T: [rows, columns]. */
static void product(double *c, const double *a, const double *b, int64_t rows, int64_t inner,
                    int64_t columns, bool trans_b)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) {
            double sum = 0.0;
            for (int64_t k = 0; k < inner; k++) {
                sum += a[i * inner + k] * (trans_b ? b[j * inner + k] : b[k * columns + j]);
            }
            c[i * columns + j] = sum;
        }
    }
}

/* torch.optim.Muon's _zeropower_via_newtonschulz of x [rows, columns], in place. */
static void orthogonalize(double *x, int64_t rows, int64_t columns)
{
    int64_t count = rows * columns;
    int64_t n = rows < columns ? rows : columns;
    int64_t m = rows < columns ? columns : rows;
    double *t = optimizer_zeros(count); /* x, or its transpose: [n, m] */
    double *a = optimizer_zeros(n * n);
    double *b = optimizer_zeros(n * n);
    double *y = optimizer_zeros(count);
    double norm = fmax(norm_of(x, count), 1e-7);
    for (int64_t i = 0; i < count; i++) {
        t[rows > columns ? i % columns * rows + i / columns : i] = x[i] / norm;
    }
    for (int k = 0; k < 5; k++) {
        product(a, t, t, n, m, n, true);
        product(b, a, a, n, n, n, false);
        for (int64_t i = 0; i < n * n; i++) {
            b[i] = -4.7750 * a[i] + 2.0315 * b[i];
        }
        product(y, b, t, n, n, m, false);
        for (int64_t i = 0; i < count; i++) {
            t[i] = 3.4445 * t[i] + y[i];
        }
    }
    for (int64_t i = 0; i < count; i++) {
        x[i] = t[rows > columns ? i % columns * rows + i / columns : i];
    }
    free(t);
    free(a);
    free(b);
    free(y);
}

/* Li et al. 2025, algorithm 1, along the longer axis: x over the root of the average mean squares
 * of its rows or columns, at the norm that it has. */
static void reduce_variance(double *x, double *average, int64_t rows, int64_t columns)
{
    int64_t count = rows * columns;
    bool tall = rows >= columns;
    double *mean = optimizer_zeros(tall ? rows : columns);
    double before = norm_of(x, count);
    for (int64_t i = 0; i < count; i++) {
        mean[tall ? i / columns : i % columns] += x[i] * x[i] / (double)(tall ? columns : rows);
    }
    for (int64_t i = 0; i < (tall ? rows : columns); i++) {
        average[i] = 0.9 * average[i] + 0.1 * mean[i];
    }
    for (int64_t i = 0; i < count; i++) {
        x[i] /= sqrt(fmax(average[tall ? i / columns : i % columns], 1e-10));
    }
    double after = norm_of(x, count);
    for (int64_t i = 0; i < count; i++) {
        x[i] *= after > 0.0 ? before / after : 0.0;
    }
    free(mean);
}

/* torch.optim.Muon with momentum 0.95 and nesterov=True; AdamW for what is no hidden matrix.
 * recent: with NorMuon and cautious decay. */
static void muon(const optimizer_step *u, bool original, bool recent)
{
    if (u->shape.rank != 2 || (u->axes != NULL && strncmp(u->axes, "vocab", 5) == 0)) {
        optimizer_step other = *u;
        other.state[0] = u->state[1];
        other.state[1] = u->state[2];
        adamw(&other);
        return;
    }
    double rows = (double)u->shape.dim[0];
    double columns = (double)u->shape.dim[1];
    double scale = original ? sqrt(fmax(1.0, rows / columns)) : 0.2 * sqrt(fmax(rows, columns));
    double *d = optimizer_zeros(u->count);
    for (int64_t i = 0; i < u->count; i++) {
        double *m = &u->state[0][i];
        *m = 0.95 * *m + 0.05 * u->g[i];
        d[i] = 0.05 * u->g[i] + 0.95 * *m;
    }
    orthogonalize(d, u->shape.dim[0], u->shape.dim[1]);
    if (recent) {
        reduce_variance(d, u->state[3], u->shape.dim[0], u->shape.dim[1]);
    }
    for (int64_t i = 0; i < u->count; i++) {
        double step = u->lr * scale * d[i];
        u->p[i] = recent && step * u->p[i] <= 0.0 ? u->p[i] - step : decayed(u, i, step);
    }
    free(d);
}

static void muon_rms(const optimizer_step *u)
{
    muon(u, false, false);
}

static void muon_original(const optimizer_step *u)
{
    muon(u, true, false);
}

static void muon_recent(const optimizer_step *u)
{
    muon(u, false, true);
}

/* torch.optim.SGD with nesterov=True, momentum 0.9 and dampening 0. */
static void sgd_nesterov(const optimizer_step *u)
{
    for (int64_t i = 0; i < u->count; i++) {
        double *m = &u->state[0][i];
        *m = 0.9 * *m + u->g[i];
        u->p[i] = decayed(u, i, u->lr * (u->g[i] + 0.9 * *m));
    }
}

static void sgd_momentum(const optimizer_step *u)
{
    for (int64_t i = 0; i < u->count; i++) {
        double *m = &u->state[0][i];
        *m = 0.8 * *m + u->g[i];
        u->p[i] = decayed(u, i, u->lr * *m);
    }
}

static void sgd_plain(const optimizer_step *u)
{
    for (int64_t i = 0; i < u->count; i++) {
        u->p[i] = decayed(u, i, u->lr * u->g[i]);
    }
}

/* Chen et al. 2023, algorithm 2; betas 0.9 and 0.99. */
static void lion(const optimizer_step *u)
{
    for (int64_t i = 0; i < u->count; i++) {
        double *m = &u->state[0][i];
        double mix = 0.9 * *m + 0.1 * u->g[i];
        u->p[i] = decayed(u, i, mix == 0.0 ? 0.0 : copysign(u->lr, mix));
        *m = 0.99 * *m + 0.01 * u->g[i];
    }
}

/* You et al. 2020, algorithm 2 with phi(x) = x; betas 0.9 and 0.999, eps 1e-6. */
static void lamb(const optimizer_step *u)
{
    double t = (double)u->number;
    double *r = calloc((size_t)u->count, sizeof *r);
    assert_non_null(r);
    for (int64_t i = 0; i < u->count; i++) {
        double *m = &u->state[0][i];
        double *v = &u->state[1][i];
        *m = 0.9 * *m + 0.1 * u->g[i];
        *v = 0.999 * *v + 0.001 * u->g[i] * u->g[i];
        double root = sqrt(*v / (1.0 - pow(0.999, t))) + 1e-6;
        r[i] = *m / (1.0 - pow(0.9, t)) / root + u->decay * u->p[i];
    }
    double weights = norm_of(u->p, u->count);
    double ratio = weights > 0.0 ? weights / norm_of(r, u->count) : 1.0;
    for (int64_t i = 0; i < u->count; i++) {
        u->p[i] -= u->lr * ratio * r[i];
    }
    free(r);
}

/* What a case of Adafactor differs in. */
typedef struct adafactor_case {
    double beta1;
    bool relative;
    bool scaled;
} adafactor_case;

/* Shazeer & Stern 2018, algorithms 4 (matrices) and 5 (vectors); eps 1e-30 and 1e-3, d = 1. The
 * second moment V of each element; R and C are kept in the states, for each matrix of a stack. */
static void second_moments(const optimizer_step *u, double beta2, double *v)
{
    int rank = u->shape.rank;
    int64_t columns = rank < 2 ? 1 : u->shape.dim[rank - 1];
    int64_t rows = rank < 2 ? 1 : u->shape.dim[rank - 2];
    for (int64_t first = 0; first < u->count; first += rows * columns) {
        if (rank < 2) {
            double *state = &u->state[2][first];
            *state = beta2 * *state + (1.0 - beta2) * (u->g[first] * u->g[first] + 1e-30);
            v[first] = *state;
            continue;
        }
        double *row = u->state[0] + first / columns;
        double *column = u->state[1] + first / rows;
        double mean = 0.0;
        for (int64_t i = 0; i < rows + columns; i++) {
            bool is_row = i < rows;
            int64_t terms = is_row ? columns : rows;
            double sum = 0.0;
            for (int64_t k = 0; k < terms; k++) {
                double g = u->g[first + (is_row ? i * columns + k : k * columns + i - rows)];
                sum += g * g + 1e-30;
            }
            double *state = is_row ? &row[i] : &column[i - rows];
            *state = beta2 * *state + (1.0 - beta2) * sum / (double)terms;
            mean += is_row ? *state / (double)rows : 0.0;
        }
        for (int64_t i = 0; i < rows * columns; i++) {
            v[first + i] = row[i / columns] * column[i % columns] / mean;
        }
    }
}

static void adafactor(const optimizer_step *u, adafactor_case c)
{
    double t = (double)u->number;
    double *v = calloc((size_t)u->count, sizeof *v);
    assert_non_null(v);
    second_moments(u, 1.0 - pow(t, -0.8), v);
    for (int64_t i = 0; i < u->count; i++) {
        v[i] = u->g[i] / sqrt(v[i]);
    }
    double size = sqrt((double)u->count);
    double rate = c.relative ? fmin(u->lr, 1.0 / sqrt(t)) : u->lr;
    rate *= c.scaled ? fmax(1e-3, norm_of(u->p, u->count) / size) : 1.0;
    rate *= u->lr_scale / fmax(1.0, norm_of(v, u->count) / size);
    for (int64_t i = 0; i < u->count; i++) {
        double step = rate * v[i];
        if (c.beta1 > 0.0) {
            double *m = &u->state[3][i];
            *m = c.beta1 * *m + (1.0 - c.beta1) * step;
            step = *m;
        }
        u->p[i] = decayed(u, i, step);
    }
    free(v);
}

static void adafactor_default(const optimizer_step *u)
{
    adafactor(u, (adafactor_case){0.0, true, true});
}

static void adafactor_plain(const optimizer_step *u)
{
    adafactor(u, (adafactor_case){0.9, false, false});
}

const optimizer_reference optimizer_references[OPTIMIZER_REFERENCES] = {
    {"adamw", {NULL}, adamw, 1e-2, 1.0},
    {"adam", {NULL}, adam, 1e-2, 1.0},
    {"adamw8bit", {"model.width=64"}, adamw8bit, 1e-2, 1.0},
    {"muon", {NULL}, muon_rms, 1e-2, 1.0},
    {"muon", {"optimizer.scale=original"}, muon_original, 2e-2, 1.0},
    {"muon", {"optimizer.variance=0.9", "optimizer.cautious=true"}, muon_recent, 1e-2, 1.0},
    {"sgd", {"optimizer.nesterov=true"}, sgd_nesterov, 0.1, 1.0},
    {"sgd", {"optimizer.momentum=0.8"}, sgd_momentum, 0.2, 1.0},
    {"sgd", {"optimizer.momentum=0"}, sgd_plain, 1.0, 2.5},
    {"lion", {NULL}, lion, 3e-3, 1.0},
    {"lamb", {NULL}, lamb, 3e-2, 1.0},
    {"adafactor", {NULL}, adafactor_default, 0.3, 1.0},
    {"adafactor",
     {"optimizer.beta1=0.9", "optimizer.relative_step=false", "optimizer.scale_parameter=false"},
     adafactor_plain,
     1e-2,
     1.0},
};

const optimizer_reference *optimizer_reference_of(const char *kind)
{
    for (size_t i = 0; i < OPTIMIZER_REFERENCES; i++) {
        if (strcmp(optimizer_references[i].kind, kind) == 0) {
            return &optimizer_references[i];
        }
    }
    return NULL;
}

void optimizer_reference_config(by_config **out, const optimizer_reference *row)
{
    by_error error = {0};
    char kind[64];
    char lr[64];
    (void)snprintf(kind, sizeof kind, "optimizer.kind=%s", row->kind);
    (void)snprintf(lr, sizeof lr, "optimizer.lr=%g", row->lr);
    const char *settings[] = {kind,
                              lr,
                              "optimizer.schedule=constant",
                              "optimizer.warmup=0",
                              "model.kind=gpt2",
                              "model.layers=2",
                              "model.heads=2",
                              "model.width=16",
                              "model.context=8",
                              "model.vocab=29",
                              "model.pad_vocab_to=32",
                              "train.batch=6",
                              "train.steps=100"};
    check_ok(by_config_default(out, &error), &error);
    check_ok(by_config_set(*out, "precision.compute=f32", &error), &error);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(settings); i++) {
        check_ok(by_config_set(*out, settings[i], &error), &error);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(row->settings) && row->settings[i] != NULL; i++) {
        check_ok(by_config_set(*out, row->settings[i], &error), &error);
    }
    check_ok(by_config_resolve(*out, &error), &error);
}
