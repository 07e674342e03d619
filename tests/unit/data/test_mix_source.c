/* Mixes of sources: proportions in every stretch, each sample of a part once an epoch, stages,
 * seeks. A sample of the sources here says where it comes from. */
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

typedef struct counted {
    by_source base;
    by_array array;
    int32_t id;
    bool *is_closed; /* NULL: nobody asks */
} counted;

static by_status fill(const by_source *source, const by_source_sample *sample, void *const *rows,
                      by_error *error)
{
    const counted *c = (const counted *)source;
    const int32_t row[3] = {c->id, (int32_t)sample->place, (int32_t)sample->epoch};
    BY_UNUSED(error);
    memcpy(rows[0], row, sizeof row);
    return BY_OK;
}

static void close_counted(by_source *source)
{
    counted *c = (counted *)source;
    if (c->is_closed != NULL) {
        *c->is_closed = true;
    }
    free(c);
}

static by_source *open_counted(int32_t id, uint64_t samples)
{
    counted *c = calloc(1, sizeof *c);
    assert_non_null(c);
    c->id = id;
    c->array = (by_array){"row", BY_I32, BY_SHAPE(3), NULL};
    c->base = (by_source){.name = "counted",
                          .arrays = &c->array,
                          .array_count = 1,
                          .shuffle = true,
                          .samples = samples,
                          .sample_targets = 1,
                          .targets = samples,
                          .fill = fill,
                          .close = close_counted};
    return &c->base;
}

enum { PARTS = 3 };
static const uint64_t sizes[PARTS] = {400, 3000, 150};

static by_source *open_mix(const by_mix_stage *stages, size_t count, bool shuffle)
{
    by_source *mix;
    by_error error = {0};
    by_source *parts[PARTS];
    for (int32_t i = 0; i < PARTS; i++) {
        parts[i] = open_counted(i, sizes[i]);
    }
    if (by_mix_source_open(&mix, parts, PARTS, &(by_mix_options){stages, count, shuffle}, &error) !=
        BY_OK) {
        fail_msg("%s", error.message);
    }
    return mix;
}

/* The first `count` samples, three numbers each. Freed with free(). */
static int32_t *take(by_source *mix, size_t count, size_t batch, uint64_t start, uint64_t seed)
{
    by_loader *loader;
    int32_t *rows = malloc(count * 3 * sizeof *rows);
    assert_non_null(rows);
    assert_int_equal(count % batch, 0);
    assert_int_equal(
        by_loader_open(&loader, mix,
                       &(by_loader_options){.batch = batch, .start = start, .seed = seed}, NULL),
        BY_OK);
    for (size_t i = 0; i < count; i += batch) {
        by_batch b;
        assert_int_equal(by_loader_next(loader, &b, NULL), BY_OK);
        memcpy(rows + 3 * i, b.arrays[0].data, batch * 3 * sizeof *rows);
    }
    by_loader_close(&loader);
    return rows;
}

/* Each sample of a part comes exactly once in each of its epochs, one epoch behind the other. */
static void check_epochs(const int32_t *rows, size_t count)
{
    for (int32_t part = 0; part < PARTS; part++) {
        uint64_t seen = 0;
        uint8_t *have = calloc(count + sizes[part], 1);
        assert_non_null(have);
        for (size_t i = 0; i < count; i++) {
            const int32_t *row = rows + 3 * i;
            if (row[0] == part) {
                size_t at = (size_t)row[2] * sizes[part] + (size_t)row[1];
                assert_in_range(row[1], 0, sizes[part] - 1);
                assert_true(at < count + sizes[part] && have[at] == 0);
                assert_true((uint64_t)row[2] == seen / sizes[part]);
                have[at] = 1;
                seen++;
            }
        }
        free(have);
    }
}

/* Of any samples in a row every part has its share, to within 2 of three parts. */
static void test_exact(void **state)
{
    static const double weights[PARTS] = {0.5, 0.3, 0.2};
    enum { COUNT = 4000 };
    BY_UNUSED(state);
    int32_t *rows = take(open_mix(&(by_mix_stage){0, weights}, 1, false), COUNT, 10, 0, 5);
    check_epochs(rows, COUNT);
    for (size_t length = 1; length <= 400; length += 13) {
        for (size_t begin = 0; begin + length <= COUNT; begin += 37) {
            double found[PARTS] = {0};
            for (size_t i = begin; i < begin + length; i++) {
                found[rows[3 * i]]++;
            }
            for (int k = 0; k < PARTS; k++) {
                assert_true(fabs(found[k] - weights[k] * (double)length) <= 2.0);
            }
        }
    }
    free(rows);
}

/* The same stream from anywhere, in batches of any size; another one with another seed. */
static void test_seek(void **state)
{
    static const double weights[PARTS] = {3, 0, 1};
    enum { COUNT = 300 };
    BY_UNUSED(state);
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        const by_mix_stage stage = {0, weights};
        int32_t *all = take(open_mix(&stage, 1, shuffle == 1), COUNT, 10, 0, 5);
        int32_t *rest = take(open_mix(&stage, 1, shuffle == 1), COUNT - 123, 3, 123, 5);
        int32_t *other = take(open_mix(&stage, 1, shuffle == 1), COUNT, 10, 0, 6);
        assert_memory_equal(rest, all + 3 * 123, (COUNT - 123) * 3 * sizeof *all);
        assert_memory_not_equal(other, all, COUNT * 3 * sizeof *all);
        for (size_t i = 0; i < COUNT; i++) {
            assert_int_not_equal(all[3 * i], 1);
        }
        free(all);
        free(rest);
        free(other);
    }
}

/* In pseudo-random order: the share is exact over a block; single batches differ as draws do. */
static void test_shuffle(void **state)
{
    static const double weights[PARTS] = {0.5, 0.25, 0.25};
    enum { COUNT = 65536, BATCH = 64 };
    double found[PARTS] = {0};
    double variance = 0;
    BY_UNUSED(state);
    int32_t *rows = take(open_mix(&(by_mix_stage){0, weights}, 1, true), COUNT, BATCH, 0, 5);
    check_epochs(rows, COUNT);
    for (size_t b = 0; b < COUNT / BATCH; b++) {
        double first = 0;
        for (size_t i = b * BATCH; i < (b + 1) * BATCH; i++) {
            found[rows[3 * i]]++;
            first += rows[3 * i] == 0;
        }
        variance += (first - 0.5 * BATCH) * (first - 0.5 * BATCH);
    }
    for (int k = 0; k < PARTS; k++) {
        assert_true(fabs(found[k] - weights[k] * COUNT) <= 2.0);
    }
    /* That of a draw is 64 / 4 = 16; of 1,024 batches its own deviation is 0.7. */
    variance /= (double)COUNT / BATCH;
    assert_true(variance > 13.0 && variance < 19.0);
    free(rows);
}

/* Weights change at a sample, also in the middle of a block; no part loses its place. */
static void test_stages(void **state)
{
    static const double weights[3][PARTS] = {{1, 0, 0}, {0, 0.5, 0.5}, {0.2, 0.8, 0}};
    static const by_mix_stage stages[] = {{0, weights[0]}, {101, weights[1]}, {500, weights[2]}};
    enum { COUNT = 1500 };
    BY_UNUSED(state);
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        int32_t *rows = take(open_mix(stages, 3, shuffle == 1), COUNT, 10, 0, 5);
        double found[3][PARTS] = {{0}};
        check_epochs(rows, COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            found[i < 101 ? 0 : i < 500 ? 1 : 2][rows[3 * i]]++;
        }
        for (int s = 0; s < 2 + (shuffle == 0); s++) {
            double length = s == 0 ? 101 : s == 1 ? 399 : 1000;
            double sum = weights[s][0] + weights[s][1] + weights[s][2];
            for (int k = 0; k < PARTS; k++) {
                assert_true(fabs(found[s][k] - weights[s][k] / sum * length) <= 2.0);
            }
        }
        free(rows);
    }
}

static void expect_refused(by_source *const *parts, size_t count, const by_mix_stage *stages,
                           size_t stage_count, const char *why)
{
    by_source *mix;
    by_error error = {0};
    assert_int_equal(by_mix_source_open(&mix, parts, count,
                                        &(by_mix_options){stages, stage_count, false}, &error),
                     BY_EARG);
    if (strstr(error.message, why) == NULL) {
        fail_msg("'%s' does not say '%s'", error.message, why);
    }
}

/* What does not fit is refused, and the parts are closed all the same. */
static void test_refusals(void **state)
{
    static const double good[2] = {1, 1};
    static const double negative[2] = {1, -1};
    static const double none[2] = {0, 0};
    static const by_mix_stage late = {1, good};
    static const by_mix_stage twice[] = {{0, good}, {0, good}};
    const struct {
        const by_mix_stage *stages;
        size_t count;
        const char *why;
    } cases[] = {{&(by_mix_stage){0, negative}, 1, "weight -1"},
                 {&(by_mix_stage){0, none}, 1, "add up to 0"},
                 {&late, 1, "begins at sample 0"},
                 {&late, 0, "begins at sample 0"},
                 {twice, 2, "stage 1 of a mix begins at sample 0"}};
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        bool is_closed[2] = {false, false};
        by_source *parts[2];
        for (int32_t k = 0; k < 2; k++) {
            parts[k] = open_counted(k, 5);
            ((counted *)parts[k])->is_closed = &is_closed[k];
        }
        expect_refused(parts, 2, cases[i].stages, cases[i].count, cases[i].why);
        assert_true(is_closed[0] && is_closed[1]);
    }
    by_source *odd[2] = {open_counted(0, 5), open_counted(1, 5)};
    ((counted *)odd[1])->array.dtype = BY_F32;
    expect_refused(odd, 2, &(by_mix_stage){0, good}, 1, "cannot be mixed");
    by_source *pass[1] = {open_counted(0, 5)};
    pass[0]->shuffle = false;
    expect_refused(pass, 1, &(by_mix_stage){0, good}, 1, "must be a source with epochs");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),    cmocka_unit_test(test_seek),
        cmocka_unit_test(test_shuffle),  cmocka_unit_test(test_stages),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
