/* Weights of tokens as targets: those of windows, of documents kept apart and of bins, and their
 * sums. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/data.h"
#include "base/base.h"
#include "packed_folder.h"
#include "runner.h"

#define TOKENS 1003

/* Some are 0. */
static float weight_of(uint64_t token)
{
    return (float)(token % 7) / 4.0f;
}

/* Writes an npy file of floats; the path is valid until the next call. */
static const char *write_weights(const char *folder, const char *type, size_t count, float last)
{
    static char path[128];
    char header[118];
    (void)snprintf(path, sizeof path, "%s/weights.npy", folder);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    int length =
        snprintf(header, sizeof header,
                 "{'descr': '%s', 'fortran_order': False, 'shape': (%zu,), }", type, count);
    memset(header + length, ' ', sizeof header - (size_t)length);
    header[sizeof header - 1] = '\n';
    assert_int_equal(fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, file), 10);
    assert_int_equal(fwrite(header, 1, sizeof header, file), sizeof header);
    for (size_t i = 0; i < count; i++) {
        float weight = i + 1 < count ? weight_of(i) : last;
        assert_int_equal(fwrite(&weight, sizeof weight, 1, file), 1);
    }
    assert_int_equal(fclose(file), 0);
    return path;
}

/* All batches of a source; `given`: tokens have the weights above, not 1. */
static void check_batches(const by_dataset *data, by_token_options options, bool given)
{
    by_source *sources[2];
    by_error error = {0};
    for (int i = 0; i < 2; i++) {
        check_ok(by_token_source_open(&sources[i], data, &options, &error), &error);
    }
    by_loader *all = packed_loader(sources[0], (by_loader_options){.batch = 4, .seed = 7});
    by_loader *half = packed_loader(
        sources[1], (by_loader_options){.batch = 4, .first = 2, .count = 2, .seed = 7});
    for (uint64_t k = 0; k < 1 + TOKENS / options.context / 4; k++) {
        by_batch batch;
        by_batch part;
        double sums[2] = {0};
        check_ok(by_loader_next(all, &batch, &error), &error);
        check_ok(by_loader_next(half, &part, &error), &error);
        if (batch.batch == 0) {
            break;
        }
        const int32_t *targets = by_batch_array(&batch, "targets")->data;
        const float *weights = by_batch_array(&batch, "weight")->data;
        for (size_t i = 0; i < 4 * options.context; i++) {
            float want = targets[i] < 0 ? 0.0f : given ? weight_of((uint64_t)targets[i]) : 1.0f;
            assert_true(weights[i] == want);
            sums[i / (2 * options.context)] += (double)want;
        }
        assert_true(batch.weighted && part.weighted);
        assert_true(batch.valid_weight == sums[0] + sums[1]); /* quarters: exact */
        assert_true(batch.global_weight == sums[0] + sums[1]);
        assert_true(part.valid_weight == sums[1] && part.global_weight == sums[0] + sums[1]);
    }
    by_loader_close(&all);
    by_loader_close(&half);
}

static void test_weights(void **state)
{
    static const size_t contexts[] = {1, 7, 30, 100};
    by_dataset *data = packed_folder_open(state, TOKENS, "u16");
    by_token_weights *weights;
    by_error error = {0};
    const char *path = write_weights(*state, "<f4", TOKENS, weight_of(TOKENS - 1));
    check_ok(by_token_weights_open(&weights, path, data, &error), &error);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(contexts); i++) {
        for (int form = 0; form < 12; form++) {
            const by_token_options options = {.context = contexts[i],
                                              .shuffle = form / 4 > 0,
                                              .packing = form / 4 > 1 ? BY_TOKENS_BEST_FIT
                                                                      : BY_TOKENS_STREAM,
                                              .documents = form % 2 != 0,
                                              .weighted = true,
                                              .weights = form % 4 > 1 ? weights : NULL};
            check_batches(data, options, options.weights != NULL);
        }
    }
    by_token_weights_close(&weights);
    by_dataset_close(&data);
}

static void test_refused(void **state)
{
    by_dataset *data = packed_folder_open(state, TOKENS, "u16");
    by_token_weights *weights;
    by_error error = {0};
    check_error(by_token_weights_open(&weights, write_weights(*state, "<f4", TOKENS - 1, 0.0f),
                                      data, &error),
                BY_EFORMAT, &error, "has 1002 weights, but ");
    check_error(
        by_token_weights_open(&weights, write_weights(*state, "<i4", TOKENS, 0.0f), data, &error),
        BY_EFORMAT, &error, "of one axis, '<f4'");
    check_error(
        by_token_weights_open(&weights, write_weights(*state, "<f4", TOKENS, -1.0f), data, &error),
        BY_EFORMAT, &error, "element 1002 is -1: a weight must be finite and at least 0");
    check_error(
        by_token_weights_open(&weights, write_weights(*state, "<f4", TOKENS, NAN), data, &error),
        BY_EFORMAT, &error, "element 1002 is ");
    by_dataset_close(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_weights, packed_folder_make, packed_folder_drop),
        cmocka_unit_test_setup_teardown(test_refused, packed_folder_make, packed_folder_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
