/* The section `norm`: a part of models whose kinds are a table. */
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

static by_status parse(by_config **out, const char *text, by_error *error)
{
    return by_config_parse(out, "a.yaml", text, strlen(text), NULL, 0, error);
}

/* The keys, their values and their owners come from the table. */
static void test_keys(void **state)
{
    by_config *config;
    by_error error = {0};
    char *text;
    BY_UNUSED(state);
    check_ok(parse(&config,
                   "task: {kind: classify}\nmodel: {kind: mlp, norm: true}\n"
                   "norm: {kind: batch, momentum: 0.25}",
                   &error),
             &error);
    assert_string_equal(config->model.norm.kind, "batch");
    check_ok(by_config_print(config, &text, &error), &error);
    assert_non_null(strstr(text, "norm:\n  kind: batch\n  momentum: 0.25\n"));
    free(text);
    by_config_close(&config);
    for (size_t i = 0; by__nn_norm_kind(i) != NULL; i++) {
        char line[96];
        (void)snprintf(line, sizeof line, "model: {kind: mlp}\nnorm: {kind: %s}",
                       by__nn_norm_kind(i)->name);
        check_ok(parse(&config, line, &error), &error);
        by_config_close(&config);
    }
    check_error(parse(&config, "model: {kind: mlp}\nnorm: {kind: group}", &error), BY_ECONFIG,
                &error, "auto, layer, rms, batch");
    check_error(parse(&config, "norm: {kind: batch}\nmodel: {kind: resnet}", &error), BY_ECONFIG,
                &error,
                "a.yaml:1: norm.kind belongs to model gpt2, llama, mixtral, bert, vit, mlp, "
                "patchtst, tide, gcn, sage, gat, gin, rgcn; the model here is resnet");
    check_error(parse(&config, "model: {kind: mlp}\nnorm: {momentum: 0.5}", &error), BY_ECONFIG,
                &error, "a.yaml:2: norm.momentum belongs to batch; the kind here is auto");
}

/* The keys are new: a config without them has the hash it had, and says nothing of them. */
static void test_without(void **state)
{
    by_config *config;
    by_error error = {0};
    char hash[2][33];
    char *text;
    BY_UNUSED(state);
    for (int i = 0; i < 2; i++) {
        check_ok(parse(&config,
                       i == 0 ? "model: {kind: mlp}" : "model: {kind: mlp}\nnorm: {kind: auto}",
                       &error),
                 &error);
        check_ok(by_config_hash(config, hash[i], &error), &error);
        by_config_close(&config);
    }
    assert_string_equal(hash[0], hash[1]);
    check_ok(parse(&config, "model: {kind: resnet}", &error), &error);
    check_ok(by_config_print(config, &text, &error), &error);
    assert_null(strstr(text, "norm:\n"));
    free(text);
    by_config_close(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_keys), cmocka_unit_test(test_without)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
