/* The loader: what a batch holds is a function of its place alone, each token of a pass is a target
 * once, and ranks' parts make up the whole. */
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
#include "packed_folder.h"

/* What a plan counts is what a loader takes: its ring, the batch in use included. */
static void test_loader_bytes(void **state)
{
    uint64_t bytes;
    by_array arrays[3];
    by_loader_options options = {.batch = 12};
    uint64_t batch = 2 * sizeof(int32_t) * 64 * 12;
    BY_UNUSED(state);
    assert_int_equal(by_token_arrays(arrays, 64, false), 2);
    assert_int_equal(by_loader_bytes(&bytes, arrays, 2, &options, NULL), BY_OK);
    assert_in_range(bytes, 5 * batch, 5 * batch + 4096);
    options.prefetch = 1;
    options.first = 4;
    assert_int_equal(by_loader_bytes(&bytes, arrays, 2, &options, NULL), BY_OK);
    assert_in_range(bytes, 2 * batch * 8 / 12, 2 * batch * 8 / 12 + 4096);
    options.batch = 0;
    assert_int_equal(by_loader_bytes(&bytes, arrays, 2, &options, NULL), BY_EARG);
}

static by_source *windows(const by_dataset *data, size_t context, bool shuffle)
{
    by_source *source;
    by_error error = {0};
    if (by_token_source_open(&source, data,
                             &(by_token_options){.context = context, .shuffle = shuffle},
                             &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    return source;
}

static by_loader *open_loader(const by_dataset *data, size_t context, bool shuffle,
                              by_loader_options options)
{
    return packed_loader(windows(data, context, shuffle), options);
}

static const int32_t *tokens_of(const by_batch *batch)
{
    return by_batch_array(batch, "tokens")->data;
}

static const int32_t *targets_of(const by_batch *batch)
{
    return by_batch_array(batch, "targets")->data;
}

static by_batch next(by_loader *loader)
{
    by_batch batch;
    by_error error = {0};
    if (by_loader_next(loader, &batch, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    return batch;
}

/* Copies the tokens and targets of the next batches, one behind the other. Freed with free(). */
static int32_t *record(by_loader *loader, size_t batches, size_t batch_tokens)
{
    int32_t *all = malloc(batches * 2 * batch_tokens * sizeof *all);
    assert_non_null(all);
    for (size_t i = 0; i < batches; i++) {
        by_batch b = next(loader);
        assert_int_equal(by_shape_count(&b.arrays[0].shape), batch_tokens);
        memcpy(all + 2 * i * batch_tokens, tokens_of(&b), batch_tokens * sizeof *all);
        memcpy(all + (2 * i + 1) * batch_tokens, targets_of(&b), batch_tokens * sizeof *all);
    }
    return all;
}

/* Every sample is a run of the data; an epoch holds each window once; epochs are cut differently.
 */
static void test_epochs(void **state)
{
    by_dataset *data = packed_folder_open(state, 1003, "u16");
    enum { CONTEXT = 16, BATCH = 5 };
    by_loader *loader =
        open_loader(data, CONTEXT, true, (by_loader_options){.batch = BATCH, .seed = 3});
    uint64_t windows = by_loader_epoch_samples(loader);
    assert_int_equal(windows, (1003 - CONTEXT) / CONTEXT);
    uint8_t *seen = calloc(1003, 1);
    assert_non_null(seen);
    uint64_t phases[4] = {0};
    uint64_t in_order = 0;
    int32_t last = -1;
    uint64_t sample = 0;
    while (sample < 4 * windows) {
        by_batch b = next(loader);
        assert_int_equal(b.batch, BATCH);
        assert_true(b.first_sample == sample);
        assert_int_equal(b.valid_targets, BATCH * CONTEXT);
        assert_int_equal(b.global_targets, BATCH * CONTEXT);
        for (size_t row = 0; row < BATCH && sample < 4 * windows; row++, sample++) {
            const int32_t *tokens = tokens_of(&b) + row * CONTEXT;
            uint64_t epoch = sample / windows;
            if (sample % windows == 0) {
                memset(seen, 0, 1003);
                phases[epoch] = (uint64_t)tokens[0] % CONTEXT;
            }
            assert_true((uint64_t)tokens[0] % CONTEXT == phases[epoch]);
            assert_int_equal(seen[tokens[0]], 0);
            seen[tokens[0]] = 1;
            in_order += tokens[0] == last + CONTEXT;
            last = tokens[0];
            for (int32_t i = 0; i < CONTEXT; i++) {
                assert_int_equal(tokens[i], tokens[0] + i); /* token k of the data is k */
                assert_int_equal(targets_of(&b)[row * CONTEXT + (size_t)i], tokens[0] + i + 1);
            }
        }
    }
    assert_true(phases[0] != phases[1] || phases[1] != phases[2] || phases[2] != phases[3]);
    assert_true(in_order < 24); /* of 244; 4 are expected */
    free(seen);
    by_loader_close(&loader);
    by_dataset_close(&data);
}

/* Opened or sought anywhere, with any depth of prefetch, the stream is the same. */
static void test_resume(void **state)
{
    by_dataset *data = packed_folder_open(state, 1003, "u32");
    by_loader_options options = {.batch = 3, .seed = 11};
    enum { BATCHES = 120, TOKENS = 24 };
    by_loader *loader = open_loader(data, 8, true, options);
    int32_t *all = record(loader, BATCHES, TOKENS);
    assert_true(by_loader_position(loader) == 3 * BATCHES);
    for (uint64_t at = 0; at < BATCHES - 3; at += 7) {
        options.start = 3 * at;
        options.prefetch = 1 + at % 5;
        by_loader *again = open_loader(data, 8, true, options);
        assert_true(by_loader_position(again) == 3 * at);
        int32_t *part = record(again, 3, TOKENS);
        assert_memory_equal(part, all + 2 * at * TOKENS, 3 * 2 * TOKENS * sizeof *part);
        free(part);
        uint64_t other = (at * 31) % (BATCHES - 3);
        assert_int_equal(by_loader_seek(again, 3 * other, NULL), BY_OK);
        assert_true(by_loader_position(again) == 3 * other);
        part = record(again, 3, TOKENS);
        assert_memory_equal(part, all + 2 * other * TOKENS, 3 * 2 * TOKENS * sizeof *part);
        assert_true(by_loader_position(again) == 3 * other + 9);
        free(part);
        by_loader_close(&again);
    }
    /* Another batch size cuts the same stream of samples; another seed gives another stream. */
    options = (by_loader_options){.batch = 9, .seed = 11};
    by_loader *wide = open_loader(data, 8, true, options);
    by_batch b = next(wide);
    for (size_t i = 0; i < 3; i++) {
        assert_memory_equal(tokens_of(&b) + i * TOKENS, all + 2 * i * TOKENS, TOKENS * sizeof *all);
    }
    options.seed = 12;
    by_loader *other = open_loader(data, 8, true, options);
    by_batch c = next(other);
    assert_memory_not_equal(tokens_of(&b), tokens_of(&c), 3 * TOKENS * sizeof *all);
    by_loader_close(&other);
    by_loader_close(&wide);
    by_loader_close(&loader);
    free(all);
    by_dataset_close(&data);
}

/* Batches of another size, and other parts of them, go on in the same stream. */
static void test_resize(void **state)
{
    by_dataset *data = packed_folder_open(state, 1003, "u32");
    enum { TOKENS = 8 };
    by_loader_options one = {.batch = 1, .seed = 11};
    by_loader_options options = {.batch = 6, .seed = 11, .first = 2, .count = 3, .prefetch = 2};
    by_loader *single = open_loader(data, TOKENS, true, one);
    by_loader *loader = open_loader(data, TOKENS, true, options);
    int32_t *all = record(single, 40, TOKENS);
    uint64_t sample = 0;
    for (size_t i = 0; i < 8; i++) {
        options.batch = i % 2 == 0 ? 3 : 6;
        options.first = i % 2 == 0 ? 1 : 2;
        options.count = i % 2 == 0 ? 2 : 3;
        assert_int_equal(by_loader_resize(loader, &options, NULL), BY_OK);
        assert_true(by_loader_position(loader) == sample);
        by_batch b = next(loader);
        assert_true(b.batch == options.count && b.first_sample == sample + options.first);
        assert_true(b.global_targets == options.batch * TOKENS);
        assert_int_equal(by_batch_array(&b, "tokens")->shape.dim[0], options.count);
        for (size_t k = 0; k < options.count; k++) {
            assert_memory_equal(tokens_of(&b) + k * TOKENS, all + 2 * (b.first_sample + k) * TOKENS,
                                TOKENS * sizeof *all);
        }
        sample += options.batch;
        assert_true(by_loader_position(loader) == sample);
    }
    options = (by_loader_options){.batch = 6, .count = 4};
    assert_int_equal(by_loader_resize(loader, &options, NULL), BY_EARG);
    options = (by_loader_options){.batch = 2, .first = 2, .count = 1};
    assert_int_equal(by_loader_resize(loader, &options, NULL), BY_EARG);
    by_loader_close(&loader);
    by_loader_close(&single);
    free(all);
    by_dataset_close(&data);
}

/* A seek while the thread fills a batch: nothing of the old place comes through. */
static void test_seek_while_filling(void **state)
{
    by_dataset *data = packed_folder_open(state, 1003, "u16");
    /* Nine windows: each step of their order walks thousands of places, so that filling takes
     * time. */
    enum { CONTEXT = 100, BATCH = 16 };
    by_loader_options options = {.batch = BATCH, .seed = 2, .prefetch = 2};
    by_loader *loader = open_loader(data, CONTEXT, true, options);
    int32_t *all = record(loader, 8, BATCH * CONTEXT);
    for (uint64_t i = 0; i < 100; i++) {
        uint64_t at = i * 5 % 8;
        assert_int_equal(by_loader_seek(loader, at * BATCH, NULL), BY_OK);
        if (i % 3 == 0) {
            by_batch b = next(loader);
            assert_true(b.first_sample == at * BATCH);
            assert_memory_equal(tokens_of(&b), all + 2 * at * BATCH * CONTEXT,
                                BATCH * CONTEXT * sizeof *all);
            assert_true(by_loader_position(loader) == (at + 1) * BATCH);
        }
    }
    free(all);
    by_loader_close(&loader);
    by_dataset_close(&data);
}

/* The parts of the ranks, one behind the other, are the global batch. */
static void test_ranks(void **state)
{
    by_dataset *data = packed_folder_open(state, 1003, "u16");
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        by_loader_options options = {.batch = 7, .seed = 5};
        static const size_t cuts[] = {0, 2, 3, 7};
        by_loader *ranks[3];
        by_loader *whole = open_loader(data, 10, shuffle == 1, options);
        for (size_t r = 0; r < 3; r++) {
            options.first = cuts[r];
            options.count = r == 2 ? 0 : cuts[r + 1] - cuts[r]; /* 0: the rest */
            ranks[r] = open_loader(data, 10, shuffle == 1, options);
        }
        for (size_t step = 0; step < 15; step++) { /* 105 samples: beyond the pass of 101 */
            uint64_t targets = 0;
            by_batch all = next(whole);
            for (size_t r = 0; r < 3; r++) {
                by_batch part = next(ranks[r]);
                assert_int_equal(part.batch, cuts[r + 1] - cuts[r]);
                assert_true(part.first_sample == all.first_sample + cuts[r]);
                assert_memory_equal(tokens_of(&part), tokens_of(&all) + cuts[r] * 10,
                                    part.batch * 40);
                assert_memory_equal(targets_of(&part), targets_of(&all) + cuts[r] * 10,
                                    part.batch * 40);
                assert_true(part.global_targets == all.valid_targets);
                targets += part.valid_targets;
            }
            assert_true(targets == all.valid_targets);
            assert_true(all.global_targets == all.valid_targets);
        }
        for (size_t r = 0; r < 3; r++) {
            assert_int_equal(next(ranks[r]).batch == 0, shuffle == 0);
            by_loader_close(&ranks[r]);
        }
        by_loader_close(&whole);
    }
    by_dataset_close(&data);
}

/* Parts in turn: rank r of 3 has blocks r, r + 3, ... of two samples of the global batch. */
static void test_blocks(void **state)
{
    by_dataset *data = packed_folder_open(state, 1003, "u16");
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        by_loader_options options = {.batch = 14, .seed = 5};
        by_loader *whole = open_loader(data, 10, shuffle == 1, options);
        by_loader *ranks[3];
        for (size_t r = 0; r < 3; r++) {
            options.first = 2 * r;
            options.count = r == 0 ? 6 : 4;
            options.block = 2;
            options.stride = 6;
            ranks[r] = open_loader(data, 10, shuffle == 1, options);
        }
        for (size_t step = 0; step < 8; step++) { /* 112 samples: beyond the pass of 101 */
            uint64_t targets = 0;
            by_batch all = next(whole);
            for (size_t r = 0; r < 3; r++) {
                by_batch part = next(ranks[r]);
                assert_int_equal(part.batch, r == 0 ? 6 : 4);
                assert_true(part.first_sample == all.first_sample + 2 * r);
                for (size_t i = 0; i < part.batch; i++) {
                    size_t at = 2 * r + i / 2 * 6 + i % 2;
                    assert_memory_equal(tokens_of(&part) + i * 10, tokens_of(&all) + at * 10, 40);
                }
                targets += part.valid_targets;
            }
            assert_true(targets == all.valid_targets);
        }
        for (size_t r = 0; r < 3; r++) {
            by_loader_close(&ranks[r]);
        }
        by_loader_close(&whole);
    }
    by_dataset_close(&data);
}

/* A pass in order has each token but the first as a target exactly once, and then ends. */
static void check_pass(const by_dataset *data, size_t context, size_t batch)
{
    uint64_t total = by_dataset_tokens(data);
    by_loader *loader =
        open_loader(data, context, false, (by_loader_options){.batch = batch, .seed = 1});
    uint64_t windows = (total - 1 + context - 1) / context;
    assert_true(by_loader_epoch_samples(loader) == windows);
    for (int pass = 0; pass < 2; pass++) {
        int32_t expected = 1;
        uint64_t batches = 0;
        by_batch b;
        for (b = next(loader); b.batch > 0; b = next(loader), batches++) {
            uint64_t valid = 0;
            for (size_t i = 0; i < b.batch * context; i++) {
                if ((uint64_t)expected < total) {
                    assert_int_equal(tokens_of(&b)[i], expected - 1);
                    assert_int_equal(targets_of(&b)[i], expected);
                    expected++;
                    valid++;
                } else {
                    assert_int_equal(tokens_of(&b)[i], 0);
                    assert_int_equal(targets_of(&b)[i], -1);
                }
            }
            assert_true(b.valid_targets == valid);
            assert_true(b.global_targets == valid);
        }
        assert_true((uint64_t)expected == total);
        assert_true(batches == (windows + batch - 1) / batch);
        assert_null(by_batch_array(&b, "tokens"));
        assert_int_equal(b.array_count, 0);
        b = next(loader); /* the end stays the end */
        assert_int_equal(b.batch, 0);
        assert_int_equal(by_loader_seek(loader, 0, NULL), BY_OK);
    }
    by_loader_close(&loader);
}

static void test_pass(void **state)
{
    by_dataset *data = packed_folder_open(state, 203, "u16");
    static const size_t shapes[][2] = {{1, 1},  {7, 3},   {101, 2}, {202, 1}, {203, 1},
                                       {64, 4}, {500, 3}, {201, 1}, {2, 300}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(shapes); i++) {
        check_pass(data, shapes[i][0], shapes[i][1]);
    }
    by_dataset_close(&data);
    data = packed_folder_open(state, 2, "u16");
    check_pass(data, 4, 2);
    by_dataset_close(&data);
}

static void test_short_data(void **state)
{
    by_source *source = NULL;
    by_error error;
    char expected[300];
    by_dataset *data = packed_folder_open(state, 9, "u16");
    assert_int_equal(by_token_source_open(
                         &source, data, &(by_token_options){.context = 9, .shuffle = true}, &error),
                     BY_EARG);
    (void)snprintf(expected, sizeof expected,
                   "%s: 9 tokens are too few for a context of 9, which needs 10; give more text or "
                   "lower model.context to 8",
                   (const char *)*state);
    assert_string_equal(error.message, expected);
    assert_null(source);
    /* From context + 1 tokens on there is one window, and only where it fits. */
    for (size_t context = 4; context <= 8; context++) {
        by_loader *loader = open_loader(data, context, true, (by_loader_options){.batch = 1});
        assert_int_equal(by_loader_epoch_samples(loader), 1);
        uint64_t starts = 0;
        for (int i = 0; i < 64; i++) {
            by_batch b = next(loader);
            assert_true(tokens_of(&b)[0] >= 0 && (size_t)targets_of(&b)[context - 1] < 9);
            starts |= (uint64_t)1 << tokens_of(&b)[0];
        }
        uint64_t slack = 8 - context < context - 1 ? 8 - context : context - 1;
        assert_true(starts == ((uint64_t)2 << slack) - 1); /* all places were used */
        by_loader_close(&loader);
    }
    by_dataset_close(&data);

    data = packed_folder_open(state, 1, "u16");
    assert_int_equal(by_token_source_open(&source, data,
                                          &(by_token_options){.context = 4, .shuffle = false},
                                          &error),
                     BY_EARG);
    (void)snprintf(
        expected, sizeof expected,
        "%s: 1 tokens are too few to evaluate on: a target needs a token before it; hold "
        "out more text (data.valid_fraction)",
        (const char *)*state);
    assert_string_equal(error.message, expected);
    assert_int_equal(by_token_source_open(
                         &source, data, &(by_token_options){.context = 4, .shuffle = true}, &error),
                     BY_EARG);
    assert_non_null(strstr(error.message, "1 tokens are too few to train on: a target needs"));
    by_dataset_close(&data);
}

static void test_options(void **state)
{
    by_dataset *data = packed_folder_open(state, 100, "u16");
    static const struct {
        by_loader_options options;
        by_status status;
        const char *message;
    } cases[] = {
        {{.batch = 0}, BY_EARG, "loader: batch 0 must be from 1 to 2^30"},
        {{.batch = SIZE_MAX}, BY_EARG, "loader: batch 18446744073709551615 must be from 1 to 2^30"},
        {{.batch = 4, .first = 3, .count = 2},
         BY_EARG,
         "loader: samples 3 to 5 are not within the batch of 4"},
        {{.batch = 4, .first = 4}, BY_EARG, "loader: samples 4 to 4 are not within the batch of 4"},
        {{.batch = 4, .count = SIZE_MAX, .first = 1},
         BY_EARG,
         "loader: samples 1 to 18446744073709551615 are not within the batch of 4"},
        {{.batch = 8, .first = 1, .count = 4, .block = 2, .stride = 6},
         BY_EARG,
         "loader: 4 samples in blocks of 2, one every 6 from sample 1 on, are not within the batch "
         "of 8"},
        {{.batch = 8, .count = 4, .block = 3, .stride = 2},
         BY_EARG,
         "loader: 4 samples in blocks of 3, one every 2 from sample 0 on, are not within the batch "
         "of 8"},
        {{.batch = 4, .prefetch = SIZE_MAX},
         BY_EARG,
         "loader: prefetch 18446744073709551615 is more than 65536"},
        {{.batch = 4, .start = UINT64_MAX},
         BY_EARG,
         "loader: start 18446744073709551615 is more than 2^62"},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by_loader *loader = NULL;
        by_error error = {0};
        assert_int_equal(by_loader_open(&loader, windows(data, 4, true), &cases[i].options, &error),
                         cases[i].status);
        assert_string_equal(error.message, cases[i].message);
        assert_null(loader);
    }
    static const size_t contexts[] = {0, SIZE_MAX};
    for (size_t i = 0; i < 2; i++) {
        by_source *source = NULL;
        by_error error = {0};
        assert_int_equal(by_token_source_open(
                             &source, data,
                             &(by_token_options){.context = contexts[i], .shuffle = false}, &error),
                         BY_EARG);
        assert_non_null(strstr(error.message, "must be from 1 to 2^30"));
        assert_null(source);
    }
    by_loader *huge = NULL;
    by_error overflow = {0};
    by_loader_options options = {.batch = (size_t)1 << 30, .prefetch = 60000};
    assert_int_equal(
        by_loader_open(&huge, windows(data, (size_t)1 << 30, false), &options, &overflow),
        BY_EMEMORY);
    assert_non_null(strstr(overflow.message, "60001 batches of 1073741824 samples"));
    by_loader *loader = open_loader(data, 4, false, (by_loader_options){.batch = 2});
    assert_int_equal(by_loader_seek(loader, UINT64_MAX, NULL), BY_EARG);
    by_batch first = next(loader);
    assert_int_equal(tokens_of(&first)[1], 1);
    /* A place behind the end of a pass is its end. */
    assert_int_equal(by_loader_seek(loader, (uint64_t)1 << 62, NULL), BY_OK);
    assert_int_equal(next(loader).batch, 0);
    by_loader_close(&loader);
    by_loader_close(&loader);
    by_loader_close(NULL);
    by_dataset_close(&data);
}

static void test_statistics(void **state)
{
    by_dataset *data = packed_folder_open(state, 500, "u16");
    by_loader *loader = open_loader(data, 8, true, (by_loader_options){.batch = 2, .prefetch = 3});
    by_loader_statistics s;
    for (int i = 0; i < 50; i++) {
        (void)next(loader);
    }
    by_loader_stats(loader, &s);
    assert_int_equal(s.batches, 50);
    assert_true(s.waits <= 50);
    assert_true((s.waits == 0) == (s.wait_seconds == 0.0));
    assert_true(s.fill_seconds > 0.0);
    by_loader_close(&loader);
    by_dataset_close(&data);
}

/* ---- a program's own source ---- */

typedef struct own_source {
    by_source base;
    by_array arrays[2];
    bool *is_closed;
} own_source;

static by_status fill_own(const by_source *source, const by_source_sample *sample,
                          void *const *rows, by_error *error)
{
    uint8_t *bytes = rows[0];
    float *value = rows[1];
    uint32_t random[4];
    BY_UNUSED(error);
    bool counts = sample->place < source->samples;
    by_source_random(sample, 7, random);
    for (size_t i = 0; i < 6; i++) {
        bytes[i] = counts ? (uint8_t)(10 * sample->place + i) : 0xff;
    }
    *value = counts ? by__unit_float(random[0]) : -1.0f;
    return BY_OK;
}

static void close_own(by_source *source)
{
    *((own_source *)source)->is_closed = true;
}

static by_source *open_own(own_source *s, bool shuffle, bool *is_closed)
{
    *s = (own_source){.is_closed = is_closed};
    s->arrays[0] = (by_array){"bytes", BY_U8, BY_SHAPE(2, 3), NULL};
    s->arrays[1] = (by_array){"value", BY_F32, {.rank = 0}, NULL};
    s->base = (by_source){.name = "own",
                          .arrays = s->arrays,
                          .array_count = 2,
                          .shuffle = shuffle,
                          .samples = 5,
                          .sample_targets = 1,
                          .targets = 5,
                          .fill = fill_own,
                          .close = close_own};
    *is_closed = false;
    return &s->base;
}

/* Arrays of any type and shape; each sample once an epoch; randomness that depends on the sample's
 * index alone; the last batch of a pass filled up. */
static void test_own_source(void **state)
{
    BY_UNUSED(state);
    own_source own;
    bool is_closed;
    by_loader *loader =
        packed_loader(open_own(&own, true, &is_closed), (by_loader_options){.batch = 5, .seed = 9});
    float values[20];
    for (size_t epoch = 0; epoch < 4; epoch++) {
        unsigned seen = 0;
        by_batch b = next(loader);
        const by_array *bytes = by_batch_array(&b, "bytes");
        assert_true(by_shape_equal(&bytes->shape, &BY_SHAPE(5, 2, 3)));
        assert_int_equal(bytes->dtype, BY_U8);
        assert_true(by_shape_equal(&by_batch_array(&b, "value")->shape, &BY_SHAPE(5)));
        assert_int_equal((uintptr_t)by_batch_array(&b, "value")->data % 64, 0);
        assert_null(by_batch_array(&b, "other"));
        assert_int_equal(b.valid_targets, 5);
        for (size_t row = 0; row < 5; row++) {
            const uint8_t *at = (const uint8_t *)bytes->data + 6 * row;
            assert_int_equal(at[5], at[0] + 5);
            seen |= 1u << at[0] / 10;
        }
        assert_int_equal(seen, 31);
        memcpy(values + 5 * epoch, by_batch_array(&b, "value")->data, 5 * sizeof *values);
    }
    by_loader_close(&loader);
    assert_true(is_closed);
    for (size_t i = 0; i < 20; i++) {
        for (size_t k = 0; k < i; k++) {
            assert_true(values[i] != values[k]);
        }
    }
    /* One at a time, from the middle. */
    loader = packed_loader(open_own(&own, true, &is_closed),
                           (by_loader_options){.batch = 1, .seed = 9, .start = 7});
    for (size_t i = 7; i < 20; i++) {
        by_batch b = next(loader);
        assert_memory_equal(by_batch_array(&b, "value")->data, values + i, sizeof *values);
    }
    by_loader_close(&loader);

    loader = packed_loader(open_own(&own, false, &is_closed), (by_loader_options){.batch = 3});
    (void)next(loader);
    by_batch b = next(loader);
    const uint8_t *last = by_batch_array(&b, "bytes")->data;
    assert_int_equal(b.first_sample, 3);
    assert_int_equal(b.valid_targets, 2);
    assert_int_equal(last[6], 40);
    assert_int_equal(last[12], 0xff);
    assert_int_equal(next(loader).batch, 0);
    by_loader_close(&loader);

    /* Refused, and closed all the same. */
    by_error error = {0};
    by_loader_options options = {.batch = 3};
    by_source *bad = open_own(&own, false, &is_closed);
    bad->samples = 0;
    assert_int_equal(by_loader_open(&loader, bad, &options, &error), BY_EARG);
    assert_non_null(strstr(error.message, "own: a source of 2 arrays and 0 samples"));
    assert_true(is_closed);
    bad = open_own(&own, false, &is_closed);
    own.arrays[1].shape = BY_SHAPE(4, 0);
    assert_int_equal(by_loader_open(&loader, bad, &options, &error), BY_EARG);
    assert_non_null(strstr(error.message, "own: array 'value' of a sample needs"));
    assert_true(is_closed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loader_bytes),
        cmocka_unit_test_setup_teardown(test_epochs, packed_folder_make, packed_folder_drop),
        cmocka_unit_test_setup_teardown(test_resume, packed_folder_make, packed_folder_drop),
        cmocka_unit_test_setup_teardown(test_resize, packed_folder_make, packed_folder_drop),
        cmocka_unit_test_setup_teardown(test_seek_while_filling, packed_folder_make,
                                        packed_folder_drop),
        cmocka_unit_test_setup_teardown(test_ranks, packed_folder_make, packed_folder_drop),
        cmocka_unit_test_setup_teardown(test_blocks, packed_folder_make, packed_folder_drop),
        cmocka_unit_test_setup_teardown(test_pass, packed_folder_make, packed_folder_drop),
        cmocka_unit_test_setup_teardown(test_short_data, packed_folder_make, packed_folder_drop),
        cmocka_unit_test_setup_teardown(test_options, packed_folder_make, packed_folder_drop),
        cmocka_unit_test_setup_teardown(test_statistics, packed_folder_make, packed_folder_drop),
        cmocka_unit_test(test_own_source),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
