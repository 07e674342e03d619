#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "banyan/track.h"
#include "banyan/train.h"
#include "runs/runs.h"

static void show(void *user, uint64_t waiting)
{
    const bool *terminal = user;
    char text[32];
    if (*terminal) {
        fprintf(stderr, "\r\033[Ksending %s", by_format_bytes(text, waiting));
    }
}

int cli_sync_run(const char *run, const char *server)
{
    by_config *config = NULL;
    char *found = NULL;
    by_error error = {0};
    bool terminal = isatty(STDERR_FILENO) != 0;
    by_status status = by_run_find(&found, run, &error);
    if (status == BY_OK) {
        status = by_config_open_run(&config, found, NULL, 0, &error);
    }
    if (status == BY_OK) {
        const by_mlflow_sync_options options = {.run = found,
                                                .server =
                                                    server != NULL ? server : config->track.mlflow,
                                                .project = config->track.project,
                                                .progress = show,
                                                .stop = cli_stop_requested,
                                                .user = &terminal};
        cli_catch_signals();
        status = by_mlflow_sync(&options, &error);
        if (terminal) {
            fprintf(stderr, "\r\033[K");
        }
        if (status == BY_OK) {
            printf("%s is complete on %s\n", found, options.server);
        }
    }
    by_config_close(&config);
    free(found);
    return status == BY_OK ? CLI_DONE : cli_fail(&cli_runs, &error);
}
