#include "track/system_load.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

/* Reads the first bytes of a small file. Returns false if it cannot be read. */
static bool read_small(char *text, size_t size, const char *root, const char *path)
{
    char full[600];
    (void)snprintf(full, sizeof full, "%s%s", root, path);
    FILE *file = fopen(full, "re");
    if (file == NULL) {
        return false;
    }
    size_t n = fread(text, 1, size - 1, file);
    (void)fclose(file);
    text[n] = '\0';
    return n > 0;
}

/* Returns the number after a key at the start of a line, or NaN. */
static double number_of(const char *text, const char *key)
{
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, strlen(key)) == 0) {
            return strtod(line + strlen(key), NULL);
        }
    }
    return (double)NAN;
}

/* Recognises the sensors of CPUs in /sys/class/hwmon, and CPU thermal zones. */
static bool is_cpu_sensor(const char *name)
{
    static const char *const names[] = {"coretemp",    "k10temp",      "zenpower", "cpu_thermal",
                                        "cpu-thermal", "x86_pkg_temp", "acpitz"};
    bool found = false;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(names); i++) {
        size_t n = strlen(names[i]);
        found = found || (strncmp(name, names[i], n) == 0 && (name[n] == '\n' || name[n] == '\0'));
    }
    return found;
}

static void update_temperature(double *hottest, const char *root, const char *path)
{
    char text[64];
    if (read_small(text, sizeof text, root, path)) {
        double degrees = strtod(text, NULL) / 1000.0;
        bool plausible = degrees > -100.0 && degrees < 200.0;
        *hottest = plausible && !(degrees <= *hottest) ? degrees : *hottest;
    }
}

static double temperature(const char *root)
{
    enum { most = 32, inputs = 16 };
    double hottest = (double)NAN;
    for (int i = 0; i < most; i++) {
        char path[128];
        char name[64];
        (void)snprintf(path, sizeof path, "/sys/class/hwmon/hwmon%d/name", i);
        if (read_small(name, sizeof name, root, path) && is_cpu_sensor(name)) {
            for (int k = 1; k <= inputs; k++) {
                (void)snprintf(path, sizeof path, "/sys/class/hwmon/hwmon%d/temp%d_input", i, k);
                update_temperature(&hottest, root, path);
            }
        }
    }
    for (int i = 0; i < most && isnan(hottest); i++) {
        char path[128];
        char name[64];
        (void)snprintf(path, sizeof path, "/sys/class/thermal/thermal_zone%d/type", i);
        if (read_small(name, sizeof name, root, path) && is_cpu_sensor(name)) {
            (void)snprintf(path, sizeof path, "/sys/class/thermal/thermal_zone%d/temp", i);
            update_temperature(&hottest, root, path);
        }
    }
    return hottest;
}

/* Reads the ticks of all CPUs: user nice system idle iowait irq softirq steal, two of them idle. */
static bool read_ticks(uint64_t *busy, uint64_t *all, const char *root)
{
    char text[4096];
    if (!read_small(text, sizeof text, root, "/proc/stat") || strncmp(text, "cpu ", 4) != 0) {
        return false;
    }
    char *at = text + 4;
    *busy = 0;
    *all = 0;
    for (int i = 0; i < 8; i++) {
        uint64_t ticks = strtoull(at, &at, 10);
        *all += ticks;
        *busy += i == 3 || i == 4 ? 0 : ticks;
    }
    return true;
}

static double seconds_of(const struct timeval *t)
{
    return (double)t->tv_sec + 1e-6 * (double)t->tv_usec;
}

static void read_cpu(by__track_system_load *out, by__track_system_past *past, const char *root)
{
    struct rusage used;
    by__track_system_past now = {.clock = by__now()};
    bool was = past->clock > 0.0;
    double wall = now.clock - past->clock;
    out->cpu_cores = (double)NAN;
    out->cpu_share = (double)NAN;
    if (getrusage(RUSAGE_SELF, &used) == 0) {
        now.cpu_seconds = seconds_of(&used.ru_utime) + seconds_of(&used.ru_stime);
        out->cpu_cores =
            was && wall > 0.0 ? (now.cpu_seconds - past->cpu_seconds) / wall : (double)NAN;
    }
    if (read_ticks(&now.busy_ticks, &now.all_ticks, root) && past->all_ticks > 0 &&
        now.all_ticks > past->all_ticks && now.busy_ticks >= past->busy_ticks) {
        out->cpu_share =
            (double)(now.busy_ticks - past->busy_ticks) / (double)(now.all_ticks - past->all_ticks);
    }
    *past = now;
}

void by__track_system_read(by__track_system_load *out, by__track_system_past *past,
                           const char *directory, const char *root)
{
    char text[4096];
    struct statvfs disk;
    by__host_memory memory;
    read_cpu(out, past, root);
    out->temperature = temperature(root);
    out->resident = read_small(text, sizeof text, root, "/proc/self/status")
                        ? 1024.0 * number_of(text, "VmRSS:")
                        : (double)NAN;
    by__memory_available_under(&memory, root);
    out->available = memory.available == UINT64_MAX ? (double)NAN : (double)memory.available;
    out->disk_free = statvfs(directory, &disk) == 0 ? (double)disk.f_bavail * (double)disk.f_frsize
                                                    : (double)NAN;
    out->written = read_small(text, sizeof text, root, "/proc/self/io")
                       ? number_of(text, "write_bytes:")
                       : (double)NAN;
}

/* ---- energy ---- */

/* Reads a number of a zone; NAN: there is none, or it is not readable. */
static double read_zone(const char *root, int zone, const char *file)
{
    char path[96];
    char text[64];
    (void)snprintf(path, sizeof path, "/sys/class/powercap/intel-rapl:%d/%s", zone, file);
    return read_small(text, sizeof text, root, path) ? strtod(text, NULL) : (double)NAN;
}

static bool is_package(const char *root, int zone)
{
    char path[96];
    char name[64];
    (void)snprintf(path, sizeof path, "/sys/class/powercap/intel-rapl:%d/name", zone);
    return read_small(name, sizeof name, root, path) && strncmp(name, "package", 7) == 0;
}

void by__track_energy_begin(by__track_energy *energy, const char *root)
{
    by__track_energy e = {0};
    for (int zone = 0; zone < BY__TRACK_PACKAGES; zone++) {
        double now = is_package(root, zone) ? read_zone(root, zone, "energy_uj") : (double)NAN;
        double range = read_zone(root, zone, "max_energy_range_uj");
        if (now >= 0.0 && range > 0.0) {
            e.package[e.count] = zone;
            e.last[e.count] = now;
            e.range[e.count++] = range;
        }
    }
    *energy = e;
}

void by__track_energy_update(by__track_energy *energy, const char *root)
{
    by__track_energy *e = energy;
    for (int i = 0; i < e->count; i++) {
        double now = read_zone(root, e->package[i], "energy_uj");
        if (now >= 0.0) {
            double used = now - e->last[i];
            e->joules += 1e-6 * (used < 0.0 ? used + e->range[i] : used);
            e->last[i] = now;
        }
    }
}
