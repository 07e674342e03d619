/* The config of a part, as keys and values beside a file of the user's. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "assistant/assistant.h"
#include "config/kind.h"

by_status by__assistant_settings_open(by__assistant_settings *out, const char *path,
                                      const char *kind, by_error *error)
{
    char task[64];
    const char *const overrides[] = {task};
    *out = (by__assistant_settings){.path = path};
    (void)snprintf(task, sizeof task, "task.kind=%s", kind);
    return path[0] == '\0' ? BY_OK : by_config_open(&out->given, path, overrides, 1, error);
}

void by__assistant_settings_free(by__assistant_settings *settings)
{
    for (size_t i = 0; i < settings->count; i++) {
        free(settings->items[i].value);
    }
    free(settings->items);
    by_config_close(&settings->given);
    *settings = (by__assistant_settings){0};
}

bool by__assistant_settings_given(const by__assistant_settings *settings, const char *key)
{
    return settings->given != NULL && by__config_is_given(settings->given, key);
}

/* Takes the value over. */
static void add(by__assistant_settings *settings, const char *key, by_string *value)
{
    by__assistant_setting setting;
    if (by__reserve((void **)&settings->items, &settings->capacity, settings->count + 1,
                    sizeof *settings->items, NULL) != BY_OK ||
        by__string_release(value, &setting.value, NULL) != BY_OK) {
        by_string_free(value);
        settings->failed = true;
        return;
    }
    (void)snprintf(setting.key, sizeof setting.key, "%s", key);
    settings->items[settings->count++] = setting;
}

void by__assistant_settings_add(by__assistant_settings *settings, const char *key,
                                const char *format, ...)
{
    char text[256];
    by_string value = {0};
    va_list arguments;
    if (by__assistant_settings_given(settings, key)) {
        return;
    }
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    by__string_append(&value, text);
    add(settings, key, &value);
}

void by__assistant_settings_fix(by__assistant_settings *settings, const char *key, const char *text)
{
    by_string value = {0};
    by_string_json(&value, text, strlen(text));
    add(settings, key, &value);
}

void by__assistant_settings_fix_list(by__assistant_settings *settings, const char *key,
                                     const by_string_list *list)
{
    by_string value = {0};
    by__string_append(&value, "[");
    for (size_t i = 0; i < list->count; i++) {
        by__string_append(&value, i > 0 ? ", " : "");
        by_string_json(&value, list->items[i], strlen(list->items[i]));
    }
    by__string_append(&value, "]");
    add(settings, key, &value);
}

/* Length of the section in front of a key; 0: it is at the top. */
static size_t section_length(const char *key)
{
    const char *dot = strchr(key, '.');
    return dot == NULL ? 0 : (size_t)(dot - key);
}

static bool same_section(const char *a, const char *b)
{
    size_t length = section_length(a);
    return length == section_length(b) && strncmp(a, b, length) == 0;
}

/* Writes the section of setting `first` with all that belongs to it. */
static void print_section(by_string *out, const by__assistant_settings *settings, size_t first)
{
    const char *key = settings->items[first].key;
    size_t length = section_length(key);
    const char *before = "";
    by_string_format(out, "%.*s: {", (int)length, key);
    for (size_t i = first; i < settings->count; i++) {
        if (same_section(settings->items[i].key, key)) {
            by_string_format(out, "%s%s: ", before, settings->items[i].key + length + 1);
            by__string_append(out, settings->items[i].value);
            before = ", ";
        }
    }
    by__string_append(out, "}\n");
}

by_status by__assistant_settings_print(char **out, const by__assistant_settings *settings,
                                       by_error *error)
{
    by_string text = {0};
    text.failed = settings->failed;
    if (settings->path[0] != '\0') {
        char *whole = realpath(settings->path, NULL); /* `base` is relative to the file with it */
        const char *path = whole == NULL ? settings->path : whole;
        by__string_append(&text, "base: ");
        by_string_json(&text, path, strlen(path));
        by__string_append(&text, "\n");
        free(whole);
    }
    for (size_t i = 0; i < settings->count; i++) {
        const char *key = settings->items[i].key;
        bool begun = false;
        for (size_t k = 0; k < i; k++) {
            begun = begun || same_section(settings->items[k].key, key);
        }
        if (section_length(key) == 0) {
            by_string_format(&text, "%s: ", key);
            by__string_append(&text, settings->items[i].value);
            by__string_append(&text, "\n");
        } else if (!begun) {
            print_section(&text, settings, i);
        }
    }
    return by__string_release(&text, out, error);
}
