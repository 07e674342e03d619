/* Loaders of several threads: batches, positions and errors are those of one thread; a thread's
 * scratch is its own. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/data.h"
#include "base/base.h"

static const size_t thread_counts[] = {1, 2, 5};

enum { VALUES = 8, SAMPLES = 2003, SCRATCH = 40 };

/* A sample is random numbers, made step by step in the scratch, while other threads run. */
typedef struct numbers {
    by_source base;
    by_array arrays[2];
    uint64_t bad[4]; /* samples, by index, that cannot be read */
    bool slow_first; /* the first of the bad ones takes longest */
    int32_t id;
} numbers;

static bool is_bad(const numbers *n, uint64_t index)
{
    bool bad = false;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(n->bad); i++) {
        bad = bad || (n->bad[i] != 0 && n->bad[i] == index);
    }
    return bad;
}

static by_status fill(const by_source *source, const by_source_sample *sample, void *const *rows,
                      by_error *error)
{
    const numbers *n = (const numbers *)source;
    uint32_t *own = sample->scratch;
    int32_t *origin = rows[1];
    uint32_t random[4];
    assert_int_equal((uintptr_t)own % BY_CACHE_LINE, 0);
    for (uint32_t i = 0; i < VALUES; i++) {
        by_source_random(sample, i, random);
        own[i] = random[0];
        if (random[1] % 64 == 0) {
            (void)sched_yield();
        }
    }
    origin[0] = n->id;
    origin[1] = sample->place < source->samples ? (int32_t)sample->place : -1;
    memcpy(rows[0], own, VALUES * sizeof *own);
    if (is_bad(n, sample->index)) {
        for (int i = 0; i < 20 && n->slow_first && sample->index == n->bad[0]; i++) {
            (void)sched_yield();
        }
        return by_error_set(error, BY_EFORMAT, "row %llu is bad",
                            (unsigned long long)sample->index);
    }
    return BY_OK;
}

/* Depends on the sample, so that the loader counts one by one. */
static by_status count(const by_source *source, const by_source_sample *sample, uint64_t *targets,
                       by_error *error)
{
    BY_UNUSED(error);
    *targets = sample->place < source->samples ? sample->place % 3 : 0;
    return BY_OK;
}

static bool replaces(const by_source *source, const by_source_sample *sample)
{
    return sample->place < source->samples && sample->place % 5 == 2;
}

static by_status weigh(const by_source *source, const by_source_sample *sample, double *weight,
                       by_error *error)
{
    BY_UNUSED(error);
    *weight = sample->place < source->samples ? 0.1 * (double)(sample->place % 7) : 0.0;
    return BY_OK;
}

static void close_numbers(by_source *source)
{
    free(source);
}

static numbers *open_numbers(int32_t id, bool shuffle)
{
    numbers *n = calloc(1, sizeof *n);
    assert_non_null(n);
    n->arrays[0] = (by_array){"values", BY_I32, BY_SHAPE(VALUES), NULL};
    n->arrays[1] = (by_array){"origin", BY_I32, BY_SHAPE(2), NULL};
    n->id = id;
    n->base = (by_source){.name = "numbers",
                          .arrays = n->arrays,
                          .array_count = 2,
                          .shuffle = shuffle,
                          .samples = (uint64_t)(SAMPLES + id),
                          .sample_targets = 2,
                          .targets = 2 * (uint64_t)(SAMPLES + id),
                          .scratch = SCRATCH,
                          .fill = fill,
                          .close = close_numbers,
                          .count = count,
                          .replaces = replaces,
                          .weigh = weigh};
    return n;
}

static by_source *open_mix(bool shuffle)
{
    static const double before[] = {0.5, 0.2, 0.3};
    static const double after[] = {0.1, 0.8, 0.1};
    const by_mix_stage stages[] = {{0, before}, {40, after}};
    by_source *mix;
    by_source *parts[3];
    for (int32_t i = 0; i < 3; i++) {
        parts[i] = &open_numbers(i, true)->base;
    }
    assert_int_equal(
        by_mix_source_open(&mix, parts, 3, &(by_mix_options){stages, 2, shuffle}, NULL), BY_OK);
    return mix;
}

static by_source *open_joined(void)
{
    uint64_t ends[2];
    by_source *joined;
    by_source *parts[2] = {&open_numbers(0, false)->base, &open_numbers(1, false)->base};
    assert_int_equal(by_joined_source_open(&joined, parts, 2, 3, 0, ends, NULL), BY_OK);
    return joined;
}

enum { EPOCHS, PASS, MIX, MIX_RANDOM, JOINED, KINDS };

static by_source *open_kind(int kind)
{
    return kind == EPOCHS || kind == PASS ? &open_numbers(0, kind == EPOCHS)->base
           : kind == JOINED               ? open_joined()
                                          : open_mix(kind == MIX_RANDOM);
}

static by_loader *open_loader(by_source *source, const by_loader_options *options, size_t threads)
{
    by_loader *loader;
    by_error error = {0};
    by_loader_options own = *options;
    own.threads = threads;
    if (by_loader_open(&loader, source, &own, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    return loader;
}

/* Adds all that a batch says and contains. */
static void record(by__hasher *out, const by_batch *b)
{
    const uint64_t says[] = {b->batch,          b->first_sample, b->valid_targets,
                             b->global_targets, b->damaged,      b->first_damaged};
    by__hasher_add(out, says, sizeof says);
    assert_true(b->batch == 0 || b->weighted);
    by__hasher_add(out, &b->valid_weight, sizeof b->valid_weight);
    by__hasher_add(out, &b->global_weight, sizeof b->global_weight);
    for (size_t i = 0; i < b->array_count; i++) {
        by__hasher_add(out, b->arrays[i].data,
                       (size_t)by_shape_count(&b->arrays[i].shape) * sizeof(int32_t));
    }
}

/* Both loaders' next batches are the same. */
static void check_same(by_loader *a, by_loader *b)
{
    by_loader *const loaders[2] = {a, b};
    char hashes[2][33];
    for (size_t i = 0; i < 2; i++) {
        by_batch batch;
        by__hasher *hasher;
        assert_int_equal(by__hasher_open(&hasher, NULL), BY_OK);
        assert_int_equal(by_loader_next(loaders[i], &batch, NULL), BY_OK);
        record(hasher, &batch);
        by__hasher_hex(hasher, hashes[i]);
        by__hasher_close(&hasher);
    }
    assert_string_equal(hashes[1], hashes[0]);
    assert_true(by_loader_position(a) == by_loader_position(b));
}

/* From the start, after a change of the part, and from the middle. */
static void test_same_batches(void **state)
{
    static const by_loader_options layouts[] = {
        {.batch = 12, .seed = 5, .prefetch = 3},
        {.batch = 12, .seed = 5, .first = 4, .count = 8, .prefetch = 1},
        {.batch = 12, .seed = 5, .first = 2, .count = 6, .block = 2, .stride = 4},
        {.batch = 2, .seed = 5, .start = 19}};
    const by_loader_options fewer = {.batch = 5, .first = 1, .count = 2};
    BY_UNUSED(state);
    for (int kind = 0; kind < KINDS; kind++) {
        for (size_t k = 0; k < BY_ARRAY_LENGTH(layouts); k++) {
            by_loader *one = open_loader(open_kind(kind), &layouts[k], 0);
            by_loader *two = open_loader(open_kind(kind), &layouts[k], 2);
            by_loader *five = open_loader(open_kind(kind), &layouts[k], 5);
            by_loader *const loaders[] = {one, two, five};
            for (size_t i = 0; i < 20; i++) {
                for (size_t j = 0; j < BY_ARRAY_LENGTH(loaders); j++) {
                    if (i == 8 && layouts[k].batch > 5) {
                        assert_int_equal(by_loader_resize(loaders[j], &fewer, NULL), BY_OK);
                    }
                    if (i == 8 || i == 16) {
                        assert_int_equal(by_loader_seek(loaders[j], SAMPLES - 22 + i, NULL), BY_OK);
                    }
                }
                if (i % 2 == 0) {
                    check_same(one, two);
                    by_batch batch;
                    assert_int_equal(by_loader_next(five, &batch, NULL), BY_OK);
                } else {
                    check_same(one, five);
                    by_batch batch;
                    assert_int_equal(by_loader_next(two, &batch, NULL), BY_OK);
                }
            }
            by_loader_close(&one);
            by_loader_close(&two);
            by_loader_close(&five);
        }
    }
}

/* A loader that begins where another one stopped goes on with its batches. */
static void test_resume(void **state)
{
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(thread_counts); i++) {
        by_loader_options options = {.batch = 7, .seed = 3};
        by_loader *first = open_loader(open_mix(true), &options, thread_counts[i]);
        by_batch a;
        for (size_t k = 0; k < 4; k++) {
            assert_int_equal(by_loader_next(first, &a, NULL), BY_OK);
        }
        options.start = by_loader_position(first);
        by_loader *second = open_loader(open_mix(true), &options, thread_counts[(i + 1) % 3]);
        for (size_t k = 0; k < 10; k++) {
            check_same(first, second);
        }
        by_loader_close(&first);
        by_loader_close(&second);
    }
}

/* Of several bad samples the first one in order is reported, behind the batches before it, however
 * long it takes and whoever finds the others. */
static void test_first_error(void **state)
{
    static const uint64_t bad[][4] = {
        {13, 14, 15, 22}, {17, 13, 20, 0}, {12, 23, 0, 0}, {1, 2, 3, 4}};
    static const uint64_t firsts[] = {13, 13, 12, 1};
    BY_UNUSED(state);
    for (size_t c = 0; c < BY_ARRAY_LENGTH(bad); c++) {
        for (size_t i = 0; i < BY_ARRAY_LENGTH(thread_counts); i++) {
            const by_loader_options options = {.batch = 6};
            by_batch batch;
            numbers *n = open_numbers(0, false);
            char expected[64];
            memcpy(n->bad, bad[c], sizeof n->bad);
            n->slow_first = true;
            by_loader *loader = open_loader(&n->base, &options, thread_counts[i]);
            (void)snprintf(expected, sizeof expected, "row %llu is bad (sample %llu)",
                           (unsigned long long)firsts[c], (unsigned long long)firsts[c]);
            for (uint64_t k = 0; k < firsts[c] / 6; k++) {
                assert_int_equal(by_loader_next(loader, &batch, NULL), BY_OK);
            }
            for (size_t k = 0; k < 2; k++) {
                by_error error = {0};
                assert_int_equal(by_loader_next(loader, &batch, &error), BY_EFORMAT);
                assert_string_equal(error.message, expected);
            }
            /* It is no longer in the way after a seek behind all of them. */
            assert_int_equal(by_loader_seek(loader, SAMPLES + 1, NULL), BY_OK);
            assert_int_equal(by_loader_next(loader, &batch, NULL), BY_OK);
            assert_int_equal(batch.batch, 0);
            by_loader_close(&loader);
        }
    }
}

static void test_seek_while_filling(void **state)
{
    BY_UNUSED(state);
    const by_loader_options options = {.batch = 9, .seed = 8, .prefetch = 2};
    by_loader *loader = open_loader(open_mix(true), &options, 5);
    by_loader *fresh = open_loader(open_mix(true), &options, 2);
    for (uint64_t i = 0; i < 60; i++) {
        uint64_t to = i * 37 % 101;
        assert_int_equal(by_loader_seek(loader, to, NULL), BY_OK);
        if (i % 5 == 0) {
            assert_int_equal(by_loader_seek(fresh, to, NULL), BY_OK);
            check_same(loader, fresh);
        }
    }
    by_loader_close(&loader);
    by_loader_close(&fresh);
}

static void test_options(void **state)
{
    by_loader *loader;
    by_error error = {0};
    BY_UNUSED(state);
    const by_loader_options options = {.batch = 4, .threads = 4097};
    assert_int_equal(by_loader_open(&loader, &open_numbers(0, true)->base, &options, &error),
                     BY_EARG);
    assert_string_equal(error.message, "loader: threads 4097 is more than 4096");
    /* More threads than there is work. */
    loader = open_loader(&open_numbers(0, true)->base, &(by_loader_options){.batch = 1}, 40);
    by_batch batch;
    assert_int_equal(by_loader_next(loader, &batch, NULL), BY_OK);
    by_loader_close(&loader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_batches),       cmocka_unit_test(test_resume),
        cmocka_unit_test(test_first_error),        cmocka_unit_test(test_options),
        cmocka_unit_test(test_seek_while_filling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
