/* The config module: every class of error with its exact message, overrides, derived values, and
 * that the reference is what the declarations say.
 *
 * `test_config --write` makes docs/config.md and docs/serve_config.md anew from the declarations.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/serve_config.h"
#include "banyan/text.h"
#include "config/schema.h"
#include "config_text.h"
#include "device/device.h"
#include "runner.h"

static void unresolved(const char *text, const char *message)
{
    by_error error = {0};
    by_config *config = config_good(text);
    assert_int_equal(by_config_resolve(config, &error), BY_ECONFIG);
    assert_string_equal(error.message, message);
    by_config_close(&config);
    assert_null(config);
}

static const double *pair(const by_config *config)
{
    return by__config_entry_at((const by__config *)config, "optimizer.betas")->at;
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
        config = config_good(texts[i]);
        assert_int_equal(config->train.steps, 2000);
        by_config_close(&config);
    }
}

static void test_reads_the_example(void **state)
{
    BY_UNUSED(state);
    by_config *config = config_good(
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

    config =
        config_good("data:\n  text: one.txt # a list of one\n  train: \"a: #b\"\n  valid: 007\n"
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
    config_refused("train:\n  batch: 3\n  step: 5\n",
                   "train.yaml:3: unknown key \"step\" in section train; did you mean "
                   "\"train.steps\"?");
    config_refused("trian:\n  batch: 3\n",
                   "train.yaml:1: unknown key \"trian\"; did you mean \"train\"?");
    config_refused("layers: 3\n",
                   "train.yaml:1: unknown key \"layers\"; did you mean \"model.layers\"?");
    config_refused("\n\ntrain.steps: 3\n",
                   "train.yaml:3: unknown key \"train.steps\"; write \"steps\" below \"train:\"");
    config_refused(
        "memory: {offload_everything: true}\n",
        "train.yaml:1: unknown key \"offload_everything\" in section memory; keys here are "
        "recompute, recompute_every, activations, budget");
}

/* Names of other programs, wherever they are given, and what to write instead. */
static void test_names_of_others(void **state)
{
    BY_UNUSED(state);
    static const char *const rows[][2] = {
        {"lr=1", "unknown key \"lr\"; did you mean \"optimizer.lr\"?"},
        {"train.lr=1", "did you mean \"optimizer.lr\"?"},
        /* lora has a key of this very name, and a slip is nearer */
        {"data.targets=x", "did you mean \"data.target\""},
        {"learning_rate=1", "did you mean \"optimizer.lr\"?"},
        {"train.seed=1", "did you mean \"seed\" (a key of no section)?"},
        {"learning-rate=1", "did you mean \"optimizer.lr\"?"},
        {"training.learning_rate=1", "did you mean \"optimizer.lr\"?"},
        {"n_layer=4", "did you mean \"model.layers\"?"},
        {"model.num_hidden_layers=4", "did you mean \"model.layers\"?"},
        {"Dropout=0", "did you mean \"model.dropout\" or \"lora.dropout\"?"},
        {"beta1=0.9", "did you mean \"optimizer.betas\"? (a list of both"},
        {"gradient_accumulation_steps=8",
         "did you mean \"train.micro_batch\"? (micro_batch = train.batch / (accumulation steps"},
        {"num_train_epochs=3", "did you mean \"train.steps\"? (steps = epochs x training"},
        {"warmup_ratio=0.1", "did you mean \"optimizer.warmup\"? (a number of steps or, below 1"},
        {"gpus=1", "did you mean \"device\"? (device: auto, or cpu)"},
        {"optimizer.lrate=1", "did you mean \"optimizer.lr\"?"},
        {"wieght_decay=1", "did you mean \"optimizer.weight_decay\"?"},
        {"lerning_rate=1", "did you mean \"optimizer.lr\"?"},
        {"training=1", "did you mean \"train\"?"},
        {"momentum=0.9", "did you mean \"norm.momentum\" or \"optimizer.momentum\"?"},
        {"data.path=a.txt", "did you mean \"data.text\"?"}, /* not offload.path */
        {"data.files=a.txt", "did you mean \"data.text\"?"},
    };
    by_error error = {0};
    by_config *config = config_good("");
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        check_error(by_config_set(config, rows[i][0], &error), BY_ECONFIG, &error, rows[i][1]);
    }
    /* Each row of the table names a key of a config or of a server, and stands for no other key. */
    char *pages[2];
    check_ok(by_config_reference(&pages[0], &error), &error);
    check_ok(by_serve_config_reference(&pages[1], &error), &error);
    const char *names;
    const char *key;
    for (size_t i = 0; (key = by__config_key_alias(i, &names)) != NULL; i++) {
        const char *dot = strchr(key, '.');
        char row[80];
        (void)snprintf(row, sizeof row, dot == NULL ? "\n## %s\n" : "\n| `%s` |",
                       dot == NULL ? key : dot + 1);
        if (key[0] != '\0' && strcmp(key, "name") != 0 && strcmp(key, "seed") != 0 &&
            strcmp(key, "device") != 0 && strstr(pages[0], row) == NULL &&
            strstr(pages[1], row) == NULL) {
            fail_msg("an alias stands for %s, which is no key", key);
        }
        for (const char *p = names; *p != '\0'; p += strcspn(p, "|"), p += *p == '|') {
            char setting[80];
            (void)snprintf(setting, sizeof setting, "nothing.%.*s=1", (int)strcspn(p, "|"), p);
            assert_int_equal(by_config_set(config, setting, &error), BY_ECONFIG);
            bool of_server = strncmp(key, "gateway", 7) == 0 || strncmp(key, "worker", 6) == 0 ||
                             strncmp(key, "scaling", 7) == 0 || strncmp(key, "cors", 4) == 0 ||
                             strncmp(key, "tracing", 7) == 0;
            if (!of_server && strstr(error.message, "did you mean") == NULL &&
                strstr(error.message, "no such key") == NULL) {
                fail_msg("%s suggests nothing: %s", setting, error.message);
            }
        }
    }
    free(pages[0]);
    free(pages[1]);
    by_config_close(&config);
}

static void test_duplicates(void **state)
{
    BY_UNUSED(state);
    config_refused("train:\n  steps: 1\n  batch: 2\n  steps: 1\n",
                   "train.yaml:4: duplicate key \"train.steps\"; it is on line 2 too");
    config_refused("seed: 1\nseed: 1\n",
                   "train.yaml:2: duplicate key \"seed\"; it is on line 1 too");
    config_refused("run: {dir: a}\nmodel:\nrun: {dir: b}\n",
                   "train.yaml:3: duplicate key \"run\"; it is on line 1 too");
    config_refused("base: a.yaml\nbase: b.yaml\n",
                   "train.yaml:2: duplicate key \"base\"; it is on line 1 too");
}

static void test_types(void **state)
{
    BY_UNUSED(state);
    config_refused("model:\n  layers: four\n",
                   "train.yaml:2: model.layers: \"four\" is not a whole number from 1 to 10000");
    static const char *const not_whole[] = {"\"4\"", "4.0", "4.5",  "04", "0x4", "4_",  "4__0",
                                            "1e",    "+",   "1e-3", ".",  "4 4", "true"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(not_whole); i++) {
        char text[64];
        by_config *config = NULL;
        (void)snprintf(text, sizeof text, "model: {layers: %s}", not_whole[i]);
        assert_int_equal(config_parse(&config, text, NULL), BY_ECONFIG);
    }
    config_refused("model: {layers: [1, 2]}",
                   "train.yaml:1: model.layers: a list; it takes a whole number from 1 to 10000");
    config_refused(
        "model: {layers: {a: 1}}",
        "train.yaml:1: model.layers: a mapping; it takes a whole number from 1 to 10000");
    config_refused("model: {layers: \"4\"}",
                   "train.yaml:1: model.layers: \"4\" in quotes is a text: write it without them");
    config_refused("model: {layers: \"four\"}",
                   "train.yaml:1: model.layers: \"four\" is not a whole number from 1 to 10000");
    config_refused("data:\n  corrupt_budget: '0.1'\n",
                   "train.yaml:2: data.corrupt_budget: \"0.1\" in quotes is a text: write it "
                   "without them");
    config_refused("model: {layers: }",
                   "train.yaml:1: model.layers: no value; it takes a whole number "
                   "from 1 to 10000");
    config_refused("model: {tied: yes}",
                   "train.yaml:1: model.tied: \"yes\" is not -1 or true or false");
    config_refused("model: {dropout: \"0.1\"}",
                   "train.yaml:1: model.dropout: \"0.1\" in quotes is a text: write it without "
                   "them");
    config_refused("model: {dropout: .nan}",
                   "train.yaml:1: model.dropout: \".nan\" is not a number at least 0 and below 1");
    config_refused("optimizer: {betas: 0.9}",
                   "train.yaml:1: optimizer.betas: a single value; it takes a "
                   "list of two numbers, each at least 0 and below 1");
    config_refused("optimizer: {betas: [0.9]}",
                   "train.yaml:1: optimizer.betas: a list of 1; it takes a "
                   "list of two numbers, each at least 0 and below 1");
    config_refused("optimizer: {betas: [0.9, 1]}",
                   "train.yaml:1: optimizer.betas: \"1\" is not a list of "
                   "two numbers, each at least 0 and below 1");
    config_refused("train: {eval_batches: some}",
                   "train.yaml:1: train.eval_batches: \"some\" is not all "
                   "or a whole number from 1 to 1e+15");
    config_refused("data: {text: [a, [b]]}",
                   "train.yaml:1: a list may contain values or mappings of values, no lists");
    config_refused("data: {text: [a, ~]}",
                   "train.yaml:1: data.text: no value; it takes UTF-8 text or a list of them");
    config_refused(
        "seed: -1",
        "train.yaml:1: seed: \"-1\" is not a whole number from 0 to 18446744073709551615");
    config_refused("seed: 18446744073709551616",
                   "train.yaml:1: seed: \"18446744073709551616\" is not a "
                   "whole number from 0 to 18446744073709551615");
}

static void test_ranges_and_choices(void **state)
{
    BY_UNUSED(state);
    config_refused("model:\n  width: 1e18\n",
                   "train.yaml:2: model.width: \"1e18\" is not a whole number from 1 to 1048576");
    config_refused("model:\n  width: 99999999999999999999\n",
                   "train.yaml:2: model.width: "
                   "\"99999999999999999999\" is not a whole number from 1 to 1048576");
    config_refused("model: {layers: 0}",
                   "train.yaml:1: model.layers: \"0\" is not a whole number from 1 to 10000");
    config_refused(
        "model: {kv_heads: -2}",
        "train.yaml:1: model.kv_heads: \"-2\" is not -1 or a whole number from 1 to 65536");
    config_refused("model: {dropout: 1}",
                   "train.yaml:1: model.dropout: \"1\" is not a number at least 0 and below 1");
    config_refused(
        "model: {dropout: 0.9999999999}",
        "train.yaml:1: model.dropout: \"0.9999999999\" is not a number at least 0 and below 1 "
        "when it is rounded to f32");
    config_refused(
        "optimizer: {eps: 1e-300}",
        "train.yaml:1: optimizer.eps: \"1e-300\" is not a number above 0 and at most 1 when it "
        "is rounded to f32");
    config_refused("optimizer: {lr: 0}",
                   "train.yaml:1: optimizer.lr: \"0\" is not a number above 0 and at most 1000");
    config_refused_among("model: {kind: gpt3}",
                         "train.yaml:1: model.kind: \"gpt3\" is not one of gpt2, ",
                         "; did you mean \"gpt2\"?");
    config_refused_among("model: {kind: gpt}",
                         "train.yaml:1: model.kind: \"gpt\" is not one of gpt2, ",
                         "; did you mean \"gpt2\"?");
    config_refused("precision: {compute: \"\"}",
                   "train.yaml:1: precision.compute: \"\" is not one of auto, f32, bf16, fp16");
    config_refused("run: {dir: \"\"}", "train.yaml:1: run.dir: \"\" is not non-empty UTF-8 text");
    config_refused_among(
        "model: {kind: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx}",
        "train.yaml:1: model.kind: \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
        "...\" is not one of gpt2, llama",
        "");
}

static void test_yaml_errors(void **state)
{
    BY_UNUSED(state);
    config_refused(
        "model: {kind: gpt2\n",
        "train.yaml:2: not valid YAML: did not find expected ',' or '}' while parsing a flow "
        "mapping: is the '{' of line 1 not closed, or a ',' missing?");
    config_refused(
        "seed: 1\ndata: {text: [a}\n",
        "train.yaml:2: not valid YAML: did not find expected ',' or ']' while parsing a flow "
        "sequence: is the '[' of line 2 not closed, or a ',' missing?");
    config_refused(
        "model: {layers: 2\ndata: {text: [a]}\n",
        "train.yaml:1: model.layers: \"2 data\" is not a whole number from 1 to 10000 (it "
        "goes on in the next line: is a '}' or ']' missing?)");
    config_refused("name: \"a\nseed: 1\n",
                   "train.yaml:3: not valid YAML: found unexpected end of stream while scanning a "
                   "quoted scalar: is the quote of line 1 not closed?");
    config_refused(
        "seed: 1\nmodel: {layers: 2}}\n",
        "train.yaml:2: not valid YAML: did not find expected key while parsing a block "
        "mapping: is a line indented otherwise than those around it, or a bracket closed twice?");
    config_refused(
        "model:\n\tlayers: 3\n",
        "train.yaml:2: not valid YAML: found character that cannot start any token while "
        "scanning for the next token: indent with spaces, not tabs");
    config_refused(
        "model: {layers:4}\n",
        "train.yaml:1: unknown key \"layers:4\" in section model; a colon is followed by "
        "a blank: KEY: VALUE");
    config_refused("- a\n- b\n", "train.yaml:1: a config is a mapping of sections to their keys");
    config_refused("just text", "train.yaml:1: a config is a mapping of sections to their keys");
    config_refused("seed: 1\n---\nseed: 2\n", "train.yaml:2: a config is one YAML document");
    config_refused("model: 4\n",
                   "train.yaml:1: \"model\" is a section; its keys follow below it, indented");
    config_refused(
        "model: &m {layers: 3}\n",
        "train.yaml:1: anchors and aliases are not supported; include another file with \"base:\"");
    config_refused(
        "model: *m\n",
        "train.yaml:1: anchors and aliases are not supported; include another file with \"base:\"");
    config_refused("seed: !!int 3\n", "train.yaml:1: tags (!name) are not supported");
    config_refused("? [a]\n: b\n", "train.yaml:1: a key must be a word");
    config_refused("name: \"a\\0b\"\n", "train.yaml:1: a value holds a NUL byte");
    config_refused("name: \xff\xfe\xfd\n",
                   "train.yaml: not YAML text: invalid leading UTF-8 octet at byte 6");
    config_refused("base: [a]\n", "train.yaml:1: base takes the path of one config file");

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
         "mean \"train.steps\"?"},
        {"trian.steps=5", "override \"trian.steps=5\": unknown key \"trian.steps\"; did you mean "
                          "\"train.steps\"?"},
        {"steps=5", "override \"steps=5\": unknown key \"steps\"; did you mean "
                    "\"train.steps\"?"},
        {"train.steps", "override \"train.steps\": write it as section.key=value"},
        {"train=5", "override \"train=5\": \"train\" is a section; write it as train.key=value"},
        {"base=x", "override \"base=x\": base can be set in a file only"},
        {"train.steps=x", "override \"train.steps=x\": train.steps: \"x\" is not a whole number "
                          "from 1 to 1e+15"},
        {"train.steps=",
         "override \"train.steps=\": train.steps: \"\" is not a whole number from 1 "
         "to 1e+15"},
        {"data.text=[a", "override \"data.text=[a\": not valid YAML: did not find expected ',' or "
                         "']' while parsing a flow sequence: is the '[' not closed, or a ',' "
                         "missing?"},
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

/* The config of a run has its warm-up in steps, and may be the base of a shorter one. */
static void test_schedule_of_file(void)
{
    static const char text[] = "train: {steps: 400}\noptimizer:\n  schedule: wsd\n  warmup: 40\n"
                               "  decay: 60\n";
    const char *shorter[] = {"train.steps=30", "optimizer.warmup=31"};
    by_error error = {0};
    by_config *config;
    for (size_t count = 0; count <= 2; count++) {
        assert_int_equal(
            by_config_parse(&config, "run.yaml", text, strlen(text), shorter, count, &error),
            BY_OK);
        assert_int_equal(by_config_resolve(config, &error), count < 2 ? BY_OK : BY_ECONFIG);
        if (count == 1) {
            assert_true(config->optimizer.warmup == 3.0 && config->optimizer.decay == 3.0);
            assert_string_equal(
                by_config_notes(config),
                "run.yaml:4: optimizer.warmup 40 does not fit train.steps 30: it is a tenth of "
                "them, 100 at most\nrun.yaml:5: optimizer.decay 60 does not fit train.steps 30: it "
                "is a tenth of them");
        } else if (count == 0) {
            assert_true(config->optimizer.warmup == 40.0 && config->optimizer.decay == 60.0);
            assert_null(by_config_notes(config));
        }
        by_config_close(&config);
    }
}

static void test_cross_checks(void **state)
{
    BY_UNUSED(state);
    unresolved("device: abacus:1\n",
               "train.yaml:1: there is no device 'abacus:1' in this build, which has: cpu, cuda "
               "(auto: the best of them)");
    unresolved("seed: 1\ndevice: cpu:3\n",
               "train.yaml:2: device 'cpu:3': this machine has 1 of the kind cpu, numbered from 0");
    unresolved("train:\n  batch: 100\n  micro_batch: 12\n",
               "train.yaml:3: micro_batch 12 does not divide batch 100; nearest: 10, 20");
    unresolved("train:\n  micro_batch: 13\n",
               "train.yaml:2: micro_batch 13 does not divide batch 12; nearest: 12");
    unresolved("memory: {activations: bf16, budget: 1GiB}\n",
               "train.yaml:1: what memory.budget recomputes depends on the machine, and with "
               "memory.activations bf16 that would change the results: set memory.recompute, or "
               "activations: same");
    unresolved("optimizer: {kind: muon}\nprecision: {compute: bf16, weights: bf16}\n",
               "train.yaml:2: muon needs f32 weights: set precision.weights: f32, or use adamw");
    unresolved("sync: {every: 30}\n",
               "train.yaml:1: sync.every 30 does not divide train.steps 2000; nearest: 25, 40");
    unresolved("parallel: {replica_hash_every: 60}\nsync: {every: 50}\n",
               "train.yaml:2: sync.every 50 does not divide parallel.replica_hash_every 60; "
               "nearest: 30, 60");
    unresolved("sync: {every: 50, staleness: 51}",
               "train.yaml:1: sync.staleness is 51 and sync.every 50: an exchange must end before "
               "the next one begins, and with every: 1 within its step");
    unresolved("sync: {staleness: 1}",
               "train.yaml:1: sync.staleness is 1 and sync.every 1: an exchange must end before "
               "the next one begins, and with every: 1 within its step");
    unresolved("parallel: {shard: 2}\nsync: {compress: int8}\n",
               "train.yaml:2: parallel.shard is 2, but sync.compress int8 needs whole gradients: "
               "set parallel.shard to 1, which leaves its ranks to "
               "parallel.data, or sync.compress to none");
    unresolved("model:\n  heads: 5\n",
               "train.yaml:2: heads 5 does not divide width 128; nearest: 4, 8");
    unresolved("model: {kind: llama, kv_heads: 3}",
               "train.yaml:1: kv_heads 3 does not divide heads 4; nearest: 2, 4");
    unresolved("model:\n  kind: llama\n  width: 12\n",
               "train.yaml:3: heads 4 gives heads of width 3 (width 12 / heads); rotary embeddings "
               "need an even one");
    unresolved("train: {steps: 50}\noptimizer:\n  warmup: 100\n",
               "train.yaml:3: warmup 100 is more than steps 50; a share of them fits any number, "
               "such as optimizer.warmup=0.05");
    unresolved("train:\n  steps: 50\noptimizer: {schedule: wsd, warmup: 30, decay: 21}\n",
               "train.yaml:3: decay 21 and warmup 30 together are more than steps 50; shares of "
               "them fit any number, such as optimizer.warmup=0.05 and optimizer.decay=0.1");
    test_schedule_of_file();
    unresolved("optimizer:\n  lr: 1e-4\n  min_lr: 1e-3\n",
               "train.yaml:3: min_lr 0.001 is more than lr 0.0001");
    unresolved("data: {text: a, train: b}",
               "train.yaml:1: data.train and data.text are both set; leave one out, or clear it "
               "(text: [] or train: \"\")");
    unresolved("parallel: {data: -1, shard: -1}",
               "train.yaml:1: parallel.data and parallel.shard are both -1, but only one of them "
               "can be derived from the number of ranks: set data: 1");
    unresolved("name: a/b", "train.yaml:1: name \"a/b\" becomes a directory name: it must not "
                            "contain \"/\" or start with \".\"");
    unresolved("name: \"a\\nb\"", "train.yaml:1: name contains a control character (byte 0x0a); it "
                                  "becomes a directory name and is printed in tables");
    unresolved("name: \"a\\eb\"", "train.yaml:1: name contains a control character (byte 0x1b); it "
                                  "becomes a directory name and is printed in tables");
    /* Values that a program wrote into the fields. */
    by_error error;
    by_config *config = config_good("");
    config->model.width = INT64_MAX;
    assert_int_equal(by_config_resolve(config, &error), BY_ECONFIG);
    assert_string_equal(error.message,
                        "config: model.width: \"9223372036854775807\" is not a whole "
                        "number from 1 to 1048576");
    assert_int_equal(by_config_print(config, &(char *){NULL}, &error), BY_ECONFIG);
    by_config_close(&config);
}

/* Below 1 a number of steps is a share of them; printed and hashed as their number. */
static void test_shares(void **state)
{
    BY_UNUSED(state);
    static const struct {
        const char *text;
        double warmup;
        double decay;
    } rows[] = {
        {"train: {steps: 2000}\noptimizer: {warmup: 0.05}", 100, 200},
        {"train: {steps: 20000}\noptimizer: {warmup: 0.035, decay: 0.25}", 700, 5000},
        {"train: {steps: 50}\noptimizer: {warmup: 0.05, decay: 0.001}", 3, 1},
        {"train: {steps: 1}\noptimizer: {warmup: 0.05, schedule: wsd}", 0, 1},
        {"train: {steps: 5}\noptimizer: {warmup: 0.5, decay: 0.5, schedule: wsd}", 3, 2},
        {"train: {steps: 50}\noptimizer: {warmup: 1, decay: 1.0}", 1, 1},
        {"train: {steps: 50}\noptimizer: {warmup: 0}", 0, 5},
        {"train: {steps: 10_000_000}\noptimizer: {warmup: 1e6}", 1e6, 1e6},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        char line[64];
        by_config *config = config_good(rows[i].text);
        by_error error = {0};
        check_ok(by_config_resolve(config, &error), &error);
        assert_true(config->optimizer.warmup == rows[i].warmup);
        assert_true(config->optimizer.decay == rows[i].decay);
        char *printed = config_printed(config);
        (void)snprintf(line, sizeof line, "  warmup: %.0f\n", rows[i].warmup);
        assert_non_null(strstr(printed, line));
        free(printed);
        by_config_close(&config);
    }
    static const char accepts[] = "is not -1 or a whole number up to 1e+15, or a share below 1";
    static const char *const refused[] = {"1.5", "-0.05", "-2", "2.25", "true", "5%"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(refused); i++) {
        char text[64];
        char message[160];
        (void)snprintf(text, sizeof text, "optimizer: {warmup: %s}", refused[i]);
        (void)snprintf(message, sizeof message, "train.yaml:1: optimizer.warmup: \"%s\" %s",
                       refused[i], accepts);
        config_refused(text, message);
    }
}

/* Every example can be shortened to any number of steps. */
static void test_examples(void **state)
{
    BY_UNUSED(state);
    static const char *const names[] = {"demo",        "gpt2_1.5b",       "gpt2_124m",
                                        "housing_mlp", "llama_125m",      "mixtral_tiny",
                                        "mnist_vit",   "shakespeare_char"};
    static const char *const steps[] = {"train.steps=1", "train.steps=2", "train.steps=50",
                                        "train.steps=1000000"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(names); i++) {
        char path[512];
        (void)snprintf(path, sizeof path, "%s/examples/%s.yaml", BY_SOURCE_DIR, names[i]);
        for (size_t k = 0; k < BY_ARRAY_LENGTH(steps); k++) {
            by_config *config;
            by_error error = {0};
            check_ok(by_config_open(&config, path, &steps[k], 1, &error), &error);
            check_ok(by_config_resolve(config, &error), &error);
            by_config_close(&config);
        }
    }
}

static void test_derived(void **state)
{
    BY_UNUSED(state);
    by_config *config = config_good("train: {steps: 50}");
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
    char *first = config_printed(config);
    assert_int_equal(by_config_resolve(config, NULL), BY_OK);
    char *second = config_printed(config);
    assert_string_equal(first, second);
    free(first);
    free(second);
    by_config_close(&config);

    config = config_good("model: {kind: llama, width: 768, heads: 12}\ntrain: {steps: 1}");
    assert_int_equal(by_config_resolve(config, NULL), BY_OK);
    assert_int_equal(config->model.mlp_width, 2048);
    assert_int_equal(config->model.tied, 0);
    assert_int_equal(config->optimizer.warmup, 0);
    assert_int_equal(config->optimizer.decay, 1);
    by_config_close(&config);
    config = config_good("model: {kind: llama, width: 100, heads: 2}");
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
                 {"6GB", 6000000000, "5859375KiB"},
                 {"10 MB", 10000000, "10000000"},
                 {"10mb", 10000000, "10000000"},
                 {"512K", 1 << 19, "512KiB"},
                 {"1.5g", (int64_t)3 << 29, "1536MiB"},
                 {"100B", 100, "100"},
                 {"1_000", 1000, "1000"},
                 {"0", 0, "0"}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        char text[64];
        char *printed;
        (void)snprintf(text, sizeof text, "memory: {budget: %s}\n", cases[i].text);
        by_config *config = config_good(text);
        assert_int_equal(config->memory.budget, cases[i].bytes);
        assert_int_equal(by_config_print(config, &printed, NULL), BY_OK);
        (void)snprintf(text, sizeof text, "  budget: %s\n", cases[i].printed);
        assert_non_null(strstr(printed, text));
        free(printed);
        by_config_close(&config);
    }
    config_refused("memory: {budget: 6GBit}\n",
                   "train.yaml:1: memory.budget: \"6GBit\" is not a size "
                   "such as 6GiB or 500MB, or a number of bytes");
    static const char *const wrong[] = {"1.5",   "0x10",  "infGiB", "nanMB",
                                        "6 G B", "6  GB", "B",      "1e400KB"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(wrong); i++) {
        int64_t bytes;
        char text[64];
        by_error error = {0};
        by_config *config = config_good("");
        (void)snprintf(text, sizeof text, "memory.budget=%s", wrong[i]);
        check_error(by_config_set(config, text, &error), BY_ECONFIG, &error, "is not a size");
        assert_false(by_parse_size(&bytes, wrong[i]));
        by_config_close(&config);
    }
    config_refused("memory: {budget: -1GiB}\n",
                   "train.yaml:1: memory.budget: \"-1GiB\" is not a size such as 6GiB or 500MB, "
                   "or a number of bytes");
    config_refused("memory: {budget: GiB}\n",
                   "train.yaml:1: memory.budget: \"GiB\" is not a size such as 6GiB "
                   "or 500MB, or a number of bytes");
    config_refused("memory: {budget: 1e30GiB}\n",
                   "train.yaml:1: memory.budget: \"1e30GiB\" is not a size such as 6GiB or 500MB, "
                   "or a number of bytes");
}

/* Times with their units, in the config of a server and in flags. */
static void test_times(void **state)
{
    BY_UNUSED(state);
    static const struct {
        const char *text;
        double seconds;
    } cases[] = {{"90", 90},      {"90s", 90},  {"1.5m", 90}, {"90 s", 90},  {"2h", 7200},
                 {"250ms", 0.25}, {"0.2", 0.2}, {"1min", 60}, {"1d", 86400}, {"1e2s", 100}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        char text[64];
        double seconds;
        by_serve_config *config;
        by_error error = {0};
        assert_true(by_parse_duration(&seconds, cases[i].text));
        assert_true(seconds == cases[i].seconds);
        (void)snprintf(text, sizeof text, "gateway: {deadline: %s}\n", cases[i].text);
        check_ok(by_serve_config_parse(&config, "serve.yaml", text, strlen(text), &error), &error);
        assert_true(config->gateway.deadline == cases[i].seconds);
        by_serve_config_close(&config);
    }
    static const char *const wrong[] = {"",     "s",     "5x",    "1m30s", "inf",
                                        "nans", "0x1p3", "1 m s", "5M"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(wrong); i++) {
        double seconds;
        assert_false(by_parse_duration(&seconds, wrong[i]));
    }
}

/* ---- the machine ---- */

/* The compute format of a text once it is resolved with kernels of this level. */
static void computes(const char *level, const char *text, const char *expected)
{
    by_error error = {0};
    by_config *config = config_good(text);
    assert_int_equal(setenv("BANYAN_ISA", level, 1), 0);
    for (int i = 0; i < 2; i++) { /* idempotent */
        if (by_config_resolve(config, &error) != BY_OK) {
            fail_msg("%s", error.message);
        }
        assert_string_equal(config->precision.compute, expected);
        assert_int_equal(setenv("BANYAN_ISA", "native", 1), 0); /* what was chosen stays */
    }
    char *printed = config_printed(config);
    by_config *again = config_good(printed);
    assert_string_equal(again->precision.compute, expected);
    free(printed);
    by_config_close(&again);
    by_config_close(&config);
    assert_int_equal(unsetenv("BANYAN_ISA"), 0);
}

static void test_precision_of_the_machine(void **state)
{
    BY_UNUSED(state);
    static const char wide[] = "precision: {weights: bf16}\n";
    size_t count;
    const char *const *levels = by__cpu_host_levels(&count);
    by_error error = {0};
    computes("reference", "", "f32");
    for (size_t i = 0; i < count; i++) {
        bool narrow = strcmp(levels[i], "avx512") == 0;
        computes(levels[i], "", narrow ? "bf16" : "f32");
        computes(levels[i], "precision: {compute: auto}\n", narrow ? "bf16" : "f32");
        computes(levels[i], "precision: {compute: f32}\n", "f32");
        computes(levels[i], "precision: {compute: fp16}\n", "fp16");
        computes(levels[i], wide, "bf16"); /* which they need */
    }
    by_config *config = config_good("");
    assert_string_equal(config->precision.compute, "auto");
    assert_int_equal(setenv("BANYAN_ISA", "sse9", 1), 0);
    assert_int_not_equal(by_config_resolve(config, &error), BY_OK);
    assert_string_equal(error.message,
                        "BANYAN_ISA is 'sse9'; one of reference, baseline, avx2, avx512, native");
    assert_int_equal(unsetenv("BANYAN_ISA"), 0);
    by_config_close(&config);
}

/* ---- lists of mappings ---- */

static void test_records(void **state)
{
    BY_UNUSED(state);
    by_config *config = config_good("optimizer:\n  groups:\n"
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

    config_refused(
        "optimizer: {groups: [{match: a, lr: 2}]}",
        "train.yaml:1: unknown key \"lr\" in optimizer.groups; it takes a list of mappings "
        "with "
        "keys match, lr_scale, weight_decay, frozen");
    config_refused("optimizer: {groups: [{match: a, lr_scal: 2}]}",
                   "train.yaml:1: unknown key \"lr_scal\" in optimizer.groups; did you mean "
                   "\"lr_scale\"?");
    config_refused("optimizer:\n  groups:\n    - match: a\n    - match: b\n      lr_scal: 2\n",
                   "train.yaml:5: unknown key \"lr_scal\" in optimizer.groups; did you mean "
                   "\"lr_scale\"?");
    config_refused("optimizer:\n  groups:\n    - match: a\n    - lr_scale: 2\n",
                   "train.yaml:4: a mapping without optimizer.groups.match, which must be given");
    config_refused("optimizer:\n  groups:\n    - match: a\n    - match: b\n      lr_scale: x\n",
                   "train.yaml:5: optimizer.groups.lr_scale: \"x\" is not a number above 0 and at "
                   "most 1000000");
    config_refused("optimizer: {groups: [{lr_scale: 2}]}",
                   "train.yaml:1: a mapping without optimizer.groups.match, which must be given");
    config_refused("optimizer: {groups: [{match: a, match: b}]}",
                   "train.yaml:1: \"match\" is given twice in one mapping");
    config_refused(
        "optimizer: {groups: [{match: a, lr_scale: -1}]}",
        "train.yaml:1: optimizer.groups.lr_scale: \"-1\" is not a number above 0 and at most "
        "1000000");
    config_refused(
        "optimizer: {groups: [a]}",
        "train.yaml:1: optimizer.groups: a value in the list; it takes a list of mappings with "
        "keys match, lr_scale, weight_decay, frozen");
    config_refused(
        "optimizer: {groups: a}",
        "train.yaml:1: optimizer.groups: a single value; it takes a list of mappings with keys "
        "match, lr_scale, weight_decay, frozen");
    config_refused(
        "optimizer: {groups: [{match: [a]}]}",
        "train.yaml:1: a mapping in a list may contain only values, no lists or mappings");
    config_refused("data: {text: [{a: b}]}",
                   "train.yaml:1: data.text: a list of mappings; it takes UTF-8 "
                   "text or a list of them");
}

/* ---- the reference ---- */

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
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_unknown_keys),
        cmocka_unit_test(test_names_of_others),
        cmocka_unit_test(test_duplicates),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_ranges_and_choices),
        cmocka_unit_test(test_yaml_errors),
        cmocka_unit_test(test_overrides),
        cmocka_unit_test(test_cross_checks),
        cmocka_unit_test(test_derived),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_precision_of_the_machine),
        cmocka_unit_test(test_records),
        cmocka_unit_test(test_reference_is_current),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
