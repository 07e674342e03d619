/* What the measurements share. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "banyan/cluster.h"
#include "bench/bench.h"

by_status cli_parse_counts(int *out, size_t *count, size_t most, const char *flag, const char *text,
                           int largest, by_error *error)
{
    int before = 0;
    const char *at = text;
    *count = 0;
    while (*count < most) {
        char *end;
        long value = strtol(at, &end, 10);
        if (end == at || value <= before || value > largest) {
            break;
        }
        before = (int)value;
        out[(*count)++] = before;
        if (*end == '\0') {
            return BY_OK;
        }
        if (*end != ',') {
            break;
        }
        at = end + 1;
    }
    return by_error_set(
        error, BY_EARG,
        "%s %s: give up to %zu numbers from 1 to %d in ascending order, such as 1,2,4", flag, text,
        most, largest);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double cli_median(double *values, size_t count)
{
    if (count == 0) {
        return 0.0;
    }
    qsort(values, count, sizeof *values, compare);
    return count % 2 == 1 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}

static bool multiplies_bytes(const char *precision)
{
    return strcmp(precision, "w8a8") == 0;
}

unsigned cli_peak_figures(const char *precision, by_dtype dtype)
{
    unsigned figure = dtype == BY_BF16 ? BY_MACHINE_BF16 : BY_MACHINE_F32;
    return multiplies_bytes(precision) ? figure | BY_MACHINE_INT8 : figure;
}

double cli_peak(const by_machine *machine, const char *precision, by_dtype dtype)
{
    return multiplies_bytes(precision) && machine->int8_gops > 0.0
               ? machine->int8_gops
               : by_machine_gflops(machine, dtype);
}

double cli_process_age_ms(void)
{
    char text[1024] = "";
    unsigned long long ticks = 0;
    struct timespec now;
    FILE *file = fopen("/proc/self/stat", "r");
    if (file == NULL) {
        return 0.0;
    }
    size_t n = fread(text, 1, sizeof text - 1, file);
    (void)fclose(file);
    text[n] = '\0';
    /* Field 22 is the start time. The name in field 2 may contain spaces, so count from its end. */
    const char *p = strrchr(text, ')');
    for (int field = 2; p != NULL && field < 22; field++) {
        p = strchr(p + 1, ' ');
    }
    if (p == NULL || sscanf(p, " %llu", &ticks) != 1) {
        return 0.0;
    }
    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return 1e3 * ((double)now.tv_sec + 1e-9 * (double)now.tv_nsec -
                  (double)ticks / (double)sysconf(_SC_CLK_TCK));
}

by_status cli_assume_sizes(by_config *config, by_error *error)
{
    const by_task *task;
    by_status status = by_config_inherit_model(config, error);
    if (status == BY_OK) {
        status = by_task_find(&task, config, error);
    }
    if (status == BY_OK) {
        task->assume(config);
        status = by_config_resolve(config, error);
    }
    return status;
}

/* A linear congruential generator (with Knuth's MMIX constants). */
void cli_random_tokens(int32_t *tokens, size_t count, int64_t vocab)
{
    uint64_t state = 1;
    for (size_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        tokens[i] = (int32_t)((state >> 33) % (uint64_t)vocab);
    }
}

by_status cli_write_cluster(const by_cluster *cluster, const char *path, by_error *error)
{
    char *text;
    by_status status = by_cluster_print(&text, cluster, error);
    if (status != BY_OK) {
        return status;
    }
    FILE *file = fopen(path, "w");
    bool good = file != NULL && fputs(text, file) >= 0;
    good = (file == NULL || fclose(file) == 0) && good;
    free(text);
    cli_tell_written(good ? path : NULL);
    return good ? BY_OK : by_error_set(error, BY_EIO, "%s: cannot be written", path);
}
