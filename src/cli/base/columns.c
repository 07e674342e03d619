/* Tables: separated by tabs for programs, in aligned columns on a terminal. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/columns.h"

/* A cell that is wider than this does not widen its column. */
#define WIDEST 40

bool cli_columns_begin(cli_columns *c)
{
    *c = (cli_columns){0};
    c->out = open_memstream(&c->text, &c->length);
    return c->out != NULL;
}

void cli_columns_cell(cli_columns *c, const char *text)
{
    if (c->in_row) {
        (void)putc('\t', c->out);
    }
    cli_put_cell(c->out, text);
    c->in_row = true;
}

void cli_columns_row(cli_columns *c)
{
    (void)putc('\n', c->out);
    c->in_row = false;
}

/* Characters of a cell: bytes that do not continue one. */
static size_t width_of(const char *text, size_t n)
{
    size_t width = 0;
    for (size_t i = 0; i < n; i++) {
        width += ((unsigned char)text[i] & 0xc0) != 0x80;
    }
    return width;
}

static void print_aligned(const char *text)
{
    size_t widths[CLI_COLUMNS] = {0};
    for (int pass = 0; pass < 2; pass++) {
        size_t column = 0;
        for (const char *at = text; *at != '\0';) {
            size_t n = strcspn(at, "\t\n");
            bool last = at[n] == '\n';
            size_t width = width_of(at, n);
            size_t *widest = &widths[column < CLI_COLUMNS ? column : CLI_COLUMNS - 1];
            if (pass == 0 && width > *widest && width <= WIDEST && !last) {
                *widest = width;
            } else if (pass == 1) {
                printf("%.*s%*s", (int)n, at,
                       last ? 0 : (int)(width < *widest ? *widest - width + 2 : 2), "");
                printf(last ? "\n" : "");
            }
            column = last ? 0 : column + 1;
            at += n + 1;
        }
    }
}

by_status cli_columns_print(cli_columns *c, by_error *error)
{
    bool whole = c->out != NULL && ferror(c->out) == 0;
    whole = c->out != NULL && fclose(c->out) == 0 && whole;
    if (whole && isatty(STDOUT_FILENO) != 0) {
        print_aligned(c->text);
    } else if (whole) {
        (void)fwrite(c->text, 1, c->length, stdout);
    }
    free(c->text);
    *c = (cli_columns){0};
    return whole ? BY_OK : by_error_set(error, BY_EMEMORY, "out of memory: a table");
}
