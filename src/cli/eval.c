#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/train.h"
#include "cli.h"

typedef struct request {
    const char *data;
    cli_list overrides;
    int64_t batches;
    bool best;
    bool json;
} request;

/* The checkpoint that is evaluated: the newest valid one of the run, or its best. */
static by_status open_checkpoint(by_checkpoint **out, const char *run, bool best, by_error *error)
{
    char root[4096];
    char *path = NULL;
    (void)snprintf(root, sizeof root, "%s/checkpoints", run);
    by_status status = best ? by_checkpoint_best(root, &path, NULL, error)
                            : by_checkpoint_latest(root, &path, NULL, error);
    if (status == BY_OK) {
        status = by_checkpoint_open(out, path, false, error);
    }
    free(path);
    return status;
}

static by_status evaluate(const char *run, const request *r, by_config *config, by_error *error)
{
    by_data_paths paths = {0};
    by_checkpoint *checkpoint = NULL;
    by_evaluation result;
    const char *data = r->data;
    by_status status = open_checkpoint(&checkpoint, run, r->best, error);
    if (status == BY_OK && data == NULL) {
        status = by_data_prepare(&paths, config, NULL, error);
        data = paths.valid;
        if (status == BY_OK && data == NULL) {
            status = by_error_set(error, BY_ECONFIG,
                                  "the run holds nothing out (data.valid_fraction is 0); name a packed "
                                  "directory with --data");
        }
    }
    if (status == BY_OK) {
        status = by_evaluate(&result, config, by_checkpoint_model(checkpoint), data, r->batches,
                             cli_stop_requested, NULL, error);
    }
    if (status == BY_OK && r->json) {
        printf("{\"run\":");
        cli_print_json_string(run);
        printf(",\"checkpoint\":");
        cli_print_json_string(by_checkpoint_path(checkpoint));
        printf(",\"step\":%llu,\"valid_loss\":%.9g,\"perplexity\":%.9g,\"bits_per_byte\":%.9g,"
               "\"tokens\":%llu}\n",
               (unsigned long long)by_checkpoint_step(checkpoint), result.loss, result.perplexity,
               result.bits_per_byte, (unsigned long long)result.tokens);
    } else if (status == BY_OK) {
        printf("checkpoint     %s\nvalid_loss     %.6f\nperplexity     %.4f\n"
               "bits_per_byte  %.6f\ntokens         %llu\n",
               by_checkpoint_path(checkpoint), result.loss, result.perplexity, result.bits_per_byte,
               (unsigned long long)result.tokens);
    }
    by_checkpoint_close(&checkpoint);
    by_data_paths_free(&paths);
    return status;
}

static int run(int argc, char **argv)
{
    request r = {.batches = -1};
    const cli_flag flags[] = {
        {"data", CLI_STRING, &r.data, "DIR", "packed directory to evaluate on (default: what the run held out)"},
        {"batches", CLI_INTEGER, &r.batches, "N", "micro-batches to evaluate (default: all)"},
        {"best", CLI_SWITCH, &r.best, NULL, "the checkpoint with the lowest validation loss, not the newest"},
        {"set", CLI_LIST, &r.overrides, "KEY=VALUE", "override a key of the run's config"},
        {"json", CLI_SWITCH, &r.json, NULL, "one JSON line"},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    by_config *config = NULL;
    char *found = NULL;
    by_error error = {0};
    int code = cli_parse(&cli_eval, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count != 1) {
        return cli_misuse(&cli_eval, "name one run directory");
    }
    cli_catch_signals();
    by_status status = by_run_find(&found, rest[0], &error);
    if (status == BY_OK) {
        status = cli_open_config(&config, found, &r.overrides, &error);
    }
    if (status == BY_OK) {
        status = evaluate(found, &r, config, &error);
    }
    by_config_close(&config);
    free(found);
    return status == BY_OK ? CLI_DONE : cli_fail(&cli_eval, &error);
}

const cli_command cli_eval = {
    .name = "eval",
    .summary = "loss, perplexity and bits per byte of a run on held-out data",
    .usage = "banyan eval RUN [--data DIR] [--best] [--json]",
    .text = "Evaluates a run's newest checkpoint on the text that the run held out, or on a packed\n"
            "directory. RUN is a run directory, or one that holds runs (the newest is taken).\n\n"
            "  banyan eval runs/shakespeare-char --json",
    .run = run};
