/* Adapters (LoRA): what they add to a product, how they start, what is trained, and that neither
 * ranks nor the memory's settings show in a bit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/passes.h"
#include "rank_job.h"
#include "runner.h"

#define COUNT(list) BY_ARRAY_LENGTH(list)

/* clang-format off */
static const char *const small[] = {
    "model.layers=2", "model.heads=2", "model.width=16", "model.context=8", "model.vocab=29",
    "train.batch=6", "train.micro_batch=3", "train.steps=100", "optimizer.schedule=constant",
    "optimizer.warmup=0", "optimizer.lr=0.01", NULL,
};
/* clang-format on */

/* ---- the pass, against weights that have the adapter in them ---- */

static by_graph *model_graph(const by_config *config, by_lora_options *options)
{
    by_error error = {0};
    by_model model;
    const by_model_request request = {.mode = BY_MODEL_LOGITS, .batch = 2, .time = 8};
    by_graph *graph = open_graph();
    check_ok(by_model_build(&model, graph, &config->model, &request, &error), &error);
    if (options != NULL) {
        options->head = model.head;
        check_ok(by_pass_lora(graph, options, &error), &error);
    }
    check_ok(by_graph_verify(graph, &error), &error);
    return graph;
}

/* W += scale B A, in the shape of the parameter `name`; false: it has no adapter. */
static bool merge(float *w, const runner *r, const by_value_info *info, double scale)
{
    char a_name[200];
    char b_name[200];
    size_t stem = strlen(info->name) - strlen("weight");
    (void)snprintf(a_name, sizeof a_name, "%.*slora_A.weight", (int)stem, info->name);
    (void)snprintf(b_name, sizeof b_name, "%.*slora_B.weight", (int)stem, info->name);
    by_value value = by_graph_find(r->graph, a_name);
    if (info->shape.rank != 2 || value == BY_NONE) {
        return false;
    }
    const float *a = runner_data(r, a_name);
    const float *b = runner_data(r, b_name);
    size_t rank = (size_t)r->graph->values[value].shape.dim[0];
    size_t in = (size_t)r->graph->values[value].shape.dim[1];
    size_t out = runner_count(r, b_name) / rank;
    bool in_out = strstr(info->name, "attn.c_") != NULL || strstr(info->name, "mlp.c_") != NULL;
    for (size_t o = 0; o < out; o++) {
        for (size_t i = 0; i < in; i++) {
            double sum = 0.0;
            for (size_t k = 0; k < rank; k++) {
                sum += (double)b[o * rank + k] * (double)a[k * in + i];
            }
            w[in_out ? i * out + o : o * in + i] += (float)(scale * sum);
        }
    }
    return true;
}

static size_t check_merged(const char *kind, const char *const *targets, size_t count)
{
    const char *const settings[] = {kind, NULL};
    by_config *config = config_of(small, settings);
    by_lora_options options = {
        .rank = 3, .scale = 1.75f, .rng = BY_NONE, .targets = targets, .target_count = count};
    by_graph *adapted = model_graph(config, &options);
    by_graph *plain = model_graph(config, NULL);
    size_t merged = 0;
    runner with, without;
    runner_open(&with, adapted, 1);
    runner_open(&without, plain, 1);
    runner_fill(&with, 5, 29);
    runner_fill(&without, 5, 29);
    for (by_value v = 0; v < by_graph_value_count(plain); v++) {
        by_value_info info;
        assert_int_equal(by_graph_value(plain, v, &info, NULL), BY_OK);
        if (info.role == BY_ROLE_PARAMETER) {
            merged += merge(runner_data(&without, info.name), &with, &info, 1.75) ? 1 : 0;
        }
    }
    runner_run(&with);
    runner_run(&without);
    double distance =
        relative_distance(runner_data(&with, "logits"), runner_data(&without, "logits"),
                          runner_count(&with, "logits"));
    assert_true(distance < 1e-5);
    runner_fill(&without, 5, 29); /* the adapters do change the logits */
    runner_run(&without);
    distance = relative_distance(runner_data(&with, "logits"), runner_data(&without, "logits"),
                                 runner_count(&with, "logits"));
    assert_true(distance > 1e-2);
    runner_close(&with);
    runner_close(&without);
    by_graph_close(&adapted);
    by_graph_close(&plain);
    by_config_close(&config);
    return merged;
}

static void test_sum(void **state)
{
    BY_UNUSED(state);
    static const char *const packed[] = {"c_attn"};
    static const char *const both[] = {"attn.c_proj", "h.1.mlp.*"};
    static const char *const all[] = {"all-linear"};
    static const char *const q_and_v[] = {"q_proj", "v_proj"};
    static const char *const query_and_value[] = {"query", "attention.self.value"};
    assert_int_equal(check_merged("model.kind=gpt2", packed, COUNT(packed)), 2);
    assert_int_equal(check_merged("model.kind=gpt2", both, COUNT(both)), 4);
    assert_int_equal(check_merged("model.kind=bert", query_and_value, COUNT(query_and_value)), 4);
    assert_int_equal(check_merged("model.kind=gpt2", all, COUNT(all)), 8);
    assert_int_equal(check_merged("model.kind=llama", q_and_v, COUNT(q_and_v)), 4);
    assert_int_equal(check_merged("model.kind=llama", all, COUNT(all)), 14);
}

/* ---- training ---- */

#define RANK4 "lora.rank=4", "lora.alpha=8"

typedef struct stepped {
    by_config *config;
    by_trainer *trainer;
} stepped;

static by_status open_stepped(stepped *s, const char *const *settings, by_error *error)
{
    *s = (stepped){0};
    BY_TRY(by_config_default(&s->config, error));
    BY_TRY(by_config_set(s->config, "precision.compute=f32", error));
    for (size_t i = 0; small[i] != NULL; i++) {
        BY_TRY(by_config_set(s->config, small[i], error));
    }
    for (; *settings != NULL; settings++) {
        BY_TRY(by_config_set(s->config, *settings, error));
    }
    BY_TRY(by_config_resolve(s->config, error));
    return by_trainer_open(&s->trainer, s->config, NULL, error);
}

static void start(stepped *s, const char *const *settings)
{
    by_error error = {0};
    check_ok(open_stepped(s, settings, &error), &error);
    check_ok(by_trainer_allocate(s->trainer, &error), &error);
    check_ok(by_trainer_initialize(s->trainer, &error), &error);
}

static void close_stepped(stepped *s)
{
    by_trainer_close(&s->trainer);
    by_config_close(&s->config);
}

/* The batch of every step. */
static void make_tokens(int32_t tokens[48], int32_t targets[48])
{
    for (int i = 0; i < 48; i++) {
        tokens[i] = i * 7 % 29;
        targets[i] = i * 11 % 29;
    }
}

static by_step_result take_step(stepped *s)
{
    by_error error = {0};
    by_array arrays[2];
    int32_t tokens[48];
    int32_t targets[48];
    by_step_result result;
    make_tokens(tokens, targets);
    by_batch batch = by_batch_of_tokens(arrays, tokens, targets, 6, 8);
    check_ok(by_trainer_step(s->trainer, &batch, &result, &error), &error);
    return result;
}

static size_t count_of(const by_tensor_view *view)
{
    size_t count;
    assert_int_equal(by_tensor_size(view, &count, NULL, NULL), BY_OK);
    return count;
}

static by_tensor_view find(const stepped *s, const char *name)
{
    for (size_t i = 0; i < by_trainer_parameter_count(s->trainer); i++) {
        by_tensor_view view = by_trainer_parameter(s->trainer, i);
        if (strcmp(view.name, name) == 0) {
            return view;
        }
    }
    fail_msg("there is no parameter %s", name);
    return (by_tensor_view){0};
}

/* A starts as PyTorch's linear layers do, B with zeros, and the model is what it was. */
static void test_start(void **state)
{
    BY_UNUSED(state);
    static const char *const with[] = {RANK4, NULL};
    static const char *const without[] = {NULL};
    stepped s, plain;
    start(&s, with);
    start(&plain, without);
    by_tensor_view a = find(&s, "h.1.attn.c_attn.lora_A.weight");
    by_tensor_view b = find(&s, "h.1.attn.c_attn.lora_B.weight");
    assert_true(a.rank == 2 && a.shape[0] == 4 && a.shape[1] == 16);
    assert_true(b.rank == 2 && b.shape[0] == 48 && b.shape[1] == 4);
    const float *values = a.data;
    double mean = 0.0;
    double square = 0.0;
    for (size_t i = 0; i < 64; i++) {
        assert_true(fabsf(values[i]) <= 0.25f);
        mean += (double)values[i] / 64.0;
        square += (double)values[i] * (double)values[i] / 64.0;
    }
    assert_true(fabs(mean) < 0.05 && fabs(square - 0.0625 / 3.0) < 0.006);
    for (size_t i = 0; i < count_of(&b); i++) {
        assert_true(((const float *)b.data)[i] == 0.0f);
    }
    assert_true(take_step(&s).loss == take_step(&plain).loss);
    close_stepped(&s);
    close_stepped(&plain);
}

/* What is trained: the adapters, and what train_also names; only they have optimizer state. */
static void test_trained(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {RANK4, "lora.train_also=[ln_f.*]",
                                           "optimizer.kind=adamw", NULL};
    stepped s;
    start(&s, settings);
    size_t count = by_trainer_parameter_count(s.trainer);
    float **before = calloc(count, sizeof *before);
    assert_non_null(before);
    for (size_t i = 0; i < count; i++) {
        by_tensor_view view = by_trainer_parameter(s.trainer, i);
        before[i] = malloc(count_of(&view) * sizeof(float));
        assert_non_null(before[i]);
        memcpy(before[i], view.data, count_of(&view) * sizeof(float));
    }
    double first = take_step(&s).loss;
    double last = first;
    for (int i = 0; i < 20; i++) {
        last = take_step(&s).loss;
    }
    assert_true(last < first - 0.01);
    size_t trained = 0;
    size_t elements = 0;
    for (size_t i = 0; i < count; i++) {
        by_tensor_view view = by_trainer_parameter(s.trainer, i);
        bool expected = strstr(view.name, ".lora_") != NULL || strncmp(view.name, "ln_f.", 5) == 0;
        size_t bytes = count_of(&view) * sizeof(float);
        assert_int_equal(memcmp(view.data, before[i], bytes) != 0, expected);
        assert_int_equal(by_trainer_state(s.trainer, i, 0).rank >= 0, expected);
        trained += expected ? 1 : 0;
        elements += expected ? count_of(&view) : 0;
        free(before[i]);
    }
    free(before);
    assert_int_equal(trained, 4 + 2);
    const by_model_size *size = by_trainer_size(s.trainer);
    assert_int_equal((size_t)(size->parameters - size->frozen), elements);
    assert_int_equal((size_t)size->trained, elements);
    close_stepped(&s);
}

/* Every mask of the graph, of the model or of an adapter, has a stream of its own. */
static void test_streams(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[] = {RANK4, "lora.dropout=0.5", "model.dropout=0.1",
                                           "lora.targets=[all-linear]", NULL};
    by_config *config = config_of(small, settings);
    by_error error = {0};
    by_graph *graph;
    uint32_t streams[64];
    size_t count = 0;
    check_ok(by_train_graph(&graph, NULL, config, NULL, NULL, "forward", &error), &error);
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__graph_node *node = &graph->nodes[n];
        if (node->op == BY_OP_DROPOUT) {
            for (size_t i = 0; i < count; i++) {
                assert_true(streams[i] != node->attrs.stream);
            }
            assert_true(count < COUNT(streams));
            streams[count++] = node->attrs.stream;
        }
    }
    assert_int_equal(count, 5 + 8);
    by_graph_close(&graph);
    by_config_close(&config);
}

/* Dropout on the input of adapters does something. */
static void test_dropout(void **state)
{
    BY_UNUSED(state);
    static const char *const with[] = {RANK4, "lora.dropout=0.5", NULL};
    static const char *const without[] = {RANK4, NULL};
    stepped dropped, plain;
    start(&dropped, with);
    start(&plain, without);
    (void)take_step(&dropped);
    (void)take_step(&plain);
    by_tensor_view a = find(&dropped, "h.0.attn.c_attn.lora_B.weight");
    by_tensor_view b = find(&plain, "h.0.attn.c_attn.lora_B.weight");
    assert_true(memcmp(a.data, b.data, count_of(&a) * sizeof(float)) != 0);
    close_stepped(&dropped);
    close_stepped(&plain);
}

/* What the adapters add is multiplied by alpha / rank, or alpha / sqrt(rank): one step of plain
 * descent from B = 0 moves B in proportion. */
static void test_scale(void **state)
{
    BY_UNUSED(state);
#define PLAIN "optimizer.kind=sgd", "optimizer.momentum=0", "optimizer.clip=0", "lora.rank=4"
    static const char *const settings[][6] = {
        {PLAIN, NULL}, {PLAIN, "lora.alpha=8", NULL}, {PLAIN, "lora.rslora=true", NULL}};
    static const double scales[] = {1.0, 2.0, 2.0};
    float first[48 * 4];
    for (size_t i = 0; i < COUNT(settings); i++) {
        stepped s;
        start(&s, settings[i]);
        (void)take_step(&s);
        by_tensor_view b = find(&s, "h.1.attn.c_attn.lora_B.weight");
        const float *values = b.data;
        for (size_t k = 0; k < COUNT(first); k++) {
            first[k] = i == 0 ? values[k] : first[k];
            assert_true(fabs((double)values[k] - scales[i] * (double)first[k]) < 1e-6);
        }
        close_stepped(&s);
    }
    double most = 0.0;
    for (size_t k = 0; k < COUNT(first); k++) {
        most = fmax(most, fabs((double)first[k]));
    }
    assert_true(most > 1e-4);
}

/* The mean loss of the batch by the graph that evaluates, whose logits with adapters are those of
 * peft (tests/parity/check_peft.py). */
static double evaluated_loss(stepped *s)
{
    by_error error = {0};
    by_array arrays[2];
    int32_t tokens[48];
    int32_t targets[48];
    double sums[2];
    make_tokens(tokens, targets);
    for (int i = 0; i < 2; i++) {
        by_batch batch = by_batch_of_tokens(arrays, tokens + 24 * i, targets + 24 * i, 3, 8);
        check_ok(by_trainer_loss(s->trainer, &batch, &sums[i], &error), &error);
    }
    return (sums[0] + sums[1]) / 48.0;
}

/* The graph that is trained adds what the one that evaluates adds. */
static void test_graphs_agree(void **state)
{
    BY_UNUSED(state);
    static const char *const settings[][5] = {
        {"lora.rank=4", "lora.alpha=10", "optimizer.lr=0.05", NULL},
        {"lora.rank=3", "lora.alpha=5", "optimizer.lr=0.05", "lora.rslora=true", NULL}};
    for (size_t i = 0; i < COUNT(settings); i++) {
        stepped s;
        start(&s, settings[i]);
        double first = take_step(&s).loss;
        for (int k = 0; k < 3; k++) {
            double evaluated = evaluated_loss(&s);
            double trained = take_step(&s).loss;
            assert_true(fabs(evaluated - first) > 1e-3);
            if (fabs(evaluated - trained) > 1e-6) {
                fail_msg("%zu: step %d: %.9f trained, %.9f evaluated", i, k, trained, evaluated);
            }
        }
        close_stepped(&s);
    }
}

static void refused(const char *const *settings, by_status want, const char *message)
{
    by_error error = {0};
    stepped s;
    check_error(open_stepped(&s, settings, &error), want, &error, message);
    close_stepped(&s);
}

static void test_mistakes(void **state)
{
    BY_UNUSED(state);
    static const char *const target[] = {RANK4, "lora.targets=[q_proj]", NULL};
    static const char *const embedding[] = {RANK4, "lora.targets=[wte]", NULL};
    static const char *const also[] = {RANK4, "lora.train_also=[norm.*]", NULL};
    static const char *const tied[] = {RANK4, "lora.train_also=[wte.*]", NULL};
    static const char *const none[] = {"lora.targets=[c_attn]", NULL};
    static const char *const frozen[] = {
        RANK4, "optimizer.groups=[{match: \"*.lora_A.*\", frozen: true}]", NULL};
    refused(target, BY_ECONFIG,
            "lora.targets: \"q_proj\" names no linear layer; there are c_attn, c_proj, c_fc");
    refused(embedding, BY_ECONFIG, "\"wte\" names no linear layer");
    refused(also, BY_ECONFIG, "lora.train_also: \"norm.*\" matches no parameter");
    refused(tied, BY_ECONFIG,
            "lora.train_also matches wte.weight, the head, tied to the embedding");
    refused(none, BY_ECONFIG, "lora.rank is 0");
    static const char *const alone[] = {"lora.base=int8", NULL};
    static const char *const group[] = {RANK4, "lora.base=int4", "lora.base_group=48", NULL};
    static const char *const tensor[] = {RANK4, "lora.base=int4", "parallel.tensor=2", NULL};
    static const char *const disk[] = {RANK4, "lora.base=int4", "offload.optimizer=disk", NULL};
    refused(alone, BY_ECONFIG, "lora.base is int8, but lora.rank is 0");
    refused(group, BY_ECONFIG, "lora.base_group is 48; must be 32, 64 or 128");
    refused(tensor, BY_ECONFIG, "which parallel.tensor 2 cannot divide");
    refused(disk, BY_ECONFIG, "offload.optimizer disk moves weights to disk");
    refused(frozen, BY_ECONFIG, "optimizer.groups freezes h.0.attn.c_attn.lora_A.weight");
}

/* ---- frozen weights in codes ---- */

/* Adapters learn beside weights in codes, which do not change by a bit and take fewer bytes. */
static void check_coded_training(const char *base, size_t bits)
{
    const char *const settings[] = {
        RANK4, base, "lora.base_group=32", "lora.targets=[all-linear]", "model.width=64", NULL};
    stepped s;
    start(&s, settings);
    size_t count = by_trainer_parameter_count(s.trainer);
    char **before = calloc(count, sizeof *before);
    size_t coded = 0;
    size_t bytes_of_codes = 0;
    assert_non_null(before);
    for (size_t i = 0; i < count; i++) {
        by_tensor_view view = by_trainer_parameter(s.trainer, i);
        size_t bytes = count_of(&view) * by_dtype_size(view.dtype);
        before[i] = malloc(bytes);
        assert_non_null(before[i]);
        memcpy(before[i], view.data, bytes);
        coded += view.dtype == BY_U8;
        bytes_of_codes += view.dtype == BY_U8 ? bytes : 0;
    }
    assert_int_equal(coded, 8); /* of two blocks */
    /* One of 64 x 192, 64 x 64 and two of 64 x 256, each padded, with scales. */
    assert_true(bytes_of_codes < (size_t)2 * 12 * 64 * 64 * (bits + 8) / 8);
    double first = take_step(&s).loss;
    double last = first;
    for (int i = 0; i < 20; i++) {
        last = take_step(&s).loss;
    }
    assert_true(last < first - 0.01);
    assert_true(fabs(evaluated_loss(&s) - take_step(&s).loss) < 1e-6);
    for (size_t i = 0; i < count; i++) {
        by_tensor_view view = by_trainer_parameter(s.trainer, i);
        size_t bytes = count_of(&view) * by_dtype_size(view.dtype);
        bool trained = strstr(view.name, ".lora_") != NULL;
        assert_int_equal(memcmp(view.data, before[i], bytes) != 0, trained);
        free(before[i]);
    }
    free(before);
    close_stepped(&s);
}

static void test_coded_training(void **state)
{
    BY_UNUSED(state);
    check_coded_training("lora.base=int8", 8 * 2); /* padded to 128 inputs */
    check_coded_training("lora.base=int4", 4);
}

/* ---- ranks ---- */

#define ADAPTED RANK4, "lora.dropout=0.25", "lora.targets=[all-linear]"

static void test_ranks(void **state)
{
    BY_UNUSED(state);
    static const int ranks[] = {2, 4};
    static const char *const settings[][10] = {
        {ADAPTED},
        {ADAPTED, "precision.compute=bf16", "parallel.shard=2"},
        {ADAPTED, "parallel.zero=2", "parallel.shard=2", "memory.recompute=block"},
        {ADAPTED, "parallel.zero=3", "parallel.shard=2", "precision.compute=bf16"},
        {ADAPTED, "model.kind=llama", "precision.compute=bf16", "precision.weights=bf16"},
        {ADAPTED, "lora.base=int4", "lora.base_group=32"},
        {ADAPTED, "lora.base=int8", "parallel.zero=3", "parallel.shard=2"},
    };
    for (size_t i = 0; i < COUNT(settings); i++) {
        rank_job_compare(ranks, COUNT(ranks), settings[i]);
    }
}

static void test_recompute(void **state)
{
    BY_UNUSED(state);
    static const char *const kept[] = {ADAPTED, "precision.compute=bf16", NULL};
    static const char *const again[] = {ADAPTED, "precision.compute=bf16", "memory.recompute=full",
                                        NULL};
    rank_job_agree(kept, 1, again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sum),
        cmocka_unit_test(test_start),
        cmocka_unit_test(test_trained),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_graphs_agree),
        cmocka_unit_test(test_scale),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_recompute),
        cmocka_unit_test(test_coded_training),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
