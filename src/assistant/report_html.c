/* A report as one file of HTML, with its drawings inside. */
#include <stdlib.h>
#include <string.h>

#include "assistant/assistant.h"

#define MAX_DRAWING ((size_t)64 << 20)

/* What a model writes may be no UTF-8. */
static void add_escaped(by_string *out, const char *text)
{
    by_string valid = {0};
    by__string_add_valid(&valid, text, strlen(text));
    if (!valid.failed && valid.data != NULL) {
        by__string_append_html(out, valid.data);
    }
    by_string_free(&valid);
}

static void element(by_string *out, const char *name, const char *text)
{
    by_string_format(out, "<%s>", name);
    add_escaped(out, text);
    by_string_format(out, "</%s>\n", name);
}

static void begin(by_string *out, const char *title)
{
    by__string_append(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                           "<meta name=\"viewport\" content=\"width=device-width\">\n<title>");
    add_escaped(out, title);
    by__string_append(
        out,
        "</title>\n<style>\n"
        "body { font: 16px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; "
        "padding: 0 1em; color: #222; background: #fff; }\n"
        "table { border-collapse: collapse; margin: 1em 0; }\n"
        "th, td { border-bottom: 1px solid #ccc; padding: 0.3em 1em 0.3em 0; text-align: left; "
        "vertical-align: top; }\n"
        "pre { background: #f4f4f4; padding: 0.8em; white-space: pre-wrap; }\n"
        "svg { max-width: 100%; height: auto; }\n"
        "</style>\n</head>\n<body>\n");
    element(out, "h1", title);
}

static void add_heading(by_string *out, const char *text)
{
    element(out, "h2", text);
}

static void paragraph(by_string *out, const char *text)
{
    element(out, "p", text);
}

static void table(by_string *out, const by__assistant_table *t)
{
    by__string_append(out, "<table>\n");
    for (size_t i = 0; i < t->count; i++) {
        if (i % t->columns == 0) {
            by__string_append(out, "<tr>\n");
        }
        element(out, i < t->columns ? "th" : "td", t->cells[i]);
        if ((i + 1) % t->columns == 0) {
            by__string_append(out, "</tr>\n");
        }
    }
    by__string_append(out, "</table>\n");
}

static void code(by_string *out, const char *text)
{
    element(out, "pre", text);
}

/* The drawing itself, without the line that says that its file is XML. A file that is gone leaves
 * its name. */
static void picture(by_string *out, const char *directory, const char *file, const char *what)
{
    char *path = by__path_join(directory, file);
    char *text = NULL;
    size_t length;
    if (path != NULL && by__file_read(&text, &length, path, MAX_DRAWING, NULL) == BY_OK) {
        const char *svg = strstr(text, "<svg");
        by__string_append(out, "<figure>\n");
        by__string_append(out, svg == NULL ? "" : svg);
        element(out, "figcaption", what);
        by__string_append(out, "</figure>\n");
    } else {
        element(out, "p", what);
    }
    free(text);
    free(path);
}

static void end(by_string *out)
{
    by__string_append(out, "</body>\n</html>\n");
}

const by__assistant_format by__assistant_html = {.ending = ".html",
                                                 .begin = begin,
                                                 .heading = add_heading,
                                                 .paragraph = paragraph,
                                                 .table = table,
                                                 .code = code,
                                                 .picture = picture,
                                                 .end = end};
