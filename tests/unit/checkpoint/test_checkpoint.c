/* Checkpoint directories: what is written comes back bit for bit; which one is the latest and the
 * best; what pruning keeps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <unistd.h>

#include "checkpoint/storage.h"
#include "checkpoints.h"
#include "temporary.h"

static const float weight[6] = {1, -2, 3.5f, -0.0f, 1e-38f, 6};
static const float moment[6] = {0.5f, 1, 2, 3, 4, 5};
static const by_tensor_view model[] = {{"w", BY_F32, 2, {2, 3}, weight}};
static const by_tensor_view optimizer[] = {{"m.w", BY_F32, 2, {2, 3}, moment},
                                           {"v.w", BY_F32, 2, {2, 3}, weight}};
static const char config[] = "{\"model_type\": \"gpt2\"}";

static checkpoint_content content(void)
{
    return (checkpoint_content){
        .model = model, .model_count = 1, .optimizer = optimizer, .optimizer_count = 2};
}

static void save(const char *root, uint64_t step)
{
    checkpoint_content c = content();
    by_error error = {0};
    if (checkpoint_write(root, step, &c, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
}

static void everything_comes_back(void **state)
{
    (void)state;
    static const double doubles[] = {0.1,
                                     -0.0,
                                     1.0 / 3,
                                     DBL_MAX,
                                     DBL_TRUE_MIN,
                                     INFINITY,
                                     -INFINITY,
                                     1e22,
                                     123456789012345678.0,
                                     1.8799999952316284};
    static const char *const keys[] = {"d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7", "d8", "d9"};
    by_checkpoint_value values[14];
    checkpoint_content c = content();
    by_checkpoint *checkpoint;
    by_tensor_view view;
    uint64_t u64;
    double f64;
    const char *string;
    by_error error = {0};
    char *root = temporary_make();
    char *other = by__path_join(root, "source.json");
    assert_int_equal(by__file_write(other, "tok", 3, NULL), BY_OK);
    for (size_t i = 0; i < 10; i++) {
        values[i] = (by_checkpoint_value){keys[i], BY_VALUE_F64, {.f64 = doubles[i]}};
    }
    values[10] = (by_checkpoint_value){"seed", BY_VALUE_U64, {.u64 = UINT64_MAX}};
    values[11] = (by_checkpoint_value){"zero", BY_VALUE_U64, {.u64 = 0}};
    values[12] = (by_checkpoint_value){"hash", BY_VALUE_STRING, {.string = "a\"b\\\n\xc3\xa9\t"}};
    values[13] = (by_checkpoint_value){"nan", BY_VALUE_F64, {.f64 = NAN}};
    const by_checkpoint_file files[] = {{"config.json", config, sizeof config - 1, NULL, NULL},
                                        {"tokenizer.json", NULL, 0, other, NULL}};
    c.values = values;
    c.value_count = 14;
    c.files = files;
    c.file_count = 2;
    /* Where the decimal point is a comma the files are the same (if such a locale is installed). */
    (void)setlocale(LC_ALL, "de_DE.UTF-8");
    assert_int_equal(checkpoint_write(root, 1000, &c, &error), BY_OK);
    assert_int_equal(by_checkpoint_open(&checkpoint, root, true, &error), BY_OK);
    (void)setlocale(LC_ALL, "C");
    assert_int_equal(by_checkpoint_step(checkpoint), 1000);
    assert_non_null(strstr(by_checkpoint_path(checkpoint), "/step-00001000"));
    assert_int_equal(by_checkpoint_value_count(checkpoint), 14);
    for (size_t i = 0; i < 10; i++) {
        assert_int_equal(by_checkpoint_value_f64(checkpoint, keys[i], &f64, NULL), BY_OK);
        assert_memory_equal(&f64, &doubles[i], sizeof f64);
        assert_string_equal(by_checkpoint_value_at(checkpoint, i)->key, keys[i]);
    }
    assert_int_equal(by_checkpoint_value_f64(checkpoint, "nan", &f64, NULL), BY_OK);
    assert_true(isnan(f64));
    assert_int_equal(by_checkpoint_value_u64(checkpoint, "seed", &u64, NULL), BY_OK);
    assert_true(u64 == UINT64_MAX);
    assert_int_equal(by_checkpoint_value_u64(checkpoint, "zero", &u64, NULL), BY_OK);
    assert_true(u64 == 0);
    assert_int_equal(by_checkpoint_value_string(checkpoint, "hash", &string, NULL), BY_OK);
    assert_string_equal(string, "a\"b\\\n\xc3\xa9\t");
    assert_int_equal(by_checkpoint_value_u64(checkpoint, "hash", &u64, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "is a string, not a u64"));
    assert_int_equal(by_checkpoint_value_u64(checkpoint, "sed", &u64, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "no value 'sed'"));
    assert_string_equal(by_weights_config(by_checkpoint_model(checkpoint)), config);
    assert_int_equal(by_weights_tensor(by_checkpoint_model(checkpoint), "w", &view, NULL), BY_OK);
    assert_memory_equal(view.data, weight, sizeof weight);
    assert_int_equal(by_weights_count(by_checkpoint_optimizer(checkpoint)), 2);
    assert_int_equal(by_weights_tensor(by_checkpoint_optimizer(checkpoint), "m.w", &view, NULL),
                     BY_OK);
    assert_memory_equal(view.data, moment, sizeof moment);
    char *copied = by__path_join(by_checkpoint_path(checkpoint), "tokenizer.json");
    char *text;
    size_t length;
    assert_int_equal(by__file_read(&text, &length, copied, 100, NULL), BY_OK);
    assert_string_equal(text, "tok");
    free(text);
    free(copied);
    free(other);
    by_checkpoint_close(&checkpoint);
    assert_null(checkpoint);
    temporary_remove(root);
}

static void the_same_content_gives_the_same_bytes(void **state)
{
    (void)state;
    char *root = temporary_make();
    char *a = by__path_join(root, "a");
    char *b = by__path_join(root, "b");
    char hash[2][33];
    save(a, 7);
    save(b, 7);
    const char *const directories[] = {a, b};
    for (int i = 0; i < 2; i++) {
        char *path;
        assert_int_equal(by__checkpoint_step_path(&path, directories[i], 7, NULL), BY_OK);
        char *manifest = by__path_join(path, "manifest.json");
        assert_int_equal(by__hash_file_hex(hash[i], manifest, NULL), BY_OK);
        free(manifest);
        free(path);
    }
    assert_string_equal(hash[0], hash[1]); /* the manifest holds the hashes of all other files */
    free(a);
    free(b);
    temporary_remove(root);
}

static void assert_latest(const char *root, uint64_t step, const char *const *mentions)
{
    char *path;
    char *skipped;
    char *expected;
    by_error error = {0};
    if (by_checkpoint_latest(root, &path, &skipped, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    assert_int_equal(by__checkpoint_step_path(&expected, root, step, NULL), BY_OK);
    assert_string_equal(path, expected);
    for (size_t i = 0; mentions[i] != NULL; i++) {
        if (strstr(skipped, mentions[i]) == NULL) {
            fail_msg("'%s' does not mention %s", skipped, mentions[i]);
        }
    }
    if (mentions[0] == NULL) {
        assert_string_equal(skipped, "");
    }
    free(expected);
    free(skipped);
    free(path);
}

static void the_latest_is_the_newest_whole_one(void **state)
{
    (void)state;
    char *root = temporary_make();
    char *path;
    by_error error = {0};
    by_checkpoint *checkpoint;
    assert_int_equal(by_checkpoint_latest(root, &path, NULL, &error), BY_ESTATE);
    assert_non_null(strstr(error.message, "no complete checkpoint"));
    save(root, 5);
    save(root, 99999999);
    save(root, 100000000);
    assert_latest(root, 100000000, (const char *const[]){NULL});
    char *broken = by__path_join(root, "step-100000000/manifest.json");
    assert_int_equal(unlink(broken), 0);
    free(broken);
    broken = by__path_join(root, "step-99999999/state.json");
    assert_int_equal(truncate(broken, 10), 0);
    free(broken);
    assert_latest(root, 5,
                  (const char *const[]){"step-100000000: there is no manifest.json",
                                        "step-99999999/state.json has 10 bytes", NULL});
    /* A copy under the name of another step is not that step. */
    char *from;
    char *to;
    assert_int_equal(by__checkpoint_step_path(&from, root, 5, NULL), BY_OK);
    assert_int_equal(by__checkpoint_step_path(&to, root, 6, NULL), BY_OK);
    assert_int_equal(rename(from, to), 0);
    assert_int_equal(by_checkpoint_latest(root, &path, NULL, &error), BY_ESTATE);
    assert_int_equal(by_checkpoint_open(&checkpoint, to, true, &error), BY_OK);
    by_checkpoint_close(&checkpoint);
    free(from);
    free(to);
    temporary_remove(root);
}

static void a_step_is_replaced_while_it_is_mapped(void **state)
{
    (void)state;
    char *root = temporary_make();
    by_checkpoint *old;
    by_checkpoint *new;
    by_tensor_view view;
    checkpoint_content c = content();
    save(root, 3);
    assert_int_equal(by_checkpoint_open(&old, root, true, NULL), BY_OK);
    const by_tensor_view changed = {"w", BY_F32, 2, {2, 3}, moment};
    c.model = &changed;
    assert_int_equal(checkpoint_write(root, 3, &c, NULL), BY_OK);
    assert_int_equal(by_checkpoint_open(&new, root, true, NULL), BY_OK);
    assert_int_equal(by_weights_tensor(by_checkpoint_model(old), "w", &view, NULL), BY_OK);
    assert_memory_equal(view.data, weight, sizeof weight);
    assert_int_equal(by_weights_tensor(by_checkpoint_model(new), "w", &view, NULL), BY_OK);
    assert_memory_equal(view.data, moment, sizeof moment);
    by_checkpoint_close(&old);
    by_checkpoint_close(&new);
    temporary_remove(root);
}

static bool has_step(const char *root, uint64_t step)
{
    char *path;
    assert_int_equal(by__checkpoint_step_path(&path, root, step, NULL), BY_OK);
    bool found = by__path_exists(path);
    free(path);
    return found;
}

static void pruning_keeps_the_newest_and_the_best(void **state)
{
    (void)state;
    char *root = temporary_make();
    char *path;
    double loss;
    by_error error = {0};
    assert_int_equal(by_checkpoint_best(root, &path, NULL, &error), BY_ESTATE);
    assert_int_equal(by_checkpoint_mark_best(root, 2, 1.5, &error), BY_EFORMAT);
    for (uint64_t step = 1; step <= 6; step++) {
        save(root, step);
    }
    assert_int_equal(by_checkpoint_mark_best(root, 2, 1.25, &error), BY_OK);
    char *manifest = by__path_join(root, "step-00000005/manifest.json");
    assert_int_equal(unlink(manifest), 0);
    free(manifest);
    assert_int_equal(by_checkpoint_prune(root, 0, &error), BY_EARG);
    assert_int_equal(by_checkpoint_prune(root, 2, &error), BY_OK);
    /* 5 is no checkpoint: it neither counts as one nor is touched. */
    const bool kept[] = {false, false, true, false, true, true, true};
    for (uint64_t step = 1; step <= 6; step++) {
        assert_int_equal(has_step(root, step), kept[step]);
    }
    assert_int_equal(by_checkpoint_best(root, &path, &loss, &error), BY_OK);
    assert_true(loss == 1.25);
    assert_non_null(strstr(path, "step-00000002"));
    free(path);
    /* A broken mark could cost the best checkpoint: nothing is removed. */
    char *best = by__path_join(root, "best.json");
    assert_int_equal(by__file_write(best, "{\"step\":", 8, NULL), BY_OK);
    assert_int_equal(by_checkpoint_prune(root, 1, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "best.json"));
    assert_true(has_step(root, 2));
    free(best);
    temporary_remove(root);
}

static void leftovers_go_and_two_writers_are_refused(void **state)
{
    (void)state;
    char *root = temporary_make();
    char *torn = by__path_join(root, "step-00000009.tmp-123");
    char *trash = by__path_join(root, ".trash-step-00000001-7");
    int lock;
    by_error error = {0};
    checkpoint_content c = content();
    assert_int_equal(by__make_dirs(torn, NULL), BY_OK);
    assert_int_equal(by__make_dirs(trash, NULL), BY_OK);
    assert_int_equal(by__checkpoint_root_lock(&lock, root, NULL), BY_OK);
    assert_int_equal(checkpoint_write(root, 1, &c, &error), BY_ESTATE);
    assert_non_null(strstr(error.message, "another process"));
    assert_true(by__path_exists(torn));
    assert_int_equal(close(lock), 0);
    save(root, 1);
    assert_false(by__path_exists(torn));
    assert_false(by__path_exists(trash));
    free(torn);
    free(trash);
    temporary_remove(root);
}

static void bad_content_is_refused_and_leaves_nothing(void **state)
{
    (void)state;
    char *root = temporary_make();
    const by_checkpoint_value twice[] = {{"a", BY_VALUE_U64, {.u64 = 1}},
                                         {"a", BY_VALUE_U64, {.u64 = 2}}};
    const by_checkpoint_value bad_text = {"a", BY_VALUE_STRING, {.string = "\xff"}};
    const by_checkpoint_file reserved = {"manifest.json", "x", 1, NULL, NULL};
    const by_checkpoint_file outside = {"../x", "x", 1, NULL, NULL};
    const by_checkpoint_file weights = {"model-1.safetensors", "x", 1, NULL, NULL};
    const by_checkpoint_file missing = {"tokenizer.json", NULL, 0, "/nonexistent/tokenizer.json",
                                        NULL};
    checkpoint_content bad[8];
    for (size_t i = 0; i < BY_ARRAY_LENGTH(bad); i++) {
        bad[i] = content();
    }
    bad[0].model_count = 0;
    bad[1].values = twice;
    bad[1].value_count = 2;
    bad[2].values = &bad_text;
    bad[2].value_count = 1;
    const by_checkpoint_file *const files[] = {&reserved, &outside, &weights, &missing};
    for (size_t i = 0; i < 4; i++) {
        bad[3 + i].files = files[i];
        bad[3 + i].file_count = 1;
    }
    const by_tensor_view hollow = {"w", BY_F32, 1, {4}, NULL};
    bad[7].optimizer = &hollow;
    bad[7].optimizer_count = 1;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(bad); i++) {
        by_error error = {0};
        char **names;
        size_t count;
        assert_int_not_equal(checkpoint_write(root, 1, &bad[i], &error), BY_OK);
        assert_non_null(strstr(error.message, "step 1 was not saved"));
        assert_int_equal(by__list_dir(&names, &count, root, NULL), BY_OK);
        for (size_t k = 0; k < count; k++) {
            assert_string_equal(names[k], ".lock");
        }
        by__names_free(names, count);
    }
    temporary_remove(root);
}

static void step_names(void **state)
{
    (void)state;
    uint64_t step = 0;
    assert_true(by__checkpoint_step_of_name("step-00000012", &step) && step == 12);
    assert_true(by__checkpoint_step_of_name("step-123456789", &step) && step == 123456789);
    static const char *const others[] = {"step-12",
                                         "step-",
                                         "step--0000001",
                                         "step-00000012.tmp-1",
                                         "step-000000012",
                                         "stop-00000012",
                                         "step-99999999999999999999999"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(others); i++) {
        assert_false(by__checkpoint_step_of_name(others[i], &step));
    }
}

/* torch.nn.functional.interpolate(mode="bicubic", align_corners=False) of a grid of 3 x 2 rows. */
static void test_grid_rows(void **state)
{
    static const float in[] = {0, 1, 4, -2, 3, 5, 0.5f, 2, -1, 7, 2, 2};
    static const float wide[] = {
        -0.707768f, 1.04364f,  0.150926f, 0.46689f,  2.017944f, -0.787109f, 3.884964f,  -2.04111f,
        4.743659f,  -2.61786f, 2.442405f, 3.645392f, 2.295918f, 3.110885f,  1.977417f,  1.94873f,
        1.658916f,  0.786575f, 1.512429f, 0.252069f, 2.024031f, 6.570364f,  1.787145f,  5.855059f,
        1.272095f,  4.299805f, 0.757044f, 2.744549f, 0.520158f, 2.029246f,  -1.661383f, 7.710632f,
        -1.008737f, 6.721784f, 0.410278f, 4.571777f, 1.829296f, 2.421769f,  2.481941f,  1.432924f};
    static const float small[] = {1.987305f, 0.371094f, 0.774414f, 4.414062f};
    float out[40];
    by__checkpoint_grid grid = {.from = {3, 2}, .to = {4, 5}};
    BY_UNUSED(state);
    by__checkpoint_grid_rows(out, in, &grid, 2);
    for (size_t i = 0; i < 40; i++) {
        assert_float_equal(out[i], wide[i], 1e-5);
    }
    grid.to[0] = 2;
    grid.to[1] = 1;
    by__checkpoint_grid_rows(out, in, &grid, 2);
    for (size_t i = 0; i < 4; i++) {
        assert_float_equal(out[i], small[i], 1e-5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_comes_back),
        cmocka_unit_test(the_same_content_gives_the_same_bytes),
        cmocka_unit_test(the_latest_is_the_newest_whole_one),
        cmocka_unit_test(a_step_is_replaced_while_it_is_mapped),
        cmocka_unit_test(pruning_keeps_the_newest_and_the_best),
        cmocka_unit_test(leftovers_go_and_two_writers_are_refused),
        cmocka_unit_test(bad_content_is_refused_and_leaves_nothing),
        cmocka_unit_test(step_names),
        cmocka_unit_test(test_grid_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
