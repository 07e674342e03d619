/* The time of a step: two queues and pipelines by hand and against closed forms; whole plans
 * against those that ranks make. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "banyan/layout.h"
#include "base/json.h"
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
    /* Attention that keeps its scores moves them besides. */
    const by__layout_item attention = {
        .part = BY_LAYOUT_ATTENTION, .flops = 4e9, .bytes = 1e8, .scores = 1e9, .dtype = BY_BF16};
    assert_near(by__layout_seconds(&c, &attention), 3e-3, 1e-9);
    c.device.score_bytes = 5.0;
    assert_near(by__layout_seconds(&c, &attention), 53e-3, 1e-9);
}

/* The host issues a node every second: of four that take 0.5 s the device waits for each, and
 * exchanges go on meanwhile; one of 3 s lets the host get ahead by as much. */
static void test_host(void **state)
{
    BY_UNUSED(state);
    by_cluster slow = cluster;
    by_error error = {0};
    by__layout_time time;
    by__layout_job job = {.cluster = &slow, .sizes = {1, 1, 1, 1, 1, 1}, .ranks = 2};
    by__layout_item small[] = {RUNS(0.5), RUNS(0.5), RUNS(0.5), RUNS(0.5)};
    by__layout_item large[] = {RUNS(3.0), RUNS(0.5), RUNS(0.5), RUNS(0.5)};
    by__layout_item both[] = {STARTS(0.6), RUNS(0.5), WAITS(0)};
    job.sizes[BY_MESH_DATA] = 2;
    slow.device.host = 1.0;
    check_ok(by__layout_run(&time, &(by__layout_work){small, 4}, &job, &error), &error);
    assert_near(time.total, 4.5, 1e-9);
    assert_near(time.seconds[BY_LAYOUT_PRODUCTS], 4.5, 1e-9);
    check_ok(by__layout_run(&time, &(by__layout_work){large, 4}, &job, &error), &error);
    assert_near(time.total, 1.0 + 3.0 + 3.0 * 0.5, 1e-9);
    check_ok(by__layout_run(&time, &(by__layout_work){both, 3}, &job, &error), &error);
    assert_near(time.total, 2.5, 1e-9);
    assert_near(time.hidden[BY_LAYOUT_GRADIENTS], 0.6, 1e-9);
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
    check_ok(by__layout_pipeline_run(&out, p, stages, &job, NULL, &error), &error);
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

static by_layout_plan plan_with(const char *const *settings, const by_layout_options *options)
{
    by_error error = {0};
    by_layout_plan plan;
    by_config *config = config_of(common, settings);
    check_ok(by_layout_plan_make(&plan, config, options, &error), &error);
    by_config_close(&config);
    return plan;
}

static by_layout_plan plan_of(const char *const *settings, int ranks, const by_cluster *of)
{
    const by_layout_options options = {.ranks = ranks, .cluster = of};
    return plan_with(settings, &options);
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

/* Where only operations count: 6 for each weight of a product and token, forward and backward; the
 * products of the head are at the ends. */
static void test_operations(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.tied=false", NULL};
    by_cluster c = cluster;
    c.device.bandwidth = 1e30;
    by_layout_plan p = plan_of(settings, 1, &c);
    const double tokens = 16.0 * 32.0;
    const double blocks = 4.0 * 12.0 * 64.0 * 64.0;
    const double head = 64.0 * 67.0;
    assert_near(p.terms[BY_LAYOUT_PRODUCTS].seconds, 6.0 * blocks * tokens / 1e12, 0.02);
    double ends = p.terms[BY_LAYOUT_ENDS].seconds / (6.0 * head * tokens / 1e12);
    if (ends < 1.0 || ends > 1.6) {
        fail_msg("the ends take %.3g times the products of the head", ends);
    }
    by_layout_plan_free(&p);
}

/* Buckets that cut tensors into parts exchange as much as one bucket of all. */
static void test_parts(void **state)
{
    BY_UNUSED(state);
    static const char *const buckets[] = {"parallel.bucket_mib=0.02", "parallel.bucket_mib=1024"};
    double seconds[2];
    by_cluster c = cluster;
    for (int i = 0; i < c.level_count; i++) {
        c.levels[i].latency = 0.0;
    }
    for (size_t i = 0; i < 2; i++) {
        const char *settings[] = {"parallel.shard=4", "parallel.zero=2", "parallel.overlap=false",
                                  buckets[i], NULL};
        by_layout_plan p = plan_of(settings, 4, &c);
        seconds[i] = p.terms[BY_LAYOUT_GRADIENTS].seconds;
        by_layout_plan_free(&p);
    }
    assert_true(seconds[1] > 0.0);
    assert_near(seconds[0], seconds[1], 1e-9);
}

/* Each micro-batch gathers what three of four ranks have of the weights, twice: forward and
 * backward. */
static void test_gathers(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"parallel.shard=4", "parallel.zero=3", NULL};
    by_cluster c = cluster;
    c.device.compute_slowdown = 0.0;
    c.device.exchange_slowdown = 0.0;
    by_layout_plan p = plan_of(settings, 4, &c);
    const by_layout_term *t = &p.terms[BY_LAYOUT_WEIGHTS];
    const double matrices = 4.0 * 12.0 * 64.0 * 64.0;
    double times =
        (t->seconds + t->hidden) / (2.0 * (double)p.micro_batches * 0.75 * 4.0 * matrices / 1e9);
    if (times < 1.0 || times > 1.3) {
        fail_msg("gathers take %.3g times those of the matrices of blocks", times);
    }
    by_layout_plan_free(&p);
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
        assert_int_equal(p.planned[i].memory.process, 0);
        assert_int_equal(p.planned[i].memory.total, m->total - m->process);
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

/* ---- traces ---- */

/* Spans of a rank's queue follow each other and end with the step; returns their seconds. */
static double check_queue(const by_layout_plan *p, int rank, bool exchange)
{
    double before = 0.0;
    double sum = 0.0;
    for (size_t i = 0; i < p->span_count; i++) {
        const by_layout_span *s = &p->spans[i];
        if (s->rank == rank && s->exchange == exchange) {
            if (s->begin < before - 1e-12 || s->end <= s->begin) {
                fail_msg("span %zu of rank %d: %.9g to %.9g, after %.9g", i, rank, s->begin, s->end,
                         before);
            }
            before = s->end;
            sum += s->end - s->begin;
        }
    }
    assert_true(before <= p->seconds * (1.0 + 1e-9));
    return sum;
}

static void test_trace(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"parallel.tensor=2", "parallel.shard=2",
                                           "parallel.zero=3", NULL};
    const by_layout_options options = {.ranks = 4, .cluster = &cluster, .trace = true};
    by_layout_plan p = plan_with(settings, &options);
    double waited = 0.0;
    double hidden = 0.0;
    double end = 0.0;
    for (int part = BY_LAYOUT_TENSOR; part <= BY_LAYOUT_PIPELINE; part++) {
        waited += p.terms[part].seconds;
        hidden += p.terms[part].hidden;
    }
    for (size_t i = 0; i < p.span_count; i++) {
        end = p.spans[i].end > end ? p.spans[i].end : end;
    }
    assert_near(check_queue(&p, 0, false), p.seconds - waited, 1e-9);
    assert_near(check_queue(&p, 0, true), waited + hidden, 1e-9);
    assert_near(end, p.seconds, 1e-9);
    by_layout_plan_free(&p);
}

static void test_pipeline_trace(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"parallel.pipeline=2", "parallel.tensor=2", NULL};
    const by_layout_options options = {.ranks = 4, .cluster = &cluster, .trace = true};
    by_layout_plan p = plan_with(settings, &options);
    size_t passes[2][2] = {{0}};
    for (int rank = 0; rank < 4; rank += 2) {
        (void)check_queue(&p, rank, false);
        assert_true(check_queue(&p, rank, true) > 0.0);
    }
    for (size_t i = 0; i < p.span_count; i++) {
        const by_layout_span *s = &p.spans[i];
        assert_true(s->rank == 0 || s->rank == 2);
        if (s->pass >= 0) {
            passes[s->rank / 2][s->pass]++;
        }
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(passes[i / 2][i % 2], p.micro_batches);
    }
    by_error error = {0};
    check_ok(by_layout_write_trace(&p, "layout_trace.json", &error), &error);
    char *text;
    size_t length;
    check_ok(by__file_read(&text, &length, "layout_trace.json", (size_t)1 << 24, &error), &error);
    json_t *root = by__json_read(text, 0, NULL);
    const json_t *events = json_object_get(root, "traceEvents");
    assert_int_equal(json_array_size(events), p.span_count + 3 * p.planned_count);
    json_decref(root);
    free(text);
    (void)remove("layout_trace.json");
    by_layout_plan_free(&p);
}

/* ---- corrections ---- */

static double factor_at(const by__layout_step_key *key, double planned, size_t runs)
{
    const by__layout_correction c = by__layout_correct("layout_steps/steps.json", key, planned);
    assert_int_equal(c.runs, runs);
    assert_true(runs == 0 || c.error > 0.0);
    return c.factor;
}

/* Measured steps correct plans of their kind: their own exactly, others by powers between them. */
static void test_corrections(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    const by_machine machine = {.device = "cpu", .cpu = "a", .key = "b", .isa = "c", .threads = 2};
    const by_machine other = {.device = "cpu", .cpu = "z", .key = "b", .isa = "c", .threads = 2};
    const by__layout_step_key key = {&machine, "gpt2", "f32", 2, "data 2"};
    const by__layout_step_key shard = {&machine, "gpt2", "f32", 2, "shard 2"};
    const by__layout_step_key keys[] = {{&other, "gpt2", "f32", 2, "data 2"},
                                        {&machine, "llama", "f32", 2, "data 2"},
                                        {&machine, "gpt2", "bf16", 2, "data 2"},
                                        {&machine, "gpt2", "f32", 1, "data 2"}};
    static const char path[] = "layout_steps/steps.json";
    (void)remove(path);
    assert_near(factor_at(&key, 0.1, 0), 1.0, 0.0);
    check_ok(by__layout_learn(path, &key, 0.01, 0.02, &error), &error);
    assert_near(factor_at(&key, 0.01, 1), 2.0, 1e-6);
    assert_near(factor_at(&key, 5.0, 1), 2.0, 1e-6);
    check_ok(by__layout_learn(path, &key, 1.0, 8.0, &error), &error);
    assert_near(factor_at(&key, 0.01, 1), 2.0, 1e-6);
    assert_near(factor_at(&key, 0.1, 2), 4.0, 1e-6);
    check_ok(by__layout_learn(path, &key, 0.01, 0.03, &error), &error); /* in its place */
    assert_near(factor_at(&key, 0.001, 1), 3.0, 1e-6);
    assert_near(factor_at(&shard, 0.001, 1), 3.0, 1e-6); /* there is no other */
    check_ok(by__layout_learn(path, &shard, 0.01, 0.05, &error), &error);
    assert_near(factor_at(&shard, 0.001, 1), 5.0, 1e-6);
    assert_near(factor_at(&key, 0.01, 1), 3.0, 1e-6);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(keys); i++) {
        assert_near(factor_at(&keys[i], 0.1, 0), 1.0, 0.0);
    }
    check_ok(by__file_write(path, "{", 1, &error), &error);
    assert_near(factor_at(&key, 0.1, 0), 1.0, 0.0);
    (void)remove(path);
    (void)rmdir("layout_steps");
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

/* Parts are as certain as the least certain figure that they depend on. */
static void test_origins(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"parallel.tensor=2", NULL};
    by_cluster c = cluster; /* all is measured */
    c.levels[0].width = 2;
    c.levels[1] = (by_cluster_level){
        .width = 2, .bandwidth = 1e9, .latency = 1e-6, .origin = BY_ORIGIN_DATASHEET};
    c.level_count = 2;
    c.device.guessed = BY_FIGURE_ATTENTION_SHARE | BY_FIGURE_BF16 | BY_FIGURE_LAUNCH;
    by_layout_plan p = plan_of(settings, 4, &c);
    assert_int_equal(p.terms[BY_LAYOUT_PRODUCTS].origin, BY_ORIGIN_MEASURED);
    assert_int_equal(p.terms[BY_LAYOUT_ATTENTION].origin, BY_ORIGIN_GUESS);
    assert_int_equal(p.terms[BY_LAYOUT_UPDATE].origin, BY_ORIGIN_MEASURED);
    assert_int_equal(p.terms[BY_LAYOUT_TENSOR].origin, BY_ORIGIN_MEASURED);
    assert_int_equal(p.terms[BY_LAYOUT_GRADIENTS].origin, BY_ORIGIN_DATASHEET);
    by_layout_plan_free(&p);
    c.device.guessed = BY_FIGURE_PRODUCT_SHARE | BY_FIGURE_EXCHANGE_SLOWDOWN | BY_FIGURE_STEP;
    c.device.step = 1e-3;
    p = plan_of(settings, 4, &c);
    assert_int_equal(p.terms[BY_LAYOUT_PRODUCTS].origin, BY_ORIGIN_GUESS);
    assert_int_equal(p.terms[BY_LAYOUT_ENDS].origin, BY_ORIGIN_GUESS);
    assert_int_equal(p.terms[BY_LAYOUT_ATTENTION].origin, BY_ORIGIN_MEASURED);
    assert_int_equal(p.terms[BY_LAYOUT_OTHER].origin, BY_ORIGIN_MEASURED);
    assert_int_equal(p.terms[BY_LAYOUT_UPDATE].origin, BY_ORIGIN_GUESS);
    assert_true(p.terms[BY_LAYOUT_GRADIENTS].hidden > 0.0);
    assert_int_equal(p.terms[BY_LAYOUT_GRADIENTS].origin, BY_ORIGIN_GUESS);
    by_layout_plan_free(&p);
}

/* Ranks of this machine share its free memory, and memory.budget counts on any. */
static void test_limit(void **state)
{
    BY_UNUSED(state);
    static const char *const none[] = {NULL};
    static const char *const budget[] = {"memory.budget=1GiB", NULL};
    by_cluster large = cluster;
    double limits[2];
    for (int i = 0; i < 2; i++) {
        by_layout_plan p = plan_of(none, i == 0 ? 1 : 4, NULL);
        limits[i] = (double)p.limit;
        by_layout_plan_free(&p);
    }
    assert_near(4.0 * limits[1], limits[0], 0.4); /* what is free changes meanwhile */
    large.device.memory = 1e12;
    by_layout_plan p = plan_of(none, 2, &large);
    assert_int_equal(p.limit, (uint64_t)1e12);
    by_layout_plan_free(&p);
    p = plan_of(budget, 2, &large);
    assert_true(p.limit < (uint64_t)1 << 30 && p.limit > (uint64_t)1 << 28);
    by_layout_plan_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exposed),        cmocka_unit_test(test_hidden),
        cmocka_unit_test(test_partly_hidden),  cmocka_unit_test(test_node_seconds),
        cmocka_unit_test(test_host),           cmocka_unit_test(test_bubbles),
        cmocka_unit_test(test_terms),          cmocka_unit_test(test_parts),
        cmocka_unit_test(test_memory),         cmocka_unit_test(test_operations),
        cmocka_unit_test(test_gathers),        cmocka_unit_test(test_scale),
        cmocka_unit_test(test_too_many),       cmocka_unit_test(test_trace),
        cmocka_unit_test(test_pipeline_trace), cmocka_unit_test(test_corrections),
        cmocka_unit_test(test_limit),          cmocka_unit_test(test_origins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
