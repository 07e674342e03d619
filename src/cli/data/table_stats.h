/* banyan data stats of a table (table_stats.c). */
#ifndef BY_CLI_DATA_TABLE_STATS_H
#define BY_CLI_DATA_TABLE_STATS_H

#include "base/cli.h"

/* Prints what the columns of a table are. */
by_status cli_table_stats(const char *path, bool json, by_error *error);

#endif
