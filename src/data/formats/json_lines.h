/* JSON lines: one object a line, of which one string field is a text. */
#ifndef BY_DATA_FORMATS_JSON_LINES_H
#define BY_DATA_FORMATS_JSON_LINES_H

#include "banyan/tokenizer.h"
#include "base/base.h"

/* Reads the lines of data[0, length) one after the other. Zero but for data, length and field. */
typedef struct by__json_lines {
    const char *data;
    size_t length;
    const char *field;
    size_t at;    /* where the next line begins */
    size_t lines; /* lines read, blank ones included */
    void *held;   /* what the last text lives in */
} by__json_lines;

/* The next text (valid until the next call or the close); *found is false behind the last. Blank
 * lines are passed over. BY_EFORMAT: a line is not a JSON object, or the field is missing or not a
 * string; the message has no file and line yet: reader->lines is the number of the line, from 1. */
by_status by__json_lines_next(by__json_lines *reader, by_text *text, bool *found, by_error *error);
void by__json_lines_close(by__json_lines *reader);

#endif
