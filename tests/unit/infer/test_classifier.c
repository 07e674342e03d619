/* Classes of texts: a head's matrix times the vectors that by_embed gives, and what config.json
 * says of it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runner.h"
#include "temporary.h"
#include "tiny_model.h"

enum { WIDTH = 16, LABELS = 3, PAD = 2 };

static const int32_t tokens[] = {3, 1, 4, 1, 5, 9, PAD, 6, 5, 3, 5, 8, 9, 7, 9, 3, PAD, PAD};
/* The first ends with padding, the last is nothing else. */
static const by_embed_text texts[] = {{tokens, 18}, {tokens, 4}, {tokens + 5, 1}, {tokens + 16, 2}};
static const size_t lengths[] = {16, 4, 1, 1};

/* Keys of config.json, in front of the model's own. */
#define NAMES  "\"id2label\": {\"0\": \"bad\", \"2\": \"good\", \"1\": \"so \\\"so\\\"\"}, "
#define PADDED "\"pad_token_id\": 2, "

static float score_of(int64_t i)
{
    return (float)random_unit(5, 1, (size_t)i);
}

/* A directory as transformers writes it: a head of `rows` x `width` (0: none) in the place of the
 * one for tokens. Removed with temporary_remove. */
static char *make_model(int64_t rows, int64_t width, const char *keys)
{
    static const char *const settings[] = {
        "model.kind=llama", "model.layers=2",       "model.heads=2",      "model.width=16",
        "model.vocab=23",   "model.context=32",     "model.init_std=0.3", "model.tied=false",
        "train.threads=1",  "precision.compute=f32"};
    by_error error = {0};
    by_weights *weights;
    by_tensor_view views[64];
    float score[256];
    size_t count = 0;
    by_string json = {0};
    char *path = temporary_make();
    assert_non_null(path);
    by_config *config = tiny_config(settings, BY_ARRAY_LENGTH(settings));
    tiny_model_write(config, path);
    by_config_close(&config);
    check_ok(by_weights_open(&weights, path, &error), &error);
    for (size_t i = 0; i < by_weights_count(weights); i++) {
        const char *name = by_weights_name(weights, i);
        if (strcmp(name, "lm_head.weight") != 0) {
            check_ok(by_weights_tensor(weights, name, &views[count++], &error), &error);
        }
    }
    for (int64_t i = 0; i < rows * width; i++) {
        score[i] = score_of(i);
    }
    views[count] = (by_tensor_view){
        .name = "score.weight", .dtype = BY_F32, .rank = 2, .shape = {rows, width}, .data = score};
    count += rows > 0;
    check_ok(by_weights_write(path, views, count, 0, &error), &error);
    by_string_format(&json, "{%s%s", keys, strchr(by_weights_config(weights), '{') + 1);
    char *file = by__path_join(path, "config.json");
    check_ok(by__file_write(file, json.data, json.length, &error), &error);
    by_weights_close(&weights);
    free(json.data);
    free(file);
    return path;
}

static by_pretrained *open_model(const char *path)
{
    by_error error = {0};
    by_pretrained *model;
    check_ok(by_pretrained_open(&model, path, false, &error), &error);
    return model;
}

static by_classifier *open_classifier(const char *path)
{
    const by_embed_options options = {.batch = 4, .normalize = true};
    by_error error = {0};
    by_classifier *classifier;
    by_pretrained *model = open_model(path);
    check_ok(by_classifier_open(&classifier, by_pretrained_config(model),
                                by_pretrained_weights(model), &options, &error),
             &error);
    by_pretrained_close(&model);
    return classifier;
}

/* What the head makes of the texts without their padding, by by_embed one at a time. */
static void expected_of(const char *path, int64_t labels, double out[4][LABELS])
{
    by_error error = {0};
    by_embed *embed;
    by_pretrained *model = open_model(path);
    check_ok(by_embed_open(&embed, by_pretrained_config(model), by_pretrained_weights(model), NULL,
                           &error),
             &error);
    for (size_t t = 0; t < 4; t++) {
        const float *vector;
        check_ok(by_embed_run(embed, texts[t].tokens, lengths[t], &vector, &error), &error);
        for (int64_t i = 0; i < labels; i++) {
            out[t][i] = 0.0;
            for (int64_t k = 0; k < WIDTH; k++) {
                out[t][i] += (double)score_of(i * WIDTH + k) * (double)vector[k];
            }
        }
    }
    by_embed_close(&embed);
    by_pretrained_close(&model);
}

static void test_single(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    const float *rows;
    double values[4][LABELS];
    char *path = make_model(LABELS, WIDTH, NAMES PADDED);
    by_classifier *c = open_classifier(path);
    expected_of(path, LABELS, values);
    assert_int_equal(by_classifier_problem(c), BY_PROBLEM_SINGLE);
    assert_int_equal(by_classifier_labels(c), LABELS);
    assert_string_equal(by_classifier_label(c, 0), "bad");
    assert_string_equal(by_classifier_label(c, 1), "so \"so\"");
    assert_string_equal(by_classifier_label(c, 2), "good");
    check_ok(by_classifier_run(c, texts, 4, &rows, &error), &error);
    for (size_t t = 0; t < 4; t++) {
        double sum = exp(values[t][0]) + exp(values[t][1]) + exp(values[t][2]);
        for (size_t i = 0; i < LABELS; i++) {
            assert_true(fabs((double)rows[t * LABELS + i] - exp(values[t][i]) / sum) < 1e-5);
        }
    }
    assert_int_equal(by_classifier_check(c, 32, &error), BY_OK);
    check_error(by_classifier_check(c, 33, &error), BY_EARG, &error, "1 to 32");
    check_error(by_classifier_run(c, texts, 5, &rows, &error), BY_EARG, &error, "1 to 4");
    by_classifier_close(&c);
    temporary_remove(path);
}

static void test_multi(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    const float *rows;
    double values[4][LABELS];
    char *path = make_model(2, WIDTH, PADDED "\"problem_type\": \"multi_label_classification\", ");
    by_classifier *c = open_classifier(path);
    expected_of(path, 2, values);
    assert_int_equal(by_classifier_problem(c), BY_PROBLEM_MULTI);
    assert_string_equal(by_classifier_label(c, 1), "LABEL_1");
    check_ok(by_classifier_run(c, texts, 4, &rows, &error), &error);
    for (size_t t = 0; t < 4; t++) {
        for (size_t i = 0; i < 2; i++) {
            double probability = 1.0 / (1.0 + exp(-values[t][i]));
            assert_true(fabs((double)rows[t * 2 + i] - probability) < 1e-5);
        }
    }
    by_classifier_close(&c);
    temporary_remove(path);
}

/* One label without a type is a regression. */
static void test_regression(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    const float *rows;
    double values[4][LABELS];
    char *path = make_model(1, WIDTH, PADDED);
    by_classifier *c = open_classifier(path);
    expected_of(path, 1, values);
    assert_int_equal(by_classifier_problem(c), BY_PROBLEM_REGRESSION);
    check_ok(by_classifier_run(c, texts, 4, &rows, &error), &error);
    for (size_t t = 0; t < 4; t++) {
        assert_true(fabs((double)rows[t] - values[t][0]) < 1e-5);
    }
    by_classifier_close(&c);
    temporary_remove(path);
}

static void test_errors(void **state)
{
    BY_UNUSED(state);
    static const struct {
        int64_t rows;
        int64_t width;
        const char *keys;
        const char *message;
    } cases[] = {
        {0, 0, "", "has no tensor 'score.weight'"},
        {2, 12, "", "has 2 axes [2, 12]; the model needs [labels, 16]"},
        {2, WIDTH, NAMES, "\"id2label\" has 3 names, and score.weight 2 rows"},
        {2, WIDTH, "\"id2label\": {\"0\": \"a\", \"2\": \"b\"}, ", "no name for label 1 of 2"},
        {2, WIDTH, "\"id2label\": [\"a\", \"b\"], ", "no name for label 0 of 2"},
        {2, WIDTH, "\"id2label\": {\"0\": \"a\", \"1\": \"a\"}, ", "two labels"},
        {2, WIDTH, "\"num_labels\": 5, ", "\"num_labels\" is 5, and score.weight has 2 rows"},
        {2, WIDTH, "\"problem_type\": \"ranking\", ", "\"problem_type\" is 'ranking'"},
        {2, WIDTH, "\"problem_type\": 3, ", "(not a string)"},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by_error error = {0};
        by_classifier *c;
        char *path = make_model(cases[i].rows, cases[i].width, cases[i].keys);
        by_pretrained *model = open_model(path);
        check_error(by_classifier_open(&c, by_pretrained_config(model),
                                       by_pretrained_weights(model), NULL, &error),
                    BY_EFORMAT, &error, cases[i].message);
        by_pretrained_close(&model);
        temporary_remove(path);
    }
}

/* A head for classes is none for tokens. */
static void test_no_logits(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_logits *logits;
    char *path = make_model(2, WIDTH, "");
    by_pretrained *model = open_model(path);
    check_error(by_logits_open(&logits, by_pretrained_config(model), by_pretrained_weights(model),
                               1, 4, NULL, 1, &error),
                BY_EFORMAT, &error, "score.weight");
    by_pretrained_close(&model);
    temporary_remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_single), cmocka_unit_test(test_multi),
                                       cmocka_unit_test(test_regression),
                                       cmocka_unit_test(test_errors),
                                       cmocka_unit_test(test_no_logits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
