/* Pipelines that train: weights, states, losses and norms of every schedule are those of one rank,
 * bit for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runner.h"
#include "sanitizer.h"
#include "trainer/state/trainer.h"
#include "trainer/step/trainer_step.h"

#define CONTEXT   8
#define VOCAB     61
#define MOST      8 /* ranks */
#define MAX_STEPS 50
#define MAX_BATCH 16
#define MOST_SETS 12

/* A tensor that a rank has at the end. */
typedef struct tensor {
    char name[96];
    float *data;
    size_t count;
} tensor;

typedef struct result {
    by_step_result steps[MAX_STEPS];
    double evaluated;
    tensor *tensors;
    size_t count;
    by_memory_report memory;
} result;

typedef struct job {
    const char *const *settings; /* NULL at the end */
    int steps;
    result results[MOST];
} job;

static by_config *open_config(const char *const *settings)
{
    static const char *const common[] = {
        "model.kind=gpt2",    "model.layers=5", "model.heads=2",       "model.width=48",
        "model.context=8",    "model.vocab=61", "train.threads=1",     "train.steps=50",
        "optimizer.warmup=2", "train.batch=6",  "train.micro_batch=1", NULL};
    return config_of(common, settings);
}

typedef struct data {
    int32_t tokens[MAX_BATCH * CONTEXT];
    int32_t targets[MAX_BATCH * CONTEXT];
    by_array arrays[2];
} data;

static by_batch make_batch(data *d, const by_batch_part *part, size_t all, uint64_t step)
{
    size_t count = part->count;
    uint64_t targets = 0;
    for (size_t i = 0; i < all * CONTEXT; i++) {
        targets += i % 11 != 3;
    }
    for (size_t i = 0; i < count * CONTEXT; i++) {
        size_t k = i / CONTEXT;
        size_t row = part->first + k / part->block * part->stride + k % part->block;
        size_t at = row * CONTEXT + i % CONTEXT;
        double token = (random_unit(7, 2 * step, at) + 1.0) / 2.0 * VOCAB;
        double target = (random_unit(7, 2 * step + 1, at) + 1.0) / 2.0 * VOCAB;
        d->tokens[i] = (int32_t)token;
        d->targets[i] = at % 11 == 3 ? -1 : (int32_t)target;
    }
    by_batch batch = by_batch_of_tokens(d->arrays, d->tokens, d->targets, count, CONTEXT);
    batch.global_targets = targets;
    return batch;
}

/* Parameters and states that this rank trains. */
static by_status read_tensors(result *r, const by_trainer *t, by_error *error)
{
    size_t most = by_trainer_parameter_count(t) * (size_t)(1 + by_trainer_state_count(t));
    r->tensors = calloc(most + 1, sizeof *r->tensors);
    for (size_t i = 0; i < by_trainer_parameter_count(t); i++) {
        if (!by__store_entry(t->store, (by__store_handle)i)->trainable) {
            continue;
        }
        for (int s = -1; s < by_trainer_state_count(t); s++) {
            by_tensor_view view = s < 0 ? by_trainer_parameter(t, i) : by_trainer_state(t, i, s);
            tensor *out = &r->tensors[r->count];
            if (view.rank < 0) {
                continue;
            }
            BY_TRY(by_tensor_size(&view, &out->count, NULL, error));
            (void)snprintf(out->name, sizeof out->name, "%s %d", view.name, s);
            out->data = malloc(out->count * sizeof *out->data);
            BY_TRY(by_trainer_read(t, s < 0 ? BY_TRAINER_PARAMETER : BY_TRAINER_STATE, s, i,
                                   out->data, error));
            r->count++;
        }
    }
    return BY_OK;
}

static by_status train(job *j, result *r, by_trainer *t, const by_config *config, by_error *error)
{
    data d;
    const by_batch_part part = by_trainer_part(t);
    size_t all = (size_t)config->train.batch;
    for (int step = 0; step < j->steps; step++) {
        by_batch batch = make_batch(&d, &part, all, (uint64_t)step);
        BY_TRY(by_trainer_step(t, &batch, &r->steps[step], error));
    }
    BY_TRY(by_trainer_settle(t, error));
    size_t one = (size_t)config->train.micro_batch;
    const by_batch_part first = {.count = one, .block = one, .stride = one};
    by_batch batch = make_batch(&d, &first, one, 1000);
    bool average = config->train.eval_ema != 0;
    BY_TRY(average ? by__trainer_swap_average(t, false, error) : BY_OK);
    BY_TRY(by_trainer_loss(t, &batch, &r->evaluated, error));
    BY_TRY(average ? by__trainer_swap_average(t, true, error) : BY_OK);
    r->memory = *by_trainer_memory(t);
    return read_tensors(r, t, error);
}

static by_status run_rank(by_comm *comm, void *user, by_error *error)
{
    job *j = user;
    result *r = &j->results[comm == NULL ? 0 : by_comm_rank(comm)];
    by_config *config = open_config(j->settings);
    by_trainer *t = NULL;
    if (comm == NULL) {
        config->parallel.shard = 1;
    }
    const by_trainer_options options = {.comm = comm};
    by_status status = by_trainer_open(&t, config, &options, error);
    if (status == BY_OK) {
        status = by_trainer_allocate(t, error);
    }
    if (status == BY_OK) {
        status = by_trainer_initialize(t, error);
    }
    if (status == BY_OK) {
        status = train(j, r, t, config, error);
    }
    by_trainer_close(&t);
    by_config_close(&config);
    return status;
}

static job *run_job(int ranks, int steps, const char *const *settings)
{
    by_error error = {0};
    job *j = calloc(1, sizeof *j);
    assert_non_null(j);
    j->settings = settings;
    j->steps = steps;
    check_ok(ranks == 0 ? run_rank(NULL, j, &error)
                        : by_comm_run_threads(ranks, NULL, run_rank, j, &error),
             &error);
    return j;
}

static void close_job(job *j)
{
    for (int r = 0; r < MOST; r++) {
        for (size_t i = 0; i < j->results[r].count; i++) {
            free(j->results[r].tensors[i].data);
        }
        free(j->results[r].tensors);
    }
    free(j);
}

static const tensor *find_tensor(const result *r, const char *name)
{
    for (size_t i = 0; i < r->count; i++) {
        if (strcmp(r->tensors[i].name, name) == 0) {
            return &r->tensors[i];
        }
    }
    return NULL;
}

/* How many ranks have a tensor as the process that works alone does; fails for another one. */
static int count_holders(const tensor *want, const job *j, int ranks, const char *label)
{
    int holders = 0;
    for (int r = 0; r < ranks; r++) {
        const tensor *have = find_tensor(&j->results[r], want->name);
        if (have == NULL) {
            continue;
        }
        holders++;
        assert_true(have->count == want->count);
        if (memcmp(have->data, want->data, want->count * sizeof *want->data) != 0) {
            fail_msg("%s: rank %d of %d has another '%s'", label, r, ranks, want->name);
        }
    }
    return holders;
}

static void compare(const job *alone, const job *j, int ranks, int replicas, const char *label)
{
    const result *want = &alone->results[0];
    for (int r = 0; r < ranks; r++) {
        const result *have = &j->results[r];
        /* Pipelines are the outermost axis. */
        const result *same = &alone->results[r % replicas];
        want = same->count > 0 ? same : want;
        for (int step = 0; step < j->steps; step++) {
            if (have->steps[step].loss != want->steps[step].loss ||
                have->steps[step].norm != want->steps[step].norm) {
                fail_msg("%s: rank %d of %d, step %d: loss %.9g and %.9g, norm %.9g and %.9g",
                         label, r, ranks, step, want->steps[step].loss, have->steps[step].loss,
                         want->steps[step].norm, have->steps[step].norm);
            }
        }
        assert_true(have->evaluated == want->evaluated);
    }
    for (size_t i = 0; i < want->count; i++) {
        assert_int_equal(count_holders(&want->tensors[i], j, ranks, label), replicas);
    }
}

typedef struct layout {
    int ranks;
    int pipeline;
    const char *schedule;
    const char *chunks;
} layout;

static const layout schedules[] = {
    {2, 2, "gpipe", "1"},       {2, 2, "1f1b", "1"},        {3, 3, "1f1b", "1"},
    {4, 4, "1f1b", "1"},        {3, 3, "gpipe", "1"},       {2, 2, "interleaved", "2"},
    {2, 2, "interleaved", "3"}, {3, 3, "interleaved", "2"}, {2, 2, "zero_bubble", "1"},
    {3, 3, "zero_bubble", "1"}, {4, 4, "zero_bubble", "1"}, {4, 2, "1f1b", "1"},
    {4, 2, "zero_bubble", "1"}, {6, 3, "interleaved", "2"},
};

static void compare_layout(const job *alone, const layout *l, const char *const *settings)
{
    char pipeline[32];
    char schedule[48];
    char chunks[32];
    const char *all[MOST_SETS + 4] = {pipeline, schedule, chunks};
    size_t count = 3;
    (void)snprintf(pipeline, sizeof pipeline, "parallel.pipeline=%d", l->pipeline);
    (void)snprintf(schedule, sizeof schedule, "parallel.schedule=%s", l->schedule);
    (void)snprintf(chunks, sizeof chunks, "parallel.chunks=%s", l->chunks);
    for (size_t i = 0; settings[i] != NULL; i++) {
        all[count++] = settings[i];
    }
    job *j = run_job(l->ranks, alone->steps, all);
    compare(alone, j, l->ranks, l->ranks / l->pipeline, schedule);
    close_job(j);
}

static void check_settings(int steps, const layout *layouts, size_t count,
                           const char *const *settings)
{
    job *alone = run_job(0, steps, settings);
    for (size_t i = 0; i < count; i++) {
        compare_layout(alone, &layouts[i], settings);
    }
    close_job(alone);
}

static void all_schedules_give_the_bits_of_one_rank(void **state)
{
    BY_UNUSED(state);
    static const char *const f32[] = {NULL};
    static const char *const bf16[] = {"precision.compute=bf16", "model.dropout=0.1",
                                       "memory.recompute=block", NULL};
    check_settings(3, schedules, BY_ARRAY_LENGTH(schedules), f32);
    check_settings(2, schedules, BY_ARRAY_LENGTH(schedules), bf16);
}

static void fifty_steps_end_in_the_same_weights(void **state)
{
    BY_UNUSED(state);
    static const layout four[] = {{2, 2, "gpipe", "1"},
                                  {3, 3, "1f1b", "1"},
                                  {2, 2, "interleaved", "2"},
                                  {3, 3, "zero_bubble", "1"}};
    static const char *const tiny[] = {"model.width=16", "train.batch=4", NULL};
    check_settings(BY_TESTS_SANITIZED ? 8 : 50, four, BY_ARRAY_LENGTH(four), tiny);
}

/* Uneven numbers of micro-batches, fewer than stages, untied heads, other models and optimizers. */
static void other_settings_too(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[][MOST_SETS] = {
        {"train.batch=2", "train.micro_batch=1"},
        {"train.batch=7", "model.tied=false"},
        {"model.kind=llama", "train.batch=10", "train.micro_batch=2"},
        {"model.kind=llama", "model.tied=true", "precision.compute=bf16"},
        {"model.kind=llama", "values.kind=embedded", "residual.kind=mixed"},
        {"model.kind=mixtral", "model.experts=4", "precision.compute=bf16"},
        {"optimizer.kind=lamb", "optimizer.clip=0.5"},
        {"optimizer.ema=0.9", "train.eval_ema=true"},
        {"precision.compute=fp16", "optimizer.clip=0.5"},
        {"precision.compute=bf16", "precision.weights=bf16"},
        {"optimizer.kind=adafactor", "train.batch=8", "train.micro_batch=8"},
        {"optimizer.groups=[{match: h.1.*, frozen: true}, {match: \"*.bias\", lr_scale: 2}]",
         "optimizer.layer_decay=0.8"},
        {"optimizer.groups=[{match: w?e.*, frozen: true}, {match: \"h.[01].*\", frozen: true}]"},
        {"lora.rank=2", "lora.alpha=5", "lora.dropout=0.1", "precision.compute=bf16"},
    };
    static const layout some[] = {
        {2, 2, "1f1b", "1"}, {2, 2, "interleaved", "2"}, {3, 3, "zero_bubble", "1"}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(settings); i++) {
        check_settings(2, some, BY_ARRAY_LENGTH(some), settings[i]);
    }
}

/* Ranks of shard divide what a stage has: state, gradients, parameters; a last round without a
 * micro-batch for some, a tied table whose other reader is whole, optimizers of whole tensors. */
static void stages_are_divided(void **state)
{
    BY_UNUSED(state);
    static const char *const stages[] = {"parallel.zero=1", "parallel.zero=2", "parallel.zero=3"};
    static const char *const others[][4] = {
        {"train.batch=5"},
        {"precision.compute=bf16", "model.dropout=0.1", "model.tied=false", "optimizer.clip=0.5"},
        {"optimizer.kind=lamb", "precision.compute=bf16", "optimizer.ema=0.9",
         "train.eval_ema=true"},
        {"model.kind=llama", "parallel.overlap=false", "memory.recompute=block"},
        {"optimizer.groups=[{match: w?e.*, frozen: true}, {match: \"*.bias\", lr_scale: 2}]"},
    };
    static const layout some[] = {{4, 2, "gpipe", "1"},       {4, 2, "1f1b", "1"},
                                  {4, 2, "interleaved", "2"}, {4, 2, "zero_bubble", "1"},
                                  {6, 3, "1f1b", "1"},        {8, 2, "zero_bubble", "1"}};
    for (size_t k = 0; k < BY_ARRAY_LENGTH(stages); k++) {
        for (size_t i = 0; i < BY_ARRAY_LENGTH(others); i++) {
            const char *settings[MOST_SETS] = {"parallel.shard=2", stages[k],
                                               "parallel.bucket_mib=0.0625"};
            size_t count = 3;
            for (size_t s = 0; s < 4 && others[i][s] != NULL; s++) {
                settings[count++] = others[i][s];
            }
            check_settings(2, some, BY_ARRAY_LENGTH(some), settings);
        }
    }
}

/* Every rank trains something, or none of them begins. */
static void frozen_stages_are_refused(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    job *j = calloc(1, sizeof *j);
    static const char *const settings[] = {
        "optimizer.groups=[{match: w?e.*, frozen: true}, {match: \"h.[0-3].*\", frozen: true}]",
        "parallel.pipeline=2", NULL};
    assert_non_null(j);
    j->settings = settings;
    assert_int_equal(by_comm_run_threads(2, NULL, run_rank, j, &error), BY_ECONFIG);
    assert_non_null(strstr(error.message, "parallel.pipeline 2: all parameters of rank 0 of the "
                                          "pipeline are frozen: use fewer ranks"));
    close_job(j);
}

/* Pipelines that take steps of their own, or add up what was rounded, do what ranks would in their
 * place. */
static void replicas_exchange_as_whole_models_do(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[][MOST_SETS] = {
        {"sync.every=2"},
        {"sync.every=2", "sync.compress=bf16", "precision.compute=bf16"},
        {"sync.compress=bf16"},
    };
    static const layout some[] = {
        {4, 2, "1f1b", "1"}, {6, 3, "zero_bubble", "1"}, {4, 2, "interleaved", "2"}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(settings); i++) {
        job *two = run_job(2, 6, settings[i]);
        for (size_t k = 0; k < BY_ARRAY_LENGTH(some); k++) {
            compare_layout(two, &some[k], settings[i]);
        }
        close_job(two);
    }
    static const char *const divided[] = {"sync.every=2", "parallel.shard=2", "parallel.zero=2",
                                          NULL};
    static const layout eight = {8, 2, "1f1b", "1"};
    job *four = run_job(4, 4, divided);
    compare_layout(four, &eight, divided);
    close_job(four);
}

/* Stages divide what a rank holds. */
static void stages_need_less_memory(void **state)
{
    BY_UNUSED(state);
    static const char *const one[] = {"train.batch=4", "train.micro_batch=1", "model.tied=false",
                                      NULL};
    static const char *const four[] = {"train.batch=4", "train.micro_batch=1",
                                       "parallel.pipeline=4", "model.tied=false", NULL};
    job *alone = run_job(0, 1, one);
    job *j = run_job(4, 1, four);
    uint64_t all = alone->results[0].memory.optimizer;
    uint64_t sum = 0;
    for (int r = 0; r < 4; r++) {
        sum += j->results[r].memory.optimizer;
        assert_true(j->results[r].memory.optimizer < all / 2);
        assert_true(j->results[r].memory.parameters < alone->results[0].memory.parameters / 2);
    }
    assert_true(sum == all);
    close_job(j);
    /* Two stages on two ranks each, which divide state, gradients and matrices. */
    static const char *const divided[] = {"train.batch=4",
                                          "train.micro_batch=1",
                                          "parallel.pipeline=2",
                                          "parallel.shard=2",
                                          "parallel.zero=3",
                                          "model.tied=false",
                                          NULL};
    j = run_job(4, 1, divided);
    sum = 0;
    for (int r = 0; r < 4; r++) {
        const by_memory_report *m = &j->results[r].memory;
        sum += m->optimizer;
        assert_true(m->gradients == m->optimizer / 2); /* two moments, one sum */
        assert_true(m->parameters < alone->results[0].memory.parameters * 3 / 8);
    }
    assert_true(sum == all);
    close_job(alone);
    close_job(j);
    /* The last of two stages holds one micro-batch, or all. */
    static const char *const few[] = {"train.batch=16", "parallel.pipeline=2", NULL};
    static const char *const many[] = {"train.batch=16", "parallel.pipeline=2",
                                       "parallel.schedule=gpipe", NULL};
    job *a = run_job(2, 1, few);
    job *b = run_job(2, 1, many);
    assert_true(a->results[1].memory.activations < b->results[1].memory.activations / 4);
    assert_true(a->results[1].memory.activations < a->results[0].memory.activations);
    close_job(a);
    close_job(b);
}

/* A step that is not finite fails on all ranks in the same words. */
static void stages_fail_together(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"optimizer.kind=sgd",
                                           "optimizer.lr=1000",
                                           "optimizer.clip=0",
                                           "optimizer.warmup=0",
                                           "parallel.pipeline=3",
                                           "guard.nonfinite=stop",
                                           NULL};
    by_error error = {0};
    job *j = calloc(1, sizeof *j);
    j->settings = settings;
    j->steps = 5;
    check_error(by_comm_run_threads(3, NULL, run_rank, j, &error), BY_EDIVERGED, &error,
                "the weights were not changed");
    close_job(j);
}

static void what_cannot_be_is_refused(void **state)
{
    BY_UNUSED(state);
    static const char *const many[] = {"parallel.pipeline=8", "model.layers=2", NULL};
    job j = {.settings = many, .steps = 1};
    by_error error = {0};
    check_error(by_comm_run_threads(8, NULL, run_rank, &j, &error), BY_ECONFIG, &error,
                "a pipeline of 8 stages: the model has 2 blocks");
    by_config *config;
    check_ok(by_config_default(&config, &error), &error);
    check_ok(by_config_set(config, "parallel.chunks=2", &error), &error);
    check_error(by_config_resolve(config, &error), BY_ECONFIG, &error,
                "parallel.chunks is 2, but schedule 1f1b has 1 chunk per rank");
    by_config_close(&config);
    static const char *const kept[] = {"parallel.pipeline=2", "parallel.shard=2", "parallel.zero=3",
                                       "parallel.keep=true", NULL};
    j.settings = kept;
    check_error(by_comm_run_threads(4, NULL, run_rank, &j, &error), BY_ECONFIG, &error,
                "set keep to false");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_schedules_give_the_bits_of_one_rank),
        cmocka_unit_test(fifty_steps_end_in_the_same_weights),
        cmocka_unit_test(other_settings_too),
        cmocka_unit_test(stages_are_divided),
        cmocka_unit_test(frozen_stages_are_refused),
        cmocka_unit_test(replicas_exchange_as_whole_models_do),
        cmocka_unit_test(stages_need_less_memory),
        cmocka_unit_test(stages_fail_together),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
