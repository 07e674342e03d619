/* The subcommands of `banyan runs`, one file each; runs.c has the command. */
#ifndef BY_CLI_RUNS_RUNS_H
#define BY_CLI_RUNS_RUNS_H

#include "banyan/runs.h"
#include "banyan/track.h"
#include "base/columns.h"

/* banyan runs show RUN (runs_facts.c). Like the others, returns an exit code. */
int cli_show_run(const char *run, bool json);
/* banyan runs compare RUN RUN...: prints facts that differ, or all of them. */
int cli_compare_runs(char **runs, int count, bool all, bool json);
/* banyan runs export [DIR]: writes a row for each run to `out` (NULL: standard output; .jsonl: JSON
 * lines, else CSV). */
int cli_export_runs(const char *directory, const char *out);
/* banyan runs export --series RUN...: writes all numbers of the events as CSV. */
int cli_export_series(char **runs, int count, const char *out);
/* banyan runs tag RUN KEY=VALUE...; KEY= removes a tag. Without assignments it lists the tags. */
int cli_tag_run(const char *run, char **assignments, int count, bool json);
/* banyan runs sync RUN (runs_sync.c). `server` NULL: the one in the config. */
int cli_sync_run(const char *run, const char *server);

/* The order of a list: by a column, or by the newest value of a fact of each run. */
typedef struct cli_runs_order {
    const char *key; /* NULL: newest first */
    bool reverse;
} cli_runs_order;

/* banyan runs ls [DIR] (runs_ls.c). */
by_status cli_list_runs(const char *directory, const by_run_query *query, const char *tag,
                        const cli_runs_order *order, bool json, by_error *error);
/* banyan runs delete RUN... (runs_delete.c). */
int cli_delete_runs(char **runs, int count, bool yes);

#endif
