/* A pattern up to the first newline, and a text behind it: matches stand in the text one behind
 * another, groups in their texts, and a replacement by group 0 gives the text again. */
#include <stdlib.h>
#include <string.h>

#include "text/pattern/pattern.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds) {
        abort();
    }
}

static void check(const by__pattern *p, const char *text, size_t n)
{
    by__pattern_match match = {0};
    by_string same = {0};
    size_t end = 0;
    bool empty = false;
    by_status status = by__pattern_next(p, text, n, &match, NULL);
    for (size_t i = 0; status == BY_OK && match.found; i++) {
        size_t begin = match.groups[0].begin;
        require(i <= 2 * n && begin >= end && match.groups[0].end >= begin);
        require(!empty || match.groups[0].end > end);
        end = match.groups[0].end;
        empty = begin == end;
        for (size_t g = 0; g <= by__pattern_groups(p); g++) {
            bool absent = match.groups[g].end == SIZE_MAX && match.groups[g].begin == SIZE_MAX;
            require(absent ||
                    (match.groups[g].begin <= match.groups[g].end && match.groups[g].end <= n));
        }
        status = by__pattern_next(p, text, n, &match, NULL);
    }
    require(status == BY_OK || status == BY_EARG);
    if (status == BY_OK) {
        require(by__pattern_replace(p, text, n, "\\0", &same, NULL) == BY_OK);
        require(same.length == n && (n == 0 || memcmp(same.data, text, n) == 0));
    }
    by_string_free(&same);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *pattern = (const char *)data;
    const char *line = size == 0 ? NULL : memchr(pattern, '\n', size);
    size_t length = line == NULL ? size : (size_t)(line - pattern);
    size_t rest = line == NULL ? 0 : size - length - 1;
    by__pattern *p;
    by_error error = {0};
    by_status status = by__pattern_open(&p, pattern, length, &error);
    if (status == BY_OK) {
        check(p, line == NULL ? NULL : line + 1, rest < 512 ? rest : 512);
        by__pattern_close(&p);
    } else {
        require(status == BY_EFORMAT && strncmp(error.message, "pattern \"", 9) == 0);
    }
    return 0;
}
