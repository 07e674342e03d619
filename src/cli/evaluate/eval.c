#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/infer.h"
#include "banyan/train.h"
#include "base/cli.h"
#include "evaluate/eval_suite.h"

typedef struct eval_request {
    const char *run; /* run directory; NULL: a directory in Hugging Face format */
    const char *data;
    bool test; /* the part that the run keeps for a test */
    bool skip; /* leaves out what cannot be read */
    const char *logits_out;
    const char *tokens;
    const char *adapter;
    const char *precision;
    const char *kv;
    int64_t batches;
    const char *device;
    bool best;
    bool ema;
    bool json;
    cli_suite_request suite;
    bool compare;
} eval_request;

/* Number of sequences whose logits are written if --tokens is not given. */
#define LOGITS_BATCH 2

/* Opens the data to evaluate on: --data, or what the run held out. Completes `config`. */
static by_status open_data(by_task_data **out, const eval_request *r, const by_pretrained *model,
                           by_config *config, cli_spool *spool, by_error *error)
{
    const by_task_request what = {.purpose = BY_TASK_EVALUATE, .path = r->data, .test = r->test};
    *spool = (cli_spool){.path = NULL};
    if (r->data == NULL && r->run == NULL) {
        return by_error_set(error, BY_EARG,
                            "%s is not a run and has no held-out data: give data with --data",
                            by_pretrained_directory(model));
    }
    by_status status = r->skip ? by_config_set(config, "data.corrupt=skip", error) : BY_OK;
    if (status == BY_OK) {
        status = cli_open_task_data(out, spool, config, model, r->run, &what, error);
    }
    return status == BY_OK ? by_task_complete(*out, config, error) : status;
}

static void print(const eval_request *r, const by_pretrained *model, const by_evaluation *e)
{
    const char *directory = by_pretrained_directory(model);
    const by_task *task = e->task;
    if (!isfinite(e->loss)) {
        fprintf(stderr, "banyan eval: the loss of %s is not finite\n", directory);
    }
    if (r->json) {
        char text[32];
        printf("{\"checkpoint\":");
        cli_print_json_string(directory);
        printf(",\"valid_loss\":%s", cli_json_number(text, e->loss, 9));
        cli_print_parts_json(e);
        cli_print_metrics_json(e);
        printf(",\"%s\":%llu}\n", task->examples, (unsigned long long)e->targets);
        return;
    }
    printf("checkpoint     %s\nvalid_loss     %.6f\n", directory, e->loss);
    for (size_t i = 0; i < e->part_count; i++) {
        printf("  %-12s %.6f (%llu %s", e->parts[i].part->name, e->parts[i].loss,
               (unsigned long long)e->parts[i].targets, task->examples);
        if (!isnan(e->parts[i].metric)) {
            printf(", %s %.*f", task->metrics[0].name, task->metrics[0].decimals + 2,
                   e->parts[i].metric);
        }
        printf(")\n");
    }
    for (size_t i = 0; i < task->metric_count; i++) {
        if (!isnan(e->metrics[i]) || !isfinite(e->loss)) {
            printf("%-14s %.*f\n", task->metrics[i].name, task->metrics[i].decimals + 2,
                   e->metrics[i]);
        }
    }
    for (size_t i = 0; i < e->output_metric_count; i++) {
        const by_output_metric *m = &e->output_metrics[i];
        if (!isnan(m->value) || !isfinite(e->loss)) {
            printf("%-14s %.*f\n", m->name, task->metrics[m->metric].decimals + 2, m->value);
        }
    }
    printf("%-14s %llu\n", task->examples, (unsigned long long)e->targets);
}

static by_status evaluate(void *user, const by_pretrained *model, const char *run, by_error *error)
{
    eval_request *r = user;
    by_task_data *data = NULL;
    cli_spool spool;
    by_evaluation result;
    by_config *config;
    r->run = run;
    by_status status = cli_copy_config(&config, model, error);
    if (status != BY_OK) {
        return status;
    }
    config->train.eval_batches = r->batches == 0 ? -1 : r->batches;
    status = open_data(&data, r, model, config, &spool, error);
    if (status == BY_OK) {
        status = cli_evaluate(&result, config, by_pretrained_weights(model), data, r->precision,
                              r->kv, config->train.eval_batches, error);
    }
    if (status == BY_OK) {
        print(r, model, &result);
    }
    by_task_close(&data);
    cli_spool_close(&spool);
    by_config_close(&config);
    return status;
}

/* ---- logits, for comparisons with other programs ---- */

typedef struct sequences {
    int32_t *tokens;
    int64_t batch;
    int64_t time;
} sequences;

/* Reads tensor "tokens", i32 [batch, time], from a safetensors file. */
static by_status read_tokens(sequences *out, const char *path, by_error *error)
{
    by_weights *file;
    by_tensor_view view;
    size_t bytes;
    by_status status = by_weights_open(&file, path, error);
    if (status != BY_OK) {
        return status;
    }
    status = by_weights_tensor(file, "tokens", &view, error);
    if (status == BY_OK && (view.dtype != BY_I32 || view.rank != 2)) {
        status = by_error_set(error, BY_EFORMAT, "%s: 'tokens' is not i32 [batch, time]", path);
    }
    if (status == BY_OK) {
        status = by_tensor_size(&view, NULL, &bytes, error);
    }
    if (status == BY_OK && (out->tokens = malloc(bytes + 1)) == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: tokens");
    }
    if (status == BY_OK) {
        memcpy(out->tokens, view.data, bytes);
        out->batch = view.shape[0];
        out->time = view.shape[1];
    }
    by_weights_close(&file);
    return status;
}

/* Takes the first sequences of the evaluation data. */
static by_status read_sequences(sequences *out, const eval_request *r, const by_pretrained *model,
                                by_error *error)
{
    by_task_data *data = NULL;
    cli_spool spool;
    by_loader *loader = NULL;
    by_config *config;
    by_batch batch = {0};
    by_status status = cli_copy_config(&config, model, error);
    if (status != BY_OK) {
        return status;
    }
    config->train.batch = LOGITS_BATCH;
    config->train.micro_batch = LOGITS_BATCH;
    status = open_data(&data, r, model, config, &spool, error);
    if (status == BY_OK) {
        status = by_task_loader(&loader, data, config, false, error);
    }
    if (status == BY_OK) {
        status = by_loader_next(loader, &batch, error);
    }
    const by_array *tokens = status == BY_OK ? by_batch_array(&batch, "tokens") : NULL;
    if (status == BY_OK && tokens == NULL) {
        status = by_error_set(error, BY_EARG, "--logits-out: the data has no tokens");
    }
    size_t count = (size_t)(LOGITS_BATCH * config->model.context);
    if (status == BY_OK && (out->tokens = malloc(count * sizeof *out->tokens)) == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: tokens");
    }
    if (status == BY_OK) {
        memcpy(out->tokens, tokens->data, count * sizeof *out->tokens);
        out->batch = LOGITS_BATCH;
        out->time = config->model.context;
    }
    by_loader_close(&loader);
    by_task_close(&data);
    cli_spool_close(&spool);
    by_config_close(&config);
    return status;
}

static by_status write_logits(void *user, const by_pretrained *model, const char *run,
                              by_error *error)
{
    eval_request *r = user;
    sequences s = {0};
    by_logits *logits = NULL;
    const float *values;
    const by_config *config = by_pretrained_config(model);
    r->run = run;
    by_status status =
        r->tokens != NULL ? read_tokens(&s, r->tokens, error) : read_sequences(&s, r, model, error);
    if (status == BY_OK) {
        status = by_logits_open(&logits, config, by_pretrained_weights(model), s.batch, s.time,
                                r->precision, 0, error);
    }
    if (status == BY_OK) {
        status = by_logits_run(logits, s.tokens, &values, error);
    }
    if (status == BY_OK) {
        by_tensor_view views[2] = {{.name = "tokens",
                                    .dtype = BY_I32,
                                    .rank = 2,
                                    .shape = {s.batch, s.time},
                                    .data = s.tokens},
                                   {.name = "logits",
                                    .dtype = BY_F32,
                                    .rank = 3,
                                    .shape = {s.batch, s.time, config->model.vocab},
                                    .data = values}};
        status = by_tensors_write(r->logits_out, views, 2, error);
    }
    by_logits_close(&logits);
    free(s.tokens);
    return status;
}

/* ---- the command ---- */

/* Refuses flags that do not go together. Returns -1 to continue, or an exit code. */
static int check_flags(const eval_request *r)
{
    if (r->batches > 0 && r->logits_out != NULL) {
        return cli_misuse(&cli_eval, "--batches cannot be used with --logits-out");
    }
    if (r->kv != NULL && r->logits_out != NULL) {
        return cli_misuse(&cli_eval, "--kv cannot be used with --logits-out, which uses no cache");
    }
    if (r->tokens != NULL && r->logits_out == NULL) {
        return cli_misuse(&cli_eval,
                          "--tokens needs --logits-out: it gives the tokens to compute logits for");
    }
    if (r->test && r->data != NULL) {
        return cli_misuse(&cli_eval, "choose one of --test and --data");
    }
    if (r->suite.suite == NULL) {
        const cli_suite_request *s = &r->suite;
        return s->few_shot >= 0 || s->limit > 0 || s->items != NULL || s->show
                   ? cli_misuse(&cli_eval,
                                "--few-shot, --limit, --items-out and --show need --suite")
                   : -1;
    }
    return r->logits_out != NULL || r->test || r->kv != NULL || r->batches > 0 || r->skip
               ? cli_misuse(&cli_eval, "--suite cannot be used with --logits-out, --test, --kv, "
                                       "--batches or --skip")
               : -1;
}

static int show_suite(const eval_request *r)
{
    by_error error = {0};
    return cli_suite_show(&r->suite, &error) == BY_OK ? cli_finish_output(CLI_DONE)
                                                      : cli_fail(&cli_eval, &error);
}

static int compare_items(const eval_request *r, char **files, int count)
{
    by_error error = {0};
    if (count != 2) {
        return cli_misuse(&cli_eval, "--compare needs two files that --items-out has written");
    }
    return cli_suite_compare(files[0], files[1], r->suite.seed, r->json, &error) == BY_OK
               ? cli_finish_output(CLI_DONE)
               : cli_fail(&cli_eval, &error);
}

static int evaluate_model(eval_request *r, const char *model)
{
    r->suite.data = r->data;
    r->suite.precision = r->precision;
    r->suite.json = r->json;
    if (r->suite.suite != NULL) {
        return cli_with_pretrained(&cli_eval, model, r->device, r->best, r->ema, r->adapter,
                                   cli_suite_run, &r->suite);
    }
    return cli_with_pretrained(&cli_eval, model, r->device, r->best, r->ema, r->adapter,
                               r->logits_out != NULL ? write_logits : evaluate, r);
}

static int run(int argc, char **argv)
{
    eval_request r = {.suite = {.few_shot = -1, .seed = BY_SUITE_SEED}};
    const cli_flag flags[] = {
        {"data", CLI_STRING, &r.data, "WHAT",
         "packed directory, text file, JSON lines, a directory of them, or - for standard input; "
         "table; IMAGES,LABELS (default: the held-out data of the run); with --suite: the "
         "directory of its data files"},
        {"test", CLI_SWITCH, &r.test, NULL,
         "the part of its data that the run keeps for a test, of tasks that have one"},
        {"skip", CLI_SWITCH, &r.skip, NULL,
         "leave out damaged examples, and name them, instead of failing"},
        {"batches", CLI_INTEGER_FROM(1), &r.batches, "N",
         "micro-batches to evaluate, at most (default: all)"},
        {"suite", CLI_STRING, &r.suite.suite, "SUITE",
         "answer the questions of a suite: a YAML file, or the name of one in examples/suites"},
        {"few-shot", CLI_INTEGER_FROM(0), &r.suite.few_shot, "N",
         "with --suite: examples before each item (default: as the suite says)"},
        {"limit", CLI_INTEGER_FROM(1), &r.suite.limit, "N",
         "with --suite: only the first N items of each task"},
        {"seed", CLI_SEED, &r.suite.seed, "N",
         "with --suite: of the examples and the intervals (default: 1234, as others use)"},
        {"items-out", CLI_STRING, &r.suite.items, "FILE",
         "with --suite: write a JSON line for each item"},
        {"show", CLI_SWITCH, &r.suite.show, NULL,
         "with --suite: print the texts of its items as JSON lines, without a model"},
        {"compare", CLI_SWITCH, &r.compare, NULL,
         "compare two files of --items-out, item by item, instead of running a model"},
        {"device", CLI_STRING, &r.device, "NAME", CLI_DEVICE_HELP},
        {"best", CLI_SWITCH, &r.best, NULL, CLI_BEST_HELP},
        {"ema", CLI_SWITCH, &r.ema, NULL, CLI_EMA_HELP},
        {"adapter", CLI_INPUT, &r.adapter, "DIR", CLI_ADAPTER_HELP},
        {"precision", CLI_STRING, &r.precision, "TYPE",
         "use the kernels and weight formats of inference: " CLI_PRECISIONS},
        {"kv", CLI_STRING, &r.kv, "int8",
         "generate the data with a KV cache of 8-bit integers, as a server with --kv int8 does"},
        {"logits-out", CLI_STRING, &r.logits_out, "FILE",
         "write tokens and their logits to a safetensors file instead of computing the loss"},
        {"tokens", CLI_INPUT, &r.tokens, "FILE",
         "with --logits-out: read the tokens from a safetensors file, i32 [batch, time] (default: "
         "from the data)"},
        {"json", CLI_SWITCH, &r.json, NULL, CLI_JSON_HELP},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    int code = cli_parse(&cli_eval, flags, argc, argv, &rest, &count);
    if (code >= 0 || (code = check_flags(&r)) >= 0) {
        return code;
    }
    if (r.compare) {
        return compare_items(&r, rest, count);
    }
    if (r.suite.show && count == 0) {
        r.suite.data = r.data;
        return show_suite(&r);
    }
    if (count != 1 || r.suite.show) {
        return cli_misuse(&cli_eval, r.suite.show ? "--show runs no model: name none"
                                                  : "name one run directory");
    }
    if ((code = cli_check_precision(&cli_eval, r.precision)) >= 0 ||
        (code = cli_check_data(&cli_eval, r.data)) >= 0) {
        return code;
    }
    return evaluate_model(&r, rest[0]);
}

const cli_command cli_eval = {
    .name = "eval",
    .summary = "compute loss and metrics of a model on held-out or other data",
    .usage = "banyan eval RUN [--data WHAT | --test] [--skip] [--best] [--ema] [--json] | banyan "
             "eval RUN "
             "--suite SUITE [--few-shot N] [--limit N] [--items-out FILE] | banyan eval "
             "--compare A B | banyan eval RUN "
             "--logits-out FILE",
    .text =
        "Computes the loss and metrics of a model on the data that its run held out, or on\n"
        "other data with targets. For language models it also prints perplexity and bits per\n"
        "byte.\n"
        "\n"
        "With --suite it answers questions: the choice, continuation or document that the\n"
        "model finds likely. Printed are the accuracies with 95 % bootstrap intervals.\n"
        "\n"
        "examples:\n"
        "  banyan eval runs/shakespeare-char --json\n"
        "  banyan eval path/to/gpt2 --data packed/valid\n"
        "  banyan eval runs/shakespeare-char --data new.txt\n"
        "  tail -n 100 log.txt | banyan eval runs/logs --data -\n"
        "  banyan eval path/to/gpt2 --suite task.yaml --few-shot 5 --items-out items.jsonl\n"
        "  banyan eval --compare items.jsonl other.jsonl\n"
        "\n"
        "RUN is a run directory (its newest checkpoint is used), a directory that holds runs\n"
        "(the newest one), or a model directory in Hugging Face form with config.json and\n"
        "safetensors weights.\n"
        "\n"
        "Text is packed with the model's own tokenizer. --precision computes the loss with the\n"
        "kernels of inference and packed weights; models quantized to w8a8 are always evaluated\n"
        "so. --kv computes it token by token, with keys and values as the cache stores them.",
    .run = run};
