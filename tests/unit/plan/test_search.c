/* The search for a layout: what is put together from blocks against what is compiled whole, the
 * best against all, and that more of anything never makes it worse. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/sum_tree.h"
#include "plan/search/search.h"
#include "runner.h"
#include "sanitizer.h"
#include "trainer/state/reducer.h"

static const by_cluster cluster = {.device = {.f32_flops = 1e13,
                                              .bf16_flops = 2e13,
                                              .product_share = 0.7,
                                              .attention_share = 0.4,
                                              .bandwidth = 1e12,
                                              .launch = 1e-6,
                                              .compute_slowdown = 0.1,
                                              .exchange_slowdown = 0.1},
                                   .levels = {{.width = 4, .latency = 1e-6, .bandwidth = 1e11},
                                              {.width = 64, .latency = 5e-6, .bandwidth = 4e10}},
                                   .level_count = 2};

static const char *const common[] = {
    "model.kind=gpt2", "model.layers=8",     "model.heads=4",          "model.width=256",
    "model.vocab=512", "model.context=128",  "train.batch=64",         "train.threads=1",
    "train.steps=10",  "checkpoint.every=0", "precision.compute=bf16", NULL};

/* ---- blocks against the whole ---- */

typedef struct whole_case {
    by_search_choice choice;
    double time;   /* difference that is allowed */
    double memory; /* likewise */
    bool untied;   /* the head has weights of its own, */
    bool large;    /* or as many as three blocks */
    bool buckets;  /* many small ones of gradients, whose latencies add up */
} whole_case;

#define SIZES(p, d, s, q, t)                                                                       \
    {                                                                                              \
        [BY_MESH_PIPELINE] = (p), [BY_MESH_DATA] = (d), [BY_MESH_SHARD] = (s),                     \
        [BY_MESH_EXPERT] = 1, [BY_MESH_SEQUENCE] = (q), [BY_MESH_TENSOR] = (t)                     \
    }

static const whole_case whole[] = {
    {.choice = {.sizes = SIZES(1, 1, 1, 1, 1), .zero = 1, .chunks = 1, .micro_batch = 8},
     .time = 0.01,
     .memory = 0.005},
    {.choice = {.sizes = SIZES(1, 8, 1, 1, 1), .zero = 1, .chunks = 1, .micro_batch = 4},
     .time = 0.03,
     .memory = 0.005},
    {.choice = {.sizes = SIZES(1, 1, 8, 1, 1), .zero = 1, .chunks = 1, .micro_batch = 4},
     .time = 0.02,
     .memory = 0.01},
    {.choice = {.sizes = SIZES(1, 1, 8, 1, 1), .zero = 2, .chunks = 1, .micro_batch = 4},
     .time = 0.08,
     .memory = 0.05},
    {.choice = {.sizes = SIZES(1, 1, 8, 1, 1), .zero = 3, .chunks = 1, .micro_batch = 4},
     .time = 0.05,
     .memory = 0.06},
    {.choice = {.sizes = SIZES(1, 1, 8, 1, 1), .zero = 3, .chunks = 1, .micro_batch = 1},
     .time = 0.05,
     .memory = 0.03,
     .large = true},
    {.choice = {.sizes = SIZES(1, 2, 2, 1, 2),
                .zero = 1,
                .chunks = 1,
                .micro_batch = 4,
                .sequence_parallel = true},
     .time = 0.09,
     .memory = 0.01},
    {.choice = {.sizes = SIZES(1, 2, 2, 1, 2), .zero = 1, .chunks = 1, .micro_batch = 4},
     .time = 0.09,
     .memory = 0.01},
    {.choice = {.sizes = SIZES(1, 2, 1, 4, 1), .zero = 1, .chunks = 1, .micro_batch = 4},
     .time = 0.4,
     .memory = 0.02},
    {.choice = {.sizes = SIZES(4, 2, 1, 1, 1), .zero = 1, .chunks = 1, .micro_batch = 2},
     .time = 0.03,
     .memory = 0.04},
    {.choice = {.sizes = SIZES(2, 2, 1, 1, 2),
                .zero = 1,
                .chunks = 2,
                .micro_batch = 2,
                .sequence_parallel = true},
     .time = 0.03,
     .memory = 0.08},
    {.choice = {.sizes = SIZES(1, 8, 1, 1, 1),
                .zero = 1,
                .chunks = 1,
                .micro_batch = 4,
                .recompute = BY_SEARCH_RECOMPUTE_BLOCK},
     .time = 0.02,
     .memory = 0.01},
    {.choice = {.sizes = SIZES(4, 2, 1, 1, 1), .zero = 1, .chunks = 2, .micro_batch = 16},
     .time = 0.08,
     .memory = 0.1},
    {.choice = {.sizes = SIZES(1, 1, 1, 1, 1), .zero = 1, .chunks = 1, .micro_batch = 8},
     .time = 0.01,
     .memory = 0.005,
     .untied = true},
    {.choice = {.sizes = SIZES(1, 1, 8, 1, 1), .zero = 1, .chunks = 1, .micro_batch = 8},
     .time = 0.04,
     .memory = 0.01,
     .buckets = true},
    {.choice = {.sizes = SIZES(2, 4, 1, 1, 1), .zero = 1, .chunks = 2, .micro_batch = 1},
     .time = 0.1,
     .memory = 0.2,
     .large = true},
};

static void compose(by_search_choice *choice, const by_config *config)
{
    by_error error = {0};
    by__search_profile profile;
    by__search_block block;
    by__search_model model;
    by__search_stages stages;
    const by__search_key key = {.tensor = choice->sizes[BY_MESH_TENSOR],
                                .expert = 1,
                                .recompute = choice->recompute,
                                .sequence_parallel = choice->sequence_parallel};
    int64_t replicas = choice->sizes[BY_MESH_DATA] * choice->sizes[BY_MESH_SHARD];
    choice->micro_batches = config->train.batch / choice->micro_batch / replicas;
    choice->devices = 1;
    for (int axis = 0; axis < BY_MESH_AXES; axis++) {
        choice->devices *= choice->sizes[axis];
    }
    check_ok(by__search_profile_make(&profile, config, &key, &cluster, &error), &error);
    by__search_profile_evaluate(&block, &profile, &cluster, choice->micro_batch,
                                choice->sizes[BY_MESH_SEQUENCE]);
    by__search_describe(&model, config, &cluster);
    model.whole_sets = (double)by__sum_tree_sets(0, choice->micro_batches,
                                                 config->train.batch / choice->micro_batch);
    model.divided_sets =
        (double)by__trainer_reducer_sets(config->train.batch / choice->micro_batch, (int)replicas);
    by__search_rank_stages(&stages, &model, &profile, &block, choice->sizes[BY_MESH_PIPELINE],
                           choice->chunks);
    by__search_memory(choice, &model, &profile, &block, &stages);
    by__search_cost(choice, &model, &profile, &block, &stages);
    by__search_profile_free(&profile);
}

static void test_whole(void **state)
{
    BY_UNUSED(state);
    static const char *const none[] = {NULL};
    static const char *const untied[] = {"model.tied=false", NULL};
    static const char *const large[] = {"model.vocab=8192", NULL};
    static const char *const buckets[] = {"parallel.bucket_mib=0.0625", "parallel.overlap=false",
                                          NULL};
    for (size_t i = 0; i < (BY_TESTS_SANITIZED ? 3 : BY_ARRAY_LENGTH(whole)); i++) {
        by_error error = {0};
        by_config *config = config_of(common, whole[i].buckets  ? buckets
                                              : whole[i].large  ? large
                                              : whole[i].untied ? untied
                                                                : none);
        by_config *chosen;
        by_layout_plan plan;
        by_search_choice choice = whole[i].choice;
        compose(&choice, config);
        const by_layout_options options = {.ranks = (int)choice.devices, .cluster = &cluster};
        check_ok(by_search_config(&chosen, config, &choice, &error), &error);
        check_ok(by_layout_plan_make(&plan, chosen, &options, &error), &error);
        double time = choice.seconds / plan.seconds - 1.0;
        double memory = choice.memory / (double)plan.memory - 1.0;
        if (fabs(time) > whole[i].time || fabs(memory) > whole[i].memory) {
            fail_msg("case %zu: %.6g s against %.6g (%+.1f %%), %.6g bytes against %.6g (%+.1f %%)",
                     i, choice.seconds, plan.seconds, 100.0 * time, choice.memory,
                     (double)plan.memory, 100.0 * memory);
        }
        by_layout_plan_free(&plan);
        by_config_close(&chosen);
        by_config_close(&config);
    }
}

/* ---- the search ---- */

static by_search_result search(const by_search_options *options)
{
    static const char *const small[] = {"model.layers=4", "train.batch=16", NULL};
    by_error error = {0};
    by_search_result result;
    by_config *config = config_of(common, small);
    check_ok(by_layout_search(&result, config, options, &error), &error);
    by_config_close(&config);
    return result;
}

/* Also of those that take up to half more time, which a search may leave out beyond that. */
static void check_pareto(const by_search_result *some, const by_search_result *all)
{
    for (size_t i = 0; i < all->pareto_count; i++) {
        const by_search_choice *c = &all->pareto[i];
        bool found = c->seconds > 1.5 * all->best.seconds;
        for (size_t k = 0; k < some->pareto_count; k++) {
            found = found ||
                    (some->pareto[k].seconds <= c->seconds && some->pareto[k].memory <= c->memory);
        }
        if (!found) {
            fail_msg("%.9g s in %.9g bytes, which takes less memory, is left out", c->seconds,
                     c->memory);
        }
    }
}

/* The same best as among all layouts. */
static void test_exhaustive(void **state)
{
    BY_UNUSED(state);
    static const double memories[] = {0.0, 30e6};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(memories); i++) {
        for (int goal = 0; goal <= (int)i; goal++) {
            by_search_options options = {.cluster = &cluster,
                                         .devices = 8,
                                         .memory = memories[i],
                                         .goal = (by_search_goal)goal};
            by_search_result some = search(&options);
            options.exhaustive = true;
            by_search_result all = search(&options);
            assert_true(all.considered >= some.considered);
            assert_int_equal(some.fits, all.fits);
            assert_true(some.best.seconds <= all.best.seconds || options.goal == BY_SEARCH_MONEY ||
                        !all.fits);
            double a = some.best.seconds * (goal == 1 ? (double)some.best.devices : 1.0);
            double b = all.best.seconds * (goal == 1 ? (double)all.best.devices : 1.0);
            if (options.goal == BY_SEARCH_TIME) {
                check_pareto(&some, &all);
            }
            if (all.fits && fabs(a - b) > 1e-12 * b) {
                fail_msg("memory %g: %.9g, and of all %.9g", memories[i], a, b);
            }
        }
    }
}

static double best_seconds(const by_cluster *of, int64_t devices, double memory)
{
    const by_search_options options = {.cluster = of, .devices = devices, .memory = memory};
    by_search_result r = search(&options);
    return r.fits ? r.best.seconds : (double)INFINITY;
}

static void test_monotone(void **state)
{
    BY_UNUSED(state);
    static const int64_t devices[] = {1, 8, 31};
    double before = INFINITY;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(devices); i++) {
        double now = best_seconds(&cluster, devices[i], 60e6);
        assert_true(now <= before);
        before = now;
    }
    before = INFINITY;
    for (int i = 0; i < 2; i++) {
        double memory = ldexp(35e6, 2 * i);
        double now = best_seconds(&cluster, 16, memory);
        assert_true(now <= before);
        before = now;
    }
    before = INFINITY;
    by_cluster c = cluster;
    for (int k = 0; k < 3; k++) {
        double now = best_seconds(&c, 16, 60e6);
        assert_true(now <= before);
        before = now;
        c.levels[k % 2].bandwidth *= 3.0;
        c.device.bandwidth *= k == 1 ? 2.0 : 1.0;
    }
}

/* A cluster, devices and memory that are drawn, and ones of which there is more of some. */
static void draw_more(uint64_t seed, by_cluster of[2], by_search_options options[2])
{
    double random[12];
    for (size_t i = 0; i < BY_ARRAY_LENGTH(random); i++) {
        random[i] = 0.5 * (random_unit(seed, 0, i) + 1.0);
    }
    of[0] = cluster;
    of[0].device.bandwidth = 1e11 * pow(100.0, random[0]);
    of[0].device.f32_flops = 1e12 * pow(100.0, random[1]);
    of[0].device.bf16_flops = of[0].device.f32_flops;
    of[0].device.compute_slowdown = random[2];
    of[0].device.exchange_slowdown = random[3];
    of[0].levels[0].bandwidth = 1e9 * pow(1000.0, random[4]);
    of[0].levels[1].bandwidth = 1e8 * pow(1000.0, random[5]);
    options[0] = (by_search_options){.cluster = &of[0],
                                     .devices = 1 + (int64_t)(40.0 * random[6]),
                                     .memory = 4e5 * pow(10.0, random[7]),
                                     .goal = random[8] < 0.7 ? BY_SEARCH_TIME : BY_SEARCH_MONEY};
    of[1] = of[0];
    options[1] = options[0];
    options[1].cluster = &of[1];
    double *const figures[] = {&of[1].device.bandwidth, &of[1].levels[0].bandwidth,
                               &of[1].levels[1].bandwidth, &options[1].memory};
    int what = (int)(5.0 * random[9]);
    if (what < 4) {
        *figures[what] *= 1.0 + 4.0 * random[10];
    } else {
        options[1].devices += 1 + (int64_t)(20.0 * random[10]);
    }
}

static void test_more_of_anything(void **state)
{
    BY_UNUSED(state);
    static const char *const tiny[] = {"model.layers=3",   "model.heads=2",  "model.width=32",
                                       "model.context=32", "train.batch=12", NULL};
    by_error error = {0};
    by_config *config = config_of(common, tiny);
    int fitted = 0;
    for (uint64_t seed = 0; seed < (BY_TESTS_SANITIZED ? 2 : 5); seed++) {
        by_cluster of[2];
        by_search_options options[2];
        double goals[2];
        draw_more(seed, of, options);
        for (int i = 0; i < 2; i++) {
            by_search_result r;
            check_ok(by_layout_search(&r, config, &options[i], &error), &error);
            double money = options[i].goal == BY_SEARCH_MONEY ? (double)r.best.devices : 1.0;
            goals[i] = r.fits ? money * r.best.seconds : (double)INFINITY;
            fitted += r.fits;
        }
        if (!(goals[1] <= goals[0])) {
            fail_msg("seed %d: %.12g became %.12g with more", (int)seed, goals[0], goals[1]);
        }
    }
    assert_true(fitted > 0);
    by_config_close(&config);
}

/* What is found can be planned, and its settings say what it is. */
static void test_settings(void **state)
{
    BY_UNUSED(state);
    static const char *const small[] = {"model.layers=4", "train.batch=16", NULL};
    by_error error = {0};
    by_layout_plan plan;
    by_config *chosen;
    by_config *config = config_of(common, small);
    const double memory = 30e6;
    const by_search_options options = {.cluster = &cluster, .devices = 8, .memory = memory};
    by_search_result r = search(&options);
    assert_true(r.fits);
    check_ok(by_search_config(&chosen, config, &r.best, &error), &error);
    assert_int_equal(chosen->train.micro_batch, r.best.micro_batch);
    assert_int_equal(chosen->parallel.shard, r.best.sizes[BY_MESH_SHARD]);
    const by_layout_options of = {.cluster = &cluster};
    check_ok(by_layout_plan_make(&plan, chosen, &of, &error), &error);
    assert_int_equal(plan.ranks, r.best.devices);
    by_layout_plan_free(&plan);
    by_config_close(&chosen);
    by_config_close(&config);
}

/* Ranks along `tensor` that hold whole sequences exchange less, and are the only ones that need not
 * divide the context. */
static void test_whole_sequences(void **state)
{
    BY_UNUSED(state);
    static const char *const contexts[] = {"model.context=128", "model.context=126"};
    by_error error = {0};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(contexts); i++) {
        const char *const one[] = {"model.layers=4", "train.batch=1", contexts[i], NULL};
        by_search_result r;
        double seconds[2];
        by_config *config = config_of(common, one);
        const by_search_options options = {.cluster = &cluster, .devices = 4};
        check_ok(by_layout_search(&r, config, &options, &error), &error);
        assert_int_equal(r.best.sizes[BY_MESH_TENSOR], 4);
        assert_false(r.best.sequence_parallel);
        for (int k = 0; k < 2 && i == 0; k++) {
            by_layout_plan plan;
            by_config *chosen;
            r.best.sequence_parallel = k == 1;
            const by_layout_options whole_plan = {.cluster = &cluster};
            check_ok(by_search_config(&chosen, config, &r.best, &error), &error);
            check_ok(by_layout_plan_make(&plan, chosen, &whole_plan, &error), &error);
            seconds[k] = plan.seconds;
            by_layout_plan_free(&plan);
            by_config_close(&chosen);
        }
        assert_true(i == 1 || seconds[0] < seconds[1]);
        by_config_close(&config);
    }
}

/* ---- this machine ---- */

/* The ranks of this machine share its cores and memory: one more is allowed, none has to be. */
static void test_here(void **state)
{
    BY_UNUSED(state);
    static const char *const small[] = {"model.layers=2", "model.width=64", "model.context=32",
                                        "train.batch=12", NULL};
    static const char *const little[] = {"model.layers=2", "memory.budget=1GiB", NULL};
    by_error error = {0};
    by_search_result r;
    by_machine machine;
    by_config *config = config_of(common, small);
    double before = INFINITY;
    check_ok(by_machine_describe(&machine, config->device, 1, &error), &error);
    for (int64_t ranks = 1; ranks <= 8; ranks += BY_TESTS_SANITIZED && ranks > 2 ? 5 : 1) {
        const by_search_options options = {.devices = ranks};
        check_ok(by_layout_search(&r, config, &options, &error), &error);
        assert_true(r.fits && r.best.devices <= ranks);
        if (!(r.best.seconds <= before)) {
            fail_msg("%d ranks: %.9g s, and fewer %.9g", (int)ranks, r.best.seconds, before);
        }
        before = r.best.seconds;
        for (size_t i = 0; i < r.pareto_count; i++) { /* what is free changes meanwhile */
            double all = r.pareto[i].limit * (double)r.pareto[i].devices;
            assert_true(all > 0.5 * machine.memory && all < 2.0 * machine.memory);
        }
    }
    by_config_close(&config);
    config = config_of(common, little);
    const by_search_options options = {.devices = 2};
    check_ok(by_layout_search(&r, config, &options, &error), &error);
    assert_true(r.fits && r.best.memory < r.best.limit && r.best.limit < 1073741824.0);
    by_config_close(&config);
}

static void test_too_many(void **state)
{
    BY_UNUSED(state);
    static const char *const none[] = {NULL};
    by_error error = {0};
    by_search_result r;
    by_config *config = config_of(common, none);
    by_search_options options = {.cluster = &cluster, .devices = 257};
    check_error(by_layout_search(&r, config, &options, &error), BY_ECONFIG, &error,
                "257 ranks are more than the 256 devices");
    options = (by_search_options){.devices = 5000};
    check_error(by_layout_search(&r, config, &options, &error), BY_EARG, &error,
                "5000 ranks on this machine");
    by_config_close(&config);
}

/* ---- refuted layouts ---- */

static bool is_listed(const by_search_result *r, const by_search_choice *c)
{
    bool found = false;
    for (size_t i = 0; i < r->pareto_count; i++) {
        const by_search_choice *p = &r->pareto[i];
        found = found || (memcmp(p->sizes, c->sizes, sizeof p->sizes) == 0 && p->zero == c->zero &&
                          p->chunks == c->chunks && p->recompute == c->recompute &&
                          p->micro_batch == c->micro_batch);
    }
    return found;
}

static void limit(by_search_result *r, double memory)
{
    r->best.limit = memory;
    for (size_t i = 0; i < r->pareto_count; i++) {
        r->pareto[i].limit = memory;
    }
}

/* What does not fit or is refused when it is compiled is dropped, and the next one is the best. */
static void test_refuted(void **state)
{
    BY_UNUSED(state);
    static const char *const small[] = {"model.layers=4", "train.batch=16", NULL};
    by_error error = {0};
    by_layout_plan plan = {0};
    by_config *config = config_of(common, small);
    by_search_options options = {.cluster = &cluster, .devices = 8, .memory = 60e6};
    by_search_result found = search(&options);
    assert_true(found.fits && found.pareto_count > 1);
    by_search_result r = found;
    r.best.sizes[BY_MESH_TENSOR] = 3; /* which does not divide the heads */
    r.pareto[0] = r.best;
    check_ok(by_search_plan(&plan, &r, config, &options, &error), &error);
    assert_int_equal(r.pareto_count, found.pareto_count - 1);
    assert_true(r.fits && !(r.best.seconds > found.pareto[1].seconds));
    by_layout_plan_free(&plan);
    r = found;
    limit(&r, 0.7 * found.best.memory);
    check_ok(by_search_plan(&plan, &r, config, &options, &error), &error);
    assert_true(r.fits && (double)plan.memory <= 0.7 * found.best.memory);
    assert_true(!is_listed(&r, &found.best) && is_listed(&r, &r.best));
    by_layout_plan_free(&plan);
    r = found;
    limit(&r, 1.0);
    check_ok(by_search_plan(&plan, &r, config, &options, &error), &error);
    assert_true(!r.fits && r.pareto_count == 0 && plan.ranks == 0);
    assert_true(r.best.memory > 1.0);
    r = found;
    options.deadline = 0.5 * found.best.seconds;
    check_ok(by_search_plan(&plan, &r, config, &options, &error), &error);
    assert_true(!r.fits);
    by_config_close(&config);
}

int main(void)
{
    setenv("XDG_CACHE_HOME", "/nonexistent", 1); /* others may measure this machine meanwhile */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),    cmocka_unit_test(test_exhaustive),
        cmocka_unit_test(test_monotone), cmocka_unit_test(test_more_of_anything),
        cmocka_unit_test(test_settings), cmocka_unit_test(test_whole_sequences),
        cmocka_unit_test(test_here),     cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_refuted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
