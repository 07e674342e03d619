/* What would make a plan fit: each change that is listed does, by the plan that it gives, the
 * fastest first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runner.h"
#include "sanitizer.h"
#include "trainer/state/trainer.h"

#define MIB ((uint64_t)1 << 20)

static const char *const common[] = {"model.layers=8",         "model.heads=4",
                                     "model.width=256",        "model.vocab=2000",
                                     "model.context=512",      "train.batch=8",
                                     "train.threads=1",        "offload.buffer_mib=1",
                                     "checkpoint.async=false", NULL};

static by_memory_report plan_of(by_config *config)
{
    by_error error = {0};
    by_trainer *t;
    check_ok(by_trainer_open(&t, config, NULL, &error), &error);
    by_memory_report report = *by_trainer_memory(t);
    by_trainer_close(&t);
    return report;
}

/* The config with the settings of a change. */
static by_config *apply(const char *const *settings, const by_plan_change *change)
{
    by_error error = {0};
    char text[sizeof change->settings];
    by_config *config = config_of(common, settings);
    memcpy(text, change->settings, sizeof text);
    for (char *next = text; next != NULL;) {
        char *setting = next;
        next = strchr(next, ' ');
        if (next != NULL) {
            *next++ = '\0';
        }
        check_ok(by_config_set(config, setting, &error), &error);
    }
    check_ok(by_config_resolve(config, &error), &error);
    return config;
}

static size_t list(by_plan_change *changes, const char *const *settings, uint64_t limit)
{
    by_error error = {0};
    size_t count;
    by_config *config = config_of(common, settings);
    check_ok(by_plan_changes(changes, &count, config, NULL, limit, &error), &error);
    by_config_close(&config);
    for (size_t i = 0; i < count; i++) {
        assert_true(changes[i].bytes <= limit && changes[i].seconds > 0.0);
        assert_true(i == 0 || changes[i].ranks > 0 || changes[i].seconds >= changes[i - 1].seconds);
        if (changes[i].ranks == 0) {
            by_config *changed = apply(settings, &changes[i]);
            by_memory_report plan = plan_of(changed);
            /* But for the process, which has another size since; a budget is used by what fits. */
            bool chooses = strstr(changes[i].settings, "memory.budget") != NULL;
            if (plan.total - plan.process > (chooses ? limit : changes[i].bytes)) {
                fail_msg("%s: %llu bytes, %llu were planned", changes[i].settings,
                         (unsigned long long)(plan.total - plan.process),
                         (unsigned long long)changes[i].bytes);
            }
            by_config_close(&changed);
        }
    }
    return count;
}

static bool has(const by_plan_change *changes, size_t count, const char *text)
{
    for (size_t i = 0; i < count; i++) {
        if (strstr(changes[i].settings, text) != NULL) {
            return true;
        }
    }
    return false;
}

static void test_single(void **state)
{
    BY_UNUSED(state);
    if (BY_TESTS_KEEPS_FREED) {
        skip();
    }
    by_plan_change changes[BY_PLAN_CHANGES];
    static const char *const none[] = {NULL};
    static const char *const bf16[] = {"precision.compute=bf16", NULL};
    by_config *config = config_of(common, none);
    by_memory_report plan = plan_of(config);
    by_config_close(&config);
    /* A little is missing: each of these helps alone. */
    size_t count = list(changes, none, plan.total - 8 * MIB);
    assert_true(has(changes, count, "memory.budget="));
    assert_true(has(changes, count, "train.micro_batch=4"));
    assert_true(has(changes, count, "precision.compute=bf16"));
    assert_true(has(changes, count, "optimizer.kind=adafactor"));
    assert_true(has(changes, count, "offload.optimizer=disk"));
    assert_false(has(changes, count, "memory.recompute"));
    count = list(changes, bf16, plan.total / 2);
    assert_false(has(changes, count, "precision"));
}

static void test_together(void **state)
{
    BY_UNUSED(state);
    if (BY_TESTS_KEEPS_FREED) {
        skip();
    }
    by_plan_change changes[BY_PLAN_CHANGES];
    static const char *const none[] = {NULL};
    static const char *const least[] = {"memory.recompute=full", "optimizer.kind=adafactor", NULL};
    by_config *config = config_of(common, least);
    /* No single one does it. */
    uint64_t limit = plan_of(config).total + 4 * MIB;
    by_config_close(&config);
    size_t count = list(changes, none, limit);
    assert_true(count > 0);
    assert_non_null(strchr(changes[0].settings, ' '));
    assert_int_equal(list(changes, none, 1000), 0);
}

/* Micro-batches that ranks of an axis of experts cannot divide are no way out, and do not hide
 * those that are. */
static by_status plan_experts(by_comm *comm, void *user, by_error *error)
{
    static const char *const settings[] = {
        "model.kind=mixtral",   "model.experts=4",   "model.layers=2",         "train.batch=12",
        "train.micro_batch=12", "parallel.expert=2", "precision.compute=bf16", NULL};
    by_plan_change changes[BY_PLAN_CHANGES];
    const by_trainer_options options = {.comm = comm};
    size_t count;
    by_trainer *t;
    by_config *config = config_of(common, settings);
    bool *found = user;
    BY_TRY(by_trainer_open(&t, config, &options, error));
    uint64_t limit = by_trainer_memory(t)->total - MIB;
    by_trainer_close(&t);
    BY_TRY(by_plan_changes(changes, &count, config, &options, limit, error));
    if (by_comm_rank(comm) == 0) {
        *found = has(changes, count, "train.micro_batch=6");
    }
    by_config_close(&config);
    return BY_OK;
}

static void test_experts(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    bool found = false;
    if (BY_TESTS_KEEPS_FREED) {
        skip();
    }
    check_ok(by_comm_run_threads(2, NULL, plan_experts, &found, &error), &error);
    assert_true(found);
}

static by_status count_layers(void *user, by_model *model, by_graph *graph,
                              const by_model_config *config, const by_model_request *request,
                              by_error *error)
{
    *(int64_t *)user += config->layers;
    return by_model_build(model, graph, config, request, error);
}

/* Whether a model of many layers fits is known without planning all of them for each change. */
static void test_many_layers(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.layers=600", "model.width=32", "model.context=16",
                                           NULL};
    by_error error = {0};
    by_plan_change changes[BY_PLAN_CHANGES];
    size_t count;
    int64_t layers = 0;
    by_config *config = config_of(common, settings);
    const by_trainer_options options = {.builder = count_layers, .user = &layers};
    check_ok(by_plan_changes(changes, &count, config, &options, 20 * MIB, &error), &error);
    assert_int_equal(count, 0);
    assert_true(layers > 0 && layers < 15 * 600);
    by_config_close(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_single), cmocka_unit_test(test_together),
        cmocka_unit_test(test_experts), cmocka_unit_test(test_many_layers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
