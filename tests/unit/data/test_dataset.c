/* Packed data sets: what they hold, and that damaged files are refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "banyan/data.h"
#include "base/base.h"
#include "data/corpus/token_manifest.h"
#include "packed_folder.h"

static void test_dataset(void **state)
{
    static const char *const dtypes[] = {"u16", "u32"};
    for (size_t k = 0; k < 2; k++) {
        int32_t tokens[1003];
        uint64_t document;
        uint64_t begin;
        uint64_t end;
        by_error error;
        by_dataset *data = packed_folder_open(state, 1003, dtypes[k]);
        assert_int_equal(by_dataset_tokens(data), 1003);
        assert_int_equal(by_dataset_vocab(data), 1003);
        assert_int_equal(by_dataset_documents(data), 35);
        assert_int_equal(by_dataset_text_bytes(data), 4012);
        assert_string_equal(by_dataset_tokenizer_hash(data), "0123456789abcdef0123456789abcdef");
        for (uint64_t from = 0; from < 1003; from += 9) {
            for (size_t count = 0; count <= 1003 - from; count += 53) {
                assert_int_equal(by_dataset_read(data, from, count, tokens, NULL), BY_OK);
                for (size_t i = 0; i < count; i++) {
                    assert_int_equal(tokens[i], from + i);
                }
            }
        }
        for (uint64_t at = 0; at < 1003; at++) {
            assert_int_equal(by_dataset_document_at(data, at, &document, &begin, &end, NULL),
                             BY_OK);
            assert_true(begin == at / 30 * 30 && begin <= at && at < end);
            assert_true(end == (begin + 30 < 1003 ? begin + 30 : 1003));
            /* Behind the empty third document, numbers are one higher. */
            assert_true(document == at / 30 + (at >= 60 ? 1 : 0));
        }
        assert_int_equal(by_dataset_document_at(data, 1003, NULL, NULL, NULL, NULL), BY_EARG);
        assert_int_equal(by_dataset_document_at(data, 5, NULL, NULL, NULL, NULL), BY_OK);
        assert_int_equal(by_dataset_read(data, 1003, 0, tokens, NULL), BY_OK);
        assert_int_equal(by_dataset_read(data, 1000, 4, tokens, &error), BY_EARG);
        assert_int_equal(by_dataset_read(data, UINT64_MAX, SIZE_MAX, tokens, &error), BY_EARG);
        by_dataset_close(&data);
        by_dataset_close(&data);
        by_dataset_close(NULL);
    }
}

/* Writes bytes into a file of the folder, or cuts it when `bytes` is NULL. */
static void damage(const char *folder, const char *file, size_t offset, const char *bytes, size_t n)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", folder, file);
    if (bytes == NULL) {
        assert_int_equal(truncate(path, (off_t)offset), 0);
        return;
    }
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)offset, SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* `message` has @ where the folder is named. */
static void not_opened(void **state, bool verify, by_status status, const char *message)
{
    by_dataset *data = NULL;
    by_error error = {0};
    by_dataset_options options = {.verify = verify};
    char expected[600];
    const char *at = strchr(message, '@');
    (void)snprintf(expected, sizeof expected, "%.*s%s%s", (int)(at - message), message,
                   (const char *)*state, at + 1);
    assert_int_equal(by_dataset_open(&data, *state, &options, &error), status);
    assert_string_equal(error.message, expected);
    assert_null(data);
}

static void test_damaged_files(void **state)
{
    char path[128];
    not_opened(state, false, BY_EIO,
               "@ holds no packed text: it has no manifest.json; `banyan pack` makes one of text");
    /* Truncated, as by a full disk. */
    packed_folder_write(*state, 250, "u16");
    damage(*state, "tokens-00002.npy", 128 + 198, NULL, 0);
    not_opened(
        state, false, BY_EFORMAT,
        "@/tokens-00002.npy: the header promises 100 elements of 2 bytes from offset 128, but "
        "the file has 326 bytes");
    damage(*state, "tokens-00002.npy", 0, NULL, 0);
    not_opened(state, false, BY_EFORMAT,
               "@/tokens-00002.npy: not an npy file (no \\x93NUMPY at offset 0)");
    /* Missing. */
    packed_folder_write(*state, 250, "u16");
    (void)snprintf(path, sizeof path, "%s/tokens-00003.npy", (const char *)*state);
    assert_int_equal(unlink(path), 0);
    not_opened(state, false, BY_EIO, "cannot open @/tokens-00003.npy: No such file or directory");
    /* Good npy files, but not those of the manifest. */
    packed_folder_write(*state, 250, "u16");
    uint64_t zeros[100] = {0};
    char hash[33];
    packed_folder_npy(*state, "tokens-00000.npy", 2, zeros, 99, hash);
    not_opened(state, false, BY_EFORMAT,
               "@/tokens-00000.npy: 99 elements of 2 bytes, but the manifest says 100 of 2 bytes");
    packed_folder_npy(*state, "tokens-00000.npy", 4, zeros, 100, hash);
    not_opened(state, false, BY_EFORMAT,
               "@/tokens-00000.npy: 100 elements of 4 bytes, but the manifest says 100 of 2 bytes");
    /* One flipped bit: found by the checksum. */
    packed_folder_write(*state, 250, "u16");
    damage(*state, "tokens-00000.npy", 128 + 20, "\x0b", 1);
    by_dataset *data;
    assert_int_equal(by_dataset_open(&data, *state, NULL, NULL), BY_OK);
    by_dataset_close(&data);
    by_error error = {0};
    assert_int_equal(by_dataset_open(&data, *state, &(by_dataset_options){.verify = true}, &error),
                     BY_EFORMAT);
    assert_non_null(strstr(error.message,
                           "/tokens-00000.npy: damaged: the 200 bytes from offset 128 "
                           "have checksum "));
    assert_non_null(strstr(error.message, ", but the manifest says "));
    /* Document offsets. */
    packed_folder_write(*state, 250, "u16");
    damage(*state, "documents.npy", 128 + 8, "\xff", 1);
    not_opened(state, false, BY_EFORMAT,
               "@/documents.npy: the number at offset 144 is 60, but offsets start at 0, never "
               "decrease and end at 250, the number of tokens");
    packed_folder_write(*state, 250, "u16");
    damage(*state, "documents.npy", 128, "\x01", 1);
    not_opened(state, false, BY_EFORMAT,
               "@/documents.npy: the number at offset 128 is 1, but offsets start at 0, never "
               "decrease and end at 250, the number of tokens");
    packed_folder_write(*state, 20, "u16");
    damage(*state, "documents.npy", 128 + 8, "\x15", 1);
    not_opened(state, false, BY_EFORMAT,
               "@/documents.npy: the number at offset 136 is 21, but offsets start at 0, never "
               "decrease and end at 20, the number of tokens");
}

/* A token beyond the vocabulary never reaches a model. */
static void test_bad_token(void **state)
{
    static const char *const dtypes[] = {"u16", "u32"};
    for (size_t k = 0; k < 2; k++) {
        by_dataset *data;
        by_loader *loader;
        by_batch batch;
        by_error error = {0};
        char expected[300];
        size_t offset = 128 + 5 * (k == 0 ? 2 : 4);
        packed_folder_write(*state, 250, dtypes[k]);
        damage(*state, "tokens-00002.npy", offset, "\xfa\x00", 2);
        assert_int_equal(by_dataset_open(&data, *state, NULL, NULL), BY_OK);
        by_source *source;
        by_loader_options options = {.batch = 2};
        assert_int_equal(by_token_source_open(&source, data,
                                              &(by_token_options){.context = 20, .shuffle = false},
                                              NULL),
                         BY_OK);
        assert_int_equal(by_loader_open(&loader, source, &options, NULL), BY_OK);
        (void)snprintf(expected, sizeof expected,
                       "%s/tokens-00002.npy: damaged: token 250 at offset %zu is not below the "
                       "vocabulary of 250; pack the data again (sample 5)",
                       (const char *)*state, offset);
        for (int i = 0; i < 2; i++) { /* tokens 0 to 80: good */
            assert_int_equal(by_loader_next(loader, &batch, &error), BY_OK);
        }
        for (int i = 0; i < 3; i++) { /* token 105 is bad, now and later */
            memset(&error, 0, sizeof error);
            assert_int_equal(by_loader_next(loader, &batch, &error), BY_EFORMAT);
            assert_string_equal(error.message, expected);
            assert_true(by_loader_position(loader) == 4);
        }
        assert_int_equal(by_loader_seek(loader, 7, NULL), BY_OK); /* behind it */
        assert_int_equal(by_loader_next(loader, &batch, &error), BY_OK);
        const int32_t *first = by_batch_array(&batch, "tokens")->data;
        assert_int_equal(first[0], 140);
        by_loader_close(&loader);
        by_dataset_close(&data);
    }
}

/* A shard that is cut short while it is in use is an error that names it, not the end of the
 * process. */
static void test_cut_short_in_use(void **state)
{
    static const char *const dtypes[] = {"u16", "u32"};
    for (size_t k = 0; k < 2; k++) {
        by_dataset *data = packed_folder_open(state, 250, dtypes[k]);
        by_loader *loader;
        by_batch batch;
        by_error error = {0};
        int32_t tokens[8];
        char expected[300];
        uint64_t document;
        uint64_t begin;
        by_source *source;
        by_loader_options options = {.batch = 2, .prefetch = 1};
        damage(*state, "tokens-00002.npy", 128 + 2, NULL, 0);
        damage(*state, "documents.npy", 128, NULL, 0);
        (void)snprintf(expected, sizeof expected,
                       "%s/tokens-00002.npy no longer has byte 130: the file was truncated while "
                       "it was in use",
                       (const char *)*state);
        assert_int_equal(by_dataset_read(data, 98, 8, tokens, &error), BY_EFORMAT);
        assert_string_equal(error.message, expected);
        assert_int_equal(by_dataset_document_at(data, 40, &document, &begin, NULL, &error),
                         BY_EFORMAT);
        assert_int_equal(by_token_source_open(&source, data,
                                              &(by_token_options){.context = 20, .shuffle = false},
                                              NULL),
                         BY_OK);
        assert_int_equal(by_loader_open(&loader, source, &options, NULL), BY_OK);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(by_loader_next(loader, &batch, &error), BY_OK);
        }
        assert_int_equal(by_loader_next(loader, &batch, &error), BY_EFORMAT);
        assert_string_equal(error.message,
                            strcat(expected, k == 0 ? " (sample 5)" : " (sample 4)"));
        by_loader_close(&loader);
        by_dataset_close(&data);
    }
}

/* More shards than are held open at a time: the others are opened for each read. */
static void test_many_shards(void **state)
{
    enum { SHARDS = 300 };
    static by__data_token_shard shards[SHARDS];
    static char names[SHARDS][32];
    int32_t tokens[SHARDS];
    uint64_t offsets[2] = {0, SHARDS};
    by_dataset *data;
    by__data_token_manifest m = {.width = 2,
                                 .vocab = SHARDS,
                                 .eos = -1,
                                 .tokens = SHARDS,
                                 .documents = 1,
                                 .tokenizer_file = (char *)(uintptr_t) "tokenizer.json",
                                 .tokenizer_hash = "0123456789abcdef0123456789abcdef",
                                 .offsets_file = (char *)(uintptr_t) "documents.npy",
                                 .shards = shards,
                                 .shard_count = SHARDS};
    for (uint64_t i = 0; i < SHARDS; i++) {
        (void)snprintf(names[i], sizeof names[i], "tokens-%05d.npy", (int)i);
        shards[i].file = names[i];
        shards[i].tokens = 1;
        packed_folder_npy(*state, names[i], 2, &i, 1, shards[i].hash);
    }
    packed_folder_npy(*state, m.offsets_file, 8, offsets, 2, m.offsets_hash);
    assert_int_equal(by__data_token_manifest_write(&m, *state, NULL), BY_OK);
    assert_int_equal(by_dataset_open(&data, *state, &(by_dataset_options){.verify = true}, NULL),
                     BY_OK);
    assert_int_equal(by_dataset_read(data, 0, SHARDS, tokens, NULL), BY_OK);
    for (int i = 0; i < SHARDS; i++) {
        assert_int_equal(tokens[i], i);
    }
    by_dataset_close(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_dataset, packed_folder_make, packed_folder_drop),
        cmocka_unit_test_setup_teardown(test_damaged_files, packed_folder_make, packed_folder_drop),
        cmocka_unit_test_setup_teardown(test_bad_token, packed_folder_make, packed_folder_drop),
        cmocka_unit_test_setup_teardown(test_cut_short_in_use, packed_folder_make,
                                        packed_folder_drop),
        cmocka_unit_test_setup_teardown(test_many_shards, packed_folder_make, packed_folder_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
