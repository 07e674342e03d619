#include "schema/config_history.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/paths.h"

/* ---- the files ---- */

#define FILE_NAME 48

static void file_name(char out[FILE_NAME], uint64_t step)
{
    (void)snprintf(out, FILE_NAME, step == 0 ? "config.yaml" : "config-%08" PRIu64 ".yaml", step);
}

static bool is_later_config(uint64_t *step, const char *name)
{
    char again[FILE_NAME];
    if (strncmp(name, "config-", 7) != 0 || name[7] < '0' || name[7] > '9') {
        return false;
    }
    *step = strtoull(name + 7, NULL, 10);
    file_name(again, *step);
    return *step > 0 && strcmp(again, name) == 0;
}

static int compare_steps(const void *a, const void *b)
{
    const uint64_t *x = a;
    const uint64_t *y = b;
    return *x < *y ? -1 : *x > *y;
}

by_status by__schema_config_steps(uint64_t **out, size_t *count, const char *run, by_error *error)
{
    char **names;
    size_t name_count;
    uint64_t *steps;
    size_t used = 0;
    BY_TRY(by__list_dir(&names, &name_count, run, error));
    by_status status =
        by__alloc((void **)&steps, name_count + 1, sizeof *steps, "configs of a run", error);
    for (size_t i = 0; i < name_count && status == BY_OK; i++) {
        used += is_later_config(&steps[used], names[i]);
    }
    by__names_free(names, name_count);
    BY_TRY(status);
    qsort(steps, used, sizeof *steps, compare_steps);
    *out = steps;
    *count = used;
    return BY_OK;
}

by_status by__schema_config_file(char **out, const char *run, uint64_t step, by_error *error)
{
    char name[FILE_NAME];
    file_name(name, step);
    return by__path_make(out, run, name, error);
}

by_status by__schema_config_keep(const char *run, uint64_t step, const char *text, by_error *error)
{
    uint64_t *steps;
    size_t count;
    char *path = NULL;
    BY_TRY(by__schema_config_steps(&steps, &count, run, error));
    by_status status = BY_OK;
    /* First: the last of the files is the one that applies. */
    for (size_t i = count; i-- > 0 && steps[i] > step && status == BY_OK;) {
        status = by__schema_config_file(&path, run, steps[i], error);
        if (status == BY_OK && unlink(path) != 0) {
            status = by__io_error(error, "remove", path);
        }
        free(path);
        path = NULL;
    }
    free(steps);
    if (status == BY_OK && text != NULL) {
        status = by__schema_config_file(&path, run, step, error);
    }
    if (status == BY_OK && text != NULL) {
        status = by__file_write(path, text, strlen(text), error);
    }
    free(path);
    return status;
}

by_status by__schema_config_before(char **out, const char *run, uint64_t step, by_error *error)
{
    uint64_t *steps;
    size_t count;
    char *path;
    BY_TRY(by__schema_config_steps(&steps, &count, run, error));
    while (count > 0 && steps[count - 1] > step) {
        count--;
    }
    by_status status = by__schema_config_file(&path, run, count == 0 ? 0 : steps[count - 1], error);
    free(steps);
    BY_TRY(status);
    status = by__schema_config_print_file(out, path, error);
    free(path);
    return status;
}

/* ---- what differs ---- */

typedef struct config_line {
    char *key;
    const char *value; /* up to the end of its line */
    size_t length;
} config_line;

typedef struct config_lines {
    config_line *all;
    size_t count;
    size_t capacity;
} config_lines;

static void free_items(config_lines *l)
{
    for (size_t i = 0; i < l->count; i++) {
        free(l->all[i].key);
    }
    free(l->all);
}

/* A printed config has "SECTION:" on a line of its own, then "  KEY: VALUE". */
static by_status list_items(config_lines *out, const char *text, by_error *error)
{
    char section[64] = "";
    for (const char *line = text; *line != '\0';) {
        size_t n = strcspn(line, "\n");
        const char *colon = memchr(line, ':', n);
        const char *name = line + strspn(line, " ");
        if (colon != NULL && colon + 1 == line + n) {
            (void)snprintf(section, sizeof section, "%.*s.", (int)(colon - line), line);
        } else if (colon != NULL && colon[1] == ' ') {
            by_string key = {0};
            BY_TRY(by__reserve((void **)&out->all, &out->capacity, out->count + 1, sizeof *out->all,
                               error));
            by_string_format(&key, "%s%.*s", name == line ? "" : section, (int)(colon - name),
                             name);
            BY_TRY(by__string_release(&key, &out->all[out->count].key, error));
            out->all[out->count].value = colon + 2;
            out->all[out->count++].length = (size_t)(line + n - colon - 2);
        }
        line += n + (line[n] == '\n');
    }
    return BY_OK;
}

static const config_line *find(const config_lines *l, const char *key)
{
    for (size_t i = 0; i < l->count; i++) {
        if (strcmp(l->all[i].key, key) == 0) {
            return &l->all[i];
        }
    }
    return NULL;
}

static by_status report_change(by__schema_config_change *change, void *user, const char *key,
                               const config_line *before, const config_line *after, by_error *error)
{
    if (before != NULL && after != NULL && before->length == after->length &&
        memcmp(before->value, after->value, after->length) == 0) {
        return BY_OK;
    }
    char *texts[2] = {before == NULL ? NULL : by__strndup(before->value, before->length),
                      after == NULL ? NULL : by__strndup(after->value, after->length)};
    bool copied = (before == NULL || texts[0] != NULL) && (after == NULL || texts[1] != NULL);
    if (copied) {
        change(user, key, texts[0], texts[1]);
    }
    free(texts[0]);
    free(texts[1]);
    return copied ? BY_OK : by_error_set(error, BY_EMEMORY, "out of memory: configs of a run");
}

by_status by__schema_config_compare(const char *before, const char *after,
                                    by__schema_config_change *change, void *user, by_error *error)
{
    config_lines first = {0};
    config_lines second = {0};
    by_status status = list_items(&first, before, error);
    if (status == BY_OK) {
        status = list_items(&second, after, error);
    }
    for (size_t i = 0; i < first.count && status == BY_OK; i++) {
        const char *key = first.all[i].key;
        status = report_change(change, user, key, &first.all[i], find(&second, key), error);
    }
    for (size_t i = 0; i < second.count && status == BY_OK; i++) {
        const char *key = second.all[i].key;
        status = find(&first, key) != NULL
                     ? BY_OK
                     : report_change(change, user, key, NULL, &second.all[i], error);
    }
    free_items(&first);
    free_items(&second);
    return status;
}
