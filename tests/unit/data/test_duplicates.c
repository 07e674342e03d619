/* Duplicate documents: how often near copies are found is what the theory says, new documents are
 * never taken for copies, and a pack without copies is the pack of the texts that stay. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data/corpus/token_manifest.h"
#include "data/pack/duplicates.h"
#include "temporary.h"

#define SMALL BY_SOURCE_DIR "/tests/parity/golden/tokenizer_small.json"

/* A text of `words` words, of which the last `changed` are not those of the text of that number. */
static char *make_text(uint32_t number, size_t words, size_t changed)
{
    by_string text = {0};
    char *out;
    for (size_t i = 0; i < words; i++) {
        uint64_t id = (uint64_t)number << 32 | i;
        if (i >= words - changed) {
            id |= (uint64_t)1 << 31;
        }
        by_string_format(&text, "%016llx ", (unsigned long long)by__hash64(&id, sizeof id));
    }
    assert_int_equal(by__string_release(&text, &out, NULL), BY_OK);
    return out;
}

static by_pack_dedup add(by__data_duplicates *set, const char *text)
{
    by__data_pack_signature signature;
    by_pack_dedup kind;
    by__data_signature_make(&signature, text, strlen(text), BY_PACK_DEDUP_NEAR);
    assert_int_equal(by__data_duplicates_add(set, &signature, &kind, NULL), BY_OK);
    return kind;
}

/* Pairs with a known similarity of their 5-grams are found as often as 1 - (1 - s^8)^14 says. */
static void test_probability(void **state)
{
    enum { WORDS = 204, PAIRS = 600 };
    static const size_t changed[] = {4, 16, 28, 40, 60, 100};
    BY_UNUSED(state);
    for (size_t c = 0; c < BY_ARRAY_LENGTH(changed); c++) {
        double grams = WORDS - 4;
        double s = (grams - (double)changed[c]) / (grams + (double)changed[c]);
        double expected = 1.0 - pow(1.0 - pow(s, 8.0), 14.0);
        double found = 0;
        for (uint32_t i = 0; i < PAIRS; i++) {
            by__data_duplicates set = {0};
            char *first = make_text((uint32_t)c * PAIRS + i, WORDS, 0);
            char *second = make_text((uint32_t)c * PAIRS + i, WORDS, changed[c]);
            assert_int_equal(add(&set, first), BY_PACK_DEDUP_NONE);
            by_pack_dedup kind = add(&set, second);
            assert_int_not_equal(kind, BY_PACK_DEDUP_EXACT);
            found += kind == BY_PACK_DEDUP_NEAR;
            by__data_duplicates_free(&set);
            free(first);
            free(second);
        }
        double deviation = sqrt(expected * (1.0 - expected) * PAIRS) + 1.0;
        if (fabs(found - expected * PAIRS) > 4.0 * deviation) {
            fail_msg("similarity %.3f: %g of %d pairs found, not %.1f", s, found, PAIRS,
                     expected * PAIRS);
        }
    }
}

/* Many documents that have nothing in common are all new, each of them once. */
static void test_new_documents(void **state)
{
    enum { DOCUMENTS = 5000 };
    by__data_duplicates set = {0};
    BY_UNUSED(state);
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < DOCUMENTS; i++) {
            char *text = make_text(i, 12, 0);
            assert_int_equal(add(&set, text), pass == 0 ? BY_PACK_DEDUP_NONE : BY_PACK_DEDUP_EXACT);
            free(text);
        }
    }
    by__data_duplicates_free(&set);
}

/* What makes no other words makes no other document; short texts have exact copies alone. */
static void test_words(void **state)
{
    by__data_duplicates set = {0};
    BY_UNUSED(state);
    assert_int_equal(add(&set, "The quick brown fox jumps over the lazy dog."), BY_PACK_DEDUP_NONE);
    assert_int_equal(add(&set, "the QUICK brown-fox  jumps over\nthe lazy dog"),
                     BY_PACK_DEDUP_NEAR);
    assert_int_equal(add(&set, "The quick brown fox"), BY_PACK_DEDUP_NONE);
    assert_int_equal(add(&set, "the quick brown fox"), BY_PACK_DEDUP_NONE);
    assert_int_equal(add(&set, "The quick brown fox"), BY_PACK_DEDUP_EXACT);
    assert_int_equal(add(&set, ""), BY_PACK_DEDUP_NONE);
    assert_int_equal(add(&set, ""), BY_PACK_DEDUP_EXACT);
    by__data_duplicates_free(&set);
}

/* ---- packs ---- */

static const char *const lines[] = {
    "{\"text\": \"one two three four five six seven\"}\n",
    "{\"text\": \"something else that is as long as it must be\"}\n",
    "{\"text\": \"one two three four five six seven\"}\n",
    "{\"text\": \"One, two; three, four: five, six... seven!\"}\n",
    "{\"text\": \"a last one with words of its own in it\"}\n",
    "{\"text\": \"something else that is as long as it must be\"}\n",
};

/* A file of the lines whose bits are set. */
static char *write_lines(const char *folder, const char *name, unsigned which)
{
    by_string text = {0};
    char *all;
    char *path = by__path_join(folder, name);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(lines); i++) {
        by__string_append(&text, (which >> i & 1u) != 0 ? lines[i] : "");
    }
    assert_int_equal(by__string_release(&text, &all, NULL), BY_OK);
    assert_int_equal(by__file_write(path, all, strlen(all), NULL), BY_OK);
    free(all);
    return path;
}

static by_pack_result pack(const char *folder, const char *input, const char *name,
                           by_pack_dedup dedup, size_t threads, char hash[33])
{
    by_error error = {0};
    by_pack_result result;
    by__data_token_manifest manifest;
    char *output = by__path_join(folder, name);
    by_pack_options options = {.inputs = &input,
                               .input_count = 1,
                               .output = output,
                               .tokenizer_kind = SMALL,
                               .threads = threads,
                               .dedup = dedup};
    if (by_pack(&options, &result, &error) != BY_OK ||
        by__data_token_manifest_read(&manifest, output, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    assert_int_equal(manifest.shard_count, 1);
    assert_int_equal(manifest.text_bytes, result.text_bytes);
    memcpy(hash, manifest.shards[0].hash, 33);
    by__data_token_manifest_free(&manifest);
    free(output);
    return result;
}

static void test_pack(void **state)
{
    const struct {
        by_pack_dedup dedup;
        unsigned stay; /* bits of lines */
        unsigned exact;
        unsigned near;
    } cases[] = {{BY_PACK_DEDUP_NONE, 0x3f, 0, 0},
                 {BY_PACK_DEDUP_EXACT, 0x1b, 2, 0},
                 {BY_PACK_DEDUP_NEAR, 0x13, 2, 1}};
    char *folder = temporary_make();
    char *all = write_lines(folder, "all.jsonl", 0x3f);
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        char name[4][32];
        char hash[2][33];
        for (size_t k = 0; k < 4; k++) {
            (void)snprintf(name[k], sizeof name[k], "case%zu-%zu%s", i, k, k == 3 ? ".jsonl" : "");
        }
        char *rest = write_lines(folder, name[3], cases[i].stay);
        by_pack_result wanted = pack(folder, rest, name[0], BY_PACK_DEDUP_NONE, 1, hash[0]);
        for (size_t threads = 1; threads <= 2; threads++) {
            by_pack_result r = pack(folder, all, name[threads], cases[i].dedup, threads, hash[1]);
            assert_string_equal(hash[0], hash[1]);
            assert_int_equal(r.tokens, wanted.tokens);
            assert_int_equal(r.documents, wanted.documents);
            assert_int_equal(r.text_bytes, wanted.text_bytes);
            assert_int_equal(r.exact_duplicates, cases[i].exact);
            assert_int_equal(r.near_duplicates, cases[i].near);
        }
        free(rest);
    }
    free(all);
    temporary_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_probability),
        cmocka_unit_test(test_new_documents),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_pack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
