/* JSON lines: one object per line, of which one string field is a text. */
#ifndef BY_FORMATS_JSON_LINES_H
#define BY_FORMATS_JSON_LINES_H

#include "banyan/text.h"
#include "base/base.h"

/* Reads the lines of data[0, length) one after another. Initialized to zero except data, length and
 * field. */
typedef struct by__format_json_lines {
    const char *data;
    size_t length;
    const char *field;
    size_t at;    /* offset of the next line */
    size_t lines; /* number of lines read, including blank ones */
    void *held;   /* owner of the last text */
} by__format_json_lines;

/* Reads the next text (valid until the next call or the close); *found is false after the last.
 * Blank lines are skipped. BY_EFORMAT: a line is not a JSON object, or the field is missing or not
 * a string; the message lacks file and line: reader->lines is the number of the line, from 1. */
by_status by__format_json_lines_next(by__format_json_lines *reader, by_text *text, bool *found,
                                     by_error *error);
void by__format_json_lines_close(by__format_json_lines *reader);

#endif
