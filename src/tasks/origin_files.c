#include "tasks/origin_files.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

#define MAX_FILE ((size_t)16 << 20)

/* Reads a file if there is one; *out stays NULL otherwise. */
static by_status read_text(char **out, size_t *length, const char *directory, const char *name,
                           by_error *error)
{
    char *path = by__path_join(directory, name);
    if (path == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    by_status status =
        by__path_exists(path) ? by__file_read(out, length, path, MAX_FILE, error) : BY_OK;
    free(path);
    return status;
}

static by_status check_object(const char *text, size_t length, const char *directory,
                              const char *name, by_error *error)
{
    json_error_t problem;
    /* "model_max_length" may be too large for an integer of json_t. */
    json_t *root =
        by_json_load(text, length, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &problem);
    bool is_object = json_is_object(root);
    bool is_json = root != NULL;
    json_decref(root);
    return is_object
               ? BY_OK
               : by_error_set(error, BY_EFORMAT, "%s/%s:%d: %s", directory, name,
                              is_json ? 1 : problem.line, is_json ? "not an object" : problem.text);
}

static const char *skip_space(const char *text)
{
    while (isspace((unsigned char)*text)) {
        text++;
    }
    return text;
}

/* Returns the position of the value of a key of the outermost object, which is valid JSON; NULL if
 * it has no such key. */
static const char *find_value(const char *text, const char *key)
{
    int depth = 0;
    for (const char *c = text; *c != '\0'; c++) {
        depth += (*c == '{' || *c == '[') - (*c == '}' || *c == ']');
        if (*c != '"') {
            continue;
        }
        const char *begin = ++c;
        while (*c != '"' && *c != '\0') {
            c += *c == '\\' ? 2 : 1;
        }
        const char *colon = skip_space(c + 1);
        if (depth == 1 && *colon == ':' && (size_t)(c - begin) == strlen(key) &&
            memcmp(begin, key, strlen(key)) == 0) {
            return skip_space(colon + 1);
        }
    }
    return NULL;
}

/* Replaces model_max_length in the text, so that everything else stays as it was written, numbers
 * that json_t cannot hold included. */
static by_status set_max_length(char **out, const char *text, int64_t context, by_error *error)
{
    by_string edited = {0};
    const char *value = find_value(text, "model_max_length");
    if (value == NULL) { /* after the brace of the object */
        const char *inside = strchr(text, '{') + 1;
        by_string_add(&edited, text, (size_t)(inside - text));
        by_string_format(&edited, "\n  \"model_max_length\": %lld%s", (long long)context,
                         *skip_space(inside) == '}' ? "\n" : ",");
        by__string_append(&edited, inside);
    } else {
        by_string_add(&edited, text, (size_t)(value - text));
        by_string_format(&edited, "%lld", (long long)context);
        by__string_append(&edited, value + strcspn(value, ",} \t\r\n"));
    }
    return by__string_release(&edited, out, error);
}

by_status by__task_origin_files_read(by__task_origin_files *out, const char *directory,
                                     int64_t context, by_error *error)
{
    static const char *const others[] = {"chat_template.jinja", "generation_config.json",
                                         "special_tokens_map.json"};
    static const char settings[] = "tokenizer_config.json";
    size_t length;
    char *text = NULL;
    BY_TRY(read_text(&out->config, &length, directory, "config.json", error));
    BY_TRY(read_text(&text, &length, directory, settings, error));
    if (text != NULL) {
        by_status status = check_object(text, length, directory, settings, error);
        if (status == BY_OK) {
            status = set_max_length(&out->tokenizer_config, text, context, error);
        }
        free(text);
        BY_TRY(status);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(others); i++) {
        text = NULL;
        BY_TRY(read_text(&text, &length, directory, others[i], error));
        if (text != NULL) {
            out->others[out->count].name = others[i];
            out->others[out->count].text = text;
            out->others[out->count++].length = length;
        }
    }
    return BY_OK;
}

void by__task_origin_files_drop(by__task_origin_files *files, const char *name)
{
    for (size_t i = 0; i < files->count; i++) {
        if (strcmp(files->others[i].name, name) == 0) {
            free(files->others[i].text);
            files->others[i] = files->others[--files->count];
            return;
        }
    }
}

void by__task_origin_files_keep(const by__task_origin_files *files, by_task_kept *kept)
{
    for (size_t i = 0; i < files->count; i++) {
        kept->files[kept->file_count++] = (by_checkpoint_file){.name = files->others[i].name,
                                                               .data = files->others[i].text,
                                                               .size = files->others[i].length};
    }
    kept->origin_config = files->config;
}

void by__task_origin_files_free(by__task_origin_files *files)
{
    for (size_t i = 0; i < files->count; i++) {
        free(files->others[i].text);
    }
    free(files->config);
    free(files->tokenizer_config);
    *files = (by__task_origin_files){0};
}
