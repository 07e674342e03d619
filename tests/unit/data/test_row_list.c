/* Lists of examples: as text and as npy, what is refused, and parts that they make. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/array_set.h"
#include "data/loader/row_list.h"
#include "formats/npy.h"
#include "runner.h"
#include "temporary.h"

enum { EXAMPLES = 50 };

static char *folder;
static char path[512];

static int make_folder(void **state)
{
    BY_UNUSED(state);
    folder = temporary_make();
    (void)snprintf(path, sizeof path, "%s/rows", folder);
    return 0;
}

static int drop_folder(void **state)
{
    BY_UNUSED(state);
    temporary_remove(folder);
    return 0;
}

static const struct {
    const char *text;
    size_t count;
    uint64_t rows[4];
} lists[] = {
    {"3\n0\n49\n", 3, {3, 0, 49}},
    {"7", 1, {7}},
    {"1\r\n1\r\n0002\r\n", 3, {1, 1, 2}},
};

static void test_text(void **state)
{
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(lists); i++) {
        uint64_t *rows;
        uint64_t count;
        by_error error = {0};
        check_ok(by__file_write(path, lists[i].text, strlen(lists[i].text), &error), &error);
        check_ok(by__loader_row_list_read(&rows, &count, path, EXAMPLES, &error), &error);
        assert_int_equal(count, lists[i].count);
        assert_memory_equal(rows, lists[i].rows, count * sizeof *rows);
        free(rows);
    }
}

static void test_npy(void **state)
{
    static const unsigned widths[] = {2, 4, 8};
    static const uint64_t values[] = {49, 0, 17, 17};
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(widths); i++) {
        by__format_npy_writer *writer;
        char hash[33];
        uint64_t *rows;
        uint64_t count;
        by_error error = {0};
        check_ok(by__format_npy_writer_open(&writer, path, widths[i], &error), &error);
        check_ok(by__format_npy_writer_add_u64(writer, values, 4, &error), &error);
        check_ok(by__format_npy_writer_finish(writer, hash, &error), &error);
        by__format_npy_writer_close(&writer);
        check_ok(by__loader_row_list_read(&rows, &count, path, EXAMPLES, &error), &error);
        assert_int_equal(count, 4);
        assert_memory_equal(rows, values, sizeof values);
        free(rows);
        assert_int_equal(by__loader_row_list_read(&rows, &count, path, 49, &error), BY_EFORMAT);
        assert_non_null(strstr(error.message, "element 0 is not the number of an example, from 0 "
                                              "to 48"));
    }
}

/* A list may be an array of an archive. */
static void test_archive(void **state)
{
    char named[560];
    char *archive;
    size_t size;
    uint64_t *rows;
    uint64_t count;
    by_error error = {0};
    BY_UNUSED(state);
    check_ok(by__file_read(&archive, &size, BY_SOURCE_DIR "/tests/fuzz/corpus/npz/graph", 1 << 20,
                           &error),
             &error);
    (void)snprintf(named, sizeof named, "%s/g.npz", folder);
    check_ok(by__file_write(named, archive, size, &error), &error);
    free(archive);
    (void)snprintf(named, sizeof named, "%s/g.npz/attr_indices", folder);
    check_ok(by__loader_row_list_read(&rows, &count, named, EXAMPLES, &error), &error);
    assert_int_equal(count, 3);
    assert_true(rows[0] == 1 && rows[1] == 2 && rows[2] == 0);
    free(rows);
}

static void test_refusals(void **state)
{
    static const struct {
        const char *text;
        const char *message;
    } cases[] = {
        {"", "the list of examples is empty"},
        {"1\n\n2\n", "line 2 is not the number of an example, from 0 to 49"},
        {"1\n50\n", "line 2 is"},
        {"-1\n", "line 1 is"},
        {"1.0\n", "line 1 is"},
        {"18446744073709551616\n", "line 1 is"},
        {"\x93NUMPY", "rows"},
    };
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        uint64_t *rows = NULL;
        uint64_t count;
        by_error error = {0};
        check_ok(by__file_write(path, cases[i].text, strlen(cases[i].text), &error), &error);
        if (by__loader_row_list_read(&rows, &count, path, EXAMPLES, &error) != BY_EFORMAT ||
            strstr(error.message, cases[i].message) == NULL) {
            fail_msg("case %zu: %s", i, error.message);
        }
        assert_null(rows);
    }
}

static void test_sets(void **state)
{
    static const uint64_t list[] = {4, 1, 1, 5};
    static const uint64_t expected[] = {0, 2, 3};
    static const uint64_t other[] = {2, 3, 5, 0};
    uint64_t *rows;
    uint64_t count;
    uint64_t example = 0;
    bool found;
    BY_UNUSED(state);
    assert_int_equal(by__loader_row_list_complement(&rows, &count, list, 4, 6, NULL), BY_OK);
    assert_int_equal(count, 3);
    assert_memory_equal(rows, expected, sizeof expected);
    free(rows);
    assert_int_equal(by__loader_row_list_common(&found, &example, list, 4, expected, 3, 6, NULL),
                     BY_OK);
    assert_false(found);
    assert_int_equal(by__loader_row_list_common(&found, &example, list, 4, other, 4, 6, NULL),
                     BY_OK);
    assert_true(found && example == 5);
}

/* A source over a list yields its examples in that order, and all of them in an epoch. */
static void test_part(void **state)
{
    static const uint64_t list[] = {4, 1, 5, 0};
    static const int32_t labels[] = {0, 10, 20, 30, 40, 50};
    const by_array array = {"labels", BY_I32, BY_SHAPE(6), labels};
    const by_part part = {.count = 4, .total = 6, .rows = list};
    by_array_set *set;
    by_source *source;
    by_loader *loader;
    by_batch batch;
    BY_UNUSED(state);
    assert_int_equal(by_array_set_open(&set, "s", &array, 1, NULL), BY_OK);
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        const by_array_source_options options = {.target = "labels", .shuffle = shuffle != 0};
        assert_int_equal(by_array_source_open(&source, set, &part, &options, NULL), BY_OK);
        assert_int_equal(by_loader_open(&loader, source, &(by_loader_options){.batch = 4}, NULL),
                         BY_OK);
        assert_int_equal(by_loader_next(loader, &batch, NULL), BY_OK);
        const int32_t *got = by_batch_array(&batch, "labels")->data;
        int32_t sum = 0;
        for (size_t i = 0; i < 4; i++) {
            assert_true(shuffle != 0 || got[i] == labels[list[i]]);
            assert_int_equal(by_part_example(&part, i), list[i]);
            sum += got[i];
        }
        assert_int_equal(sum, 100);
        by_loader_close(&loader);
    }
    by_array_set_close(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),    cmocka_unit_test(test_npy),
        cmocka_unit_test(test_archive), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_sets),    cmocka_unit_test(test_part),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
