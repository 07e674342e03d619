/* Pruning of one weight: magnitude, Wanda and SparseGPT against their definitions in float64, and
 * directories that a method writes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "compress/compress.h"
#include "temporary.h"
#include "tiny_model.h"

enum { N = 6, K = 136, ROWS = 200 }; /* more columns than SparseGPT takes at once */

/* In (-1, 1), from a linear congruence. */
static double draw(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (double)(*state >> 8) / (double)(1u << 23) - 1.0;
}

typedef struct problem {
    float weight[N * K];
    double x[ROWS * K]; /* what the layer reads; columns are correlated and of different sizes */
    double hessian[K * K];
} problem;

static void make(problem *p)
{
    uint32_t state = 7;
    for (int i = 0; i < N * K; i++) {
        p->weight[i] = (float)draw(&state);
    }
    for (int r = 0; r < ROWS; r++) {
        double common = draw(&state);
        for (int j = 0; j < K; j++) {
            p->x[r * K + j] = (draw(&state) + 0.7 * common) * (0.25 + (double)(j % 5));
        }
    }
    for (int i = 0; i < K * K; i++) {
        p->hessian[i] = 0.0;
        for (int r = 0; r < ROWS; r++) {
            p->hessian[i] += p->x[r * K + i / K] * p->x[r * K + i % K];
        }
    }
}

/* sum |(W - V) x|^2 over rows and outputs. */
static double loss_of(const problem *p, const float *pruned)
{
    double sum = 0.0;
    for (int j = 0; j < N; j++) {
        for (int r = 0; r < ROWS; r++) {
            double y = 0.0;
            for (int i = 0; i < K; i++) {
                y += (double)(p->weight[j * K + i] - pruned[j * K + i]) * p->x[r * K + i];
            }
            sum += y * y;
        }
    }
    return sum;
}

static int zeros_of(const float *weight, int count)
{
    int zeros = 0;
    for (int i = 0; i < count; i++) {
        zeros += weight[i] == 0.0f;
    }
    return zeros;
}

static void check_pairs(const float *weight)
{
    for (int i = 0; i < N * K; i += 4) {
        assert_int_equal(zeros_of(weight + i, 4), 2);
    }
}

/* Every element that is gone has a score of at most those that stay, and none else has changed. */
static void check_scores(const problem *p, const float *pruned, const double *norms, int begin,
                         int count)
{
    double gone = 0.0;
    double kept = INFINITY;
    for (int i = begin; i < begin + count; i++) {
        double score = fabs((double)p->weight[i]) * (norms == NULL ? 1.0 : norms[i % K]);
        if (pruned[i] == 0.0f) {
            gone = score > gone ? score : gone;
        } else {
            assert_true(pruned[i] == p->weight[i]);
            kept = score < kept ? score : kept;
        }
    }
    assert_true(gone <= kept);
}

static void test_scores(void **state)
{
    static problem p;
    float weight[N * K];
    double norms[K];
    by_error error = {0};
    const by__prune_rule some = {.sparsity = 0.375};
    const by__prune_rule pairs = {.pairs = true};
    (void)state;
    make(&p);
    for (int i = 0; i < K; i++) {
        norms[i] = sqrt(p.hessian[i * K + i]);
    }
    memcpy(weight, p.weight, sizeof weight);
    assert_int_equal(by__prune_weight(weight, N, K, NULL, &some, &error), BY_OK);
    assert_int_equal(zeros_of(weight, N * K), N * K * 3 / 8);
    check_scores(&p, weight, NULL, 0, N * K);
    memcpy(weight, p.weight, sizeof weight);
    assert_int_equal(by__prune_weight(weight, N, K, norms, &some, &error), BY_OK);
    for (int j = 0; j < N; j++) {
        assert_int_equal(zeros_of(weight + j * K, K), K * 3 / 8);
        check_scores(&p, weight, norms, j * K, K);
    }
    for (int with = 0; with < 2; with++) {
        memcpy(weight, p.weight, sizeof weight);
        assert_int_equal(by__prune_weight(weight, N, K, with ? norms : NULL, &pairs, &error),
                         BY_OK);
        check_pairs(weight);
        for (int i = 0; i < N * K; i += 4) {
            check_scores(&p, weight, with ? norms : NULL, i, 4);
        }
    }
}

/* (H + damping)^-1 of columns [first, K), by Gauss and Jordan. */
static void invert(double *out, const problem *p, double damping, int first)
{
    int size = K - first;
    static double a[K][2 * K];
    for (int i = 0; i < size; i++) {
        for (int j = 0; j < size; j++) {
            a[i][j] = p->hessian[(i + first) * K + j + first] + (i == j ? damping : 0.0);
            a[i][size + j] = i == j ? 1.0 : 0.0;
        }
    }
    for (int c = 0; c < size; c++) {
        double pivot = a[c][c];
        for (int j = 0; j < 2 * size; j++) {
            a[c][j] /= pivot;
        }
        for (int i = 0; i < size; i++) {
            double factor = i == c ? 0.0 : a[i][c];
            for (int j = 0; j < 2 * size; j++) {
                a[i][j] -= factor * a[c][j];
            }
        }
    }
    for (int i = 0; i < size * size; i++) {
        out[i] = a[i / size][size + i % size];
    }
}

/* The optimal brain surgeon's step for each column in turn (Hassibi & Stork 1993): element j of a
 * row becomes 0 and the rest of the row takes w_j / [H_F^-1]_jj times column j of H_F^-1, F being
 * the columns from j on. Which elements: those that `pruned` has as 0. */
static void reference(double *out, const problem *p, const float *pruned, double damping)
{
    static double inverse[K * K];
    for (int i = 0; i < N * K; i++) {
        out[i] = (double)p->weight[i];
    }
    for (int j = 0; j < K; j++) {
        int size = K - j;
        invert(inverse, p, damping, j);
        for (int row = 0; row < N; row++) {
            double *w = out + row * K + j;
            double step = pruned[row * K + j] == 0.0f ? w[0] / inverse[0] : 0.0;
            for (int m = 0; m < size && step != 0.0; m++) {
                w[m] -= step * inverse[m * size];
            }
        }
    }
}

static void test_sparsegpt(void **state)
{
    static problem p;
    by_error error = {0};
    static double want[N * K];
    double *u;
    const by__prune_rule rules[] = {{.sparsity = 0.5}, {.pairs = true}};
    (void)state;
    make(&p);
    double damping = 0.0;
    static double h[K * K];
    memcpy(h, p.hessian, sizeof h);
    for (int i = 0; i < K; i++) {
        damping += 0.01 * p.hessian[i * K + i] / (double)K;
    }
    assert_int_equal(by__inverse_factor(&u, h, K, 0.01, 1, &error), BY_OK);
    for (int r = 0; r < 2; r++) {
        float weight[N * K];
        float simple[N * K];
        float again[N * K];
        memcpy(weight, p.weight, sizeof weight);
        memcpy(simple, p.weight, sizeof simple);
        memcpy(again, p.weight, sizeof again);
        assert_int_equal(by__sparsegpt_prune(weight, N, K, u, &rules[r], 1, &error), BY_OK);
        assert_int_equal(by__sparsegpt_prune(again, N, K, u, &rules[r], 2, &error), BY_OK);
        assert_int_equal(by__prune_weight(simple, N, K, NULL, &rules[r], &error), BY_OK);
        assert_memory_equal(weight, again, sizeof weight);
        assert_int_equal(zeros_of(weight, N * K), N * K / 2);
        reference(want, &p, weight, damping);
        for (int i = 0; i < N * K; i++) {
            assert_true(fabs((double)weight[i] - want[i]) < 1e-5);
        }
        assert_true(loss_of(&p, weight) < 0.6 * loss_of(&p, simple));
        if (rules[r].pairs) {
            check_pairs(weight);
        }
    }
    free(u);
}

/* What magnitude writes: 2:4 in every layer but the head, in the order of the inputs. */
static void test_directory(void **state)
{
    static const char *const settings[] = {
        "model.kind=gpt2",  "model.layers=2", "model.heads=4",     "model.width=32",
        "model.context=16", "model.vocab=61", "model.init_std=0.3"};
    static const char *const pairs[] = {"pattern=2:4"};
    by_error error = {0};
    by_pretrained *model;
    by_weights *made;
    by_compressed result;
    by_tensor_view view;
    (void)state;
    by_config *config = tiny_config(settings, BY_ARRAY_LENGTH(settings));
    char *directory = temporary_make();
    tiny_model_write(config, directory);
    char *out = by__path_join(directory, "made");
    const by_compress_options options = {
        .method = "magnitude", .settings = pairs, .setting_count = 1, .threads = 1};
    assert_int_equal(by_pretrained_open(&model, directory, false, &error), BY_OK);
    assert_int_equal(by_compress(&result, out, model, &options, &error), BY_OK);
    assert_int_equal(result.layers, 8);
    assert_int_equal(by_weights_open(&made, out, &error), BY_OK);
    assert_int_equal(by__weights_describe(made, "h.1.mlp.c_fc.weight", &view, &error), BY_OK);
    const float *values = view.data; /* [inputs, outputs] */
    for (int64_t j = 0; j < view.shape[1]; j++) {
        for (int64_t i = 0; i < view.shape[0]; i += 4) {
            int zeros = 0;
            for (int64_t m = i; m < i + 4; m++) {
                zeros += values[m * view.shape[1] + j] == 0.0f;
            }
            assert_int_equal(zeros, 2);
        }
    }
    by_weights_close(&made);
    by_pretrained_close(&model);
    by_config_close(&config);
    free(out);
    temporary_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scores),
        cmocka_unit_test(test_sparsegpt),
        cmocka_unit_test(test_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
