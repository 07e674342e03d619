/* The memory of scales. */
#include <stdlib.h>
#include <string.h>

#include "data/series/series_scales.h"

by_status by__series_scales_rows(double **mean, double **deviation, size_t count, by_error *error)
{
    BY_TRY(by__alloc((void **)mean, count + 1, sizeof **mean, "scales", error));
    return by__alloc((void **)deviation, count + 1, sizeof **deviation, "scales", error);
}

static by_status make_lists(by__series_scales *s, const by__series_scales_size *size,
                            by_error *error)
{
    size_t all;
    if (!by__size_mul(size->channels, size->series, &all)) {
        return by_error_set(error, BY_EMEMORY, "out of memory: scales");
    }
    BY_TRY(by__alloc((void **)&s->channels.items, size->channels + 1, sizeof *s->channels.items,
                     "scales", error));
    BY_TRY(by__alloc((void **)&s->series.items, size->series + 1, sizeof *s->series.items, "scales",
                     error));
    BY_TRY(by__alloc((void **)&s->known.items, size->known + 1, sizeof *s->known.items, "scales",
                     error));
    BY_TRY(by__series_scales_rows(&s->known_mean, &s->known_deviation, size->known, error));
    BY_TRY(by__series_scales_rows(&s->mean, &s->deviation, size->channels, error));
    return by__series_scales_rows(&s->means, &s->deviations, all, error);
}

by_status by__series_scales_make(by__series_scales **out, const by__series_scales_size *size,
                                 const char *time, const char *id, by_error *error)
{
    by__series_scales *s;
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "scales", error));
    s->time = by__strdup(time);
    s->id = by__strdup(id);
    by_status status = s->time != NULL && s->id != NULL
                           ? make_lists(s, size, error)
                           : by_error_set(error, BY_EMEMORY, "out of memory: scales");
    if (status != BY_OK) {
        by__series_scales_close(&s);
        return status;
    }
    *out = s;
    return BY_OK;
}

by_status by__series_names_add(by__series_names *names, const char *name, by_error *error)
{
    char *copy = by__strdup(name);
    if (copy == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: scales");
    }
    names->items[names->count++] = copy;
    return BY_OK;
}

void by__series_scales_close(by__series_scales **scales)
{
    by__series_scales *s = *scales;
    if (s == NULL) {
        return;
    }
    by__series_names_free(&s->channels);
    by__series_names_free(&s->series);
    by__series_names_free(&s->known);
    by__series_calendar_free(&s->calendar);
    free(s->known_mean);
    free(s->known_deviation);
    free(s->time);
    free(s->id);
    free(s->mean);
    free(s->deviation);
    free(s->means);
    free(s->deviations);
    free(s);
    *scales = NULL;
}

void by__series_set_calendar(by__series_scales *scales, by__series_calendar *calendar)
{
    by__series_calendar_free(&scales->calendar);
    scales->calendar = *calendar;
    *calendar = (by__series_calendar){0};
}
