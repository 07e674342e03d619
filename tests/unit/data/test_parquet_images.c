/* Parquet files with pictures, as pyarrow writes them (tests/fuzz/corpus/parquet_images): every
 * codec and kind of page gives the pictures that were put in, by their places and from an index.
 * */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "data/image/image_shard.h"
#include "data/image/picture_use.h"
#include "formats/shards/shard_content.h"
#include "temporary.h"

enum { ROWS = 24, WITHOUT = 5 /* the row whose bytes are null */ };

static const char *const names[] = {"ant", "bee", "cat"};

static void path_of(char out[512], const char *name)
{
    (void)snprintf(out, 512, "%s/tests/fuzz/corpus/parquet_images/%s", BY_SOURCE_DIR, name);
}

/* The bytes that stand for picture i. */
static size_t picture(char out[1024], size_t i)
{
    char word[24];
    size_t length = 0;
    (void)snprintf(word, sizeof word, "picture %zu ", i);
    for (size_t k = 0; k < 1 + i * 37 % 50; k++) {
        memcpy(out + length, word, strlen(word));
        length += strlen(word);
    }
    return length;
}

static void check_rows(const by__image_folder *f, const char *path)
{
    by__image_pages *pages;
    assert_int_equal(by__image_pages_open(&pages, NULL), BY_OK);
    assert_int_equal(f->count, ROWS);
    /* Backwards and forwards: from pages that are new, and from kept ones. */
    for (size_t k = 0; k < 2 * (size_t)ROWS; k++) {
        size_t i = k < ROWS ? ROWS - 1 - k : k - ROWS;
        const by__image_picture_file *p = &f->files[i];
        char want[1024];
        size_t length = picture(want, i);
        uint8_t *data;
        size_t size;
        char number[24];
        (void)snprintf(number, sizeof number, "%zu", i);
        assert_string_equal(p->range.sample, number);
        if (i == WITHOUT) {
            assert_non_null(strstr(p->range.problem, "its bytes are null"));
            continue;
        }
        assert_int_equal(p->label, i % 3);
        assert_int_equal(by__image_picture_bytes(&data, &size, NULL, pages, path, &p->range, NULL),
                         BY_OK);
        assert_int_equal(size, length);
        assert_memory_equal(data, want, length);
        free(data);
    }
    by__image_pages_close(&pages);
}

static void test_fixtures(void **state)
{
    static const char *const files[] = {"struct_none", "struct_snappy", "struct_zstd_2",
                                        "struct_gzip_words", "flat_snappy"};
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(files); i++) {
        char path[512];
        by__image_folder f = {0};
        path_of(path, files[i]);
        assert_true(by__image_is_shard(path));
        if (strcmp(files[i], "flat_snappy") == 0) { /* its labels are texts */
            char *classes[] = {(char[]){"ant"}, (char[]){"bee"}, (char[]){"cat"}};
            assert_int_equal(by__image_folder_fix(&f, classes, 3, NULL), BY_OK);
        }
        assert_int_equal(by__image_shard_add(&f, path, true, NULL), BY_OK);
        assert_int_equal(f.class_count, 3);
        for (size_t c = 0; c < 3; c++) {
            assert_string_equal(f.classes[c], names[c]);
        }
        bool packed = f.files[0].range.page.size > 0;
        assert_int_equal(packed, strcmp(files[i], "struct_none") != 0);
        check_rows(&f, path);
        by__image_folder_free(&f);
    }
}

static void test_refused(void **state)
{
    static const char *const files[][2] = {
        {"two_columns", "two columns of pictures, image.bytes and png"},
        {"no_picture", "has no column of pictures"},
        {"list", "it is a list or a map"}};
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(files); i++) {
        char path[512];
        by__image_folder f = {0};
        by_error error = {0};
        path_of(path, files[i][0]);
        assert_int_equal(by__image_shard_add(&f, path, true, &error), BY_EFORMAT);
        assert_non_null(strstr(error.message, files[i][1]));
        by__image_folder_free(&f);
    }
}

/* Shards whose names of classes differ are not mixed up. */
static void test_other_names(void **state)
{
    char path[512];
    char *text;
    size_t size;
    char *folder = temporary_make();
    char copies[2][512];
    by_error error = {0};
    by__image_folder f = {0};
    BY_UNUSED(state);
    path_of(path, "struct_none");
    assert_int_equal(by__file_read(&text, &size, path, 1 << 20, NULL), BY_OK);
    for (size_t i = 0; i < 2; i++) {
        (void)snprintf(copies[i], sizeof copies[i], "%s/%zu.parquet", folder, i);
        assert_int_equal(by__file_write(copies[i], text, size, NULL), BY_OK);
        for (size_t at = 0; at + 5 < size; at++) {
            if (memcmp(text + at, "\"bee\"", 5) == 0) {
                text[at + 1] = 'd';
            }
        }
    }
    free(text);
    const char *const paths[] = {copies[0], copies[1]};
    assert_int_equal(by__image_shard_add_all(&f, paths, 2, true, &error), BY_EFORMAT);
    assert_non_null(strstr(error.message, "1.parquet names other classes"));
    by__image_folder_free(&f);
    char *classes[] = {(char[]){"x"}, (char[]){"y"}, (char[]){"z"}};
    assert_int_equal(by__image_folder_fix(&f, classes, 3, NULL), BY_OK);
    assert_int_equal(by__image_shard_add_all(&f, paths, 2, true, &error), BY_OK);
    assert_int_equal(f.count, 2 * ROWS);
    assert_string_equal(f.classes[1], "y");
    by__image_folder_free(&f);
    temporary_remove(folder);
}

/* A page that is damaged is an error that names the file, whatever its samples. */
static void test_damage(void **state)
{
    char path[512];
    char *text;
    size_t size;
    uint8_t *data;
    char *folder = temporary_make();
    by_error error = {0};
    by__image_folder f = {0};
    by__image_pages *pages;
    BY_UNUSED(state);
    path_of(path, "struct_zstd_2");
    assert_int_equal(by__file_read(&text, &size, path, 1 << 20, NULL), BY_OK);
    (void)snprintf(path, sizeof path, "%s/damaged.parquet", folder);
    assert_int_equal(by__file_write(path, text, size, NULL), BY_OK);
    assert_int_equal(by__image_shard_add(&f, path, true, NULL), BY_OK);
    const by_image_range *range = &f.files[3].range;
    memset(text + range->begin, 0xff, (size_t)range->size);
    assert_int_equal(by__file_write(path, text, size, NULL), BY_OK);
    assert_int_equal(by__image_pages_open(&pages, NULL), BY_OK);
    assert_int_equal(by__image_picture_bytes(&data, &size, NULL, pages, path, range, &error),
                     BY_EFORMAT);
    assert_non_null(strstr(error.message, "damaged.parquet"));
    by__image_pages_close(&pages);
    by__image_folder_free(&f);
    free(text);
    temporary_remove(folder);
}

/* ---- an index ---- */

static by_status take_sample(void *user, const by__format_shard_sample *s, by_error *error)
{
    BY_UNUSED(error);
    by__format_shard_index_add(user, s);
    return BY_OK;
}

static by_status take_classes(void *user, const char *text, size_t size, by_error *error)
{
    BY_UNUSED(error);
    by__format_shard_index_classes(user, text, size);
    return BY_OK;
}

/* What an index gives makes the same index again. */
static void test_index(void **state)
{
    char path[512];
    by__map map;
    by__format_shard_index first = {0};
    by__format_shard_index second = {0};
    BY_UNUSED(state);
    path_of(path, "struct_snappy");
    assert_int_equal(by__map_open(&map, path, NULL), BY_OK);
    by__format_shard shard = {.path = path,
                              .data = map.data,
                              .size = map.size,
                              .image_field = "",
                              .label_field = "",
                              .take = take_sample,
                              .classes = take_classes,
                              .user = &first};
    const by__format_shard_row *row = by__format_shard_find(path, map.data, map.size);
    assert_int_equal(row->read(&shard, NULL), BY_OK);
    assert_int_equal(by__format_shard_index_finish(&first, "key", NULL), BY_OK);
    const uint8_t *data = (const uint8_t *)first.text.data;
    assert_true(by__format_shard_index_is(data, first.text.length, "key", map.size));
    shard.data = data;
    shard.size = first.text.length;
    shard.user = &second;
    assert_int_equal(by__format_shard_index_read(&shard, NULL), BY_OK);
    assert_int_equal(by__format_shard_index_finish(&second, "key", NULL), BY_OK);
    assert_int_equal(second.count, ROWS);
    assert_int_equal(first.text.length, second.text.length);
    assert_memory_equal(first.text.data, second.text.data, first.text.length);
    by_string_free(&first.text);
    by_string_free(&second.text);
    by__map_close(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fixtures),    cmocka_unit_test(test_refused),
        cmocka_unit_test(test_other_names), cmocka_unit_test(test_damage),
        cmocka_unit_test(test_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
