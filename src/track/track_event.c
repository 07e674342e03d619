/* What trackers and sinks share of an event: its time, its tag, and the lines of its config. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "track/sinks/sink.h"

double by__track_clock_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void by__track_event_tag(by_string *out, const by__track_run_event *event, const char *key)
{
    by_string_format(out, "%s/%s", event->name, key);
}

/* Appends the value of a line of YAML as written by by_config_print, whose quoted text has JSON's
 * escapes. */
static void add_json(by_string *out, const char *value, size_t n)
{
    char number[64];
    double parsed;
    bool is_word =
        (n == 4 && strncmp(value, "true", n) == 0) || (n == 5 && strncmp(value, "false", n) == 0);
    (void)snprintf(number, sizeof number, "%.*s", n < sizeof number ? (int)n : 0, value);
    if ((n > 1 && value[0] == '"') || is_word ||
        (strspn(number, "+-.0123456789e") == n && by__parse_f64(number, &parsed))) {
        by_string_add(out, value, n);
    } else {
        by_string_json(out, value, n);
    }
}

void by__track_config_items(const char *yaml,
                            void (*take)(void *user, const char *key, const char *json), void *user)
{
    char section[64] = "";
    for (const char *line = yaml; *line != '\0';) {
        size_t n = strcspn(line, "\n");
        const char *colon = memchr(line, ':', n);
        const char *name = line + strspn(line, " ");
        if (colon != NULL && colon + 1 == line + n) {
            (void)snprintf(section, sizeof section, "%.*s.", (int)(colon - line), line);
        } else if (colon != NULL) {
            by_string key = {0};
            by_string json = {0};
            by_string_format(&key, "%s%.*s", name == line ? "" : section, (int)(colon - name),
                             name);
            add_json(&json, colon + 2, (size_t)(line + n - colon - 2));
            if (!key.failed && !json.failed) {
                take(user, key.data, json.data);
            }
            by_string_free(&key);
            by_string_free(&json);
        }
        line += n + (line[n] == '\n');
    }
}
