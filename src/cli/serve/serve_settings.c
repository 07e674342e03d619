/* Opens the configuration of a server: a file, overrides, and flags that stand for keys. */
#include <stdio.h>
#include <string.h>

#include "serve/serving.h"

/* Before anything is copied from the command line. */
static void hide_password(const cli_list *sets, const cli_settings *settings)
{
    const char *address = NULL;
    for (size_t i = 0; i < settings->count; i++) {
        if (strcmp(settings->items[i].key, "broker.address") == 0) {
            address = settings->items[i].value;
        }
    }
    (void)cli_hide_password(address, sets);
}

by_status cli_serve_config_open(by_serve_config **out, const char *path, const cli_list *sets,
                                const cli_settings *settings, bool tells, by_error *error)
{
    by_serve_config *config = NULL;
    hide_password(sets, settings);
    by_status status = by_serve_config_open(&config, path, sets->items, sets->count, error);
    for (size_t i = 0; i < settings->count && status == BY_OK; i++) {
        char flag[32];
        (void)snprintf(flag, sizeof flag, "--%s", settings->items[i].flag);
        status = by_serve_config_set(config, settings->items[i].key, settings->items[i].value, flag,
                                     error);
    }
    if (status != BY_OK) {
        by_serve_config_close(&config);
        return status;
    }
    /* Those of the command line are hidden by now. */
    if (cli_hide_password(config->broker.address, NULL) && tells && path != NULL) {
        by_serve_log_exposed(path, "the password of Redis", cli_serve_log, NULL);
    }
    *out = config;
    return BY_OK;
}
