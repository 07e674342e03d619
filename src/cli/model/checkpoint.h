/* Subcommands of `banyan checkpoint` in checkpoint_table.c and checkpoint_diff.c. */
#ifndef BY_CLI_MODEL_CHECKPOINT_H
#define BY_CLI_MODEL_CHECKPOINT_H

#include "banyan/checkpoint.h"

/* Prints a line for each checkpoint of a root, or for the checkpoint at `path`. */
by_status cli_checkpoint_list(const char *path, bool verify, bool json, bool *all_valid,
                              by_error *error);
by_status cli_checkpoint_prune(const char *root, const by_retention *retention, bool json,
                               by_error *error);
/* Prints a line for each tensor that differs; with --json, for all tensors. */
by_status cli_checkpoint_diff(const char *first, const char *second, bool json, bool *differs,
                              by_error *error);

#endif
