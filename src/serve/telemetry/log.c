#include "serve/telemetry/log.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

#include "base/json.h"

void by__telemetry_log_object(const by__telemetry_log *log, const char *event, json_t *object)
{
    char now[24];
    if (log->write != NULL) {
        by__utc_now(now);
        json_t *line = json_pack("{ss ss}", "time", now, "event", event);
        (void)json_object_update(line, object);
        char *text = by__json_dump(line, JSON_COMPACT | JSON_ENSURE_ASCII);
        if (text != NULL) {
            log->write(log->user, text);
        }
        free(text);
        json_decref(line);
    }
    json_decref(object);
}

double by__telemetry_observe_seconds(double seconds)
{
    return round(seconds * 1e4) / 1e4;
}

void by__telemetry_log_event(const by__telemetry_log *log, const char *event, const char *format,
                             ...)
{
    va_list list;
    if (log->write == NULL) {
        return;
    }
    va_start(list, format);
    json_t *object = format == NULL ? NULL : json_vpack_ex(NULL, 0, format, list);
    va_end(list);
    by__telemetry_log_object(log, event, object);
}

void by__telemetry_log_landlock(const by__telemetry_log *log, int version, const char *left)
{
    if (version == 0) {
        char reason[160];
        (void)snprintf(reason, sizeof reason, "this kernel lacks Landlock or has disabled it: %s",
                       left);
        by__telemetry_log_event(log, "landlock_missing", "{ss}", "reason", reason);
    }
}
