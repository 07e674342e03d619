#include <stdio.h>
#include <string.h>

#include "banyan/track.h"
#include "runs.h"

static void print_json(const by_run_record *r)
{
    printf("{\"name\":");
    cli_print_json_string(r->name);
    printf(",\"path\":");
    cli_print_json_string(r->path);
    printf(",\"status\":");
    cli_print_json_string(r->status);
    printf(",\"step\":%llu,\"steps\":%llu", (unsigned long long)r->step,
           (unsigned long long)r->steps);
    const char *const texts[][2] = {
        {"config_hash", r->config_hash}, {"started", r->started}, {"updated", r->updated}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        printf(",\"%s\":", texts[i][0]);
        cli_print_json_string(texts[i][1]);
    }
    char number[32];
    printf(",\"best_loss\":%s}\n", cli_json_number(number, r->best_loss, 9));
}

/* Returns true if a run has a tag, given as KEY=VALUE or KEY. */
static bool has_tag(const by_run_record *r, const char *wanted)
{
    by_tag_list tags;
    const char *equals = strchr(wanted, '=');
    size_t length = equals == NULL ? strlen(wanted) : (size_t)(equals - wanted);
    bool found = false;
    if (by_tags_read(&tags, r->path, NULL) != BY_OK) {
        return false;
    }
    for (size_t i = 0; i < tags.count && !found; i++) {
        found = strlen(tags.items[i].key) == length &&
                strncmp(tags.items[i].key, wanted, length) == 0 &&
                (equals == NULL || strcmp(tags.items[i].value, equals + 1) == 0);
    }
    by_tag_list_free(&tags);
    return found;
}

static by_status list_runs(const char *directory, const by_run_query *query, const char *tag,
                           bool json, by_error *error)
{
    by_registry *registry;
    by_run_list list;
    by_status status = by_registry_open_view(&registry, directory, error);
    if (status != BY_OK) {
        return status;
    }
    status = by_registry_list(registry, query, &list, error);
    by_registry_close(&registry);
    if (status != BY_OK) {
        return status;
    }
    if (!json) {
        printf("name\tstatus\tstep\tsteps\tbest_loss\tupdated\n");
    }
    for (size_t i = 0; i < list.count; i++) {
        const by_run_record *r = &list.items[i];
        char number[32];
        if (tag != NULL && !has_tag(r, tag)) {
            continue;
        }
        if (json) {
            print_json(r);
        } else {
            cli_print_cell(r->name);
            printf("\t");
            cli_print_cell(r->status);
            printf("\t%llu\t%llu\t%s\t", (unsigned long long)r->step, (unsigned long long)r->steps,
                   cli_number(number, r->best_loss, 4));
            cli_print_cell(r->updated);
            printf("\n");
        }
    }
    by_run_list_free(&list);
    return BY_OK;
}

/* The values of the flags. */
typedef struct request {
    by_run_query query;
    const char *tag;
    const char *server;
    const char *out;
    bool series;
    bool all;
    bool json;
} request;

/* Runs a subcommand other than ls; -1: the word is no subcommand. */
static int run_word(const char *word, char **rest, int count, const request *r)
{
    if (strcmp(word, "sync") == 0 && count == 1) {
        return cli_sync_run(rest[0], r->server);
    }
    if (strcmp(word, "show") == 0 && count == 1) {
        return cli_show_run(rest[0], r->json);
    }
    if (strcmp(word, "compare") == 0 && count >= 2) {
        return cli_compare_runs(rest, count, r->all, r->json);
    }
    if (strcmp(word, "tag") == 0 && count >= 1) {
        return cli_tag_run(rest[0], rest + 1, count - 1, r->json);
    }
    if (strcmp(word, "export") == 0 && r->series && count >= 1) {
        return cli_export_series(rest, count, r->out);
    }
    if (strcmp(word, "export") == 0 && !r->series && count <= 1) {
        return cli_export_runs(count == 1 ? rest[0] : "runs", r->out);
    }
    return -1;
}

static int run(int argc, char **argv)
{
    request r = {0};
    const cli_flag flags[] = {
        {"name", CLI_STRING, &r.query.name, "TEXT", "ls: only runs whose name contains TEXT"},
        {"status", CLI_STRING, &r.query.status, "WORD",
         "ls: only runs with this status: running, done, stopped, failed or killed"},
        {"tag", CLI_STRING, &r.tag, "KEY[=VALUE]", "ls: only runs with this tag"},
        {"all", CLI_SWITCH, &r.all, NULL, "compare: also print what is equal in all runs"},
        {"series", CLI_SWITCH, &r.series, NULL,
         "export: all recorded numbers of these runs instead of one row per run"},
        {"out", CLI_STRING, &r.out, "FILE",
         "export: .csv or .jsonl file to write (default: standard output)"},
        {"server", CLI_STRING, &r.server, "URL",
         "sync: URL of the MLflow server (default: track.mlflow of the run)"},
        {"json", CLI_SWITCH, &r.json, NULL, "ls, show, compare, tag: print JSON"},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    by_error error = {0};
    int code = cli_parse(&cli_runs, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    code = count == 0 ? -1 : run_word(rest[0], rest + 1, count - 1, &r);
    if (code >= 0) {
        return code;
    }
    bool lists = count > 0 && strcmp(rest[0], "ls") == 0;
    if (count - lists > 1 || r.server != NULL || r.out != NULL || r.series || r.all) {
        return cli_misuse(&cli_runs, "name an action: ls [DIR], show RUN, compare RUN RUN..., tag "
                                     "RUN KEY=VALUE, export [DIR] or sync RUN");
    }
    return list_runs(count - lists == 1 ? rest[count - 1] : "runs", &r.query, r.tag, r.json,
                     &error) == BY_OK
               ? CLI_DONE
               : cli_fail(&cli_runs, &error);
}

const cli_command cli_runs = {
    .name = "runs",
    .summary = "list, show, compare, tag and export runs; send one to MLflow",
    .usage = "banyan runs [ls] [DIR] [--name TEXT] [--status WORD] [--tag KEY=VALUE] [--json]\n"
             "       banyan runs show RUN | compare RUN RUN... [--all] | tag RUN [KEY=VALUE...]\n"
             "       banyan runs export [DIR] [--out FILE] | export --series RUN... [--out FILE]\n"
             "       banyan runs sync RUN [--server URL]",
    .text = "Lists, compares, tags and exports runs, and sends them to MLflow.\n"
            "\n"
            "examples:\n"
            "  banyan runs ls --status done\n"
            "  banyan runs compare runs/small runs/large\n"
            "  banyan runs tag runs/small baseline=yes\n"
            "  banyan runs export --out runs.csv\n"
            "  banyan runs sync runs/shakespeare-char --server http://127.0.0.1:5000\n"
            "\n"
            "ls lists the runs below DIR (default: runs), newest first, separated by tabs. A run\n"
            "that is recorded as running while no process holds its lock is shown as killed.\n"
            "\n"
            "show prints everything known about a run: its progress, newest numbers, tags, config\n"
            "and environment. compare prints what differs between runs, one column per run. tag\n"
            "sets KEY=VALUE, removes KEY=, and prints the tags.\n"
            "\n"
            "export writes one row per run, or all recorded numbers with --series, as CSV or JSON\n"
            "lines.\n"
            "\n"
            "sync sends an MLflow server what it did not receive during training, because it was\n"
            "down or because mlflow was not in track.sinks. Credentials come from\n"
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or from MLFLOW_TRACKING_TOKEN.",
    .run = run};
