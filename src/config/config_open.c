/* Opens a config: reads the chain of files, then applies the overrides. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/utf8.h"
#include "base/wire/url_hide.h"
#include "config/schema.h"

#define FILE_LIMIT  ((size_t)1 << 20)
#define CHAIN_LIMIT 16

/* The files read so far, from the most derived one to the base. */
typedef struct file_chain {
    char *shown[CHAIN_LIMIT]; /* as the user wrote them */
    char *real[CHAIN_LIMIT];  /* resolved paths, to detect a file that occurs twice */
    size_t count;
} file_chain;

/* ---- overrides ---- */

/* Splits "section.key=value" and finds the key's entry. */
static by_status find_assigned(by__config_entry **out, const char **value, const by__config *config,
                               const char *where, const char *assignment, by_error *error)
{
    char path[64];
    const char *equals = strchr(assignment, '=');
    if (equals == NULL) {
        return by_error_set(error, BY_ECONFIG, "%s: write it as section.key=value", where);
    }
    size_t length = (size_t)(equals - assignment);
    if (length >= sizeof path) {
        return by_error_set(error, BY_ECONFIG, "%s: unknown key", where);
    }
    memcpy(path, assignment, length);
    path[length] = '\0';
    char *dot = strchr(path, '.');
    const char *section = dot == NULL ? "" : path;
    const char *name = dot == NULL ? path : dot + 1;
    if (dot != NULL) {
        *dot = '\0';
        if (by__config_section_find(config->schema, section) == NULL) {
            *dot = '.';
            return by__config_key_unknown(config, where, "", path, error);
        }
    }
    if (dot == NULL && by__config_section_find(config->schema, name) != NULL) {
        return by_error_set(error, BY_ECONFIG, "%s: \"%s\" is a section; write it as %s.key=value",
                            where, name, name);
    }
    if (dot == NULL && strcmp(name, "base") == 0) {
        return by_error_set(error, BY_ECONFIG, "%s: base can be set in a file only", where);
    }
    *out = by__config_entry_find(config, section, name);
    *value = equals + 1;
    return *out == NULL ? by__config_key_unknown(config, where, section, name, error) : BY_OK;
}

by_status by_config_set(by_config *config, const char *assignment, by_error *error)
{
    by__config *whole = (by__config *)config;
    by__config_entry *entry = NULL;
    const char *value = NULL;
    char *where;
    by__config_node node = {0};
    by_string text = {0};
    char *shown = by__strdup(assignment);
    if (shown == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: an override");
    }
    by__url_hide(shown); /* before it is cut, maybe within a password */
    by_string_format(&text, "override \"%.100s%s\"", shown, strlen(shown) > 100 ? "..." : "");
    free(shown);
    BY_TRY(by__string_release(&text, &where, error));
    whole->level = 0;
    by_status status = find_assigned(&entry, &value, whole, where, assignment, error);
    if (status == BY_OK) {
        status = by__config_read_value(&node, value, where, error);
    }
    if (status == BY_OK) {
        status = by__config_assign(whole, entry, &node, where, true, error);
    }
    by__config_node_free(&node);
    free(where);
    return status;
}

/* ---- the chain of files ---- */

/* Adds a file, taking ownership of `path`. Refuses a file that is in the chain already. `where` is
 * the position that names it. */
static by_status enter(file_chain *chain, char *path, const char *where, by_error *error)
{
    if (path == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    if (chain->count == CHAIN_LIMIT) {
        free(path);
        return by_error_set(error, BY_ECONFIG, "%s: base: a chain of more than %d files", where,
                            CHAIN_LIMIT);
    }
    char *real = realpath(path, NULL);
    if (real == NULL) { /* a name in memory, or a file whose opening will fail with a message */
        real = by__strdup(path);
    }
    size_t at = chain->count++;
    chain->shown[at] = path;
    chain->real[at] = real;
    if (real == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    for (size_t i = 0; i < at; i++) {
        if (strcmp(chain->real[i], real) == 0) {
            by_string names = {0};
            for (size_t k = i; k <= at; k++) {
                by_string_format(&names, "%s%s", k == i ? "" : " -> ", chain->shown[k]);
            }
            by_status status = by_error_set(error, BY_ECONFIG, "%s: base: a cycle: %s", where,
                                            names.failed ? real : names.data);
            by_string_free(&names);
            return status;
        }
    }
    return BY_OK;
}

static void leave(file_chain *chain)
{
    for (size_t i = 0; i < chain->count; i++) {
        free(chain->shown[i]);
        free(chain->real[i]);
    }
}

/* Resolves `base` relative to the folder of `file`. */
static char *sibling_path(const char *file, const char *base)
{
    const char *slash = strrchr(file, '/');
    if (base[0] == '/' || slash == NULL) {
        return by__strdup(base);
    }
    char *folder = by__strndup(file, (size_t)(slash - file) + 1);
    char *joined = folder == NULL ? NULL : by__path_join(folder, base);
    free(folder);
    return joined;
}

/* A file that is too large, or is none, is a wrong config, not damaged data. */
static by_status read_file(char **text, size_t *length, const char *path, by_error *error)
{
    struct stat info;
    by_status status = by__file_read_text(text, length, path, FILE_LIMIT, error);
    bool odd = status == BY_EIO && stat(path, &info) == 0 && !S_ISREG(info.st_mode);
    return status == BY_EFORMAT || odd ? by_error_prefix(error, BY_ECONFIG, "a config file")
                                       : status;
}

/* Reads the base file named at `where` into *text. */
static by_status load_base(char **text, size_t *length, file_chain *chain, const char *base,
                           const char *where, by_error *error)
{
    const char *file = chain->shown[chain->count - 1];
    BY_TRY(enter(chain, sibling_path(file, base), where, error));
    by_status status = read_file(text, length, chain->shown[chain->count - 1], error);
    return status == BY_OK ? BY_OK : by_error_prefix(error, status, "%s: base", where);
}

/* Reads the text of the last file of the chain, then its bases one after the other. */
static by_status read_chain(by__config *config, file_chain *chain, const char *text, size_t length,
                            by_error *error)
{
    char *loaded = NULL; /* owned; the first `text` belongs to the caller */
    char *base;
    char *where;
    by_status status;
    for (;;) {
        config->level = chain->count;
        status = by__config_read(config, chain->shown[chain->count - 1], text, length, &base,
                                 &where, error);
        free(loaded);
        loaded = NULL;
        if (status != BY_OK || base == NULL) {
            return status;
        }
        status = load_base(&loaded, &length, chain, base, where, error);
        free(base);
        free(where);
        if (status != BY_OK) {
            return status;
        }
        text = loaded;
    }
}

by_status by__config_parse(by_config **out, const by__config_schema *schema, const char *name,
                           const char *text, size_t length, const char *const *overrides,
                           size_t count, bool kept, by_error *error)
{
    by__config *made;
    file_chain chain = {0};
    if (length > FILE_LIMIT) {
        return by_error_set(error, BY_ECONFIG, "%s: %zu bytes is more than the limit of %zu", name,
                            length, FILE_LIMIT);
    }
    BY_TRY(by__config_new(&made, schema, error));
    by_config *config = &made->config;
    by_status status = enter(&chain, by__strdup(name), name, error);
    if (status == BY_OK) {
        status = read_chain(made, &chain, text, length, error);
    }
    leave(&chain);
    if (status == BY_OK && kept) {
        by__config_drop_foreign(made);
    }
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        status = by_config_set(config, overrides[i], error);
    }
    if (status == BY_OK) {
        status = by__config_check_kinds(made, error);
    }
    if (status != BY_OK) {
        by_config_close(&config);
        return status;
    }
    *out = config;
    return BY_OK;
}

by_status by__config_open(by_config **out, const by__config_schema *schema, const char *path,
                          const char *const *overrides, size_t count, bool kept, by_error *error)
{
    char *text;
    size_t length;
    BY_TRY(read_file(&text, &length, path, error));
    by_status status =
        by__config_parse(out, schema, path, text, length, overrides, count, kept, error);
    free(text);
    return status;
}
