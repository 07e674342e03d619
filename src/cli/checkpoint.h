/* What `banyan checkpoint` does, in checkpoint_table.c and checkpoint_diff.c. */
#ifndef BY_CLI_CHECKPOINT_H
#define BY_CLI_CHECKPOINT_H

#include "banyan/checkpoint.h"

/* A line for each checkpoint of a root, or for the one at `path`. */
by_status cli_checkpoint_list(const char *path, bool verify, bool json, bool *all_valid,
                              by_error *error);
by_status cli_checkpoint_prune(const char *root, const by_retention *retention, bool json,
                               by_error *error);
/* A line for each tensor that differs, with --json for all. */
by_status cli_checkpoint_diff(const char *first, const char *second, bool json, bool *differs,
                              by_error *error);

#endif
