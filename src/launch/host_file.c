/* Parser of Open MPI host files: one line "NAME [slots=N] [max_slots=N]" per host; "#" begins a
 * comment. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "launch/supervisor.h"

#define MAX_HOSTS      4096
#define MAX_SLOTS      4096
#define HOST_FILE_SIZE (1u << 20)

static const char blanks[] = " \t\r\f\v";

/* Characters allowed in a host name, which becomes part of a command line. */
static const char name_bytes[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";

static bool is_name(const char *word, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (memchr(name_bytes, word[i], sizeof name_bytes - 1) == NULL) {
            return false;
        }
    }
    return word[0] != '-';
}

/* Parses a word "slots=N"; -1: it is another word, 0: the number is invalid. */
static int read_slots(const char *word, size_t length)
{
    static const char key[] = "slots=";
    size_t at = sizeof key - 1;
    int slots = 0;
    if (length < at || memcmp(word, key, at) != 0) {
        return -1;
    }
    for (; at < length; at++) {
        if (word[at] < '0' || word[at] > '9' || slots > MAX_SLOTS) {
            return 0;
        }
        slots = 10 * slots + (word[at] - '0');
    }
    return slots > MAX_SLOTS ? 0 : slots;
}

static bool is_limit(const char *word, size_t length)
{
    return length > 10 &&
           (memcmp(word, "max_slots=", 10) == 0 || memcmp(word, "max-slots=", 10) == 0);
}

static by_status read_line(by_host *out, const char *path, int line, const char *text,
                           size_t length, by_error *error)
{
    bool named = false;
    *out = (by_host){.slots = 1};
    for (size_t at = 0; at < length;) {
        size_t skip = 0;
        while (at + skip < length && strchr(blanks, text[at + skip]) != NULL) {
            skip++;
        }
        at += skip;
        size_t n = 0;
        while (at + n < length && strchr(blanks, text[at + n]) == NULL) {
            n++;
        }
        if (n == 0) {
            break;
        }
        const char *word = text + at;
        at += n;
        if (!named) {
            if (n >= sizeof out->name || !is_name(word, n)) {
                return by_error_set(error, BY_ECONFIG, "%s:%d: '%.*s' is not the name of a host",
                                    path, line, n > 80 ? 80 : (int)n, word);
            }
            memcpy(out->name, word, n);
            named = true;
            continue;
        }
        int slots = read_slots(word, n);
        if (slots > 0) {
            out->slots = slots;
        } else if (slots == 0 || !is_limit(word, n)) {
            return by_error_set(error, BY_ECONFIG,
                                "%s:%d: '%.*s' is not 'slots=N' with N from 1 to %d", path, line,
                                n > 80 ? 80 : (int)n, word, MAX_SLOTS);
        }
    }
    return BY_OK;
}

/* A host that is listed twice has the slots of both lines. */
static by_status add(by_host_list *list, size_t *capacity, const by_host *host, const char *path,
                     by_error *error)
{
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->items[i].name, host->name) == 0) {
            int slots = list->items[i].slots + host->slots;
            list->items[i].slots = slots > MAX_SLOTS ? MAX_SLOTS : slots;
            return BY_OK;
        }
    }
    if (list->count == MAX_HOSTS) {
        return by_error_set(error, BY_ECONFIG, "%s names more than %d hosts", path, MAX_HOSTS);
    }
    BY_TRY(
        by__reserve((void **)&list->items, capacity, list->count + 1, sizeof *list->items, error));
    list->items[list->count++] = *host;
    return BY_OK;
}

by_status by__launch_hosts_parse(by_host_list *out, const char *path, const char *text,
                                 size_t length, by_error *error)
{
    by_host_list list = {0};
    size_t capacity = 0;
    by_status status = BY_OK;
    int line = 1;
    for (size_t at = 0; at < length && status == BY_OK; line++) {
        by_host host;
        const char *end = memchr(text + at, '\n', length - at);
        size_t n = end == NULL ? length - at : (size_t)(end - text) - at;
        const char *comment = memchr(text + at, '#', n);
        status = read_line(&host, path, line, text + at,
                           comment == NULL ? n : (size_t)(comment - text) - at, error);
        if (status == BY_OK && host.name[0] != '\0') {
            status = add(&list, &capacity, &host, path, error);
        }
        at += n + 1;
    }
    if (status == BY_OK && list.count == 0) {
        status = by_error_set(error, BY_ECONFIG, "%s names no host", path);
    }
    if (status != BY_OK) {
        by_hosts_free(&list);
    }
    *out = list;
    return status;
}

by_status by_hosts_read(by_host_list *out, const char *path, by_error *error)
{
    char *text;
    size_t length;
    *out = (by_host_list){0};
    if (by__file_read_text(&text, &length, path, HOST_FILE_SIZE, error) != BY_OK) {
        /* An invalid name: a retry would not help. */
        return by_error_prefix(error, BY_ECONFIG, "host file");
    }
    by_status status = by__launch_hosts_parse(out, path, text, length, error);
    free(text);
    return status;
}

void by_hosts_free(by_host_list *hosts)
{
    free(hosts->items);
    *hosts = (by_host_list){0};
}
