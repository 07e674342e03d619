/* Messages between a rank and its supervisor. Any process that reaches the port can send anything,
 * so lines are validated like files. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "launch/supervisor.h"

#define MAX_FIELDS 8

static const char *const words[] = {"hello", "beat", "run", "saved", "end"};

static const char *plain(char *out, size_t size, const char *text)
{
    (void)snprintf(out, size, "%s", text);
    for (char *c = out; *c != '\0'; c++) {
        *c = (unsigned char)*c < ' ' ? ' ' : *c;
    }
    return out;
}

size_t by__launch_message_format(char out[BY__MESSAGE_LINE], const by__launch_message *m)
{
    char text[PATH_MAX];
    char phase[32];
    int n = 0;
    const char *word = words[m->kind];
    switch (m->kind) {
    case BY__MESSAGE_HELLO:
        n = snprintf(out, BY__MESSAGE_LINE, "%s\t%s\t%d\t%d\t%ld\t%s\n", word, m->token, m->rank,
                     m->ranks, m->pid, plain(text, BY_HOST_NAME, m->host));
        break;
    case BY__MESSAGE_BEAT:
        n = snprintf(out, BY__MESSAGE_LINE,
                     "%s\t%" PRIu64 "\t%" PRId64 "\t%" PRIu64 "\t%d\t%s\t%s\n", word, m->count,
                     m->step, m->number, m->stopping ? 1 : 0, plain(phase, sizeof phase, m->phase),
                     plain(text, BY__MESSAGE_TEXT, m->text));
        break;
    case BY__MESSAGE_RUN:
        n = snprintf(out, BY__MESSAGE_LINE, "%s\t%s\n", word, plain(text, PATH_MAX, m->path));
        break;
    case BY__MESSAGE_SAVED:
        n = snprintf(out, BY__MESSAGE_LINE, "%s\t%" PRId64 "\n", word, m->step);
        break;
    case BY__MESSAGE_END:
        n = snprintf(out, BY__MESSAGE_LINE, "%s\t%d\t%d\t%s\n", word, m->code, m->malformed ? 1 : 0,
                     plain(text, BY__MESSAGE_TEXT, m->text));
        break;
    }
    return (size_t)n;
}

/* Parses digits only, within [0, most]. */
static bool read_number(uint64_t *out, const char *text, uint64_t most)
{
    char *end;
    errno = 0;
    if (text[0] < '0' || text[0] > '9') {
        return false;
    }
    unsigned long long value = strtoull(text, &end, 10);
    *out = value;
    return errno == 0 && *end == '\0' && value <= most;
}

static bool read_int(int *out, const char *text, int most)
{
    uint64_t value;
    bool read = read_number(&value, text, (uint64_t)most);
    *out = read ? (int)value : 0;
    return read;
}

static bool copy(char *out, size_t size, const char *text)
{
    size_t length = strlen(text);
    if (length >= size) {
        return false;
    }
    memcpy(out, text, length + 1);
    return true;
}

static bool read_step(int64_t *out, const char *text)
{
    uint64_t value;
    bool read = read_number(&value, text, INT64_MAX);
    *out = read ? (int64_t)value : 0;
    return read;
}

static bool parse_hello(by__launch_message *m, char **field)
{
    uint64_t pid;
    bool read = copy(m->token, sizeof m->token, field[1]) &&
                read_int(&m->rank, field[2], INT_MAX) && read_int(&m->ranks, field[3], INT_MAX) &&
                read_number(&pid, field[4], INT_MAX) && copy(m->host, sizeof m->host, field[5]);
    m->pid = read ? (long)pid : 0;
    return read && m->rank < m->ranks;
}

static bool parse_beat(by__launch_message *m, char **field)
{
    int stopping;
    bool read = read_number(&m->count, field[1], UINT64_MAX) && read_step(&m->step, field[2]) &&
                read_number(&m->number, field[3], UINT64_MAX) && read_int(&stopping, field[4], 1) &&
                copy(m->phase, sizeof m->phase, field[5]) &&
                copy(m->text, sizeof m->text, field[6]);
    m->stopping = read && stopping != 0;
    return read;
}

static bool parse_end(by__launch_message *m, char **field)
{
    int malformed = 0;
    bool read = read_int(&m->code, field[1], 255) && read_int(&malformed, field[2], 1) &&
                copy(m->text, sizeof m->text, field[3]);
    m->malformed = read && malformed != 0;
    return read;
}

static bool parse_fields(by__launch_message *m, char **field, int count)
{
    static const int wanted[] = {6, 7, 2, 2, 4};
    for (size_t kind = 0; kind < BY_ARRAY_LENGTH(words); kind++) {
        if (strcmp(field[0], words[kind]) == 0) {
            m->kind = (by__launch_message_kind)kind;
            if (count != wanted[kind]) {
                return false;
            }
            switch (m->kind) {
            case BY__MESSAGE_HELLO:
                return parse_hello(m, field);
            case BY__MESSAGE_BEAT:
                return parse_beat(m, field);
            case BY__MESSAGE_RUN:
                return copy(m->path, sizeof m->path, field[1]);
            case BY__MESSAGE_SAVED:
                return read_step(&m->step, field[1]);
            case BY__MESSAGE_END:
                return parse_end(m, field);
            }
        }
    }
    return false;
}

bool by__launch_message_parse(by__launch_message *out, const char *line, size_t length)
{
    char text[BY__MESSAGE_LINE];
    char *field[MAX_FIELDS];
    int count = 0;
    if (length >= sizeof text || memchr(line, '\0', length) != NULL) {
        return false;
    }
    memcpy(text, line, length);
    text[length] = '\0';
    memset(out, 0, sizeof *out);
    for (char *at = text; at != NULL && count < MAX_FIELDS; count++) {
        char *tab = strchr(at, '\t');
        field[count] = at;
        if (tab != NULL) {
            *tab++ = '\0';
        }
        at = tab;
    }
    return parse_fields(out, field, count);
}

size_t by__launch_contact_format(char *out, size_t size, const by__launch_contact *c)
{
    int n = snprintf(out, size, "%s;%d;%d;%d;", c->token, c->port, c->silence_ms, c->grace_ms);
    for (int i = 0; i < c->address_count && n > 0 && (size_t)n < size; i++) {
        n += snprintf(out + n, size - (size_t)n, "%s%s", i == 0 ? "" : ",", c->addresses[i]);
    }
    return n < 0 ? 0 : (size_t)n;
}

/* Cuts off the text before the next `separator`; NULL after the last. */
static char *cut(char **at, char separator)
{
    char *begin = *at;
    char *end = begin == NULL ? NULL : strchr(begin, separator);
    if (end != NULL) {
        *end++ = '\0';
    }
    *at = end;
    return begin;
}

bool by__launch_contact_parse(by__launch_contact *out, const char *text)
{
    char copied[1024];
    char *at = copied;
    memset(out, 0, sizeof *out);
    if (!copy(copied, sizeof copied, text)) {
        return false;
    }
    const char *token = cut(&at, ';');
    const char *port = cut(&at, ';');
    const char *silence = cut(&at, ';');
    const char *grace = cut(&at, ';');
    if (grace == NULL || at == NULL || !copy(out->token, sizeof out->token, token) ||
        !read_int(&out->port, port, 65535) || !read_int(&out->silence_ms, silence, INT_MAX) ||
        !read_int(&out->grace_ms, grace, INT_MAX)) {
        return false;
    }
    while (at != NULL && out->address_count < BY__ADDRESSES) {
        const char *address = cut(&at, ',');
        if (!copy(out->addresses[out->address_count], sizeof out->addresses[0], address) ||
            address[0] == '\0') {
            return false;
        }
        out->address_count++;
    }
    return at == NULL && out->silence_ms > 0;
}
