/* Training and generation on a device that runs everything late and in an odd order, on memory that
 * the host cannot touch: the bits of the CPU for every seed, with the next step submitted before
 * the last one was read; and a step that is not finite changes nothing on it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/infer.h"
#include "job/job.h"
#include "late_device.h"
#include "optim/optim.h"
#include "runner.h"
#include "sanitizer.h"
#include "temporary.h"
#include "trainer/state/trainer.h"

/* Orders of the device's work; each has the same threads, which sanitizers watch. */
#define SEEDS   (BY_TESTS_SANITIZED ? 2 : 8)
#define STEPS   6
#define CONTEXT 8
#define BATCH   3
#define VOCAB   31

typedef struct data {
    int32_t tokens[STEPS][BATCH * CONTEXT];
    int32_t targets[STEPS][BATCH * CONTEXT];
    by_array arrays[2];
} data;

static by_config *open_config_with(const char *kind, const char *compute, const char *const *more,
                                   size_t more_count)
{
    by_error error = {0};
    by_config *config;
    const char *settings[] = {kind,
                              compute,
                              "model.layers=2",
                              "model.heads=2",
                              "model.width=16",
                              "model.context=8",
                              "model.vocab=31",
                              "model.dropout=0.1",
                              "train.batch=3",
                              "train.micro_batch=1",
                              "train.steps=6",
                              "optimizer.warmup=0",
                              "train.threads=2"};
    check_ok(by_config_default(&config, &error), &error);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(settings); i++) {
        check_ok(by_config_set(config, settings[i], &error), &error);
    }
    for (size_t i = 0; i < more_count; i++) {
        check_ok(by_config_set(config, more[i], &error), &error);
    }
    check_ok(by_config_resolve(config, &error), &error);
    return config;
}

static by_config *open_config(const char *kind, const char *compute)
{
    return open_config_with(kind, compute, NULL, 0);
}

static void make_data(data *d)
{
    for (uint64_t s = 0; s < STEPS; s++) {
        for (uint64_t i = 0; i < BATCH * CONTEXT; i++) {
            d->tokens[s][i] = (int32_t)((random_unit(s, 1, i) + 1.0) / 2.0 * VOCAB);
            d->targets[s][i] =
                i % 11 == 3 ? -1 : (int32_t)((random_unit(s, 2, i) + 1.0) / 2.0 * VOCAB);
        }
    }
}

static by_batch batch_of(data *d, int64_t step)
{
    return by_batch_of_tokens(d->arrays, d->tokens[step], d->targets[step], BATCH, CONTEXT);
}

static by_trainer *open_trainer(const by_config *config, by_device *device)
{
    by_error error = {0};
    by_trainer *trainer;
    by_trainer_options options = {.device = device};
    check_ok(by_trainer_open(&trainer, config, &options, &error), &error);
    check_ok(by_trainer_allocate(trainer, &error), &error);
    check_ok(by_trainer_initialize(trainer, &error), &error);
    return trainer;
}

/* Weights and optimizer states as one hash, through the device's copies. */
static uint64_t hash_of(const by_trainer *trainer)
{
    by_error error = {0};
    uint64_t hash = 0;
    static float values[VOCAB * 64];
    for (size_t i = 0; i < by_trainer_parameter_count(trainer); i++) {
        by_tensor_view view = by_trainer_parameter(trainer, i);
        size_t count;
        check_ok(by_tensor_size(&view, &count, NULL, &error), &error);
        assert_true(count <= BY_ARRAY_LENGTH(values));
        for (int state = -1; state < by_trainer_state_count(trainer); state++) {
            by_trainer_tensor what = state < 0 ? BY_TRAINER_PARAMETER : BY_TRAINER_STATE;
            /* Some optimizers keep a state for some tensors only. */
            by_status status = by_trainer_read(trainer, what, state, i, values, &error);
            hash = hash * 31u + (status == BY_OK ? by__hash64(values, count * sizeof *values) : 1);
            assert_true(status == BY_OK || (state >= 0 && status == BY_EARG));
        }
    }
    return hash;
}

/* All steps, each submitted before the one before it was collected. losses [STEPS]. */
static uint64_t train(by_trainer *trainer, data *d, double *losses)
{
    by_error error = {0};
    int64_t collected = 0;
    for (int64_t s = 0; s < STEPS; s++) {
        by_batch batch = batch_of(d, s);
        by_step_result result;
        bool got;
        check_ok(by_trainer_submit(trainer, &batch, &error), &error);
        if (s > 0) {
            check_ok(by_trainer_collect(trainer, true, &got, &result, &error), &error);
            assert_true(got && result.step == collected + 1);
            losses[collected++] = result.loss;
        }
    }
    by_step_result result;
    bool got;
    check_ok(by_trainer_collect(trainer, true, &got, &result, &error), &error);
    losses[collected++] = result.loss;
    assert_int_equal(collected, STEPS);
    check_ok(by_trainer_collect(trainer, false, &got, &result, &error), &error);
    assert_false(got);
    return hash_of(trainer);
}

/* Trains on the CPU and, for each seed, on a late device, which must give the same bits. Where
 * the device asks for more alignment than the CPU, the CPU gets the same layout. */
static void compare(const by_config *config, data *d, const late_options *like)
{
    by_error error = {0};
    by_device *device;
    double want[STEPS];
    check_ok(by_device_open(&device, "cpu", 2, &error), &error);
    device->alignment = like->alignment > device->alignment ? like->alignment : device->alignment;
    by_trainer *trainer = open_trainer(config, device);
    uint64_t hash = train(trainer, d, want);
    by_trainer_close(&trainer);
    by_device_close(&device);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        double have[STEPS];
        late_options options = *like;
        options.seed = seed;
        options.threads = 2;
        check_ok(late_device_open_as(&device, &options, &error), &error);
        trainer = open_trainer(config, device);
        assert_true(train(trainer, d, have) == hash);
        assert_memory_equal(have, want, sizeof want);
        by_trainer_close(&trainer);
        assert_string_equal(late_device_fault(device), "");
        by_device_close(&device);
    }
}

/* Every optimizer there is, on a device that wants 256 bytes of alignment. */
static void test_optimizers(void **state)
{
    BY_UNUSED(state);
    static data d;
    make_data(&d);
    for (size_t i = 0; by__optim_kind(i) != NULL; i++) {
        char kind[64];
        (void)snprintf(kind, sizeof kind, "optimizer.kind=%s", by__optim_kind(i)->name);
        const char *more[] = {kind, "optimizer.ema=0.9"};
        by_config *config = open_config_with("model.kind=llama", "precision.compute=f32", more, 2);
        compare(config, &d, &(late_options){.alignment = 256});
        by_config_close(&config);
    }
}

/* What looks at steps while they run, or computes with their weights, changes no bits. */
static void test_probes(void **state)
{
    BY_UNUSED(state);
    static data d;
    /* One block and one micro-batch: each node's operands are copied back. */
    static const char *const more[] = {"model.layers=1",      "train.micro_batch=3",
                                       "guard.abft=true",     "guard.replay_every=2",
                                       "track.norms_every=1", "track.activations_every=1"};
    make_data(&d);
    by_config *config = open_config_with("model.kind=gpt2", "precision.compute=bf16", more, 2);
    by_config *watched =
        open_config_with("model.kind=gpt2", "precision.compute=bf16", more, BY_ARRAY_LENGTH(more));
    double want[STEPS];
    by_trainer *trainer = open_trainer(config, NULL);
    uint64_t hash = train(trainer, &d, want);
    by_trainer_close(&trainer);
    for (uint64_t seed = 0; seed < 2; seed++) {
        by_error error = {0};
        by_device *device;
        double have[STEPS];
        check_ok(late_device_open(&device, seed, 2, &error), &error);
        trainer = open_trainer(watched, device);
        assert_true(train(trainer, &d, have) == hash);
        assert_memory_equal(have, want, sizeof want);
        /* What made a step fail is found on copies, too. */
        by_memory weight = by__store_buffer(trainer->store, trainer->flats.masters, 2);
        const float broken = NAN;
        by_batch batch = batch_of(&d, 0);
        by__trainer_found found;
        weight.bytes = sizeof broken;
        check_ok(by_device_write(weight, &broken, &error), &error);
        assert_true(by__job_guard_can_find(trainer));
        check_ok(by__job_guard_find(trainer, &batch, STEPS + 1, &found, &error), &error);
        assert_true(found.found && strstr(found.what, "the parameter '") != NULL);
        by_trainer_close(&trainer);
        assert_string_equal(late_device_fault(device), "");
        by_device_close(&device);
    }
    by_config_close(&config);
    by_config_close(&watched);
}

/* A plan is compared with the memory of the device, not with the host's. */
static void test_memory(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_device *device;
    by_trainer *trainer;
    by_config *config = open_config("model.kind=llama", "precision.compute=f32");
    const late_options options = {.threads = 1, .memory = 10000};
    check_ok(late_device_open_as(&device, &options, &error), &error);
    by_trainer_options o = {.device = device};
    assert_true(by_plan_limit(config, device, NULL) < by_plan_limit(config, NULL, NULL));
    check_ok(by_trainer_open(&trainer, config, &o, &error), &error);
    check_error(by_trainer_allocate(trainer, &error), BY_EMEMORY, &error,
                "9.8 KiB are free on the device");
    by_device_info info;
    check_ok(by_trainer_device(&info, trainer, &error), &error);
    assert_int_equal(info.memory_total, 10000);
    by_trainer_close(&trainer);
    by_device_close(&device);
    by_config_close(&config);
}

/* What works on the memory of the host only says so. */
static void test_refusals(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_device *device;
    by_trainer *trainer;
    static const char *const more[] = {"offload.optimizer=disk"};
    by_config *config = open_config_with("model.kind=llama", "precision.compute=f32", more, 1);
    check_ok(late_device_open(&device, 0, 1, &error), &error);
    by_trainer_options o = {.device = device};
    check_error(by_trainer_open(&trainer, config, &o, &error), BY_ECONFIG, &error,
                "needs a device whose memory is the host's, and late device has its own");
    by_device_close(&device);
    by_config_close(&config);
}

static void test_training(void **state)
{
    BY_UNUSED(state);
    static const char *const kinds[] = {"model.kind=gpt2", "model.kind=llama"};
    static const char *const computes[] = {"precision.compute=f32", "precision.compute=bf16"};
    static data d;
    make_data(&d);
    for (size_t k = 0; k < 4; k++) {
        by_config *config = open_config(kinds[k / 2], computes[k % 2]);
        double want[STEPS];
        by_trainer *trainer = open_trainer(config, NULL);
        uint64_t hash = train(trainer, &d, want);
        by_trainer_close(&trainer);
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            by_error error = {0};
            by_device *device;
            double have[STEPS];
            check_ok(late_device_open(&device, seed, 2, &error), &error);
            trainer = open_trainer(config, device);
            assert_true(train(trainer, &d, have) == hash);
            assert_memory_equal(have, want, sizeof want);
            by_trainer_close(&trainer);
            assert_string_equal(late_device_fault(device), "");
            by_device_close(&device);
        }
        by_config_close(&config);
    }
}

/* A weight becomes NaN under way: the step that meets it and the one behind it change nothing, are
 * reported once and forgotten; the trainer goes on when the weight is mended. */
static void test_failed_step(void **state)
{
    BY_UNUSED(state);
    static data d;
    make_data(&d);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        by_error error = {0};
        by_device *device;
        by_step_result result;
        bool got;
        bool skip = seed % 2 == 0;
        by_config *config = open_config("model.kind=gpt2", "precision.compute=f32");
        check_ok(
            by_config_set(config, skip ? "guard.nonfinite=skip" : "guard.nonfinite=stop", &error),
            &error);
        check_ok(late_device_open(&device, seed, 2, &error), &error);
        by_trainer *trainer = open_trainer(config, device);
        by_batch batch = batch_of(&d, 0);
        check_ok(by_trainer_step(trainer, &batch, &result, &error), &error);
        by_memory weight = by__store_buffer(trainer->store, trainer->flats.masters, 2);
        float saved;
        float broken = NAN;
        weight.bytes = sizeof saved;
        check_ok(by_device_read(&saved, weight, &error), &error);
        check_ok(by_device_write(weight, &broken, &error), &error);
        uint64_t before = hash_of(trainer);
        check_ok(by_trainer_submit(trainer, &batch, &error), &error);
        batch = batch_of(&d, 1);
        check_ok(by_trainer_submit(trainer, &batch, &error), &error);
        double loss;
        check_error(by_trainer_submit(trainer, &batch, &error), BY_ESTATE, &error, "collect one");
        check_error(by_trainer_loss(trainer, &batch, &loss, &error), BY_ESTATE, &error,
                    "collect one");
        by_status status = by_trainer_collect(trainer, true, &got, &result, &error);
        if (skip) {
            check_ok(status, &error);
            assert_true(got && result.step == 2 && result.skipped == BY_SKIP_NONFINITE);
        } else {
            check_error(status, BY_EDIVERGED, &error, "weights were not changed");
        }
        assert_true(hash_of(trainer) == before);
        assert_int_equal(by_trainer_updates(trainer), skip ? 2 : 1);
        check_ok(by_trainer_collect(trainer, true, &got, &result, &error), &error);
        assert_false(got);
        check_ok(by_device_write(weight, &saved, &error), &error);
        check_ok(by_trainer_step(trainer, &batch, &result, &error), &error);
        assert_int_equal(result.step, skip ? 3 : 2);
        assert_true(result.skipped == BY_SKIP_NONE && hash_of(trainer) != before);
        by_trainer_close(&trainer);
        assert_string_equal(late_device_fault(device), "");
        by_device_close(&device);
        by_config_close(&config);
    }
}

/* A step in two halves is a step. */
static void test_halves(void **state)
{
    BY_UNUSED(state);
    static data d;
    uint64_t hashes[2];
    make_data(&d);
    by_config *config = open_config("model.kind=llama", "precision.compute=bf16");
    for (int half = 0; half < 2; half++) {
        by_error error = {0};
        by_trainer *trainer = open_trainer(config, NULL);
        for (int64_t s = 0; s < STEPS; s++) {
            by_step_result result;
            double loss;
            by_batch batch = batch_of(&d, s);
            if (half == 0) {
                check_ok(by_trainer_step(trainer, &batch, &result, &error), &error);
                continue;
            }
            double lr =
                by_learning_rate(&config->optimizer, (double)s, (double)config->train.steps);
            check_ok(by_trainer_gradients(trainer, &batch, &loss, &error), &error);
            by_array other[2];
            by_batch held_out = by_batch_of_tokens(other, d.tokens[0], d.targets[0], 1, CONTEXT);
            double unused; /* an evaluation in between leaves the step alone */
            check_ok(by_trainer_loss(trainer, &held_out, &unused, &error), &error);
            check_ok(by_trainer_update(trainer, lr, &result, &error), &error);
            assert_true(result.loss == loss && result.step == s + 1 && result.lr == lr);
        }
        hashes[half] = hash_of(trainer);
        by_trainer_close(&trainer);
    }
    assert_true(hashes[0] == hashes[1]);
    by_config_close(&config);
}

/* Greedy text of initial weights: prompts of several chunks, then token by token. */
static void generate(const by_config *config, by_device *device, int32_t *out, size_t count)
{
    by_error error = {0};
    by_generator *generator;
    by_generator_options options = {.device = device, .context = 200, .slide = true};
    int32_t prompt[150];
    by_sampling greedy = {.top_p = 1.0};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(prompt); i++) {
        prompt[i] = (int32_t)(i * 7 % VOCAB);
    }
    check_ok(by_generator_open(&generator, config, NULL, &options, &error), &error);
    check_ok(by_generator_feed(generator, prompt, BY_ARRAY_LENGTH(prompt), &error), &error);
    for (size_t i = 0; i < count; i++) {
        check_ok(by_generator_sample(generator, &greedy, &out[i], &error), &error);
        check_ok(by_generator_feed(generator, &out[i], 1, &error), &error);
    }
    by_generator_close(&generator);
}

static void test_generation(void **state)
{
    BY_UNUSED(state);
    by_config *config = open_config("model.kind=llama", "precision.compute=bf16");
    int32_t want[20];
    generate(config, NULL, want, BY_ARRAY_LENGTH(want));
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        by_error error = {0};
        by_device *device;
        int32_t have[20];
        check_ok(late_device_open(&device, seed, 2, &error), &error);
        generate(config, device, have, BY_ARRAY_LENGTH(have));
        assert_memory_equal(have, want, sizeof want);
        assert_string_equal(late_device_fault(device), "");
        by_device_close(&device);
    }
    by_config_close(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_training), cmocka_unit_test(test_optimizers),
        cmocka_unit_test(test_probes),   cmocka_unit_test(test_memory),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_failed_step),
        cmocka_unit_test(test_halves),   cmocka_unit_test(test_generation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
