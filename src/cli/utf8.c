#include <stdio.h>
#include <string.h>

#include "cli.h"

int cli_utf8_length(const char *text, size_t n)
{
    const unsigned char *s = (const unsigned char *)text;
    /* The second byte's range keeps out overlong forms, surrogates and what is over U+10FFFF. */
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

void cli_print_json_text(const char *text, size_t n)
{
    putchar('"');
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)text[i];
        int length = cli_utf8_length(text + i, n - i);
        if (length < 1) {
            fputs("\\ufffd", stdout);
            length = 1;
        } else if (c == '"' || c == '\\') {
            printf("\\%c", c);
        } else if (c == '\n') {
            fputs("\\n", stdout);
        } else if (c < 0x20) {
            printf("\\u%04x", c);
        } else {
            fwrite(text + i, 1, (size_t)length, stdout);
        }
        i += (size_t)length;
    }
    putchar('"');
}

void cli_print_json_string(const char *s)
{
    cli_print_json_text(s, strlen(s));
}
