/* Draws of examples: in proportion to their weights, as many of each class, and a function of seed,
 * epoch and sample alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/array_set.h"
#include "data/loader/draws.h"
#include "temporary.h"

enum { EXAMPLES = 120, EPOCHS = 50 };

static void check_ok(by_status status, const by_error *error)
{
    if (status != BY_OK) {
        fail_msg("%s", error->message);
    }
}

/* Of 120 examples, 100 have class 0, and 10 each of the others. */
static int32_t class_of(size_t i)
{
    return i % 6 != 3 ? 0 : i % 12 == 3 ? 1 : 2;
}

static by_array_set *make_set(void)
{
    static int32_t labels[EXAMPLES];
    static int32_t ids[EXAMPLES];
    const by_array arrays[] = {{"ids", BY_I32, BY_SHAPE(EXAMPLES), ids},
                               {"labels", BY_I32, BY_SHAPE(EXAMPLES), labels}};
    by_array_set *set;
    by_error error = {0};
    for (size_t i = 0; i < EXAMPLES; i++) {
        labels[i] = class_of(i);
        ids[i] = (int32_t)i;
    }
    check_ok(by_array_set_open(&set, "numbers", arrays, 2, &error), &error);
    return set;
}

/* Reads `count` ids from sample `start` on, this rank's half of each batch if `rank` is 0 or 1. */
static void read_ids(int32_t *out, const by_array_set *set, const by_array_source_options *options,
                     uint64_t start, size_t count, size_t threads, int rank)
{
    by_source *source;
    by_loader *loader;
    by_error error = {0};
    const by_part part = by_part_whole(EXAMPLES);
    check_ok(by_array_source_open(&source, set, &part, options, &error), &error);
    const by_loader_options how = {.batch = 10,
                                   .seed = 7,
                                   .start = start,
                                   .threads = threads,
                                   .first = rank == 1 ? 5 : 0,
                                   .count = rank < 0 ? 10 : 5};
    check_ok(by_loader_open(&loader, source, &how, &error), &error);
    for (size_t i = 0; i < count; i += how.count) {
        by_batch batch;
        check_ok(by_loader_next(loader, &batch, &error), &error);
        memcpy(out + i, by_batch_array(&batch, "ids")->data, how.count * sizeof *out);
        const int32_t *labels = by_batch_array(&batch, "labels")->data;
        for (size_t k = 0; k < how.count; k++) {
            assert_int_equal(labels[k], class_of((size_t)out[i + k]));
        }
    }
    by_loader_close(&loader);
}

static void test_balanced_classes(void **state)
{
    (void)state;
    static int32_t ids[EPOCHS * EXAMPLES];
    by_array_set *set = make_set();
    const by_array_source_options options = {.shuffle = true, .target = "labels", .balance = true};
    size_t times[EXAMPLES] = {0};
    read_ids(ids, set, &options, 0, EPOCHS * EXAMPLES, 1, -1);
    for (size_t e = 0; e < EPOCHS; e++) {
        size_t classes[3] = {0};
        for (size_t i = 0; i < EXAMPLES; i++) {
            classes[class_of((size_t)ids[e * EXAMPLES + i])]++;
            times[ids[e * EXAMPLES + i]]++;
        }
        for (size_t c = 0; c < 3; c++) {
            assert_int_equal(classes[c], EXAMPLES / 3);
        }
    }
    for (size_t i = 0; i < EXAMPLES; i++) { /* each example of a class as often, about */
        double want = (double)EPOCHS * EXAMPLES / 3 / (class_of(i) == 0 ? 100 : 10);
        assert_true((double)times[i] > 0.4 * want && (double)times[i] < 1.8 * want);
    }
    assert_memory_not_equal(ids, ids + EXAMPLES, EXAMPLES * sizeof *ids);
    by_array_set_close(&set);
}

/* Where the classes do not divide an epoch, their numbers differ by one, and take turns. */
static void test_balance_to_one(void **state)
{
    (void)state;
    enum { COUNT = 52, CLASSES = 3 };
    int32_t classes[COUNT];
    by_error error = {0};
    by__loader_draws d;
    size_t with_more[CLASSES] = {0};
    for (int32_t i = 0; i < COUNT; i++) {
        classes[i] = i < 40 ? 0 : i < 50 ? 2 : 7; /* those between have no example */
    }
    check_ok(by__loader_draws_open(&d, NULL, classes, COUNT, &error), &error);
    for (uint64_t e = 0; e < EPOCHS; e++) {
        size_t times[CLASSES] = {0};
        for (uint64_t i = 0; i < COUNT; i++) {
            const by_source_sample sample = {.place = i, .epoch = e, .seed = 7};
            int32_t class = classes[by__loader_draws_at(&d, &sample)];
            times[class == 0 ? 0 : class == 2 ? 1 : 2]++;
        }
        for (size_t c = 0; c < CLASSES; c++) {
            assert_in_range(times[c], 17, 18);
            with_more[c] += times[c] == 18;
        }
        assert_int_equal(times[0] + times[1] + times[2], COUNT);
    }
    for (size_t c = 0; c < CLASSES; c++) {
        assert_in_range(with_more[c], EPOCHS / 6, EPOCHS / 2);
    }
    by__loader_draws_free(&d);
}

static void test_same_draws(void **state)
{
    (void)state;
    enum { COUNT = 3 * EXAMPLES };
    static int32_t all[COUNT];
    static int32_t others[COUNT];
    double draws[EXAMPLES];
    by_array_set *set = make_set();
    for (size_t i = 0; i < EXAMPLES; i++) {
        draws[i] = (double)(i % 7);
    }
    for (int balance = 0; balance < 2; balance++) {
        const by_array_source_options options = {
            .shuffle = true, .target = "labels", .balance = balance == 1, .draws = draws};
        read_ids(all, set, &options, 0, COUNT, 1, -1);
        read_ids(others, set, &options, 0, COUNT, 3, -1);
        assert_memory_equal(all, others, sizeof all);
        read_ids(others, set, &options, 130, COUNT - 130, 2, -1); /* resumed within an epoch */
        assert_memory_equal(all + 130, others, (COUNT - 130) * sizeof *all);
        for (int rank = 0; rank < 2; rank++) { /* of two, each has its half of each batch */
            read_ids(others, set, &options, 0, COUNT / 2, 1, rank);
            for (size_t i = 0; i < COUNT / 2; i++) {
                size_t place = i / 5 * 10 + (size_t)rank * 5 + i % 5;
                assert_int_equal(others[i], all[place]);
            }
        }
    }
    by_array_set_close(&set);
}

static void test_weights(void **state)
{
    (void)state;
    static int32_t ids[EPOCHS * EXAMPLES];
    double draws[EXAMPLES];
    double sum = 0.0;
    by_array_set *set = make_set();
    for (size_t i = 0; i < EXAMPLES; i++) {
        draws[i] = i < 40 ? 0.0 : i < 80 ? 1.0 : 3.0;
        sum += draws[i];
    }
    size_t times[EXAMPLES] = {0};
    const by_array_source_options options = {.shuffle = true, .draws = draws};
    read_ids(ids, set, &options, 0, EPOCHS * EXAMPLES, 1, -1);
    for (size_t i = 0; i < EPOCHS * EXAMPLES; i++) {
        times[ids[i]]++;
    }
    for (size_t i = 0; i < EXAMPLES; i++) {
        double want = EPOCHS * EXAMPLES * draws[i] / sum;
        assert_true((double)times[i] >= 0.5 * want && (double)times[i] <= 1.6 * want);
    }
    by_array_set_close(&set);
}

static void test_refused(void **state)
{
    (void)state;
    by_error error = {0};
    by__loader_draws d;
    const double none[2] = {0, 0};
    const double negative[2] = {1, -1};
    const int32_t classes[2] = {0, -1};
    assert_int_equal(by__loader_draws_open(&d, none, NULL, 2, &error), BY_EARG);
    assert_non_null(strstr(error.message, "ever drawn"));
    by__loader_draws_free(&d);
    assert_int_equal(by__loader_draws_open(&d, negative, NULL, 2, &error), BY_EARG);
    by__loader_draws_free(&d);
    assert_int_equal(by__loader_draws_open(&d, NULL, classes, 2, &error), BY_EARG);
    by__loader_draws_free(&d);
    by_source *source;
    by_array_set *set = make_set();
    const by_part part = by_part_whole(EXAMPLES);
    const by_array_source_options options = {.shuffle = true, .balance = true};
    assert_int_equal(by_array_source_open(&source, set, &part, &options, &error), BY_EARG);
    assert_non_null(strstr(error.message, "labels"));
    by_array_set_close(&set);
}

static void test_files(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *reason; /* NULL: it is read */
    } cases[] = {
        {"1\n0.5\n0\n", NULL},
        {"1\r\n0.5\r\n0", NULL},
        {"1\n-0.5\n0\n", "line 2"},
        {"1\n\n0\n", "line 2"},
        {"1\nx\n0\n", "line 2"},
        {"1\n0.5\nnan\n", "line 3"},
        {"1\n0.5\n", "has 2 numbers, and there are 3 examples"},
        {"1\n0.5\n0\n1\n", "has 4 numbers"},
        {"\x93NUMPY", ""},
    };
    char *directory = temporary_make();
    char *path = by__path_join(directory, "draws");
    by_error error = {0};
    double *draws;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        check_ok(by__file_write(path, cases[i].text, strlen(cases[i].text), &error), &error);
        by_status status = by__loader_draws_read(&draws, path, 3, &error);
        assert_int_equal(status, cases[i].reason == NULL ? BY_OK : BY_EFORMAT);
        if (status == BY_OK) {
            assert_true(draws[0] == 1.0 && draws[1] == 0.5 && draws[2] == 0.0);
            free(draws);
        } else {
            assert_non_null(strstr(error.message, cases[i].reason));
        }
    }
    for (int wide = 0; wide < 2; wide++) {
        char head[129];
        const float narrow[3] = {1.0f, 0.5f, 0.0f};
        const double doubles[3] = {1.0, 0.5, 0.0};
        size_t bytes = wide ? sizeof doubles : sizeof narrow;
        uint8_t file[128 + sizeof doubles];
        (void)snprintf(head, sizeof head,
                       "\x93NUMPY\x01%c\x76%c{'descr': '<f%d', 'fortran_order': False, 'shape': "
                       "(3,), }",
                       1, 1, wide ? 8 : 4);
        memset(file, ' ', 128);
        memcpy(file, head, strlen(head));
        file[7] = 0;
        file[9] = 0;
        file[127] = '\n';
        memcpy(file + 128, wide ? (const void *)doubles : (const void *)narrow, bytes);
        check_ok(by__file_write(path, (const char *)file, 128 + bytes, &error), &error);
        check_ok(by__loader_draws_read(&draws, path, 3, &error), &error);
        assert_true(draws[0] == 1.0 && draws[1] == 0.5 && draws[2] == 0.0);
        free(draws);
    }
    char *archive;
    size_t size;
    char *file = by__path_join(directory, "g.npz");
    char *named = by__path_join(file, "attr_data");
    check_ok(by__file_read(&archive, &size, BY_SOURCE_DIR "/tests/fuzz/corpus/npz/graph", 1 << 20,
                           &error),
             &error);
    check_ok(by__file_write(file, archive, size, &error), &error);
    check_ok(by__loader_draws_read(&draws, named, 3, &error), &error);
    assert_true(draws[0] == 2.0 && draws[1] == 0.5 && draws[2] == 1.0);
    free(draws);
    free(archive);
    free(file);
    free(named);
    free(path);
    temporary_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_balanced_classes), cmocka_unit_test(test_balance_to_one),
        cmocka_unit_test(test_same_draws),       cmocka_unit_test(test_weights),
        cmocka_unit_test(test_refused),          cmocka_unit_test(test_files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
