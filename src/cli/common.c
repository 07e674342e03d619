#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "banyan/train.h"
#include "cli.h"

by_status cli_open_config(by_config **out, const char *path, const cli_list *overrides,
                          by_error *error)
{
    char inside[4096];
    struct stat info;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        (void)snprintf(inside, sizeof inside, "%s/config.yaml", path);
        path = inside;
    }
    by_status status = by_config_open(out, path, overrides == NULL ? NULL : overrides->items,
                                      overrides == NULL ? 0 : overrides->count, error);
    if (status == BY_OK) {
        status = by_config_resolve(*out, error);
        if (status != BY_OK) {
            by_config_close(out);
        }
    }
    return status;
}

by_status cli_find_model(char **out, const char *path, by_error *error)
{
    char inside[4096];
    (void)snprintf(inside, sizeof inside, "%s/config.json", path);
    if (access(inside, F_OK) != 0) {
        return by_run_find(out, path, error);
    }
    *out = strdup(path);
    return *out == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a path") : BY_OK;
}

const char *cli_bytes(char buffer[32], uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    for (; value >= 1024.0 && unit < 4; unit++) {
        value /= 1024.0;
    }
    (void)snprintf(buffer, 32, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return buffer;
}

const char *cli_duration(char buffer[32], double seconds)
{
    long s = seconds < 0.0 ? 0 : (long)(seconds + 0.5);
    if (s >= 3600) {
        (void)snprintf(buffer, 32, "%ldh%02ldm", s / 3600, s / 60 % 60);
    } else if (s >= 60) {
        (void)snprintf(buffer, 32, "%ldm%02lds", s / 60, s % 60);
    } else {
        (void)snprintf(buffer, 32, "%lds", s);
    }
    return buffer;
}

/* The one piece of state that a signal handler can reach. */
static volatile sig_atomic_t stop_signals;

static void on_signal(int number)
{
    (void)number;
    if (stop_signals++ > 0) {
        _exit(130);
    }
}

void cli_catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    /* A file-size limit shall come back as a write error, with the checkpoint intact. */
    (void)signal(SIGXFSZ, SIG_IGN);
}

bool cli_stop_requested(void *unused)
{
    (void)unused;
    return stop_signals > 0;
}
