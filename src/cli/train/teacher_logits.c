/* `banyan logits`: stores a teacher's logits of packed data for its students. */
#include <stdio.h>
#include <stdlib.h>

#include "base/cli.h"

/* Most tokens to store for each position if --top is not given. */
#define DEFAULT_TOP 64

static bool show_progress(void *user, uint64_t done, uint64_t windows)
{
    uint64_t *shown = user;
    uint64_t percent = windows == 0 ? 0 : 100 * done / windows;
    if (percent >= *shown + 5) {
        *shown = percent;
        fprintf(stderr, "%llu %%  %llu of %llu windows\n", (unsigned long long)percent,
                (unsigned long long)done, (unsigned long long)windows);
    }
    return !cli_stop_requested(NULL);
}

typedef struct logits_request {
    by_store_logits_options options;
    const char *out;
    int64_t threads;
    const char *device;
    bool best;
    bool ema;
    bool json;
    uint64_t shown; /* per cent, by show_progress */
} logits_request;

static by_status store(void *user, const by_pretrained *model, const char *run, by_error *error)
{
    logits_request *r = user;
    by_store_logits_options *o = &r->options;
    (void)run;
    if (o->top == 0) {
        int64_t vocab = by_pretrained_config(model)->model.vocab;
        o->top = vocab >= 1 && vocab < DEFAULT_TOP ? vocab : DEFAULT_TOP;
    }
    o->threads = (int)r->threads;
    o->progress = show_progress;
    o->user = &r->shown;
    by_status status = by_store_logits(r->out, model, o, error);
    if (status == BY_OK && r->json) {
        printf("{\"directory\":");
        cli_print_json_string(r->out);
        printf(",\"top\":%lld}\n", (long long)o->top);
    } else if (status == BY_OK) {
        printf("directory      %s\n", r->out);
    }
    return status;
}

static int run(int argc, char **argv)
{
    logits_request r = {.options = {.temperature = 2.0}};
    const cli_flag flags[] = {
        {"data", CLI_INPUT, &r.options.data, "DIR",
         "packed directory that the student will be trained on (required)"},
        {"out", CLI_STRING, &r.out, "DIR", "directory to create; it must not exist yet (required)"},
        {"top", CLI_INTEGER_FROM(1), &r.options.top, "K",
         "most probable tokens to store per position (default 64, or the whole vocabulary if it is "
         "smaller)"},
        {"temperature", CLI_NUMBER_ABOVE(0, 1000), &r.options.temperature, "T",
         "the student's distill.temperature (default 2)"},
        {"context", CLI_INTEGER_FROM(1), &r.options.context, "N",
         "the student's model.context (default: the teacher's)"},
        {"precision", CLI_STRING, &r.options.precision, "NAME", CLI_MODEL_PRECISION_HELP},
        {"device", CLI_STRING, &r.device, "NAME", CLI_DEVICE_HELP},
        {"threads", CLI_THREADS, &r.threads, "N",
         "compute threads (default: the model's train.threads)"},
        {"best", CLI_SWITCH, &r.best, NULL, CLI_BEST_HELP},
        {"ema", CLI_SWITCH, &r.ema, NULL, CLI_EMA_HELP},
        {"json", CLI_SWITCH, &r.json, NULL, CLI_JSON_HELP},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    int code = cli_parse(&cli_logits, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count != 1 || r.options.data == NULL || r.out == NULL) {
        return cli_misuse(&cli_logits, count != 1 ? "name one run directory"
                                       : r.options.data == NULL
                                           ? "--data is required: the packed data of the student"
                                           : "--out is required: the directory to create");
    }
    return cli_with_pretrained(&cli_logits, rest[0], r.device, r.best, r.ema, NULL, store, &r);
}

const cli_command cli_logits = {
    .name = "logits",
    .summary = "store a teacher's most probable next tokens, for distillation",
    .usage = "banyan logits RUN --data DIR --out DIR [--top K] [--temperature T]",
    .text =
        "Stores the most probable next tokens at each position of packed data, with their\n"
        "log-probabilities, as a trained model (the teacher) predicts them. A student is then\n"
        "trained on them without loading the teacher (distill.logits, docs/compression.md).\n"
        "\n"
        "example:\n"
        "  banyan pack input.txt --output packed --tokenizer char\n"
        "  banyan logits runs/large --data packed --out teacher-logits --top 32\n"
        "  banyan train student.yaml --set data.train=packed --set distill.logits=teacher-logits\n"
        "\n"
        "RUN is a run or a model directory, as for `banyan eval`.",
    .run = run};
