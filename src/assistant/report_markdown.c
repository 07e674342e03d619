/* A report as Markdown. */
#include <string.h>

#include "assistant/assistant.h"

/* What Markdown would take for a mark is escaped, and lines become one. */
static void add_plain(by_string *out, const char *text)
{
    by_string valid = {0};
    by__string_add_valid(&valid, text, strlen(text));
    for (const char *c = valid.failed || valid.data == NULL ? "" : valid.data; *c != '\0'; c++) {
        if (*c == '\n' || *c == '\r') {
            by_string_add(out, " ", 1);
        } else if (strchr("\\`*_{}[]<>#|&!", *c) != NULL) {
            by_string_format(out, "\\%c", *c);
        } else {
            by_string_add(out, c, 1);
        }
    }
    by_string_free(&valid);
}

static void heading_of(by_string *out, const char *marks, const char *text)
{
    by_string_format(out, "%s ", marks);
    add_plain(out, text);
    by__string_append(out, "\n\n");
}

static void begin(by_string *out, const char *title)
{
    heading_of(out, "#", title);
}

static void add_heading(by_string *out, const char *text)
{
    heading_of(out, "##", text);
}

static void paragraph(by_string *out, const char *text)
{
    add_plain(out, text);
    by__string_append(out, "\n\n");
}

static void table(by_string *out, const by__assistant_table *t)
{
    for (size_t i = 0; i < t->count; i++) {
        bool last = (i + 1) % t->columns == 0;
        by__string_append(out, i % t->columns == 0 ? "| " : " ");
        add_plain(out, t->cells[i]);
        by__string_append(out, last ? " |\n" : " |");
        for (size_t k = 0; i + 1 == t->columns && k < t->columns; k++) {
            by__string_append(out, k + 1 < t->columns ? "|---" : "|---|\n");
        }
    }
    by__string_append(out, "\n");
}

/* An indented block: nothing in a line can end it. */
static void code(by_string *out, const char *text)
{
    for (const char *line = text; line != NULL;) {
        const char *end = strchr(line, '\n');
        size_t length = end == NULL ? strlen(line) : (size_t)(end - line);
        by__string_append(out, "    ");
        by__string_add_valid(out, line, length);
        by__string_append(out, "\n");
        line = end == NULL ? NULL : end + 1;
    }
    by__string_append(out, "\n");
}

static void picture(by_string *out, const char *directory, const char *file, const char *what)
{
    BY_UNUSED(directory);
    by__string_append(out, "![");
    add_plain(out, what);
    by_string_format(out, "](%s)\n\n", file);
}

static void end(by_string *out)
{
    while (out->length > 1 && out->data[out->length - 2] == '\n') {
        out->data[--out->length] = '\0';
    }
}

const by__assistant_format by__assistant_markdown = {.ending = ".md",
                                                     .begin = begin,
                                                     .heading = add_heading,
                                                     .paragraph = paragraph,
                                                     .table = table,
                                                     .code = code,
                                                     .picture = picture,
                                                     .end = end};
