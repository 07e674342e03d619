/* `banyan train --minutes N`: measures the machine and fixes the steps of a run that takes so long,
 * as overrides of its config: the run is then the one of `--set train.steps=...`. */
#ifndef BY_CLI_TRAIN_MINUTES_H
#define BY_CLI_TRAIN_MINUTES_H

#include "base/cli.h"

typedef struct cli_minutes {
    double minutes; /* 0: not asked for */
    by_train_times times;
    by_train_fit fit;
    char settings[3][64]; /* overrides, for as long as these are used */
} cli_minutes;

/* Refuses what contradicts --minutes, with exit code CLI_USAGE. Returns -1 to continue. */
int cli_check_minutes(const cli_command *command, double minutes, const char *resume,
                      const cli_list *overrides);
/* Collective. Appends the chosen steps and intervals to the overrides and, with `show`, prints a
 * line about them. */
by_status cli_fit_minutes(cli_minutes *m, const by_train_options *options, cli_list *overrides,
                          bool show, bool json, by_error *error);

#endif
