#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "banyan/data.h"
#include "banyan/tokenizer.h"
#include "base/cli.h"
#include "data/show.h"
#include "data/table_stats.h"

#define MAX_TOP   100
#define MAX_SHOWN 1024

/* The options of `banyan data`. */
typedef struct data_request {
    bool json;
    int64_t context;
    int64_t seed;
    int64_t top;
} data_request;

typedef struct verify_view {
    bool terminal;
    uint64_t shown; /* bytes done when the line was last drawn */
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

static by_status verify(const char *directory, const data_request *r, by_error *error)
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
    if (r->json) {
        printf("{\"directory\":");
        cli_print_json_string(directory);
        printf(",\"tokens\":%" PRIu64 ",\"tokenizer\":\"%s\"}\n", tokens,
               by_dataset_tokenizer_hash(dataset));
    } else {
        printf("%s: %" PRIu64 " tokens, all checksums match\n", directory, tokens);
    }
    by_dataset_close(&dataset);
    return BY_OK;
}

/* ---- statistics ---- */

static bool show_tokens(void *user, uint64_t done, uint64_t total)
{
    verify_view *view = user;
    if (view->terminal && (done - view->shown > total / 100 || done < view->shown)) {
        view->shown = done;
        fprintf(stderr, "\r\033[Kcounting  %" PRIu64 " of %" PRIu64 " tokens", done, total);
        fflush(stderr);
    }
    return !cli_stop_requested(NULL);
}

/* Finds the most frequent tokens in order; returns how many there are. */
static size_t find_top(const by_dataset_statistics *s, uint32_t top[MAX_TOP], size_t wanted)
{
    size_t count = 0;
    for (uint32_t id = 0; id < s->vocab && wanted > 0; id++) {
        size_t at = count;
        while (at > 0 && s->counts[top[at - 1]] < s->counts[id]) {
            at--;
        }
        if (at < wanted) {
            count += count < wanted;
            memmove(top + at + 1, top + at, (count - at - 1) * sizeof *top);
            top[at] = id;
        }
    }
    return count;
}

/* What was packed of conversations. */
static void print_chat(const by_dataset *dataset, bool json)
{
    by_dataset_chat c;
    if (!by_dataset_is_chat(dataset, &c)) {
        return;
    }
    double share = 100.0 * (double)c.targets / (double)by_dataset_tokens(dataset);
    if (json) {
        printf(",\"chat\":{\"records\":%" PRIu64 ",\"samples\":%" PRIu64 ",\"targets\":%" PRIu64
               ",\"corrupt\":%" PRIu64 ",\"too_long\":%" PRIu64 ",\"cut\":%" PRIu64
               ",\"lost_targets\":%" PRIu64 "}",
               c.records, c.samples, c.targets, c.corrupt, c.too_long, c.cut, c.lost);
        return;
    }
    printf("chat\t%" PRIu64 " records; %" PRIu64 " left out as no conversations, %" PRIu64
           " samples as longer than the context, %" PRIu64 " cut behind an answer\n",
           c.records, c.corrupt, c.too_long, c.cut);
    printf("targets\t%" PRIu64 " learned tokens here (%.1f %%), %.1f a sample; %" PRIu64
           " lost with what was left out or cut\n",
           c.targets, share, (double)c.targets / (double)c.samples, c.lost);
}

static void print_json(const char *directory, const by_dataset *dataset,
                       const by_dataset_statistics *s, const data_request *r,
                       const by_tokenizer *tokenizer)
{
    static const char *const names[BY_LENGTH_QUANTILES] = {"min", "p10", "p25", "median",
                                                           "p75", "p90", "max"};
    uint32_t top[MAX_TOP];
    char number[32];
    size_t count = find_top(s, top, (size_t)r->top);
    printf("{\"directory\":");
    cli_print_json_string(directory);
    printf(",\"tokens\":%" PRIu64 ",\"documents\":%" PRIu64 ",\"empty_documents\":%" PRIu64
           ",\"lengths\":{",
           s->tokens, s->documents, s->empty_documents);
    for (size_t i = 0; i < BY_LENGTH_QUANTILES; i++) {
        printf("%s\"%s\":%" PRIu64, i > 0 ? "," : "", names[i], s->lengths[i]);
    }
    printf("},\"vocab\":%" PRIu32 ",\"used\":%" PRIu32 ",\"entropy\":%s", s->vocab, s->used,
           cli_json_number(number, s->entropy, 6));
    print_chat(dataset, true);
    if (r->context > 0) {
        printf(",\"context\":%" PRId64 ",\"windows\":%" PRIu64, r->context, s->windows);
        printf(",\"documents_per_window\":%s", cli_json_number(number, s->documents_per_window, 6));
        printf(",\"best_fit\":{\"samples\":%" PRIu64 ",\"filled\":%s,\"cut_documents\":%" PRIu64
               "}",
               s->bins, cli_json_number(number, s->bins_filled, 6), s->bins_cut);
        printf(",\"order_correlation\":%s", cli_json_number(number, s->order_correlation, 6));
        printf(",\"order_chi_squared\":%s", cli_json_number(number, s->order_chi_squared, 6));
    }
    printf(",\"top\":[");
    for (size_t i = 0; i < count; i++) {
        const char *bytes = "";
        size_t length = 0;
        (void)by_tokenizer_token_bytes(tokenizer, top[i], &bytes, &length, NULL);
        printf("%s{\"token\":%" PRIu32 ",\"text\":", i > 0 ? "," : "", top[i]);
        cli_print_json_text(bytes, length);
        printf(",\"count\":%" PRIu64 "}", s->counts[top[i]]);
    }
    printf("]}\n");
}

static void print_text(const char *directory, const by_dataset *dataset,
                       const by_dataset_statistics *s, const data_request *r,
                       const by_tokenizer *tokenizer)
{
    uint32_t top[MAX_TOP];
    size_t count = find_top(s, top, (size_t)r->top);
    const uint64_t *l = s->lengths;
    printf("%s\n", directory);
    printf("tokens\t%" PRIu64 "\n", s->tokens);
    printf("documents\t%" PRIu64 ", %" PRIu64 " of them empty\n", s->documents, s->empty_documents);
    printf("lengths\t%" PRIu64 " to %" PRIu64 " tokens, median %" PRIu64 ", 10 to 90 %%: %" PRIu64
           " to %" PRIu64 "\n",
           l[0], l[6], l[3], l[1], l[5]);
    print_chat(dataset, false);
    printf("vocabulary\t%" PRIu32 " of %" PRIu32 " tokens are used (%.1f %%)\n", s->used, s->vocab,
           100.0 * s->used / s->vocab);
    printf("entropy\t%.4f nats per token, the loss of a unigram model\n", s->entropy);
    if (r->context > 0) {
        printf("windows\t%" PRIu64 " of %" PRId64 " tokens, each in %.2f documents on average\n",
               s->windows, r->context, s->documents_per_window);
        printf("best fit\t%" PRIu64 " samples of whole documents, %.2f %% filled; %" PRIu64
               " documents are longer and cut\n",
               s->bins, 100.0 * s->bins_filled, s->bins_cut);
    }
    if (r->context > 0 && s->order_chi_squared == s->order_chi_squared) {
        printf("order\tcorrelation of neighbours %+.4f, chi-squared / degrees of freedom %.3f "
               "(random order: 0 and 1)\n",
               s->order_correlation, s->order_chi_squared);
    }
    for (size_t i = 0; i < count; i++) {
        const char *bytes = "";
        size_t length = 0;
        (void)by_tokenizer_token_bytes(tokenizer, top[i], &bytes, &length, NULL);
        printf("token %" PRIu32 "\t%.3f %%\t", top[i],
               100.0 * (double)s->counts[top[i]] / (double)s->tokens);
        cli_print_json_text(bytes, length);
        printf("\n");
    }
}

static by_status stats(const char *directory, const data_request *r, by_error *error)
{
    by_dataset *dataset;
    by_tokenizer *tokenizer = NULL;
    by_dataset_statistics s;
    char path[4096];
    verify_view view = {.terminal = isatty(STDERR_FILENO) != 0};
    by_status status = by_dataset_open(&dataset, directory, NULL, error);
    if (status != BY_OK) {
        return status;
    }
    (void)snprintf(path, sizeof path, "%s/tokenizer.json", directory);
    status = by_tokenizer_open(&tokenizer, path, error);
    if (status == BY_OK) {
        status = by_dataset_measure(&s, dataset,
                                    &(by_dataset_statistics_options){.context = (size_t)r->context,
                                                                     .seed = (uint64_t)r->seed,
                                                                     .progress = show_tokens,
                                                                     .user = &view},
                                    error);
        if (view.terminal) {
            fprintf(stderr, "\r\033[K");
        }
    }
    if (status == BY_OK) {
        (r->json ? print_json : print_text)(directory, dataset, &s, r, tokenizer);
        free(s.counts);
    }
    by_tokenizer_close(&tokenizer);
    by_dataset_close(&dataset);
    return status;
}

/* ---- the command ---- */

typedef by_status part_work(const char *directory, const data_request *r, by_error *error);

/* Processes the directory itself, or train/ and valid/ in it if it was packed with a split. */
static by_status for_parts(const char *directory, part_work *work, const data_request *r,
                           by_error *error)
{
    static const char *const parts[] = {"train", "valid"};
    char path[4096];
    bool found = false;
    (void)snprintf(path, sizeof path, "%s/manifest.json", directory);
    if (access(path, F_OK) == 0) {
        return work(directory, r, error);
    }
    for (size_t i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, "%s/%s/manifest.json", directory, parts[i]);
        if (access(path, F_OK) == 0) {
            (void)snprintf(path, sizeof path, "%s/%s", directory, parts[i]);
            by_status status = work(path, r, error);
            if (status != BY_OK) {
                return status;
            }
            found = true;
        }
    }
    return found ? BY_OK : work(directory, r, error);
}

/* Whether a path is a table: a file, or a directory of its parts and not of packed text. */
static bool is_table(const char *path)
{
    static const char *const endings[] = {".parquet", ".jsonl", ".ndjson"};
    struct stat info;
    bool packed = false;
    bool parts = false;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) {
        return true;
    }
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        const char *name = entry->d_name;
        packed = packed || strcmp(name, "manifest.json") == 0 || strcmp(name, "train") == 0;
        for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
            size_t length = strlen(endings[i]);
            parts = parts || (strlen(name) > length &&
                              strcmp(name + strlen(name) - length, endings[i]) == 0);
        }
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
    return parts && !packed;
}

static bool ends_in(const char *path, const char *const *endings, size_t count)
{
    size_t length = strlen(path);
    bool found = false;
    for (size_t i = 0; i < count; i++) {
        size_t n = strlen(endings[i]);
        found = found || (length > n && strcmp(path + length - n, endings[i]) == 0);
    }
    return found;
}

static bool is_text(const char *path)
{
    static const char *const endings[] = {".txt", ".text", ".md"};
    return ends_in(path, endings, sizeof endings / sizeof endings[0]);
}

/* Whether a path is a config, or a run that has one. */
static bool is_config(const char *path)
{
    static const char *const endings[] = {".yaml", ".yml"};
    char file[4096];
    (void)snprintf(file, sizeof file, "%s/config.yaml", path);
    return ends_in(path, endings, sizeof endings / sizeof endings[0]) || access(file, F_OK) == 0;
}

/* The run that a path is, for what it has of its own, unless a setting names another template or
 * tokenizer; NULL: it is a file. */
static const char *run_of(const char *path, const cli_list *overrides)
{
    static const char *const others[] = {"chat.template=", "data.tokenizer=", "model.from="};
    struct stat info;
    bool own = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    for (size_t i = 0; i < overrides->count; i++) {
        for (size_t k = 0; k < sizeof others / sizeof others[0]; k++) {
            own = own && strncmp(overrides->items[i], others[k], strlen(others[k])) != 0;
        }
    }
    return own ? path : NULL;
}

static by_status stats_of(const char *path, const data_request *r, by_error *error)
{
    return is_table(path) ? cli_table_stats(path, r->json, error)
                          : for_parts(path, stats, r, error);
}

/* Shows a file as a config would train on it. */
static int show_file(const char *file, const char *config, const cli_list *overrides,
                     cli_show_request *look)
{
    by_string setting = {0};
    cli_list all = *overrides;
    by_string_format(&setting, "data.text=");
    by_string_json(&setting, file, strlen(file));
    const char *const own[] = {"data.train=", "data.valid=", "data.valid_fraction=0",
                               setting.failed ? "data.text=" : setting.data};
    if (all.count + sizeof own / sizeof own[0] > CLI_LIST_MAX) {
        by_string_free(&setting);
        return cli_misuse(&cli_data, "too many --set");
    }
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        all.items[all.count++] = own[i];
    }
    int code = cli_with_config(&cli_data, config, &all, cli_show_data, look);
    by_string_free(&setting);
    return code;
}

static int run(int argc, char **argv)
{
    data_request r = {.seed = 1337, .top = 10};
    cli_show_request look = {.count = 16};
    cli_list overrides = {0};
    const char *config = NULL;
    const cli_flag flags[] = {
        {"out", CLI_STRING, &look.out, "FILE",
         "show: file to write, .png for images (default data.png; text: standard output)"},
        {"epoch", CLI_INTEGER_FROM(0), &look.epoch, "N",
         "show, and stats of a config: epoch, from 0 (default 0)"},
        {"count", CLI_INTEGER_IN(1, MAX_SHOWN), &look.count, "N",
         "show: samples, from the first of the epoch on (default 16)"},
        {"list", CLI_SWITCH, &look.list, NULL,
         "show: list the examples by the numbers that data.draws and lists of rows count"},
        {"config", CLI_INPUT, &config, "CONFIG",
         "show: config that says how FILE is read, in place of its own data"},
        {"set", CLI_LIST, &overrides, "KEY=VALUE", CLI_SET_HELP},
        {"context", CLI_INTEGER_FROM(1), &r.context, "N",
         "stats: also examine windows of N tokens and the order of an epoch"},
        {"seed", CLI_INTEGER_FROM(0), &r.seed, "N", "stats: seed of the order (default 1337)"},
        {"top", CLI_INTEGER_IN(0, MAX_TOP), &r.top, "N",
         "stats: most frequent tokens to list, 0 to 100 (default 10)"},
        {"json", CLI_SWITCH, &r.json, NULL, "print one JSON line per directory or table"},
        {0}};
    char **rest;
    int count;
    by_error error = {0};
    int code = cli_parse(&cli_data, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if ((code = cli_check_inputs(&cli_data, rest + 1, count - 1)) >= 0) {
        return code;
    }
    bool verifies = count > 0 && strcmp(rest[0], "verify") == 0;
    bool shows = count > 0 && strcmp(rest[0], "show") == 0;
    if (count < 2 || (!verifies && !shows && strcmp(rest[0], "stats") != 0)) {
        return cli_misuse(&cli_data, "name an action and what it is of: verify DIR, stats DIR, "
                                     "stats FILE, stats CONFIG or show CONFIG");
    }
    look.json = r.json;
    look.run = run_of(config != NULL ? config : rest[1], &overrides);
    cli_catch_signals();
    if ((shows && count != 2) || (config != NULL && !shows)) {
        return cli_misuse(&cli_data, config != NULL ? "--config goes with show FILE"
                                                    : "show is of one config or run");
    }
    if (config != NULL) {
        return show_file(rest[1], config, &overrides, &look);
    }
    if (shows || (!verifies && count == 2 && is_config(rest[1]))) {
        return cli_with_config(&cli_data, rest[1], &overrides,
                               shows ? cli_show_data : cli_class_stats, &look);
    }
    for (int i = 1; i < count; i++) {
        if (!verifies && is_text(rest[i])) {
            return cli_misuse(&cli_data,
                              "%s is a text: stats are of packed text and of tables; pack it with "
                              "`banyan pack %s --out DIR`",
                              rest[i], rest[i]);
        }
        by_status status =
            verifies ? for_parts(rest[i], verify, &r, &error) : stats_of(rest[i], &r, &error);
        if (status != BY_OK) {
            return cli_fail(&cli_data, &error);
        }
    }
    return CLI_DONE;
}

const cli_command cli_data = {
    .name = "data",
    .summary = "show what a model sees of its data, verify packed data, or print statistics",
    .usage = "banyan data show CONFIG|RUN [--out FILE] [--epoch N] [--count N] [--list]\n"
             "       banyan data show FILE --config CONFIG\n"
             "       banyan data verify DIR... | stats DIR|FILE...|CONFIG|RUN",
    .text =
        "Shows training data as the model sees it, verifies packed directories, or prints\n"
        "statistics of what they contain.\n"
        "\n"
        "examples:\n"
        "  banyan data show runs/pets --out pets.png\n"
        "  banyan data verify packed\n"
        "  banyan data stats packed --context 1024\n"
        "  banyan data stats housing.csv\n"
        "\n"
        "show draws images as they are decoded and, beside them, as augmentation makes them: the\n"
        "pixels that the model gets, without their normalization, with their labels. Of texts it\n"
        "prints the tokens; {seen|hidden} are those that task.kind masked hides, and what "
        "task.kind\n"
        "chat learns is coloured, or between [[ and ]]. Below an image\n"
        "are the number of its example and its file. With --list it prints a line for each\n"
        "example, images or rows of a table, by these numbers: the part, how often it is drawn\n"
        "by data.draws, how often in the epoch, and class and file. Line N + 1 of data.draws, and\n"
        "N in a list of rows, mean example N.\n"
        "\n"
        "verify reads the shards, document offsets and tokenizer and compares them with the\n"
        "checksums in the manifest. Training does the same when it first uses a directory, and\n"
        "again whenever one of its files has changed.\n"
        "\n"
        "stats prints document lengths, the used part of the vocabulary, the entropy of single\n"
        "tokens, and the most frequent tokens. With --context also: windows per epoch,\n"
        "documents per window, and whether the order of an epoch mixes documents as well as a\n"
        "random order does. Of a table (CSV, Parquet, JSON lines) it prints the kind of each\n"
        "column, its missing cells, its range or number of values, and the first cell because\n"
        "of which a column with numbers is one of categories (docs/tables.md). Of a config of\n"
        "classes: how many examples of each are trained on, held out, and drawn in an epoch, and\n"
        "how well that mixes the files, beside a random order of all (docs/images.md).",
    .run = run};
