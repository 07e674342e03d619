/* Prices and regions of a file: a table, or YAML with lists of both. */
#include <math.h>
#include <string.h>
#include <strings.h>

#include "config/schema.h"
#include "plan/cost/cost.h"

typedef struct price_keys {
    char *device;
    double per_hour;
    double spot_per_hour;
    double purchase;
    double upkeep_per_month;
    double watts;
    double tdp_watts;
    double idle_watts;
    double tflops;
} price_keys;

typedef struct region_keys {
    char *region;
    double grams_per_kwh;
    double pue;
    double price_per_kwh;
} region_keys;

typedef struct price_file {
    by_record_list prices;
    by_record_list regions;
} price_file;

static const by__config_section sections[] = {{"", "Keys at the top of the file.", 0}};

#define PRICE(name, member, help_text)                                                             \
    {                                                                                              \
        "prices", name, BY__KEY_REAL, BY__OWN(price_keys, member), "-1", 0, 1e15,                  \
            .derived = "unknown", .help = help_text                                                \
    }
#define REGION(name, member, help_text)                                                            \
    {                                                                                              \
        "regions", name, BY__KEY_REAL, BY__OWN(region_keys, member), "-1", 0, 1e9,                 \
            .derived = "unknown", .help = help_text                                                \
    }
static const by__config_key price_fields[] = {
    {"prices", "device", BY__KEY_TEXT, BY__OWN(price_keys, device), NULL, .min = 1, .help = "name"},
    PRICE("price_per_hour", per_hour, "rented"),
    PRICE("spot_per_hour", spot_per_hour, "rented as one that may be taken away"),
    PRICE("purchase_price", purchase, "with its share of the host"),
    PRICE("upkeep_per_month", upkeep_per_month, "of one that is owned, without power"),
    PRICE("watts", watts, "while it computes"),
    PRICE("tdp_watts", tdp_watts, "rated, where watts are unknown"),
    PRICE("idle_watts", idle_watts, "while it waits"),
    PRICE("tflops", tflops, "peak, 1e12 operations a second"),
};
static const by__config_key_list price_list = BY__KEY_LIST(price_fields);
static const by__config_key region_fields[] = {
    {"regions", "region", BY__KEY_TEXT, BY__OWN(region_keys, region), NULL, .min = 1,
     .help = "name"},
    REGION("grams_co2_per_kwh", grams_per_kwh, "of CO2 equivalent"),
    REGION("pue", pue, "energy of the site / energy of its computers"),
    REGION("price_per_kwh", price_per_kwh, "for owned devices"),
};
static const by__config_key_list region_list = BY__KEY_LIST(region_fields);
static const by__config_key keys[] = {
    {"", "prices", BY__KEY_RECORDS, BY__OWN(price_file, prices), "[]", .fields = &price_list,
     .size = sizeof(price_keys), .help = "devices"},
    {"", "regions", BY__KEY_RECORDS, BY__OWN(price_file, regions), "[]", .fields = &region_list,
     .size = sizeof(region_keys), .help = "where they run"},
};

static const by__config_section_list section_list = {sections, BY_ARRAY_LENGTH(sections)};
static const by__config_key_list key_list = BY__KEY_LIST(keys);
static const by__config_schema schema = {
    .sections = &section_list, .keys = &key_list, .size = sizeof(price_file)};

static double known(double value)
{
    return value < 0.0 ? (double)NAN : value;
}

static double either(double value, double otherwise)
{
    return value < 0.0 ? otherwise : value;
}

/* Refuses a name that is not in the file. */
static by_status refuse(const by_string *names, const char *file, const char *what,
                        const char *name, by_error *error)
{
    BY_TRY(by_string_check(names, error));
    return by_error_set(error, BY_EARG, "%s: no %s '%s'; it has: %s", file, what, name,
                        names->data == NULL ? "none" : names->data);
}

static by_status take_price(by_price *out, const price_file *f, const char *file,
                            const char *device, by_error *error)
{
    const price_keys *items = f->prices.items;
    by_string names = {0};
    for (size_t i = 0; i < f->prices.count; i++) {
        const price_keys *k = &items[i];
        if (strcasecmp(k->device, device) == 0) {
            by_string_free(&names);
            *out = (by_price){.per_hour = known(k->per_hour),
                              .spot_per_hour = known(k->spot_per_hour),
                              .purchase = known(k->purchase),
                              .upkeep_per_month = either(k->upkeep_per_month, 0.0),
                              .watts = known(either(k->watts, k->tdp_watts)),
                              .idle_watts = either(k->idle_watts, 0.0),
                              .tflops = known(k->tflops)};
            (void)snprintf(out->device, sizeof out->device, "%s", device);
            return by__cost_check_price(out, file, device, error);
        }
        by_string_format(&names, "%s%s", i == 0 ? "" : ", ", k->device);
    }
    by_status status = refuse(&names, file, "device", device, error);
    by_string_free(&names);
    return status;
}

static by_status take_region(by_region *out, const price_file *f, const char *file,
                             const char *region, by_error *error)
{
    const region_keys *items = f->regions.items;
    by_string names = {0};
    for (size_t i = 0; i < f->regions.count; i++) {
        const region_keys *k = &items[i];
        if (strcasecmp(k->region, region) == 0) {
            by_string_free(&names);
            *out = (by_region){.grams_per_kwh = known(k->grams_per_kwh),
                               .pue = either(k->pue, 1.0),
                               .price_per_kwh = known(k->price_per_kwh)};
            return by__cost_check_region(out, file, region, error);
        }
        by_string_format(&names, "%s%s", i == 0 ? "" : ", ", k->region);
    }
    by_status status = refuse(&names, file, "region", region, error);
    by_string_free(&names);
    return status;
}

/* Takes one of the two of a file that was parsed. */
static by_status take(by_price *price, by_region *region, by_config *config, const char *file,
                      const char *name, by_error *error)
{
    const price_file *own = ((by__config *)config)->own;
    by_status status = price != NULL ? take_price(price, own, file, name, error)
                                     : take_region(region, own, file, name, error);
    by_config_close(&config);
    return status;
}

by_status by_price_parse(by_price *out, const char *name, const char *text, size_t length,
                         const char *device, by_error *error)
{
    by_config *config = NULL;
    BY_TRY(by__config_parse(&config, &schema, name, text, length, NULL, 0, false, error));
    return take(out, NULL, config, name, device, error);
}

by_status by_region_parse(by_region *out, const char *name, const char *text, size_t length,
                          const char *region, by_error *error)
{
    by_config *config = NULL;
    BY_TRY(by__config_parse(&config, &schema, name, text, length, NULL, 0, false, error));
    return take(NULL, out, config, name, region, error);
}

static bool is_yaml(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot != NULL && (strcasecmp(dot, ".yaml") == 0 || strcasecmp(dot, ".yml") == 0);
}

by_status by_price_read(by_price *out, const char *path, const char *device, by_error *error)
{
    by_config *config = NULL;
    by_table *table;
    if (is_yaml(path)) {
        BY_TRY(by__config_open(&config, &schema, path, NULL, 0, false, error));
        return take(out, NULL, config, path, device, error);
    }
    BY_TRY(by_table_open(&table, path, NULL, error));
    by_status status = by_price_find(out, table, device, error);
    by_table_close(&table);
    return status;
}

by_status by_region_read(by_region *out, const char *path, const char *region, by_error *error)
{
    by_config *config = NULL;
    by_table *table;
    if (is_yaml(path)) {
        BY_TRY(by__config_open(&config, &schema, path, NULL, 0, false, error));
        return take(NULL, out, config, path, region, error);
    }
    BY_TRY(by_table_open(&table, path, NULL, error));
    by_status status = by_region_find(out, table, region, error);
    by_table_close(&table);
    return status;
}
