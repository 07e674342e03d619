/* banyan data show and stats of a config (show.c, class_stats.c). */
#ifndef BY_CLI_DATA_SHOW_H
#define BY_CLI_DATA_SHOW_H

#include "base/cli.h"

/* What to show of the training data of a config. */
typedef struct cli_show_request {
    const char *out; /* NULL: data.png, or text to standard output */
    int64_t epoch;   /* from 0 */
    int64_t count;   /* samples, from the first of the epoch on */
    bool json;
} cli_show_request;

/* Opens the training data of a config, as `banyan train` does, and completes the config. */
by_status cli_open_training_data(by_task_data **out, by_config *config, by_error *error);
/* Draws images before and after augmentation, or prints texts. `request` is a cli_show_request. */
by_status cli_show_data(void *request, by_config *config, by_error *error);
/* Prints how many examples of each class there are, and how many are drawn in an epoch. `request`
 * is a cli_show_request. */
by_status cli_class_stats(void *request, by_config *config, by_error *error);

#endif
