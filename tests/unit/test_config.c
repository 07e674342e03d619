/* The config room: every class of error with its exact message, inheritance, overrides, derived
 * values, and that what is printed reads back.
 *
 * `test_config --write` makes docs/config.md and docs/serve_config.md anew from the declarations.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "banyan/serve_config.h"
#include "config/schema.h"

static by_status parse(by_config **out, const char *text, by_error *error)
{
    return by_config_parse(out, "train.yaml", text, strlen(text), NULL, 0, error);
}

/* The config of a text that is right. */
static by_config *good(const char *text)
{
    by_config *config;
    by_error error = {0};
    if (parse(&config, text, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    return config;
}

static char *printed(const by_config *config)
{
    char *text;
    by_error error = {0};
    if (by_config_print(config, &text, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    return text;
}

static void refused(const char *text, const char *message)
{
    by_config *config = NULL;
    by_error error = {0};
    assert_int_equal(parse(&config, text, &error), BY_ECONFIG);
    assert_string_equal(error.message, message);
    assert_int_equal(error.status, BY_ECONFIG);
    assert_null(config);
}

/* A message that lists kinds between its begin and its end. */
static void refused_among(const char *text, const char *begin, const char *end)
{
    by_config *config = NULL;
    by_error error = {0};
    assert_int_equal(parse(&config, text, &error), BY_ECONFIG);
    size_t length = strlen(error.message);
    assert_true(length > strlen(begin) + strlen(end));
    assert_memory_equal(error.message, begin, strlen(begin));
    assert_string_equal(error.message + length - strlen(end), end);
}

static void unresolved(const char *text, const char *message)
{
    by_error error = {0};
    by_config *config = good(text);
    assert_int_equal(by_config_resolve(config, &error), BY_ECONFIG);
    assert_string_equal(error.message, message);
    by_config_close(&config);
    assert_null(config);
}

static const double *pair(const by_config *config)
{
    return by__entry_at((const by__config *)config, "optimizer.betas")->at;
}

static void test_defaults(void **state)
{
    BY_UNUSED(state);
    by_config *config;
    assert_int_equal(by_config_default(&config, NULL), BY_OK);
    assert_string_equal(config->name, "run");
    assert_true(config->seed == 1337);
    assert_string_equal(config->model.kind, "gpt2");
    assert_int_equal(config->model.width, 128);
    assert_int_equal(config->model.tied, -1);
    assert_int_equal(config->train.eval_batches, -1);
    assert_true(config->optimizer.lr == 1e-3);
    assert_true(pair(config)[0] == 0.9 && pair(config)[1] == 0.99);
    assert_int_equal(config->data.text.count, 0);
    assert_string_equal(config->data.train, "");
    by_config_close(&config);
    by_config_close(&config);
    by_config_close(NULL);
    /* An empty file, an empty section and a file of comments are the defaults too. */
    static const char *const texts[] = {"", "# nothing\n", "---\n", "model:\ntrain: ~\n", "{}"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(texts); i++) {
        config = good(texts[i]);
        assert_int_equal(config->train.steps, 2000);
        by_config_close(&config);
    }
}

static void test_reads_the_example(void **state)
{
    BY_UNUSED(state);
    by_config *config = good(
        "name: shakespeare-char\n"
        "seed: 18446744073709551615\n"
        "model:      {kind: gpt2, layers: 4, heads: 4, width: 128, context: 64, dropout: 0.0}\n"
        "data:       {text: [tinyshakespeare.txt], tokenizer: char, valid_fraction: 0.1}\n"
        "train:      {steps: 2_000, batch: 12, micro_batch: 12, eval_every: 250, eval_batches: "
        "all}\n"
        "optimizer:  {kind: adamw, lr: 1e-3, min_lr: 1e-4, schedule: cosine, warmup: 1e2, "
        "betas: [0.8, 0.95], weight_decay: 0.1, clip: 1.0}\n"
        "precision:  {compute: bf16}\n"
        "memory:     {recompute: none}\n"
        "checkpoint: {every: 500, keep: 3}\n"
        "run:        {dir: runs}\n");
    assert_string_equal(config->name, "shakespeare-char");
    assert_true(config->seed == UINT64_MAX);
    assert_int_equal(config->data.text.count, 1);
    assert_string_equal(config->data.text.items[0], "tinyshakespeare.txt");
    assert_int_equal(config->train.steps, 2000);
    assert_int_equal(config->optimizer.warmup, 100);
    assert_true(pair(config)[0] == 0.8 && pair(config)[1] == 0.95);
    assert_string_equal(config->precision.compute, "bf16");
    by_config_close(&config);

    config = good("data:\n  text: one.txt # a list of one\n  train: \"a: #b\"\n  valid: 007\n"
                  "model:\n  tied: false\n");
    assert_int_equal(config->data.text.count, 1);
    assert_string_equal(config->data.text.items[0], "one.txt");
    assert_string_equal(config->data.train, "a: #b");
    assert_string_equal(config->data.valid, "007");
    assert_int_equal(config->model.tied, 0);
    by_config_close(&config);
}

static void test_unknown_keys(void **state)
{
    BY_UNUSED(state);
    refused("train:\n  batch: 3\n  step: 5\n",
            "train.yaml:3: unknown key \"step\" in section train; did you mean \"steps\"?");
    refused("trian:\n  batch: 3\n", "train.yaml:1: unknown key \"trian\"; did you mean \"train\"?");
    refused("layers: 3\n",
            "train.yaml:1: unknown key \"layers\"; did you mean \"layers\" in section model?");
    refused("\n\ntrain.steps: 3\n",
            "train.yaml:3: unknown key \"train.steps\"; did you mean \"steps\" in section train?");
    refused("memory: {offload_everything: true}\n",
            "train.yaml:1: unknown key \"offload_everything\" in section memory; keys here are "
            "recompute, recompute_every, activations, budget");
}

static void test_duplicates(void **state)
{
    BY_UNUSED(state);
    refused("train:\n  steps: 1\n  batch: 2\n  steps: 1\n",
            "train.yaml:4: duplicate key \"train.steps\"; it is on line 2 too");
    refused("seed: 1\nseed: 1\n", "train.yaml:2: duplicate key \"seed\"; it is on line 1 too");
    refused("run: {dir: a}\nmodel:\nrun: {dir: b}\n",
            "train.yaml:3: duplicate key \"run\"; it is on line 1 too");
    refused("base: a.yaml\nbase: b.yaml\n",
            "train.yaml:2: duplicate key \"base\"; it is on line 1 too");
}

static void test_types(void **state)
{
    BY_UNUSED(state);
    refused("model:\n  layers: four\n",
            "train.yaml:2: model.layers: \"four\" is not a whole number from 1 to 10000");
    static const char *const not_whole[] = {"\"4\"", "4.0", "4.5",  "04", "0x4", "4_",  "4__0",
                                            "1e",    "+",   "1e-3", ".",  "4 4", "true"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(not_whole); i++) {
        char text[64];
        by_config *config = NULL;
        (void)snprintf(text, sizeof text, "model: {layers: %s}", not_whole[i]);
        assert_int_equal(parse(&config, text, NULL), BY_ECONFIG);
    }
    refused("model: {layers: [1, 2]}",
            "train.yaml:1: model.layers: a list; it takes a whole number from 1 to 10000");
    refused("model: {layers: {a: 1}}", "train.yaml:1: a mapping where a value is expected");
    refused("model: {layers: }", "train.yaml:1: model.layers: no value; it takes a whole number "
                                 "from 1 to 10000");
    refused("model: {tied: yes}", "train.yaml:1: model.tied: \"yes\" is not -1 or true or false");
    refused("model: {dropout: \"0.1\"}",
            "train.yaml:1: model.dropout: \"0.1\" is not a number at least 0 and below 1");
    refused("model: {dropout: .nan}",
            "train.yaml:1: model.dropout: \".nan\" is not a number at least 0 and below 1");
    refused("optimizer: {betas: 0.9}", "train.yaml:1: optimizer.betas: a single value; it takes a "
                                       "list of two numbers, each at least 0 and below 1");
    refused("optimizer: {betas: [0.9]}", "train.yaml:1: optimizer.betas: a list of 1; it takes a "
                                         "list of two numbers, each at least 0 and below 1");
    refused("optimizer: {betas: [0.9, 1]}", "train.yaml:1: optimizer.betas: \"1\" is not a list of "
                                            "two numbers, each at least 0 and below 1");
    refused("train: {eval_batches: some}", "train.yaml:1: train.eval_batches: \"some\" is not all "
                                           "or a whole number from 1 to 1e+15");
    refused("data: {text: [a, [b]]}",
            "train.yaml:1: a list holds values or mappings of values, no lists");
    refused("data: {text: [a, ~]}",
            "train.yaml:1: data.text: no value; it takes UTF-8 text or a list of them");
    refused("seed: -1",
            "train.yaml:1: seed: \"-1\" is not a whole number from 0 to 18446744073709551615");
    refused("seed: 18446744073709551616", "train.yaml:1: seed: \"18446744073709551616\" is not a "
                                          "whole number from 0 to 18446744073709551615");
}

static void test_ranges_and_choices(void **state)
{
    BY_UNUSED(state);
    refused("model:\n  width: 1e18\n",
            "train.yaml:2: model.width: \"1e18\" is not a whole number from 1 to 1048576");
    refused("model:\n  width: 99999999999999999999\n",
            "train.yaml:2: model.width: "
            "\"99999999999999999999\" is not a whole number from 1 to 1048576");
    refused("model: {layers: 0}",
            "train.yaml:1: model.layers: \"0\" is not a whole number from 1 to 10000");
    refused("model: {kv_heads: -2}",
            "train.yaml:1: model.kv_heads: \"-2\" is not -1 or a whole number from 1 to 65536");
    refused("model: {dropout: 1}",
            "train.yaml:1: model.dropout: \"1\" is not a number at least 0 and below 1");
    refused("model: {dropout: 0.9999999999}",
            "train.yaml:1: model.dropout: \"0.9999999999\" is not a number at least 0 and below 1 "
            "when it is rounded to f32");
    refused("optimizer: {eps: 1e-300}",
            "train.yaml:1: optimizer.eps: \"1e-300\" is not a number above 0 and at most 1 when it "
            "is rounded to f32");
    refused("optimizer: {lr: 0}",
            "train.yaml:1: optimizer.lr: \"0\" is not a number above 0 and at most 1000");
    refused_among("model: {kind: gpt3}", "train.yaml:1: model.kind: \"gpt3\" is not one of gpt2, ",
                  "; did you mean \"gpt2\"?");
    refused_among("model: {kind: gpt}", "train.yaml:1: model.kind: \"gpt\" is not one of gpt2, ",
                  "; did you mean \"gpt2\"?");
    refused("precision: {compute: \"\"}",
            "train.yaml:1: precision.compute: \"\" is not one of f32, bf16, fp16");
    refused("run: {dir: \"\"}", "train.yaml:1: run.dir: \"\" is not non-empty UTF-8 text");
    refused_among(
        "model: {kind: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx}",
        "train.yaml:1: model.kind: \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
        "...\" is not one of gpt2, llama",
        "");
}

static void test_yaml_errors(void **state)
{
    BY_UNUSED(state);
    refused("model: {kind: gpt2\n",
            "train.yaml:2: not valid YAML: did not find expected ',' or '}' while parsing a flow "
            "mapping");
    refused("model:\n\tlayers: 3\n", "train.yaml:2: not valid YAML: found character that cannot "
                                     "start any token while scanning for the next token");
    refused("- a\n- b\n", "train.yaml:1: a config is a mapping of sections to their keys");
    refused("just text", "train.yaml:1: a config is a mapping of sections to their keys");
    refused("seed: 1\n---\nseed: 2\n", "train.yaml:2: a config is one YAML document");
    refused("model: 4\n",
            "train.yaml:1: \"model\" is a section; its keys follow below it, indented");
    refused("model: &m {layers: 3}\n", "train.yaml:1: anchors and aliases are not supported; share "
                                       "keys with \"base:\"");
    refused("model: *m\n", "train.yaml:1: anchors and aliases are not supported; share keys with "
                           "\"base:\"");
    refused("seed: !!int 3\n", "train.yaml:1: tags (!name) are not supported");
    refused("? [a]\n: b\n", "train.yaml:1: a key must be a word");
    refused("name: \"a\\0b\"\n", "train.yaml:1: a value holds a NUL byte");
    refused("name: \xff\xfe\xfd\n",
            "train.yaml: not YAML text: invalid leading UTF-8 octet at byte 6");
    refused("base: [a]\n", "train.yaml:1: base takes the path of one config file");

    by_config *config = NULL;
    by_error error;
    size_t length = ((size_t)1 << 20) + 1;
    char *huge = malloc(length);
    assert_non_null(huge);
    memset(huge, '\n', length);
    assert_int_equal(by_config_parse(&config, "big.yaml", huge, length, NULL, 0, &error),
                     BY_ECONFIG);
    assert_string_equal(error.message, "big.yaml: 1048577 bytes is more than the limit of 1048576");
    memset(huge, '[', length - 1);
    assert_int_equal(by_config_parse(&config, "deep.yaml", huge, length - 1, NULL, 0, &error),
                     BY_ECONFIG);
    free(huge);
}

static void test_overrides(void **state)
{
    BY_UNUSED(state);
    by_config *config;
    by_error error = {0};
    static const char *const right[] = {"train.steps=5",
                                        "name=a b #c",
                                        "data.text=[x.txt, \"y z.txt\"]",
                                        "data.train=",
                                        "optimizer.betas=[0.5, 0.6]",
                                        "train.eval_batches=all",
                                        "data.valid=\"q\\u00e9\"",
                                        "data.field=a=b",
                                        "train.steps=1e3"};
    const char *text = "train: {steps: 4, eval_batches: 3}\ndata: {train: somewhere}\n";
    assert_int_equal(by_config_parse(&config, "train.yaml", text, strlen(text), right,
                                     BY_ARRAY_LENGTH(right), &error),
                     BY_OK);
    assert_int_equal(config->train.steps, 1000);
    assert_string_equal(config->name, "a b #c");
    assert_int_equal(config->data.text.count, 2);
    assert_string_equal(config->data.text.items[1], "y z.txt");
    assert_string_equal(config->data.train, "");
    assert_true(pair(config)[0] == 0.5 && pair(config)[1] == 0.6);
    assert_int_equal(config->train.eval_batches, -1);
    assert_string_equal(config->data.valid, "q\xc3\xa9");
    assert_string_equal(config->data.field, "a=b");

    static const char *const wrong[][2] = {
        {"train.step=5",
         "override \"train.step=5\": unknown key \"step\" in section train; did you "
         "mean \"steps\"?"},
        {"trian.steps=5", "override \"trian.steps=5\": unknown key \"trian\"; did you mean "
                          "\"train\"?"},
        {"steps=5",
         "override \"steps=5\": unknown key \"steps\"; did you mean \"steps\" in section "
         "train?"},
        {"train.steps", "override \"train.steps\": write it as section.key=value"},
        {"train=5", "override \"train=5\": \"train\" is a section; write it as train.key=value"},
        {"base=x", "override \"base=x\": base can be set in a file only"},
        {"train.steps=x", "override \"train.steps=x\": train.steps: \"x\" is not a whole number "
                          "from 1 to 1e+15"},
        {"train.steps=",
         "override \"train.steps=\": train.steps: \"\" is not a whole number from 1 "
         "to 1e+15"},
        {"data.text=[a", "override \"data.text=[a\": not valid YAML: did not find expected ',' or "
                         "']' while parsing a flow sequence"},
        {"name=\xff", "override \"name=\xff\": name: \"\xff\" is not non-empty UTF-8 text"},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(wrong); i++) {
        assert_int_equal(by_config_set(config, wrong[i][0], &error), BY_ECONFIG);
        assert_string_equal(error.message, wrong[i][1]);
    }
    assert_int_equal(config->train.steps, 1000); /* a refused override changes nothing */
    assert_int_equal(by_config_set(config, "train.micro_batch=5", &error), BY_OK);
    assert_int_equal(by_config_resolve(config, &error), BY_ECONFIG);
    assert_string_equal(error.message, "override \"train.micro_batch=5\": micro_batch 5 does not "
                                       "divide batch 12; nearest: 4, 6");
    by_config_close(&config);
}

static void test_cross_checks(void **state)
{
    BY_UNUSED(state);
    unresolved("train:\n  batch: 100\n  micro_batch: 12\n",
               "train.yaml:3: micro_batch 12 does not divide batch 100; nearest: 10, 20");
    unresolved("train:\n  micro_batch: 13\n",
               "train.yaml:2: micro_batch 13 does not divide batch 12; nearest: 12");
    unresolved("memory: {activations: bf16, budget: 1GiB}\n",
               "train.yaml:1: what a budget computes again follows the machine, and with "
               "memory.activations bf16 it would change bits: set memory.recompute, or "
               "activations: same");
    unresolved("optimizer: {kind: muon}\nprecision: {compute: bf16, weights: bf16}\n",
               "train.yaml:2: muon keeps f32 weights: set precision.weights: f32, or take adamw");
    unresolved("sync: {every: 30}\n",
               "train.yaml:1: sync.every 30 does not divide train.steps 2000; nearest: 25, 40");
    unresolved("parallel: {replica_hash_every: 60}\nsync: {every: 50}\n",
               "train.yaml:2: sync.every 50 does not divide parallel.replica_hash_every 60; "
               "nearest: 30, 60");
    unresolved("sync: {every: 50, staleness: 51}",
               "train.yaml:1: sync.staleness is 51 and sync.every 50: an exchange ends before the "
               "next begins, and with every: 1 within its step");
    unresolved("sync: {staleness: 1}",
               "train.yaml:1: sync.staleness is 1 and sync.every 1: an exchange ends before the "
               "next begins, and with every: 1 within its step");
    unresolved("parallel: {shard: 2}\nsync: {compress: int8}\n",
               "train.yaml:2: parallel.shard is 2, and codes of sync.compress int8 are made of "
               "whole gradients: set parallel.shard to 1, which leaves its ranks to "
               "parallel.data, or sync.compress to none");
    unresolved("model:\n  heads: 5\n",
               "train.yaml:2: heads 5 does not divide width 128; nearest: 4, 8");
    unresolved("model: {kind: llama, kv_heads: 3}",
               "train.yaml:1: kv_heads 3 does not divide heads 4; nearest: 2, 4");
    unresolved("model:\n  kind: llama\n  width: 12\n",
               "train.yaml:3: heads 4 gives heads of width 3 (width 12 / heads); rotary embeddings "
               "need an even one");
    unresolved("train: {steps: 50}\noptimizer:\n  warmup: 100\n",
               "train.yaml:3: warmup 100 is more than steps 50");
    unresolved("train:\n  steps: 50\noptimizer: {schedule: wsd, warmup: 30, decay: 21}\n",
               "train.yaml:3: decay 21 and warmup 30 together are more than steps 50");
    unresolved("optimizer:\n  lr: 1e-4\n  min_lr: 1e-3\n",
               "train.yaml:3: min_lr 0.001 is more than lr 0.0001");
    unresolved("data: {text: a, train: b}",
               "train.yaml:1: data.train and data.text are both set; leave one out, or clear it "
               "(text: [] or train: \"\")");
    unresolved("parallel: {data: -1, shard: -1}",
               "train.yaml:1: parallel.data and parallel.shard are both -1, and one of them can be "
               "derived from the number of ranks: set data: 1");
    unresolved("name: a/b", "train.yaml:1: name \"a/b\" names a directory: it holds no \"/\" and "
                            "does not start with \".\"");
    /* Values that a program wrote into the fields. */
    by_error error;
    by_config *config = good("");
    config->model.width = INT64_MAX;
    assert_int_equal(by_config_resolve(config, &error), BY_ECONFIG);
    assert_string_equal(error.message,
                        "config: model.width: \"9223372036854775807\" is not a whole "
                        "number from 1 to 1048576");
    assert_int_equal(by_config_print(config, &(char *){NULL}, &error), BY_ECONFIG);
    by_config_close(&config);
}

static void test_derived(void **state)
{
    BY_UNUSED(state);
    by_config *config = good("train: {steps: 50}");
    assert_int_equal(by_config_resolve(config, NULL), BY_OK);
    assert_int_equal(config->model.kv_heads, 4);
    assert_int_equal(config->model.mlp_width, 512);
    assert_int_equal(config->model.tied, 1);
    assert_int_equal(config->model.vocab, -1);
    assert_int_equal(config->train.micro_batch, 12);
    assert_int_equal(config->train.threads, -1);
    assert_int_equal(config->train.eval_batches, -1);
    assert_int_equal(config->optimizer.warmup, 5);
    assert_int_equal(config->optimizer.decay, 5);
    assert_true(config->optimizer.min_lr == 1e-3 / 10);
    char *first = printed(config);
    assert_int_equal(by_config_resolve(config, NULL), BY_OK);
    char *second = printed(config);
    assert_string_equal(first, second);
    free(first);
    free(second);
    by_config_close(&config);

    config = good("model: {kind: llama, width: 768, heads: 12}\ntrain: {steps: 1}");
    assert_int_equal(by_config_resolve(config, NULL), BY_OK);
    assert_int_equal(config->model.mlp_width, 2048);
    assert_int_equal(config->model.tied, 0);
    assert_int_equal(config->optimizer.warmup, 0);
    assert_int_equal(config->optimizer.decay, 1);
    by_config_close(&config);
    config = good("model: {kind: llama, width: 100, heads: 2}");
    assert_int_equal(by_config_resolve(config, NULL), BY_OK);
    assert_int_equal(config->model.mlp_width, 320); /* 800 / 3 = 266.7, up to 5 x 64 */
    by_config_close(&config);
}

/* Sizes are bytes, in the file with a unit. */
static void test_sizes(void **state)
{
    BY_UNUSED(state);
    static const struct {
        const char *text;
        int64_t bytes;
        const char *printed;
    } cases[] = {{"6GiB", (int64_t)6 << 30, "6GiB"},
                 {"1.5 GiB", (int64_t)3 << 29, "1536MiB"},
                 {"512KiB", 1 << 19, "512KiB"},
                 {"2TiB", (int64_t)2 << 40, "2TiB"},
                 {"1_000", 1000, "1000"},
                 {"0", 0, "0"}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        char text[64];
        char *printed;
        (void)snprintf(text, sizeof text, "memory: {budget: %s}\n", cases[i].text);
        by_config *config = good(text);
        assert_int_equal(config->memory.budget, cases[i].bytes);
        assert_int_equal(by_config_print(config, &printed, NULL), BY_OK);
        (void)snprintf(text, sizeof text, "  budget: %s\n", cases[i].printed);
        assert_non_null(strstr(printed, text));
        free(printed);
        by_config_close(&config);
    }
    refused("memory: {budget: 6GB}\n", "train.yaml:1: memory.budget: \"6GB\" is not a size as "
                                       "6GiB or 512MiB, or a number of bytes");
    refused("memory: {budget: -1GiB}\n", "train.yaml:1: memory.budget: \"-1GiB\" is not a size as "
                                         "6GiB or 512MiB, or a number of bytes");
    refused("memory: {budget: GiB}\n", "train.yaml:1: memory.budget: \"GiB\" is not a size as 6GiB "
                                       "or 512MiB, or a number of bytes");
    refused("memory: {budget: 1e30GiB}\n", "train.yaml:1: memory.budget: \"1e30GiB\" is not a size "
                                           "as 6GiB or 512MiB, or a number of bytes");
}

/* ---- lists of mappings ---- */

static void test_records(void **state)
{
    BY_UNUSED(state);
    by_config *config = good("optimizer:\n  groups:\n"
                             "    - match: h.0.*\n      frozen: true\n"
                             "    - {match: \"*.bias\", lr_scale: 2, weight_decay: 0}\n");
    const by_record_list *list = &config->optimizer.groups;
    const by_parameter_group *groups = list->items;
    assert_int_equal(list->count, 2);
    assert_string_equal(groups[0].match, "h.0.*");
    assert_int_equal(groups[0].frozen, 1);
    assert_true(groups[0].lr_scale == 1.0 && groups[0].weight_decay == -1.0);
    assert_string_equal(groups[1].match, "*.bias");
    assert_true(groups[1].lr_scale == 2.0 && groups[1].weight_decay == 0.0);
    assert_int_equal(by_config_set(config, "optimizer.groups=[]", NULL), BY_OK);
    assert_int_equal(config->optimizer.groups.count, 0);
    assert_int_equal(by_config_set(config, "optimizer.groups=[{match: a}]", NULL), BY_OK);
    assert_int_equal(config->optimizer.groups.count, 1);
    by_config_close(&config);

    refused("optimizer: {groups: [{match: a, lr: 2}]}",
            "train.yaml:1: unknown key \"lr\" in optimizer.groups; it takes a list of mappings "
            "with "
            "keys match, lr_scale, weight_decay, frozen");
    refused("optimizer: {groups: [{match: a, lr_scal: 2}]}",
            "train.yaml:1: unknown key \"lr_scal\" in optimizer.groups; did you mean "
            "\"lr_scale\"?");
    refused("optimizer: {groups: [{lr_scale: 2}]}",
            "train.yaml:1: a mapping without optimizer.groups.match, which must be given");
    refused("optimizer: {groups: [{match: a, match: b}]}",
            "train.yaml:1: \"match\" is given twice in one mapping");
    refused("optimizer: {groups: [{match: a, lr_scale: -1}]}",
            "train.yaml:1: optimizer.groups.lr_scale: \"-1\" is not a number above 0 and at most "
            "1000000");
    refused("optimizer: {groups: [a]}",
            "train.yaml:1: optimizer.groups: a value in the list; it takes a list of mappings with "
            "keys match, lr_scale, weight_decay, frozen");
    refused("optimizer: {groups: a}",
            "train.yaml:1: optimizer.groups: a single value; it takes a list of mappings with keys "
            "match, lr_scale, weight_decay, frozen");
    refused("optimizer: {groups: [{match: [a]}]}",
            "train.yaml:1: a mapping in a list holds values only, no lists or mappings");
    refused("data: {text: [{a: b}]}", "train.yaml:1: data.text: a list of mappings; it takes UTF-8 "
                                      "text or a list of them");
}

/* Keys that came later leave the hashes of configs without them as they were. */
static void test_hash_of_earlier_configs(void **state)
{
    BY_UNUSED(state);
    char hash[33];
    char grouped[33];
    by_config *config = good("");
    assert_int_equal(by_config_resolve(config, NULL), BY_OK);
    assert_int_equal(by_config_hash(config, hash, NULL), BY_OK);
    /* A key that was added since needs `.later = true`. */
    assert_string_equal(hash, "fd89e58a77deeb15d4873c353c66035b");
    assert_int_equal(by_config_set(config, "optimizer.groups=[{match: a}]", NULL), BY_OK);
    assert_int_equal(by_config_hash(config, grouped, NULL), BY_OK);
    assert_string_not_equal(hash, grouped);
    by_config_close(&config);
}

/* ---- printing ---- */

/* Two records; of groups the first has defaults. */
static void change_records(by__entry *entry)
{
    by__config_node node = {0};
    by_error error = {0};
    bool groups = strcmp(entry->key.name, "groups") == 0;
    by_status status = by__config_read_value(
        &node,
        groups ? "[{match: \"*.bi as\"}, {match: a, lr_scale: 0.1, frozen: true}]"
               : "[{batch: 3, steps: 4}, {batch: 7, steps: 1}]",
        "test", &error);
    status = status == BY_OK ? by__value_set(entry, &node, "test", &error) : status;
    if (status != BY_OK) {
        fail_msg("%s", error.message);
    }
    by__node_free(&node);
}

static bool same_value(const by__entry *a, const by__entry *b);

static bool same_records(const by__entry *a, const by__entry *b)
{
    const by_record_list *left = a->at;
    const by_record_list *right = b->at;
    bool same = left->count == right->count;
    for (size_t r = 0; r < left->count && same; r++) {
        for (size_t i = 0; i < a->key.fields->count && same; i++) {
            const by__key *field = &a->key.fields->rows[i];
            size_t at = r * a->key.size + field->place.offset;
            by__entry x = {.key = *field, .at = (char *)left->items + at};
            by__entry y = {.key = *field, .at = (char *)right->items + at};
            same = same_value(&x, &y);
        }
    }
    return same;
}

/* Gives every field a value that is not its default, through the fields themselves. */
static void change_all(by__config *config)
{
    for (size_t i = 0; i < config->count; i++) {
        const by__key *key = &config->entries[i].key;
        void *at = config->entries[i].at;
        double span = key->max - key->min;
        const char *bar = key->choices == NULL ? NULL : strrchr(key->choices, '|');
        by__value_free(&config->entries[i]);
        switch (key->type) {
        case BY__KEY_INT:
        case BY__KEY_SIZE:
            *(int64_t *)at = (int64_t)(key->min + (double)(1 + i % (span < 7 ? (size_t)span : 7))) +
                             9000 * (key->max > 1e5);
            *(int64_t *)at += *(int64_t *)at == strtoll(key->fallback, NULL, 10);
            break;
        case BY__KEY_SWITCH:
            *(int64_t *)at = strcmp(key->fallback, "true") != 0;
            break;
        case BY__KEY_SEED:
            *(uint64_t *)at = UINT64_MAX - 4;
            break;
        case BY__KEY_REAL:
        case BY__KEY_PAIR:
            ((double *)at)[0] = key->min + span / 3.0;
            if (key->type == BY__KEY_PAIR) {
                ((double *)at)[1] = key->min + span * 0.1234567890123456789;
            }
            break;
        case BY__KEY_TEXT:
            *(char **)at = by__strdup(
                key->choices != NULL
                    ? (bar == NULL ? key->choices : bar + 1)
                    : "x\xc3\xa9 \"q\" \\ #: "
                      "\t\n\r\x01\x7f\xc2\x85 \xe2\x80\xa8 \xef\xbb\xbf\xf0\x9f\x8c\xb3");
            break;
        case BY__KEY_TEXTS:
            ((by_string_list *)at)->items = calloc(4, sizeof(char *));
            ((by_string_list *)at)->count = 4;
            ((by_string_list *)at)->items[0] = by__strdup("plain/path-1.txt");
            ((by_string_list *)at)->items[1] = by__strdup("null");
            ((by_string_list *)at)->items[2] = by__strdup("- [a, b]: {c}");
            ((by_string_list *)at)->items[3] = by__strdup("");
            break;
        case BY__KEY_RECORDS:
            change_records(&config->entries[i]);
            break;
        }
    }
}

static bool same_value(const by__entry *a, const by__entry *b)
{
    const by_string_list *left = a->at;
    const by_string_list *right = b->at;
    if (a->key.type == BY__KEY_TEXT) {
        return strcmp(*(char **)a->at, *(char **)b->at) == 0;
    }
    if (a->key.type == BY__KEY_TEXTS) {
        bool same = left->count == right->count;
        for (size_t i = 0; i < left->count && same; i++) {
            same = strcmp(left->items[i], right->items[i]) == 0;
        }
        return same;
    }
    if (a->key.type == BY__KEY_RECORDS) {
        return same_records(a, b);
    }
    return memcmp(left, right, a->key.type == BY__KEY_PAIR ? 16 : 8) == 0;
}

/* Every key of the kinds that are chosen reads back as it was printed. */
static void test_round_trip(void **state)
{
    BY_UNUSED(state);
    by_config *config = good("");
    by_config *defaults = good("");
    const by__config *whole = (const by__config *)config;
    change_all((by__config *)config);
    char *text = printed(config);
    by_config *again = good(text);
    for (size_t i = 0; i < whole->count; i++) {
        const by__entry *entry = &whole->entries[i];
        const by__key *key = &entry->key;
        bool one_choice = key->choices != NULL && strchr(key->choices, '|') == NULL;
        if (!one_choice && same_value(entry, &((by__config *)defaults)->entries[i])) {
            fail_msg("%s.%s was not changed", key->section, key->name);
        }
        if (by__entry_active(whole, entry) &&
            !same_value(entry, &((by__config *)again)->entries[i])) {
            fail_msg("%s.%s reads back differently:\n%s", key->section, key->name, text);
        }
    }
    char *second = printed(again);
    assert_string_equal(text, second);
    free(text);
    free(second);
    by_config_close(&again);
    by_config_close(&config);
    by_config_close(&defaults);
}

/* A copy has every value, of kinds that are not chosen too, and remembers where each was set. */
static void test_copy(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_config *copy = NULL;
    by_config *config = good("model:\n  kind: llama\n  rope_theta: 3\n");
    change_all((by__config *)config);
    assert_int_equal(by_config_copy(&copy, config, &error), BY_OK);
    for (size_t i = 0; i < ((by__config *)copy)->count; i++) {
        const by__entry *left = &((by__config *)config)->entries[i];
        const by__entry *right = &((by__config *)copy)->entries[i];
        assert_ptr_not_equal(left->at, right->at);
        if (!same_value(left, right)) {
            fail_msg("%s.%s is another", left->key.section, left->key.name);
        }
    }
    by_config_close(&config);
    assert_int_equal(by_config_set(copy, "model.kind=gpt2", &error), BY_OK);
    assert_int_equal(by_config_resolve(copy, &error), BY_ECONFIG);
    assert_string_equal(
        error.message,
        "train.yaml:3: model.rope_theta belongs to llama, mixtral; the kind here is gpt2");
    by_config_close(&copy);
    config = good("");
    config->train.steps = 0;
    assert_int_equal(by_config_copy(&copy, config, &error), BY_ECONFIG);
    assert_null(copy);
    by_config_close(&config);
}

static void test_hash(void **state)
{
    BY_UNUSED(state);
    static const struct {
        const char *text;
        bool equal;
    } cases[] = {
        {"train: {steps: 77, batch: 3}\nmodel: {layers: 2}\n", true},
        {"# other order, other form\nmodel:\n  layers: 2\ntrain:\n  batch: 3\n  steps: 7.7e1\n",
         true},
        {"name: other\nrun: {dir: elsewhere}\ntrain: {steps: 77, batch: 3}\nmodel: {layers: "
         "2}\n",
         true},
        {"train: {steps: 78, batch: 3}\nmodel: {layers: 2}\n", false},
        {"train: {steps: 77, batch: 3}\nmodel: {layers: 2}\nseed: 1\n", false},
        {"train: {steps: 77, batch: 3}\nmodel: {layers: 2}\nmemory: {recompute: block}\n", false},
        {"train: {steps: 77, batch: 3}\nmodel: {layers: 2}\n"
         "parallel: {data: 3, shard: 2, zero: 3, pipeline: 4, overlap: false, bucket_mib: 4}\n",
         true},
        {"train: {steps: 77, batch: 3}\nmodel: {layers: 2}\nparallel: {tensor: 2}\n", false},
        {"train: {steps: 77, batch: 3}\nmodel: {layers: 2}\nparallel: {expert: 3}\n", false},
    };
    /* `zero` changes bits with sequence and shard, not with one of them. */
    static const char *const zeros[][2] = {
        {"parallel: {sequence: 2, shard: 2}\n", "parallel: {sequence: 2, shard: 2, zero: 2}\n"},
        {"parallel: {sequence: 2}\n", "parallel: {sequence: 2, zero: 2}\n"}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(zeros); i++) {
        char hashes[2][33];
        for (size_t k = 0; k < 2; k++) {
            by_config *config = good(zeros[i][k]);
            assert_int_equal(by_config_hash(config, hashes[k], NULL), BY_OK);
            by_config_close(&config);
        }
        assert_int_equal(strcmp(hashes[0], hashes[1]) == 0, i == 1);
    }
    char first[33] = "";
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        char hash[33];
        by_config *config = good(cases[i].text);
        assert_int_equal(by_config_hash(config, hash, NULL), BY_OK);
        by_config_close(&config);
        assert_int_equal(strlen(hash), 32);
        if (i == 0) {
            memcpy(first, hash, sizeof first);
        }
        assert_true((strcmp(first, hash) == 0) == cases[i].equal);
    }
}

/* ---- files ---- */

typedef struct folder {
    char path[64];
} folder;

static int make_folder(void **state)
{
    static folder made;
    (void)snprintf(made.path, sizeof made.path, "/tmp/banyan-config-XXXXXX");
    *state = &made;
    return mkdtemp(made.path) == NULL ? -1 : 0;
}

static int drop_folder(void **state)
{
    return by__remove_tree(((folder *)*state)->path, NULL) == BY_OK ? 0 : -1;
}

static const char *put(void **state, char path[128], const char *name, const char *text)
{
    (void)snprintf(path, 128, "%s/%s", ((folder *)*state)->path, name);
    assert_int_equal(by__file_write(path, text, strlen(text), NULL), BY_OK);
    return path;
}

static void test_base_chain(void **state)
{
    char path[128];
    char directory[128];
    by_config *config;
    by_error error = {0};
    (void)snprintf(directory, sizeof directory, "%s/shared", ((folder *)*state)->path);
    assert_int_equal(mkdir(directory, 0777), 0);
    put(state, path, "shared/root.yaml",
        "seed: 1\ntrain: {steps: 10, batch: 20}\ndata: {text: [a, b, c]}\n");
    put(state, path, "shared/middle.yaml",
        "base: root.yaml\ntrain:\n  steps: 30\n  micro_batch: 6\noptimizer: {lr: 0.5}\n");
    put(state, path, "child.yaml",
        "data: {text: [z]}\nbase: shared/middle.yaml\noptimizer: {lr: 0.25}\n");
    const char *override = "seed=9";
    assert_int_equal(by_config_open(&config, path, &override, 1, &error), BY_OK);
    assert_true(config->seed == 9);
    assert_int_equal(config->train.steps, 30);
    assert_int_equal(config->train.batch, 20);
    assert_true(config->optimizer.lr == 0.25);
    assert_int_equal(config->data.text.count, 1); /* a list replaces the base's list */
    assert_string_equal(config->data.text.items[0], "z");
    /* A check over two files names the one that set the key. */
    char expected[300];
    (void)snprintf(
        expected, sizeof expected,
        "%s/shared/middle.yaml:4: micro_batch 6 does not divide batch 20; nearest: 5, 10",
        ((folder *)*state)->path);
    assert_int_equal(by_config_resolve(config, &error), BY_ECONFIG);
    assert_string_equal(error.message, expected);
    by_config_close(&config);
}

static void test_base_errors(void **state)
{
    char path[128];
    char expected[400];
    const char *root = ((folder *)*state)->path;
    by_config *config = NULL;
    by_error error = {0};
    put(state, path, "b.yaml", "base: c.yaml\n");
    put(state, path, "c.yaml", "seed: 1\nbase: ./a.yaml\n");
    put(state, path, "a.yaml", "\nbase: b.yaml\n");
    assert_int_equal(by_config_open(&config, path, NULL, 0, &error), BY_ECONFIG);
    (void)snprintf(expected, sizeof expected,
                   "%s/c.yaml:2: base: a cycle: %s/a.yaml -> %s/b.yaml -> %s/c.yaml -> %s/./a.yaml",
                   root, root, root, root, root);
    assert_string_equal(error.message, expected);

    put(state, path, "lost.yaml", "seed: 1\nbase: gone.yaml\n");
    assert_int_equal(by_config_open(&config, path, NULL, 0, &error), BY_EIO);
    (void)snprintf(expected, sizeof expected,
                   "%s/lost.yaml:2: base: cannot open %s/gone.yaml: No such file or directory",
                   root, root);
    assert_string_equal(error.message, expected);

    /* A wrong value in a base is an error though the child replaces it. */
    put(state, path, "wrong.yaml", "train:\n  steps: none\n");
    put(state, path, "over.yaml", "base: wrong.yaml\ntrain: {steps: 3}\n");
    assert_int_equal(by_config_open(&config, path, NULL, 0, &error), BY_ECONFIG);
    (void)snprintf(expected, sizeof expected,
                   "%s/wrong.yaml:2: train.steps: \"none\" is not a whole "
                   "number from 1 to 1e+15",
                   root);
    assert_string_equal(error.message, expected);

    for (int i = 0; i < 20; i++) {
        char name[32];
        char text[64];
        (void)snprintf(name, sizeof name, "long%d.yaml", 19 - i);
        (void)snprintf(text, sizeof text, "base: long%d.yaml\n", 20 - i);
        put(state, path, name, text);
    }
    assert_int_equal(by_config_open(&config, path, NULL, 0, &error), BY_ECONFIG);
    (void)snprintf(expected, sizeof expected,
                   "%s/long15.yaml:1: base: a chain of more than 16 files", root);
    assert_string_equal(error.message, expected);
    assert_int_equal(by_config_open(&config, "/nowhere/x.yaml", NULL, 0, &error), BY_EIO);
    assert_string_equal(error.message, "cannot open /nowhere/x.yaml: No such file or directory");
    assert_null(config);
}

/* The config of a run that was made before keys had owners: it names every key of every family. */
static void test_config_of_a_run(void **state)
{
    char path[128];
    by_config *config;
    by_error error = {0};
    const char *run = ((folder *)*state)->path;
    put(state, path, "config.yaml",
        "model:\n  kind: gpt2\n  heads: 2\n  kv_heads: 2\n  rope_theta: 10000\n");
    assert_int_equal(by_config_open(&config, path, NULL, 0, &error), BY_ECONFIG);
    assert_int_equal(by_config_open_run(&config, run, NULL, 0, &error), BY_OK);
    assert_int_equal(by_config_resolve(config, &error), BY_OK);
    assert_int_equal(config->model.heads, 2);
    char *text = printed(config);
    assert_null(strstr(text, "rope_theta"));
    free(text);
    by_config_close(&config);
    const char *override = "model.rope_theta=5";
    assert_int_equal(by_config_open_run(&config, run, &override, 1, &error), BY_ECONFIG);
    assert_string_equal(error.message,
                        "override \"model.rope_theta=5\": model.rope_theta belongs to "
                        "llama, mixtral; the kind here is gpt2");
    /* A family's own key comes back. */
    put(state, path, "config.yaml", "model: {kind: llama, rope_theta: 77}\n");
    assert_int_equal(by_config_open_run(&config, run, NULL, 0, &error), BY_OK);
    text = printed(config);
    assert_non_null(strstr(text, "  rope_theta: 77\n"));
    free(text);
    by_config_close(&config);
}

/* ---- declarations and their document ---- */

/* Whatever is declared anywhere: each key has a section and help, its type is that of the field
 * that holds it, and kinds that share a field agree on the default. */
static void test_declarations(void **state)
{
    BY_UNUSED(state);
    by_config *config = good("");
    const by__config *c = (const by__config *)config;
    for (size_t i = 0; i < c->count; i++) {
        const by__entry *e = &c->entries[i];
        const by__key *key = &e->key;
        assert_true(key->section[0] == '\0' || by__section_find(c->schema, key->section) != NULL);
        assert_true(key->help != NULL && key->help[0] != '\0');
        bool whole = key->type == BY__KEY_SWITCH || key->type == BY__KEY_SIZE;
        assert_int_equal(key->place.holds, whole ? BY__KEY_INT : key->type);
        assert_true(!key->place.own ||
                    key->place.offset + (key->type == BY__KEY_PAIR ? 16 : 8) <= e->kind->size);
        for (size_t k = 0; k < i; k++) {
            const by__entry *other = &c->entries[k];
            bool same_key = strcmp(other->key.name, key->name) == 0 &&
                            strcmp(other->key.section, key->section) == 0;
            if (same_key && (e->kind == NULL || other->kind == NULL || other->kind == e->kind)) {
                fail_msg("%s.%s is declared twice", key->section, key->name);
            }
            if (other->at == e->at && (!same_key || other->key.type != key->type ||
                                       strcmp(other->key.fallback, key->fallback) != 0)) {
                fail_msg("%s.%s and %s.%s share a field", key->section, key->name,
                         other->key.section, other->key.name);
            }
        }
    }
    for (size_t t = 0; t < c->schema->table_count; t++) {
        assert_non_null(by__chosen_kind(c, t)); /* the default is a kind of the table */
    }
    by_config_close(&config);
}

/* ---- kinds ---- */

static void test_foreign_keys(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    refused("model:\n  layers: 2\n  heads: 2\n  rope_theta: 5e5\n",
            "train.yaml:4: model.rope_theta belongs to llama, mixtral; the kind here is gpt2");
    refused("model:\n  rope_theta: 5e5\n  kind: gpt2\n",
            "train.yaml:2: model.rope_theta belongs to llama, mixtral; the kind here is gpt2");
    refused("model:\n  kv_heads: 2\n",
            "train.yaml:2: model.kv_heads belongs to llama, mixtral; the kind here is gpt2");
    refused("model:\n  rope_thta: 5e5\n",
            "train.yaml:2: unknown key \"rope_thta\" in section "
            "model; did you mean \"rope_theta\" (of llama, mixtral)?");
    refused_among("model:\n  mlp_widht: 3\n",
                  "train.yaml:2: unknown key \"mlp_widht\" in section model; did you mean "
                  "\"mlp_width\" (of gpt2, llama",
                  ")?");
    refused("checkpoint: {zzzzzzzz: true}\nmodel: {moment: 1}",
            "train.yaml:1: unknown key \"zzzzzzzz\" in section checkpoint; keys here are every, "
            "keep, keep_best, keep_every, async, staging");
    /* The kind may come after its keys, in the file or from an override. */
    by_config *config = good("model: {rope_theta: 5e5, kind: llama}");
    by_config_close(&config);
    const char *text = "model: {rope_theta: 5e5}";
    const char *llama = "model.kind=llama";
    assert_int_equal(by_config_parse(&config, "train.yaml", text, strlen(text), &llama, 1, &error),
                     BY_OK);
    assert_true(*(double *)by__entry_at((by__config *)config, "model.rope_theta")->at == 5e5);
    assert_int_equal(by_config_set(config, "model.kind=gpt2", &error), BY_OK);
    assert_int_equal(by_config_resolve(config, &error), BY_ECONFIG);
    assert_string_equal(
        error.message,
        "train.yaml:1: model.rope_theta belongs to llama, mixtral; the kind here is gpt2");
    by_config_close(&config);
    assert_int_equal(by_config_default(&config, &error), BY_OK);
    assert_int_equal(by_config_set(config, "model.rope_theta=2", &error), BY_OK);
    assert_int_equal(by_config_resolve(config, &error), BY_ECONFIG);
    assert_int_equal(by_config_set(config, "model.kind=llama", &error), BY_OK);
    assert_int_equal(by_config_resolve(config, &error), BY_OK);
    char *shown = printed(config);
    assert_non_null(strstr(shown, "\n  rope_theta: 2\n"));
    free(shown);
    by_config_close(&config);
    config = good("");
    shown = printed(config);
    assert_null(strstr(shown, "rope_theta"));
    assert_null(strstr(shown, "kv_heads"));
    free(shown);
    by_config_close(&config);
}

/* A schema of this test's own: a kind with keys in another section, in fields of its own and with
 * a type that a kind of another name has too. */
typedef struct image_keys {
    char *images;
    by_string_list labels;
    int64_t patch;
    int64_t flip;
    double scale[2];
    char *form;
} image_keys;

typedef struct graph_keys {
    int64_t patch;
    char *form;
} graph_keys;

static by_status resolve_image(by_config *config, void *own, by_error *error)
{
    image_keys *k = own;
    k->patch = k->patch == -1 ? config->train.batch : k->patch;
    if (k->images[0] == '\0') {
        return by_error_set(error, BY_ECONFIG, "%s: data.images is empty",
                            by__config_where(config, "data.images", "model.kind"));
    }
    return by__config_divides(config, "model.patch", "train.batch", error);
}

static const by__key image_rows[] = {
    {"data", "images", BY__KEY_TEXT, BY__OWN(image_keys, images), "\"\"", .help = "files"},
    {"data", "labels", BY__KEY_TEXTS, BY__OWN(image_keys, labels), "[a, b]", .help = "names"},
    {"model", "patch", BY__KEY_INT, BY__OWN(image_keys, patch), "-1", 1, 64, .derived = "batch",
     .help = "side"},
    {"model", "flip", BY__KEY_SWITCH, BY__OWN(image_keys, flip), "true", .help = "mirrored"},
    {"model", "scale", BY__KEY_PAIR, BY__OWN(image_keys, scale), "[0.5, 2]", 0, 9, .help = "range"},
    {"model", "form", BY__KEY_TEXT, BY__OWN(image_keys, form), "png", .choices = "png|jpeg",
     .help = "form"},
};
static const by__key graph_rows[] = {
    {"model", "patch", BY__KEY_INT, BY__OWN(graph_keys, patch), "70", 65, 100, .help = "nodes"},
    {"model", "form", BY__KEY_TEXT, BY__OWN(graph_keys, form), "list", .choices = "list|matrix",
     .help = "form"},
};
static const by__key_list image_list = BY__KEY_LIST(image_rows);
static const by__key_list graph_list = BY__KEY_LIST(graph_rows);
static const by__kind kinds[] = {
    {"gpt2", "Nothing of its own.", {NULL}, 0, NULL},
    {"image", "Images.", {&image_list}, sizeof(image_keys), resolve_image},
    {"graph", "Graphs.", {&graph_list}, sizeof(graph_keys), NULL},
};

static const by__kind *kind_row(size_t index)
{
    return index < BY_ARRAY_LENGTH(kinds) ? &kinds[index] : NULL;
}

static const by__kind_table kind_tables[] = {{"model", kind_row}};
static const by__schema own_schema = {
    .tables = kind_tables, .table_count = 1, .sections = &by__run_sections, .keys = &by__run_keys};

static by_status own_parse(by_config **out, const char *text, bool kept, by_error *error)
{
    return by__config_parse(out, &own_schema, "own.yaml", text, strlen(text), NULL, 0, kept, error);
}

static void own_refused(const char *text, const char *message)
{
    by_error error = {0};
    by_config *config = NULL;
    assert_int_equal(own_parse(&config, text, false, &error), BY_ECONFIG);
    assert_string_equal(error.message, message);
    assert_null(config);
}

static void test_keys_of_a_kind(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_config *config;
    assert_int_equal(own_parse(&config,
                               "model: {kind: image, form: jpeg}\ndata:\n  images: x.idx\n"
                               "  labels: [c, d, e]\n",
                               false, &error),
                     BY_OK);
    image_keys *k = by__kind_own(config->model.own, &kinds[1]);
    graph_keys *g = by__kind_own(config->model.own, &kinds[2]);
    assert_null(by__kind_own(config->model.own, &kinds[0]));
    assert_null(by__kind_own(NULL, &kinds[1]));
    assert_string_equal(k->images, "x.idx");
    assert_int_equal(k->labels.count, 3);
    assert_true(k->flip == 1 && k->scale[0] == 0.5 && k->scale[1] == 2.0 && k->patch == -1);
    assert_string_equal(k->form, "jpeg");
    assert_string_equal(g->form, "list"); /* a value of the other kind does not reach it */
    assert_int_equal(g->patch, 70);
    assert_int_equal(by_config_resolve(config, &error), BY_OK);
    assert_int_equal(k->patch, 12);
    char *text = printed(config);
    assert_non_null(strstr(text, "data:\n"));
    assert_non_null(strstr(text, "  images: x.idx\n  labels: [c, d, e]\n"));
    assert_non_null(strstr(text, "  patch: 12\n  flip: true\n  scale: [0.5, 2]\n  form: jpeg\n"));
    by_config *again;
    assert_int_equal(own_parse(&again, text, false, &error), BY_OK);
    char *second = printed(again);
    assert_string_equal(text, second);
    free(second);
    free(text);
    by_config_close(&again);
    k->patch = 99; /* by a program */
    assert_int_equal(by_config_resolve(config, &error), BY_ECONFIG);
    assert_string_equal(error.message,
                        "config: model.patch: \"99\" is not -1 or a whole number from 1 to 64");
    by_config_close(&config);
}

static void test_kinds_refuse(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_config *config;
    own_refused("data:\n  images: a\n",
                "own.yaml:2: data.images belongs to model image; the model here is gpt2");
    own_refused("model: {patch: 3}",
                "own.yaml:1: model.patch belongs to image, graph; the kind here is gpt2");
    own_refused("model: {kind: imag}",
                "own.yaml:1: model.kind: \"imag\" is not one of gpt2, image, "
                "graph; did you mean \"image\"?");
    /* Each of two kinds has its own range and its own words. */
    own_refused("model:\n  patch: 3\n  kind: graph\n",
                "own.yaml:2: model.patch: \"3\" is not a whole number from 65 to 100");
    own_refused("model:\n  kind: image\n  form: list\n",
                "own.yaml:3: model.form: \"list\" is not one of png, jpeg");
    own_refused("model:\n  kind: graph\n  form: x\n",
                "own.yaml:3: model.form: \"x\" is not one of png, jpeg");
    assert_int_equal(
        own_parse(&config, "model: {kind: graph, patch: 66, form: matrix}", false, &error), BY_OK);
    /* A value that suits only the other kind, then one that suits this. */
    assert_int_equal(by_config_set(config, "model.patch=5", &error), BY_OK);
    assert_int_equal(by_config_resolve(config, &error), BY_ECONFIG);
    assert_string_equal(error.message,
                        "override \"model.patch=5\": model.patch: \"5\" is not a whole "
                        "number from 65 to 100");
    assert_int_equal(by_config_set(config, "model.patch=65", &error), BY_OK);
    assert_int_equal(by_config_resolve(config, &error), BY_OK);
    by_config_close(&config);
    assert_int_equal(own_parse(&config, "\n\nmodel: {kind: image, patch: 5}", false, &error),
                     BY_OK);
    assert_int_equal(by_config_resolve(config, &error), BY_ECONFIG);
    assert_string_equal(error.message, "own.yaml:3: data.images is empty");
    assert_int_equal(by_config_set(config, "data.images=z", &error), BY_OK);
    assert_int_equal(by_config_resolve(config, &error), BY_ECONFIG);
    assert_string_equal(error.message,
                        "own.yaml:3: model.patch 5 does not divide train.batch 12; nearest: 4, 6");
    by_config_close(&config);
    /* A run's own config may hold keys that its kind does not have. */
    assert_int_equal(own_parse(&config, "model: {patch: 3, layers: 2}", true, &error), BY_OK);
    assert_int_equal(by_config_resolve(config, &error), BY_OK);
    assert_int_equal(config->model.layers, 2);
    by_config_close(&config);
}

static void test_reference_of_kinds(void **state)
{
    BY_UNUSED(state);
    char *text;
    assert_int_equal(by__config_reference(&text, &own_schema, "", NULL), BY_OK);
    assert_non_null(strstr(text, "| `kind` | `gpt2` | one of gpt2, image, graph | model family |"));
    assert_non_null(strstr(text,
                           "\n### model.kind: graph\n\nGraphs.\n\n| key | default | accepts | "
                           "meaning |\n|---|---|---|---|\n| `patch` | `70` | a whole number "
                           "from 65 to 100 | nodes |\n"));
    /* The keys of the kind in another section stand there. */
    const char *data = strstr(text, "\n## data\n");
    assert_non_null(data);
    assert_non_null(strstr(data, "\n### model.kind: image\n"));
    assert_non_null(strstr(data, "| `labels` | `[a, b]` |"));
    assert_null(strstr(text, "### model.kind: gpt2"));
    free(text);
}

static const struct {
    const char *path;
    by_status (*make)(char **out, by_error *error);
} pages[] = {{BY_SOURCE_DIR "/docs/config.md", by_config_reference},
             {BY_SOURCE_DIR "/docs/serve_config.md", by_serve_config_reference}};

static void test_reference_is_current(void **state)
{
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(pages); i++) {
        char *expected;
        char *actual;
        size_t length;
        assert_int_equal(pages[i].make(&expected, NULL), BY_OK);
        if (by__file_read(&actual, &length, pages[i].path, 1 << 20, NULL) != BY_OK ||
            strcmp(actual, expected) != 0) {
            fail_msg("%s is not what the declarations say; run test_config --write", pages[i].path);
        }
        free(actual);
        free(expected);
    }
}

static int write_reference(void)
{
    by_error error = {0};
    by_status status = BY_OK;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(pages) && status == BY_OK; i++) {
        char *text;
        status = pages[i].make(&text, &error);
        if (status == BY_OK) {
            status = by__file_write(pages[i].path, text, strlen(text), &error);
            free(text);
        }
    }
    if (status != BY_OK) {
        fprintf(stderr, "%s\n", error.message);
    }
    return status == BY_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--write") == 0) {
        return write_reference();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_reads_the_example),
        cmocka_unit_test(test_unknown_keys),
        cmocka_unit_test(test_duplicates),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_ranges_and_choices),
        cmocka_unit_test(test_yaml_errors),
        cmocka_unit_test(test_overrides),
        cmocka_unit_test(test_cross_checks),
        cmocka_unit_test(test_derived),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_copy),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_records),
        cmocka_unit_test(test_hash_of_earlier_configs),
        cmocka_unit_test(test_hash),
        cmocka_unit_test_setup_teardown(test_base_chain, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(test_base_errors, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(test_config_of_a_run, make_folder, drop_folder),
        cmocka_unit_test(test_declarations),
        cmocka_unit_test(test_foreign_keys),
        cmocka_unit_test(test_keys_of_a_kind),
        cmocka_unit_test(test_kinds_refuse),
        cmocka_unit_test(test_reference_of_kinds),
        cmocka_unit_test(test_reference_is_current),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
