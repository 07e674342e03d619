/* Scaled rotary frequencies are those of transformers (5.23.0, ROPE_INIT_FUNCTIONS). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/model.h"
#include "runner.h"

#define PAIRS 8

typedef struct scaling {
    const char *json; /* of a model with heads of width 16 */
    double frequencies[PAIRS];
    double amplitude;
} scaling;

static const scaling scalings[] = {
    {"\"max_position_embeddings\":2048,\"rope_theta\":1e4",
     {1, 0.316227764, 0.1, 0.0316227786, 0.01, 0.00316227786, 0.001, 0.000316227786},
     1.0},
    {"\"max_position_embeddings\":2048,\"rope_theta\":1e4,"
     "\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}",
     {0.25, 0.079056941, 0.025, 0.00790569466, 0.0025, 0.000790569466, 0.00025, 7.90569466e-05},
     1.0},
    {"\"max_position_embeddings\":2048,\"rope_theta\":1e4,"
     "\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":4}",
     {1, 0.316227764, 0.1, 0.0316227786, 0.01, 0.00316227786, 0.001, 0.000316227786},
     1.0},
    /* Llama 3.1 */
    {"\"max_position_embeddings\":131072,\"rope_parameters\":{\"rope_type\":\"llama3\","
     "\"rope_theta\":500000.0,\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
     "\"original_max_position_embeddings\":8192}",
     {1, 0.193922758, 0.0376060307, 0.00729266508, 0.000524846022, 3.42810235e-05, 6.64786967e-06,
      1.28917316e-06},
     1.0},
    {"\"max_position_embeddings\":256,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":32.0,"
     "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,\"original_max_position_embeddings\":64}",
     {1, 0.236687109, 0.00372535503, 0.000988211832, 0.000312499993, 9.88211832e-05, 3.12500015e-05,
      9.88211832e-06},
     1.0},
    /* Qwen2.5 as its card says */
    {"\"max_position_embeddings\":131072,\"rope_theta\":1000000.0,\"rope_scaling\":{"
     "\"factor\":4.0,\"original_max_position_embeddings\":32768,\"type\":\"yarn\"}",
     {1, 0.177827939, 0.0316227786, 0.00421755994, 0.000500000024, 4.44569851e-05, 7.90569356e-06,
      1.40585337e-06},
     1.138629436111989},
    {"\"max_position_embeddings\":512,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":2.5,"
     "\"original_max_position_embeddings\":128,\"beta_fast\":16,\"beta_slow\":2,"
     "\"attention_factor\":1.3}",
     {1, 0.252982199, 0.06, 0.0126491114, 0.004, 0.00126491114, 0.0004, 0.000126491112},
     1.3},
    {"\"max_position_embeddings\":512,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":40,"
     "\"original_max_position_embeddings\":128,\"mscale\":1.0,\"mscale_all_dim\":0.5}",
     {1, 0.213453725, 0.035, 0.000790569466, 0.00025, 7.90569466e-05, 2.5e-05, 7.90569447e-06},
     1.1557219901962608},
    /* Contexts at which no pair stays, and at which all but the fastest are divided. */
    {"\"max_position_embeddings\":8,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":2.0,"
     "\"original_max_position_embeddings\":4}",
     {1, 0.158113882, 0.05, 0.0158113893, 0.005, 0.00158113893, 0.0005, 0.000158113893},
     1.0693147180559945},
    {"\"max_position_embeddings\":1000000000,\"rope_theta\":100.0,\"rope_scaling\":{"
     "\"rope_type\":\"yarn\",\"factor\":2.0}",
     {0.5, 0.281170666, 0.158113882, 0.0889139697, 0.05, 0.0281170644, 0.0158113893, 0.00889139716},
     1.0693147180559945},
};

/* The rotation in the graph of a model. */
static by_rotation rotation_in(const by_config *config)
{
    by_error error = {0};
    by_model model;
    by_graph *graph = open_graph();
    by_model_request request = {.mode = BY_MODEL_LOGITS, .batch = 1, .time = 2};
    check_ok(by_model_build(&model, graph, &config->model, &request, &error), &error);
    by_rotation rotation = {0};
    for (size_t n = 0; n < graph->node_count; n++) {
        if (graph->nodes[n].op == BY_OP_ROPE) {
            rotation = by_rotation_of(&graph->nodes[n].attrs);
        }
    }
    by_graph_close(&graph);
    return rotation;
}

static by_rotation rotation_of(const scaling *s)
{
    by_error error = {0};
    by_config *config;
    char json[1024];
    (void)snprintf(json, sizeof json,
                   "{\"model_type\":\"llama\",\"vocab_size\":8,\"hidden_size\":32,"
                   "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"intermediate_size\":8,%s}",
                   s->json);
    check_ok(by_config_default(&config, &error), &error);
    check_ok(by_model_config_from_json(&config->model, "config.json", json, strlen(json), &error),
             &error);
    by_rotation rotation = rotation_in(config);
    by_config_close(&config);
    return rotation;
}

static void test_frequencies(void **state)
{
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(scalings); i++) {
        const scaling *s = &scalings[i];
        by_rotation r = rotation_of(s);
        if (fabs((double)r.amplitude - s->amplitude) > 1e-6) {
            fail_msg("%s: amplitude %.9g, not %.9g", s->json, (double)r.amplitude, s->amplitude);
        }
        for (int64_t k = 0; k < PAIRS; k++) {
            double have = (double)by_rotation_frequency(&r, k, 2 * PAIRS);
            if (fabs(have / s->frequencies[k] - 1.0) > 5e-7) {
                fail_msg("%s: pair %d turns by %.9g, not %.9g", s->json, (int)k, have,
                         s->frequencies[k]);
            }
        }
    }
}

/* NTK-aware scaling is what transformers' `dynamic` is for one length, here by a factor of 2 for
 * twice the trained context; in config.json it is another base. */
static void test_ntk(void **state)
{
    static const char *const settings[] = {
        "model.kind=llama", "model.layers=1",         "model.heads=2",      "model.width=32",
        "model.vocab=8",    "model.rope_scaling=ntk", "model.rope_factor=3"};
    static const double frequencies[PAIRS] = {1,
                                              0.270296126,
                                              0.0730599956,
                                              0.0197478337,
                                              0.00533776295,
                                              0.00144277665,
                                              0.000389976938,
                                              0.000105409255};
    BY_UNUSED(state);
    by_error error = {0};
    by_config *config;
    by_config *read;
    char *json;
    check_ok(by_config_default(&config, &error), &error);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(settings); i++) {
        check_ok(by_config_set(config, settings[i], &error), &error);
    }
    check_ok(by_config_resolve(config, &error), &error);
    check_ok(by_model_config_json(&json, &config->model, -1, &error), &error);
    check_ok(by_config_default(&read, &error), &error);
    check_ok(by_model_config_from_json(&read->model, "config.json", json, strlen(json), &error),
             &error);
    by_rotation r = rotation_in(config);
    by_rotation again = rotation_in(read);
    assert_memory_equal(&r, &again, sizeof r);
    for (int64_t k = 0; k < PAIRS; k++) {
        double have = (double)by_rotation_frequency(&r, k, 2 * PAIRS);
        assert_true(fabs(have / frequencies[k] - 1.0) < 5e-7);
    }
    free(json);
    by_config_close(&config);
    by_config_close(&read);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_frequencies),
                                       cmocka_unit_test(test_ntk)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
