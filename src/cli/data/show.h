/* banyan data show and stats of a config (show.c, list.c, class_stats.c). */
#ifndef BY_CLI_DATA_SHOW_H
#define BY_CLI_DATA_SHOW_H

#include "base/cli.h"

/* What to show of the training data of a config. */
typedef struct cli_show_request {
    const char *out; /* NULL: data.png, or text to standard output */
    int64_t epoch;   /* from 0 */
    int64_t count;   /* samples, from the first of the epoch on */
    bool list;       /* the examples, in place of samples */
    bool json;
    const char *run; /* whose config it is; NULL: a file's */
} cli_show_request;

/* Opens the training data of a config, as `banyan train` does, and completes the config. run: whose
 * config it is, which has tokenizer and template of its own; NULL: a file's. */
by_status cli_open_training_data(by_task_data **out, by_config *config, const char *run,
                                 by_error *error);
/* Draws images before and after augmentation, or prints texts. `request` is a cli_show_request. */
by_status cli_show_data(void *request, by_config *config, by_error *error);
/* Prints how many examples of each class there are, and how many are drawn in an epoch. `request`
 * is a cli_show_request. */
by_status cli_class_stats(void *request, by_config *config, by_error *error);

/* Lists the examples of training data in the order by which data.draws counts them, and how often
 * each is drawn in the epoch (list.c). */
by_status cli_list_data(by_task_data *data, const by_config *config,
                        const cli_show_request *request, by_error *error);
/* The last part of an example's name: of its file, or its name in a shard; "" if it has none. */
const char *cli_example_name(const by_example_name *name);

#endif
