/* References for drift as JSON: what is taken is printed, comes back as the same text, and counts
 * requests. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/drift.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void count_requests(const by_drift_reference *r)
{
    const by_drift_options options = {.requests = 4, .least = 2};
    const int32_t ids[3] = {0, 1, 7};
    by_drift_watch *watch;
    by_drift_kind kind;
    by_error error;
    if (by_drift_watch_open(&watch, r, &options, &error) != BY_OK) {
        return;
    }
    for (int i = 0; i < 8; i++) {
        for (size_t f = 0; f < by_drift_reference_features(r); f++) {
            (void)by_drift_reference_feature(r, f, &kind);
            by_drift_role role = by_drift_reference_role(r, f);
            if (role == BY_DRIFT_CONFIDENCE && by_drift_reference_predicted(r, role) != f) {
                abort(); /* two features have one role */
            }
            if (kind == BY_DRIFT_NUMBER) {
                by_drift_watch_number(watch, f, i == 0 ? NAN : i * 1.5);
            } else if (kind == BY_DRIFT_CATEGORY) {
                by_drift_watch_category(watch, f, i == 0 ? NULL : "red");
            } else {
                by_drift_watch_tokens(watch, f, ids, (size_t)i % 4);
            }
        }
        (void)by_drift_watch_next(watch, i);
    }
    by_drift_watch_close(&watch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by_error error;
    by_drift_reference *r;
    by_drift_reference *again;
    char *first;
    char *second;
    if (by_drift_reference_parse(&r, "f", (const char *)data, size, &error) != BY_OK) {
        return 0;
    }
    if (by_drift_reference_print(r, &first, &error) != BY_OK ||
        by_drift_reference_parse(&again, "f", first, strlen(first), &error) != BY_OK ||
        by_drift_reference_print(again, &second, &error) != BY_OK || strcmp(first, second) != 0) {
        abort();
    }
    count_requests(again);
    free(first);
    free(second);
    by_drift_reference_close(&r);
    by_drift_reference_close(&again);
    return 0;
}
