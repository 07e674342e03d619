/* Suites: the draws of Python, prompts as others make them, and scores against logits of whole
 * sequences, whatever runs beside them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "banyan/suite.h"
#include "base/base.h"
#include "evaluate/answer.h"
#include "evaluate/python_literal.h"
#include "evaluate/python_random.h"
#include "evaluate/suite_yaml.h"
#include "runner.h"
#include "temporary.h"
#include "tiny_model.h"

/* ---- Python's random ---- */

static void check_sample(uint64_t seed, uint32_t n, const uint32_t *want, uint32_t k)
{
    by__evaluate_random random;
    by_error error = {0};
    uint32_t out[16];
    by__evaluate_random_seed(&random, seed);
    check_ok(by__evaluate_random_sample(&random, n, out, k, &error), &error);
    assert_memory_equal(out, want, k * sizeof *out);
}

/* Of Python 3.11: random.Random(seed).sample(range(n), k), and shuffle. */
static void draws_are_those_of_python(void **state)
{
    (void)state;
    by__evaluate_random random;
    uint32_t items[12];
    check_sample(1237, 49, (uint32_t[]){9, 25, 19, 15, 14}, 5);
    check_sample(1234, 7, (uint32_t[]){6, 3, 0}, 3);
    check_sample(1234, 1000, (uint32_t[]){989, 796, 451, 119, 7, 92, 932, 965, 961, 826}, 10);
    check_sample(1235, 80, (uint32_t[]){54, 68, 75, 60, 50, 19}, 6);
    check_sample(1235, 90, (uint32_t[]){88, 54, 68, 75, 60, 50}, 6);
    check_sample(0, 1000000000, (uint32_t[]){906691059, 413653999, 813847339}, 3);
    check_sample(12345678901234567, 1000000000, (uint32_t[]){104181971, 640315855, 716129882}, 3);
    for (uint32_t i = 0; i < 12; i++) {
        items[i] = i;
    }
    by__evaluate_random_seed(&random, 1337);
    by__evaluate_random_shuffle(&random, items, 12);
    assert_memory_equal(items, ((uint32_t[]){6, 0, 1, 4, 10, 7, 3, 11, 2, 5, 8, 9}), sizeof items);
}

/* ---- YAML and Python's lists ---- */

static void check_yaml(const char *text, const char *want)
{
    by_error error = {0};
    json_t *value;
    if (want == NULL) {
        check_error(by__evaluate_yaml(&value, "f", text, strlen(text), &error), BY_EFORMAT, &error,
                    "f:");
        return;
    }
    check_ok(by__evaluate_yaml(&value, "f", text, strlen(text), &error), &error);
    char *out = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    assert_string_equal(out, want);
    free(out);
    json_decref(value);
}

static void yaml_is_read_as_python_reads_it(void **state)
{
    (void)state;
    check_yaml("a: 1\nb: [x, 'yes', no, ~, 1.5, -3, '7', 1e3, 1.2.3]\nc: \"\\nAnswer: \"\n",
               "{\"a\":1,\"b\":[\"x\",\"yes\",false,null,1.5,-3,\"7\",1000.0,\"1.2.3\"],"
               "\"c\":\"\\nAnswer: \"}");
    check_yaml("p: !function utils.f\nq: &a {r: 1}\ns: *a\n",
               "{\"p\":{\"!function\":\"utils.f\"},\"q\":{\"r\":1},\"s\":{\"r\":1}}");
    check_yaml("a: &a {x: 1, y: 2}\nb: &b {y: 3, z: 4}\nc: {y: 5, <<: *a}\nd: {<<: [*a, *b]}\n"
               "e: {'<<': 1}\n",
               "{\"a\":{\"x\":1,\"y\":2},\"b\":{\"y\":3,\"z\":4},\"c\":{\"x\":1,\"y\":5},"
               "\"d\":{\"y\":2,\"z\":4,\"x\":1},\"e\":{\"<<\":1}}");
    check_yaml("a: {<<: 3}\n", NULL);
    check_yaml("a: 1\na: 2\n", NULL);
    check_yaml("a: [1, 2\n", NULL);
    check_yaml("", NULL);
    check_yaml("[a]: 1\n", NULL);
    check_yaml("a: &x [*x]\n", NULL);
}

static void check_list(const char *text, const char *want)
{
    json_t *value = by__evaluate_python_list(text, strlen(text));
    assert_true((value != NULL) == (want != NULL));
    if (want != NULL) {
        char *out = json_dumps(value, JSON_COMPACT);
        assert_string_equal(out, want);
        free(out);
        json_decref(value);
    }
}

static void lists_are_those_of_python(void **state)
{
    (void)state;
    check_list("['it\\'s', \"a\\n\\u00e9\", 1, -2.5, True, None, ['b',], ('c', 'd')]",
               "[\"it's\",\"a\\n\303\251\",1,-2.5,true,null,[\"b\"],[\"c\",\"d\"]]");
    check_list("[]", "[]");
    check_list("['a' 'b']", NULL);
    check_list("['a'", NULL);
    check_list("[x]", NULL);
    check_list("['a'] b", NULL);
    check_list("['\\ud800']", NULL);
}

/* ---- prompts ---- */

static by_suite *parse(const char *yaml, const char *rows, int64_t few_shot, int64_t limit)
{
    by_error error = {0};
    by_suite *suite;
    const by_suite_options options = {.few_shot = few_shot, .limit = limit, .seed = BY_SUITE_SEED};
    check_ok(by_suite_parse(&suite, yaml, strlen(yaml), rows, strlen(rows), &options, &error),
             &error);
    return suite;
}

static void refuse(const char *yaml, const char *rows, by_status want, const char *text)
{
    by_error error = {0};
    by_suite *suite = NULL;
    const by_suite_options options = {.few_shot = -1, .seed = BY_SUITE_SEED};
    by_status status =
        by_suite_parse(&suite, yaml, strlen(yaml), rows, strlen(rows), &options, &error);
    if (status == BY_OK) {
        char *out;
        status = by_suite_show(suite, 0, 0, &out, &error);
        by_suite_close(&suite);
    }
    check_error(status, want, &error, text);
}

static void check_item(const by_suite *suite, size_t task, size_t item, const char *want)
{
    by_error error = {0};
    char *out;
    check_ok(by_suite_show(suite, task, item, &out, &error), &error);
    assert_string_equal(out, want);
    free(out);
}

static const char core[] =
    "icl_tasks:\n"
    "- {label: mc, dataset_uri: x, num_fewshot: [2], icl_task_type: multiple_choice,\n"
    "   continuation_delimiter: \"\\nA: \"}\n"
    "- {label: sc, dataset_uri: x, num_fewshot: [1], icl_task_type: schema}\n"
    "- {label: lm, dataset_uri: x, num_fewshot: [1], icl_task_type: language_modeling}\n";

#define CORE_ROW(n, gold)                                                                          \
    "{\"query\":\"q" #n "\",\"choices\":[\"a" #n "\",\"b" #n "\"],\"gold\":" #gold                 \
    ",\"context_options\":[\"s" #n "\",\"t" #n "\"],\"continuation\":\"c" #n                       \
    "\",\"context\":\" x" #n " \"}\n"
static const char core_rows[] =
    CORE_ROW(0, 0) CORE_ROW(1, 1) CORE_ROW(2, 0) CORE_ROW(3, 1) CORE_ROW(4, 0);

/* Made with Python: random.Random(1337).shuffle of the rows; the examples of item i are those of
 * random.Random(1234 + i).sample of all other indexes. */
static void core_prompts_are_those_of_nanochat(void **state)
{
    (void)state;
    by_suite *suite = parse(core, core_rows, -1, 0);
    assert_int_equal(by_suite_tasks(suite), 3);
    assert_int_equal(by_suite_items(suite, 0), 5);
    check_item(suite, 0, 0,
               "{\"task\":\"mc\",\"item\":0,\"gold\":1,\"contexts\":[\"q4\\nA: a4\\n\\nq0\\nA: a"
               "0\\n\\nq1\\nA: \",\"q4\\nA: a4\\n\\nq0\\nA: a0\\n\\nq1\\nA: \"],\"continuations"
               "\":[\"a1\",\"b1\"]}");
    check_item(suite, 0, 3,
               "{\"task\":\"mc\",\"item\":3,\"gold\":0,\"contexts\":[\"q0\\nA: a0\\n\\nq4\\nA: a"
               "4\\n\\nq2\\nA: \",\"q0\\nA: a0\\n\\nq4\\nA: a4\\n\\nq2\\nA: \"],\"continuations"
               "\":[\"a2\",\"b2\"]}");
    check_item(suite, 1, 3,
               "{\"task\":\"sc\",\"item\":3,\"gold\":0,\"contexts\":[\"s0 c0\\n\\ns2 \",\"s0 c0"
               "\\n\\nt2 \"],\"continuations\":[\"c2\",\"c2\"]}");
    check_item(suite, 2, 1,
               "{\"task\":\"lm\",\"item\":1,\"gold\":0,\"contexts\":[\"x4 c4\\n\\nx0 \"],\"conti"
               "nuations\":[\"c0\"]}");
    by_suite_close(&suite);
}

static const char harness[] = "task: t\n"
                              "output_type: multiple_choice\n"
                              "test_split: test\n"
                              "training_split: test\n"
                              "description: \"About {{query[:1]}}.\\n\"\n"
                              "doc_to_text: \"Q: {{query}}{% if gold %}!{% endif %}\\nA:\"\n"
                              "doc_to_choice: choices\n"
                              "doc_to_target: gold\n";

/* random.Random(1234).sample(range(5), 2) is [3, 0], then [0, 4], of which the first that is not
 * the item itself is its example. */
static void harness_prompts_are_those_of_its_templates(void **state)
{
    (void)state;
    by_suite *suite = parse(harness, core_rows, 1, 2);
    check_item(suite, 0, 0,
               "{\"task\":\"t\",\"item\":0,\"gold\":0,\"contexts\":[\"About q.\\nQ: q3!\\nA: b3"
               "\\n\\nQ: q0\\nA:\",\"About q.\\nQ: q3!\\nA: b3\\n\\nQ: q0\\nA:\"],\"continuation"
               "s\":[\" a0\",\" b0\"]}");
    check_item(suite, 0, 1,
               "{\"task\":\"t\",\"item\":1,\"gold\":1,\"contexts\":[\"About q.\\nQ: q0\\nA: a0"
               "\\n\\nQ: q1!\\nA:\",\"About q.\\nQ: q0\\nA: a0\\n\\nQ: q1!\\nA:\"],\"continuatio"
               "ns\":[\" a1\",\" b1\"]}");
    by_suite_close(&suite);
}

static void what_needs_python_or_is_missing_is_refused(void **state)
{
    (void)state;
    refuse("task: t\noutput_type: multiple_choice\ntest_split: a\ndoc_to_choice: [a]\n"
           "doc_to_text: !function u.f\n",
           "{\"q\":1}\n", BY_EFORMAT, "needs Python");
    refuse("task: t\noutput_type: multiple_choice\ntest_split: a\nprocess_docs: x\n", "{\"q\":1}\n",
           BY_EFORMAT, "process_docs needs Python");
    refuse("task: t\noutput_type: loglikelihood\ntest_split: a\ndoc_to_text: \"{{nothing}}\"\n"
           "doc_to_target: q\n",
           "{\"q\":1}\n", BY_EARG, "there is no 'nothing'");
    refuse("task: t\noutput_type: guess\n", "{\"q\":1}\n", BY_EFORMAT, "output_type");
    refuse("task: t\noutput_type: loglikelihood\ntest_split: a\nnum_fewshot: 3\n"
           "doc_to_target: q\n",
           "{\"q\":1}\n", BY_EARG, "3 examples");
    refuse("task: [a.yaml]\n", "{}\n", BY_EFORMAT, "other files");
    refuse(core, "{\"query\":\"q\",\"choices\":[\"a\"],\"gold\":1}\n", BY_EFORMAT, "'gold'");
    refuse(core, "{]\n", BY_EFORMAT, "rows:1");
}

static void slips_in_suites_are_refused(void **state)
{
    (void)state;
#define CHOOSE                                                                                     \
    "task: t\noutput_type: multiple_choice\ntest_split: a\ndoc_to_choice: [x, z]\n"                \
    "doc_to_target: g\n"
    static const char choose[] = CHOOSE "doc_to_text: q\n";
    refuse(CHOOSE, "{\"q\":\"a\",\"g\":0}\n", BY_EFORMAT, "'doc_to_text' must be given");
    refuse(CHOOSE "doc_to_txt: q\n", "{\"q\":\"a\",\"g\":0}\n", BY_EFORMAT,
           "unknown key 'doc_to_txt'; did you mean 'doc_to_text'?");
    refuse(choose, "{\"q\":\"a\",\"g\":2}\n", BY_EFORMAT,
           "task 't', row 0: the answer '2' is none of the 2 choices");
    refuse(choose, "{\"q\":\"a\",\"g\":-1}\n", BY_EFORMAT, "the answer '-1' is none of the 2");
    refuse(choose, "{\"q\":\"a\",\"g\":null}\n", BY_EFORMAT, "the answer 'None' is none of");
    refuse(choose, "{\"q\":\"a\",\"g\":[]}\n", BY_EFORMAT, "the answer '' is none of the 2");
#undef CHOOSE
#define GENERATE                                                                                   \
    "task: t\noutput_type: generate_until\ntest_split: a\ndoc_to_text: q\ndoc_to_target: q\n"
    refuse(GENERATE "generation_kwargs: {until: 3}\n", "{\"q\":\"a\"}\n", BY_EFORMAT,
           "'until' must be a text, or a list of texts");
    refuse(GENERATE "generation_kwargs: {do_sample: true, temperature: -1}\n", "{\"q\":\"a\"}\n",
           BY_EARG, "suite: generation_kwargs: temperature -1");
    refuse(GENERATE "generation_kwargs: {do_sample: true, top_p: x}\n", "{\"q\":\"a\"}\n",
           BY_EFORMAT, "'top_p' must be a number");
    refuse(GENERATE "filter_list: [{filter: [{function: regex, regex_pattern: \"(\"}]}]\n",
           "{\"q\":\"a\"}\n", BY_EFORMAT, "suite: pattern \"(\": near byte 1");
    refuse(GENERATE "filter_list: x\n", "{\"q\":\"a\"}\n", BY_EFORMAT, "'filter_list' must be");
    refuse(GENERATE "filter_list: [{filter: [{function: regex, regex_pattern: 3}]}]\n",
           "{\"q\":\"a\"}\n", BY_EFORMAT, "'regex_pattern' must be a text");
#undef GENERATE
    by_suite_close(&(by_suite *){
        parse("task: t\ntag: x\ngroup: y\noutput_type: loglikelihood_rolling\ntest_split: a\n"
              "doc_to_target: q\n",
              "{\"q\":\"a\"}\n", -1, 0)});
}

/* What would change the scores unseen is refused, by the name of its key; what changes nothing is
 * not. */
static void keys_that_change_scores_are_refused(void **state)
{
    (void)state;
#define CHOOSE                                                                                     \
    "task: t\noutput_type: multiple_choice\ntest_split: a\ndoc_to_text: q\n"                       \
    "doc_to_choice: [x, z]\ndoc_to_target: g\n"
    static const char row[] = "{\"q\":\"a\",\"g\":0}\n";
    static const char *const cases[][2] = {
        {"fewshot_config: {samples: !function u.f}\n", "'fewshot_config.samples' needs Python"},
        {"fewshot_config: {sampler: !function u.f}\n", "'fewshot_config.sampler' needs Python"},
        {"fewshot_config: {sampler: 3}\n", "suite: 'fewshot_config.sampler' must be"},
        {"fewshot_config: {samples: [1]}\n", "'fewshot_config.samples' must be a list of rows"},
        {"fewshot_config: {fewshot_indices: [1]}\n", "'fewshot_config.fewshot_indices' is not"},
        {"fewshot_config: x\n", "'fewshot_config' must be a mapping"},
        {"metric_list: [{metric: f1}]\n", "the metric 'f1', which is not supported here; those"},
        {"metric_list: [{metric: acc}, {metric: bleu}]\n", "suite: 'metric_list' has the metric"},
        {"metric_list: [{metric: !function u.f}]\n",
         "suite: 'metric_list' needs Python: !function u.f"},
        {"metric_list: [{metric: acc, aggregation: median}]\n", "aggregation of acc is 'mean'"},
        {"metric_list: [{metric: acc, ignore_numbers: true}]\n", "'metric_list.ignore_numbers' is"},
        {"metric_list: acc\n", "'metric_list' must be a list"},
        {"metric_list: [acc]\n", "'metric_list' must be a list of mappings"},
        {"gen_prefix: So\n", "suite: 'gen_prefix' is not supported"},
        {"repeats: 8\n", "suite: 'repeats' is not supported"},
        {"generation_kwargs: {num_beams: 4}\n", "'generation_kwargs.num_beams' is not supported"},
        {"generation_kwargs: {do_sample: 1}\n", "'generation_kwargs.do_sample' must be"},
        {"dataset_kwargs: {data_files: !function u.f}\n", "'dataset_kwargs' needs Python"},
        {"doc_to_image: q\n", "'doc_to_image' is not supported"}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by_string yaml = {0};
        by_string_format(&yaml, "%s%s", CHOOSE, cases[i][0]);
        refuse(yaml.data, row, BY_EFORMAT, cases[i][1]);
        by_string_free(&yaml);
    }
    by_suite_close(&(by_suite *){
        parse(CHOOSE "repeats: 1\ngen_prefix: null\ntask_alias: T\ntag: [x]\ndataset_path: p\n"
                     "dataset_kwargs: {trust_remote_code: true}\nmetadata: {version: 1}\n"
                     "should_decontaminate: true\ndoc_to_decontamination_query: q\n"
                     "generation_kwargs: {do_sample: no, until: []}\n"
                     "fewshot_config: {sampler: first_n, process_docs: null}\n"
                     "metric_list: [{metric: acc, aggregation: mean, higher_is_better: true,"
                     " ignore_case: false, ignore_numbers: false}, {metric: acc_norm}]\n",
              row, -1, 0)});
#undef CHOOSE
    by_suite_close(&(by_suite *){
        parse("task: t\noutput_type: loglikelihood_rolling\ntest_split: a\ndoc_to_target: q\n"
              "metric_list: [{metric: word_perplexity, aggregation: weighted_perplexity},"
              " {metric: bits_per_byte, aggregation: bits_per_byte}]\n",
              row, -1, 0)});
}

/* ---- scores ---- */

static const char text[] = "the cat sat on the mat and the dog ran to the cat that sat there. ";

/* A directory with a model and its tokenizer. */
static char *make_model(const char *context)
{
    by_error error = {0};
    by_tokenizer *tokenizer;
    const by_bpe_options options = {.vocab = 280};
    const by_text texts[] = {{text, sizeof text - 1}};
    const char *const settings[] = {"model.kind=gpt2",  "model.layers=2", "model.heads=2",
                                    "model.width=32",   context,          "model.vocab=280",
                                    "data.text=[none]", "seed=5"};
    char *directory = temporary_make();
    by_config *config = tiny_config(settings, BY_ARRAY_LENGTH(settings));
    tiny_model_write(config, directory);
    by_config_close(&config);
    check_ok(by_tokenizer_train_bpe(&tokenizer, &options, texts, 1, &error), &error);
    char *path = by__path_join(directory, "tokenizer.json");
    check_ok(by_tokenizer_save(tokenizer, path, &error), &error);
    free(path);
    by_tokenizer_close(&tokenizer);
    return directory;
}

/* The log-probability of the tokens from `from` on, by logits of the whole sequence. */
static double log_probability(const by_pretrained *model, const by_token_buffer *ids, size_t from)
{
    by_error error = {0};
    by_logits *logits;
    const float *values;
    int64_t vocab = by_pretrained_config(model)->model.vocab;
    double sum = 0.0;
    check_ok(by_logits_open(&logits, by_pretrained_config(model), by_pretrained_weights(model), 1,
                            (int64_t)ids->count, NULL, 1, &error),
             &error);
    check_ok(by_logits_run(logits, (const int32_t *)(const void *)ids->ids, &values, &error),
             &error);
    for (size_t t = from; t < ids->count; t++) {
        const float *row = values + (int64_t)(t - 1) * vocab;
        double total = 0.0;
        for (int64_t v = 0; v < vocab; v++) {
            total += exp((double)row[v]);
        }
        sum += (double)row[ids->ids[t]] - log(total);
    }
    by_logits_close(&logits);
    return sum;
}

static by_status keep_item(void *user, const char *json, by_error *error)
{
    (void)error;
    json_t *line = json_loads(json, 0, NULL);
    assert_non_null(line);
    json_array_append_new(user, line);
    return BY_OK;
}

static json_t *run_suite(const by_suite *suite, const by_pretrained *model,
                         by_suite_results **results)
{
    by_error error = {0};
    json_t *lines = json_array();
    const by_suite_run_options options = {.item = keep_item, .user = lines, .threads = 1};
    check_ok(by_suite_run(results, suite, model, &options, &error), &error);
    return lines;
}

static const char questions[] =
    "{\"q\":\"the cat sat on the mat and the dog\",\"c\":[\"ran\",\"sat on\",\"that\"],\"g\":1}\n"
    "{\"q\":\"\",\"c\":[\"a\",\"the cat\"],\"g\":0}\n"
    "{\"q\":\"the dog ran to the cat and the cat ran to the mat. there \",\"c\":[\"there\",\"x\"],"
    "\"g\":0}\n"
    "{\"q\":\"cat\",\"c\":[\"s\"],\"g\":0}\n";

static const char question_suite[] = "task: q\noutput_type: multiple_choice\ntest_split: a\n"
                                     "doc_to_text: q\ndoc_to_choice: c\ndoc_to_target: g\n";

/* Tokens of a prompt as lm-evaluation-harness cuts them, and where the continuation begins. */
static size_t expected_tokens(by_token_buffer *ids, const by_tokenizer *tokenizer, const char *q,
                              const char *choice)
{
    by_error error = {0};
    by_token_buffer before = {0};
    char whole[256];
    size_t n = strlen(q);
    ids->count = 0;
    if (n == 0) { /* behind <|endoftext|> */
        check_ok(
            by_tokenizer_encode(tokenizer, "<|endoftext|>", 13, ids, BY_ENCODE_SPECIAL, &error),
            &error);
    }
    (void)snprintf(whole, sizeof whole, "%s %s", q, choice);
    check_ok(by_tokenizer_encode(tokenizer, whole, strlen(whole), ids, 0, &error), &error);
    n -= n > 0 && q[n - 1] == ' ';
    check_ok(by_tokenizer_encode(tokenizer, q, n, &before, 0, &error), &error);
    size_t from = before.count + (n == 0);
    by_token_buffer_free(&before);
    return from;
}

static void check_scores(const by_pretrained *model, const json_t *rows, const json_t *lines)
{
    by_error error = {0};
    by_tokenizer *tokenizer;
    by_token_buffer ids = {0};
    check_ok(by_pretrained_tokenizer(&tokenizer, model, &error), &error);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const json_t *scores = json_object_get(json_array_get(lines, i), "log_probabilities");
        const json_t *choices = json_object_get(row, "c");
        assert_int_equal(json_array_size(scores), json_array_size(choices));
        for (size_t k = 0; k < json_array_size(choices); k++) {
            size_t from =
                expected_tokens(&ids, tokenizer, json_string_value(json_object_get(row, "q")),
                                json_string_value(json_array_get(choices, k)));
            double want = log_probability(model, &ids, from);
            assert_true(fabs(json_real_value(json_array_get(scores, k)) - want) < 1e-4);
        }
    }
    by_token_buffer_free(&ids);
    by_tokenizer_close(&tokenizer);
}

static void scores_are_those_of_whole_sequences(void **state)
{
    (void)state;
    by_error error = {0};
    by_pretrained *model;
    by_suite_results *results;
    char *directory = make_model("model.context=64");
    json_t *rows = json_array();
    check_ok(by_pretrained_open(&model, directory, false, &error), &error);
    for (const char *line = questions; *line != '\0'; line = strchr(line, '\n') + 1) {
        json_array_append_new(rows, json_loads(line, JSON_DISABLE_EOF_CHECK, NULL));
    }
    by_suite *suite = parse(question_suite, questions, -1, 0);
    json_t *lines = run_suite(suite, model, &results);
    assert_int_equal(json_array_size(lines), 4);
    check_scores(model, rows, lines);
    assert_int_equal(results->tasks[0].items, 4);
    assert_string_equal(results->tasks[0].metrics[0].name, "acc");
    assert_true(results->computed < results->tokens); /* the choices of the first share a page */
    by_suite_results_close(&results);
    by_suite_close(&suite);
    /* Alone, the first item has the same bits. */
    suite = parse(question_suite, questions, -1, 1);
    json_t *alone = run_suite(suite, model, &results);
    assert_true(json_equal(json_array_get(alone, 0), json_array_get(lines, 0)));
    by_suite_results_close(&results);
    by_suite_close(&suite);
    json_decref(alone);
    json_decref(lines);
    json_decref(rows);
    by_pretrained_close(&model);
    temporary_remove(directory);
}

/* Runs a suite with one row, which fails. */
static void refuse_run(const by_pretrained *model, const char *yaml, const char *want)
{
    by_error error = {0};
    by_suite_results *results = NULL;
    by_suite *suite = parse(yaml, "{\"q\":\"the cat\",\"none\":\"\"}\n", -1, 0);
    check_error(by_suite_run(&results, suite, model, NULL, &error), BY_EARG, &error, want);
    assert_null(results);
    by_suite_close(&suite);
}

static void items_that_say_nothing_of_a_model_are_refused(void **state)
{
    (void)state;
    by_error error = {0};
    by_pretrained *model;
    char *directory = make_model("model.context=64");
    check_ok(by_pretrained_open(&model, directory, false, &error), &error);
    refuse_run(model,
               "task: t\noutput_type: loglikelihood\ntest_split: a\ndoc_to_text: q\n"
               "doc_to_target: none\ntarget_delimiter: \"\"\n",
               "task 't', row 0: a continuation is empty");
    refuse_run(model,
               "task: t\noutput_type: loglikelihood_rolling\ntest_split: a\ndoc_to_target: none\n",
               "task 't': its documents are all empty");
    by_pretrained_close(&model);
    temporary_remove(directory);
    directory = make_model("model.context=1");
    check_ok(by_pretrained_open(&model, directory, false, &error), &error);
    refuse_run(model,
               "task: t\noutput_type: loglikelihood_rolling\ntest_split: a\ndoc_to_target: q\n",
               "context of 1 token predicts no token");
    by_pretrained_close(&model);
    temporary_remove(directory);
}

/* A document of several windows: each token but the one before it all is predicted once. */
static void documents_are_predicted_in_windows(void **state)
{
    (void)state;
    by_error error = {0};
    by_pretrained *model;
    by_suite_results *results;
    by_string row = {0};
    char *directory = make_model("model.context=64");
    check_ok(by_pretrained_open(&model, directory, false, &error), &error);
    by_string_format(&row, "{\"p\":\"");
    for (int i = 0; i < 9; i++) {
        by_string_add(&row, text, sizeof text - 1);
    }
    by_string_format(&row, "\"}\n{\"p\":\"x\"}\n");
    by_suite *suite = parse("task: d\noutput_type: loglikelihood_rolling\ntest_split: a\n"
                            "doc_to_target: p\n",
                            row.data, -1, 0);
    json_t *lines = run_suite(suite, model, &results);
    const json_t *windows = json_object_get(json_array_get(lines, 0), "tokens");
    assert_true(json_array_size(windows) > 2);
    assert_int_equal(json_integer_value(json_array_get(windows, 0)), 63);
    double sum = 0.0;
    for (size_t i = 0; i < json_array_size(windows); i++) {
        sum += json_real_value(
            json_array_get(json_object_get(json_array_get(lines, 0), "log_probabilities"), i));
    }
    sum += json_real_value(
        json_array_get(json_object_get(json_array_get(lines, 1), "log_probabilities"), 0));
    double bytes = 9.0 * (sizeof text - 1) + 1.0;
    assert_string_equal(results->tasks[0].metrics[0].name, "bits_per_byte");
    assert_true(fabs(results->tasks[0].metrics[0].value + sum / bytes / log(2.0)) < 1e-9);
    assert_true(results->tasks[0].metrics[0].low <= results->tasks[0].metrics[0].value);
    by_suite_results_close(&results);
    by_suite_close(&suite);
    by_string_free(&row);
    json_decref(lines);
    by_pretrained_close(&model);
    temporary_remove(directory);
}

/* An empty document counts as no bytes, in the value as in the interval, wherever it stands. */
static void empty_documents_count_as_no_bytes(void **state)
{
    (void)state;
    static const char *const keys[] = {"doc_to_target: p\n", "doc_to_text: p\n"};
    by_error error = {0};
    by_pretrained *model;
    char *directory = make_model("model.context=64");
    check_ok(by_pretrained_open(&model, directory, false, &error), &error);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(keys); i++) {
        by_string yaml = {0};
        by_suite_results *results;
        by_string_format(&yaml, "task: d\noutput_type: loglikelihood_rolling\ntest_split: a\n%s",
                         keys[i]);
        by_suite *suite = parse(yaml.data, "{\"p\":\"\"}\n{\"p\":\"the cat\"}\n", -1, 0);
        json_t *lines = run_suite(suite, model, &results);
        const json_t *first = json_array_get(lines, 0);
        const by_suite_metric *m = &results->tasks[0].metrics[0];
        double score = json_real_value(json_object_get(json_array_get(lines, 1), "score"));
        assert_true(json_real_value(json_object_get(first, "score")) == 0.0);
        assert_int_equal(json_integer_value(json_object_get(first, "bytes")), 0);
        assert_int_equal(json_integer_value(json_object_get(json_array_get(lines, 1), "bytes")), 7);
        assert_true(score > 0.0 && fabs(m->value - score) < 1e-12);
        assert_true(m->low == m->value && m->high == m->value);
        assert_null(results->mean.name);
        by_suite_results_close(&results);
        by_suite_close(&suite);
        by_string_free(&yaml);
        json_decref(lines);
    }
    by_pretrained_close(&model);
    temporary_remove(directory);
}

static void write_file(const char *directory, const char *name, const char *content)
{
    by_error error = {0};
    char *path = by__path_join(directory, name);
    check_ok(by__file_write(path, content, strlen(content), &error), &error);
    free(path);
}

/* Shares of right answers have a mean; with bits per byte they have none. */
static void a_mean_is_of_equal_metrics(void **state)
{
    (void)state;
    by_error error = {0};
    by_pretrained *model;
    const by_suite_options options = {.few_shot = -1, .seed = BY_SUITE_SEED};
    char *directory = make_model("model.context=64");
    check_ok(by_pretrained_open(&model, directory, false, &error), &error);
    write_file(directory, "a.jsonl", questions);
    write_file(directory, "choose.yaml", question_suite);
    write_file(directory, "norm.yaml", "include: choose.yaml\nmetric_list: [{metric: acc_norm}]\n");
    write_file(directory, "documents.yaml",
               "task: d\noutput_type: loglikelihood_rolling\ntest_split: a\ndoc_to_target: q\n");
    write_file(directory, "equal.yaml", "task: [choose, norm]\n");
    write_file(directory, "mixed.yaml", "task: [choose, documents, norm]\n");
    for (int mixed = 0; mixed < 2; mixed++) {
        by_suite *suite;
        by_suite_results *results;
        char *path = by__path_join(directory, mixed ? "mixed.yaml" : "equal.yaml");
        check_ok(by_suite_open(&suite, path, &options, &error), &error);
        json_decref(run_suite(suite, model, &results));
        if (mixed) {
            assert_null(results->mean.name);
            assert_null(results->centered.name);
        } else {
            double sum = results->tasks[0].metrics[0].value + results->tasks[1].metrics[0].value;
            assert_string_equal(results->mean.name, "mean");
            assert_true(fabs(results->mean.value - sum / 2.0) < 1e-12);
            assert_string_equal(results->centered.name, "centered");
        }
        by_suite_results_close(&results);
        by_suite_close(&suite);
        free(path);
    }
    by_pretrained_close(&model);
    temporary_remove(directory);
}

/* What the model continues a text with, greedily. */
static void greedy_text(by_string *out, const by_pretrained *model, const char *prompt, int tokens)
{
    by_error error = {0};
    by_tokenizer *tokenizer;
    by_generator *generator;
    by_token_buffer ids = {0};
    uint32_t made[64];
    const by_generator_options options = {.threads = 1};
    const by_sampling greedy = {.top_p = 1.0};
    check_ok(by_pretrained_tokenizer(&tokenizer, model, &error), &error);
    check_ok(by_generator_open(&generator, by_pretrained_config(model),
                               by_pretrained_weights(model), &options, &error),
             &error);
    check_ok(by_tokenizer_encode(tokenizer, prompt, strlen(prompt), &ids, 0, &error), &error);
    check_ok(
        by_generator_feed(generator, (const int32_t *)(const void *)ids.ids, ids.count, &error),
        &error);
    for (int i = 0; i < tokens; i++) {
        int32_t token;
        check_ok(by_generator_sample(generator, &greedy, &token, &error), &error);
        made[i] = (uint32_t)token;
        check_ok(by_generator_feed(generator, &token, 1, &error), &error);
    }
    for (int i = 0; i < tokens; i++) {
        const char *bytes;
        size_t n;
        check_ok(by_tokenizer_token_bytes(tokenizer, made[i], &bytes, &n, &error), &error);
        by_string_add(out, bytes, n);
    }
    by_token_buffer_free(&ids);
    by_generator_close(&generator);
    by_tokenizer_close(&tokenizer);
}

/* Answers are taken of the text that the model generates, up to a text that ends it. */
static void generated_texts_are_those_of_the_generator(void **state)
{
    (void)state;
    by_error error = {0};
    by_pretrained *model;
    by_suite_results *results;
    by_string whole = {0};
    by_string shown = {0};
    by_string yaml = {0};
    char *directory = make_model("model.context=64");
    check_ok(by_pretrained_open(&model, directory, false, &error), &error);
    greedy_text(&whole, model, "the cat", 10);
    by__string_add_valid(&shown, whole.data, whole.length);
    for (int round = 0; round < 2; round++) { /* the whole text, and up to its fifth byte */
        yaml.length = 0;
        by_string_format(&yaml, "task: g\noutput_type: generate_until\ntest_split: a\n"
                                "doc_to_text: q\ndoc_to_target: \"x\"\n"
                                "generation_kwargs: {max_gen_toks: 10, until: [");
        by_string_json(&yaml, round == 0 ? "@@@" : whole.data + 4, round == 0 ? 3 : 1);
        by_string_format(&yaml, "]}\n");
        by_suite *suite = parse(yaml.data, "{\"q\":\"the cat\"}\n", -1, 0);
        json_t *lines = run_suite(suite, model, &results);
        const char *made = json_string_value(json_object_get(json_array_get(lines, 0), "text"));
        size_t end = round == 0 ? shown.length : strcspn(shown.data, (char[]){whole.data[4], 0});
        assert_int_equal(strlen(made), end);
        assert_memory_equal(made, shown.data, end);
        assert_string_equal(results->tasks[0].metrics[0].name, "exact_match");
        by_suite_results_close(&results);
        by_suite_close(&suite);
        json_decref(lines);
    }
    by_string_free(&whole);
    by_string_free(&shown);
    by_string_free(&yaml);
    by_pretrained_close(&model);
    temporary_remove(directory);
}

static const char answer_ways[] =
    "{\"filter_list\":[{\"name\":\"n\",\"filter\":[{\"function\":\"last_number\"}]},"
    "{\"name\":\"r\",\"filter\":[{\"function\":\"regex\",\"regex_pattern\":\"(-?[$0-9.,]{2,})|(-?["
    "0-9]+)"
    "\",\"group_select\":-1},{\"function\":\"take_first\"}]}],\"metric_list\":[{\"metric\":"
    "\"exact_match\",\"ignore_case\":true,\"regexes_to_ignore\":[\",\",\"\\\\$\",\"(?s).*#### "
    "\"]}]}";

static void answers_are_taken_and_compared(void **state)
{
    (void)state;
    static const char *const cases[][3] = {{"a 12 b 1,234.50.", "1234.5", "1,234.50."},
                                           {"-7", "-7", "-7"},
                                           {"no", "", "[invalid]"},
                                           {"$3.00 and 8", "8", "8"},
                                           {"x-10.0%", "-10", "-10.0"}};
    by_error error = {0};
    by__evaluate_answers answers = {.count = 0};
    json_t *yaml = json_loads(answer_ways, 0, NULL);
    assert_non_null(yaml);
    check_ok(by__evaluate_answers_open(&answers, yaml, "t", &error), &error);
    assert_string_equal(answers.ways[1].metric, "exact_match,r");
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        for (size_t w = 0; w < 2; w++) {
            by_string out = {0};
            by_string_add(&out, "", 0);
            check_ok(by__evaluate_answer_take(&out, &answers.ways[w], cases[i][0], &error), &error);
            assert_string_equal(out.data, cases[i][w + 1]);
            by_string_free(&out);
        }
    }
    bool equal = false;
    check_ok(by__evaluate_answer_equal(&equal, &answers, "$1,000", "he has\n#### 1000", &error),
             &error);
    assert_true(equal);
    check_ok(by__evaluate_answer_equal(&equal, &answers, "1001", "#### 1000", &error), &error);
    assert_false(equal);
    by__evaluate_answers_close(&answers);
    json_decref(yaml);
}

/* Of 20 items the second run has 9 right that the first has wrong, and 2 the other way round: p is
 * 2 (1 + 11 + 55) / 2^11. */
static void runs_are_compared_item_by_item(void **state)
{
    (void)state;
    by_error error = {0};
    by_suite_comparison *c;
    by_string files[2] = {{0}, {0}};
    char *paths[2];
    char *directory = temporary_make();
    for (int i = 0; i < 20; i++) {
        const int scores[2] = {i >= 9 && i < 14, i < 12};
        for (int f = 0; f < 2; f++) {
            by_string_format(&files[f], "{\"task\":\"t\",\"item\":%d,\"id\":\"%d\",\"score\":%d}\n",
                             i, i, scores[f]);
        }
    }
    by_string_format(&files[1], "{\"task\":\"t\",\"item\":20,\"id\":\"x\",\"score\":1}\n");
    for (int f = 0; f < 2; f++) {
        paths[f] = by__path_join(directory, f == 0 ? "a" : "b");
        check_ok(by__file_write(paths[f], files[f].data, files[f].length, &error), &error);
        by_string_free(&files[f]);
    }
    check_ok(by_suite_compare(&c, paths[0], paths[1], 1, &error), &error);
    assert_int_equal(c->count, 1);
    assert_int_equal(c->unpaired, 1);
    assert_int_equal(c->tasks[0].items, 20);
    assert_int_equal(c->tasks[0].better, 9);
    assert_int_equal(c->tasks[0].worse, 2);
    assert_true(fabs(c->tasks[0].difference - 0.35) < 1e-12);
    assert_true(fabs(c->tasks[0].p - 134.0 / 2048.0) < 1e-9);
    assert_true(c->tasks[0].low < 0.35 && c->tasks[0].high > 0.35);
    by_suite_comparison_close(&c);
    free(paths[0]);
    free(paths[1]);
    temporary_remove(directory);
}

#define DOCUMENT(n, bytes, score)                                                                  \
    "{\"task\":\"d\",\"item\":" #n ",\"id\":\"" #n                                                 \
    "\",\"metric\":\"bits_per_byte\",\"score\":" #score bytes "}\n"

/* Compares two texts of items; NULL: it is refused with `want`. */
static by_suite_comparison *compare(const char *a, const char *b, by_status status,
                                    const char *want)
{
    by_error error = {0};
    by_suite_comparison *c = NULL;
    char *directory = temporary_make();
    char *paths[2] = {by__path_join(directory, "a"), by__path_join(directory, "b")};
    write_file(directory, "a", a);
    write_file(directory, "b", b);
    by_status got = by_suite_compare(&c, paths[0], paths[1], 1, &error);
    if (want == NULL) {
        check_ok(got, &error);
    } else {
        check_error(got, status, &error, want);
        assert_null(c);
    }
    free(paths[0]);
    free(paths[1]);
    temporary_remove(directory);
    return c;
}

/* Bits per byte are better if there are fewer, and count by bytes: (100 + 3 * 10) / 110 and
 * (2 * 100 + 10) / 110. A document without bytes counts as a tie. */
static void documents_are_compared_by_their_bytes(void **state)
{
    (void)state;
    static const char first[] = DOCUMENT(0, ",\"bytes\":100", 1.0) DOCUMENT(1, ",\"bytes\":10", 3.0)
        DOCUMENT(2, ",\"bytes\":0", 0.0);
    static const char second[] = DOCUMENT(0, ",\"bytes\":100", 2.0)
        DOCUMENT(1, ",\"bytes\":10", 1.0) DOCUMENT(2, ",\"bytes\":0", 0.0);
    by_suite_comparison *c = compare(first, second, BY_OK, NULL);
    const by_suite_pair *t = &c->tasks[0];
    assert_int_equal(t->items, 3);
    assert_int_equal(t->better, 1);
    assert_int_equal(t->worse, 1);
    assert_true(fabs(t->first - 130.0 / 110.0) < 1e-12);
    assert_true(fabs(t->second - 210.0 / 110.0) < 1e-12);
    assert_true(fabs(t->difference - 80.0 / 110.0) < 1e-12);
    assert_true(fabs(t->low + 2.0) < 1e-12 && fabs(t->high - 1.0) < 1e-12);
    assert_true(isnan(t->p));
    by_suite_comparison_close(&c);
    compare(DOCUMENT(0, "", 1.0), first, BY_EFORMAT, "a:1: a score of bits_per_byte needs 'bytes'");
    compare(DOCUMENT(0, ",\"bytes\":-1", 1.0), first, BY_EFORMAT, "needs 'bytes'");
    compare(DOCUMENT(2, ",\"bytes\":0", 0.0), first, BY_EARG, "are all empty");
    compare("{\"task\":\"d\",\"item\":0,\"id\":\"0\",\"metric\":\"acc\",\"score\":1}\n", first,
            BY_EARG,
            "task 'd' has scores of 'acc' in one file and of 'bits_per_byte' in the other");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_are_those_of_python),
        cmocka_unit_test(yaml_is_read_as_python_reads_it),
        cmocka_unit_test(lists_are_those_of_python),
        cmocka_unit_test(core_prompts_are_those_of_nanochat),
        cmocka_unit_test(harness_prompts_are_those_of_its_templates),
        cmocka_unit_test(what_needs_python_or_is_missing_is_refused),
        cmocka_unit_test(slips_in_suites_are_refused),
        cmocka_unit_test(keys_that_change_scores_are_refused),
        cmocka_unit_test(scores_are_those_of_whole_sequences),
        cmocka_unit_test(items_that_say_nothing_of_a_model_are_refused),
        cmocka_unit_test(documents_are_predicted_in_windows),
        cmocka_unit_test(empty_documents_count_as_no_bytes),
        cmocka_unit_test(a_mean_is_of_equal_metrics),
        cmocka_unit_test(generated_texts_are_those_of_the_generator),
        cmocka_unit_test(answers_are_taken_and_compared),
        cmocka_unit_test(runs_are_compared_item_by_item),
        cmocka_unit_test(documents_are_compared_by_their_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
