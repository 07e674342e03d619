/* Parameters with rates of their own, and frozen ones: what a step does to each, and that ranks and
 * the disk show in no bit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/paths.h"
#include "rank_job.h"
#include "runner.h"

#define BATCH 6
#define TIME  8

/* ---- one step of plain descent: what it subtracts is lr times the gradient ---- */

typedef struct stepped {
    by_config *config;
    by_trainer *trainer;
    float **before; /* of each parameter */
} stepped;

/* clang-format off */
static const char *const small[] = {
    "model.kind=gpt2", "model.layers=3", "model.heads=2", "model.width=16", "model.context=8",
    "model.vocab=29", "train.batch=6", "train.micro_batch=3", "train.steps=100",
    "optimizer.schedule=constant", "optimizer.warmup=0", "optimizer.clip=0", "optimizer.lr=0.5",
    "optimizer.weight_decay=0",
};
/* clang-format on */
#define PLAIN "optimizer.kind=sgd", "optimizer.momentum=0"

static by_status open_trainer(stepped *s, const char *const *more, by_error *error)
{
    *s = (stepped){0};
    BY_TRY(by_config_default(&s->config, error));
    BY_TRY(by_config_set(s->config, "precision.compute=f32", error));
    for (size_t i = 0; i < BY_ARRAY_LENGTH(small); i++) {
        BY_TRY(by_config_set(s->config, small[i], error));
    }
    for (; more != NULL && *more != NULL; more++) {
        BY_TRY(by_config_set(s->config, *more, error));
    }
    BY_TRY(by_config_resolve(s->config, error));
    return by_trainer_open(&s->trainer, s->config, NULL, error);
}

static size_t count_of(const by_tensor_view *view)
{
    size_t count;
    assert_int_equal(by_tensor_size(view, &count, NULL, NULL), BY_OK);
    return count;
}

static void step(stepped *s, const char *const *more)
{
    by_error error = {0};
    by_array arrays[2];
    int32_t tokens[BATCH * TIME];
    int32_t targets[BATCH * TIME];
    by_step_result result;
    check_ok(open_trainer(s, more, &error), &error);
    check_ok(by_trainer_allocate(s->trainer, &error), &error);
    check_ok(by_trainer_initialize(s->trainer, &error), &error);
    size_t parameters = by_trainer_parameter_count(s->trainer);
    s->before = calloc(parameters, sizeof *s->before);
    assert_non_null(s->before);
    for (size_t i = 0; i < parameters; i++) {
        by_tensor_view view = by_trainer_parameter(s->trainer, i);
        s->before[i] = malloc(count_of(&view) * sizeof(float));
        assert_non_null(s->before[i]);
        memcpy(s->before[i], view.data, count_of(&view) * sizeof(float));
    }
    for (int i = 0; i < BATCH * TIME; i++) {
        tokens[i] = i * 7 % 29;
        targets[i] = i * 11 % 29;
    }
    by_batch batch = by_batch_of_tokens(arrays, tokens, targets, BATCH, TIME);
    check_ok(by_trainer_step(s->trainer, &batch, &result, &error), &error);
}

static void close_stepped(stepped *s)
{
    for (size_t i = 0; s->before != NULL && i < by_trainer_parameter_count(s->trainer); i++) {
        free(s->before[i]);
    }
    free(s->before);
    by_trainer_close(&s->trainer);
    by_config_close(&s->config);
}

/* p(before) (1 - kept) - p(after) = rate g, of every element of a parameter. */
static void check_rate(const stepped *s, size_t i, double rate, double decay)
{
    by_tensor_view after = by_trainer_parameter(s->trainer, i);
    by_tensor_view gradient = by_trainer_gradient(s->trainer, i);
    for (size_t k = 0; k < count_of(&after); k++) {
        double p = (double)s->before[i][k];
        double want = p - rate * decay * p - rate * (double)((const float *)gradient.data)[k];
        double have = (double)((const float *)after.data)[k];
        if (fabs(have - want) > 1e-7 + 1e-6 * fabs(want)) {
            fail_msg("%s[%zu] is %g, not %g", after.name, k, have, want);
        }
    }
}

/* The first group that matches a name counts, and the others have the run's rates. */
static void test_rates(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {
        PLAIN,
        ("optimizer.groups=[{match: h.1.*.bias, lr_scale: 0.5, weight_decay: 0.3}, "
         "{match: \"*.bias\", lr_scale: 2}, {match: \"*.ln_?.weight\", weight_decay: 0.2}]"),
        "optimizer.weight_decay=0.1", NULL};
    stepped s;
    step(&s, settings);
    size_t groups[4] = {0};
    for (size_t i = 0; i < by_trainer_parameter_count(s.trainer); i++) {
        by_tensor_view view = by_trainer_parameter(s.trainer, i);
        bool bias = by__ends_with(view.name, ".bias");
        int group = bias && strncmp(view.name, "h.1.", 4) == 0           ? 0
                    : bias                                               ? 1
                    : view.rank == 1 && strncmp(view.name, "h.", 2) == 0 ? 2
                                                                         : 3;
        static const double scales[] = {0.5, 2.0, 1.0, 1.0};
        double decay = group == 0 ? 0.3 : group == 2 ? 0.2 : view.rank > 1 ? 0.1 : 0.0;
        check_rate(&s, i, 0.5 * scales[group], decay);
        groups[group]++;
    }
    assert_true(groups[0] == 6 && groups[1] == 13 && groups[2] == 6 && groups[3] == 15);
    close_stepped(&s);
}

/* The length of the way that a parameter went. */
static double way_of(const stepped *s, const char *name)
{
    double sum = 0.0;
    for (size_t i = 0; i < by_trainer_parameter_count(s->trainer); i++) {
        by_tensor_view after = by_trainer_parameter(s->trainer, i);
        for (size_t k = 0; by__ends_with(after.name, name) && k < count_of(&after); k++) {
            double way = (double)((const float *)after.data)[k] - (double)s->before[i][k];
            sum += way * way;
        }
    }
    return sqrt(sum);
}

/* Jordan's scale of Muon is that of outputs and inputs: the matrix that makes four times as many
 * takes a step twice as long, stored as [inputs, outputs] (GPT-2) or the other way round. */
static void test_way_round(void **state)
{
    BY_UNUSED(state);
    static const struct {
        const char *kind;
        const char *up;
        const char *down;
    } rows[] = {{"model.kind=gpt2", "mlp.c_fc.weight", "mlp.c_proj.weight"},
                {"model.kind=llama", "mlp.up_proj.weight", "mlp.down_proj.weight"}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        const char *const settings[] = {rows[i].kind, "optimizer.kind=muon",
                                        "optimizer.scale=original",
                                        i == 1 ? "model.mlp_width=64" : "model.heads=2", NULL};
        stepped s;
        step(&s, settings);
        double ratio = way_of(&s, rows[i].up) / way_of(&s, rows[i].down);
        assert_true(ratio > 1.6 && ratio < 2.5);
        close_stepped(&s);
    }
}

static void test_layer_decay(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {PLAIN, "optimizer.layer_decay=0.5",
                                           "optimizer.groups=[{match: h.2.*, lr_scale: 3}]", NULL};
    stepped s;
    step(&s, settings);
    for (size_t i = 0; i < by_trainer_parameter_count(s.trainer); i++) {
        const char *name = by_trainer_parameter(s.trainer, i).name;
        int block = strncmp(name, "h.", 2) == 0 ? name[2] - '0' : -1;
        double scale = block == 2                      ? 0.5 * 3.0
                       : block >= 0                    ? pow(0.5, 3 - block)
                       : strncmp(name, "ln_f", 4) == 0 ? 1.0
                                                       : pow(0.5, 4); /* embeddings */
        check_rate(&s, i, 0.5 * scale, 0.0);
    }
    close_stepped(&s);
}

/* ---- frozen parameters ---- */

static void test_frozen(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {
        "optimizer.groups=[{match: wte.weight, frozen: true}, {match: wpe.*, frozen: true}, "
        "{match: h.0.*, frozen: true}]",
        "optimizer.kind=adamw", NULL};
    static const char *const adamw[] = {"optimizer.kind=adamw", NULL};
    stepped whole;
    stepped s;
    uint64_t frozen = 0;
    step(&whole, adamw);
    step(&s, settings);
    for (size_t i = 0; i < by_trainer_parameter_count(s.trainer); i++) {
        by_tensor_view view = by_trainer_parameter(s.trainer, i);
        by_tensor_view gradient = by_trainer_gradient(s.trainer, i);
        size_t bytes = count_of(&view) * sizeof(float);
        bool is_frozen = view.name[0] == 'w' || strncmp(view.name, "h.0.", 4) == 0;
        frozen += is_frozen ? bytes : 0;
        assert_int_equal(gradient.rank < 0, is_frozen);
        assert_int_equal(by_trainer_state(s.trainer, i, 0).rank < 0, is_frozen);
        assert_int_equal(memcmp(view.data, s.before[i], bytes) == 0, is_frozen);
        if (!is_frozen) {
            by_tensor_view want = by_trainer_gradient(whole.trainer, i);
            assert_memory_equal(gradient.data, want.data, bytes);
        }
    }
    const by_memory_report *less = by_trainer_memory(s.trainer);
    const by_memory_report *more = by_trainer_memory(whole.trainer);
    assert_true(less->spared >= 3 * frozen);
    assert_true(less->spared <=
                more->gradients + more->optimizer - less->gradients - less->optimizer);
    assert_true(more->spared == 0);
    /* The backward pass ends where nothing before it is trained. */
    assert_true(less->activations < more->activations);
    assert_true(by_trainer_size(s.trainer)->frozen == (int64_t)(frozen / sizeof(float)));
    close_stepped(&s);
    close_stepped(&whole);
}

/* What exchanges keep is no state of the optimizer: a frozen tensor spares nothing of it. */
static void test_frozen_with_exchanges(void **state)
{
    BY_UNUSED(state);
    static const char *const exchanges[] = {"sync.every=50", "sync.compress=int8"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(exchanges); i++) {
        const char *const settings[] = {"optimizer.groups=[{match: wte.weight, frozen: true}]",
                                        "optimizer.kind=adamw", exchanges[i], NULL};
        by_error error = {0};
        stepped s;
        if (open_trainer(&s, settings, &error) != BY_OK) {
            fail_msg("%s", error.message);
        }
        assert_true(by_trainer_size(s.trainer)->frozen > 0);
        close_stepped(&s);
    }
}

static void refused(const char *groups, const char *message)
{
    const char *const settings[] = {groups, NULL};
    by_error error = {0};
    stepped s;
    assert_int_equal(open_trainer(&s, settings, &error), BY_ECONFIG);
    if (strstr(error.message, message) == NULL) {
        fail_msg("%s", error.message);
    }
    by_config_close(&s.config);
}

static void test_mistakes(void **state)
{
    BY_UNUSED(state);
    refused("optimizer.groups=[{match: h.1.ln_1.wieght, lr_scale: 2}]",
            "\"h.1.ln_1.wieght\" matches no parameter; the nearest are h.1.ln_1.weight, ");
    refused("optimizer.groups=[{match: h.1.*}, {match: h.1.ln_1.bias, lr_scale: 2}]",
            "everything that \"h.1.ln_1.bias\" matches belongs to earlier groups");
    char *many = calloc(60000, 20);
    assert_non_null(many);
    size_t length = (size_t)sprintf(many, "optimizer.groups=[{match: g0}");
    for (int i = 1; i < 60000; i++) {
        length += (size_t)sprintf(many + length, ", {match: g%d}", i);
    }
    many[length] = ']';
    refused(many, "optimizer.groups: 60000 groups are more than the model's ");
    free(many);
    const char *const all[] = {"optimizer.groups=[{match: \"*\", frozen: true}]", NULL};
    by_error error = {0};
    stepped s;
    assert_int_equal(open_trainer(&s, all, &error), BY_EARG);
    assert_string_equal(error.message, "all parameters are frozen: there is nothing to train");
    by_config_close(&s.config);
}

/* ---- ranks and disk ---- */

#define RATES                                                                                      \
    ("optimizer.groups=[{match: \"*.bias\", lr_scale: 2, weight_decay: 0.2}, "                     \
     "{match: wpe.*, frozen: true}, {match: h.0.mlp.*, frozen: true}]"),                           \
        "optimizer.layer_decay=0.7"
#define FROZEN "optimizer.groups=[{match: wpe.*, frozen: true}, {match: h.0.*, frozen: true}]"

static void test_ranks(void **state)
{
    BY_UNUSED(state);
    static const int ranks[] = {2, 4};
    static const int three[] = {3};
    static const char *const data[] = {RATES, NULL};
    static const char *const bf16[] = {RATES, "precision.compute=bf16", "parallel.shard=2", NULL};
    static const char *const lion[] = {RATES, "optimizer.kind=lion", "parallel.shard=3", NULL};
    rank_job_compare(ranks, BY_ARRAY_LENGTH(ranks), data);
    rank_job_compare(ranks, BY_ARRAY_LENGTH(ranks), bf16);
    rank_job_compare(three, BY_ARRAY_LENGTH(three), lion);
}

static void test_frozen_by_ranks(void **state)
{
    BY_UNUSED(state);
    static const int ranks[] = {2, 4};
    static const char *const stages[] = {"parallel.zero=1", "parallel.zero=2", "parallel.zero=3"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(stages); i++) {
        const char *const f32[] = {FROZEN, stages[i], "parallel.shard=2", NULL};
        const char *const bf16[] = {FROZEN, stages[i], "parallel.shard=2", "precision.compute=bf16",
                                    NULL};
        rank_job_compare(ranks, BY_ARRAY_LENGTH(ranks), f32);
        rank_job_compare(ranks, BY_ARRAY_LENGTH(ranks), bf16);
    }
}

static void test_disk(void **state)
{
    BY_UNUSED(state);
    static const char *const memory[] = {RATES, "precision.compute=bf16", NULL};
    static const char *const disk[] = {RATES,
                                       "precision.compute=bf16",
                                       "offload.optimizer=disk",
                                       "offload.path=/tmp",
                                       "offload.buffer_mib=0.01",
                                       NULL};
    rank_job_agree(memory, 1, disk);
#define CODES RATES, "optimizer.kind=adamw8bit", "model.vocab=2500"
    static const char *const codes[] = {CODES, NULL};
    static const char *const codes_on_disk[] = {
        CODES, "offload.optimizer=disk", "offload.path=/tmp", "offload.buffer_mib=0.01", NULL};
    rank_job_agree(codes, 1, codes_on_disk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rates),       cmocka_unit_test(test_way_round),
        cmocka_unit_test(test_layer_decay), cmocka_unit_test(test_frozen),
        cmocka_unit_test(test_mistakes),    cmocka_unit_test(test_frozen_with_exchanges),
        cmocka_unit_test(test_ranks),       cmocka_unit_test(test_frozen_by_ranks),
        cmocka_unit_test(test_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
