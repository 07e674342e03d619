/* Scales of series as JSON. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "data/series/series_scales.h"

static json_t *number_list(const double *numbers, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        (void)json_array_append_new(list, json_real(numbers[i]));
    }
    return list;
}

static json_t *each_list(const by__series_scales *s)
{
    json_t *list = json_array();
    size_t width = s->channels.count;
    for (size_t i = 0; i < s->series.count; i++) {
        (void)json_array_append_new(list,
                                    json_pack("{s:s, s:o, s:o}", "name", s->series.items[i], "mean",
                                              number_list(s->means + i * width, width), "deviation",
                                              number_list(s->deviations + i * width, width)));
    }
    return list;
}

static json_t *known_list(const by__series_scales *s)
{
    json_t *list = json_array();
    for (size_t k = 0; k < s->known.count; k++) {
        (void)json_array_append_new(list, json_pack("{s:s, s:f, s:f}", "name", s->known.items[k],
                                                    "mean", s->known_mean[k], "deviation",
                                                    s->known_deviation[k]));
    }
    return list;
}

static json_t *calendar_object(const by__series_calendar *c)
{
    json_t *days = json_array();
    for (size_t i = 0; i < c->holiday_count; i++) {
        (void)json_array_append_new(days, json_integer(c->holidays[i]));
    }
    return json_pack("{s:i, s:o}", "features", (int)c->features, "holidays", days);
}

by_status by__series_scales_print(const by__series_scales *scales, char **out, by_error *error)
{
    json_t *channels = json_array();
    for (size_t c = 0; c < scales->channels.count; c++) {
        (void)json_array_append_new(
            channels, json_pack("{s:s, s:f, s:f}", "name", scales->channels.items[c], "mean",
                                scales->mean[c], "deviation", scales->deviation[c]));
    }
    json_t *root = json_pack("{s:s, s:s, s:o}", "time", scales->time, "series", scales->id,
                             "channels", channels);
    if (scales->known.count > 0) {
        (void)json_object_set_new(root, "known", known_list(scales));
    }
    if (scales->calendar.features != 0) {
        (void)json_object_set_new(root, "calendar", calendar_object(&scales->calendar));
    }
    if (scales->numbers) {
        (void)json_object_set_new(root, "numbers", json_true());
    }
    if (scales->scaling.counts) {
        (void)json_object_set_new(root, "counts", json_true());
    }
    if (scales->scaling.each) {
        (void)json_object_set_new(root, "each", each_list(scales));
    }
    *out = root == NULL ? NULL : json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    json_decref(root);
    return *out != NULL ? BY_OK : by_error_set(error, BY_EMEMORY, "out of memory: scales");
}

static by_status read_channel(by__series_scales *s, const char *name, const json_t *in,
                              by_error *error)
{
    const char *channel = json_string_value(json_object_get(in, "name"));
    const json_t *mean = json_object_get(in, "mean");
    const json_t *deviation = json_object_get(in, "deviation");
    size_t c = s->channels.count;
    if (channel == NULL || !json_is_number(mean) || !json_is_number(deviation) ||
        !(json_number_value(deviation) > 0.0)) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: channel %zu has no name, mean and deviation above 0", name, c);
    }
    s->mean[c] = json_number_value(mean);
    s->deviation[c] = json_number_value(deviation);
    return by__series_names_add(&s->channels, channel, error);
}

/* Reads `count` numbers, above 0 if they are deviations. */
static bool read_numbers(double *out, const json_t *list, size_t count, bool above)
{
    bool fine = json_array_size(list) == count;
    for (size_t i = 0; fine && i < count; i++) {
        const json_t *number = json_array_get(list, i);
        fine = json_is_number(number) && (!above || json_number_value(number) > 0.0);
        out[i] = json_number_value(number);
    }
    return fine;
}

/* Scales of one series. */
static by_status read_each(by__series_scales *s, const char *name, const json_t *in,
                           by_error *error)
{
    size_t width = s->channels.count;
    size_t i = s->series.count;
    const char *series = json_string_value(json_object_get(in, "name"));
    if (series == NULL ||
        !read_numbers(s->means + i * width, json_object_get(in, "mean"), width, false) ||
        !read_numbers(s->deviations + i * width, json_object_get(in, "deviation"), width, true)) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: series %zu of \"each\" has no name, and a mean and a deviation "
                            "above 0 for each channel",
                            name, i);
    }
    return by__series_names_add(&s->series, series, error);
}

static by_status read_known(by__series_scales *s, const char *name, const json_t *in,
                            by_error *error)
{
    const char *column = json_string_value(json_object_get(in, "name"));
    const json_t *mean = json_object_get(in, "mean");
    const json_t *deviation = json_object_get(in, "deviation");
    if (column == NULL || !json_is_number(mean) || !json_is_number(deviation) ||
        !(json_number_value(deviation) > 0.0)) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: column %zu of \"known\" has no name, mean and deviation above 0",
                            name, s->known.count);
    }
    s->known_mean[s->known.count] = json_number_value(mean);
    s->known_deviation[s->known.count] = json_number_value(deviation);
    return by__series_names_add(&s->known, column, error);
}

static by_status read_calendar(by__series_calendar *c, const char *name, const json_t *in,
                               by_error *error)
{
    const json_t *days = json_object_get(in, "holidays");
    size_t count = json_array_size(days);
    c->features = (unsigned)json_integer_value(json_object_get(in, "features")) &
                  ((1u << BY__SERIES_FEATURES) - 1);
    BY_TRY(by__alloc((void **)&c->holidays, count + 1, sizeof *c->holidays, "holidays", error));
    for (size_t i = 0; i < count; i++) {
        json_int_t day = json_integer_value(json_array_get(days, i));
        if (day < INT32_MIN || day > INT32_MAX || (i > 0 && day < c->holidays[i - 1])) {
            return by_error_set(error, BY_EFORMAT, "%s: \"holidays\" must be days that ascend",
                                name);
        }
        c->holidays[i] = (int32_t)day;
        c->holiday_count = i + 1;
    }
    return BY_OK;
}

static by_status read_scales(by__series_scales *s, const char *name, const json_t *root,
                             by_error *error)
{
    const json_t *channels = json_object_get(root, "channels");
    const json_t *each = json_object_get(root, "each");
    s->numbers = json_is_true(json_object_get(root, "numbers"));
    s->scaling.counts = json_is_true(json_object_get(root, "counts"));
    s->scaling.each = each != NULL;
    for (size_t c = 0; c < json_array_size(channels); c++) {
        BY_TRY(read_channel(s, name, json_array_get(channels, c), error));
    }
    const json_t *known = json_object_get(root, "known");
    const json_t *calendar = json_object_get(root, "calendar");
    for (size_t i = 0; i < json_array_size(known); i++) {
        BY_TRY(read_known(s, name, json_array_get(known, i), error));
    }
    if (calendar != NULL) {
        BY_TRY(read_calendar(&s->calendar, name, calendar, error));
    }
    for (size_t i = 0; i < json_array_size(each); i++) {
        BY_TRY(read_each(s, name, json_array_get(each, i), error));
    }
    return BY_OK;
}

by_status by__series_scales_parse(by__series_scales **out, const char *name, const char *text,
                                  by_error *error)
{
    json_t *root = by__json_read(text, 0, NULL);
    const char *time = json_string_value(json_object_get(root, "time"));
    const char *id = json_string_value(json_object_get(root, "series"));
    const by__series_scales_size size = {json_array_size(json_object_get(root, "channels")),
                                         json_array_size(json_object_get(root, "each")),
                                         json_array_size(json_object_get(root, "known"))};
    by__series_scales *s = NULL;
    by_status status =
        time != NULL && id != NULL && size.channels > 0
            ? by__series_scales_make(&s, &size, time, id, error)
            : by_error_set(error, BY_EFORMAT,
                           "%s does not describe series: \"time\", \"series\", \"channels\"", name);
    if (status == BY_OK) {
        status = read_scales(s, name, root, error);
    }
    json_decref(root);
    if (status != BY_OK) {
        by__series_scales_close(&s);
        return status;
    }
    *out = s;
    return BY_OK;
}
