#include <stdio.h>
#include <string.h>

#include "base/cli.h"

/* Prints a character that a terminal would act on; returns its bytes, 0 if it is none. */
static size_t print_control(FILE *out, const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    if (c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0) { /* C1, in UTF-8 */
        fprintf(out, "\\x%02x", c[1]);
        return 2;
    }
    if (c[0] < 0x20 || c[0] == 0x7f) {
        fprintf(out, "\\x%02x", c[0]);
        return 1;
    }
    return 0;
}

void cli_put_cell(FILE *out, const char *text)
{
    for (const char *p = text; *p != '\0';) {
        if (*p == '\t' || *p == '\n' || *p == '\\') {
            fprintf(out, "\\%c", *p == '\t' ? 't' : *p == '\n' ? 'n' : '\\');
            p++;
            continue;
        }
        size_t control = print_control(out, p);
        if (control == 0) {
            (void)fputc((unsigned char)*p, out);
        }
        p += control == 0 ? 1 : control;
    }
}

void cli_print_cell(const char *text)
{
    cli_put_cell(stdout, text);
}

void cli_print_lines(FILE *out, const char *text)
{
    for (const char *p = text; *p != '\0';) {
        bool plain = *p == '\t' || *p == '\n';
        size_t control = plain ? 0 : print_control(out, p);
        if (control == 0) {
            (void)fputc((unsigned char)*p, out);
        }
        p += control == 0 ? 1 : control;
    }
}

void cli_print_json_text(const char *text, size_t n)
{
    by_string quoted = {0};
    by_string_json(&quoted, text, n);
    fputs(quoted.failed ? "null" : quoted.data, stdout);
    by_string_free(&quoted);
}

void cli_print_json_string(const char *s)
{
    cli_print_json_text(s, strlen(s));
}
