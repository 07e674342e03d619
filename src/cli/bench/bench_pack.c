#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/pack.h"
#include "bench/bench.h"

static bool on_progress(void *user, const by_pack_progress *progress)
{
    (void)progress;
    return !cli_stop_requested(user);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

/* Packs into a temporary directory. */
static by_status pack(by_pack_result *result, by_pack_options *options, by_error *error)
{
    char directory[] = ".banyan-bench-XXXXXX";
    char output[sizeof directory + 8];
    if (mkdtemp(directory) == NULL) {
        return by_error_set(error, BY_EIO,
                            "cannot create a directory for the tokens in the current directory");
    }
    (void)snprintf(output, sizeof output, "%s/tokens", directory);
    options->output = output;
    by_status status = by_pack(options, result, error);
    (void)nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return status;
}

static double rate(double bytes, double seconds)
{
    return seconds > 0.0 ? 1e-6 * bytes / seconds : 0.0;
}

static void print(const by_pack_result *f, bool learned, bool json)
{
    double bytes = (double)f->text_bytes;
    double mb_per_s = rate(bytes, f->encode_seconds);
    char text[32];
    if (json) {
        printf("{\"mb_per_s\":%.5g,\"text_bytes\":%llu,\"tokens\":%llu,\"documents\":%llu,"
               "\"vocab\":%u,"
               "\"encode_seconds\":%.6g",
               mb_per_s, (unsigned long long)f->text_bytes, (unsigned long long)f->tokens,
               (unsigned long long)f->documents, f->vocab, f->encode_seconds);
        if (learned) {
            printf(",\"learn_seconds\":%.6g,\"learn_mb_per_s\":%.5g", f->learn_seconds,
                   rate(bytes, f->learn_seconds));
        }
        printf("}\n");
        return;
    }
    printf("pack        %.1f MB/s: %s to %llu tokens in %.2f s\n", mb_per_s,
           by_format_bytes(text, f->text_bytes), (unsigned long long)f->tokens, f->encode_seconds);
    if (learned) {
        printf("learn       %.2f s for a BPE of %u tokens, %.1f MB/s\n", f->learn_seconds, f->vocab,
               rate(bytes, f->learn_seconds));
    }
}

static int run(int argc, char **argv)
{
    const char *tokenizer = NULL;
    int64_t vocab = 0;
    int64_t threads = 0;
    bool json = false;
    const cli_flag flags[] = {
        {"tokenizer", CLI_STRING, &tokenizer, "PATH",
         "existing tokenizer: a tokenizer.json, a *.tiktoken file, or a directory with one or with "
         "GPT-2's files"},
        {"train-bpe", CLI_INTEGER_FROM(1), &vocab, "VOCAB",
         "train a BPE tokenizer with a vocabulary of this size first, and time that too"},
        {"threads", CLI_THREADS, &threads, "N", "threads (default: one per core)"},
        {"json", CLI_SWITCH, &json, NULL, CLI_JSON_HELP},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    by_error error = {0};
    by_pack_result result;
    int code = cli_parse(&cli_bench_pack, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count == 0) {
        return cli_misuse(&cli_bench_pack, "name the files or directories to pack");
    }
    if ((code = cli_check_inputs(&cli_bench_pack, rest, count)) >= 0) {
        return code;
    }
    if ((tokenizer == NULL) == (vocab == 0)) {
        return cli_misuse(&cli_bench_pack, "give one of --tokenizer and --train-bpe");
    }
    cli_catch_signals();
    by_pack_options options = {.inputs = (const char *const *)rest,
                               .input_count = (size_t)count,
                               .tokenizer_kind = tokenizer == NULL ? "bpe" : tokenizer,
                               .tokenizer_vocab = (size_t)vocab,
                               .threads = (size_t)threads,
                               .progress = on_progress};
    if (pack(&result, &options, &error) != BY_OK) {
        return cli_fail(&cli_bench_pack, &error);
    }
    print(&result, vocab > 0, json);
    return CLI_DONE;
}

const cli_command cli_bench_pack = {
    .name = "bench pack",
    .summary = "time the packing of text into tokens",
    .usage =
        "banyan bench pack FILE|DIR... --tokenizer PATH | --train-bpe VOCAB [--threads N] [--json]",
    .text = "Times `banyan pack` (reading, encoding, writing) into a directory here, which is\n"
            "removed afterwards. 1 MB is a million bytes of text.\n"
            "\n"
            "examples:\n"
            "  banyan bench pack books/ --tokenizer gpt2/ --json\n"
            "  banyan bench pack books/ --train-bpe 8192",
    .run = run};
