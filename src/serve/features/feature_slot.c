/* Converts a store's value of a feature to a slot of a lookup. */
#include <math.h>
#include <string.h>

#include "serve/features/feast_value.h"
#include "serve/features/feature_store.h"

bool by__feature_uses(const by__feature_lookup *lookup, size_t view)
{
    for (size_t i = 0; i < lookup->column_count; i++) {
        if (lookup->map->columns[lookup->columns[i]].view == view) {
            return true;
        }
    }
    return false;
}

void by__feature_put(by__feature_slot *slot, json_t *value, double time)
{
    const char *text = json_string_value(value);
    size_t length = json_string_length(value);
    bool fits = text == NULL ? json_is_number(value) && isfinite(json_number_value(value))
                             : length <= BY__FEATURE_MAX_TEXT && strlen(text) == length;
    *slot = (by__feature_slot){.outcome = fits ? BY__FEATURE_PRESENT : BY__FEATURE_UNUSABLE,
                               .value = fits ? value : NULL,
                               .time = time};
    if (!fits) {
        json_decref(value);
    }
}

void by__feature_put_time(by__feature_slot *slot, const by__feature_column *column, int64_t seconds,
                          double time)
{
    int64_t value;
    bool fits = !__builtin_mul_overflow(seconds, (int64_t)column->time_unit, &value);
    by__feature_put(slot, fits ? json_integer(value) : NULL, time);
}

void by__feature_put_message(by__feature_slot *slot, const by__feature_column *column,
                             const void *data, size_t size, double time)
{
    by__feature_feast_value v = {.kind = BY__FEAST_VALUE_OTHER};
    if (!by__feature_feast_value_read(&v, data, size)) {
        v.kind = BY__FEAST_VALUE_OTHER;
    }
    switch (v.kind) {
    case BY__FEAST_VALUE_NULL:
        slot->outcome = BY__FEATURE_NULL;
        break;
    case BY__FEAST_VALUE_INTEGER:
        by__feature_put(slot, json_integer(v.integer), time);
        break;
    case BY__FEAST_VALUE_TIME:
        by__feature_put_time(slot, column, v.integer, time);
        break;
    case BY__FEAST_VALUE_REAL:
        if (isnan(v.real)) {
            slot->outcome = BY__FEATURE_NULL;
        } else {
            by__feature_put(slot, json_real(v.real), time); /* NULL of an infinite one */
        }
        break;
    case BY__FEAST_VALUE_TEXT:
        by__feature_put(slot, json_stringn(v.text, v.length), time);
        break;
    case BY__FEAST_VALUE_OTHER:
        slot->outcome = BY__FEATURE_UNUSABLE;
        break;
    }
}
