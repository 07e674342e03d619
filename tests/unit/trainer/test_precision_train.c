/* Training in other precisions: weights in bf16 with stochastic rounding, and the scale of the
 * loss. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/passes.h"
#include "rank_job.h"
#include "runner.h"
#include "trainer/probes/probes.h"

#define NARROW "precision.compute=bf16", "precision.weights=bf16"

/* ---- weights in bf16 ---- */

/* Elements are rounded by what they are, so that ranks that share a batch, a state, gradients or
 * parameters end as one process does. */
static void test_any_ranks(void **state)
{
    BY_UNUSED(state);
    static const int two[] = {2, 4};
    static const int three[] = {3};
    static const char *const kinds[] = {"optimizer.kind=adamw", "optimizer.kind=lion",
                                        "optimizer.kind=sgd", "optimizer.kind=lamb",
                                        "optimizer.kind=adafactor"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(kinds); i++) {
        const char *const data[] = {NARROW, kinds[i], NULL};
        const char *const state_divided[] = {NARROW, kinds[i], "parallel.shard=2", NULL};
        rank_job_compare(three, 1, data);
        rank_job_compare(two, 2, state_divided);
    }
    static const char *const gradients[] = {NARROW, "parallel.shard=3", "parallel.zero=2", NULL};
    static const char *const parameters[] = {NARROW, "parallel.shard=3", "parallel.zero=3", NULL};
    static const char *const nearest[] = {NARROW, "parallel.shard=3", "parallel.zero=3",
                                          "precision.rounding=nearest", NULL};
    rank_job_compare(three, 1, gradients);
    rank_job_compare(three, 1, parameters);
    rank_job_compare(three, 1, nearest);
}

static bool same_weights(const rank_job *a, const rank_job *b)
{
    return memcmp(a->weights[0], b->weights[0], a->count[0] * sizeof(float)) == 0;
}

/* Seed and rounding show in the bits; what is planned for weights and states is less than half of
 * what f32 weights with copies need. */
static void test_format(void **state)
{
    BY_UNUSED(state);
    static const char *const narrow[] = {NARROW, NULL};
    static const char *const nearest[] = {NARROW, "precision.rounding=nearest", NULL};
    static const char *const seed[] = {NARROW, "seed=2", NULL};
    static const char *const mixed[] = {"precision.compute=bf16", NULL};
    rank_job *jobs[5] = {rank_job_open(0, narrow), rank_job_open(0, narrow),
                         rank_job_open(0, nearest), rank_job_open(0, seed),
                         rank_job_open(0, mixed)};
    assert_true(same_weights(jobs[0], jobs[1]));
    for (int i = 2; i < 5; i++) {
        assert_false(same_weights(jobs[0], jobs[i]));
    }
    const by_memory_report *a = &jobs[0]->memory[0];
    const by_memory_report *b = &jobs[4]->memory[0];
    assert_true(2 * (a->parameters + a->optimizer) < b->parameters + b->optimizer);
    assert_true(a->gradients == b->gradients);
    for (int i = 0; i < 5; i++) {
        rank_job_close(jobs[i]);
    }
}

/* ---- the scale of the loss ---- */

/* torch.amp.GradScaler("cpu", init_scale=65536, growth_interval=3) after steps of which some
 * overflow, with PyTorch 2.15. */
static void test_course(void **state)
{
    BY_UNUSED(state);
    static const struct {
        bool overflow;
        double scale;
    } steps[] = {{true, 32768},  {true, 16384},  {false, 16384}, {false, 16384},
                 {false, 32768}, {false, 32768}, {false, 32768}, {false, 65536},
                 {true, 32768},  {false, 32768}, {false, 32768}, {true, 16384},
                 {false, 16384}, {false, 16384}, {false, 32768}, {false, 32768}};
    static const char *const settings[] = {"precision.compute=fp16", "precision.growth_interval=3",
                                           NULL};
    by_config *config = rank_job_config(settings);
    by__trainer_loss_scale s = by__trainer_loss_scale_first(config);
    assert_true(s.scale == 65536.0);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(steps); i++) {
        by__trainer_loss_scale_follow(&s, config, steps[i].overflow);
        assert_true(s.scale == steps[i].scale);
    }
    for (int i = 0; i < 40; i++) {
        by__trainer_loss_scale_follow(&s, config, true);
    }
    assert_true(s.scale == 1.0 && !by__trainer_loss_scale_backs_off(&s, config));
    for (int i = 0; i < 300; i++) {
        by__trainer_loss_scale_follow(&s, config, false);
    }
    assert_true(s.scale == 16777216.0);
    by_config_close(&config);
}

/* Which configs have a scale, and which it is. */
static void test_defaults(void **state)
{
    BY_UNUSED(state);
    static const struct {
        const char *const settings[3];
        double scale;
        bool dynamic;
    } cases[] = {
        {{"precision.compute=f32"}, 1.0, false},
        {{"precision.compute=bf16"}, 1.0, false},
        {{"precision.compute=fp16"}, 65536.0, true},
        {{"precision.compute=fp16", "precision.loss_scaling=none"}, 1.0, false},
        {{"precision.loss_scaling=static", "precision.loss_scale=8"}, 8.0, false},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by_config *config = rank_job_config(cases[i].settings);
        assert_true(by__trainer_loss_scale_first(config).scale == cases[i].scale);
        assert_true(by__trainer_scales_loss_dynamically(config) == cases[i].dynamic);
        by_config_close(&config);
    }
}

static by_trainer *open_trainer(by_config **config, const char *const *settings)
{
    by_error error = {0};
    by_trainer *t;
    *config = rank_job_config(settings);
    check_ok(by_trainer_open(&t, *config, NULL, &error), &error);
    check_ok(by_trainer_allocate(t, &error), &error);
    check_ok(by_trainer_initialize(t, &error), &error);
    return t;
}

static by_step_result step_of(by_trainer *t)
{
    by_error error = {0};
    by_random_batch *batch;
    by_step_result result;
    check_ok(by_random_batch_open(&batch, t, &error), &error);
    check_ok(by_trainer_step(t, by_random_batch_view(batch), &result, &error), &error);
    by_random_batch_close(&batch);
    return result;
}

static uint64_t hash_of(const by_trainer *t)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < by_trainer_parameter_count(t); i++) {
        by_tensor_view view = by_trainer_parameter(t, i);
        size_t count;
        check_ok(by_tensor_size(&view, &count, NULL, NULL), NULL);
        hash = hash * 31 + by__hash64(view.data, count * by_dtype_size(view.dtype));
    }
    return hash;
}

/* Where nothing is rounded to fewer digits and nothing overflows, a power of two changes no bit of
 * weights, norm and loss: whoever divides the work. */
static void test_scale_is_taken_out(void **state)
{
    BY_UNUSED(state);
    static const char *const plain[] = {"optimizer.clip=0.3", NULL};
    static const char *const scaled[] = {"optimizer.clip=0.3", "precision.loss_scaling=static",
                                         "precision.loss_scale=1024", NULL};
    by_config *configs[2];
    by_trainer *t[2] = {open_trainer(&configs[0], plain), open_trainer(&configs[1], scaled)};
    for (uint64_t step = 0; step < 3; step++) {
        by_step_result a = step_of(t[0]);
        by_step_result b = step_of(t[1]);
        assert_true(a.loss == b.loss && a.norm == b.norm);
        assert_true(a.loss_scale == 1.0 && b.loss_scale == 1024.0);
        assert_true(hash_of(t[0]) == hash_of(t[1]));
    }
    for (int i = 0; i < 2; i++) {
        by_trainer_close(&t[i]);
        by_config_close(&configs[i]);
    }
    static const int two[] = {2};
    static const char *const divided[] = {"precision.compute=fp16", "parallel.shard=2",
                                          "parallel.zero=2", NULL};
    rank_job_compare(two, 1, divided);
}

/* A step that overflows changes nothing, is counted, and the next one has half the scale; also
 * where the guard wants to stop at steps that are not finite. */
static void test_overflow(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {
        "precision.compute=fp16",        "guard.nonfinite=stop",
        "precision.max_loss_scale=1e12", "precision.loss_scale=274877906944",
        "precision.growth_interval=2",   NULL};
    by_config *config;
    by_trainer *t = open_trainer(&config, settings);
    uint64_t before = hash_of(t);
    double scale = 274877906944.0;
    by_step_result result = step_of(t);
    int skips = 0;
    for (; result.skipped != BY_SKIP_NONE; result = step_of(t)) {
        assert_true(result.skipped == BY_SKIP_OVERFLOW && result.loss_scale == scale);
        assert_true(isfinite(result.loss) && hash_of(t) == before);
        scale /= 2.0;
        skips++;
    }
    assert_true(skips > 3 && result.loss_scale == scale && hash_of(t) != before);
    assert_true(by__trainer_guard_of(t)->skipped == skips && by__trainer_guard_of(t)->in_row == 0);
    assert_true(by_trainer_updates(t) == skips + 1);
    result = step_of(t);
    assert_true(result.loss_scale == scale);
    assert_true(by__trainer_guard_of(t)->loss_scale.scale == 2.0 * scale);
    by_trainer_close(&t);
    by_config_close(&config);
}

/* With the least scale an overflow is what the guard says. */
static void test_overflow_at_the_least_scale(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"precision.compute=fp16",
                                           "guard.nonfinite=stop",
                                           "precision.max_loss_scale=1e12",
                                           "precision.min_loss_scale=274877906944",
                                           "precision.loss_scale=274877906944",
                                           NULL};
    by_error error = {0};
    by_config *config;
    by_trainer *t = open_trainer(&config, settings);
    by_random_batch *batch;
    by_step_result result;
    check_ok(by_random_batch_open(&batch, t, &error), &error);
    by_status status = by_trainer_step(t, by_random_batch_view(batch), &result, &error);
    check_error(status, BY_EDIVERGED, &error, "step 1");
    by_random_batch_close(&batch);
    by_trainer_close(&t);
    by_config_close(&config);
}

/* ---- the documentation ---- */

#define DOCUMENT BY_SOURCE_DIR "/docs/precision.md"
#define TABLE    "| operation | operands that stay f32 |"

static void read_document(char **out)
{
    by_error error = {0};
    size_t size;
    check_ok(by__file_read(out, &size, DOCUMENT, 1 << 20, &error), &error);
    assert_non_null(strstr(*out, TABLE));
}

/* docs/precision.md ends with the table of the op table's rows. */
static void test_policy_is_documented(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    char *policy;
    char *text = NULL;
    read_document(&text);
    check_ok(by_precision_policy(&policy, &error), &error);
    if (strcmp(strstr(text, TABLE), policy) != 0) {
        fail_msg("docs/precision.md is not what the op table says; run test_precision_train "
                 "--write");
    }
    free(text);
    free(policy);
}

/* Writes that table. */
static int write_document(void)
{
    char *policy;
    char *text = NULL;
    read_document(&text);
    by_string whole = {0};
    by_status status = by_precision_policy(&policy, NULL);
    if (status == BY_OK) {
        by_string_add(&whole, text, (size_t)(strstr(text, TABLE) - text));
        by__string_append(&whole, policy);
        status = by__file_write(DOCUMENT, whole.data, strlen(whole.data), NULL);
        free(policy);
    }
    by_string_free(&whole);
    free(text);
    return status == BY_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--write") == 0) {
        return write_document();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_ranks),
        cmocka_unit_test(test_format),
        cmocka_unit_test(test_course),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_scale_is_taken_out),
        cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_overflow_at_the_least_scale),
        cmocka_unit_test(test_policy_is_documented),
    };
    return cmocka_run_group_tests_name("precision_train", tests, NULL, NULL);
}
