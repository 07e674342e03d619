/* The trainer: the accumulation tree, planned bytes, what a bad step leaves, dropout and
 * micro-batches. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "runner.h"
#include "trainer/state/trainer.h"

#define CONTEXT   8
#define VOCAB     31
#define MAX_BATCH 16

/* ---- trainers ---- */

typedef struct setup {
    by_config *config;
    by_trainer *trainer;
    int32_t tokens[MAX_BATCH * CONTEXT];
    int32_t targets[MAX_BATCH * CONTEXT];
    by_array arrays[2];
    by_batch batch;
} setup;

static void open_setup(setup *s, const char *const *settings, size_t count)
{
    by_error error = {0};
    static const char *const common[] = {
        "model.layers=2",  "model.heads=2",      "model.width=16",
        "model.context=8", "model.vocab=31",     "train.batch=6",
        "train.steps=10",  "optimizer.warmup=0", "model.kind=gpt2"};
    *s = (setup){0};
    check_ok(by_config_default(&s->config, &error), &error);
    check_ok(by_config_set(s->config, "precision.compute=f32", &error), &error);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(common); i++) {
        check_ok(by_config_set(s->config, common[i], &error), &error);
    }
    for (size_t i = 0; i < count; i++) {
        check_ok(by_config_set(s->config, settings[i], &error), &error);
    }
    check_ok(by_config_resolve(s->config, &error), &error);
    check_ok(by_trainer_open(&s->trainer, s->config, NULL, &error), &error);
    check_ok(by_trainer_allocate(s->trainer, &error), &error);
    check_ok(by_trainer_initialize(s->trainer, &error), &error);
    size_t batch = (size_t)s->config->train.batch;
    for (size_t i = 0; i < batch * CONTEXT; i++) {
        s->tokens[i] = (int32_t)((random_unit(1, 1, i) + 1.0) / 2.0 * VOCAB);
        s->targets[i] = i % 11 == 3 ? -1 : (int32_t)((random_unit(1, 2, i) + 1.0) / 2.0 * VOCAB);
    }
    s->batch = by_batch_of_tokens(s->arrays, s->tokens, s->targets, batch, CONTEXT);
}

static void close_setup(setup *s)
{
    by_trainer_close(&s->trainer);
    by_config_close(&s->config);
}

static size_t count_of(const by_tensor_view *view)
{
    by_error error = {0};
    size_t count;
    check_ok(by_tensor_size(view, &count, NULL, &error), &error);
    return count;
}

/* All gradients of a trainer, one after another; freed by the caller. */
static float *gradients_of(setup *s, size_t *total)
{
    size_t count = 0;
    float *all = NULL;
    for (size_t i = 0; i < by_trainer_parameter_count(s->trainer); i++) {
        by_tensor_view view = by_trainer_gradient(s->trainer, i);
        size_t n = count_of(&view);
        all = realloc(all, (count + n) * sizeof *all);
        assert_non_null(all);
        memcpy(all + count, view.data, n * sizeof *all);
        count += n;
    }
    *total = count;
    return all;
}

static void add_into(float *a, const float *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        a[i] += b[i];
    }
}

/* Leaf gradients one sample at a time, added by hand in the tree's order for six leaves, against
 * the trainer's own accumulation: the same bits. */
static void test_accumulation_is_the_tree(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    setup all;
    float *leaf[6];
    double loss;
    double losses = 0.0;
    size_t count;
    static const char *const one_by_one[] = {"train.micro_batch=1"};
    static const char *const single[] = {"train.micro_batch=1", "train.batch=1"};
    open_setup(&all, one_by_one, 1);
    check_ok(by_trainer_gradients(all.trainer, &all.batch, &loss, &error), &error);
    float *sum = gradients_of(&all, &count);
    for (size_t k = 0; k < 6; k++) {
        setup s;
        double part;
        open_setup(&s, single, 2);
        s.batch = by_batch_of_tokens(s.arrays, all.tokens + k * CONTEXT, all.targets + k * CONTEXT,
                                     1, CONTEXT);
        s.batch.global_targets = all.batch.global_targets;
        check_ok(by_trainer_gradients(s.trainer, &s.batch, &part, &error), &error);
        losses += part;
        leaf[k] = gradients_of(&s, &count);
        close_setup(&s);
    }
    add_into(leaf[0], leaf[1], count);
    add_into(leaf[2], leaf[3], count);
    add_into(leaf[4], leaf[5], count);
    add_into(leaf[0], leaf[2], count);
    add_into(leaf[0], leaf[4], count);
    assert_memory_equal(sum, leaf[0], count * sizeof *sum);
    assert_true(fabs(losses - loss) < 1e-9);
    for (size_t k = 0; k < 6; k++) {
        free(leaf[k]);
    }
    free(sum);
    close_setup(&all);
}

/* The mask of a sample does not depend on the micro-batch it is in, nor do the gradients but for
 * rounding. */
static void compare_splits(const char *kind, const char *compute, double bound)
{
    by_error error = {0};
    static const char *const splits[] = {"train.micro_batch=6", "train.micro_batch=1",
                                         "train.micro_batch=3"};
    float *want = NULL;
    double want_loss = 0.0;
    for (size_t k = 0; k < 3; k++) {
        const char *settings[] = {splits[k], "model.dropout=0.3", kind, compute};
        setup s;
        size_t count;
        double loss;
        open_setup(&s, settings, 4);
        check_ok(by_trainer_gradients(s.trainer, &s.batch, &loss, &error), &error);
        float *have = gradients_of(&s, &count);
        if (k == 0) {
            want = have;
            want_loss = loss;
        } else {
            double d = relative_distance(have, want, count);
            if (!(d <= bound) || !(fabs(loss - want_loss) <= bound)) {
                fail_msg("%s: gradients are %g away, loss %g and %g", splits[k], d, loss,
                         want_loss);
            }
            free(have);
        }
        close_setup(&s);
    }
    free(want);
}

static void test_dropout_and_splits(void **state)
{
    BY_UNUSED(state);
    compare_splits("model.kind=gpt2", "precision.compute=f32", 1e-5);
    compare_splits("model.kind=llama", "precision.compute=f32", 1e-5);
    compare_splits("model.kind=gpt2", "precision.compute=bf16", 2e-2);
}

/* Dropout changes from step to step and with the seed, and never by itself. */
static void test_dropout_depends_on_step_and_seed(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    double loss[3];
    setup s;
    static const char *const settings[] = {"model.dropout=0.3", "optimizer.lr=1e-30",
                                           "optimizer.min_lr=0"};
    open_setup(&s, settings, 3);
    check_ok(by_trainer_gradients(s.trainer, &s.batch, &loss[0], &error), &error);
    check_ok(by_trainer_gradients(s.trainer, &s.batch, &loss[1], &error), &error);
    assert_true(loss[0] == loss[1]);
    by_step_result result;
    check_ok(by_trainer_step(s.trainer, &s.batch, &result, &error), &error);
    check_ok(by_trainer_gradients(s.trainer, &s.batch, &loss[2], &error), &error);
    assert_true(result.loss == loss[0]);
    assert_true(loss[2] != loss[0]); /* the weights moved by less than their last bit */
    close_setup(&s);
}

/* All buffers of a flat buffer as one hash. */
static uint64_t hash_flat(const by_trainer *t, int flat)
{
    uint64_t hash = 0;
    for (by__store_handle i = 0; (size_t)i < by__store_count(t->store); i++) {
        by_memory buffer = by__store_buffer(t->store, flat, i);
        hash = hash * 31u + by__hash64((const void *)buffer.address, buffer.bytes);
    }
    return hash;
}

/* Weights, copies and moments as one hash. */
static uint64_t hash_of(const setup *s)
{
    const by_trainer *t = s->trainer;
    return hash_flat(t, t->flats.masters) ^ hash_flat(t, t->flats.copies) * 3u ^
           hash_flat(t, t->flats.states[0]) * 5u ^ hash_flat(t, t->flats.states[1]) * 7u;
}

static void test_bad_step_changes_nothing(void **state)
{
    BY_UNUSED(state);
    static const char *const computes[] = {"precision.compute=f32", "precision.compute=bf16"};
    for (size_t k = 0; k < 2; k++) {
        by_error error = {0};
        setup s;
        by_step_result result;
        const char *const settings[] = {computes[k], "guard.nonfinite=stop"};
        open_setup(&s, settings, 2);
        check_ok(by_trainer_step(s.trainer, &s.batch, &result, &error), &error);
        assert_int_equal(by_trainer_updates(s.trainer), 1);
        by_tensor_view view = by_trainer_parameter(s.trainer, 0);
        float *weight = (float *)(uintptr_t)view.data;
        const by_trainer *t = s.trainer;
        uint16_t *copy = t->flats.copies == t->flats.masters
                             ? NULL
                             : by__store_host(t->store, t->flats.copies, 0);
        float saved = weight[0];
        uint16_t saved_copy = copy == NULL ? 0 : copy[0];
        s.tokens[0] = 0; /* the token whose embedding is broken */
        weight[0] = NAN;
        if (copy != NULL) {
            copy[0] = by__f32_to_bf16(NAN);
        }
        uint64_t before = hash_of(&s);
        by_status status = by_trainer_step(s.trainer, &s.batch, &result, &error);
        check_error(status, BY_EDIVERGED, &error, "weights were not changed");
        assert_true(hash_of(&s) == before);
        assert_int_equal(by_trainer_updates(s.trainer), 1);
        weight[0] = saved;
        if (copy != NULL) {
            copy[0] = saved_copy;
        }
        check_ok(by_trainer_step(s.trainer, &s.batch, &result, &error), &error);
        assert_int_equal(by_trainer_updates(s.trainer), 2);
        close_setup(&s);
    }
}

/* Every byte that is allocated was planned, and the plan is the sum of its parts. */
static void test_planned_bytes(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"train.micro_batch=1", "precision.compute=bf16"};
    setup s;
    open_setup(&s, settings, 2);
    const by_trainer *t = s.trainer;
    const by_memory_report *m = by_trainer_memory(t);
    uint64_t masters = by__store_bytes(t->store, BY__MASTER);
    uint64_t elements = 0;
    for (size_t i = 0; i < by_trainer_parameter_count(t); i++) {
        by_tensor_view view = by_trainer_parameter(t, i);
        elements += count_of(&view);
    }
    assert_true(masters >= 4 * elements && masters < 4 * elements + 4 * 32 * 40);
    assert_int_equal(m->parameters, masters + by__store_bytes(t->store, BY__COPY));
    assert_true(by__store_bytes(t->store, BY__COPY) < masters / 2);
    assert_int_equal(m->gradients, masters * 3); /* six leaves: three sets */
    assert_int_equal(m->optimizer, 2 * masters);
    assert_int_equal(m->activations, t->programs.arena.bytes);
    assert_int_equal(m->workspace, t->programs.workspace.bytes);
    assert_int_equal(m->data, t->feed.inputs.bytes + t->feed.outputs.bytes + t->feed.staging.bytes);
    assert_int_equal(m->total, m->parameters + m->gradients + m->optimizer + m->activations +
                                   m->workspace + m->data + m->process);
    uint64_t total = m->total;
    by_trainer_plan_data(s.trainer, 1000);
    assert_int_equal(m->total, total + 1000);
    close_setup(&s);
}

static void test_calls_in_the_wrong_order(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    setup s;
    by_step_result result;
    double loss;
    by_trainer *bare;
    open_setup(&s, NULL, 0);
    by_status status = by_trainer_allocate(s.trainer, &error);
    check_error(status, BY_ESTATE, &error, "allocated before");
    s.arrays[1].shape.dim[0] = 5;
    status = by_trainer_step(s.trainer, &s.batch, &result, &error);
    check_error(status, BY_EARG, &error, "[5, 8] 'targets', the config wants i32 [6, 8]");
    s.arrays[1].shape.dim[0] = 6;
    s.tokens[3] = VOCAB;
    status = by_trainer_step(s.trainer, &s.batch, &result, &error);
    check_error(status, BY_EARG, &error, "'tokens' holds 31");
    s.tokens[3] = 0;
    check_ok(by_trainer_open(&bare, s.config, NULL, &error), &error);
    status = by_trainer_step(bare, &s.batch, &result, &error);
    check_error(status, BY_ESTATE, &error, "by_trainer_allocate");
    status = by_trainer_initialize(bare, &error);
    check_error(status, BY_ESTATE, &error, "by_trainer_allocate");
    status = by_trainer_loss(bare, &s.batch, &loss, &error);
    check_error(status, BY_ESTATE, &error, "by_trainer_allocate");
    by_trainer_close(&bare);
    check_ok(
        by_trainer_open(&bare, s.config, &(by_trainer_options){.mode = BY_TRAINER_LOSS}, &error),
        &error);
    check_ok(by_trainer_allocate(bare, &error), &error);
    check_ok(by_trainer_initialize(bare, &error), &error);
    check_ok(by_trainer_loss(bare, &s.batch, &loss, &error), &error);
    assert_true(loss > 0.0);
    status = by_trainer_gradients(bare, &s.batch, &loss, &error);
    check_error(status, BY_ESTATE, &error, "losses only");
    by_trainer_close(&bare);
    close_setup(&s);
}

/* AdamW's first step moves each weight by lr * sign(g) (and decay), so lr shows in the weights. */
static void test_first_update(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    static const char *const settings[] = {"optimizer.lr=1e-3", "optimizer.weight_decay=0.1",
                                           "optimizer.schedule=constant", "optimizer.clip=0",
                                           "optimizer.eps=1e-20"};
    setup s;
    by_step_result result;
    open_setup(&s, settings, 5);
    size_t count = by_trainer_parameter_count(s.trainer);
    float **before = calloc(count, sizeof *before);
    assert_non_null(before);
    for (size_t i = 0; i < count; i++) {
        by_tensor_view view = by_trainer_parameter(s.trainer, i);
        before[i] = malloc(count_of(&view) * sizeof(float));
        assert_non_null(before[i]);
        memcpy(before[i], view.data, count_of(&view) * sizeof(float));
    }
    check_ok(by_trainer_step(s.trainer, &s.batch, &result, &error), &error);
    for (size_t i = 0; i < count; i++) {
        by_tensor_view view = by_trainer_parameter(s.trainer, i);
        by_tensor_view gradient = by_trainer_gradient(s.trainer, i);
        double decay = view.rank >= 2 ? 0.1 : 0.0;
        for (size_t k = 0; k < count_of(&view); k++) {
            double g = (double)((const float *)gradient.data)[k];
            double want = (double)before[i][k] * (1.0 - 1e-3 * decay) -
                          (fabs(g) < 1e-12 ? 0.0 : copysign(1e-3, g));
            if (fabs(g) >= 1e-12 || g == 0.0) {
                assert_true(fabs((double)((const float *)view.data)[k] - want) < 1e-6);
            }
        }
        free(before[i]);
    }
    free(before);
    close_setup(&s);
}

static by_status build_frozen(void *user, by_model *out, by_graph *graph,
                              const by_model_config *config, const by_model_request *request,
                              by_error *error)
{
    BY_UNUSED(user);
    BY_TRY(by_model_build(out, graph, config, request, error));
    by_graph_freeze(graph, by_graph_find(graph, "h.0.mlp.c_fc.weight"));
    by_graph_freeze(graph, by_graph_find(graph, "h.1.ln_1.bias"));
    return by_graph_check(graph, error);
}

/* Frozen parameters stay, have no gradient and no state, and take no memory for them; the gradients
 * of the others are those of the whole model. */
static void test_frozen(void **state)
{
    BY_UNUSED(state);
    static const char *const computes[] = {"precision.compute=f32", "precision.compute=bf16"};
    for (size_t k = 0; k < 2; k++) {
        by_error error = {0};
        setup s;
        by_trainer *trainer;
        by_trainer_options options = {.builder = build_frozen};
        by_step_result result;
        double loss;
        open_setup(&s, &computes[k], 1);
        check_ok(by_trainer_open(&trainer, s.config, &options, &error), &error);
        check_ok(by_trainer_allocate(trainer, &error), &error);
        check_ok(by_trainer_initialize(trainer, &error), &error);
        check_ok(by_trainer_gradients(s.trainer, &s.batch, &loss, &error), &error);
        check_ok(by_trainer_gradients(trainer, &s.batch, &loss, &error), &error);
        size_t frozen = 0;
        for (size_t i = 0; i < by_trainer_parameter_count(trainer); i++) {
            by_tensor_view want = by_trainer_gradient(s.trainer, i);
            by_tensor_view have = by_trainer_gradient(trainer, i);
            if (have.rank < 0) {
                frozen++;
                assert_int_equal(by_trainer_state(trainer, i, 0).rank, -1);
                assert_true(strstr(have.name, "c_fc.weight") != NULL ||
                            strstr(have.name, "ln_1.bias") != NULL);
            } else {
                assert_memory_equal(have.data, want.data, count_of(&want) * sizeof(float));
            }
        }
        assert_int_equal(frozen, 2);
        assert_true(by_trainer_memory(trainer)->optimizer <
                    by_trainer_memory(s.trainer)->optimizer);
        check_ok(by_trainer_step(trainer, &s.batch, &result, &error), &error);
        check_ok(by_trainer_step(trainer, &s.batch, &result, &error), &error);
        for (size_t i = 0; i < by_trainer_parameter_count(trainer); i++) {
            by_tensor_view before = by_trainer_parameter(s.trainer, i); /* not stepped */
            by_tensor_view after = by_trainer_parameter(trainer, i);
            bool same = memcmp(before.data, after.data, count_of(&after) * sizeof(float)) == 0;
            assert_true(same == (by_trainer_gradient(trainer, i).rank < 0));
        }
        by_trainer_close(&trainer);
        close_setup(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accumulation_is_the_tree),
        cmocka_unit_test(test_dropout_and_splits),
        cmocka_unit_test(test_dropout_depends_on_step_and_seed),
        cmocka_unit_test(test_bad_step_changes_nothing),
        cmocka_unit_test(test_planned_bytes),
        cmocka_unit_test(test_calls_in_the_wrong_order),
        cmocka_unit_test(test_first_update),
        cmocka_unit_test(test_frozen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
