/* Every optimizer of the table: 20 updates against its published equations in float64, a clip
 * factor that is not finite, threads, training, resuming, and half steps of the trainer. An
 * optimizer adds its equations and a row of `references`. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "optim/optim.h"
#include "runner.h"
#include "train/trainer.h"

#define STEPS 20

/* ---- the equations ---- */

/* One update of one tensor in float64. */
typedef struct update {
    by_shape shape;
    const char *axes;
    int64_t count;
    int64_t number;               /* of the update, from 1 */
    double lr;                    /* eta */
    double lr_scale;              /* of the unit, where lr is without it */
    double decay;                 /* lambda */
    const double *g;              /* after clipping */
    double *p;                    /* in: before the update; out: after it */
    double *state[BY_MAX_STATES]; /* likewise */
} update;

/* p (1 - eta lambda) - step: decoupled decay (Loshchilov & Hutter 2019). */
static double decayed(const update *u, int64_t i, double step)
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

static double *zeros(int64_t count)
{
    double *values = calloc((size_t)count, sizeof *values);
    assert_non_null(values);
    return values;
}

/* Loshchilov & Hutter 2019, algorithm 2; betas 0.9 and 0.99, eps 1e-8. */
static void adamw(const update *u)
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
static void adamw8bit(const update *u)
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
    double *t = zeros(count); /* x, or its transpose: [n, m] */
    double *a = zeros(n * n);
    double *b = zeros(n * n);
    double *y = zeros(count);
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

/* torch.optim.Muon with momentum 0.95 and nesterov=True; AdamW for what is no hidden matrix. */
static void muon(const update *u, bool original)
{
    if (u->shape.rank != 2 || (u->axes != NULL && strncmp(u->axes, "vocab", 5) == 0)) {
        update other = *u;
        other.state[0] = u->state[1];
        other.state[1] = u->state[2];
        adamw(&other);
        return;
    }
    double rows = (double)u->shape.dim[0];
    double columns = (double)u->shape.dim[1];
    double scale = original ? sqrt(fmax(1.0, rows / columns)) : 0.2 * sqrt(fmax(rows, columns));
    double *d = zeros(u->count);
    for (int64_t i = 0; i < u->count; i++) {
        double *m = &u->state[0][i];
        *m = 0.95 * *m + 0.05 * u->g[i];
        d[i] = 0.05 * u->g[i] + 0.95 * *m;
    }
    orthogonalize(d, u->shape.dim[0], u->shape.dim[1]);
    for (int64_t i = 0; i < u->count; i++) {
        u->p[i] = decayed(u, i, u->lr * scale * d[i]);
    }
    free(d);
}

static void muon_rms(const update *u)
{
    muon(u, false);
}

static void muon_original(const update *u)
{
    muon(u, true);
}

/* torch.optim.SGD with nesterov=True, momentum 0.9 and dampening 0. */
static void sgd_nesterov(const update *u)
{
    for (int64_t i = 0; i < u->count; i++) {
        double *m = &u->state[0][i];
        *m = 0.9 * *m + u->g[i];
        u->p[i] = decayed(u, i, u->lr * (u->g[i] + 0.9 * *m));
    }
}

static void sgd_momentum(const update *u)
{
    for (int64_t i = 0; i < u->count; i++) {
        double *m = &u->state[0][i];
        *m = 0.8 * *m + u->g[i];
        u->p[i] = decayed(u, i, u->lr * *m);
    }
}

static void sgd_plain(const update *u)
{
    for (int64_t i = 0; i < u->count; i++) {
        u->p[i] = decayed(u, i, u->lr * u->g[i]);
    }
}

/* Chen et al. 2023, algorithm 2; betas 0.9 and 0.99. */
static void lion(const update *u)
{
    for (int64_t i = 0; i < u->count; i++) {
        double *m = &u->state[0][i];
        double mix = 0.9 * *m + 0.1 * u->g[i];
        u->p[i] = decayed(u, i, mix == 0.0 ? 0.0 : copysign(u->lr, mix));
        *m = 0.99 * *m + 0.01 * u->g[i];
    }
}

/* You et al. 2020, algorithm 2 with phi(x) = x; betas 0.9 and 0.999, eps 1e-6. */
static void lamb(const update *u)
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
static void second_moments(const update *u, double beta2, double *v)
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

static void adafactor(const update *u, adafactor_case c)
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

static void adafactor_default(const update *u)
{
    adafactor(u, (adafactor_case){0.0, true, true});
}

static void adafactor_plain(const update *u)
{
    adafactor(u, (adafactor_case){0.9, false, false});
}

typedef struct reference {
    const char *kind;
    const char *settings[5]; /* of the section optimizer */
    void (*step)(const update *u);
    double lr;   /* at which the model below learns in 60 steps ... */
    double loss; /* down to this */
} reference;

static const reference references[] = {
    {"adamw", {NULL}, adamw, 1e-2, 1.0},
    {"adamw8bit", {"model.width=64"}, adamw8bit, 1e-2, 1.0},
    {"muon", {NULL}, muon_rms, 1e-2, 1.0},
    {"muon", {"optimizer.scale=original"}, muon_original, 2e-2, 1.0},
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

/* ---- units and their float64 twins ---- */

/* Matrices, a table with rows that get no gradient, a vector, one that begins with zeros, four
 * axes with a learning rate of their own, a vector with its own decay too, and one that several
 * threads share. */
static const by_update_unit units[] = {
    {.name = "matrix", .shape = {2, {7, 40}}, .decay = true, .copy = BY_BF16},
    {.name = "table", .axes = "vocab embed", .shape = {2, {65, 12}}, .decay = true, .copy = BY_F32},
    {.name = "tall", .shape = {2, {40, 24}}, .decay = true, .copy = BY_F32},
    {.name = "wide", .shape = {2, {12, 50}}, .decay = true, .copy = BY_F32},
    {.name = "vector", .shape = {1, {33}}, .decay = false, .copy = BY_BF16},
    {.name = "zeros", .shape = {1, {40}}, .decay = false, .copy = BY_F32},
    {.name = "filter",
     .shape = {4, {6, 3, 4, 5}},
     .decay = true,
     .copy = BY_BF16,
     .lr_scale = 0.5f},
    {.name = "bias",
     .shape = {1, {21}},
     .copy = BY_F32,
     .lr_scale = 2.0f,
     .own_decay = true,
     .weight_decay = 0.25f},
    {.name = "large",
     .axes = "vocab embed",
     .shape = {2, {300, 517}},
     .decay = true,
     .copy = BY_BF16},
};
#define UNITS BY_ARRAY_LENGTH(units)

typedef struct fixture {
    const reference *row;
    by_config *config;
    by_graph *graph;
    runner r;
    int states;
    double *p[UNITS];
    double *state[UNITS][BY_MAX_STATES];
} fixture;

static void open_config(by_config **out, const reference *row)
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
    for (size_t i = 0; i < BY_ARRAY_LENGTH(settings); i++) {
        check_ok(by_config_set(*out, settings[i], &error), &error);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(row->settings) && row->settings[i] != NULL; i++) {
        check_ok(by_config_set(*out, row->settings[i], &error), &error);
    }
    check_ok(by_config_resolve(*out, &error), &error);
}

/* The value "PREFIX.UNIT" of the running program. */
static float *data_of(const fixture *f, const char *prefix, size_t unit)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%s%s%s", prefix, prefix[0] == '\0' ? "" : ".",
                   units[unit].name);
    return runner_data(&f->r, name);
}

static const char *state_name(const fixture *f, int state)
{
    return by_optimizer_state_at(&f->config->optimizer, state).name;
}

static by_dtype state_dtype(const fixture *f, int state)
{
    return by_optimizer_state_at(&f->config->optimizer, state).dtype;
}

/* Elements of a unit's state; 0 where it has none. */
static int64_t state_count(const fixture *f, size_t unit, int state)
{
    by_optimizer_state s = by_optimizer_state_at(&f->config->optimizer, state);
    by_shape shape = units[unit].shape;
    bool has = s.shape == NULL || s.shape(&units[unit].shape, units[unit].axes, &shape);
    return has ? by_shape_count(&shape) : 0;
}

static void open_fixture(fixture *f, const reference *row, int threads)
{
    by_error error = {0};
    *f = (fixture){.row = row};
    open_config(&f->config, row);
    const by_optimizer_config *optimizer = &f->config->optimizer;
    f->states = by_optimizer_state_count(optimizer);
    f->graph = open_graph();
    check_ok(by_optimizer_update_graph(f->graph, optimizer, units, UNITS, &error), &error);
    check_ok(by_graph_verify(f->graph, &error), &error);
    runner_open(&f->r, f->graph, threads);
    for (size_t k = 0; k < UNITS; k++) {
        int64_t count = by_shape_count(&units[k].shape);
        float *p = data_of(f, "", k);
        f->p[k] = zeros(count);
        for (int64_t i = 0; i < count; i++) {
            p[i] = strcmp(units[k].name, "zeros") == 0
                       ? 0.0f
                       : (float)(0.1 * random_unit(5, k, (size_t)i));
            f->p[k][i] = (double)p[i];
        }
        for (int s = 0; s < f->states; s++) {
            f->state[k][s] = state_count(f, k, s) > 0 ? zeros(state_count(f, k, s)) : NULL;
        }
    }
}

static void close_fixture(fixture *f)
{
    for (size_t k = 0; k < UNITS; k++) {
        free(f->p[k]);
        for (int s = 0; s < f->states; s++) {
            free(f->state[k][s]);
        }
    }
    runner_close(&f->r);
    by_graph_close(&f->graph);
    by_config_close(&f->config);
}

/* Gradients of very different sizes; the last rows of a table never get one. */
static float gradient_of(int64_t number, size_t unit, int64_t i)
{
    bool none = strcmp(units[unit].name, "table") == 0 && i >= (int64_t)60 * 12;
    double size = i % 5 == 0 ? 1e-3 : 1.0;
    return none ? 0.0f : (float)(size * random_unit((uint64_t)number, 100 + unit, (size_t)i));
}

static void run_update(fixture *f, int64_t number, float scale)
{
    for (size_t k = 0; k < UNITS; k++) {
        float *g = data_of(f, "grad", k);
        for (int64_t i = 0; i < by_shape_count(&units[k].shape); i++) {
            g[i] = gradient_of(number, k, i);
        }
    }
    by_optimizer_hyper(runner_data(&f->r, "hyper"), &f->config->optimizer, number - 1, f->row->lr);
    *(float *)runner_data(&f->r, "scale") = scale;
    runner_run(&f->r);
}

static void run_reference(fixture *f, int64_t number, float scale)
{
    for (size_t k = 0; k < UNITS; k++) {
        int64_t count = by_shape_count(&units[k].shape);
        double *g = zeros(count);
        for (int64_t i = 0; i < count; i++) {
            g[i] = (double)gradient_of(number, k, i) * (double)scale;
        }
        update u = {.shape = units[k].shape,
                    .axes = units[k].axes,
                    .count = count,
                    .number = number,
                    .lr = f->row->lr,
                    .lr_scale = units[k].lr_scale == 0.0f ? 1.0 : (double)units[k].lr_scale,
                    .decay = units[k].own_decay ? (double)units[k].weight_decay
                             : units[k].decay   ? f->config->optimizer.weight_decay
                                                : 0.0,
                    .g = g,
                    .p = f->p[k]};
        if (strcmp(f->row->kind, "adafactor") != 0) { /* which bounds the rate first */
            u.lr *= u.lr_scale;
            u.lr_scale = 1.0;
        }
        memcpy(u.state, f->state[k], sizeof u.state);
        f->row->step(&u);
        free(g);
    }
}

/* Codes differ where f32 and float64 are on two sides of the middle of two numbers. */
static void compare(const fixture *f, const char *prefix, by_dtype dtype, size_t unit,
                    const double *want, int64_t count, int64_t number)
{
    const void *have = data_of(f, prefix, unit);
    bool coded = strcmp(f->row->kind, "adamw8bit") == 0;
    bool products = strcmp(f->row->kind, "muon") == 0 && units[unit].shape.rank == 2;
    double tolerance = !products ? (coded ? 1e-3 : 1e-5) : units[unit].copy != BY_F32 ? 3e-2 : 1e-4;
    double difference = 0.0;
    double norm = 0.0;
    for (int64_t i = 0; i < count; i++) {
        double value = get_element(have, dtype, (size_t)i);
        difference += (value - want[i]) * (value - want[i]);
        norm += want[i] * want[i];
    }
    if (!(sqrt(difference) <= tolerance * sqrt(norm))) {
        fail_msg("%s: update %lld: %s.%s is %g of %g away", f->row->kind, (long long)number, prefix,
                 units[unit].name, sqrt(difference), sqrt(norm));
    }
}

/* The copies are the parameters, rounded. */
static void check_copies(const fixture *f)
{
    for (size_t k = 0; k < UNITS; k++) {
        if (units[k].copy == BY_F32) {
            continue;
        }
        const float *p = data_of(f, "", k);
        const void *copy = data_of(f, "copy", k);
        for (int64_t i = 0; i < by_shape_count(&units[k].shape); i++) {
            double step = fabs((double)p[i] - get_element(copy, BY_BF16, (size_t)i));
            assert_true(step <= fabs((double)p[i]) / 256.0);
        }
    }
}

static const reference *reference_of(const char *kind)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(references); i++) {
        if (strcmp(references[i].kind, kind) == 0) {
            return &references[i];
        }
    }
    return NULL;
}

static void test_every_kind_has_equations(void **state)
{
    BY_UNUSED(state);
    for (size_t i = 0; by__optimizer_kind(i) != NULL; i++) {
        if (reference_of(by__optimizer_kind(i)->name) == NULL) {
            fail_msg("optimizer.kind %s has no row of `references`", by__optimizer_kind(i)->name);
        }
    }
}

static void test_equations(void **state)
{
    BY_UNUSED(state);
    for (size_t row = 0; row < BY_ARRAY_LENGTH(references); row++) {
        fixture f;
        open_fixture(&f, &references[row], 2);
        for (int64_t number = 1; number <= STEPS; number++) {
            float scale = number % 3 == 0 ? 0.25f : 1.0f;
            run_update(&f, number, scale);
            run_reference(&f, number, scale);
            for (size_t k = 0; k < UNITS; k++) {
                compare(&f, "", BY_F32, k, f.p[k], by_shape_count(&units[k].shape), number);
                for (int s = 0; s < f.states; s++) {
                    if (f.state[k][s] != NULL) {
                        compare(&f, state_name(&f, s), state_dtype(&f, s), k, f.state[k][s],
                                state_count(&f, k, s), number);
                    }
                }
            }
            check_copies(&f);
        }
        close_fixture(&f);
    }
}

/* Parameters, states and copies as one hash. */
static uint64_t hash_fixture(const fixture *f)
{
    uint64_t hash = 0;
    for (size_t k = 0; k < UNITS; k++) {
        size_t count = (size_t)by_shape_count(&units[k].shape);
        hash = hash * 31u + by__hash64(data_of(f, "", k), count * sizeof(float));
        if (units[k].copy != BY_F32) {
            hash = hash * 31u + by__hash64(data_of(f, "copy", k), count * 2);
        }
        for (int s = 0; s < f->states; s++) {
            size_t elements = (size_t)state_count(f, k, s);
            if (elements > 0) {
                hash = hash * 31u + by__hash64(data_of(f, state_name(f, s), k),
                                               elements * by_dtype_size(state_dtype(f, s)));
            }
        }
    }
    return hash;
}

static void test_threads(void **state)
{
    BY_UNUSED(state);
    for (size_t row = 0; row < BY_ARRAY_LENGTH(references); row++) {
        uint64_t hash[3];
        for (int threads = 1; threads <= 3; threads++) {
            fixture f;
            open_fixture(&f, &references[row], threads);
            for (int64_t number = 1; number <= 3; number++) {
                run_update(&f, number, 0.5f);
            }
            hash[threads - 1] = hash_fixture(&f);
            close_fixture(&f);
        }
        assert_true(hash[0] == hash[1] && hash[0] == hash[2]);
    }
}

/* A gradient that is not finite makes the clip factor so. */
static void test_bad_clip_factor(void **state)
{
    BY_UNUSED(state);
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t row = 0; row < BY_ARRAY_LENGTH(references); row++) {
        fixture f;
        open_fixture(&f, &references[row], 2);
        run_update(&f, 1, 1.0f);
        uint64_t before = hash_fixture(&f);
        for (size_t i = 0; i < BY_ARRAY_LENGTH(bad); i++) {
            run_update(&f, 2, bad[i]);
            if (hash_fixture(&f) != before) {
                fail_msg("%s: a clip factor of %g changed something", f.row->kind, (double)bad[i]);
            }
        }
        close_fixture(&f);
    }
}

/* ---- in a trainer ---- */

typedef struct training {
    by_config *config;
    by_trainer *trainer;
    int32_t tokens[6 * 8];
    int32_t targets[6 * 8];
    by_array arrays[2];
    by_batch batch;
} training;

static void open_training(training *t, const reference *row, const char *compute,
                          const char *const *more, size_t count)
{
    by_error error = {0};
    *t = (training){0};
    open_config(&t->config, row);
    check_ok(by_config_set(t->config, compute, &error), &error);
    for (size_t i = 0; i < count; i++) {
        check_ok(by_config_set(t->config, more[i], &error), &error);
    }
    check_ok(by_config_resolve(t->config, &error), &error);
    check_ok(by_trainer_open(&t->trainer, t->config, NULL, &error), &error);
    check_ok(by_trainer_allocate(t->trainer, &error), &error);
    check_ok(by_trainer_initialize(t->trainer, &error), &error);
    for (size_t i = 0; i < 6 * 8; i++) {
        t->tokens[i] = (int32_t)(i * 7 % 29);
        t->targets[i] = (int32_t)((i + 1) * 7 % 29);
    }
    t->batch = by_batch_of_tokens(t->arrays, t->tokens, t->targets, 6, 8);
}

static void close_training(training *t)
{
    by_trainer_close(&t->trainer);
    by_config_close(&t->config);
}

static double train(training *t, int steps)
{
    by_error error = {0};
    by_step_result result = {0};
    for (int i = 0; i < steps; i++) {
        check_ok(by_trainer_step(t->trainer, &t->batch, &result, &error), &error);
    }
    return result.loss;
}

static uint64_t hash_flat(const by_trainer *t, int flat)
{
    uint64_t hash = 0;
    for (by__handle i = 0; (size_t)i < by__store_count(t->store); i++) {
        by_memory buffer = by__store_buffer(t->store, flat, i);
        hash = hash * 31u + by__hash64((const void *)buffer.address, buffer.bytes);
    }
    return hash;
}

/* Weights, copies and states. */
static uint64_t hash_training(const training *t)
{
    const by_trainer *trainer = t->trainer;
    uint64_t hash = hash_flat(trainer, trainer->masters);
    hash = hash * 31u + hash_flat(trainer, trainer->copies);
    for (int s = 0; s < trainer->state_count; s++) {
        hash = hash * 31u + hash_flat(trainer, trainer->states[s]);
    }
    return hash;
}

static void test_learns(void **state)
{
    BY_UNUSED(state);
    for (size_t row = 0; row < BY_ARRAY_LENGTH(references); row++) {
        training t;
        open_training(&t, &references[row], "precision.compute=f32", NULL, 0);
        double loss = train(&t, 60);
        if (!(loss <= references[row].loss)) {
            fail_msg("%s: the loss is %g after 60 steps", references[row].kind, loss);
        }
        close_training(&t);
    }
}

/* All parameters or all of one state, as a checkpoint has them. */
static size_t list_views(const by_trainer *trainer, int state, by_tensor_view *views,
                         char (*names)[300])
{
    size_t count = 0;
    for (size_t i = 0; i < by_trainer_parameter_count(trainer); i++) {
        views[count] =
            state < 0 ? by_trainer_parameter(trainer, i) : by_trainer_state(trainer, i, state);
        if (views[count].rank >= 0) {
            (void)snprintf(names[count], sizeof names[0], "%s%s%s",
                           state < 0 ? "" : by_trainer_state_name(trainer, state),
                           state < 0 ? "" : ".", views[count].name);
            views[count].name = names[count];
            count++;
        }
    }
    return count;
}

/* Through files: the weights alone, then all states. */
static by_weights *write_views(const training *t, bool states, const char *directory)
{
    by_error error = {0};
    by_weights *weights;
    size_t most = by_trainer_parameter_count(t->trainer) * (1 + BY_MAX_STATES);
    by_tensor_view *views = calloc(most, sizeof *views);
    char(*names)[300] = calloc(most, sizeof *names);
    size_t count = 0;
    assert_true(views != NULL && names != NULL);
    if (!states) {
        count = list_views(t->trainer, -1, views, names);
    }
    for (int s = 0; states && s < by_trainer_state_count(t->trainer); s++) {
        count += list_views(t->trainer, s, views + count, names + count);
    }
    if (count > 0) {
        check_ok(by_weights_write(directory, views, count, 0, &error), &error);
        check_ok(by_weights_open(&weights, directory, &error), &error);
    }
    free(views);
    free(names);
    return count > 0 ? weights : NULL;
}

static void resume(const reference *row, const char *compute)
{
    by_error error = {0};
    training whole;
    training first;
    training second;
    char directory[2][64] = {"/tmp/banyan-optim-XXXXXX", "/tmp/banyan-optim-XXXXXX"};
    assert_true(mkdtemp(directory[0]) != NULL && mkdtemp(directory[1]) != NULL);
    open_training(&whole, row, compute, NULL, 0);
    open_training(&first, row, compute, NULL, 0);
    open_training(&second, row, compute, NULL, 0);
    (void)train(&whole, 20);
    (void)train(&first, 10);
    (void)train(&second, 1);
    by_weights *weights = write_views(&first, false, directory[0]);
    by_weights *states = write_views(&first, true, directory[1]);
    check_ok(by_trainer_load_weights(second.trainer, weights, &error), &error);
    check_ok(by_trainer_load_optimizer(second.trainer, states, 10, &error), &error);
    assert_true(hash_training(&second) == hash_training(&first));
    (void)train(&second, 10);
    if (hash_training(&second) != hash_training(&whole)) {
        fail_msg("%s, %s: 10 + 10 steps are not 20", row->kind, compute);
    }
    by_weights_close(&weights);
    by_weights_close(&states);
    for (int i = 0; i < 2; i++) {
        check_ok(by__remove_tree(directory[i], &error), &error);
    }
    close_training(&whole);
    close_training(&first);
    close_training(&second);
}

static void test_resume(void **state)
{
    BY_UNUSED(state);
    for (size_t row = 0; row < BY_ARRAY_LENGTH(references); row++) {
        resume(&references[row], "precision.compute=f32");
        resume(&references[row], "precision.compute=bf16");
    }
}

/* Micro-batches and threads: the second does not change a bit. */
static void test_training_threads(void **state)
{
    BY_UNUSED(state);
    static const char *const threads[][2] = {{"train.threads=1", "train.micro_batch=2"},
                                             {"train.threads=2", "train.micro_batch=2"}};
    for (size_t row = 0; row < BY_ARRAY_LENGTH(references); row++) {
        uint64_t hash[2];
        for (int k = 0; k < 2; k++) {
            training t;
            open_training(&t, &references[row], "precision.compute=bf16", threads[k], 2);
            (void)train(&t, 5);
            hash[k] = hash_training(&t);
            close_training(&t);
        }
        assert_true(hash[0] == hash[1]);
    }
}

/* The states are planned with the shapes that their rules give, and nothing else is. */
static void test_planned_states(void **state)
{
    BY_UNUSED(state);
    for (size_t row = 0; row < BY_ARRAY_LENGTH(references); row++) {
        training t;
        uint64_t held = 0;
        uint64_t buffers = 0;
        open_training(&t, &references[row], "precision.compute=f32", NULL, 0);
        for (int s = 0; s < by_trainer_state_count(t.trainer); s++) {
            for (size_t i = 0; i < by_trainer_parameter_count(t.trainer); i++) {
                by_tensor_view parameter = by_trainer_parameter(t.trainer, i);
                by_shape shape = {.rank = parameter.rank};
                memcpy(shape.dim, parameter.shape, (size_t)shape.rank * sizeof shape.dim[0]);
                const char *axes = by__store_entry(t.trainer->store, (by__handle)i)->axes;
                by_optimizer_state rule = by_optimizer_state_at(&t.config->optimizer, s);
                by_shape want = shape;
                bool has = rule.shape == NULL || rule.shape(&shape, axes, &want);
                by_tensor_view view = by_trainer_state(t.trainer, i, s);
                assert_int_equal(view.rank, has ? want.rank : -1);
                for (int d = 0; d < view.rank; d++) {
                    assert_int_equal(view.shape[d], want.dim[d]);
                }
                held += has ? (uint64_t)by_shape_count(&want) * by_dtype_size(view.dtype) : 0;
                buffers += has;
            }
        }
        uint64_t bytes = by_trainer_memory(t.trainer)->optimizer;
        assert_true(bytes >= held);
        assert_true(bytes <= held + 4 * BY__ENTRY_ALIGNMENT * buffers);
        close_training(&t);
    }
}

/* A file of another optimizer's states is refused, unless they have the same names and shapes. */
static void test_states_of_another_kind(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    training from;
    training to;
    char directory[64] = "/tmp/banyan-optim-XXXXXX";
    assert_non_null(mkdtemp(directory));
    open_training(&from, reference_of("adamw"), "precision.compute=f32", NULL, 0);
    by_weights *states = write_views(&from, true, directory);
    for (size_t row = 0; row < BY_ARRAY_LENGTH(references); row++) {
        open_training(&to, &references[row], "precision.compute=f32", NULL, 0);
        bool same = by_trainer_state_count(to.trainer) == 2 &&
                    strcmp(by_trainer_state_name(to.trainer, 0), "m") == 0;
        by_status status = by_trainer_load_optimizer(to.trainer, states, 1, &error);
        assert_true(same ? status == BY_OK : status != BY_OK);
        error = (by_error){0};
        close_training(&to);
    }
    by_weights_close(&states);
    check_ok(by__remove_tree(directory, &error), &error);
    close_training(&from);
}

/* A step in two halves: the same bits as a whole one; gradients that are not finite change
 * nothing. */
static void test_half_steps(void **state)
{
    BY_UNUSED(state);
    for (size_t row = 0; row < BY_ARRAY_LENGTH(references); row++) {
        by_error error = {0};
        training whole;
        training halves;
        double loss;
        by_step_result result;
        by_step_result half;
        open_training(&whole, &references[row], "precision.compute=bf16", NULL, 0);
        open_training(&halves, &references[row], "precision.compute=bf16", NULL, 0);
        for (int i = 0; i < 3; i++) {
            check_ok(by_trainer_step(whole.trainer, &whole.batch, &result, &error), &error);
            check_ok(by_trainer_gradients(halves.trainer, &halves.batch, &loss, &error), &error);
            check_ok(by_trainer_update(halves.trainer, result.lr, &half, &error), &error);
            assert_true(loss == result.loss && half.loss == loss && half.norm == result.norm);
            assert_true(half.step == i + 1 && half.lr == result.lr);
        }
        assert_true(hash_training(&halves) == hash_training(&whole));
        assert_int_equal(by_trainer_updates(halves.trainer), 3);
        check_ok(by_trainer_gradients(halves.trainer, &halves.batch, &loss, &error), &error);
        *(float *)(uintptr_t)by_trainer_gradient(halves.trainer, 2).data = NAN;
        by_status status = by_trainer_update(halves.trainer, 1e-2, &half, &error);
        check_ok(status, &error);
        assert_int_equal(half.skipped, BY_SKIP_NONFINITE);
        assert_true(hash_training(&halves) == hash_training(&whole));
        assert_int_equal(by_trainer_updates(halves.trainer), 4);
        check_ok(by_trainer_gradients(halves.trainer, &halves.batch, &loss, &error), &error);
        check_ok(by_trainer_update(halves.trainer, 0.5 * result.lr, &half, &error), &error);
        assert_true(hash_training(&halves) != hash_training(&whole));
        close_training(&whole);
        close_training(&halves);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind_has_equations),
        cmocka_unit_test(test_equations),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_bad_clip_factor),
        cmocka_unit_test(test_learns),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_training_threads),
        cmocka_unit_test(test_planned_states),
        cmocka_unit_test(test_states_of_another_kind),
        cmocka_unit_test(test_half_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
