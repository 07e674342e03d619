/* Lists of edges as text. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/nodes/node_set.h"

typedef struct edge_pairs {
    int32_t (*items)[2];
    size_t capacity;
    bool weighted;
    float *weights;
    size_t weight_capacity;
    uint64_t count;
} edge_pairs;

static bool is_separator(char c)
{
    return c == ' ' || c == '\t' || c == ',' || c == ';';
}

/* Reads a number below INT32_MAX at *at, which moves behind it and what separates it from the
 * next. */
static bool read_number(const char *text, size_t end, size_t *at, int32_t *out)
{
    int64_t value = 0;
    size_t begin = *at;
    while (*at < end && text[*at] >= '0' && text[*at] <= '9' && value < INT32_MAX) {
        value = value * 10 + (text[*at] - '0');
        ++*at;
    }
    bool whole = *at > begin && (*at == end || is_separator(text[*at]));
    while (*at < end && is_separator(text[*at])) {
        ++*at;
    }
    *out = value < INT32_MAX ? (int32_t)value : 0;
    return whole && value < INT32_MAX;
}

/* What the name of a column begins with, and no number. */
static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '"';
}

/* Reads a weight at `at`: a finite number from 0 on, as an f32. */
static bool read_weight(const char *text, size_t end, size_t at, float *out)
{
    char word[64];
    double value;
    size_t length = 0;
    while (at + length < end && !is_separator(text[at + length])) {
        length++;
    }
    if (length == 0 || length >= sizeof word) {
        return false;
    }
    memcpy(word, text + at, length);
    word[length] = '\0';
    bool number = by__parse_f64(word, &value) && value >= 0.0;
    *out = number ? (float)value : -1.0f;
    return number && isfinite(*out);
}

by__nodes_edge_line by__nodes_edge_list_line(const char *text, size_t begin, size_t end,
                                             int32_t pair[2], float *weight)
{
    begin += end - begin >= 3 && memcmp(text + begin, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    end -= end > begin && text[end - 1] == '\r';
    while (begin < end && is_separator(text[begin])) {
        begin++;
    }
    if (begin == end || text[begin] == '#') {
        return BY__EDGE_NONE;
    }
    if (is_name(text[begin])) {
        return BY__EDGE_NAMES;
    }
    bool good = read_number(text, end, &begin, &pair[0]) &&
                read_number(text, end, &begin, &pair[1]) &&
                (weight == NULL || read_weight(text, end, begin, weight));
    return good ? BY__EDGE_PAIR : BY__EDGE_WRONG;
}

static by_status add_line(edge_pairs *to, const char *name, const char *text, size_t begin,
                          size_t end, uint64_t line, by_error *error)
{
    int32_t pair[2];
    float weight = 1.0f;
    by__nodes_edge_line found =
        by__nodes_edge_list_line(text, begin, end, pair, to->weighted ? &weight : NULL);
    if (found == BY__EDGE_WRONG || (found == BY__EDGE_NAMES && line > 1)) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: line %llu is not two numbers of nodes, from 0 to %d%s", name,
                            (unsigned long long)line, INT32_MAX - 1,
                            to->weighted ? ", and a weight, a finite number from 0 on" : "");
    }
    if (found != BY__EDGE_PAIR) {
        return BY_OK;
    }
    BY_TRY(by__reserve((void **)&to->items, &to->capacity, (size_t)to->count + 1, sizeof *to->items,
                       error));
    if (to->weighted) {
        BY_TRY(by__reserve((void **)&to->weights, &to->weight_capacity, (size_t)to->count + 1,
                           sizeof *to->weights, error));
        to->weights[to->count] = weight;
    }
    memcpy(to->items[to->count++], pair, sizeof pair);
    return BY_OK;
}

by_status by__nodes_edge_list_parse(int32_t (**pairs)[2], float **weights, uint64_t *count,
                                    const char *name, const char *text, size_t size,
                                    by_error *error)
{
    edge_pairs found = {.weighted = weights != NULL};
    by_status status = BY_OK;
    uint64_t line = 0;
    for (size_t at = 0; at < size && status == BY_OK;) {
        const char *newline = memchr(text + at, '\n', size - at);
        size_t end = newline == NULL ? size : (size_t)(newline - text);
        status = add_line(&found, name, text, at, end, ++line, error);
        at = end + 1;
    }
    if (status != BY_OK) {
        free(found.items);
        free(found.weights);
        return status;
    }
    *pairs = found.items;
    if (weights != NULL) {
        *weights = found.weights;
    }
    *count = found.count;
    return BY_OK;
}
