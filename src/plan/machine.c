#include <dirent.h>
#include <gnu/libc-version.h>
#include <jansson.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "plan/plan.h"

by_status by__plan_machine_describe(by_machine *out, const char *name, const by_device *device,
                                    by_error *error)
{
    by_device_info info;
    by_machine machine = {.cores = by__thread_count(-1)};
    BY_TRY(by_device_describe(&info, device, error));
    machine.threads = info.threads;
    machine.memory = info.memory_free == UINT64_MAX ? 0.0 : (double)info.memory_free;
    (void)snprintf(machine.device, sizeof machine.device, "%s", name);
    (void)snprintf(machine.isa, sizeof machine.isa, "%s", info.level);
    by__plan_machine_identify(&machine, "/proc/cpuinfo");
    if (!info.host_memory) {
        (void)snprintf(machine.cpu, sizeof machine.cpu, "%s", info.name);
        (void)snprintf(machine.key, sizeof machine.key, "%s %.120s", info.name, info.version);
    }
    *out = machine;
    return BY_OK;
}

by_status by_machine_describe(by_machine *out, const char *device, int threads, by_error *error)
{
    by_device *opened;
    char name[BY_DEVICE_NAME];
    BY_TRY(by_device_resolve(name, device, error));
    BY_TRY(by_device_open(&opened, name, threads, error));
    by_status status = by__plan_machine_describe(out, name, opened, error);
    by_device_close(&opened);
    return status;
}

const char *const *by_machine_levels(size_t *count)
{
    return by__cpu_host_levels(count);
}

by_status by_machine_libraries(char **out, by_error *error)
{
    by_string text = {0};
    char version[32];
    by_string_format(&text, "banyan %s", BY_VERSION);
    if (by__plan_onednn_version(version)[0] != '\0') {
        by_string_format(&text, ", oneDNN %s", version);
    }
    by_string_format(&text, ", OpenMP %d, glibc %s, jansson %s", _OPENMP, gnu_get_libc_version(),
                     JANSSON_VERSION);
    return by__string_release(&text, out, error);
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Libraries on the host compete with the host's kernels only. */
static by_status measure_figure(by_machine *m, by_device *device, unsigned figure, by_error *error)
{
    bool host = device->host_memory;
    switch (figure) {
    case BY_MACHINE_F32:
        BY_TRY(by__plan_measure_products(&m->own_f32_gflops, BY_F32, device, error));
        m->f32_gflops = larger(m->own_f32_gflops,
                               host ? by__plan_measure_onednn(BY_F32, m->isa, m->threads) : 0.0);
        return BY_OK;
    case BY_MACHINE_BF16:
        BY_TRY(by__plan_measure_products(&m->own_bf16_gflops, BY_BF16, device, error));
        m->bf16_gflops = larger(m->own_bf16_gflops,
                                host ? by__plan_measure_onednn(BY_BF16, m->isa, m->threads) : 0.0);
        return BY_OK;
    case BY_MACHINE_INT8:
        m->int8_gops = host ? larger(by__plan_measure_byte_products(m->isa, m->threads),
                                     by__plan_measure_onednn(BY_U8, m->isa, m->threads))
                            : 0.0;
        return BY_OK;
    default:
        if (host) {
            return by__plan_measure_memory(&m->read_gbps, &m->copy_gbps, m->threads, error);
        }
        BY_TRY(by__plan_measure_copies(&m->copy_gbps, device, error));
        m->read_gbps = m->copy_gbps;
        return BY_OK;
    }
}

/* The second number of schedstat, in nanoseconds. */
double by__plan_waited(void)
{
    double seconds = 0.0;
    DIR *tasks = opendir("/proc/self/task");
    for (const struct dirent *d; tasks != NULL && (d = readdir(tasks)) != NULL;) {
        char path[64];
        unsigned long long wait = 0;
        (void)snprintf(path, sizeof path, "/proc/self/task/%.20s/schedstat", d->d_name);
        FILE *file = d->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (file != NULL) {
            seconds += fscanf(file, "%*u %llu", &wait) == 1 ? 1e-9 * (double)wait : 0.0;
            (void)fclose(file);
        }
    }
    if (tasks != NULL) {
        (void)closedir(tasks);
    }
    return seconds;
}

/* On an idle machine, threads wait for 2 or 3 % of their time because of daemons. One other busy
 * process makes two threads on two cores wait for a third of it. */
#define MAX_WAIT 0.1

by_status by__plan_machine_measure(by_machine *machine, by_device *device, unsigned figures,
                                   by_error *error)
{
    by_machine m = *machine;
    for (unsigned figure = 1; figure <= BY_MACHINE_MEMORY; figure <<= 1) {
        if ((figures & figure) == 0) {
            continue;
        }
        double before = by__plan_waited();
        double began = by_clock();
        BY_TRY(measure_figure(&m, device, figure, error));
        double threads = m.threads > 0 ? (double)m.threads : 1.0; /* one waits for a device */
        bool busy = by__plan_waited() - before > MAX_WAIT * threads * (by_clock() - began);
        m.busy = busy ? m.busy | figure : m.busy & ~figure;
    }
    *machine = m;
    return BY_OK;
}

by_status by_machine_measure(by_machine *machine, unsigned figures, by_error *error)
{
    by_device *device;
    BY_TRY(by_device_open(&device, machine->device, machine->threads, error));
    by_status status = by__plan_machine_measure(machine, device, figures, error);
    by_device_close(&device);
    return status;
}

/* Returns those of `figures` that are unknown. Not every level has an int8 figure. */
static unsigned unknown(const by_machine *m, unsigned figures)
{
    unsigned known = (m->f32_gflops > 0.0 ? BY_MACHINE_F32 : 0u) |
                     (m->bf16_gflops > 0.0 ? BY_MACHINE_BF16 : 0u) |
                     (m->int8_gops > 0.0 ? BY_MACHINE_INT8 : 0u) |
                     (m->read_gbps > 0.0 && m->copy_gbps > 0.0 ? BY_MACHINE_MEMORY : 0u);
    return figures & ~known;
}

by_status by_machine_load(by_machine *out, const char *device, int threads, unsigned figures,
                          by_error *error)
{
    by_machine machine;
    char *path = NULL;
    BY_TRY(by_machine_describe(&machine, device, threads, error));
    if (by_machine_cache_path(&path, NULL) == BY_OK) {
        by__plan_machine_recall(&machine, path);
    }
    by_status status = BY_OK;
    unsigned wanted = unknown(&machine, figures);
    unsigned low = machine.retries < BY_MACHINE_RETRIES ? figures & machine.busy : 0;
    if ((wanted | low) != 0) {
        by_machine known = machine;
        machine.retries += low != 0 ? 1 : 0;
        status = by_machine_measure(&machine, wanted | low, error);
        by__plan_machine_raise(&machine, &known);
        if (status == BY_OK && path != NULL) {
            /* A failure to write the cache only means that the next process measures again. */
            (void)by__plan_machine_remember(&machine, path, NULL);
        }
    }
    free(path);
    if (status == BY_OK) {
        *out = machine;
    }
    return status;
}

/* The host converts f16 and multiplies f32; a GPU multiplies both halves at one rate. */
static bool is_fast(by_dtype dtype, const char *device)
{
    return dtype == BY_BF16 || (dtype == BY_F16 && strncmp(device, "cpu", 3) != 0);
}

double by_machine_gflops(const by_machine *machine, by_dtype dtype)
{
    return is_fast(dtype, machine->device) ? machine->bf16_gflops : machine->f32_gflops;
}

double by_machine_roof(const by_machine *machine, by_dtype dtype, double flops, double bytes)
{
    double gflops = by_machine_gflops(machine, dtype);
    double gbps = larger(machine->read_gbps, machine->copy_gbps);
    return larger(gflops > 0.0 ? 1e-9 * flops / gflops : 0.0,
                  gbps > 0.0 ? 1e-9 * bytes / gbps : 0.0);
}

static by_status figure_of(unsigned *figure, by_dtype dtype, const char *device, by_error *error)
{
    char name[BY_DEVICE_NAME];
    if (!by_dtype_is_float(dtype)) {
        return by_error_set(error, BY_EARG, "peak: %s is not f32, bf16 or f16",
                            by_dtype_name(dtype));
    }
    BY_TRY(by_device_resolve(name, device, error));
    *figure = is_fast(dtype, name) ? BY_MACHINE_BF16 : BY_MACHINE_F32;
    return BY_OK;
}

by_status by_machine_peak(double *gflops, by_dtype dtype, const char *device, int threads,
                          by_error *error)
{
    by_machine machine;
    unsigned figure = 0;
    BY_TRY(figure_of(&figure, dtype, device, error));
    BY_TRY(by_machine_load(&machine, device, threads, figure, error));
    *gflops = by_machine_gflops(&machine, dtype);
    return BY_OK;
}

by_status by_machine_measure_peak(double *gflops, by_dtype dtype, const char *device, int threads,
                                  by_error *error)
{
    by_machine machine;
    unsigned figure = 0;
    BY_TRY(figure_of(&figure, dtype, device, error));
    BY_TRY(by_machine_describe(&machine, device, threads, error));
    BY_TRY(by_machine_measure(&machine, figure, error));
    *gflops = by_machine_gflops(&machine, dtype);
    return BY_OK;
}
