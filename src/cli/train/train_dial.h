/* `banyan train --data`: the dial. It makes an ordinary config from one limit, which is then
 * trained. */
#ifndef BY_CLI_TRAIN_TRAIN_DIAL_H
#define BY_CLI_TRAIN_TRAIN_DIAL_H

#include "banyan/plan.h"
#include "banyan/train.h"
#include "base/cli.h"

typedef struct cli_dial {
    const char *data; /* file or directory of text; NULL: no dial */
    double minutes;
    const char *until;
    double flops;
    double money;
    const char *prices;
    const char *priced; /* a device of these */
    const char *region;
    const char *memory;
    int64_t layers;
    double began; /* when the program did, by_clock() */
    by_dial_choice choice;
} cli_dial;

/* The flags of the dial, before the end of a table of flags. */
#define CLI_DIAL_FLAGS(dial)                                                                       \
    {"data", CLI_INPUT, &(dial)->data, "TEXT",                                                     \
     "without a config: a file or directory of text, for which a config is chosen by what one of " \
     "the following flags allows"},                                                                \
        {"until", CLI_STRING, &(dial)->until, "DATE",                                              \
         "train until then: 2027-01-31T18:30 or 18:30, local time"},                               \
        {"flops", CLI_NUMBER_ABOVE(0, INFINITY), &(dial)->flops, "C", "train with C FLOPs"},       \
        {"money", CLI_NUMBER_ABOVE(0, INFINITY), &(dial)->money, "X",                              \
         "train for as long as X pays for --price-device of --prices"},                            \
        {"prices", CLI_INPUT, &(dial)->prices, "FILE",                                             \
         "prices as for banyan plan cost: the log ends with money and energy"},                    \
        {"price-device", CLI_STRING, &(dial)->priced, "NAME", "which of them a rank's device is"}, \
        {"price-region", CLI_STRING, &(dial)->region, "NAME", "region of these prices, in YAML"},  \
        {"memory", CLI_STRING, &(dial)->memory, "SIZE",                                            \
         "use at most this memory, such as 6GiB; alone: the largest model that trains in it"},     \
    {                                                                                              \
        "depth", CLI_INTEGER_IN(1, 64), &(dial)->layers, "N", "use a model of N layers"            \
    }

/* Refuses flags that contradict each other, with exit code CLI_USAGE. Returns -1 to continue. */
int cli_check_dial(const cli_command *command, const cli_dial *dial, int positional);
/* Chooses, writes the config to a file, *path (freed with free()), and prints why. `options` has
 * what by_train_measure takes but the config. */
by_status cli_turn_dial(cli_dial *dial, char **path, const by_train_options *options,
                        const cli_list *overrides, bool show, bool json, by_error *error);

/* What the flags tell of the devices; NAN: nothing. */
by_status cli_dial_rates(by_train_rates *out, const cli_dial *dial, by_error *error);

#endif
