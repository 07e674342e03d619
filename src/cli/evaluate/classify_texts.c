/* `banyan classify`: prints the class that a classification model assigns to each text of a
 * file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text_rows.h"

typedef struct classify_request {
    bool json; /* accepted, as of every command; there is no other form */
    const char *file;
    const char *precision;
    int64_t batch;
    int64_t context;
    const char *device;
    int64_t threads;
} classify_request;

static by_status check_text(const void *model, size_t count, by_error *error)
{
    return by_classifier_check(model, count, error);
}

static by_status run_texts(void *model, const by_embed_text *texts, size_t count,
                           const float **rows, by_error *error)
{
    return by_classifier_run(model, texts, count, rows, error);
}

static void print_label(const by_classifier *model, const float *row)
{
    int64_t best = 0;
    char text[32];
    for (int64_t i = 1; i < by_classifier_labels(model); i++) {
        best = row[i] > row[best] ? i : best;
    }
    printf("\"label\":");
    cli_print_json_string(by_classifier_label(model, best));
    printf(",\"probability\":%s,", cli_json_number(text, (double)row[best], 9));
}

/* Prints the labels with a probability above one half. */
static void print_labels(const by_classifier *model, const float *row)
{
    const char *comma = "";
    printf("\"labels\":[");
    for (int64_t i = 0; i < by_classifier_labels(model); i++) {
        if (row[i] > 0.5f) {
            printf("%s", comma);
            cli_print_json_string(by_classifier_label(model, i));
            comma = ",";
        }
    }
    printf("],");
}

static void print_row(const void *user, const float *row)
{
    const by_classifier *model = user;
    by_problem problem = by_classifier_problem(model);
    if (problem == BY_PROBLEM_SINGLE) {
        print_label(model, row);
    } else if (problem == BY_PROBLEM_MULTI) {
        print_labels(model, row);
    }
    printf("\"%s\":{", problem == BY_PROBLEM_REGRESSION ? "values" : "probabilities");
    for (int64_t i = 0; i < by_classifier_labels(model); i++) {
        char text[32];
        printf("%s", i == 0 ? "" : ",");
        cli_print_json_string(by_classifier_label(model, i));
        printf(":%s", cli_json_number(text, (double)row[i], 9));
    }
    printf("}");
}

/* A run of a task predicts its own way; one that classifies texts by their last token, this way,
 * too. Numbers of a run are of a scale that only `predict` knows. */
static by_status check_task(const by_pretrained *model, const char *path, by_error *error)
{
    const by_config *config = by_pretrained_config(model);
    const char *kind = config->task.kind;
    bool embeds = strcmp(kind, "masked") == 0 || strcmp(kind, "contrast") == 0;
    bool run = strcmp(by_pretrained_directory(model), path) != 0;
    bool rates = strcmp(kind, "classify") == 0 || strcmp(kind, "reward") == 0 ||
                 (strcmp(kind, "regress") == 0 && !run);
    bool texts = strcmp(by_model_reads(&config->model), "tokens") == 0 &&
                 !by_model_is_encoder(&config->model);
    return strcmp(kind, "language") == 0 || (rates && texts)
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "%s was trained with task.kind %s, and classify is of models with "
                              "the head ...ForSequenceClassification of transformers: `banyan %s "
                              "%s%s` is for it",
                              path, kind, embeds ? "embed" : "predict", path,
                              embeds ? " --batch FILE" : " FILE");
}

static by_status open_model(by_classifier **out, by_tokenizer **tokenizer,
                            const classify_request *r, const char *path, by_error *error)
{
    by_pretrained *pretrained = NULL;
    by_embed_options options = {.context = r->context,
                                .batch = r->batch,
                                .precision = r->precision,
                                .threads = (int)r->threads};
    by_status status = cli_open_pretrained(&pretrained, path, r->device, false, false, NULL, error);
    if (status == BY_OK) {
        status = check_task(pretrained, path, error);
    }
    if (status == BY_OK) {
        status = by_classifier_open(out, by_pretrained_config(pretrained),
                                    by_pretrained_weights(pretrained), &options, error);
    }
    if (status == BY_OK) {
        status = by_pretrained_tokenizer(tokenizer, pretrained, error);
    }
    by_pretrained_close(&pretrained);
    return status;
}

static int classify(const classify_request *r, const char *path)
{
    by_classifier *model = NULL;
    by_tokenizer *tokenizer = NULL;
    int code = CLI_DONE;
    by_error error = {0};
    by_status status = open_model(&model, &tokenizer, r, path, &error);
    if (status == BY_OK) {
        const cli_text_rows rows = {.file = r->file,
                                    .batch = r->batch,
                                    .tokenizer = tokenizer,
                                    .model = model,
                                    .width = by_classifier_labels(model),
                                    .check = check_text,
                                    .run = run_texts,
                                    .print = print_row};
        status = cli_print_text_rows(&rows, &cli_classify, &code, &error);
    }
    by_classifier_close(&model);
    by_tokenizer_close(&tokenizer);
    return status == BY_OK ? code : cli_fail(&cli_classify, &error);
}

static int run(int argc, char **argv)
{
    classify_request r = {.batch = 8};
    const cli_flag flags[] = {
        {"batch", CLI_STREAM, &r.file, "FILE",
         "file with one text per line (text or {\"text\": ...}); - for standard input"},
        {"batch-size", CLI_INTEGER_IN(1, CLI_TEXT_BATCH), &r.batch, "N",
         "texts that are computed together (default 8)"},
        {"context", CLI_INTEGER_FROM(1), &r.context, "N",
         "tokens of the longest text (default: the model's context)"},
        {"precision", CLI_STRING, &r.precision, "TYPE", CLI_MODEL_PRECISION_HELP},
        {"json", CLI_SWITCH, &r.json, NULL, "print JSON lines, which is the default"},
        {"device", CLI_STRING, &r.device, "NAME", CLI_DEVICE_HELP},
        {"threads", CLI_THREADS, &r.threads, "N", "compute threads (default: one per core)"},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    int code = cli_parse(&cli_classify, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count != 1 || r.file == NULL) {
        return cli_misuse(&cli_classify, "name one model directory, and texts with --batch");
    }
    code = cli_check_precision(&cli_classify, r.precision);
    return code >= 0 ? code : classify(&r, rest[0]);
}

const cli_command cli_classify = {
    .name = "classify",
    .summary = "classify texts with a sequence-classification model",
    .usage = "banyan classify MODEL --batch FILE",
    .text =
        "Classifies each text of a file and prints one JSON line each, in order: index, number\n"
        "of tokens, label, and the probabilities of all labels.\n"
        "\n"
        "example:\n"
        "  banyan classify my-classifier --batch texts.txt\n"
        "\n"
        "MODEL is a directory of a ...ForSequenceClassification model of transformers. For a\n"
        "multi-label model the line lists the labels with a probability above one half, for a\n"
        "regression the values. For a text that is longer than the context, it has an error\n"
        "instead.",
    .run = run};
