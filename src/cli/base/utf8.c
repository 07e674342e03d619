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

int cli_utf8_length(const char *text, size_t n)
{
    const unsigned char *s = (const unsigned char *)text;
    /* The range of the second byte excludes overlong encodings, surrogates and values above
     * U+10FFFF. */
    unsigned char low = 0x80;
    unsigned char high = 0xBF;
    size_t length;
    if (s[0] < 0x80) {
        return 1;
    }
    if (s[0] >= 0xC2 && s[0] <= 0xDF) {
        length = 2;
    } else if (s[0] >= 0xE0 && s[0] <= 0xEF) {
        length = 3;
        low = s[0] == 0xE0 ? 0xA0 : low;
        high = s[0] == 0xED ? 0x9F : high;
    } else if (s[0] >= 0xF0 && s[0] <= 0xF4) {
        length = 4;
        low = s[0] == 0xF0 ? 0x90 : low;
        high = s[0] == 0xF4 ? 0x8F : high;
    } else {
        return -1;
    }
    for (size_t i = 1; i < length; i++) {
        if (i == n) {
            return 0;
        }
        if (s[i] < (i == 1 ? low : 0x80) || s[i] > (i == 1 ? high : 0xBF)) {
            return -1;
        }
    }
    return (int)length;
}

size_t cli_json_character(char piece[8], const char *text, size_t n)
{
    unsigned char c = (unsigned char)text[0];
    int length = cli_utf8_length(text, n);
    if (length < 1) {
        (void)snprintf(piece, 8, "\\ufffd");
        return 1;
    }
    if (c == '"' || c == '\\') {
        (void)snprintf(piece, 8, "\\%c", c);
    } else if (c == '\n') {
        (void)snprintf(piece, 8, "\\n");
    } else if (c < 0x20) {
        (void)snprintf(piece, 8, "\\u%04x", c);
    } else {
        memcpy(piece, text, (size_t)length);
        piece[length] = '\0';
    }
    return (size_t)length;
}

void cli_print_json_text(const char *text, size_t n)
{
    putchar('"');
    for (size_t i = 0; i < n;) {
        char piece[8];
        i += cli_json_character(piece, text + i, n - i);
        fputs(piece, stdout);
    }
    putchar('"');
}

void cli_print_json_string(const char *s)
{
    cli_print_json_text(s, strlen(s));
}
