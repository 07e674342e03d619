/* What `banyan runs` does besides listing, a file each; runs.c has the command. */
#ifndef BY_CLI_RUNS_H
#define BY_CLI_RUNS_H

#include "banyan/runs.h"
#include "cli.h"

/* banyan runs show RUN (runs_facts.c). An exit code, as all of these. */
int cli_show_run(const char *run, bool json);
/* banyan runs compare RUN RUN...: facts that differ, or all of them. */
int cli_compare_runs(char **runs, int count, bool all, bool json);
/* banyan runs export [DIR]: a row for each run, to `out` (NULL: standard output; .jsonl: a JSON
 * object a line, else CSV). */
int cli_export_runs(const char *directory, const char *out);
/* banyan runs export --series RUN...: all numbers of the events, as CSV. */
int cli_export_series(char **runs, int count, const char *out);
/* banyan runs tag RUN KEY=VALUE...; KEY= removes a tag, and no assignment lists them. */
int cli_tag_run(const char *run, char **assignments, int count, bool json);
/* banyan runs sync RUN (runs_sync.c). `server`: NULL for the config's. */
int cli_sync_run(const char *run, const char *server);

/* Prints text in a table: tabs, line ends and backslashes are escaped, so that a row stays one. */
void cli_print_cell(const char *text);

#endif
