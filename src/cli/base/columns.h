/* A table that a command prints. */
#ifndef BY_CLI_BASE_COLUMNS_H
#define BY_CLI_BASE_COLUMNS_H

#include <stdio.h>

#include "base/cli.h"

/* Further columns are as wide as this one. */
#define CLI_COLUMNS 32

typedef struct cli_columns {
    FILE *out;
    char *text;
    size_t length;
    bool in_row;
} cli_columns;

/* Returns false if there is no memory. */
bool cli_columns_begin(cli_columns *c);
/* Adds a cell, escaped as cli_print_cell does. */
void cli_columns_cell(cli_columns *c, const char *text);
void cli_columns_row(cli_columns *c);
/* Prints the rows: on a terminal in aligned columns, else separated by tabs. Frees the table. */
by_status cli_columns_print(cli_columns *c, by_error *error);

#endif
