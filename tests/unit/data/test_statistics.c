/* What is said of a packed directory, against numbers that are counted here. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/data.h"
#include "banyan/pack.h"
#include "temporary.h"

#define SMALL BY_SOURCE_DIR "/tests/parity/golden/tokenizer_small.json"

static by_dataset *open_packed(const char *folder, const char *text)
{
    by_error error = {0};
    by_dataset *data = NULL;
    char *input = by__path_join(folder, "in.jsonl");
    char *output = by__path_join(folder, "out");
    assert_int_equal(by__file_write(input, text, strlen(text), NULL), BY_OK);
    (void)by__remove_tree(output, NULL);
    if (by_pack(&(by_pack_options){.inputs = (const char *const[]){input},
                                   .input_count = 1,
                                   .output = output,
                                   .tokenizer_kind = SMALL,
                                   .no_eos = true},
                NULL, &error) != BY_OK ||
        by_dataset_open(&data, output, NULL, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    free(input);
    free(output);
    return data;
}

static by_dataset_statistics measure(const by_dataset *data, size_t context)
{
    by_error error = {0};
    by_dataset_statistics s;
    if (by_dataset_measure(&s, data,
                           &(by_dataset_statistics_options){.context = context, .seed = 3},
                           &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    return s;
}

/* Documents of 1 to 10 bytes, a token each. */
static void test_lengths(void **state)
{
    static const uint64_t expected[BY_LENGTH_QUANTILES] = {1, 1, 3, 5, 7, 9, 10};
    by_string text = {0};
    char *all;
    char *folder = temporary_make();
    BY_UNUSED(state);
    for (int i = 10; i > 0; i--) {
        by__string_append(&text, "{\"text\": \"");
        for (int k = 0; k < i; k++) {
            by__string_append(&text, "\\u0001"); /* a byte that no merge takes */
        }
        by__string_append(&text, "\"}\n");
    }
    assert_int_equal(by__string_release(&text, &all, NULL), BY_OK);
    by_dataset *data = open_packed(folder, all);
    by_dataset_statistics s = measure(data, 0);
    assert_int_equal(s.tokens, 55);
    assert_int_equal(s.documents, 10);
    assert_int_equal(s.empty_documents, 0);
    assert_memory_equal(s.lengths, expected, sizeof expected);
    assert_int_equal(s.used, 1);
    assert_true(s.entropy == 0.0);
    assert_int_equal(s.windows, 0);
    free(s.counts);
    by_dataset_close(&data);
    free(all);
    temporary_remove(folder);
}

/* Counts and entropy of random text, and the order of its windows. */
static void test_tokens_and_order(void **state)
{
    enum { BYTES = 60000, DOCUMENTS = 600 };
    by_string text = {0};
    char *all;
    char *folder = temporary_make();
    double entropy = 0.0;
    uint64_t sum = 0;
    BY_UNUSED(state);
    for (uint32_t i = 0; i < BYTES; i++) {
        static const char *const letters[] = {"\\u0001", "\\u0002", "\\u0003", "\\u0004"};
        uint64_t bits = by__hash64(&i, sizeof i);
        by__string_append(&text, i % (BYTES / DOCUMENTS) == 0 ? "{\"text\": \"" : "");
        by__string_append(&text, letters[bits % 8 < 4 ? 0 : bits % 4]);
        by__string_append(&text, (i + 1) % (BYTES / DOCUMENTS) == 0 ? "\"}\n" : "");
    }
    assert_int_equal(by__string_release(&text, &all, NULL), BY_OK);
    by_dataset *data = open_packed(folder, all);
    by_dataset_statistics s = measure(data, 8);
    assert_int_equal(s.tokens, BYTES);
    for (uint32_t i = 0; i < s.vocab; i++) {
        double share = (double)s.counts[i] / BYTES;
        entropy -= share > 0.0 ? share * log(share) : 0.0;
        sum += s.counts[i];
    }
    assert_int_equal(sum, BYTES);
    assert_int_equal(s.used, 4);
    assert_true(fabs(s.entropy - entropy) < 1e-12);
    /* 5/8, 1/8, 1/8, 1/8 */
    assert_true(fabs(entropy - 1.0735) < 0.01);
    assert_int_equal(s.windows, (BYTES - 8) / 8);
    /* 599 borders, of which 7 of 8 fall inside one of the 7,499 windows. */
    assert_true(fabs(s.documents_per_window - (1.0 + 599.0 * 7.0 / 8.0 / 7499.0)) < 1e-4);
    assert_true(fabs(s.order_correlation) < 4.0 / sqrt((double)s.windows));
    assert_true(fabs(s.order_chi_squared - 1.0) < 4.0 * 0.094);
    free(s.counts);
    by_dataset_close(&data);
    free(all);
    temporary_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_tokens_and_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
