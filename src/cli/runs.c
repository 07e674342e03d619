#include <math.h>
#include <stdio.h>

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
    const cli_flag flags[] = {
        {"name", CLI_STRING, &query.name, "TEXT", "only runs whose name contains TEXT"},
        {"status", CLI_STRING, &query.status, "WORD",
         "only running, done, stopped, failed or killed runs"},
        {"json", CLI_SWITCH, &json, NULL, "one JSON line a run"},
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
    if (count > 1) {
        return cli_misuse(&cli_runs, "name one directory of runs");
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
    .summary = "list the runs of a directory",
    .usage = "banyan runs [DIR] [--name TEXT] [--status WORD] [--json]",
    .text = "Lists the runs below DIR (default: runs), newest first, tab-separated. A run that\n"
            "says it is running while no process holds its lock is shown as killed.\n\n"
            "  banyan runs --status done",
    .run = run};
