/* Any bytes as events.jsonl and as run.json. What a rewind keeps is accepted by the same rewind,
 * which leaves it unchanged, and has no event after the step. */
#include <stdlib.h>
#include <string.h>

#include "track/track.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    const uint64_t limit = 100;
    by_string kept = {0};
    by_string again = {0};
    by_series series = {0};
    by_run_record run = {0};
    by_error error;
    bool pending = size % 2 == 1;
    if (by__track_events_filter(&kept, "events.jsonl", text, size, limit, pending, &error) ==
            BY_OK &&
        kept.length > 0) {
        if (kept.length > size ||
            by__track_events_filter(&again, "events.jsonl", kept.data, kept.length, limit, pending,
                                    &error) != BY_OK ||
            again.length != kept.length || memcmp(again.data, kept.data, kept.length) != 0 ||
            by__track_events_series(&series, "events.jsonl", kept.data, kept.length, NULL, "loss",
                                    &error) != BY_OK) {
            abort();
        }
        for (size_t i = 0; i < series.count; i++) {
            if (series.steps[i] > limit) {
                abort();
            }
        }
        by_series_free(&series);
    }
    by_string_free(&kept);
    by_string_free(&again);
    if (by__track_run_parse(&run, "run.json", text, size, &error) == BY_OK) {
        by__track_run_free(&run);
    }
    return 0;
}
