#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "banyan/data.h"
#include "cli.h"

typedef struct verify_view {
    bool terminal;
    uint64_t shown; /* bytes done when the line was drawn last */
} verify_view;

static bool show(void *user, uint64_t done, uint64_t total)
{
    verify_view *view = user;
    if (view->terminal && (done - view->shown > total / 100 || done < view->shown)) {
        char text[2][32];
        view->shown = done;
        fprintf(stderr, "\r\033[Kverifying  %s of %s", by_format_bytes(text[0], done),
                by_format_bytes(text[1], total));
        fflush(stderr);
    }
    return !cli_stop_requested(NULL);
}

static by_status verify(const char *directory, bool json, by_error *error)
{
    by_dataset *dataset;
    verify_view view = {.terminal = isatty(STDERR_FILENO) != 0};
    const by_data_verify_options options = {.always = true, .progress = show, .user = &view};
    by_status status = by_data_verify(directory, &options, error);
    if (view.terminal) {
        fprintf(stderr, "\r\033[K");
    }
    if (status == BY_OK) {
        status = by_dataset_open(&dataset, directory, NULL, error);
    }
    if (status != BY_OK) {
        return status;
    }
    uint64_t tokens = by_dataset_tokens(dataset);
    if (json) {
        printf("{\"directory\":");
        cli_print_json_string(directory);
        printf(",\"tokens\":%" PRIu64 ",\"tokenizer\":\"%s\"}\n", tokens,
               by_dataset_tokenizer_hash(dataset));
    } else {
        printf("%s: %" PRIu64 " tokens, every checksum is right\n", directory, tokens);
    }
    by_dataset_close(&dataset);
    return BY_OK;
}

/* The directory itself, or the train/ and valid/ in it that a split pack makes. */
static by_status verify_parts(const char *directory, bool json, by_error *error)
{
    static const char *const parts[] = {"train", "valid"};
    char path[4096];
    bool found = false;
    (void)snprintf(path, sizeof path, "%s/manifest.json", directory);
    if (access(path, F_OK) == 0) {
        return verify(directory, json, error);
    }
    for (size_t i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, "%s/%s/manifest.json", directory, parts[i]);
        if (access(path, F_OK) == 0) {
            (void)snprintf(path, sizeof path, "%s/%s", directory, parts[i]);
            by_status status = verify(path, json, error);
            if (status != BY_OK) {
                return status;
            }
            found = true;
        }
    }
    return found ? BY_OK : verify(directory, json, error);
}

static int run(int argc, char **argv)
{
    bool json = false;
    const cli_flag flags[] = {{"json", CLI_SWITCH, &json, NULL, "one JSON line a directory"}, {0}};
    char **rest;
    int count;
    by_error error = {0};
    int code = cli_parse(&cli_data, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count < 2 || strcmp(rest[0], "verify") != 0) {
        return cli_misuse(&cli_data, "say what to do and with which directory: verify DIR");
    }
    cli_catch_signals();
    for (int i = 1; i < count; i++) {
        if (verify_parts(rest[i], json, &error) != BY_OK) {
            return cli_fail(&cli_data, &error);
        }
    }
    return CLI_DONE;
}

const cli_command cli_data = {
    .name = "data",
    .summary = "check packed data against its checksums",
    .usage = "banyan data verify DIR...",
    .text =
        "Reads packed directories from front to back and compares shards, document offsets and\n"
        "tokenizer with the checksums of their manifests. Training does so at the first use of a\n"
        "directory and again whenever one of its files has changed.\n\n"
        "  banyan data verify packed",
    .run = run};
