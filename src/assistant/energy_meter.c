/* What the machine drew: counters of the processors (RAPL), and the power of the GPU over time. */
#include <stdlib.h>
#include <string.h>

#include "assistant/assistant.h"
#include "banyan/device_meter.h"

#define MOST_DOMAINS 16

/* A processor's counter of microjoules, which begins again at 0 after `range`. */
typedef struct energy_domain {
    char *path;
    double range;
    double last;
} energy_domain;

struct by__assistant_meter {
    energy_domain domains[MOST_DOMAINS];
    size_t count;
    by_device_meter *device; /* NULL: none */
    double watts;            /* of the device at the last reading; below 0: unknown */
    double then;             /* when that was */
};

static bool read_number(double *out, const char *path)
{
    char *text;
    size_t length;
    char *end;
    if (by__file_read(&text, &length, path, 64, NULL) != BY_OK) {
        return false;
    }
    *out = strtod(text, &end);
    bool good = end != text;
    free(text);
    return good;
}

/* Adds a package; domains within one, such as "intel-rapl:0:1", are parts of it. */
static void add_domain(by__assistant_meter *m, const char *root, const char *name)
{
    by_string path = {0};
    energy_domain *d = &m->domains[m->count];
    const char *colon = strchr(name, ':');
    if (colon == NULL || strchr(colon + 1, ':') != NULL || m->count == MOST_DOMAINS) {
        return;
    }
    by_string_format(&path, "%s/%s/max_energy_range_uj", root, name);
    bool good = !path.failed && read_number(&d->range, path.data);
    path.length = 0;
    by_string_format(&path, "%s/%s/energy_uj", root, name);
    good = good && !path.failed && read_number(&d->last, path.data);
    if (good && by__string_release(&path, &d->path, NULL) == BY_OK) {
        m->count++;
    }
    by_string_free(&path);
}

static double device_watts(const by__assistant_meter *m)
{
    by_device_usage usage;
    return m->device != NULL && by_device_meter_read(&usage, m->device, NULL) == BY_OK ? usage.watts
                                                                                       : -1.0;
}

by_status by__assistant_meter_open(by__assistant_meter **out, const char *root, const char *device,
                                   by_error *error)
{
    by__assistant_meter *m;
    char **names;
    size_t count;
    BY_TRY(by__alloc((void **)&m, 1, sizeof *m, "an energy meter", error));
    if (by__list_dir(&names, &count, root, NULL) == BY_OK) {
        for (size_t i = 0; i < count; i++) {
            add_domain(m, root, names[i]);
        }
        by__names_free(names, count);
    }
    if (by_device_meter_open(&m->device, device, NULL) != BY_OK) {
        m->device = NULL;
    }
    m->watts = device_watts(m);
    m->then = by__now();
    *out = m;
    return BY_OK;
}

double by__assistant_meter_read(by__assistant_meter *m)
{
    double joules = m->count > 0 || m->watts >= 0.0 ? 0.0 : -1.0;
    for (size_t i = 0; i < m->count; i++) {
        energy_domain *d = &m->domains[i];
        double now;
        if (read_number(&now, d->path)) {
            joules += 1e-6 * (now >= d->last ? now - d->last : now + d->range - d->last);
            d->last = now;
        }
    }
    if (m->watts >= 0.0) {
        double watts = device_watts(m);
        double now = by__now();
        joules += 0.5 * (m->watts + (watts >= 0.0 ? watts : m->watts)) * (now - m->then);
        m->watts = watts >= 0.0 ? watts : m->watts;
        m->then = now;
    }
    return joules;
}

void by__assistant_meter_close(by__assistant_meter **meter)
{
    by__assistant_meter *m = *meter;
    *meter = NULL;
    if (m == NULL) {
        return;
    }
    for (size_t i = 0; i < m->count; i++) {
        free(m->domains[i].path);
    }
    by_device_meter_close(&m->device);
    free(m);
}
