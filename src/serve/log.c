#include "serve/log.h"

#include <stdarg.h>
#include <stdlib.h>

void by__log_event(const by__log *log, const char *event, const char *format, ...)
{
    char now[24];
    va_list list;
    if (log->write == NULL) {
        return;
    }
    by__utc_now(now);
    json_t *line = json_pack("{ss ss}", "time", now, "event", event);
    if (format != NULL) {
        va_start(list, format);
        json_t *rest = json_vpack_ex(NULL, 0, format, list);
        va_end(list);
        (void)json_object_update(line, rest);
        json_decref(rest);
    }
    char *text = json_dumps(line, JSON_COMPACT | JSON_ENSURE_ASCII);
    if (text != NULL) {
        log->write(log->user, text);
    }
    free(text);
    json_decref(line);
}
