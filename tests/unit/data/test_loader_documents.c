/* Samples that know where their documents begin: windows, bins that documents fit best, mixes. */
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

/* Checks a sample of tokens that are their own places, of documents of 30: which targets count, and
 * where the document of each token begins. Returns the targets. */
static uint64_t check_sample(const int32_t *tokens, const int32_t *targets, const int32_t *starts,
                             size_t context, bool pieces)
{
    uint64_t count = 0;
    int32_t first = 0;
    size_t used = context;
    while (used > 0 && tokens[used - 1] == 0 && targets[used - 1] == -1) {
        used--; /* filled up */
    }
    for (size_t i = 0; i < used; i++) {
        bool follows = i > 0 && tokens[i] == tokens[i - 1] + 1;
        if (i > 0 && (!follows || (pieces ? targets[i - 1] == -1 : tokens[i] % 30 == 0))) {
            assert_int_equal(tokens[i] % 30, 0);
            first = (int32_t)i;
        }
        assert_int_equal(starts[i], first);
        bool counts = (tokens[i] + 1) % 30 != 0 && tokens[i] != 1002;
        assert_int_equal(targets[i], counts ? tokens[i] + 1 : -1);
        count += counts;
    }
    return count;
}

static by_source *open_documents(const by_dataset *data, by_token_options options)
{
    by_source *source;
    by_error error = {0};
    options.documents = true;
    if (by_token_source_open(&source, data, &options, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    return source;
}

/* Counts and targets of all batches; the part of a rank of two has its own and knows of all. */
static void check_documents(by_source *(*open)(const by_dataset *, by_token_options),
                            const by_dataset *data, by_token_options options, uint64_t batches)
{
    by_loader *all = packed_loader(open(data, options), (by_loader_options){.batch = 4, .seed = 7});
    by_loader *half = packed_loader(
        open(data, options), (by_loader_options){.batch = 4, .first = 2, .count = 2, .seed = 7});
    bool pieces = options.packing == BY_TOKENS_BEST_FIT;
    for (uint64_t k = 0; k < batches; k++) {
        by_batch batch;
        by_batch part;
        uint64_t targets[4];
        assert_int_equal(by_loader_next(all, &batch, NULL), BY_OK);
        assert_int_equal(by_loader_next(half, &part, NULL), BY_OK);
        assert_int_equal(batch.array_count, 3);
        for (size_t i = 0; i < batch.batch; i++) {
            size_t at = i * options.context;
            targets[i] =
                check_sample((const int32_t *)batch.arrays[0].data + at,
                             (const int32_t *)batch.arrays[1].data + at,
                             (const int32_t *)batch.arrays[2].data + at, options.context, pieces);
        }
        assert_memory_equal(part.arrays[2].data,
                            (const int32_t *)batch.arrays[2].data + 2 * options.context,
                            2 * options.context * sizeof(int32_t));
        uint64_t sum = targets[0] + targets[1] + targets[2] + targets[3];
        assert_true(batch.valid_targets == sum && batch.global_targets == sum);
        assert_true(part.valid_targets == targets[2] + targets[3] && part.global_targets == sum);
    }
    by_loader_close(&all);
    by_loader_close(&half);
}

static by_source *open_mixed_documents(const by_dataset *data, by_token_options options)
{
    by_source *mix;
    by_source *parts[2] = {open_documents(data, options), open_documents(data, options)};
    const by_mix_stage stage = {.weights = (const double[]){0.3, 0.7}};
    by_mix_options mixed = {.stages = &stage, .stage_count = 1, .shuffle = true};
    assert_int_equal(by_mix_source_open(&mix, parts, 2, &mixed, NULL), BY_OK);
    return mix;
}

/* Windows of one pass and of epochs, and bins, in which a document is longer than some. */
static void test_documents(void **state)
{
    static const size_t contexts[] = {1, 7, 29, 30, 31, 100};
    by_dataset *data = packed_folder_open(state, 1003, "u16");
    for (size_t i = 0; i < BY_ARRAY_LENGTH(contexts); i++) {
        by_token_options options = {.context = contexts[i]};
        uint64_t batches = (1002 + contexts[i] - 1) / contexts[i] / 4;
        check_documents(open_documents, data, options, batches);
        options.shuffle = true;
        check_documents(open_documents, data, options, 30);
        check_documents(open_mixed_documents, data, options, 30);
    }
    by_dataset_close(&data);
}

static void test_best_fit_samples(void **state)
{
    static const size_t contexts[] = {29, 64, 100};
    by_dataset *data = packed_folder_open(state, 1003, "u16");
    for (size_t i = 0; i < BY_ARRAY_LENGTH(contexts); i++) {
        by_token_options options = {
            .context = contexts[i], .shuffle = true, .packing = BY_TOKENS_BEST_FIT};
        by_source *source = open_documents(data, options);
        assert_true(source->targets == 1003 - 34); /* all but the first of each document */
        by_source_close(&source);
        check_documents(open_documents, data, options, 30);
        check_documents(open_mixed_documents, data, options, 30);
    }
    /* Longer documents than samples: pieces begin with the last token of the one before. */
    by_source *source = open_documents(
        data, (by_token_options){.context = 7, .shuffle = true, .packing = BY_TOKENS_BEST_FIT});
    assert_true(source->targets == 1003 - 34);
    by_source_close(&source);
    by_dataset_close(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_documents, packed_folder_make, packed_folder_drop),
        cmocka_unit_test_setup_teardown(test_best_fit_samples, packed_folder_make,
                                        packed_folder_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
