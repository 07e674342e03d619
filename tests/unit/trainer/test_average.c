/* The moving average of the weights: its values by the equation, that it changes no bit of the
 * weights, and that ranks, formats and the disk change none of its own. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rank_job.h"
#include "runner.h"
#include "trainer/step/trainer_step.h"

#define STEPS    12
#define CAPACITY (1 << 16)

/* ---- one trainer ---- */

typedef struct averaged {
    by_config *config;
    by_trainer *trainer;
    by_random_batch *batch;
    int state; /* which one is the average */
} averaged;

static void open_averaged(averaged *a, const char *const *settings)
{
    by_error error = {0};
    *a = (averaged){.config = rank_job_config(settings), .state = -1};
    check_ok(by_trainer_open(&a->trainer, a->config, NULL, &error), &error);
    check_ok(by_trainer_allocate(a->trainer, &error), &error);
    check_ok(by_trainer_initialize(a->trainer, &error), &error);
    check_ok(by_random_batch_open(&a->batch, a->trainer, &error), &error);
    for (int i = 0; i < by_trainer_state_count(a->trainer); i++) {
        if (strcmp(by_trainer_state_name(a->trainer, i), "ema") == 0) {
            a->state = i;
        }
    }
}

static void close_averaged(averaged *a)
{
    by_random_batch_close(&a->batch);
    by_trainer_close(&a->trainer);
    by_config_close(&a->config);
}

static by_step_result step(averaged *a)
{
    by_error error = {0};
    by_step_result result;
    check_ok(by_trainer_step(a->trainer, by_random_batch_view(a->batch), &result, &error), &error);
    return result;
}

/* All values of the parameters that are trained (state -1) or of a state: of adapters, where there
 * are any. */
static size_t read_all(const averaged *a, int state, float *out)
{
    by_error error = {0};
    size_t total = 0;
    for (size_t i = 0; i < by_trainer_parameter_count(a->trainer); i++) {
        size_t count;
        by_tensor_view view = by_trainer_parameter(a->trainer, i);
        if (a->config->lora.rank > 0 && strstr(view.name, "lora_") == NULL) {
            continue;
        }
        assert_int_equal(by_tensor_size(&view, &count, NULL, NULL), BY_OK);
        assert_true(total + count <= CAPACITY);
        check_ok(by_trainer_read(a->trainer, state < 0 ? BY_TRAINER_PARAMETER : BY_TRAINER_STATE,
                                 state, i, out + total, &error),
                 &error);
        total += count;
    }
    return total;
}

/* torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn(decay), which takes the weights as
 * they are at its first update; with warm-up the decay of diffusers.EMAModel. */
static void check_values(const char *const *settings, double decay, bool warmup)
{
    static float weights[CAPACITY];
    static float average[CAPACITY];
    static double want[CAPACITY];
    averaged a;
    open_averaged(&a, settings);
    assert_true(a.state >= 0);
    for (int t = 0; t < STEPS; t++) {
        (void)step(&a);
        size_t count = read_all(&a, -1, weights);
        double bound = (1.0 + t) / (10.0 + t);
        double d = t == 0 ? 0.0 : warmup && bound < decay ? bound : decay;
        assert_true(read_all(&a, a.state, average) == count);
        for (size_t i = 0; i < count; i++) {
            want[i] = d * want[i] + (1.0 - d) * (double)weights[i];
            if (fabs((double)average[i] - want[i]) > 1e-6) {
                fail_msg("update %d, element %zu: %g, not %g", t, i, (double)average[i], want[i]);
            }
        }
    }
    close_averaged(&a);
}

static void test_values(void **state)
{
    BY_UNUSED(state);
    static const char *const plain[] = {"optimizer.ema=0.9", "optimizer.lr=0.02", NULL};
    static const char *const warmup[] = {"optimizer.ema=0.99", "optimizer.ema_warmup=true",
                                         "optimizer.lr=0.02", NULL};
    static const char *const tensors[] = {"optimizer.ema=0.9", "optimizer.kind=muon", NULL};
    static const char *const narrow[] = {"optimizer.ema=0.999", "optimizer.kind=adafactor",
                                         "precision.compute=bf16", "precision.weights=bf16", NULL};
    static const char *const adapters[] = {"optimizer.ema=0.9", "optimizer.lr=0.02", "lora.rank=3",
                                           NULL};
    check_values(plain, 0.9, false);
    check_values(adapters, 0.9, false);
    check_values(warmup, 0.99, true);
    check_values(tensors, 0.9, false);
    check_values(narrow, 0.999, false);
}

static const char *const formats[][4] = {
    {"precision.compute=f32", "precision.weights=f32", "offload.optimizer=none", "lora.rank=0"},
    {"precision.compute=bf16", "precision.weights=f32", "offload.optimizer=none", "lora.rank=0"},
    {"precision.compute=bf16", "precision.weights=bf16", "offload.optimizer=none", "lora.rank=0"},
    {"precision.compute=f32", "precision.weights=f32", "offload.optimizer=disk", "lora.rank=0"},
    {"precision.compute=bf16", "precision.weights=f32", "offload.optimizer=disk", "lora.rank=0"},
    {"precision.compute=bf16", "precision.weights=f32", "offload.optimizer=none", "lora.rank=3"},
    {"precision.compute=bf16", "precision.weights=f32", "offload.optimizer=disk", "lora.rank=3"},
};

/* In the place of the weights it is evaluated; then they are back, and training goes on as if
 * nothing had been there. */
static void test_takes_their_place(void **state)
{
    BY_UNUSED(state);
    static float weights[3][CAPACITY];
    static float average[2][CAPACITY];
    for (size_t f = 0; f < BY_ARRAY_LENGTH(formats); f++) {
        const char *const *row = formats[f];
        const char *const without[] = {
            row[0], row[1], row[2], row[3], "optimizer.lr=0.02", "offload.buffer_mib=0.05", NULL};
        const char *const with[] = {row[0],
                                    row[1],
                                    row[2],
                                    row[3],
                                    "optimizer.lr=0.02",
                                    "offload.buffer_mib=0.05",
                                    "optimizer.ema=0.9",
                                    "train.eval_ema=true",
                                    NULL};
        by_error error = {0};
        averaged plain;
        averaged a;
        double losses[3];
        open_averaged(&plain, without);
        open_averaged(&a, with);
        assert_true(plain.state < 0 && a.state >= 0);
        for (int t = 0; t < 4; t++) {
            (void)step(&plain);
            (void)step(&a);
        }
        by_array arrays[2];
        int32_t tokens[8] = {1, 2, 3, 4, 5, 6, 7, 8};
        const by_batch batch = by_batch_of_tokens(arrays, tokens, tokens, 1, 8);
        size_t count = read_all(&a, -1, weights[0]);
        assert_true(read_all(&a, a.state, average[0]) == count);
        check_ok(by_trainer_loss(a.trainer, &batch, &losses[0], &error), &error);
        check_ok(by__trainer_swap_average(a.trainer, false, &error), &error);
        assert_true(read_all(&a, -1, weights[1]) == count);
        check_ok(by_trainer_loss(a.trainer, &batch, &losses[1], &error), &error);
        check_ok(by__trainer_swap_average(a.trainer, true, &error), &error);
        assert_true(read_all(&a, -1, weights[2]) == count);
        assert_true(read_all(&a, a.state, average[1]) == count);
        check_ok(by_trainer_loss(a.trainer, &batch, &losses[2], &error), &error);
        assert_true(losses[0] == losses[2] && losses[0] != losses[1]);
        assert_memory_equal(weights[0], weights[2], count * sizeof(float));
        assert_memory_equal(average[0], average[1], count * sizeof(float));
        for (size_t i = 0; i < count; i++) {
            double close = strcmp(row[1], "precision.weights=f32") == 0 ? 0.0 : 0.004;
            double want = (double)average[0][i];
            assert_true(fabs((double)weights[1][i] - want) <= close * fabs(want));
        }
        for (int t = 0; t < 3; t++) {
            by_step_result one = step(&plain);
            by_step_result other = step(&a);
            assert_true(one.loss == other.loss && one.norm == other.norm);
        }
        close_averaged(&plain);
        close_averaged(&a);
    }
}

/* A step that is not applied does not count. */
static void test_skipped_step(void **state)
{
    BY_UNUSED(state);
    static float before[CAPACITY];
    static float after[CAPACITY];
    static const char *const settings[] = {"optimizer.ema=0.9", "guard.nonfinite=skip", NULL};
    averaged a;
    by_error error = {0};
    by_step_result result;
    open_averaged(&a, settings);
    (void)step(&a);
    (void)step(&a);
    size_t count = read_all(&a, a.state, before);
    check_ok(by__trainer_veto(a.trainer, &error), &error);
    by_status status = by_trainer_step(a.trainer, by_random_batch_view(a.batch), &result, &error);
    assert_true(status != BY_OK || result.skipped != BY_SKIP_NONE);
    assert_true(read_all(&a, a.state, after) == count);
    assert_memory_equal(before, after, count * sizeof(float));
    close_averaged(&a);
}

/* ---- ranks ---- */

#define EMA "optimizer.ema=0.9", "train.eval_ema=true"

static void test_ranks(void **state)
{
    BY_UNUSED(state);
    static const char *const precisions[][2] = {
        {"precision.compute=f32", "precision.weights=f32"},
        {"precision.compute=bf16", "precision.weights=f32"},
        {"precision.compute=bf16", "precision.weights=bf16"}};
    static const char *const stages[] = {"parallel.zero=1", "parallel.zero=2", "parallel.zero=3"};
    for (size_t p = 0; p < BY_ARRAY_LENGTH(precisions); p++) {
        const char *const alone[] = {EMA, precisions[p][0], precisions[p][1], NULL};
        rank_job_agree(alone, 2, alone);
        for (size_t k = 0; k < BY_ARRAY_LENGTH(stages); k++) {
            const char *const divided[] = {EMA,       precisions[p][0],   precisions[p][1],
                                           stages[k], "parallel.shard=2", NULL};
            rank_job_agree(alone, k == 1 ? 4 : 2, divided);
        }
    }
    const char *const adapters[] = {EMA, "lora.rank=3", "precision.compute=bf16", NULL};
    const char *const divided[] = {
        EMA, "lora.rank=3", "precision.compute=bf16", "parallel.zero=3", "parallel.shard=2", NULL};
    rank_job_agree(adapters, 2, adapters);
    rank_job_agree(adapters, 2, divided);
}

/* Optimizers whose units are tensors, and what is on disk. */
static void test_other_units(void **state)
{
    BY_UNUSED(state);
    static const char *const kinds[] = {"optimizer.kind=adamw8bit", "optimizer.kind=adafactor"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(kinds); i++) {
        const char *const alone[] = {EMA, kinds[i], "precision.compute=bf16", NULL};
        const char *const divided[] = {EMA, kinds[i], "precision.compute=bf16", "parallel.shard=2",
                                       NULL};
        const char *const disk[] = {EMA,
                                    kinds[i],
                                    "precision.compute=bf16",
                                    "offload.optimizer=disk",
                                    "offload.buffer_mib=0.05",
                                    "parallel.shard=2",
                                    NULL};
        rank_job_agree(alone, 2, divided);
        rank_job_agree(alone, 2, disk);
    }
}

/* ---- configs that mean nothing ---- */

static void test_refused(void **state)
{
    BY_UNUSED(state);
    static const struct {
        const char *settings[3];
        const char *text;
    } rows[] = {
        {{"train.eval_ema=true"}, "train.eval_ema needs a moving average"},
        {{"optimizer.ema=0.9", "sync.every=5", "train.steps=100"},
         "optimizer.ema needs common ones"},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        by_config *config;
        by_error error = {0};
        check_ok(by_config_default(&config, &error), &error);
        for (size_t k = 0; k < 3 && rows[i].settings[k] != NULL; k++) {
            check_ok(by_config_set(config, rows[i].settings[k], &error), &error);
        }
        check_error(by_config_resolve(config, &error), BY_ECONFIG, &error, rows[i].text);
        by_config_close(&config);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),       cmocka_unit_test(test_takes_their_place),
        cmocka_unit_test(test_skipped_step), cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_other_units),  cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
