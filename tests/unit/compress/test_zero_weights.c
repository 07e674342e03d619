/* Pruning of one weight: magnitude, Wanda, SparseGPT and units that are taken out, against their
 * definitions in float64, and directories that a method writes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/pack.h"
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
    const by__compress_prune_rule some = {.sparsity = 0.375};
    const by__compress_prune_rule pairs = {.pairs = true};
    (void)state;
    make(&p);
    for (int i = 0; i < K; i++) {
        norms[i] = sqrt(p.hessian[i * K + i]);
    }
    memcpy(weight, p.weight, sizeof weight);
    assert_int_equal(by__compress_prune_weight(weight, N, K, NULL, &some, &error), BY_OK);
    assert_int_equal(zeros_of(weight, N * K), N * K * 3 / 8);
    check_scores(&p, weight, NULL, 0, N * K);
    memcpy(weight, p.weight, sizeof weight);
    assert_int_equal(by__compress_prune_weight(weight, N, K, norms, &some, &error), BY_OK);
    for (int j = 0; j < N; j++) {
        assert_int_equal(zeros_of(weight + j * K, K), K * 3 / 8);
        check_scores(&p, weight, norms, j * K, K);
    }
    for (int with = 0; with < 2; with++) {
        memcpy(weight, p.weight, sizeof weight);
        assert_int_equal(
            by__compress_prune_weight(weight, N, K, with ? norms : NULL, &pairs, &error), BY_OK);
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
    const by__compress_prune_rule rules[] = {{.sparsity = 0.5}, {.pairs = true}};
    (void)state;
    make(&p);
    double damping = 0.0;
    static double h[K * K];
    memcpy(h, p.hessian, sizeof h);
    for (int i = 0; i < K; i++) {
        damping += 0.01 * p.hessian[i * K + i] / (double)K;
    }
    assert_int_equal(by__compress_inverse_factor(&u, h, K, 0.01, 1, &error), BY_OK);
    for (int r = 0; r < 2; r++) {
        float weight[N * K];
        float simple[N * K];
        float again[N * K];
        memcpy(weight, p.weight, sizeof weight);
        memcpy(simple, p.weight, sizeof simple);
        memcpy(again, p.weight, sizeof again);
        assert_int_equal(by__compress_sparsegpt_prune(weight, N, K, u, &rules[r], 1, &error),
                         BY_OK);
        assert_int_equal(by__compress_sparsegpt_prune(again, N, K, u, &rules[r], 2, &error), BY_OK);
        assert_int_equal(by__compress_prune_weight(simple, N, K, NULL, &rules[r], &error), BY_OK);
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

/* ---- units that are taken out ---- */

/* What is left of W on the columns that stay, by least squares: with H damped, W' = W H_K (H_KK)^-1
 * errs least, and by tr(D H D^T), D = W - W'. Returns that error. */
static double best_without(double *out, const problem *p, const bool *gone, double damping)
{
    static double a[K][K + N];
    int kept[K];
    int size = 0;
    for (int i = 0; i < K; i++) {
        kept[size] = i;
        size += !gone[i];
    }
    for (int i = 0; i < size; i++) {
        for (int j = 0; j < size; j++) {
            a[i][j] = p->hessian[kept[i] * K + kept[j]] + (i == j ? damping : 0.0);
        }
        for (int o = 0; o < N; o++) {
            a[i][size + o] = damping * (double)p->weight[o * K + kept[i]];
            for (int m = 0; m < K; m++) {
                a[i][size + o] += p->hessian[kept[i] * K + m] * (double)p->weight[o * K + m];
            }
        }
    }
    for (int c = 0; c < size; c++) {
        for (int i = 0; i < size; i++) {
            double factor = i == c ? 0.0 : a[i][c] / a[c][c];
            for (int j = c; j < size + N && factor != 0.0; j++) {
                a[i][j] -= factor * a[c][j];
            }
        }
    }
    memset(out, 0, N * K * sizeof *out);
    double error = 0.0;
    for (int o = 0; o < N; o++) {
        double off[K];
        for (int i = 0; i < size; i++) {
            out[o * K + kept[i]] = a[i][size + o] / a[i][i];
        }
        for (int i = 0; i < K; i++) {
            off[i] = (double)p->weight[o * K + i] - out[o * K + i];
        }
        for (int i = 0; i < K; i++) {
            for (int j = 0; j < K; j++) {
                error += off[i] * p->hessian[i * K + j] * off[j] +
                         (i == j ? damping * off[i] * off[i] : 0.0);
            }
        }
    }
    return error;
}

static double *damped_factor(double *damping, const problem *p)
{
    by_error error = {0};
    static double h[K * K];
    double *u;
    *damping = 0.0;
    memcpy(h, p->hessian, sizeof h);
    for (int i = 0; i < K; i++) {
        *damping += 0.01 * p->hessian[i * K + i] / (double)K;
    }
    assert_int_equal(by__compress_inverse_factor(&u, h, K, 0.01, 1, &error), BY_OK);
    return u;
}

/* Whichever units go, the others are what least squares makes of them, for any number of threads;
 * the first that goes is the one that costs least. */
static void test_units(void **state)
{
    static problem p;
    static double want[N * K];
    double damping;
    by_error error = {0};
    (void)state;
    make(&p);
    double *u = damped_factor(&damping, &p);
    for (int size = 1; size <= 8; size *= 8) {
        float weight[N * K];
        float again[N * K];
        bool gone[K] = {false};
        bool inputs[K] = {false};
        double least = INFINITY;
        int best = -1;
        for (int i = 0; i < K / size; i++) {
            memset(inputs, 0, sizeof inputs);
            memset(inputs + i * size, true, (size_t)size);
            double cost = best_without(want, &p, inputs, damping);
            best = cost < least ? i : best;
            least = cost < least ? cost : least;
        }
        memcpy(weight, p.weight, sizeof weight);
        assert_int_equal(by__compress_remove_units(weight, gone, N, K, size, 1, u, 1, &error),
                         BY_OK);
        for (int i = 0; i < K / size; i++) {
            assert_int_equal(gone[i], i == best);
        }
        memcpy(weight, p.weight, sizeof weight);
        memcpy(again, p.weight, sizeof again);
        int count = K / size / 3;
        assert_int_equal(by__compress_remove_units(again, gone, N, K, size, count, u, 2, &error),
                         BY_OK);
        assert_int_equal(by__compress_remove_units(weight, gone, N, K, size, count, u, 1, &error),
                         BY_OK);
        assert_memory_equal(weight, again, sizeof weight);
        int left = 0;
        for (int i = 0; i < K; i++) {
            inputs[i] = gone[i / size];
            left += !inputs[i];
        }
        assert_int_equal(left, K - count * size);
        (void)best_without(want, &p, inputs, damping);
        for (int i = 0; i < N * K; i++) {
            assert_true(fabs((double)weight[i] - want[i]) < 1e-5);
        }
    }
    free(u);
}

enum { LAYERS = 3, HEAD = 8, VOCAB = 61, TIME = 16, DEAD = 40 };

static const char *const llama[] = {
    "model.kind=llama",  "model.layers=3",      "model.heads=6",     "model.kv_heads=3",
    "model.width=48",    "model.mlp_width=88",  "model.context=16",  "model.vocab=61",
    "model.init_std=.3", "model.qkv_bias=true", "model.hf_type=auto"};

/* Rows of a tensor that makes units become 0. */
static void kill_units(const char *name, float *data, const by_tensor_view *view)
{
    int64_t layer = by__compress_layer_of_name(name);
    int64_t columns = view->rank == 2 ? view->shape[1] : 1;
    for (int64_t r = 0; r < view->shape[0] && layer >= 0; r++) {
        bool head = strstr(name, "v_proj") != NULL && r / HEAD == layer % 3;
        bool channel = strstr(name, "up_proj") != NULL && (r * 7 + layer) % 88 < DEAD;
        if (head || channel) {
            memset(data + r * columns, 0, (size_t)columns * sizeof *data);
        }
    }
}

/* The whole of layer 1 does nothing. */
static void kill_layer(const char *name, float *data, const by_tensor_view *view)
{
    if (by__compress_layer_of_name(name) == 1 &&
        (strstr(name, "o_proj") || strstr(name, "down_proj"))) {
        memset(data, 0, (size_t)(view->shape[0] * view->shape[1]) * sizeof *data);
    }
}

static void change_weights(const char *directory,
                           void (*change)(const char *, float *, const by_tensor_view *))
{
    by_error error = {0};
    by_weights *weights;
    by_tensor_view views[64];
    char *names[64];
    assert_int_equal(by_weights_open(&weights, directory, &error), BY_OK);
    size_t count = by_weights_count(weights);
    assert_true(count <= BY_ARRAY_LENGTH(views));
    for (size_t i = 0; i < count; i++) {
        size_t elements;
        names[i] = by__strdup(by_weights_name(weights, i));
        assert_int_equal(by_weights_tensor(weights, names[i], &views[i], &error), BY_OK);
        assert_int_equal(by_tensor_size(&views[i], &elements, NULL, &error), BY_OK);
        float *data = malloc(elements * sizeof *data);
        assert_non_null(data);
        assert_int_equal(by_tensor_read_f32(&views[i], data, elements, &error), BY_OK);
        change(names[i], data, &views[i]);
        views[i].name = names[i];
        views[i].data = data;
    }
    by_weights_close(&weights);
    assert_int_equal(by_weights_write(directory, views, count, 0, &error), BY_OK);
    for (size_t i = 0; i < count; i++) {
        free((void *)(uintptr_t)views[i].data);
        free(names[i]);
    }
}

/* Text of 61 characters, packed, with its tokenizer next to the model. */
static char *pack_text(const char *directory)
{
    by_error error = {0};
    char *path = by__path_join(directory, "text.txt");
    char *output = by__path_join(directory, "packed");
    char text[4000];
    for (int i = 0; i < 4000; i++) {
        text[i] = (char)(40 + (i < VOCAB ? i : (i * i + i / 7) % VOCAB));
    }
    assert_int_equal(by__file_write(path, text, sizeof text, &error), BY_OK);
    const char *inputs[] = {path};
    const by_pack_options options = {
        .inputs = inputs, .input_count = 1, .output = output, .tokenizer_kind = "char"};
    assert_int_equal(by_pack(&options, NULL, &error), BY_OK);
    char *from = by__path_join(output, "tokenizer.json");
    char *to = by__path_join(directory, "tokenizer.json");
    by__map map;
    assert_int_equal(by__map_open(&map, from, &error), BY_OK);
    assert_int_equal(by__file_write(to, (const char *)map.data, map.size, &error), BY_OK);
    by__map_close(&map);
    free(from);
    free(to);
    free(path);
    return output;
}

static void read_logits(float *out, const by_pretrained *model)
{
    by_error error = {0};
    by_logits *logits;
    const float *values;
    int32_t tokens[TIME];
    for (int i = 0; i < TIME; i++) {
        tokens[i] = (i * 7 + 3) % VOCAB;
    }
    assert_int_equal(by_logits_open(&logits, by_pretrained_config(model),
                                    by_pretrained_weights(model), 1, TIME, "f32", 1, &error),
                     BY_OK);
    assert_int_equal(by_logits_run(logits, tokens, &values, &error), BY_OK);
    memcpy(out, values, TIME * VOCAB * sizeof *out);
    by_logits_close(&logits);
}

/* What does nothing is what goes, and what is left computes the same. */
static void check_dead(void (*kill)(const char *, float *, const by_tensor_view *),
                       const char *method, const char *const *settings, size_t count,
                       by_model_config *made_of)
{
    by_error error = {0};
    by_pretrained *model;
    by_pretrained *made;
    by_compressed result;
    by_compress_forecast forecast;
    static float before[TIME * VOCAB];
    static float after[TIME * VOCAB];
    by_config *config = tiny_config(llama, BY_ARRAY_LENGTH(llama));
    char *directory = temporary_make();
    tiny_model_write(config, directory);
    change_weights(directory, kill);
    char *packed = pack_text(directory);
    char *out = by__path_join(directory, "made");
    const by_compress_options options = {.method = method,
                                         .settings = settings,
                                         .setting_count = count,
                                         .data = packed,
                                         .samples = 40,
                                         .threads = 2};
    assert_int_equal(by_pretrained_open(&model, directory, false, &error), BY_OK);
    assert_int_equal(by_compress_forecast_make(&forecast, model, &options, &error), BY_OK);
    if (by_compress(&result, out, model, &options, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    assert_int_equal(forecast.bytes, result.bytes_after);
    assert_true(result.bytes_after < result.bytes_before);
    if (by_pretrained_open(&made, out, false, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    const by_model_config *m = &by_pretrained_config(made)->model;
    *made_of = (by_model_config){.layers = m->layers,
                                 .heads = m->heads,
                                 .kv_heads = m->kv_heads,
                                 .head_dim = m->head_dim,
                                 .mlp_width = m->mlp_width};
    read_logits(before, model);
    read_logits(after, made);
    for (int i = 0; i < TIME * VOCAB; i++) {
        assert_true(fabsf(after[i] - before[i]) < 1e-3f);
    }
    by_pretrained_close(&made);
    by_pretrained_close(&model);
    by_config_close(&config);
    free(out);
    free(packed);
    temporary_remove(directory);
}

static void test_dead_units(void **state)
{
    static const char *const settings[] = {"mlp=0.45", "heads=0.3"};
    by_model_config made;
    (void)state;
    check_dead(kill_units, "width", settings, 2, &made);
    assert_int_equal(made.mlp_width, 48);
    assert_int_equal(made.heads, 4);
    assert_int_equal(made.kv_heads, 2);
    assert_int_equal(made.head_dim, HEAD);
    assert_int_equal(made.layers, LAYERS);
    check_dead(kill_layer, "depth", NULL, 0, &made);
    assert_int_equal(made.layers, LAYERS - 1);
    assert_int_equal(made.heads, 6);
}

static void check_refused(const by_pretrained *model, const char *out, const char *method,
                          const char *setting, const char *message)
{
    by_error error = {0};
    const by_compress_options options = {
        .method = method, .settings = &setting, .setting_count = 1, .threads = 1};
    assert_int_equal(by_compress(NULL, out, model, &options, &error), BY_EARG);
    assert_non_null(strstr(error.message, message));
    assert_false(by__path_exists(out));
}

static void test_refused(void **state)
{
    static const char *const gpt2[] = {"model.kind=gpt2", "model.layers=2",   "model.heads=4",
                                       "model.width=32",  "model.context=16", "model.vocab=61"};
    by_error error = {0};
    by_pretrained *model;
    (void)state;
    by_config *config = tiny_config(gpt2, BY_ARRAY_LENGTH(gpt2));
    char *directory = temporary_make();
    tiny_model_write(config, directory);
    char *out = by__path_join(directory, "made");
    assert_int_equal(by_pretrained_open(&model, directory, false, &error), BY_OK);
    check_refused(model, out, "width", "heads=0.5", "heads cannot be pruned");
    check_refused(model, out, "width", "mlp=0", "prune nothing");
    check_refused(model, out, "depth", "layers=2", "at most 1");
    by_pretrained_close(&model);
    by_config_close(&config);
    free(out);
    temporary_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scores),     cmocka_unit_test(test_sparsegpt),
        cmocka_unit_test(test_directory),  cmocka_unit_test(test_units),
        cmocka_unit_test(test_dead_units), cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
