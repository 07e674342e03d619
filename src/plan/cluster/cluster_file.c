/* The YAML file of a cluster. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/cluster.h"
#include "config/schema.h"

/* The file as its keys have it, in the units of their names. */
typedef struct cluster_keys {
    char *name;
    struct {
        char *name;
        char *from;
        by_string_list guesses;
        double f32_tflops;
        double bf16_tflops;
        double fp8_tflops;
        double product_share;
        double attention_share;
        int64_t memory;
        double memory_gb_s;
        double score_bytes;
        double launch_us;
        double host_us;
        double step_us;
        double compute_slowdown;
        double exchange_slowdown;
        double price_per_hour;
        double watts;
    } device;
    by_record_list levels;
} cluster_keys;

typedef struct level_keys {
    char *name;
    char *from;
    int64_t width;
    double latency_us;
    double gb_s;
    double sum_gb_s;
} level_keys;

#define ORIGINS "measured|table|datasheet|guess"
#define RATE    1e9

static const by__config_section sections[] = {
    {"", "Keys at the top of the file.", 0},
    {"device", "What one device can do.", 0},
};

/* clang-format off: one row a key */
#define OWN(member) BY__OWN(cluster_keys, member)
static const by__config_key level_fields[] = {
    {"levels", "name", BY__KEY_TEXT, BY__OWN(level_keys, name), NULL, .min = 1,
     .help = "host, rack, ..."},
    {"levels", "width", BY__KEY_INT, BY__OWN(level_keys, width), NULL, 1, BY__MI24,
     .help = "units of the level below that it joins"},
    {"levels", "latency_us", BY__KEY_REAL, BY__OWN(level_keys, latency_us), "10", 0, 1e9,
     .help = "microseconds of a message"},
    {"levels", "gb_s", BY__KEY_REAL, BY__OWN(level_keys, gb_s), NULL, 0, RATE, BY__ABOVE_MIN,
     .help = "1e9 bytes a second that a unit sends to the others"},
    {"levels", "sum_gb_s", BY__KEY_REAL, BY__OWN(level_keys, sum_gb_s), "0", 0, RATE,
     .help = "1e9 bytes a second that a sum adds up; 0: not counted"},
    {"levels", "from", BY__KEY_TEXT, BY__OWN(level_keys, from), "guess", .choices = ORIGINS,
     .help = "where the figures are from"},
};
static const by__config_key_list level_list = BY__KEY_LIST(level_fields);

static const by__config_key keys[] = {
    {"", "name", BY__KEY_TEXT, OWN(name), "cluster", .min = 1, .help = "of the cluster"},
    {"", "levels", BY__KEY_RECORDS, OWN(levels), "[]", .fields = &level_list,
     .size = sizeof(level_keys), .help = "levels of the network, innermost first"},
    {"device", "name", BY__KEY_TEXT, OWN(device.name), "device", .min = 1,
     .help = "as tables of prices name it"},
    {"device", "from", BY__KEY_TEXT, OWN(device.from), "guess", .choices = ORIGINS,
     .help = "where the figures are from"},
    {"device", "guesses", BY__KEY_TEXTS, OWN(device.guesses), "[]",
     .help = "keys of this section whose figures are guesses, as all that it leaves out"},
    {"device", "f32_tflops", BY__KEY_REAL, OWN(device.f32_tflops), "0", 0, RATE,
     .help = "peak of products in f32, 1e12 operations a second"},
    {"device", "bf16_tflops", BY__KEY_REAL, OWN(device.bf16_tflops), "0", 0, RATE,
     .help = "the same in bf16 and f16; 0: as f32"},
    {"device", "fp8_tflops", BY__KEY_REAL, OWN(device.fp8_tflops), "0", 0, RATE,
     .help = "the same in 8 bits; 0: as bf16"},
    {"device", "product_share", BY__KEY_REAL, OWN(device.product_share), "0.8", 0, 1, BY__ABOVE_MIN,
     .help = "share of the peak that large products reach"},
    {"device", "attention_share", BY__KEY_REAL, OWN(device.attention_share), "0.5", 0, 1,
     BY__ABOVE_MIN, .help = "share of the peak that attention reaches"},
    {"device", "memory", BY__KEY_SIZE, OWN(device.memory), "0", 0, BY__COUNT_LIMIT,
     .help = "bytes; 0: unknown, all plans fit"},
    {"device", "memory_gb_s", BY__KEY_REAL, OWN(device.memory_gb_s), "0", 0, RATE,
     .help = "1e9 bytes a second of this memory; 0: a 200th of the peak of products"},
    {"device", "score_bytes", BY__KEY_REAL, OWN(device.score_bytes), "0", 0, RATE,
     .help = "bytes of memory that attention moves for each score; 0: it keeps none"},
    {"device", "launch_us", BY__KEY_REAL, OWN(device.launch_us), "0", 0, 1e9,
     .help = "microseconds that an operation takes at least"},
    {"device", "host_us", BY__KEY_REAL, OWN(device.host_us), "0", 0, 1e9,
     .help = "microseconds that the host takes to issue one, ahead of the device"},
    {"device", "step_us", BY__KEY_REAL, OWN(device.step_us), "0", 0, 1e9,
     .help = "microseconds of a step outside of programs"},
    {"device", "compute_slowdown", BY__KEY_REAL, OWN(device.compute_slowdown), "0.1", 0, 100,
     .help = "how much longer computation takes during communication: 0.1 is 10 %"},
    {"device", "exchange_slowdown", BY__KEY_REAL, OWN(device.exchange_slowdown), "0.1", 0, 100,
     .help = "how much longer communication takes during computation"},
    {"device", "price_per_hour", BY__KEY_REAL, OWN(device.price_per_hour), "-1", 0, RATE,
     .derived = "unknown", .help = "money for an hour of one device"},
    {"device", "watts", BY__KEY_REAL, OWN(device.watts), "-1", 0, RATE, .derived = "unknown",
     .help = "while it computes"},
};
/* clang-format on */

static const by__config_section_list section_list = {sections, BY_ARRAY_LENGTH(sections)};
static const by__config_key_list key_list = BY__KEY_LIST(keys);
static const by__config_schema schema = {
    .sections = &section_list, .keys = &key_list, .size = sizeof(cluster_keys)};

static const char *const origins[BY_ORIGINS] = {"measured", "table", "datasheet", "guess"};

const char *by_origin_name(by_origin origin)
{
    return origins[origin];
}

static by_origin origin_of(const char *name)
{
    int found = 0;
    while (found + 1 < BY_ORIGINS && strcmp(origins[found], name) != 0) {
        found++;
    }
    return (by_origin)found;
}

static by_status copy_name(char out[BY_CLUSTER_NAME], const char *name, const char *file,
                           by_error *error)
{
    if (strlen(name) >= BY_CLUSTER_NAME) {
        return by_error_set(error, BY_ECONFIG, "%s: the name '%.60s' has more than %d characters",
                            file, name, BY_CLUSTER_NAME - 1);
    }
    (void)snprintf(out, BY_CLUSTER_NAME, "%s", name);
    return BY_OK;
}

/* Keys of the figures of by_cluster_figure, in their order. */
static const char *const figure_keys[BY_FIGURES] = {
    "f32_tflops", "bf16_tflops", "product_share", "attention_share",  "memory_gb_s",
    "launch_us",  "host_us",     "step_us",       "compute_slowdown", "exchange_slowdown"};

/* What the file leaves out, and what it says is a guess. */
static by_status take_guesses(by_cluster_device *d, const cluster_keys *k, const by_config *config,
                              const char *file, by_error *error)
{
    for (int i = 0; i < BY_FIGURES; i++) {
        char key[64];
        (void)snprintf(key, sizeof key, "device.%s", figure_keys[i]);
        d->guessed |= by__config_is_given(config, key) ? 0u : 1u << i;
    }
    for (size_t g = 0; g < k->device.guesses.count; g++) {
        const char *name = k->device.guesses.items[g];
        int i = 0;
        while (i < BY_FIGURES && strcmp(figure_keys[i], name) != 0) {
            i++;
        }
        if (i == BY_FIGURES) {
            return by_error_set(error, BY_ECONFIG,
                                "%s: device.guesses has '%.60s', which is no figure of a step: "
                                "name keys such as product_share or memory_gb_s",
                                file, name);
        }
        d->guessed |= 1u << i;
    }
    return BY_OK;
}

static by_status take_device(by_cluster_device *d, const cluster_keys *k, const by_config *config,
                             const char *file, by_error *error)
{
    BY_TRY(copy_name(d->name, k->device.name, file, error));
    BY_TRY(take_guesses(d, k, config, file, error));
    d->origin = origin_of(k->device.from);
    d->f32_flops = 1e12 * k->device.f32_tflops;
    d->bf16_flops = 1e12 * k->device.bf16_tflops;
    d->f32_flops = d->f32_flops > 0.0 ? d->f32_flops : d->bf16_flops;
    d->bf16_flops = d->bf16_flops > 0.0 ? d->bf16_flops : d->f32_flops;
    d->fp8_flops = k->device.fp8_tflops > 0.0 ? 1e12 * k->device.fp8_tflops : d->bf16_flops;
    d->product_share = k->device.product_share;
    d->attention_share = k->device.attention_share;
    d->memory = (double)k->device.memory;
    d->bandwidth = k->device.memory_gb_s > 0.0 ? 1e9 * k->device.memory_gb_s : d->bf16_flops / 200;
    d->score_bytes = k->device.score_bytes;
    d->launch = 1e-6 * k->device.launch_us;
    d->host = 1e-6 * k->device.host_us;
    d->step = 1e-6 * k->device.step_us;
    d->compute_slowdown = k->device.compute_slowdown;
    d->exchange_slowdown = k->device.exchange_slowdown;
    d->price = k->device.price_per_hour < 0.0 ? (double)NAN : k->device.price_per_hour;
    d->watts = k->device.watts < 0.0 ? (double)NAN : k->device.watts;
    return d->f32_flops > 0.0
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "%s: device has neither f32_tflops nor bf16_tflops: give a peak of "
                              "matrix products, in 1e12 operations a second",
                              file);
}

static by_status take(by_cluster *out, const by_config *config, const char *file, by_error *error)
{
    by_cluster c = {0};
    const cluster_keys *k = ((const by__config *)config)->own;
    const level_keys *levels = k->levels.items;
    BY_TRY(copy_name(c.name, k->name, file, error));
    BY_TRY(take_device(&c.device, k, config, file, error));
    if (k->levels.count == 0 || k->levels.count > BY_CLUSTER_LEVELS) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: %zu levels: give 1 to %d, such as `levels: [{name: host, width: "
                            "8, gb_s: 300}]`",
                            file, k->levels.count, BY_CLUSTER_LEVELS);
    }
    for (size_t i = 0; i < k->levels.count; i++) {
        by_cluster_level *l = &c.levels[c.level_count++];
        BY_TRY(copy_name(l->name, levels[i].name, file, error));
        l->origin = origin_of(levels[i].from);
        l->width = levels[i].width;
        l->latency = 1e-6 * levels[i].latency_us;
        l->bandwidth = 1e9 * levels[i].gb_s;
        l->sum = levels[i].sum_gb_s > 0.0 ? 1e-9 / levels[i].sum_gb_s : 0.0;
    }
    *out = c;
    return BY_OK;
}

static by_status take_config(by_cluster *out, by_config *config, const char *file, by_error *error)
{
    by_status status = take(out, config, file, error);
    by_config_close(&config);
    return status;
}

by_status by_cluster_read(by_cluster *out, const char *path, by_error *error)
{
    by_config *config = NULL;
    BY_TRY(by__config_open(&config, &schema, path, NULL, 0, false, error));
    return take_config(out, config, path, error);
}

by_status by_cluster_parse(by_cluster *out, const char *name, const char *text, size_t length,
                           by_error *error)
{
    by_config *config = NULL;
    BY_TRY(by__config_parse(&config, &schema, name, text, length, NULL, 0, false, error));
    return take_config(out, config, name, error);
}

static void print_guesses(by_string *out, unsigned guessed)
{
    const char *before = "  guesses: [";
    for (int i = 0; i < BY_FIGURES; i++) {
        if ((guessed >> i & 1u) != 0) {
            by_string_format(out, "%s%s", before, figure_keys[i]);
            before = ", ";
        }
    }
    by_string_format(out, "%s", guessed != 0 ? "]\n" : "");
}

static void print_known(by_string *out, const char *key, double value)
{
    if (!isnan(value)) {
        by_string_format(out, "  %s: %.9g\n", key, value);
    }
}

by_status by_cluster_print(char **out, const by_cluster *c, by_error *error)
{
    const by_cluster_device *d = &c->device;
    by_string text = {0};
    by_string_format(&text, "name: ");
    by_string_json(&text, c->name, strlen(c->name));
    by_string_format(&text, "\ndevice:\n  name: ");
    by_string_json(&text, d->name, strlen(d->name));
    by_string_format(&text, "\n  from: %s\n", by_origin_name(d->origin));
    print_guesses(&text, d->guessed);
    by_string_format(&text,
                     "  f32_tflops: %.9g\n  bf16_tflops: %.9g\n  fp8_tflops: %.9g\n"
                     "  product_share: %.4g\n  attention_share: %.4g\n  memory: %.0f\n"
                     "  memory_gb_s: %.9g\n  score_bytes: %.9g\n  launch_us: %.9g\n  host_us: "
                     "%.9g\n  step_us: %.9g\n"
                     "  compute_slowdown: %.4g\n  exchange_slowdown: %.4g\n",
                     1e-12 * d->f32_flops, 1e-12 * d->bf16_flops, 1e-12 * d->fp8_flops,
                     d->product_share, d->attention_share, d->memory, 1e-9 * d->bandwidth,
                     d->score_bytes, 1e6 * d->launch, 1e6 * d->host, 1e6 * d->step,
                     d->compute_slowdown, d->exchange_slowdown);
    print_known(&text, "price_per_hour", d->price);
    print_known(&text, "watts", d->watts);
    by_string_format(&text, "levels:\n");
    for (int i = 0; i < c->level_count; i++) {
        const by_cluster_level *l = &c->levels[i];
        by_string_format(&text, "  - {name: ");
        by_string_json(&text, l->name, strlen(l->name));
        by_string_format(&text, ", width: %lld, latency_us: %.9g, gb_s: %.9g", (long long)l->width,
                         1e6 * l->latency, 1e-9 * l->bandwidth);
        if (l->sum > 0.0) {
            by_string_format(&text, ", sum_gb_s: %.9g", 1e-9 / l->sum);
        }
        by_string_format(&text, ", from: %s}\n", by_origin_name(l->origin));
    }
    by_status status = by_string_check(&text, error);
    if (status == BY_OK) {
        *out = text.data;
    } else {
        by_string_free(&text);
    }
    return status;
}
