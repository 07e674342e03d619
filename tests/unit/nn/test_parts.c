/* Sections of parts of models (`attention`, `position`, `norm`, `mlp`, `activation`): their keys,
 * and config.json. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "nn/nn.h"
#include "runner.h"

static by_config *parse(const char *text)
{
    by_config *config;
    by_error error = {0};
    check_ok(by_config_parse(&config, "a.yaml", text, strlen(text), NULL, 0, &error), &error);
    config->model.vocab = 61;
    config->model.outputs = 3;
    config->model.channels = 3;
    config->model.image_height = 32;
    config->model.image_width = 32;
    return config;
}

static void refuse(const char *text, const char *part)
{
    by_config *config;
    by_error error = {0};
    by_status status = by_config_parse(&config, "a.yaml", text, strlen(text), NULL, 0, &error);
    if (status == BY_OK) {
        status = by_config_resolve(config, &error);
        by_config_close(&config);
    }
    check_error(status, BY_ECONFIG, &error, part);
}

static void test_refused(void **state)
{
    BY_UNUSED(state);
    refuse("attention: {kind: sparse}", "full, window");
    refuse("attention: {kind: full, window: 5}", "attention.window belongs to");
    refuse("attention: {kind: mixed, pattern: [window, local_global]}", "names 'local_global'");
    refuse("attention: {kind: mixed, pattern: []}", "attention.pattern is empty");
    refuse("attention: {kind: alibi}\nparallel: {sequence: 2}", "only attention.kind full");
    refuse("model: {kind: llama, window: 8}\nattention: {kind: window}",
           "model.window 8 belongs to attention.kind full");
    refuse("model: {width: 33, heads: 3}\nposition: {kind: sinusoidal}", "even model.width");
    refuse("model: {kind: resnet}\nattention: {kind: none}", "attention.kind belongs to model");
    refuse("model: {kind: llama, width: 32, heads: 4}\nvalues: {kind: embedded, gate_inputs: 33}",
           "values.gate_inputs is 33");
    refuse("values: {kind: embedded}", "values.kind belongs to model");
    refuse("model: {kind: mixtral}\nmlp: {kind: plain}", "mlp.kind belongs to model");
}

/* Writes the config.json of a config, and returns that of a config read from it. */
static void check_json(const char *yaml, const char *type, const char *part)
{
    by_error error = {0};
    char *json;
    char *again;
    by_config *config = parse(yaml);
    by_config *other = parse("attention: {kind: none}\nnorm: {kind: rms}\n"
                             "position: {kind: none}\nactivation: {kind: tanh}");
    char name[64];
    check_ok(by_config_resolve(config, &error), &error);
    check_ok(by_model_config_json(&json, &config->model, -1, &error), &error);
    (void)snprintf(name, sizeof name, "\"model_type\": \"%s\"", type);
    if (strstr(json, name) == NULL || strstr(json, part) == NULL) {
        fail_msg("%s: config.json has no %s or %s: %s", yaml, name, part, json);
    }
    check_ok(by_model_config_from_json(&other->model, "config.json", json, strlen(json), &error),
             &error);
    check_ok(by_config_resolve(other, &error), &error);
    check_ok(by_model_config_json(&again, &other->model, -1, &error), &error);
    assert_string_equal(again, json);
    free(json);
    free(again);
    by_config_close(&config);
    by_config_close(&other);
}

/* A config.json of transformers where it can say what a config does, else one that it refuses. */
static void test_config_json(void **state)
{
    BY_UNUSED(state);
    check_json("model: {kind: gpt2}", "gpt2", "\"activation_function\": \"gelu_new\"");
    check_json("activation: {kind: relu2}", "gpt2", "\"activation_function\": \"relu2\"");
    check_json("attention: {kind: window, window: 9}", "custom_gpt2", "\"window\": 9");
    check_json("attention: {kind: mixed, pattern: [full, alibi, none]}", "custom_gpt2",
               "\"alibi\"");
    check_json("position: {kind: rope, theta: 500}", "custom_gpt2", "\"theta\": 500");
    check_json("mlp: {kind: gated}\nnorm: {kind: batch, momentum: 0.5}", "custom_gpt2",
               "\"momentum\": 0.5");
    check_json("model: {kind: llama}\nattention: {kind: window, window: 9}", "mistral",
               "\"sliding_window\": 9");
    check_json("model: {kind: llama}\nattention: {kind: local_global, window: 9}", "smollm3",
               "\"sliding_attention\"");
    check_json("model: {kind: llama}\nattention: {kind: alibi}", "custom_llama", "\"alibi\"");
    check_json("model: {kind: llama}\nvalues: {kind: embedded, every: 3}", "custom_llama",
               "\"every\": 3");
    check_json("model: {kind: llama}\nresidual: {kind: mixed}", "custom_llama", "\"mixed\"");
    check_json("model: {kind: mixtral}\nactivation: {kind: gelu}", "mixtral",
               "\"hidden_act\": \"gelu\"");
    check_json("model: {kind: bert}\nattention: {kind: window}", "custom_bert", "\"window\": 256");
    check_json("model: {kind: vit, patch: 8}\nnorm: {kind: rms}", "custom_vit", "\"rms\"");
    check_json("model: {kind: patchtst}\nnorm: {kind: batch}", "patchtst",
               "\"norm_type\": \"batchnorm\"");
    check_json("model: {kind: patchtst}\nposition: {kind: none}", "custom_patchtst", "\"none\"");
}

/* What such a file may hold is checked. */
static void test_bad_json(void **state)
{
    static const char *const bad[][2] = {
        {"{\"attention\": {\"kind\": \"sparse\"}}", "no known kind"},
        {"{\"attention\": {}}", "no known kind"},
        {"{\"attention\": {\"kind\": \"window\"}}", "missing or out of range"},
        {"{\"attention\": {\"kind\": \"window\", \"window\": 0}}", "missing or out of range"},
        {"{\"position\": {\"kind\": \"rope\", \"theta\": \"x\"}}", "missing or out of range"},
    };
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(bad); i++) {
        char json[512];
        by_error error = {0};
        by_config *config = parse("name: a");
        (void)snprintf(json, sizeof json,
                       "{\"model_type\": \"custom_gpt2\", \"n_embd\": 8, \"n_layer\": 1, "
                       "\"n_head\": 2, \"n_positions\": 16, \"vocab_size\": 61, \"banyan\": %s}",
                       bad[i][0]);
        check_error(by_model_config_from_json(&config->model, "c.json", json, strlen(json), &error),
                    BY_EFORMAT, &error, bad[i][1]);
        by_config_close(&config);
    }
}

static void test_slopes(void **state)
{
    BY_UNUSED(state);
    assert_true(by_attention_slope(8, 0) == 0.5 && by_attention_slope(8, 7) == 1.0 / 256.0);
    /* Twelve heads: those of eight, then every second of sixteen. */
    assert_true(by_attention_slope(12, 7) == 1.0 / 256.0);
    assert_true(by_attention_slope(12, 8) == exp2(-0.5) &&
                by_attention_slope(12, 11) == exp2(-3.5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_config_json),
        cmocka_unit_test(test_bad_json),
        cmocka_unit_test(test_slopes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
