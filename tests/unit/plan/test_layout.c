/* The time of a step: two queues and pipelines by hand and against closed forms; whole plans
 * against those that ranks make. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/layout.h"
#include "plan/layout/layout.h"
#include "runner.h"

/* 1e12 operations and 1e12 bytes a second; 1e9 bytes a second between ranks. */
static const by_cluster cluster = {.device = {.f32_flops = 1e12,
                                              .bf16_flops = 2e12,
                                              .product_share = 1.0,
                                              .attention_share = 1.0,
                                              .bandwidth = 1e12,
                                              .compute_slowdown = 0.5,
                                              .exchange_slowdown = 1.0},
                                   .levels = {{.width = 16, .bandwidth = 1e9}},
                                   .level_count = 1};

static void assert_near(double a, double b, double share)
{
    if (!(fabs(a - b) <= share * fabs(b) + 1e-12)) {
        fail_msg("%.9g is not %.9g", a, b);
    }
}

/* ---- two queues ---- */

#define RUNS(s)                                                                                    \
    {                                                                                              \
        .kind = BY__LAYOUT_RUNS, .part = BY_LAYOUT_PRODUCTS, .flops = 1e12 * (s)                   \
    }
#define STARTS(s)                                                                                  \
    {                                                                                              \
        .kind = BY__LAYOUT_STARTS, .part = BY_LAYOUT_GRADIENTS, .exchange = BY_EXCHANGE_SHIFT,     \
        .payload = 1e9 * (s), .mesh = 1u << BY_MESH_DATA, .ranks = 2                               \
    }
#define WAITS(i)                                                                                   \
    {                                                                                              \
        .kind = BY__LAYOUT_WAITS, .start = (i)                                                     \
    }

static by__layout_time run_items(by__layout_item *items, size_t count)
{
    by_error error = {0};
    by__layout_time time;
    const by__layout_work work = {items, count};
    by__layout_job job = {.cluster = &cluster, .sizes = {1, 1, 1, 1, 1, 1}, .ranks = 2};
    job.sizes[BY_MESH_DATA] = 2;
    check_ok(by__layout_run(&time, &work, &job, &error), &error);
    return time;
}

static void test_exposed(void **state)
{
    BY_UNUSED(state);
    by__layout_item items[] = {RUNS(1.0), STARTS(2.0), WAITS(1), RUNS(3.0)};
    by__layout_time t = run_items(items, 4);
    assert_near(t.total, 6.0, 1e-9);
    assert_near(t.seconds[BY_LAYOUT_GRADIENTS], 2.0, 1e-9);
    assert_near(t.hidden[BY_LAYOUT_GRADIENTS], 0.0, 1e-9);
}

/* 2 s of exchange beside computation take 4 s, in which only 4 / 1.5 s of it get done. */
static void test_hidden(void **state)
{
    BY_UNUSED(state);
    by__layout_item items[] = {STARTS(2.0), RUNS(10.0), WAITS(0)};
    by__layout_time t = run_items(items, 3);
    assert_near(t.total, 4.0 + (10.0 - 4.0 / 1.5), 1e-9);
    assert_near(t.hidden[BY_LAYOUT_GRADIENTS], 4.0, 1e-9);
    assert_near(t.seconds[BY_LAYOUT_GRADIENTS], 0.0, 1e-9);
}

/* 1 s of computation takes 1.5 s, in which 0.75 s of the exchange get done; the rest is waited for,
 * and then the second exchange, which has to wait for the first. */
static void test_partly_hidden(void **state)
{
    BY_UNUSED(state);
    by__layout_item items[] = {STARTS(2.0), STARTS(1.0), RUNS(1.0), WAITS(1)};
    by__layout_time t = run_items(items, 4);
    assert_near(t.total, 1.5 + 1.25 + 1.0, 1e-9);
    assert_near(t.hidden[BY_LAYOUT_GRADIENTS], 1.5, 1e-9);
    assert_near(t.seconds[BY_LAYOUT_GRADIENTS], 2.25, 1e-9);
    /* A program ends when its exchanges have. */
    assert_near(run_items(items, 3).total, t.total, 1e-9);
}

static void test_node_seconds(void **state)
{
    BY_UNUSED(state);
    by_cluster c = cluster;
    const by__layout_item product = {.flops = 4e9, .bytes = 1e9, .dtype = BY_BF16};
    c.device.product_share = 0.5;
    c.device.launch = 1e-3;
    assert_near(by__layout_seconds(&c, &product), 5e-3, 1e-9);
    c.device.bandwidth = 1e11;
    assert_near(by__layout_seconds(&c, &product), 11e-3, 1e-9);
    c.device.host = 0.1;
    assert_near(by__layout_seconds(&c, &product), 0.1, 1e-9);
}

/* ---- pipelines ---- */

static double makespan(by_pipeline_kind kind, int ranks, int chunks, int64_t micro_batches,
                       double sent)
{
    by_error error = {0};
    by_pipeline *p;
    by__layout_pipeline out;
    by__layout_stage stages[16] = {0};
    by__layout_job job = {.cluster = &cluster, .sizes = {1, 1, 1, 1, 1, 1}, .ranks = ranks};
    const by_pipeline_options options = {
        .kind = kind, .ranks = ranks, .chunks = chunks, .micro_batches = micro_batches};
    bool apart = kind == BY_PIPELINE_ZERO_BUBBLE;
    job.sizes[BY_MESH_PIPELINE] = ranks;
    for (int s = 0; s < ranks * chunks; s++) {
        stages[s].passes[BY_PIPELINE_FORWARD].total = 1.0;
        stages[s].passes[BY_PIPELINE_BACKWARD].total = apart ? 1.0 : 2.0;
        stages[s].passes[BY_PIPELINE_WEIGHT].total = apart ? 1.0 : 0.0;
        stages[s].sent = sent;
        stages[s].returned = sent;
    }
    check_ok(by_pipeline_open(&p, &options, &error), &error);
    check_ok(by__layout_pipeline_run(&out, p, stages, &job, &error), &error);
    double seconds = out.makespan;
    by__layout_pipeline_free(&out);
    by_pipeline_close(&p);
    return seconds;
}

/* The bubbles of docs/parallelism.md. */
static void test_bubbles(void **state)
{
    BY_UNUSED(state);
    assert_near(makespan(BY_PIPELINE_1F1B, 4, 1, 8, 0.0), 3.0 * 8.0 + 3.0 * 3.0, 1e-9);
    assert_near(makespan(BY_PIPELINE_GPIPE, 4, 1, 8, 0.0), 3.0 * 8.0 + 3.0 * 3.0, 1e-9);
    assert_near(makespan(BY_PIPELINE_INTERLEAVED, 4, 2, 8, 0.0), 2.0 * 3.0 * 8.0 + 3.0 * 3.0, 1e-9);
    assert_near(makespan(BY_PIPELINE_ZERO_BUBBLE, 4, 1, 8, 0.0), 3.0 * 8.0 + 3.0, 1e-9);
    /* One micro-batch on two ranks: there and back. */
    assert_near(makespan(BY_PIPELINE_1F1B, 2, 1, 1, 1e9), 6.0 + 2.0, 1e-9);
}

/* ---- plans ---- */

static const char *const common[] = {
    "model.kind=gpt2", "model.layers=4",        "model.heads=4",    "model.width=64",
    "model.vocab=67",  "model.context=32",      "train.batch=16",   "train.micro_batch=2",
    "train.threads=1", "precision.compute=f32", "parallel.data=-1", NULL};

static by_layout_plan plan_of(const char *const *settings, int ranks, const by_cluster *of)
{
    by_error error = {0};
    by_layout_plan plan;
    by_config *config = config_of(common, settings);
    const by_layout_options options = {.ranks = ranks, .cluster = of};
    check_ok(by_layout_plan_make(&plan, config, &options, &error), &error);
    by_config_close(&config);
    return plan;
}

static double sum_of_terms(const by_layout_plan *p)
{
    double sum = 0.0;
    for (int part = 0; part < BY_LAYOUT_PARTS; part++) {
        sum += p->terms[part].seconds;
    }
    return sum;
}

static void test_terms(void **state)
{
    BY_UNUSED(state);
    static const struct {
        const char *settings[5];
        int ranks;
        by_layout_part must;
    } cases[] = {{{NULL}, 1, BY_LAYOUT_ENDS},
                 {{NULL}, 4, BY_LAYOUT_GRADIENTS},
                 {{"parallel.shard=4", "parallel.zero=1", NULL}, 4, BY_LAYOUT_WEIGHTS},
                 {{"parallel.shard=4", "parallel.zero=2", NULL}, 4, BY_LAYOUT_GRADIENTS},
                 {{"parallel.shard=4", "parallel.zero=3", NULL}, 4, BY_LAYOUT_WEIGHTS},
                 {{"parallel.tensor=4", NULL}, 4, BY_LAYOUT_TENSOR},
                 {{"parallel.sequence=2", NULL}, 4, BY_LAYOUT_SEQUENCE},
                 {{"parallel.pipeline=4", NULL}, 4, BY_LAYOUT_BUBBLE},
                 {{"parallel.pipeline=2", "parallel.shard=2", "parallel.zero=3", NULL},
                  8,
                  BY_LAYOUT_PIPELINE}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by_layout_plan p = plan_of(cases[i].settings, cases[i].ranks, &cluster);
        assert_near(sum_of_terms(&p), p.seconds, 1e-9);
        assert_true(p.low < p.seconds && p.seconds < p.high);
        const by_layout_term *must = &p.terms[cases[i].must];
        if (!(must->seconds + must->hidden > 0.0)) {
            fail_msg("case %zu: no %s", i, by_layout_part_name(cases[i].must));
        }
        by_layout_plan_free(&p);
    }
}

/* The memory of each stage is that of the rank's own plan. */
static void test_memory(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"parallel.pipeline=2", "parallel.shard=2", NULL};
    by_error error = {0};
    by_layout_plan p = plan_of(settings, 4, &cluster);
    assert_int_equal(p.planned_count, 4);
    for (size_t i = 0; i < p.planned_count; i++) {
        by_trainer *t;
        by_config *config = config_of(common, settings);
        const by_trainer_options options = {.ranks = 4, .rank = p.planned[i].rank};
        check_ok(by_trainer_open(&t, config, &options, &error), &error);
        bool held_out = (by_trainer_task(t)->knows(config) & BY_TASK_HOLDS_OUT) != 0;
        by_trainer_plan_staging(t);
        check_ok(by_trainer_plan_loaders(t, held_out, &error), &error);
        const by_memory_report *m = by_trainer_memory(t);
        assert_int_equal(p.planned[i].memory.total - p.planned[i].memory.process,
                         m->total - m->process);
        by_trainer_close(&t);
        by_config_close(&config);
    }
    by_layout_plan_free(&p);
}

/* Twice the speed of everything is half the time. */
static void test_scale(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"parallel.pipeline=2", "parallel.tensor=2", NULL};
    by_cluster twice = cluster;
    twice.device.f32_flops *= 2.0;
    twice.device.bandwidth *= 2.0;
    twice.levels[0].bandwidth *= 2.0;
    by_layout_plan p = plan_of(settings, 4, &cluster);
    by_layout_plan q = plan_of(settings, 4, &twice);
    assert_near(q.seconds, 0.5 * p.seconds, 1e-6);
    by_layout_plan_free(&q);
    by_layout_plan_free(&p);
}

/* A job does not fit on fewer devices than it has ranks. */
static void test_too_many(void **state)
{
    BY_UNUSED(state);
    static const char *const none[] = {NULL};
    by_cluster few = cluster;
    by_error error = {0};
    by_layout_plan plan;
    by_config *config = config_of(common, none);
    const by_layout_options options = {.ranks = 4, .cluster = &few};
    few.levels[0].width = 3;
    (void)snprintf(few.name, sizeof few.name, "three");
    check_error(by_layout_plan_make(&plan, config, &options, &error), BY_ECONFIG, &error,
                "4 ranks are more than the 3 devices that the levels of three join");
    by_config_close(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exposed),       cmocka_unit_test(test_hidden),
        cmocka_unit_test(test_partly_hidden), cmocka_unit_test(test_node_seconds),
        cmocka_unit_test(test_bubbles),       cmocka_unit_test(test_terms),
        cmocka_unit_test(test_memory),        cmocka_unit_test(test_scale),
        cmocka_unit_test(test_too_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
