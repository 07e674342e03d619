/* Any text as prices in YAML: read with numbers in their ranges, or refused, never a crash. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "banyan/plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_unknown_or_least(double value, double least)
{
    return isnan(value) || value >= least;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by_price price;
    by_region region;
    by_error error;
    const char *text = (const char *)data;
    if (by_price_parse(&price, "/nowhere/fuzz.yaml", text, size, "a", &error) == BY_OK &&
        (!is_unknown_or_least(price.per_hour, 0.0) ||
         !is_unknown_or_least(price.watts, price.idle_watts) || !(price.idle_watts >= 0.0))) {
        abort();
    }
    if (by_region_parse(&region, "/nowhere/fuzz.yaml", text, size, "a", &error) == BY_OK &&
        (!(region.pue >= 1.0) || !is_unknown_or_least(region.grams_per_kwh, 0.0))) {
        abort();
    }
    return 0;
}
