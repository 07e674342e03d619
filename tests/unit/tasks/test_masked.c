/* Tokens that are hidden in samples: how many, which, behind what, and that it is a function of
 * seed, epoch and sample. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/data.h"
#include "base/base.h"

#define CONTEXT 40
#define MASK    1000
#define SPECIAL 7

/* Sample i has the tokens i + 0, i + 1, ..., of which the last sample has fewer. */
static by_status fill_plain(const by_source *source, const by_source_sample *sample,
                            void *const *rows, by_error *error)
{
    int32_t *tokens = rows[0];
    int32_t *targets = rows[1];
    size_t valid = sample->place >= source->samples       ? 0
                   : sample->place + 1 == source->samples ? 3
                                                          : CONTEXT;
    BY_UNUSED(error);
    for (size_t i = 0; i < CONTEXT; i++) {
        tokens[i] = i < valid ? (int32_t)((sample->place + i) % 50) : 0;
        targets[i] = i < valid ? tokens[i] + 1 : -1;
    }
    return BY_OK;
}

static by_array arrays[2] = {{"tokens", BY_I32, {.rank = 1, .dim = {CONTEXT}}, NULL},
                             {"targets", BY_I32, {.rank = 1, .dim = {CONTEXT}}, NULL}};
static by_source plain = {.name = "plain",
                          .arrays = arrays,
                          .array_count = 2,
                          .samples = 200,
                          .sample_targets = CONTEXT,
                          .targets = 199 * CONTEXT + 3,
                          .fill = fill_plain};
static const int32_t special[1] = {SPECIAL};

static by_source *open_spans(double share, double span)
{
    by_error error = {0};
    by_source *source = NULL;
    by_mask_options options = {.share = share,
                               .span = span,
                               .mask = MASK,
                               .random = 900,
                               .special = special,
                               .special_count = 1};
    assert_int_equal(by_masked_source_open(&source, &plain, &options, &error), BY_OK);
    return source;
}

static by_source *open_masked(double share)
{
    return open_spans(share, 0.0);
}

/* Reads a sample, and puts its targets where the tokens are that they are of. */
static void read(const by_source *source, const by_source_sample *sample, int32_t *tokens,
                 int32_t *targets)
{
    by_error error = {0};
    int32_t chosen[CONTEXT];
    int32_t compact[CONTEXT];
    void *rows[3] = {tokens, compact, chosen};
    size_t room = (size_t)source->arrays[1].shape.dim[0];
    size_t used = 0;
    assert_int_equal(source->array_count, 3);
    assert_int_equal(source->fill(source, sample, rows, &error), BY_OK);
    for (int i = 0; i < CONTEXT; i++) {
        assert_true(chosen[i] == 0 || chosen[i] == -1);
        targets[i] = chosen[i] == 0 && used < room ? compact[used] : -1;
        used += chosen[i] == 0;
    }
    assert_int_equal(used, room);
}

static void test_shares(void **state)
{
    BY_UNUSED(state);
    by_source *source = open_masked(0.15);
    by_error error = {0};
    size_t hidden = 0;
    size_t masked = 0;
    size_t kept = 0;
    uint64_t all = 0;
    for (uint64_t place = 0; place < 202; place++) {
        int32_t tokens[CONTEXT];
        int32_t targets[CONTEXT];
        int32_t before[CONTEXT];
        int32_t next[CONTEXT];
        by_source_sample sample = {.place = place, .index = place, .seed = 5};
        void *rows[2] = {before, next};
        assert_int_equal(plain.fill(&plain, &sample, rows, &error), BY_OK);
        read(source, &sample, tokens, targets);
        size_t own = 0;
        for (int i = 0; i < CONTEXT; i++) {
            if (targets[i] < 0) {
                assert_int_equal(tokens[i], before[i]);
                continue;
            }
            own++;
            assert_int_equal(targets[i], before[i]);
            assert_int_not_equal(targets[i], SPECIAL);
            masked += tokens[i] == MASK;
            kept += tokens[i] == before[i];
            assert_true(tokens[i] == MASK || tokens[i] < 900);
        }
        uint64_t counted;
        assert_int_equal(source->count(source, &sample, &counted, &error), BY_OK);
        assert_int_equal(own, place < 199 ? 6 : place == 199 ? 1 : 0);
        assert_int_equal(counted, own);
        hidden += own;
        all += counted;
    }
    assert_int_equal(all, source->targets);
    /* Of 1,195 draws, five standard deviations around 80 and 10 %. */
    assert_in_range(masked, hidden * 74 / 100, hidden * 86 / 100);
    assert_in_range(kept, hidden * 5 / 100, hidden * 15 / 100);
    by_source_close(&source);
}

static void test_order(void **state)
{
    BY_UNUSED(state);
    by_source *source = open_masked(0.5);
    int32_t tokens[3][CONTEXT];
    int32_t targets[3][CONTEXT];
    by_source_sample sample = {.place = 3, .index = 3, .seed = 5};
    read(source, &sample, tokens[0], targets[0]);
    read(source, &sample, tokens[1], targets[1]);
    sample.epoch = 1;
    sample.index = 203;
    read(source, &sample, tokens[2], targets[2]);
    assert_memory_equal(tokens[0], tokens[1], sizeof tokens[0]);
    assert_memory_equal(targets[0], targets[1], sizeof targets[0]);
    assert_memory_not_equal(targets[0], targets[2], sizeof targets[0]);
    by_source_close(&source);
    /* All of them, special ones too, where the share asks for it. */
    source = open_masked(1.0);
    read(source, &sample, tokens[0], targets[0]);
    for (int i = 0; i < CONTEXT; i++) {
        assert_true(targets[0][i] >= 0);
    }
    by_source_close(&source);
}

static void test_refusals(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_source *source = NULL;
    by_mask_options options = {.share = 0.0, .mask = MASK, .random = 900};
    assert_int_equal(by_masked_source_open(&source, &plain, &options, &error), BY_EARG);
    assert_non_null(strstr(error.message, "share"));
    by_source other = plain;
    other.array_count = 1;
    options.share = 0.1;
    options.span = 0.5;
    assert_int_equal(by_masked_source_open(&source, &plain, &options, &error), BY_EARG);
    options.span = 0.0;
    assert_int_equal(by_masked_source_open(&source, &other, &options, &error), BY_EARG);
    assert_null(source);
}

/* A quarter of 40 tokens in spans of 10/3: 3 spans in each whole sample, between which special
 * tokens do not count, and of which each is replaced as one. */
static void test_spans(void **state)
{
    BY_UNUSED(state);
    by_source *source = open_spans(0.25, 10.0 / 3.0);
    size_t first = 0;
    size_t last = 0;
    size_t samples = 0;
    size_t behind_masks = 0;
    for (uint64_t index = 0; index < 60 * 199; index++) {
        int32_t tokens[CONTEXT];
        int32_t targets[CONTEXT];
        by_source_sample sample = {
            .place = index % 199, .index = index, .epoch = index / 199, .seed = 5};
        size_t spans = 0;
        size_t masks = 0;
        bool inside = false;
        int hiding = 0;
        read(source, &sample, tokens, targets);
        for (int i = 0; i < CONTEXT; i++) {
            bool hidden = targets[i] >= 0;
            if (!hidden && tokens[i] == SPECIAL) {
                continue;
            }
            assert_int_not_equal(targets[i], SPECIAL);
            spans += hidden && !inside;
            int now = tokens[i] == MASK ? 1 : tokens[i] == targets[i] ? 2 : 3;
            /* A random token may be the one that was there. */
            assert_true(!hidden || !inside || now == hiding || (now != 1 && hiding != 1));
            masks += hidden && !inside && now == 1;
            hiding = now;
            inside = hidden;
        }
        assert_int_equal(spans, 3);
        behind_masks += masks == spans;
        if ((sample.place + CONTEXT - 1) % 50 >= SPECIAL + CONTEXT) {
            continue; /* no special token */
        }
        samples++;
        first += targets[0] >= 0;
        last += targets[CONTEXT - 1] >= 0;
    }
    /* 30 plain tokens, and one more on each side, in 4 parts: C(30, 2) of C(31, 3) begin or end
     * with a hidden one. */
    double expected = 435.0 / 4495.0;
    assert_true(samples > 1000);
    assert_true(fabs((double)first / (double)samples - expected) < 0.015);
    assert_true(fabs((double)last / (double)samples - expected) < 0.015);
    /* What a span is replaced by does not depend on the others. */
    assert_true(fabs((double)behind_masks / (60.0 * 199.0) - 0.8 * 0.8 * 0.8) < 0.02);
    by_source_close(&source);
}

/* Shares that leave few places between spans, or none. */
static void test_crowded_spans(void **state)
{
    BY_UNUSED(state);
    static const double cases[][2] = {{1.0, 3.0}, {0.95, 2.0}, {0.01, 5.0}, {0.5, 1000.0}};
    for (size_t c = 0; c < BY_ARRAY_LENGTH(cases); c++) {
        by_source *source = open_spans(cases[c][0], cases[c][1]);
        for (uint64_t place = 0; place < 200; place++) {
            int32_t tokens[CONTEXT];
            int32_t targets[CONTEXT];
            by_source_sample sample = {.place = place, .index = place, .seed = 5};
            size_t hidden = 0;
            size_t spans = 0;
            read(source, &sample, tokens, targets);
            for (int i = 0; i < CONTEXT; i++) {
                hidden += targets[i] >= 0;
                spans += targets[i] >= 0 && (i == 0 || targets[i - 1] < 0);
            }
            assert_int_equal(hidden,
                             by_mask_targets(cases[c][0], place == 199 ? 3 : (size_t)CONTEXT));
            assert_true(cases[c][1] < 1000.0 || place == 199 || spans <= 2);
        }
        by_source_close(&source);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares), cmocka_unit_test(test_order), cmocka_unit_test(test_spans),
        cmocka_unit_test(test_crowded_spans), cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
