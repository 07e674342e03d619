/* The manifest of packed tokens: written, read back, and refused when anything is off. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data/corpus/token_manifest.h"
#include "temporary.h"

#define HASH "0123456789abcdef0123456789abcdef"

static const char good[] =
    "{\"format\": \"banyan-tokens\", \"version\": 1, \"dtype\": \"u16\", \"vocab\": 300,\n"
    "\"eos\": 0, \"tokens\": 7, \"documents\": 2, \"text_bytes\": 20,\n"
    "\"tokenizer\": {\"file\": \"tokenizer.json\", \"hash\": \"" HASH "\"},\n"
    "\"offsets\": {\"file\": \"documents.npy\", \"xxh3_128\": \"" HASH "\"},\n"
    "\"shards\": [{\"file\": \"a.npy\", \"tokens\": 4, \"xxh3_128\": \"" HASH "\"},"
    "{\"file\": \"b.npy\", \"tokens\": 3, \"xxh3_128\": \"" HASH "\"}],\n"
    "\"sources\": [{\"path\": \"x/y.txt\", \"bytes\": 20, \"xxh3_128\": \"" HASH "\"}]}";

static void test_round_trip(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by__data_token_manifest m;
    by__data_token_manifest again;
    char *directory = temporary_make();
    if (by__data_token_manifest_parse(&m, "m", good, strlen(good), &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    assert_int_equal(by__data_token_manifest_read(&again, directory, &error), BY_EIO);
    assert_int_equal(by__data_token_manifest_write(&m, directory, &error), BY_OK);
    assert_int_equal(by__data_token_manifest_read(&again, directory, &error), BY_OK);
    assert_int_equal(again.width, 2);
    assert_int_equal(again.vocab, 300);
    assert_int_equal(again.eos, 0);
    assert_int_equal(again.tokens, 7);
    assert_int_equal(again.documents, 2);
    assert_int_equal(again.text_bytes, 20);
    assert_string_equal(again.tokenizer_file, "tokenizer.json");
    assert_string_equal(again.tokenizer_hash, HASH);
    assert_string_equal(again.offsets_file, "documents.npy");
    assert_int_equal(again.shard_count, 2);
    assert_string_equal(again.shards[1].file, "b.npy");
    assert_int_equal(again.shards[1].tokens, 3);
    assert_int_equal(again.source_count, 1);
    assert_string_equal(again.sources[0].path, "x/y.txt");
    by__data_token_manifest_free(&m);
    by__data_token_manifest_free(&again);
    temporary_remove(directory);
}

/* Replaces the first `from` in the good manifest. */
static void check_refused(const char *from, const char *to, const char *message)
{
    by_error error = {0};
    by__data_token_manifest m;
    by_string text = {0};
    const char *at = strstr(good, from);
    assert_non_null(at);
    by_string_add(&text, good, (size_t)(at - good));
    by__string_append(&text, to);
    by__string_append(&text, at + strlen(from));
    by_status status = by__data_token_manifest_parse(&m, "m.json", text.data, text.length, &error);
    if (status != BY_EFORMAT || strstr(error.message, message) == NULL ||
        strstr(error.message, "m.json") == NULL) {
        fail_msg("%s -> %s: %d %s", from, to, status, error.message);
    }
    by_string_free(&text);
}

static void test_refusals(void **state)
{
    BY_UNUSED(state);
    check_refused("banyan-tokens", "other", "format");
    check_refused("\"version\": 1", "\"version\": 2", "version 2");
    check_refused("u16", "i16", "dtype");
    check_refused("\"vocab\": 300", "\"vocab\": 65537", "vocab");
    check_refused("\"vocab\": 300", "\"vocab\": -1", "vocab");
    check_refused("\"vocab\": 300", "\"vocab\": 3.5", "vocab");
    check_refused("\"eos\": 0", "\"eos\": 300", "eos");
    check_refused("\"eos\": 0", "\"eos\": -2", "eos");
    check_refused("\"eos\": 0", "\"eos\": null", "eos");
    check_refused("\"tokens\": 7", "\"tokens\": 8", "the shards hold 7");
    check_refused("\"tokens\": 7", "\"tokens\": 9007199254740993", "tokens");
    check_refused("\"documents\": 2", "\"document\": 2", "documents is missing");
    check_refused("\"documents\": 2", "\"documents\": 2, \"more\": 1", "unknown key more");
    check_refused("\"documents\": 2", "\"documents\": 2, \"documents\": 2", "duplicate");
    check_refused("\"a.npy\"", "\"../a.npy\"", "plain file name");
    check_refused("\"a.npy\"", "\"..\"", "plain file name");
    check_refused("\"a.npy\"", "\"\"", "plain file name");
    check_refused("\"a.npy\"", "3", "shards[].file");
    check_refused("\"tokenizer.json\"", "\"/etc/passwd\"", "plain file name");
    check_refused("\"hash\": \"0", "\"hash\": \"G", "hex");
    check_refused("\"hash\": \"0", "\"hash\": \"", "hex");
    check_refused("\"hash\"", "\"hush\"", "tokenizer.hash is missing");
    check_refused("\"path\": \"x/y.txt\"", "\"path\": 1", "sources[].path");
    check_refused("{\"file\": \"a.npy\"", "{\"fil\": \"a.npy\"", "shards[].file is missing");
    check_refused("\"sources\": [", "\"sources\": [3, ", "sources[]. is not an object");
    check_refused("{\"format\"", "[{\"format\"", "m.json:");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
