/* Pipeline schedules: lists that cannot block, every pass once, dependencies, the bubble's formula,
 * memory, pictures. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "banyan/pipeline.h"
#include "banyan/plot.h"
#include "base/base.h"
#include "temporary.h"

#define MOST_RANKS   8
#define MOST_BATCHES 32
#define MOST_CHUNKS  4

/* fontconfig's own cache holds its patterns by offsets, which a leak checker cannot follow. */
BY_API const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libfontconfig";
}

static by_pipeline *open_pipeline(by_pipeline_options options)
{
    by_pipeline *p = NULL;
    by_error error = {0};
    if (by_pipeline_open(&p, &options, &error) != BY_OK) {
        fail_msg("%s: %s", by_pipeline_kind_name(options.kind), error.message);
    }
    return p;
}

/* ---- a model of ranks whose sends wait for their receivers ---- */

/* What a rank has of each stage and micro-batch: bits of done passes and of data that is there. */
enum { DID_FORWARD = 1, DID_BACKWARD = 2, DID_WEIGHT = 4 };

typedef struct model {
    const by_pipeline *pipeline;
    const by_pipeline_options *options;
    size_t next[MOST_RANKS];
    unsigned char did[MOST_RANKS * MOST_CHUNKS][MOST_BATCHES];
    /* data of `from` that the rank of a stage has: [to][from][micro-batch], forward and backward */
    bool has[2][MOST_RANKS * MOST_CHUNKS][MOST_RANKS * MOST_CHUNKS][MOST_BATCHES];
} model;

static const by_pipeline_action *action_of(const model *m, int rank)
{
    size_t count;
    const by_pipeline_action *actions = by_pipeline_actions(m->pipeline, rank, &count);
    return m->next[rank] < count ? &actions[m->next[rank]] : NULL;
}

/* Asserts that a pass has what it reads, and notes it as done. */
static void run_pass(model *m, int rank, const by_pipeline_action *a)
{
    const by_pipeline_options *o = m->options;
    int stages = o->ranks * o->chunks;
    unsigned char *did = &m->did[a->stage][a->micro_batch];
    assert_int_equal(a->stage % o->ranks, rank);
    assert_true(a->micro_batch >= 0 && a->micro_batch < o->micro_batches);
    unsigned char want = a->kind == BY_PIPELINE_FORWARD    ? 0
                         : a->kind == BY_PIPELINE_BACKWARD ? DID_FORWARD
                                                           : DID_FORWARD | DID_BACKWARD;
    assert_int_equal(*did, want);
    if (a->kind == BY_PIPELINE_FORWARD) {
        *did |= DID_FORWARD;
        assert_true(a->stage == 0 || m->has[0][a->stage][a->stage - 1][a->micro_batch]);
    } else if (a->kind == BY_PIPELINE_BACKWARD) {
        *did |= DID_BACKWARD;
        assert_true(a->stage == stages - 1 || m->has[1][a->stage][a->stage + 1][a->micro_batch]);
        /* Gradients are summed in the order of the micro-batches. */
        assert_true(a->micro_batch == 0 || (m->did[a->stage][a->micro_batch - 1] & DID_BACKWARD));
    } else {
        *did |= DID_WEIGHT;
        assert_true(a->micro_batch == 0 || (m->did[a->stage][a->micro_batch - 1] & DID_WEIGHT));
    }
    bool backward = a->kind == BY_PIPELINE_BACKWARD;
    int to = backward ? a->stage - 1 : a->stage + 1;
    if (a->kind != BY_PIPELINE_WEIGHT && to >= 0 && to < stages && to % o->ranks == rank) {
        m->has[backward][to][a->stage][a->micro_batch] = true;
    }
}

/* One step of a rank; false when it waits. A transfer is done when both ends have come to it. */
static bool step(model *m, int rank)
{
    const by_pipeline_action *a = action_of(m, rank);
    if (a == NULL) {
        return false;
    }
    if (a->kind != BY_PIPELINE_SEND && a->kind != BY_PIPELINE_RECEIVE) {
        run_pass(m, rank, a);
        m->next[rank]++;
        return true;
    }
    const by_pipeline_action *other = action_of(m, a->peer);
    if (a->kind != BY_PIPELINE_SEND || other == NULL || other->kind != BY_PIPELINE_RECEIVE ||
        other->peer != rank || other->tag != a->tag) {
        return false;
    }
    assert_int_equal(other->stage, a->stage);
    assert_int_equal(other->to, a->to);
    assert_int_equal(other->micro_batch, a->micro_batch);
    assert_int_equal(other->backward, a->backward);
    assert_int_equal(a->stage % m->options->ranks, rank);
    assert_int_equal(a->to % m->options->ranks, a->peer);
    /* The data was made before it is sent. */
    assert_true(m->did[a->stage][a->micro_batch] & (a->backward ? DID_BACKWARD : DID_FORWARD));
    assert_false(m->has[a->backward][a->to][a->stage][a->micro_batch]);
    m->has[a->backward][a->to][a->stage][a->micro_batch] = true;
    m->next[rank]++;
    m->next[a->peer]++;
    return true;
}

static void check_lists(const by_pipeline *p)
{
    static model m; /* too large for a stack */
    memset(&m, 0, sizeof m);
    m.pipeline = p;
    m.options = by_pipeline_of(p);
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < m.options->ranks; r++) {
            while (step(&m, r)) {
                moved = true;
            }
        }
    }
    for (int r = 0; r < m.options->ranks; r++) {
        if (action_of(&m, r) != NULL) {
            fail_msg("%s, %d ranks, %d chunks, %lld micro-batches: rank %d waits for ever",
                     by_pipeline_kind_name(m.options->kind), m.options->ranks, m.options->chunks,
                     (long long)m.options->micro_batches, r);
        }
    }
    unsigned char all = DID_FORWARD | DID_BACKWARD;
    all |= m.options->kind == BY_PIPELINE_ZERO_BUBBLE ? DID_WEIGHT : 0;
    for (int s = 0; s < m.options->ranks * m.options->chunks; s++) {
        for (int64_t i = 0; i < m.options->micro_batches; i++) {
            assert_int_equal(m.did[s][i], all);
        }
    }
}

/* ---- the formulas ---- */

static void expect_idle(const by_pipeline *p, const by_pipeline_time *t)
{
    const by_pipeline_options *o = by_pipeline_of(p);
    double ranks = o->ranks;
    double batches = (double)o->micro_batches;
    double work = 3.0 * batches * o->chunks;
    bool even = o->micro_batches % o->ranks == 0;
    for (int r = 0; r < o->ranks; r++) {
        assert_true(fabs(t->ranks[r].busy - work) < 1e-9);
        assert_true(fabs(t->ranks[r].busy + t->ranks[r].idle - t->makespan) < 1e-9);
    }
    if (o->kind == BY_PIPELINE_GPIPE || o->kind == BY_PIPELINE_1F1B) {
        assert_true(fabs(t->bubble - (ranks - 1) / (batches + ranks - 1)) < 1e-12);
    } else if (o->kind == BY_PIPELINE_INTERLEAVED && even) {
        assert_true(fabs((t->makespan - work) / work - (ranks - 1) / (o->chunks * batches)) <
                    1e-12);
    } else if (o->kind == BY_PIPELINE_ZERO_BUBBLE && o->micro_batches >= 2 * o->ranks - 1) {
        /* 1F1B is idle for 3 (p - 1). */
        if (fabs(t->makespan - work - (ranks - 1)) > 1e-9) {
            fail_msg("zero_bubble, %d ranks, %lld micro-batches: idle for %g", o->ranks,
                     (long long)o->micro_batches, t->makespan - work);
        }
    }
    for (int r = 0; r < o->ranks; r++) {
        int64_t most = o->kind == BY_PIPELINE_GPIPE         ? o->micro_batches
                       : o->kind == BY_PIPELINE_1F1B        ? o->ranks - r
                       : o->kind == BY_PIPELINE_ZERO_BUBBLE ? o->ranks
                                                            : o->micro_batches * o->chunks;
        assert_in_range(t->ranks[r].live, 1, most);
    }
}

static void all_schedules_run(void **state)
{
    BY_UNUSED(state);
    by_pipeline_costs usual = by_pipeline_usual_costs();
    for (int kind = 0; kind < BY_PIPELINE_KINDS; kind++) {
        int chunks = kind == BY_PIPELINE_INTERLEAVED ? MOST_CHUNKS : 1;
        for (int v = 1; v <= chunks; v++) {
            for (int p = 1; p <= MOST_RANKS; p++) {
                for (int m = 1; m <= MOST_BATCHES; m++) {
                    by_pipeline_time time;
                    by_pipeline *pipeline = open_pipeline((by_pipeline_options){
                        (by_pipeline_kind)kind, .ranks = p, .chunks = v, .micro_batches = m});
                    check_lists(pipeline);
                    assert_int_equal(by_pipeline_simulate(&time, pipeline, &usual, NULL), BY_OK);
                    expect_idle(pipeline, &time);
                    by_pipeline_time_free(&time);
                    by_pipeline_close(&pipeline);
                }
            }
        }
    }
}

/* Transfers between stages that are not neighbours take part in the order. */
static void links_are_kept(void **state)
{
    BY_UNUSED(state);
    const by_pipeline_link links[] = {{0, 3, false}, {3, 0, true}, {3, 1, true}};
    for (int kind = 0; kind < BY_PIPELINE_KINDS; kind++) {
        for (int m = 1; m <= 9; m++) {
            by_pipeline *p = open_pipeline((by_pipeline_options){(by_pipeline_kind)kind, .ranks = 4,
                                                                 .chunks = 1, .micro_batches = m,
                                                                 .links = links, .link_count = 3});
            size_t count;
            const by_pipeline_action *a = by_pipeline_actions(p, 0, &count);
            int from_last = 0;
            check_lists(p);
            for (size_t i = 0; i < count; i++) {
                from_last += a[i].kind == BY_PIPELINE_RECEIVE && a[i].stage == 3;
                /* Its data is there when the pass that reads it begins. */
                assert_true(a[i].kind != BY_PIPELINE_BACKWARD || from_last > a[i].micro_batch);
            }
            assert_int_equal(from_last, m);
            by_pipeline_close(&p);
        }
    }
}

static void expect_refused(by_pipeline_options options, const char *text)
{
    by_pipeline *p = NULL;
    by_error error = {0};
    assert_int_equal(by_pipeline_open(&p, &options, &error), BY_EARG);
    assert_null(p);
    if (strstr(error.message, text) == NULL) {
        fail_msg("'%s' is not in: %s", text, error.message);
    }
}

static void wrong_options_are_refused(void **state)
{
    BY_UNUSED(state);
    const by_pipeline_link back = {3, 1, false};
    const by_pipeline_link far = {0, 4, false};
    by_pipeline_kind kind;
    by_error error = {0};
    expect_refused((by_pipeline_options){BY_PIPELINE_1F1B, 0, 1, 1, NULL, 0}, "0 ranks");
    expect_refused((by_pipeline_options){BY_PIPELINE_1F1B, 4, 1, 0, NULL, 0}, "0 micro-batches");
    expect_refused((by_pipeline_options){BY_PIPELINE_1F1B, 4, 2, 8, NULL, 0},
                   "schedule 1f1b runs 1 chunk on a rank, not 2; interleaved runs several");
    expect_refused((by_pipeline_options){BY_PIPELINE_ZERO_BUBBLE, 4, 2, 8, NULL, 0}, "not 2");
    expect_refused((by_pipeline_options){BY_PIPELINE_1F1B, 4, 1, INT64_MAX, NULL, 0}, "passes");
    expect_refused((by_pipeline_options){BY_PIPELINE_1F1B, 4, 1, 8, &back, 1},
                   "no forward transfer goes from stage 3 to 1 of 4");
    expect_refused((by_pipeline_options){BY_PIPELINE_1F1B, 4, 1, 8, &far, 1}, "to 4 of 4");
    assert_int_equal(by_pipeline_kind_find(&kind, "1f2b", &error), BY_EARG);
    assert_non_null(strstr(error.message, "'1f2b'; one of gpipe, 1f1b"));
}

/* A slower transfer delays, and keeps nobody busy. */
static void transfers_take_time(void **state)
{
    BY_UNUSED(state);
    by_pipeline_costs costs = by_pipeline_usual_costs();
    by_pipeline_time time;
    by_pipeline *p = open_pipeline((by_pipeline_options){BY_PIPELINE_GPIPE, 3, 1, 4, NULL, 0});
    costs.transfer = 0.5;
    assert_int_equal(by_pipeline_simulate(&time, p, &costs, NULL), BY_OK);
    assert_true(fabs(time.makespan - (3.0 * 6 + 4 * 0.5)) < 1e-9); /* twice through two links */
    assert_true(fabs(time.ranks[1].busy - 12.0) < 1e-9);
    by_pipeline_time_free(&time);
    by_pipeline_close(&p);
}

static void text_shows_the_schedule(void **state)
{
    BY_UNUSED(state);
    static const char *const want[] = {
        "rank 0   F0 F1 .  .  .  B0--- B1---\n"
        "rank 1   .  F0 F1 B0--- B1--- .  .\n"
        "gpipe, 2 ranks, 2 micro-batches: 9 units of time, 33.3 % idle\n",
        "rank 0   F0 F1 .  .  B0--- F2 B1--- .  B2---\n"
        "rank 1   .  F0 B0--- F1 B1--- F2 B2--- .  .\n"
        "1f1b, 2 ranks, 3 micro-batches: 12 units of time, 25.0 % idle\n",
        "rank 0   F0a F1a F0b F1b .   .   B0b---- .   B1b---- B0a---- B1a----\n"
        "rank 1   .   F0a F1a F0b B0b---- F1b B1b---- B0a---- B1a---- .   .\n"
        "interleaved, 2 ranks x 2 chunks, 2 micro-batches: 15 units of time, 20.0 % idle\n",
        "rank 0   F0 F1 .  B0 W0 F2 B1 W1 B2 W2\n"
        "rank 1   .  F0 B0 F1 B1 W0 F2 B2 W1 W2\n"
        "zero_bubble, 2 ranks, 3 micro-batches: 10 units of time, 10.0 % idle\n"};
    static const int64_t batches[] = {2, 3, 2, 3};
    for (int kind = 0; kind < BY_PIPELINE_KINDS; kind++) {
        char *text;
        by_pipeline *p = open_pipeline(
            (by_pipeline_options){(by_pipeline_kind)kind, 2,
                                  kind == BY_PIPELINE_INTERLEAVED ? 2 : 1, batches[kind], NULL, 0});
        assert_int_equal(by_pipeline_text(&text, p, NULL), BY_OK);
        assert_string_equal(text, want[kind]);
        free(text);
        by_pipeline_close(&p);
    }
}

static void pictures_are_written(void **state)
{
    BY_UNUSED(state);
    char *directory = temporary_make();
    char *svg = by__path_join(directory, "a.svg");
    char *png = by__path_join(directory, "a.png");
    char *other = by__path_join(directory, "a.jpg");
    by_error error = {0};
    char *data = NULL;
    size_t bytes = 0;
    by_pipeline *p = open_pipeline((by_pipeline_options){BY_PIPELINE_1F1B, 4, 1, 8, NULL, 0});
    assert_int_equal(by_pipeline_draw(p, svg, NULL), BY_OK);
    assert_int_equal(by_pipeline_draw(p, png, NULL), BY_OK);
    assert_int_equal(by_pipeline_draw(p, other, &error), BY_EARG);
    assert_int_equal(access(other, F_OK), -1);
    assert_int_equal(by__file_read(&data, &bytes, svg, 1 << 20, NULL), BY_OK);
    assert_non_null(strstr(data, "<svg"));
    free(data);
    by_pipeline_close(&p);
    p = open_pipeline((by_pipeline_options){BY_PIPELINE_GPIPE, 4, 1, 2000, NULL, 0});
    (void)unlink(svg);
    assert_int_equal(by_pipeline_draw(p, svg, &error), BY_EARG);
    assert_int_equal(access(svg, F_OK), -1);
    by_pipeline_close(&p);
    free(svg);
    free(png);
    free(other);
    temporary_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_schedules_run),         cmocka_unit_test(links_are_kept),
        cmocka_unit_test(wrong_options_are_refused), cmocka_unit_test(transfers_take_time),
        cmocka_unit_test(text_shows_the_schedule),   cmocka_unit_test(pictures_are_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
