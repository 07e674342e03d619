#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "banyan/track.h"
#include "runs/runs.h"

/* The values of the flags. */
typedef struct runs_request {
    by_run_query query;
    const char *tag;
    const char *server;
    const char *out;
    cli_runs_order order;
    bool yes;
    bool series;
    bool all;
    bool json;
} runs_request;

/* The subcommands, and how many arguments each takes. */
typedef struct subcommand {
    const char *name;
    int least, most;
    const char *form;
} subcommand;

static const subcommand words[] = {
    {"ls", 0, 1, "ls [DIR]"},
    {"show", 1, 1, "show RUN"},
    {"compare", 2, INT_MAX, "compare RUN RUN..., two runs or more"},
    {"tag", 1, INT_MAX, "tag RUN [KEY=VALUE...]"},
    {"export", 0, INT_MAX, "export [DIR], or export --series RUN..."},
    {"delete", 1, INT_MAX, "delete RUN... --yes"},
    {"sync", 1, 1, "sync RUN"}};

/* What others call the actions. */
static const char *const synonyms[][2] = {
    {"list", "ls"},     {"rm", "delete"},   {"remove", "delete"}, {"del", "delete"},
    {"info", "show"},   {"get", "show"},    {"describe", "show"}, {"diff", "compare"},
    {"cmp", "compare"}, {"dump", "export"}, {"upload", "sync"},   {"label", "tag"}};

/* The action that an unknown word means; NULL: none. */
static const char *guess_word(const char *name)
{
    const char *names[sizeof words / sizeof words[0]];
    for (size_t i = 0; i < sizeof synonyms / sizeof synonyms[0]; i++) {
        if (strcmp(synonyms[i][0], name) == 0) {
            return synonyms[i][1];
        }
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        names[i] = words[i].name;
    }
    return by_nearest_name(name, names, sizeof names / sizeof names[0]);
}

static const subcommand *find_word(const char *name)
{
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(words[i].name, name) == 0) {
            return &words[i];
        }
    }
    return NULL;
}

static int list(const char *directory, const runs_request *r)
{
    by_error error = {0};
    return cli_list_runs(directory, &r->query, r->tag, &r->order, r->json, &error) == BY_OK
               ? CLI_DONE
               : cli_fail(&cli_runs, &error);
}

static int export_runs(char **rest, int count, const runs_request *r)
{
    if (!r->series && count > 1) {
        return cli_misuse(&cli_runs, "export takes one directory; with --series it takes runs");
    }
    if (r->series && count == 0) {
        return cli_misuse(&cli_runs, "export --series takes one run or more");
    }
    return r->series ? cli_export_series(rest, count, r->out)
                     : cli_export_runs(count == 1 ? rest[0] : "runs", r->out);
}

static int run_word(const subcommand *w, char **rest, int count, const runs_request *r)
{
    if (count < w->least || count > w->most) {
        return cli_misuse(&cli_runs, "write: banyan runs %s", w->form);
    }
    switch (w->name[0]) {
    case 's':
        return w->name[1] == 'y' ? cli_sync_run(rest[0], r->server)
                                 : cli_show_run(rest[0], r->json);
    case 'c':
        return cli_compare_runs(rest, count, r->all, r->json);
    case 't':
        return cli_tag_run(rest[0], rest + 1, count - 1, r->json);
    case 'e':
        return export_runs(rest, count, r);
    case 'd':
        return cli_delete_runs(rest, count, r->yes);
    default:
        return list(count == 1 ? rest[0] : "runs", r);
    }
}

static int run(int argc, char **argv)
{
    runs_request r = {0};
    const cli_flag flags[] = {
        {"name", CLI_STRING, &r.query.name, "TEXT", "ls: only runs whose name contains TEXT"},
        {"status", CLI_STRING, &r.query.status, "WORD",
         "ls: only runs with this status: running, done, stopped, failed or killed"},
        {"tag", CLI_STRING, &r.tag, "KEY[=VALUE]", "ls: only runs with this tag"},
        {"sort", CLI_STRING, &r.order.key, "KEY",
         "ls: ascending by a column, a metric (accuracy), or any key that show prints"},
        {"reverse", CLI_SWITCH, &r.order.reverse, NULL, "ls: with --sort, descending"},
        {"yes", CLI_SWITCH, &r.yes, NULL, "delete: do it"},
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
    int code = cli_parse(&cli_runs, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    const subcommand *w = count == 0 ? NULL : find_word(rest[0]);
    if (w != NULL) {
        return run_word(w, rest + 1, count - 1, &r);
    }
    const char *meant = count == 0 || access(rest[0], F_OK) == 0 ? NULL : guess_word(rest[0]);
    if (meant != NULL) {
        return cli_misuse(&cli_runs, "unknown action '%s': write banyan runs %s", rest[0],
                          find_word(meant)->form);
    }
    if (count > 1 || r.server != NULL || r.out != NULL || r.series || r.all || r.yes) {
        return cli_misuse(&cli_runs, "name an action: ls [DIR], show RUN, compare RUN RUN..., tag "
                                     "RUN KEY=VALUE, export [DIR], delete RUN or sync RUN");
    }
    return list(count == 1 ? rest[0] : "runs", &r);
}

const cli_command cli_runs = {
    .name = "runs",
    .summary = "list, show, compare, tag, export and delete runs; send one to MLflow",
    .usage = "banyan runs [ls] [DIR] [--name TEXT] [--status WORD] [--tag KEY=VALUE] [--sort KEY]\n"
             "       banyan runs show RUN | compare RUN RUN... [--all] | tag RUN [KEY=VALUE...]\n"
             "       banyan runs export [DIR] [--out FILE] | export --series RUN... [--out FILE]\n"
             "       banyan runs delete RUN... --yes | sync RUN [--server URL]",
    .text =
        "Lists, compares, tags, exports and deletes runs, and sends them to MLflow.\n"
        "\n"
        "examples:\n"
        "  banyan runs ls --status done\n"
        "  banyan runs ls --sort accuracy --reverse\n"
        "  banyan runs compare runs/small runs/large\n"
        "  banyan runs tag runs/small baseline=yes\n"
        "  banyan runs export --out runs.csv\n"
        "  banyan runs sync runs/shakespeare-char --server http://127.0.0.1:5000\n"
        "\n"
        "ls lists the runs below DIR (default: runs), newest first, in columns on a terminal,\n"
        "else separated by tabs. A run that is recorded as running while no process holds its\n"
        "lock is shown as killed.\n"
        "\n"
        "show prints everything known about a run: its progress, newest numbers, tags, config\n"
        "and environment. A key that changed when the run was resumed has both values, with the\n"
        "step from which the second applied. compare prints what differs between runs, one column "
        "per run. tag\n"
        "sets KEY=VALUE, removes KEY=, and prints the tags.\n"
        "\n"
        "export writes one row per run, or all recorded numbers with --series, as CSV or JSON\n"
        "lines.\n"
        "\n"
        "delete removes run directories for good, but none that is being trained, that a server\n"
        "or another process reads, or that another run beside it was started from.\n"
        "\n"
        "sync sends an MLflow server what it did not receive during training, because it was\n"
        "down or because mlflow was not in track.sinks. Credentials come from\n"
        "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or from MLFLOW_TRACKING_TOKEN.",
    .run = run};
