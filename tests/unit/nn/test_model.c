/* Models: sizes, FLOPs, initial values, config.json. */
#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/model.h"
#include "runner.h"
#include "trainer/state/train.h"

static by_config *open_config(const char *const *settings, size_t count)
{
    by_error error = {0};
    by_config *config;
    check_ok(by_config_default(&config, &error), &error);
    for (size_t i = 0; i < count; i++) {
        check_ok(by_config_set(config, settings[i], &error), &error);
    }
    check_ok(by_config_resolve(config, &error), &error);
    return config;
}

static by_graph *build(const by_config *config, by_model *model)
{
    by_error error = {0};
    by_graph *graph = open_graph();
    by_model_request request = {.mode = BY_MODEL_LOGITS, .batch = 1, .time = config->model.context};
    check_ok(by_model_build(model, graph, &config->model, &request, &error), &error);
    check_ok(by_graph_verify(graph, &error), &error);
    return graph;
}

static const char *const gpt2_124m[] = {"model.kind=gpt2",    "model.layers=12",
                                        "model.heads=12",     "model.width=768",
                                        "model.context=1024", "model.vocab=50257"};
/* TinyLlama 1.1B (Zhang et al. 2024): 1,100,048,384 parameters. */
static const char *const tiny_llama[] = {
    "model.kind=llama",   "model.layers=22",   "model.heads=32",
    "model.kv_heads=4",   "model.width=2048",  "model.mlp_width=5632",
    "model.context=2048", "model.vocab=32000", "model.tied=false"};

static void test_parameter_counts(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_model model;
    int64_t all;
    int64_t products;
    by_config *config = open_config(gpt2_124m, BY_ARRAY_LENGTH(gpt2_124m));
    by_graph *graph = build(config, &model);
    check_ok(by_model_count(graph, &all, &products, &error), &error);
    assert_int_equal(all, 124439808);
    /* the tied head is multiplied, wpe is not */
    assert_int_equal(products, 124439808 - 1024 * 768);
    by_graph_close(&graph);
    by_config_close(&config);

    config = open_config(tiny_llama, BY_ARRAY_LENGTH(tiny_llama));
    graph = build(config, &model);
    check_ok(by_model_count(graph, &all, &products, &error), &error);
    assert_int_equal(all, 1100048384);
    assert_int_equal(products, 1100048384 - 32000 * 2048); /* the table is only looked up */
    by_graph_close(&graph);
    by_config_close(&config);

    /* A token meets 3 of 8 experts, and the whole router. */
    static const char *const mixtral[] = {
        "model.kind=mixtral", "model.layers=2",  "model.heads=4",    "model.width=32",
        "model.mlp_width=24", "model.vocab=100", "model.context=16", "model.experts_per_token=3"};
    config = open_config(mixtral, BY_ARRAY_LENGTH(mixtral));
    graph = build(config, &model);
    check_ok(by_model_count(graph, &all, &products, &error), &error);
    int64_t expert = 3 * 24 * 32;
    int64_t rest = 4 * 32 * 32 + 8 * 32 + 2 * 32;
    assert_int_equal(all, 2 * (rest + 8 * expert) + 2 * 100 * 32 + 32);
    assert_int_equal(products, 2 * (rest + 3 * expert) + 100 * 32 + 32);
    by_graph_close(&graph);
    by_config_close(&config);
}

/* 6 N + 6 L C T and 6 N + 12 L C T. */
static void test_flops(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_trainer *trainer;
    static const char *const settings[] = {"model.kind=llama", "model.layers=3",   "model.heads=4",
                                           "model.width=32",   "model.context=16", "model.vocab=40",
                                           "train.batch=2"};
    by_config *config = open_config(settings, BY_ARRAY_LENGTH(settings));
    check_ok(by_trainer_open(&trainer, config, NULL, &error), &error);
    const by_model_size *size = by_trainer_size(trainer);
    double n = (double)size->in_products;
    assert_true(size->flops_per_example == 6.0 * n + 6.0 * 3.0 * 32.0 * 16.0);
    assert_true(size->flops_per_example_full == 6.0 * n + 12.0 * 3.0 * 32.0 * 16.0);
    by_trainer_close(&trainer);
    by_config_close(&config);
}

/* What frozen parameters do without is not counted: the gradients of their own, and of all that is
 * before the first one that is trained. */
static void test_flops_of_frozen(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    const double block = 4.0 * 32.0 * 32.0 + 3.0 * 96.0 * 32.0;
    const double attention = 4.0 * 32.0 * 16.0; /* backward, of the pairs that are seen */
    const struct {
        const char *groups;
        double spared;
    } rows[] = {
        {"optimizer.groups=[]", 0.0},
        {"optimizer.groups=[{match: \"*layers.1.*\", frozen: true}]", 2.0 * block},
        {"optimizer.groups=[{match: \"*embed*\", frozen: true}, "
         "{match: \"*layers.0.*\", frozen: true}]",
         4.0 * block + attention},
    };
    double all = 0.0;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        by_trainer *trainer;
        const char *const settings[] = {"model.kind=llama",   "model.layers=3",   "model.heads=4",
                                        "model.width=32",     "model.context=16", "model.vocab=40",
                                        "model.mlp_width=96", "train.batch=2",    rows[i].groups};
        by_config *config = open_config(settings, BY_ARRAY_LENGTH(settings));
        check_ok(by_trainer_open(&trainer, config, NULL, &error), &error);
        double flops = by_trainer_size(trainer)->flops_per_example;
        all = i == 0 ? flops : all;
        /* Parameters of norms count as if they were in products. */
        assert_true(fabs(all - flops - rows[i].spared) <= 0.01 * rows[i].spared);
        by_trainer_close(&trainer);
        by_config_close(&config);
    }
}

typedef struct moments {
    double mean;
    double deviation;
} moments;

static moments moments_of(const float *x, size_t count)
{
    double sum = 0.0;
    double squares = 0.0;
    for (size_t i = 0; i < count; i++) {
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
    }
    double mean = sum / (double)count;
    return (moments){mean, sqrt(squares / (double)count - mean * mean)};
}

static void init(const by_graph *graph, const char *name, uint64_t seed, float *out)
{
    by_error error = {0};
    check_ok(by_parameter_init(out, graph, by_graph_find(graph, name), seed, &error), &error);
}

static void test_initial_values(void **state)
{
    BY_UNUSED(state);
    by_model model;
    static const char *const settings[] = {
        "model.kind=gpt2",  "model.layers=8",   "model.heads=4",      "model.width=256",
        "model.context=64", "model.vocab=1000", "model.init_std=0.02"};
    by_config *config = open_config(settings, BY_ARRAY_LENGTH(settings));
    by_graph *graph = build(config, &model);
    size_t count = 256 * 256;
    float *a = malloc(count * 4 * sizeof *a);
    float *b = malloc(count * 4 * sizeof *b);
    assert_true(a != NULL && b != NULL);
    /* 65536 values: the mean's deviation is std / 256, the deviation's is std / 362. */
    init(graph, "h.3.attn.c_proj.weight", 1, a);
    moments m = moments_of(a, count);
    double residual = 0.02 / sqrt(2.0 * 8.0);
    assert_true(fabs(m.mean) < 5.0 * residual / 256.0);
    assert_true(fabs(m.deviation - residual) < 5.0 * residual / 362.0);
    size_t beyond = 0;
    for (size_t i = 0; i < count; i++) {
        beyond += fabs((double)a[i]) > 2.0 * residual;
    }
    assert_true(fabs((double)beyond / (double)count - 0.0455) < 0.005); /* normal, not uniform */
    init(graph, "h.4.attn.c_proj.weight", 1, b);
    assert_memory_not_equal(a, b, count * sizeof *a);
    init(graph, "h.3.attn.c_proj.weight", 2, b);
    assert_memory_not_equal(a, b, count * sizeof *a);
    init(graph, "h.0.mlp.c_fc.weight", 1, a);
    m = moments_of(a, count * 4);
    assert_true(fabs(m.deviation - 0.02) < 5.0 * 0.02 / 724.0);
    for (int threads = 1; threads <= 3; threads++) {
        omp_set_num_threads(threads);
        init(graph, "h.0.mlp.c_fc.weight", 1, b);
        assert_memory_equal(a, b, count * 4 * sizeof *a);
    }
    init(graph, "ln_f.weight", 1, a);
    init(graph, "ln_f.bias", 1, b);
    for (size_t i = 0; i < 256; i++) {
        assert_true(a[i] == 1.0f && b[i] == 0.0f);
    }
    by_error error = {0};
    by_status status = by_parameter_init(a, graph, model.tokens, 1, &error);
    check_error(status, BY_EARG, &error, "not a parameter");
    free(a);
    free(b);
    by_graph_close(&graph);
    by_config_close(&config);
}

/* The line of a printed config with a key of its section model. */
static void find_line(char out[256], const char *text, const char *setting)
{
    const char *section = strstr(text, "\nmodel:\n");
    int length = (int)strcspn(setting, "=") - (int)strlen("model.");
    char key[96];
    (void)snprintf(key, sizeof key, "\n  %.*s:", length, setting + strlen("model."));
    assert_non_null(section);
    const char *line = strstr(section, key);
    assert_non_null(line);
    (void)snprintf(out, 256, "%.*s", (int)strcspn(line + 1, "\n"), line + 1);
}

/* What a setting says of a model is in its config.json. */
static void check_settings(const by_config *a, const by_config *b, const char *const *settings,
                           size_t count)
{
    by_error error = {0};
    char *texts[2];
    char lines[2][256];
    check_ok(by_config_print(a, &texts[0], &error), &error);
    check_ok(by_config_print(b, &texts[1], &error), &error);
    for (size_t i = 0; i < count; i++) {
        if (strncmp(settings[i], "model.", strlen("model.")) == 0) {
            find_line(lines[0], texts[0], settings[i]);
            find_line(lines[1], texts[1], settings[i]);
            assert_string_equal(lines[0], lines[1]);
        }
    }
    free(texts[0]);
    free(texts[1]);
}

static void round_trip(const char *const *settings, size_t count)
{
    by_error error = {0};
    char *json;
    by_config *config = open_config(settings, count);
    by_config *back;
    check_ok(by_model_config_json(&json, &config->model, 7, &error), &error);
    check_ok(by_config_default(&back, &error), &error);
    check_ok(by_model_config_from_json(&back->model, "config.json", json, strlen(json), &error),
             &error);
    const by_model_config *a = &config->model;
    const by_model_config *b = &back->model;
    assert_string_equal(a->kind, b->kind);
    assert_int_equal(a->layers, b->layers);
    assert_int_equal(a->heads, b->heads);
    assert_int_equal(a->kv_heads, b->kv_heads);
    assert_int_equal(a->width, b->width);
    assert_int_equal(a->mlp_width, b->mlp_width);
    assert_int_equal(a->context, b->context);
    assert_int_equal(a->vocab, b->vocab);
    assert_int_equal(a->tied, b->tied);
    assert_int_equal(a->outputs, b->outputs);
    check_ok(by_config_resolve(back, &error), &error);
    char *again;
    check_ok(by_model_config_json(&again, b, 7, &error), &error);
    assert_string_equal(json, again); /* what only the family knows too */
    check_settings(config, back, settings, count);
    free(again);
    bool tokens = strcmp(by_model_reads(a), "tokens") == 0;
    assert_true(!tokens || a->norm_eps == b->norm_eps);
    assert_true((strstr(json, "\"eos_token_id\": 7") != NULL) == tokens);
    assert_true((strstr(json, "\"vocab_size\"") != NULL) == tokens);
    free(json);
    by_config_close(&config);
    by_config_close(&back);
}

static void test_config_json_round_trip(void **state)
{
    BY_UNUSED(state);
    static const char *const odd[] = {
        "model.kind=llama", "model.layers=1",      "model.heads=6",           "model.kv_heads=3",
        "model.width=48",   "model.mlp_width=100", "model.context=9",         "model.vocab=33",
        "model.tied=true",  "model.norm_eps=3e-6", "model.rope_theta=12345.5"};
    round_trip(gpt2_124m, BY_ARRAY_LENGTH(gpt2_124m));
    round_trip(tiny_llama, BY_ARRAY_LENGTH(tiny_llama));
    round_trip(odd, BY_ARRAY_LENGTH(odd));
    static const char *const smollm3[] = {
        "model.kind=llama",      "model.layers=5",          "model.nope_layers=[1, 4]",
        "model.heads=2",         "model.width=16",          "model.head_dim=6",
        "model.vocab=9",         "model.qkv_bias=true",     "model.output_bias=true",
        "model.mlp_bias=true",   "model.rope_scaling=yarn", "model.rope_factor=3.5",
        "model.rope_beta_slow=2"};
    round_trip(smollm3, BY_ARRAY_LENGTH(smollm3));
    static const char *const qwen3[] = {"model.kind=llama",
                                        "model.qk_norm=true",
                                        "model.rope_scaling=llama3",
                                        "model.rope_factor=8",
                                        "model.rope_low_freq_factor=2",
                                        "model.vocab=9",
                                        "model.rope_original_context=16",
                                        "model.window=70",
                                        "model.window_layers=[0, 2]"};
    round_trip(qwen3, BY_ARRAY_LENGTH(qwen3));
    static const char *const mixtral[] = {
        "model.kind=mixtral", "model.layers=1",      "model.heads=6",
        "model.kv_heads=3",   "model.width=48",      "model.mlp_width=100",
        "model.experts=5",    "model.context=9",     "model.experts_per_token=3",
        "model.vocab=33",     "model.norm_eps=3e-6", "model.router_aux_loss_coef=0"};
    round_trip(mixtral, BY_ARRAY_LENGTH(mixtral));
    static const char *const vit[] = {
        "model.kind=vit",       "model.layers=1",       "model.heads=2",
        "model.width=48",       "model.mlp_width=100",  "model.patch=6",
        "model.outputs=12",     "model.channels=1",     "model.image_height=30",
        "model.image_width=18", "model.qkv_bias=false", "model.norm_eps=3e-6"};
    static const char *const mlp[] = {
        "model.kind=mlp",    "model.numbers=0",          "model.categories=[7, 2]",
        "model.embedding=3", "model.hidden=[24, 16, 8]", "model.activation=silu",
        "model.norm=true",   "model.outputs=2",          "model.norm_eps=1e-4"};
    static const char *const square[] = {"model.kind=mlp", "model.numbers=4", "model.layers=4",
                                         "model.width=128", "model.outputs=1"};
    round_trip(vit, BY_ARRAY_LENGTH(vit));
    round_trip(mlp, BY_ARRAY_LENGTH(mlp));
    static const char *const resnet[] = {"model.kind=resnet",     "model.norm_eps=0.1",
                                         "model.channels=3",      "model.outputs=4",
                                         "model.image_height=32", "model.image_width=32"};
    round_trip(square, BY_ARRAY_LENGTH(square));
    round_trip(resnet, BY_ARRAY_LENGTH(resnet));
}

static void test_config_json_of_series(void **state)
{
    BY_UNUSED(state);
#define WINDOW                                                                                     \
    "model.context=30", "model.outputs=7", "model.channels=2", "model.layers=3", "model.width=24", \
        "model.standardize=false"
    static const char *const tcn[] = {"model.kind=tcn", WINDOW, "model.kernel=5"};
    static const char *const nbeats[] = {"model.kind=nbeats", WINDOW, "model.blocks=2"};
    static const char *const tide[] = {"model.kind=tide",        WINDOW,
                                       "model.decoder_layers=1", "model.decoder_width=5",
                                       "model.temporal_width=9", "norm.kind=batch"};
    static const char *const plain[] = {"model.kind=tide", WINDOW, "model.norm=false"};
    static const char *const lstm[] = {"model.kind=lstm", WINDOW, "model.standardize=true",
                                       "model.affine=true"};
    static const char *const gru[] = {"model.kind=gru", WINDOW};
    round_trip(lstm, BY_ARRAY_LENGTH(lstm));
    round_trip(gru, BY_ARRAY_LENGTH(gru));
    round_trip(tcn, BY_ARRAY_LENGTH(tcn));
    round_trip(nbeats, BY_ARRAY_LENGTH(nbeats));
    round_trip(tide, BY_ARRAY_LENGTH(tide));
    round_trip(plain, BY_ARRAY_LENGTH(plain));
}

#define LLAMA                                                                                      \
    "\"model_type\":\"llama\",\"vocab_size\":32,\"hidden_size\":16,\"num_hidden_layers\":2,"       \
    "\"num_attention_heads\":4,\"intermediate_size\":24"
#define QWEN2                                                                                      \
    "\"model_type\":\"qwen2\",\"vocab_size\":32,\"hidden_size\":16,\"num_hidden_layers\":2,"       \
    "\"num_attention_heads\":4,\"intermediate_size\":24"
#define SMOLLM3                                                                                    \
    "\"model_type\":\"smollm3\",\"vocab_size\":32,\"hidden_size\":16,\"num_hidden_layers\":2,"     \
    "\"num_attention_heads\":4,\"intermediate_size\":24"
#define GPT2                                                                                       \
    "\"model_type\":\"gpt2\",\"vocab_size\":32,\"n_embd\":16,\"n_layer\":2,\"n_head\":4,\"n_"      \
    "positions\":8"

#define MIXTRAL                                                                                    \
    "\"model_type\":\"mixtral\",\"vocab_size\":32,\"hidden_size\":16,\"num_hidden_layers\":2,"     \
    "\"num_attention_heads\":4,\"intermediate_size\":24"
#define VIT "\"model_type\":\"vit\""
#define MLP                                                                                        \
    "\"model_type\":\"banyan_mlp\",\"num_numbers\":3,\"num_outputs\":1,\"hidden_sizes\":[8],"      \
    "\"hidden_act\":\"relu\""

static by_status read_json(const char *json, by_error *error)
{
    by_error ignored = {0};
    by_config *config;
    check_ok(by_config_default(&config, &ignored), &ignored);
    by_status status =
        by_model_config_from_json(&config->model, "dir/config.json", json, strlen(json), error);
    by_config_close(&config);
    return status;
}

static void test_config_json_accepts(void **state)
{
    BY_UNUSED(state);
    static const char *const accepted[] = {
        "{" LLAMA "}",
        "{" GPT2 "}",
        "{" LLAMA ",\"rope_scaling\":null,\"hidden_act\":\"silu\",\"head_dim\":4}",
        "{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":500000.0}}",
        "{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0}}",
        "{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}",
        "{" LLAMA ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}}",
        "{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":4,\"mscale\":1,"
        "\"mscale_all_dim\":0.5}}",
        "{" LLAMA ",\"attention_bias\":true,\"mlp_bias\":true,\"head_dim\":8}",
        "{" SMOLLM3 "}",
        "{" SMOLLM3 ",\"no_rope_layers\":[1,0]}",
        "{" GPT2
        ",\"n_inner\":null,\"activation_function\":\"gelu_new\",\"scale_attn_weights\":true}",
        "{" MIXTRAL "}",
        "{" MIXTRAL ",\"sliding_window\":null,\"num_local_experts\":4,\"num_experts_per_tok\":1,"
        "\"router_aux_loss_coef\":0,\"output_router_logits\":false}",
        "{" MIXTRAL ",\"sliding_window\":4096}",
        "{" VIT "}",
        "{" VIT ",\"image_size\":[32,48],\"qkv_bias\":false,\"id2label\":{\"0\":\"cat\"}}",
        "{" MLP "}",
        "{" MLP ",\"category_sizes\":[3],\"embedding_size\":null}",
        "{" GPT2 ",\"eos_token_id\":null,\"bos_token_id\":0,\"tie_word_embeddings\":null}",
        "{" GPT2 ",\"eos_token_id\":[0,1],\"pad_token_id\":-1}",
        /* as transformers writes it: the family's default stays, whatever the vocabulary is */
        "{" GPT2 ",\"eos_token_id\":50256,\"bos_token_id\":50256}",
        "{" GPT2 ",\"eos_token_id\":[0,1000000000]}",
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(accepted); i++) {
        by_error error = {0};
        check_ok(read_json(accepted[i], &error), &error);
    }
}

/* A feature that this family does not have must never be read over: the model would be a wrong
 * one. */
static void test_config_json_refuses(void **state)
{
    BY_UNUSED(state);
    static const char *const refused[][2] = {
        {"", "JSON"},
        {"[1]", "JSON"},
        {"{\"model_type\":\"t5\"}", "t5"},
        {"{}", "model_type"},
        {"{\"model_type\":\"gpt2\"}", "vocab_size"},
        {"{" GPT2 ",\"n_embd\":16}", "n_embd"},
        {"{" GPT2 ",\"activation_function\":\"mish\"}", "activation_function"},
        {"{" GPT2 ",\"activation_function\":3}", "activation_function"},
        {"{" GPT2 ",\"n_inner\":-4}", "n_inner"},
        {"{" GPT2 ",\"n_inner\":1e300}", "n_inner"},
        {"{" GPT2 ",\"layer_norm_epsilon\":0}", "layer_norm_epsilon"},
        {"{" GPT2 ",\"scale_attn_weights\":false}", "scale_attn_weights"},
        {"{" GPT2 ",\"scale_attn_by_inverse_layer_idx\":true}", "scale_attn_by_inverse_layer_idx"},
        {"{" GPT2 ",\"add_cross_attention\":true}", "add_cross_attention"},
        {"{" GPT2 ",\"eos_token_id\":-5}", "\"eos_token_id\" is -5"},
        {"{" GPT2 ",\"eos_token_id\":1e9}", "\"eos_token_id\" is 1000000000.0"},
        {"{" GPT2 ",\"eos_token_id\":[0,-1]}", "\"eos_token_id\" is [0, -1]"},
        {"{" GPT2 ",\"eos_token_id\":true}", "eos_token_id"},
        {"{" LLAMA ",\"bos_token_id\":\"x\"}", "\"bos_token_id\" is \"x\""},
        {"{" LLAMA ",\"tie_word_embeddings\":\"yes\"}", "tie_word_embeddings"},
        {"{" LLAMA ",\"tie_word_embeddings\":1}", "tie_word_embeddings"},
        {"{" LLAMA ",\"attention_bias\":\"true\"}", "attention_bias"},
        {"{" LLAMA ",\"mlp_bias\":0}", "mlp_bias"},
        {"{" QWEN2 ",\"use_sliding_window\":\"false\"}", "use_sliding_window"},
        {"{" LLAMA ",\"hidden_act\":\"mish\"}", "hidden_act"},
        {"{" LLAMA ",\"head_dim\":7}", "even width"},
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"longrope\",\"factor\":8.0}}", "longrope"},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":3}}", "rope_type"},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\"}}", "factor"},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":0.5}}", "factor"},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"truncate\":false}}",
         "truncate"},
        {"{" LLAMA ",\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\"}}}",
         "full_attention"},
        {"{" LLAMA ",\"partial_rotary_factor\":0.5}", "partial_rotary_factor"},
        {"{" SMOLLM3 ",\"no_rope_layers\":[1]}", "no_rope_layers"},
        {"{" MIXTRAL ",\"sliding_window\":-1}", "sliding_window"},
        {"{" QWEN2 ",\"use_sliding_window\":true,\"layer_types\":[\"full_attention\","
         "\"chunked_attention\"]}",
         "chunked_attention"},
        {"{" QWEN2 ",\"use_sliding_window\":true,\"layer_types\":[\"full_attention\"]}",
         "layer_types"},
        {"{" MIXTRAL ",\"num_local_experts\":0}", "num_local_experts"},
        {"{" MIXTRAL ",\"num_experts_per_tok\":-1}", "num_experts_per_tok"},
        {"{" MIXTRAL ",\"router_aux_loss_coef\":-1}", "router_aux_loss_coef"},
        {"{" MIXTRAL ",\"router_aux_loss_coef\":\"a\"}", "router_aux_loss_coef"},
        {"{" VIT ",\"image_size\":[32]}", "image_size"},
        {"{" VIT ",\"image_size\":[32,-1]}", "width"},
        {"{" VIT ",\"image_size\":\"32\"}", "image_size"},
        {"{" VIT ",\"patch_size\":0}", "patch_size"},
        {"{" VIT ",\"qkv_bias\":1}", "qkv_bias"},
        {"{" VIT ",\"hidden_act\":\"mish\"}", "hidden_act"},
        {"{\"model_type\":\"banyan_mlp\"}", "num_outputs"},
        {"{" MLP ",\"category_sizes\":[0]}", "category_sizes"},
        {"{" MLP ",\"category_sizes\":[\"a\"]}", "category_sizes"},
        {"{\"model_type\":\"banyan_mlp\",\"num_outputs\":1,\"num_numbers\":0,"
         "\"hidden_sizes\":[8],\"hidden_act\":\"relu\"}",
         "num_numbers"},
        {"{\"model_type\":\"banyan_mlp\",\"num_outputs\":1,\"num_numbers\":1,"
         "\"hidden_sizes\":[8],\"hidden_act\":\"elu\"}",
         "hidden_act"},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(refused); i++) {
        by_error error = {0};
        by_status status = read_json(refused[i][0], &error);
        check_error(status, BY_EFORMAT, &error, refused[i][1]);
    }
}

/* The model_type that is written is the one with the model's features. */
static void test_published_type(void **state)
{
    BY_UNUSED(state);
    static const struct {
        const char *settings[4];
        const char *type;
    } cases[] = {
        {{"model.kind=llama"}, "\"llama\""},
        {{"model.output_bias=true", "model.qkv_bias=true"}, "\"llama\""},
        {{"model.heads=3", "model.head_dim=8"}, "\"mistral\""},
        {{"model.hf_type=mistral"}, "\"mistral\""},
        {{"model.window=64"}, "\"mistral\""},
        {{"model.window=64", "model.window_layers=[1]"}, "\"smollm3\""},
        {{"model.qkv_bias=true"}, "\"qwen2\""},
        {{"model.qkv_bias=true", "model.window=64", "model.window_layers=[3]"}, "\"qwen2\""},
        {{"model.qk_norm=true"}, "\"qwen3\""},
        {{"model.qk_norm=true", "model.qkv_bias=true", "model.output_bias=true"}, "\"qwen3\""},
        {{"model.nope_layers=[3]"}, "\"smollm3\""},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by_error error = {0};
        char *json;
        const char *all[8] = {"model.kind=llama", "model.vocab=9", "model.width=32"};
        size_t count = 3;
        for (size_t k = 0; k < 4 && cases[i].settings[k] != NULL; k++) {
            all[count++] = cases[i].settings[k];
        }
        by_config *config = open_config(all, count);
        check_ok(by_model_config_json(&json, &config->model, -1, &error), &error);
        const char *written = strstr(json, "\"model_type\": ");
        assert_non_null(written);
        assert_int_equal(strncmp(written + 14, cases[i].type, strlen(cases[i].type)), 0);
        free(json);
        by_config_close(&config);
    }
}

/* Features that no model of transformers has together are refused before anything is trained. */
static void test_unpublished_features(void **state)
{
    BY_UNUSED(state);
    static const char *const refused[][4] = {
        {"model.output_bias=true", NULL, NULL, "no model of transformers"},
        {"model.qk_norm=true", "model.mlp_bias=true", NULL, "no model of transformers"},
        {"model.qk_norm=true", "model.nope_layers=[0]", NULL, "no model of transformers"},
        {"model.window=64", "model.hf_type=llama", NULL, "no llama of transformers"},
        {"model.qkv_bias=true", "model.hf_type=qwen3", NULL, "no qwen3 of transformers"},
        {"model.nope_layers=[4]", NULL, NULL, "'4' is not a layer from 0 to 3"},
        {"model.nope_layers=[a]", NULL, NULL, "'a' is not a layer"},
        {"model.head_dim=9", NULL, NULL, "head_dim is 9"},
        {"model.rope_scaling=llama3", "model.rope_low_freq_factor=4", NULL, "rope_low_freq_factor"},
        {"model.rope_scaling=yarn", "model.rope_beta_slow=33", NULL, "rope_beta_slow"},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(refused); i++) {
        by_error error = {0};
        by_config *config;
        check_ok(by_config_default(&config, &error), &error);
        check_ok(by_config_set(config, "model.kind=llama", &error), &error);
        for (size_t k = 0; k < 3 && refused[i][k] != NULL; k++) {
            check_ok(by_config_set(config, refused[i][k], &error), &error);
        }
        by_status status = by_config_resolve(config, &error);
        check_error(status, BY_ECONFIG, &error, refused[i][3]);
        by_config_close(&config);
    }
}

static void test_unknown_kind(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_model model;
    char kind[] = "lama";
    by_model_config config = {.kind = kind};
    by_model_request request = {.batch = 1, .time = 1};
    by_graph *graph = open_graph();
    by_status status = by_model_build(&model, graph, &config, &request, &error);
    check_error(status, BY_ECONFIG, &error, "nearest: llama");
    by_graph_close(&graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameter_counts),       cmocka_unit_test(test_flops),
        cmocka_unit_test(test_flops_of_frozen),        cmocka_unit_test(test_initial_values),
        cmocka_unit_test(test_config_json_round_trip), cmocka_unit_test(test_config_json_of_series),
        cmocka_unit_test(test_config_json_accepts),    cmocka_unit_test(test_config_json_refuses),
        cmocka_unit_test(test_published_type),         cmocka_unit_test(test_unpublished_features),
        cmocka_unit_test(test_unknown_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
