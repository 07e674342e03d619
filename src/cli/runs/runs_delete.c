/* banyan runs delete. */
#include <fts.h>
#include <stdio.h>
#include <sys/stat.h>

#include "runs/runs.h"

/* Counts the files of a directory; false: it cannot be read. */
static bool count(const char *path, unsigned long long *files, unsigned long long *bytes)
{
    char *roots[] = {(char *)(uintptr_t)path, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_XDEV | FTS_NOCHDIR, NULL);
    bool good = walk != NULL;
    *files = 0;
    *bytes = 0;
    for (FTSENT *e; good && (e = fts_read(walk)) != NULL;) {
        good = e->fts_info != FTS_NS && e->fts_info != FTS_ERR && e->fts_info != FTS_DNR;
        *files += e->fts_info == FTS_F;
        *bytes += e->fts_info == FTS_F ? (unsigned long long)e->fts_statp->st_size : 0;
    }
    if (walk != NULL) {
        (void)fts_close(walk);
    }
    return good;
}

/* Says what would be removed. */
static int ask(char **runs, int run_count)
{
    char text[32];
    for (int i = 0; i < run_count; i++) {
        unsigned long long files;
        unsigned long long bytes;
        if (!count(runs[i], &files, &bytes)) {
            fprintf(stderr, "banyan runs: cannot read %s\n", runs[i]);
            return CLI_USAGE;
        }
        fprintf(stderr, "%s has %llu files, %s\n", runs[i], files, by_format_bytes(text, bytes));
    }
    return cli_misuse(&cli_runs, "delete removes %s for good, with all checkpoints: add --yes",
                      run_count == 1 ? "the run" : "these runs");
}

int cli_delete_runs(char **runs, int run_count, bool yes)
{
    if (!yes) {
        return ask(runs, run_count);
    }
    for (int i = 0; i < run_count; i++) {
        by_error error = {0};
        if (by_run_remove(runs[i], &error) != BY_OK) {
            return cli_fail(&cli_runs, &error);
        }
        printf("%s is removed\n", runs[i]);
    }
    return CLI_DONE;
}
