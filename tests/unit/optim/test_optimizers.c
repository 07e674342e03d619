/* Every optimizer of the table: 20 updates against its published equations in float64
 * (optimizer_equations.h), a clip factor that is not finite, and threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "optim/optim.h"
#include "optimizer_equations.h"
#include "runner.h"

#define STEPS 20

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
    const optimizer_reference *row;
    by_config *config;
    by_graph *graph;
    runner r;
    int states;
    double *p[UNITS];
    double *state[UNITS][BY_MAX_STATES];
} fixture;

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

static void open_fixture(fixture *f, const optimizer_reference *row, int threads)
{
    by_error error = {0};
    *f = (fixture){.row = row};
    optimizer_reference_config(&f->config, row);
    const by_optimizer_config *optimizer = &f->config->optimizer;
    f->states = by_optimizer_state_count(optimizer);
    f->graph = open_graph();
    check_ok(by_optimizer_update_graph(f->graph, optimizer, units, UNITS, &error), &error);
    check_ok(by_graph_verify(f->graph, &error), &error);
    runner_open(&f->r, f->graph, threads);
    for (size_t k = 0; k < UNITS; k++) {
        int64_t count = by_shape_count(&units[k].shape);
        float *p = data_of(f, "", k);
        f->p[k] = optimizer_zeros(count);
        for (int64_t i = 0; i < count; i++) {
            p[i] = strcmp(units[k].name, "zeros") == 0
                       ? 0.0f
                       : (float)(0.1 * random_unit(5, k, (size_t)i));
            f->p[k][i] = (double)p[i];
        }
        for (int s = 0; s < f->states; s++) {
            f->state[k][s] =
                state_count(f, k, s) > 0 ? optimizer_zeros(state_count(f, k, s)) : NULL;
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
        double *g = optimizer_zeros(count);
        for (int64_t i = 0; i < count; i++) {
            g[i] = (double)gradient_of(number, k, i) * (double)scale;
        }
        optimizer_step u = {.shape = units[k].shape,
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
    tolerance *= strcmp(prefix, "variance") == 0 ? 2.0 : 1.0; /* of squares of products */
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

static void test_every_kind_has_equations(void **state)
{
    BY_UNUSED(state);
    for (size_t i = 0; by__optim_kind(i) != NULL; i++) {
        if (optimizer_reference_of(by__optim_kind(i)->name) == NULL) {
            fail_msg("optimizer.kind %s has no row of `optimizer_references`",
                     by__optim_kind(i)->name);
        }
    }
}

static void test_equations(void **state)
{
    BY_UNUSED(state);
    for (size_t row = 0; row < OPTIMIZER_REFERENCES; row++) {
        fixture f;
        open_fixture(&f, &optimizer_references[row], 2);
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
    for (size_t row = 0; row < OPTIMIZER_REFERENCES; row++) {
        uint64_t hash[3];
        for (int threads = 1; threads <= 3; threads++) {
            fixture f;
            open_fixture(&f, &optimizer_references[row], threads);
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
    for (size_t row = 0; row < OPTIMIZER_REFERENCES; row++) {
        fixture f;
        open_fixture(&f, &optimizer_references[row], 2);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind_has_equations),
        cmocka_unit_test(test_equations),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_bad_clip_factor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
