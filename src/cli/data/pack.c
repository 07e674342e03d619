#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "banyan/pack.h"
#include "base/cli.h"
#include "data/pack_chat.h"
#include "data/pack_graph.h"
#include "data/pack_images.h"

/* The progress line on a terminal, and its previous content. */
typedef struct pack_view {
    bool terminal;
    double started;
    double printed;
    const char *phase;
} pack_view;

static double seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static bool show(void *user, const by_pack_progress *progress)
{
    pack_view *view = user;
    double now = seconds();
    bool new_phase = view->phase == NULL || strcmp(view->phase, progress->phase) != 0;
    if (new_phase) {
        view->phase = progress->phase;
        view->started = now;
    }
    if (view->terminal && (new_phase || now - view->printed >= 0.1)) {
        char done[32];
        char total[32];
        double elapsed = now - view->started;
        view->printed = now;
        fprintf(stderr, "\r\033[K%-10s %s of %s", progress->phase,
                by_format_bytes(done, progress->done_bytes),
                by_format_bytes(total, progress->total_bytes));
        if (elapsed > 0.2) {
            fprintf(stderr, "  %.0f MB/s", (double)progress->done_bytes / elapsed / 1e6);
        }
        if (progress->tokens > 0) {
            fprintf(stderr, "  %" PRIu64 " tokens", progress->tokens);
        }
        fflush(stderr);
    }
    return !cli_stop_requested(NULL);
}

static void show_note(void *user, const char *text)
{
    const pack_view *view = user;
    fprintf(stderr, "%s", view->terminal ? "\r\033[K" : "");
    cli_print_lines(stderr, text);
    fprintf(stderr, "\n");
}

static void print_result(const by_pack_result *result, const char *output, double elapsed,
                         bool json)
{
    if (result->tokens == 0) { /* on several ranks, of which another joins what they encode */
        if (json) {
            printf("{\"output\": ");
            cli_print_json_string(output);
            printf(", \"complete\": %s, \"seconds\": %.3f}\n", result->complete ? "true" : "false",
                   elapsed);
        } else {
            printf("%s: %s\n", output,
                   result->complete ? "another rank has written it" : "other ranks still encode");
        }
        return;
    }
    double rate = result->encode_seconds > 0.0
                      ? (double)result->text_bytes / result->encode_seconds / 1e6
                      : 0.0;
    if (json) {
        printf("{\"output\": ");
        cli_print_json_string(output);
        if (result->targets > 0) {
            printf(", \"targets\": %" PRIu64 ", \"too_long\": %" PRIu64 ", \"cut\": %" PRIu64,
                   result->targets, result->too_long, result->cut);
        }
        printf(", \"tokens\": %" PRIu64 ", \"valid_tokens\": %" PRIu64 ", \"documents\": %" PRIu64
               ", \"text_bytes\": %" PRIu64 ", \"vocab\": %" PRIu32
               ", \"exact_duplicates\": %" PRIu64 ", \"near_duplicates\": %" PRIu64
               ", \"corrupt_lines\": %" PRIu64 ", \"complete\": true, \"seconds\": %.3f, "
               "\"encode_seconds\": %.3f, \"mb_per_s\": %.1f}\n",
               result->tokens, result->valid_tokens, result->documents, result->text_bytes,
               result->vocab, result->exact_duplicates, result->near_duplicates,
               result->corrupt_lines, elapsed, result->encode_seconds, rate);
        return;
    }
    char bytes[32];
    printf("%s: %" PRIu64 " tokens", output, result->tokens);
    if (result->valid_tokens > 0) {
        printf(" (%" PRIu64 " held out)", result->valid_tokens);
    }
    if (result->targets > 0) {
        printf(", %" PRIu64 " of them learned,", result->targets);
    }
    printf(" of %s in %" PRIu64 " documents, vocabulary %" PRIu32 ", %.1f MB/s\n",
           by_format_bytes(bytes, result->text_bytes), result->documents, result->vocab, rate);
}

static bool parse_dedup(const char *text, by_pack_dedup *out)
{
    static const char *const names[] = {[BY_PACK_DEDUP_NONE] = "none",
                                        [BY_PACK_DEDUP_EXACT] = "exact",
                                        [BY_PACK_DEDUP_NEAR] = "near"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (by_pack_dedup)i;
            return true;
        }
    }
    return false;
}

/* Returns what is wrong with the arguments, or NULL. */
static const char *find_misuse(int count, const char *output, const char *corrupt)
{
    if (count == 0) {
        return "name the files or directories to pack";
    }
    if (output == NULL) {
        return "--out DIR is missing";
    }
    if (strcmp(corrupt, "fail") != 0 && strcmp(corrupt, "skip") != 0) {
        return "--corrupt is fail or skip";
    }
    return NULL;
}

/* Checks the inputs, and keeps standard input ("-", once) in a file whose name takes its place.
 * Returns an exit code, or -1 to go on. */
static int find_inputs(cli_spool *spool, char **inputs, int count)
{
    by_error error = {0};
    int rank;
    int ranks;
    cli_find_rank(&rank, &ranks);
    for (int i = 0; i < count; i++) {
        if (ranks > 1 && strcmp(inputs[i], "-") == 0) {
            return cli_misuse(&cli_pack, "standard input goes to one rank: several pack files and "
                                         "directories");
        }
        int code = strcmp(inputs[i], "-") == 0 ? -1 : cli_check_input(&cli_pack, inputs[i]);
        if (code >= 0) {
            return code;
        }
    }
    for (int i = 0; i < count; i++) {
        if (strcmp(inputs[i], "-") != 0 || spool->path != NULL) {
            continue;
        }
        if (cli_spool_open(spool, inputs[i], &error) != BY_OK) {
            return cli_fail(&cli_pack, &error);
        }
        inputs[i] = spool->file;
    }
    return -1;
}

/* Flags that all kinds of packing have. */
typedef struct pack_common {
    char **inputs;
    int count;
    const char *output;
    int64_t threads;
    const char *corrupt;
    double budget;
    const char *cache;
} pack_common;

static int pack_images(const pack_common *c, int64_t shard_mib, bool json)
{
    by_image_pack_options options = {.inputs = (const char *const *)c->inputs,
                                     .input_count = (size_t)c->count,
                                     .output = c->output,
                                     .shard_bytes = (uint64_t)shard_mib << 20,
                                     .threads = (size_t)c->threads,
                                     .skip_corrupt = strcmp(c->corrupt, "skip") == 0,
                                     .remote = {.cache = c->cache}};
    return cli_pack_images(&options, json);
}

static int pack_graph(cli_graph_pack *graph, const pack_common *c, bool json)
{
    graph->options.inputs = (const char *const *)c->inputs;
    graph->options.input_count = (size_t)c->count;
    graph->options.output = c->output;
    graph->options.threads = (size_t)c->threads;
    graph->options.skip_corrupt = strcmp(c->corrupt, "skip") == 0;
    graph->options.corrupt_budget = c->budget;
    return cli_pack_graph(graph, json);
}

/* Packs, and prints what came of it. */
static int pack_inputs(const by_pack_options *options, const pack_view *view, bool json)
{
    by_error error = {0};
    by_pack_result result;
    by_pack_options of_rank = *options;
    double start = seconds();
    int rank;
    int ranks;
    cli_find_rank(&rank, &ranks);
    of_rank.rank = (size_t)rank;
    of_rank.ranks = (size_t)ranks;
    by_status status = by_pack(&of_rank, &result, &error);
    if (view->terminal) {
        fprintf(stderr, "\r\033[K");
    }
    if (status != BY_OK) {
        return cli_fail(&cli_pack, &error);
    }
    print_result(&result, options->output, seconds() - start, json);
    return CLI_DONE;
}

/* Flags in groups, of variables of run. */
#define TEXT_FLAGS                                                                                 \
    {"tokenizer", CLI_STRING, &tokenizer, "WHAT",                                                  \
     "bpe (trained on this text), char, or an existing one: a tokenizer.json, a .tiktoken file "   \
     "or a directory (default bpe)"},                                                              \
        {"vocab", CLI_INTEGER_FROM(1), &vocab, "N",                                                \
         "vocabulary size of a BPE tokenizer that is trained here (default 8192)"},                \
        {"field", CLI_STRING, &field, "NAME",                                                      \
         "field of JSON lines, or column of Parquet files, that holds the text (default text)"},   \
        {"valid-fraction", CLI_NUMBER_IN(0, 1), &valid, "F",                                       \
         "hold out this share at the end of the text; writes DIR/train and DIR/valid (default "    \
         "0)"},                                                                                    \
    {                                                                                              \
        "dedup", CLI_STRING, &dedup, "WHAT",                                                       \
            "remove duplicate documents: none, exact, or near (MinHash) (default none)"            \
    }
#define DAMAGE_FLAGS                                                                               \
    {"corrupt", CLI_STRING, &corrupt, "WHAT",                                                      \
     "what to do about JSON lines without text and lines without edges: fail, or skip and "        \
     "report file and line (default fail)"},                                                       \
    {                                                                                              \
        "corrupt-budget", CLI_NUMBER_IN(0, INFINITY), &budget, "N",                                \
            "lines that --corrupt skip may leave out; below 1, a share of all lines (default "     \
            "0.01)"                                                                                \
    }
#define IMAGE_FLAGS                                                                                \
    {"images", CLI_SWITCH, &images, NULL,                                                          \
     "pack pictures of folders of classes and of shards, on all ranks of `banyan launch`"},        \
    {                                                                                              \
        "shard-mib", CLI_INTEGER_FROM(1), &shard_mib, "N",                                         \
            "MiB per shard of pictures (default 256)"                                              \
    }
#define REMOTE_FLAGS                                                                               \
    {"remote-cache", CLI_STRING, &cache, "DIR",                                                    \
     "directory that keeps parts of remote files (default: banyan/remote in ~/.cache)"},           \
    {                                                                                              \
        "remote-cache-size", CLI_STRING, &cache_size, "SIZE",                                      \
            "the most that it holds: the largest file, and all that are packed together (default " \
            "20GiB)"                                                                               \
    }

/* What is wrong with the values of flags of texts, which are read; NULL: nothing. */
static const char *read_values(by_pack_options *options, int64_t *cache_bytes, const char *dedup,
                               const char *cache_size)
{
    if (!parse_dedup(dedup, &options->dedup)) {
        return "--dedup must be none, exact or near";
    }
    return by_parse_size(cache_bytes, cache_size) && *cache_bytes >= 1
               ? NULL
               : "--remote-cache-size must be a number of bytes, such as 20GiB";
}

static int run(int argc, char **argv)
{
    by_pack_options options = {0};
    pack_view view = {.terminal = isatty(STDERR_FILENO) != 0};
    const char *output = NULL;
    const char *tokenizer = "bpe";
    const char *field = "text";
    const char *dedup = "none";
    int64_t vocab = 8192;
    int64_t threads = 0;
    int64_t shard = 0;
    double valid = 0.0;
    const char *corrupt = "fail";
    double budget = 0.01;
    const char *cache = NULL;
    const char *cache_size = "20GiB";
    int64_t cache_bytes;
    bool no_eos = false, json = false, images = false;
    int64_t shard_mib = 256;
    cli_graph_pack graph = {0};
    cli_chat_pack chat = {0};
    const cli_flag flags[] = {
        {"out", CLI_STRING, &output, "DIR", "directory to create (required)"},
        TEXT_FLAGS,
        DAMAGE_FLAGS,
        IMAGE_FLAGS,
        CLI_GRAPH_PACK_FLAGS(graph),
        CLI_CHAT_PACK_FLAGS(chat),
        {"shard-tokens", CLI_INTEGER_FROM(1), &shard, "N", "tokens per shard (default 134217728)"},
        REMOTE_FLAGS,
        {"no-eos", CLI_SWITCH, &no_eos, NULL, "add no end-of-text token after each document"},
        {"threads", CLI_THREADS, &threads, "N", "threads (default: one per core)"},
        {"json", CLI_SWITCH, &json, NULL, CLI_JSON_HELP},
        {0}};
    char **rest;
    int count;
    int code = cli_parse(&cli_pack, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    const char *misuse = find_misuse(count, output, corrupt);
    if (misuse == NULL && (images || graph.wanted)) {
        const pack_common common = {rest, count, output, threads, corrupt, budget, cache};
        return images ? pack_images(&common, shard_mib, json) : pack_graph(&graph, &common, json);
    }
    misuse = misuse == NULL ? cli_chat_pack_misuse(&chat, tokenizer) : misuse;
    misuse = misuse == NULL ? read_values(&options, &cache_bytes, dedup, cache_size) : misuse;
    if (misuse != NULL) {
        return cli_misuse(&cli_pack, "%s", misuse);
    }
    options = (by_pack_options){.dedup = options.dedup,
                                .skip_corrupt = strcmp(corrupt, "skip") == 0,
                                .corrupt_budget = budget,
                                .inputs = (const char *const *)rest,
                                .input_count = (size_t)count,
                                .output = output,
                                .tokenizer_kind = tokenizer,
                                .tokenizer_vocab = (size_t)vocab,
                                .field = field,
                                .shard_tokens = (uint64_t)shard,
                                .threads = (size_t)threads,
                                .valid_fraction = valid,
                                .remote = {.cache = cache, .bytes = (uint64_t)cache_bytes},
                                .no_eos = no_eos,
                                .progress = show,
                                .note = show_note,
                                .user = &view};
    cli_spool spool = {0};
    if ((code = find_inputs(&spool, rest, count)) >= 0) {
        return code;
    }
    cli_catch_signals();
    code = chat.wanted ? cli_chat_pack_open(&chat, &options) : -1;
    code = code >= 0 ? code : pack_inputs(&options, &view, json);
    cli_chat_pack_close(&chat);
    cli_spool_close(&spool);
    return code;
}

const cli_command cli_pack = {
    .name = "pack",
    .summary =
        "pack text or conversations into token shards, pictures into shards, edges into a graph",
    .usage = "banyan pack FILE|DIR|URL... --out DIR [--tokenizer WHAT] [--valid-fraction F]",
    .text =
        "Tokenizes text files, JSON lines (.jsonl, .ndjson), Parquet files (.parquet) and\n"
        "directories of them in parallel, here or remote (https://, s3://), and writes npy\n"
        "shards with a manifest and the tokenizer. Training reads the directory as data.train, "
        "data.valid or data.mix.\n"
        "\n"
        "With --images, writes the pictures of folders of classes and of shards (tar, Parquet,\n"
        "TFRecord, MDS; also tar.gz), mixed, into tar shards of one size, which data.images\n"
        "reads.\n"
        "\n"
        "The ranks of `banyan launch` share the work, for texts and pictures: the result has the\n"
        "same bytes for any number of them, and the same command goes on after a kill.\n"
        "\n"
        "With --chat, renders conversations (JSON lines, JSON, Parquet) with the chat template of\n"
        "--tokenizer DIR or --chat-template, and writes a mask of what is learned beside the\n"
        "tokens, for task.kind chat (docs/chat_tuning.md).\n"
        "\n"
        "With --graph, sorts lists of edges (CSV and other text, Parquet), an npz file or a\n"
        "directory of the Open Graph Benchmark into a directory that data.graph maps\n"
        "(docs/graphs.md).\n"
        "\n"
        "examples:\n"
        "  banyan pack books/ --out packed --vocab 8192 --valid-fraction 0.1\n"
        "  banyan pack crawl.jsonl --field content --tokenizer gpt2/ --out crawl --dedup near\n"
        "  banyan pack --chat talks.jsonl --tokenizer model/ --context 1024 --out talks\n"
        "  banyan pack --graph edges.csv --nodes nodes.csv --store f16 --out packed\n"
        "  banyan launch -n 8 pack crawl/ --tokenizer gpt2/ --out crawl-packed\n"
        "  banyan launch -n 8 pack --images pets/ more.parquet --out shards",
    .run = run};
