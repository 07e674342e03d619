/* Missing numbers in the window from which a series is continued. In training they are read as the
 * last number before them and are no targets; here the forecast itself would rest on them. */
#include <string.h>

#include "tasks/forecast/forecast.h"

bool by__forecast_window_fault(const by__forecast_data *d, const by__series_set *set, size_t s,
                               char text[BY__FORECAST_FAULT])
{
    const by__series_rows *series = &set->series[s];
    uint64_t context = (uint64_t)d->context;
    size_t channels = set->channels.count;
    bool strict = strcmp(d->keys->missing, "refuse") == 0;
    if (series->count < context) {
        (void)snprintf(text, BY__FORECAST_FAULT, "%llu rows, and the model reads %llu",
                       (unsigned long long)series->count, (unsigned long long)context);
        return true;
    }
    const uint8_t *present = set->present + (series->first + series->count - context) * channels;
    for (size_t c = 0; c < channels; c++) {
        uint64_t known = 0;
        for (uint64_t r = 0; r < context; r++) {
            known += present[r * channels + c];
        }
        if (known == 0 || (strict && known < context)) {
            (void)snprintf(text, BY__FORECAST_FAULT,
                           "no number in column '%.80s' in %llu of the last %llu rows, which the "
                           "model reads%s",
                           set->channels.items[c], (unsigned long long)(context - known),
                           (unsigned long long)context, known == 0 ? "" : " (data.missing)");
            return true;
        }
    }
    return false;
}
