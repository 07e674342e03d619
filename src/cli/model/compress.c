#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "banyan/compress.h"
#include "banyan/infer.h"
#include "banyan/train.h"
#include "base/cli.h"

typedef struct compress_request {
    const char *run; /* run directory; NULL: a directory in Hugging Face format */
    const char *out;
    const char *eval;
    const char *device;
    bool best;
    bool ema;
    bool json;
    by_compress_options options;
    cli_list settings;
} compress_request;

/* Value of --eval for the data held out by the run. */
#define HELD_OUT "held-out"

static by_status measure(double *loss, const compress_request *r, const by_pretrained *model,
                         by_error *error)
{
    by_task_data *data = NULL;
    by_evaluation result;
    by_config *config;
    cli_spool spool;
    by_status status = cli_copy_config(&config, model, error);
    if (status != BY_OK) {
        return status;
    }
    config->train.eval_batches = -1;
    const by_task_request what = {.purpose = BY_TASK_EVALUATE,
                                  .path = strcmp(r->eval, HELD_OUT) == 0 ? NULL : r->eval};
    status = cli_open_task_data(&data, &spool, config, model, r->run, &what, error);
    if (status == BY_OK) {
        status = by_task_complete(data, config, error);
    }
    if (status == BY_OK) {
        status = cli_evaluate(&result, config, by_pretrained_weights(model), data, NULL, NULL, -1,
                              error);
    }
    if (status == BY_OK) {
        *loss = result.loss;
    }
    by_task_close(&data);
    cli_spool_close(&spool);
    by_config_close(&config);
    return status;
}

/* Measures the loss of the result, on the same data and with the same settings as for the
 * original. */
static by_status measure_made(double *loss, const compress_request *r, const by_pretrained *model,
                              by_error *error)
{
    by_pretrained *made;
    by_status status = by_pretrained_open_like(&made, r->out, model, error);
    if (status == BY_OK) {
        status = measure(loss, r, made, error);
        by_pretrained_close(&made);
    }
    return status;
}

static void show_progress(void *user, const by_compress_progress *progress)
{
    (void)user;
    fprintf(stderr, "%zu/%zu  %s\n", progress->done + 1, progress->all, progress->what);
}

static void print(const compress_request *r, const by_compressed *made, double before, double after)
{
    char text[2][32];
    if (r->json) {
        printf("{\"directory\":");
        cli_print_json_string(r->out);
        printf(",\"method\":\"%s\",\"layers\":%zu,\"bytes_before\":%llu,\"bytes_after\":%llu",
               r->options.method, made->layers, (unsigned long long)made->bytes_before,
               (unsigned long long)made->bytes_after);
        if (r->eval != NULL) {
            printf(",\"loss_before\":%s,\"loss_after\":%s", cli_json_number(text[0], before, 9),
                   cli_json_number(text[1], after, 9));
        }
        printf("}\n");
        return;
    }
    printf("directory      %s\nmethod         %s\nlayers         %zu\n", r->out, r->options.method,
           made->layers);
    printf("bytes          %llu of %llu (%.1f %%)\n", (unsigned long long)made->bytes_after,
           (unsigned long long)made->bytes_before,
           100.0 * (double)made->bytes_after / (double)made->bytes_before);
    if (r->eval != NULL) {
        printf("loss           %.6f, before %.6f (%+.2f %%)\n", after, before,
               100.0 * (after - before) / before);
    }
}

static by_status compress(void *user, const by_pretrained *model, const char *run, by_error *error)
{
    compress_request *r = user;
    by_compressed made;
    double before = 0.0;
    double after = 0.0;
    r->run = run;
    r->options.settings = r->settings.items;
    r->options.setting_count = r->settings.count;
    r->options.run = r->run;
    r->options.stop = cli_stop_requested;
    r->options.progress = show_progress;
    by_status status = by_compress_check(r->out, model, &r->options, error);
    if (status == BY_OK && r->eval != NULL && strcmp(r->options.method, "w8a8") == 0) {
        status =
            cli_check_inference(by_pretrained_config(model), "--eval with --method w8a8", error);
    }
    if (status == BY_OK && r->eval != NULL) {
        status = measure(&before, r, model, error);
    }
    if (status == BY_OK) {
        status = by_compress(&made, r->out, model, &r->options, error);
    }
    if (status == BY_OK && r->eval != NULL) {
        status = measure_made(&after, r, model, error);
    }
    if (status == BY_OK) {
        print(r, &made, before, after);
    }
    return status;
}

/* Reports a method that does not support the model: an error if the method was named, otherwise a
 * line in the list. */
static by_status explain_refusal(const compress_request *r, const char *method, const char *why,
                                 by_error *error)
{
    if (r->options.method != NULL) {
        return by_error_set(error, BY_EARG, "%s", why);
    }
    if (!r->json) {
        printf("%-10s not possible for this model: %s\n", method, why);
        return BY_OK;
    }
    printf("{\"method\":\"%s\",\"refused\":", method);
    cli_print_json_string(why);
    printf("}\n");
    return BY_OK;
}

/* Returns true if the method has the setting of "NAME=VALUE". */
static bool has_setting(const by_compress_method *method, const char *setting)
{
    size_t length = strcspn(setting, "=");
    for (const by_compress_setting *s = method->settings; s != NULL && s->name != NULL; s++) {
        if (strlen(s->name) == length && strncmp(s->name, setting, length) == 0) {
            return true;
        }
    }
    return false;
}

/* Computes the forecast of a method; NULL: of the model as it is. Of the settings those that it
 * has are used, or all if it was named. */
static by_status forecast(by_compress_forecast *out, const compress_request *r,
                          const by_pretrained *model, const by_compress_method *method,
                          by_error *error)
{
    by_compress_options options = r->options;
    const char **settings = calloc(r->settings.count + 1, sizeof *settings);
    if (settings == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: settings");
    }
    options.method = method == NULL ? NULL : method->name;
    options.settings = settings;
    options.setting_count = 0;
    for (size_t i = 0; i < r->settings.count && method != NULL; i++) {
        if (r->options.method != NULL || has_setting(method, r->settings.items[i])) {
            settings[options.setting_count++] = r->settings.items[i];
        }
    }
    by_status status = by_compress_forecast_make(out, model, &options, error);
    free(settings);
    return status;
}

static by_status plan_one(const compress_request *r, const by_pretrained *model,
                          const by_compress_method *row, double gbps, by_error *error)
{
    by_compress_forecast f;
    const char *method = row == NULL ? "none" : row->name;
    by_status status = forecast(&f, r, model, row, error);
    if (status != BY_OK) {
        return status;
    }
    if (f.refused[0] != '\0') {
        return explain_refusal(r, method, f.refused, error);
    }
    double speed = gbps > 0.0 ? 1e9 * gbps / (double)f.token_bytes : (double)NAN;
    if (r->json) {
        char text[32];
        printf("{\"method\":\"%s\",\"bytes\":%llu,\"memory\":%llu,\"token_bytes\":%llu,"
               "\"tokens_per_second\":%s}\n",
               method, (unsigned long long)f.bytes, (unsigned long long)f.memory,
               (unsigned long long)f.token_bytes, cli_json_number(text, speed, 6));
        return BY_OK;
    }
    printf("%-10s %14llu %14llu", method, (unsigned long long)f.bytes,
           (unsigned long long)f.memory);
    if (gbps > 0.0) {
        printf(" %12.0f\n", speed);
    } else {
        printf(" %12s\n", "-");
    }
    return BY_OK;
}

/* Refuses a setting that no method has. */
static by_status check_settings(const compress_request *r, by_error *error)
{
    const by_compress_method *m;
    for (size_t i = 0; i < r->settings.count; i++) {
        bool known = false;
        for (size_t k = 0; (m = by_compress_method_at(k)) != NULL; k++) {
            known = known || has_setting(m, r->settings.items[i]);
        }
        if (!known) {
            return by_error_set(error, BY_EARG,
                                "--set %s: no method has such a setting; --methods lists them",
                                r->settings.items[i]);
        }
    }
    return BY_OK;
}

/* Plans the model as it is and all methods, or the one named with its settings. */
static by_status plan(void *user, const by_pretrained *model, const char *run, by_error *error)
{
    compress_request *r = user;
    by_machine machine;
    const by_compress_method *m;
    r->run = run;
    by_status status = check_settings(r, error);
    int threads = (int)by_pretrained_config(model)->train.threads;
    bool known =
        by_machine_load(&machine, by_pretrained_config(model)->device, threads, 0, NULL) == BY_OK &&
        machine.read_gbps > 0.0;
    if (status != BY_OK) {
        return status;
    }
    if (r->options.method != NULL && by_compress_method_find(r->options.method) == NULL) {
        return by_compress_forecast_make(&(by_compress_forecast){0}, model, &r->options, error);
    }
    if (!r->json) {
        printf("%-10s %14s %14s %12s\n", "method", "bytes on disk", "memory", "tokens/s");
    }
    double gbps = known ? machine.read_gbps : 0.0;
    if (r->options.method == NULL) {
        status = plan_one(r, model, NULL, gbps, error);
    }
    for (size_t i = 0; (m = by_compress_method_at(i)) != NULL && status == BY_OK; i++) {
        if (r->options.method == NULL || strcmp(r->options.method, m->name) == 0) {
            status = plan_one(r, model, m, gbps, error);
        }
    }
    if (!known && !r->json) {
        fprintf(stderr, "to predict tokens/s, measure the memory bandwidth with `banyan bench "
                        "machine` first\n");
    }
    return status;
}

/* Returns true for data that can be read only once. */
static bool is_stream(const char *path)
{
    struct stat info;
    return strcmp(path, "-") == 0 ||
           (stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode));
}

static void list_methods(void)
{
    const by_compress_method *m;
    for (size_t i = 0; (m = by_compress_method_at(i)) != NULL; i++) {
        printf("%-10s %s%s\n", m->name, m->summary, m->calibrates ? " (looks at data)" : "");
        for (const by_compress_setting *s = m->settings; s != NULL && s->name != NULL; s++) {
            char range[64];
            (void)snprintf(range, sizeof range, "%g to %g", s->least, s->most);
            printf("    %s=%s  %s; %s\n", s->name, s->fallback, s->help,
                   s->words != NULL ? s->words : range);
        }
    }
}

static int run(int argc, char **argv)
{
    compress_request r = {0};
    bool list = false;
    bool only_plan = false;
    const cli_flag flags[] = {
        {"method", CLI_STRING, &r.options.method, "NAME",
         "compression method; --methods lists them"},
        {"methods", CLI_SWITCH, &list, NULL, "list the methods and their settings"},
        {"plan", CLI_SWITCH, &only_plan, NULL,
         "print size, memory and decode speed of the model (none) and for each method, and write "
         "nothing"},
        {"set", CLI_LIST, &r.settings, "NAME=VALUE", "setting of the method; may be repeated"},
        {"out", CLI_STRING, &r.out, "DIR", "directory to create; it must not exist yet"},
        {"data", CLI_STRING, &r.options.data, "WHAT",
         "calibration data, as for `banyan eval --data` (default: the run's training data)"},
        {"samples", CLI_INTEGER_FROM(1), &r.options.samples, "N",
         "sequences to calibrate on (default 128)"},
        {"seed", CLI_SEED, &r.options.seed, "N", "seed that selects these sequences (default 0)"},
        {"eval", CLI_STRING, &r.eval, "WHAT",
         "print the loss on this data, which may not be a stream, before and after; " HELD_OUT
         ": the data that the run held out"},
        {"device", CLI_STRING, &r.device, "NAME", CLI_DEVICE_HELP},
        {"best", CLI_SWITCH, &r.best, NULL, CLI_BEST_HELP},
        {"ema", CLI_SWITCH, &r.ema, NULL, CLI_EMA_HELP},
        {"json", CLI_SWITCH, &r.json, NULL, CLI_JSON_HELP},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    int code = cli_parse(&cli_compress, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (list) {
        list_methods();
        return CLI_DONE;
    }
    if (count != 1 || (!only_plan && (r.options.method == NULL || r.out == NULL))) {
        return cli_misuse(&cli_compress, count != 1 ? "name one run directory"
                                         : r.options.method == NULL
                                             ? "--method is required; --methods lists the methods"
                                             : "--out is required: the directory to create");
    }
    if (r.eval != NULL && is_stream(r.eval)) {
        return cli_misuse(&cli_compress,
                          "--eval %s: the data is read before and after; name a file instead of a "
                          "stream",
                          r.eval);
    }
    return cli_with_pretrained(&cli_compress, rest[0], r.device, r.best, r.ema, NULL,
                               only_plan ? plan : compress, &r);
}

const cli_command cli_compress = {
    .name = "compress",
    .summary = "quantize or prune trained weights",
    .usage = "banyan compress RUN --method NAME [--set NAME=VALUE]... --out DIR [--eval WHAT]",
    .text =
        "Quantizes or prunes the weights of a model and writes a model directory that all other\n"
        "commands accept.\n"
        "\n"
        "examples:\n"
        "  banyan compress runs/shakespeare-char --method int8 --out small --eval held-out\n"
        "  banyan generate small --prompt \"ROMEO:\"\n"
        "  banyan compress runs/shakespeare-char --plan\n"
        "  banyan compress --methods\n"
        "\n"
        "RUN is a run or a model directory, as for `banyan eval`. The new directory contains\n"
        "the tokenizer, checksums, and a record of the model and the method that it was made\n"
        "from.",
    .run = run};
