#include "serve/http/http_answer.h"

#include <stdlib.h>
#include <string.h>

enum { IN_HEAD = 0, IN_SIZE, IN_CHUNK, IN_CHUNK_END, IN_BODY };

/* Handles a line of the head, without its end. */
static bool parse_head_line(by__http_answer *a, const char *line)
{
    if (a->status == 0) {
        a->status = strncmp(line, "HTTP/1.1 ", 9) == 0 ? atoi(line + 9) : 0;
        a->left = 0;
        return a->status >= 100 && a->status < 600;
    }
    if (strncasecmp(line, "content-length:", 15) == 0) {
        a->left = (size_t)strtoull(line + 15, NULL, 10);
    } else if (strncasecmp(line, "transfer-encoding:", 18) == 0) {
        a->chunked = strstr(line + 18, "chunked") != NULL;
    } else if (line[0] == '\0') {
        if (a->status == 100) {
            *a = (by__http_answer){0};
            return true;
        }
        a->chunk_phase = a->chunked ? IN_SIZE : IN_BODY;
        a->done = !a->chunked && a->left == 0;
    }
    return true;
}

static bool parse_line(by__http_answer *a, const char *line)
{
    char *end;
    switch (a->chunk_phase) {
    case IN_HEAD:
        return parse_head_line(a, line);
    case IN_SIZE:
        a->left = (size_t)strtoull(line, &end, 16);
        a->chunk_phase = a->left > 0 ? IN_CHUNK : IN_CHUNK_END;
        return end != line;
    default:
        /* After a chunk, or after the last one, whose size is 0. */
        a->done = a->chunk_phase == IN_CHUNK_END && a->left == 0 && a->chunked;
        a->chunk_phase = IN_SIZE;
        return line[0] == '\0';
    }
}

bool by__http_answer_feed(by__http_answer *answer, const char *data, size_t length,
                          void (*body)(void *user, const char *data, size_t length), void *user)
{
    by__http_answer *a = answer;
    while (length > 0 && !a->done) {
        if (a->chunk_phase == IN_CHUNK || a->chunk_phase == IN_BODY) {
            size_t n = length < a->left ? length : a->left;
            body(user, data, n);
            data += n;
            length -= n;
            a->left -= n;
            if (a->left == 0) {
                a->done = a->chunk_phase == IN_BODY;
                a->chunk_phase = a->done ? IN_BODY : IN_CHUNK_END;
                a->left = a->done ? 0 : SIZE_MAX; /* a chunk, not the last one */
            }
            continue;
        }
        char c = *data++;
        length--;
        if (c != '\n') {
            if (a->line_length + 1 == sizeof a->line) {
                return false;
            }
            a->line[a->line_length++] = c;
            continue;
        }
        a->line_length -= a->line_length > 0 && a->line[a->line_length - 1] == '\r';
        a->line[a->line_length] = '\0';
        a->line_length = 0;
        if (!parse_line(a, a->line)) {
            return false;
        }
    }
    return true;
}
