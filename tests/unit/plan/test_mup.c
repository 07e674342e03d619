/* muP: initial values and learning rates by tensor against the paper's tables, what a step does to
 * a weight, ranks and disk, and the coordinate check with and without it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/plan.h"
#include "nn/nn.h"
#include "rank_job.h"
#include "runner.h"

static by_config *make(const char *const *settings)
{
    by_config *config;
    by_error error = {0};
    check_ok(by_config_default(&config, &error), &error);
    for (; *settings != NULL; settings++) {
        check_ok(by_config_set(config, *settings, &error), &error);
    }
    check_ok(by_config_resolve(config, &error), &error);
    return config;
}

/* ---- the table ---- */

typedef struct row {
    const char *name;
    double std;  /* relative to init_std; of a constant, the constant */
    double rate; /* relative to lr */
} row;

/* Width 128 instead of 32, heads of 32 instead of 8: m = 4, and the factor of queries is 1/2. */
#define SIZES                                                                                      \
    "model.width=128", "model.heads=4", "model.layers=2", "model.vocab=61",                        \
        "model.parameterisation=mup", "model.mup_base_width=32", "model.mup_base_head_dim=8"

static void check_rows(const char *const *settings, const row *rows, size_t count)
{
    by_config *config = make(settings);
    by_error error = {0};
    by_graph *graph;
    by_model model;
    const by_model_request request = {.mode = BY_MODEL_TRAIN, .batch = 2, .time = 8};
    check_ok(by_graph_open(&graph, &error), &error);
    check_ok(by_model_build(&model, graph, &config->model, &request, &error), &error);
    assert_true(fabs(config->model.init_std - sqrt(2.0 / (5.0 * 32.0))) < 1e-12);
    for (size_t i = 0; i < count; i++) {
        by_value v = by_graph_find(graph, rows[i].name);
        assert_int_not_equal(v, BY_NONE);
        const by__graph_value *value = &graph->values[v];
        double std = value->init.kind == BY_INIT_ONE    ? 1.0
                     : value->init.kind == BY_INIT_ZERO ? 0.0
                     : value->init.kind == BY_INIT_NORMAL
                         ? (double)value->init.std / config->model.init_std
                         : (double)value->init.std;
        if (fabs(std - rows[i].std) > 1e-6 || fabs((double)value->lr_scale - rows[i].rate) > 1e-6) {
            fail_msg("%s: deviation %g, rate %g", rows[i].name, std, (double)value->lr_scale);
        }
        if (value->init.kind == BY_INIT_CONSTANT) {
            float *data = malloc(128 * sizeof *data);
            assert_non_null(data);
            check_ok(by_parameter_init(data, graph, v, 1, &error), &error);
            assert_true(data[0] == value->init.std &&
                        data[by_shape_count(&value->shape) - 1] == value->init.std);
            free(data);
        }
    }
    by_graph_close(&graph);
    by_config_close(&config);
}

static void test_table(void **state)
{
    BY_UNUSED(state);
    const double half = sqrt(0.5); /* queries, keys and values are one matrix */
    static const char *const gpt2[] = {"model.kind=gpt2", SIZES, NULL};
    const row gpt2_rows[] = {
        {"wte.weight", 1.0, 1.0},
        {"wpe.weight", 1.0, 1.0},
        {"h.0.ln_1.weight", 1.0, 1.0},
        {"h.0.attn.c_attn.weight", 0.5 * half, 0.25 * half},
        {"h.0.attn.c_attn.bias", 0.0, half},
        {"h.0.attn.c_proj.weight", 0.5 / half / 2.0, 0.25 / half}, /* / 2: of two layers */
        {"h.0.attn.c_proj.bias", 0.0, 1.0},
        {"h.1.mlp.c_fc.weight", 0.5, 0.25},
        {"h.1.mlp.c_proj.weight", 0.25, 0.25},
        {"h.1.mlp.c_proj.bias", 0.0, 1.0},
        {"ln_f.weight", 0.25, 0.25}, /* the tied head's factor */
        {"ln_f.bias", 0.0, 0.25},
    };
    static const char *const llama[] = {"model.kind=llama", SIZES, "model.qk_norm=true",
                                        "model.kv_heads=2", NULL};
    const row llama_rows[] = {
        {"model.embed_tokens.weight", 1.0, 1.0},
        {"lm_head.weight", 0.25, 0.25},
        {"model.norm.weight", 1.0, 1.0},
        {"model.layers.0.self_attn.q_proj.weight", 0.25, 0.125},
        {"model.layers.0.self_attn.q_norm.weight", 0.5, 0.5},
        {"model.layers.0.self_attn.k_proj.weight", 0.5, 0.25},
        {"model.layers.1.self_attn.o_proj.weight", 0.25, 0.25},
        {"model.layers.1.mlp.gate_proj.weight", 0.5, 0.25},
        {"model.layers.1.mlp.down_proj.weight", 0.25, 0.25},
    };
    static const char *const mixtral[] = {"model.kind=mixtral", SIZES, "model.experts=4", NULL};
    const row mixtral_rows[] = {
        {"model.layers.0.block_sparse_moe.gate.weight", 0.25, 0.25},
        {"model.layers.0.block_sparse_moe.experts.*.w1.weight", 0.5, 0.25},
        {"model.layers.0.block_sparse_moe.experts.*.w2.weight", 0.25, 0.25},
    };
    check_rows(gpt2, gpt2_rows, BY_ARRAY_LENGTH(gpt2_rows));
    check_rows(llama, llama_rows, BY_ARRAY_LENGTH(llama_rows));
    check_rows(mixtral, mixtral_rows, BY_ARRAY_LENGTH(mixtral_rows));
}

/* ---- a step ---- */

#define BATCH 4
#define TIME  8

/* Lion's first step is lr * scale * sign(g), and the decay that of the unscaled rate. */
static void test_step(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {"model.kind=gpt2",
                                           SIZES,
                                           "model.context=8",
                                           "train.batch=4",
                                           "train.steps=10",
                                           "optimizer.kind=lion",
                                           "optimizer.lr=0.01",
                                           "optimizer.warmup=0",
                                           "optimizer.clip=0",
                                           "optimizer.schedule=constant",
                                           "optimizer.weight_decay=0.5",
                                           "precision.compute=f32",
                                           NULL};
    by_config *config = make(settings);
    by_error error = {0};
    by_trainer *trainer;
    by_array arrays[2];
    int32_t tokens[BATCH * TIME];
    int32_t targets[BATCH * TIME];
    by_step_result result;
    check_ok(by_trainer_open(&trainer, config, NULL, &error), &error);
    check_ok(by_trainer_allocate(trainer, &error), &error);
    check_ok(by_trainer_initialize(trainer, &error), &error);
    for (int i = 0; i < BATCH * TIME; i++) {
        tokens[i] = i * 7 % 61;
        targets[i] = i * 11 % 61;
    }
    size_t count = by_trainer_parameter_count(trainer);
    float *before = malloc(count * sizeof *before); /* the first element of each */
    assert_non_null(before);
    for (size_t i = 0; i < count; i++) {
        before[i] = *(const float *)by_trainer_parameter(trainer, i).data;
    }
    by_batch batch = by_batch_of_tokens(arrays, tokens, targets, BATCH, TIME);
    check_ok(by_trainer_step(trainer, &batch, &result, &error), &error);
    for (size_t i = 0; i < count; i++) {
        by_tensor_view view = by_trainer_parameter(trainer, i);
        double g = (double)*(const float *)by_trainer_gradient(trainer, i).data;
        double scale = strstr(view.name, "c_attn") != NULL
                           ? sqrt(0.5) * (view.rank > 1 ? 0.25 : 1.0)
                       : strstr(view.name, "attn.c_proj.weight") != NULL   ? 0.25 / sqrt(0.5)
                       : strstr(view.name, "ln_f") != NULL                 ? 0.25
                       : strstr(view.name, "mlp") != NULL && view.rank > 1 ? 0.25
                                                                           : 1.0;
        double sign = g > 0.0 ? 1.0 : g < 0.0 ? -1.0 : 0.0;
        double p = (double)before[i];
        double want = p - 0.01 * scale * sign - (view.rank > 1 ? 0.01 * 0.5 * p : 0.0);
        double have = (double)*(const float *)view.data;
        if (fabs(have - want) > 1e-7) {
            fail_msg("%s is %g, not %g", view.name, have, want);
        }
    }
    free(before);
    by_trainer_close(&trainer);
    by_config_close(&config);
}

/* ---- what it is not for ---- */

static void test_refused(void **state)
{
    BY_UNUSED(state);
    static const char *const sgd[] = {"model.kind=gpt2", SIZES, "optimizer.kind=sgd", NULL};
    by_config *config = make(sgd);
    by_error error = {0};
    by_trainer *trainer;
    check_error(by_trainer_open(&trainer, config, NULL, &error), BY_ECONFIG, &error,
                "are for adamw, adamw8bit, lion, not for sgd");
    by_config_close(&config);
    static const char *const lora[] = {"model.parameterisation=mup", "lora.rank=4"};
    check_ok(by_config_default(&config, &error), &error);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(lora); i++) {
        check_ok(by_config_set(config, lora[i], &error), &error);
    }
    check_error(by_config_resolve(config, &error), BY_ECONFIG, &error, "lora.rank is 4");
    by_config_close(&config);
}

/* ---- ranks and disk ---- */

#define RATES "model.parameterisation=mup", "model.mup_base_width=8", "model.mup_base_head_dim=4"

static void test_layouts(void **state)
{
    BY_UNUSED(state);
    static const int two[] = {2};
    static const char *const sharded[] = {RATES, "parallel.shard=2", "parallel.zero=3", NULL};
    static const char *const memory[] = {RATES, NULL};
    static const char *const disk[] = {RATES, "offload.optimizer=disk", "offload.path=/tmp",
                                       "offload.buffer_mib=0.01", NULL};
    rank_job_compare(two, BY_ARRAY_LENGTH(two), sharded);
    rank_job_agree(memory, 1, disk);
}

/* ---- the coordinate check ---- */

static by_coordinates *check_coordinates(const char *parameterisation, const char *kind,
                                         const char *tied)
{
    const char *const settings[] = {kind,
                                    tied,
                                    parameterisation,
                                    "model.mup_base_width=32",
                                    "model.width=32",
                                    "model.heads=2",
                                    "model.layers=2",
                                    "model.context=16",
                                    "model.vocab=64",
                                    "optimizer.lr=0.01",
                                    "precision.compute=f32",
                                    NULL};
    static const int64_t widths[] = {32, 64, 128, 256};
    const by_coordinate_options options = {
        .widths = widths, .width_count = BY_ARRAY_LENGTH(widths), .steps = 4, .seeds = 2};
    by_coordinates *c;
    by_error error = {0};
    by_config *config = make(settings);
    check_ok(by_coordinates_measure(&c, config, &options, &error), &error);
    by_config_close(&config);
    assert_string_equal(c->names[0], "block.0");
    assert_string_equal(c->names[c->name_count - 1], "logits' change");
    return c;
}

/* Widths that leave a part of a head, and models without tokens. */
static void test_no_coordinates(void **state)
{
    BY_UNUSED(state);
    static const char *const sizes[] = {"model.kind=gpt2", "model.vocab=64", "model.width=32",
                                        "model.heads=4", NULL};
    static const int64_t widths[] = {32, 36};
    const by_coordinate_options options = {
        .widths = widths, .width_count = BY_ARRAY_LENGTH(widths), .steps = 1, .seeds = 1};
    by_coordinates *c;
    by_error error = {0};
    by_config *config = make(sizes);
    check_error(by_coordinates_measure(&c, config, &options, &error), BY_EARG, &error,
                "width 36: model.heads is 4 at width 32, and does not become whole; take "
                "multiples of 8");
    check_ok(by_config_set(config, "model.kind=mlp", &error), &error);
    check_error(by_coordinates_measure(&c, config, &options, &error), BY_ECONFIG, &error,
                "is for models of tokens, such as model.kind gpt2 or llama; model.kind mlp reads");
    by_config_close(&config);
}

static void test_coordinates(void **state)
{
    BY_UNUSED(state);
    static const char *const models[][2] = {{"model.kind=gpt2", "model.tied=true"},
                                            {"model.kind=llama", "model.tied=false"}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(models); i++) {
        by_coordinates *c =
            check_coordinates("model.parameterisation=mup", models[i][0], models[i][1]);
        assert_false(c->grows);
        by_coordinates_close(&c);
        c = check_coordinates("model.parameterisation=standard", models[i][0], models[i][1]);
        assert_true(c->grows);
        by_coordinates_close(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),       cmocka_unit_test(test_step),
        cmocka_unit_test(test_refused),     cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_coordinates), cmocka_unit_test(test_no_coordinates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
