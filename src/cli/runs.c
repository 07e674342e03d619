#include <math.h>
#include <stdio.h>
#include <string.h>

#include "banyan/track.h"
#include "cli.h"

static void print_json(const by_run_record *r)
{
    printf("{\"name\":");
    cli_print_json_string(r->name);
    printf(",\"path\":");
    cli_print_json_string(r->path);
    printf(",\"status\":");
    cli_print_json_string(r->status);
    printf(",\"step\":%llu,\"steps\":%llu,\"config_hash\":\"%s\",\"started\":\"%s\",\"updated\":\"%"
           "s\"",
           (unsigned long long)r->step, (unsigned long long)r->steps, r->config_hash, r->started,
           r->updated);
    if (isfinite(r->best_loss)) {
        printf(",\"best_loss\":%.9g", r->best_loss);
    }
    printf("}\n");
}

/* A name may hold anything but "/": tabs, line ends and backslashes are escaped, so that a run
 * stays one line of the same columns. */
static void print_name(const char *name)
{
    for (const char *p = name; *p != '\0'; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '\t' || c == '\n' || c == '\\') {
            printf("\\%c", c == '\t' ? 't' : c == '\n' ? 'n' : '\\');
        } else if (c < 0x20 || c == 0x7f) {
            printf("\\x%02x", c);
        } else {
            putchar(c);
        }
    }
}

static int run(int argc, char **argv)
{
    by_run_query query = {0};
    bool json = false;
    const char *server = NULL;
    const cli_flag flags[] = {
        {"name", CLI_STRING, &query.name, "TEXT", "only runs whose name contains TEXT"},
        {"status", CLI_STRING, &query.status, "WORD",
         "only running, done, stopped, failed or killed runs"},
        {"json", CLI_SWITCH, &json, NULL, "one JSON line a run"},
        {"server", CLI_STRING, &server, "URL", "sync: the server, not track.mlflow of the run"},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    by_registry *registry;
    by_run_list list;
    by_error error = {0};
    int code = cli_parse(&cli_runs, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count == 2 && strcmp(rest[0], "sync") == 0) {
        return cli_sync_run(rest[1], server);
    }
    if (count > 1 || server != NULL) {
        return cli_misuse(&cli_runs, "name one directory of runs, or sync and a run");
    }
    if (by_registry_open_view(&registry, count == 1 ? rest[0] : "runs", &error) != BY_OK) {
        return cli_fail(&cli_runs, &error);
    }
    by_status status = by_registry_list(registry, &query, &list, &error);
    if (status == BY_OK) {
        if (!json) {
            printf("name\tstatus\tstep\tsteps\tbest_loss\tupdated\n");
        }
        for (size_t i = 0; i < list.count; i++) {
            const by_run_record *r = &list.items[i];
            if (json) {
                print_json(r);
            } else {
                print_name(r->name);
                printf("\t%s\t%llu\t%llu\t%.4f\t%s\n", r->status, (unsigned long long)r->step,
                       (unsigned long long)r->steps, r->best_loss, r->updated);
            }
        }
        by_run_list_free(&list);
    }
    by_registry_close(&registry);
    return status == BY_OK ? CLI_DONE : cli_fail(&cli_runs, &error);
}

const cli_command cli_runs = {
    .name = "runs",
    .summary = "list the runs of a directory, send one to a server",
    .usage = "banyan runs [DIR] [--name TEXT] [--status WORD] [--json] | banyan runs sync RUN "
             "[--server URL]",
    .text =
        "Lists the runs below DIR (default: runs), newest first, tab-separated. A run that\n"
        "says it is running while no process holds its lock is shown as killed.\n\n"
        "sync sends an MLflow server what it did not get of a run while that trained: the server\n"
        "was away, or the run had no sink for it. User name, password or token are taken from\n"
        "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN.\n\n"
        "  banyan runs --status done\n"
        "  banyan runs sync runs/shakespeare-char --server http://127.0.0.1:5000",
    .run = run};
