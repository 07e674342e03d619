/* Parses the settings of a method, given as "NAME=VALUE". */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compress/compress.h"

static size_t count_settings(const by_compress_method *method)
{
    size_t count = 0;
    while (method->settings != NULL && method->settings[count].name != NULL) {
        count++;
    }
    return count;
}

static bool is_among(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = words; *at != '\0'; at += strspn(at, " ")) {
        size_t n = strcspn(at, " ");
        if (n == length && strncmp(at, word, n) == 0) {
            return true;
        }
        at += n;
    }
    return false;
}

static by_status check_value(const by_compress_method *method, const by_compress_setting *setting,
                             const char *value, by_error *error)
{
    double number;
    if (setting->words != NULL) {
        return is_among(setting->words, value)
                   ? BY_OK
                   : by_error_set(error, BY_EARG, "%s: %s is '%s'; must be one of: %s",
                                  method->name, setting->name, value, setting->words);
    }
    if (!by__parse_f64(value, &number) || !(number >= setting->least && number <= setting->most) ||
        (setting->whole && number != floor(number))) {
        return by_error_set(error, BY_EARG, "%s: %s is '%s'; must be a%s number from %g to %g",
                            method->name, setting->name, value, setting->whole ? " whole" : "",
                            setting->least, setting->most);
    }
    return BY_OK;
}

static by_status refuse_name(const by_compress_method *method, const char *text, size_t length,
                             by_error *error)
{
    by_string names = {0};
    char *list;
    for (size_t i = 0; i < count_settings(method); i++) {
        by_string_format(&names, "%s%s", i == 0 ? "" : ", ", method->settings[i].name);
    }
    by__string_append(&names, names.length == 0 ? "it has none" : "");
    BY_TRY(by__string_release(&names, &list, error));
    by_status status = by_error_set(error, BY_EARG, "%s has no setting '%.*s'; its settings: %s",
                                    method->name, (int)length, text, list);
    free(list);
    return status;
}

static by_status set_value(char **values, const by_compress_method *method, const char *text,
                           by_error *error)
{
    size_t length = strcspn(text, "=");
    for (size_t i = 0; i < count_settings(method) && text[length] == '='; i++) {
        const by_compress_setting *setting = &method->settings[i];
        if (strlen(setting->name) == length && strncmp(setting->name, text, length) == 0) {
            BY_TRY(check_value(method, setting, text + length + 1, error));
            char *value = by__strdup(text + length + 1);
            if (value == NULL) {
                return by_error_set(error, BY_EMEMORY, "out of memory: settings");
            }
            free(values[i]);
            values[i] = value;
            return BY_OK;
        }
    }
    return refuse_name(method, text, length, error);
}

by_status by__compress_settings_read(char ***out, const by_compress_method *method,
                                     const char *const *settings, size_t count, by_error *error)
{
    char **values;
    by_status status = BY_OK;
    size_t all = count_settings(method);
    BY_TRY(by__alloc((void **)&values, all + 1, sizeof *values, "settings", error));
    for (size_t i = 0; i < all && status == BY_OK; i++) {
        values[i] = by__strdup(method->settings[i].fallback);
        status =
            values[i] == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: settings") : BY_OK;
    }
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        status = set_value(values, method, settings[i], error);
    }
    if (status != BY_OK) {
        by__compress_settings_free(&values, method);
        return status;
    }
    *out = values;
    return BY_OK;
}

void by__compress_settings_free(char ***values, const by_compress_method *method)
{
    for (size_t i = 0; *values != NULL && i < count_settings(method); i++) {
        free((*values)[i]);
    }
    free(*values);
    *values = NULL;
}

const char *by__compress_setting_text(const by__compress_state *c, const char *name)
{
    const by_compress_method *method = &c->method->shown;
    for (size_t i = 0; i < count_settings(method); i++) {
        if (strcmp(method->settings[i].name, name) == 0) {
            return c->values[i];
        }
    }
    return NULL;
}

double by__compress_setting_number(const by__compress_state *c, const char *name)
{
    double value = 0.0;
    const char *text = by__compress_setting_text(c, name);
    (void)(text != NULL && by__parse_f64(text, &value)); /* checked when it was read */
    return value;
}
