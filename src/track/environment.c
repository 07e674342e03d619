#include <cairo.h>
#include <curl/curl.h>
#include <gnu/libc-version.h>
#include <inttypes.h>
#include <jansson.h>
#include <sched.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <xxhash.h>
#include <zlib.h>

#include "revision.h" /* made by cmake/revision.cmake */
#include "track/track.h"

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER ""
#endif

/* What changes which kernels run; the names of /proc/cpuinfo on x86-64 and aarch64. */
static const char *const instruction_sets[] = {
    "sse4_2",   "avx",      "avx2",        "fma",         "f16c",        "avx512f",
    "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16", "avx_vnni",
    "amx_tile", "amx_int8", "amx_bf16",    "asimd",       "asimddp",     "fphp",
    "bf16",     "i8mm",     "sve",         "sve2",
};

/* The value of the first "KEY<separator>VALUE" line in text, without quotes; *length is 0 if none.
 */
static const char *find_line(const char *text, const char *key, char separator, size_t *length)
{
    size_t key_length = strlen(key);
    *length = 0;
    for (const char *line = text; line != NULL && *line != '\0';) {
        const char *end = strchr(line, '\n');
        size_t n = end == NULL ? strlen(line) : (size_t)(end - line);
        const char *value = memchr(line, separator, n);
        if (strncmp(line, key, key_length) == 0 && value != NULL) {
            value += 1 + strspn(value + 1, " \t\"");
            *length = (size_t)(line + n - value);
            while (*length > 0 && value[*length - 1] == '"') {
                (*length)--;
            }
            return value;
        }
        line = end == NULL ? NULL : end + 1;
    }
    return "";
}

/* /proc files have no size to map by, so they are read. NULL when the file cannot be read. */
static char *read_text(const char *path)
{
    by__text text = {0};
    char block[4096];
    char *out = NULL;
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return NULL;
    }
    for (size_t n; (n = fread(block, 1, sizeof block, file)) > 0;) {
        by__text_add_bytes(&text, block, n);
    }
    (void)fclose(file);
    return by__text_take(&text, &out, NULL) == BY_OK ? out : NULL;
}

static void add_field(by__text *text, const char *key, const char *value, size_t n)
{
    by__text_format(text, "  \"%s\": ", key);
    by__text_json(text, value, n);
    by__text_add(text, ",\n");
}

static void add_cpu(by__text *text)
{
    char *info = read_text("/proc/cpuinfo");
    char arm[96];
    size_t n;
    const char *model = find_line(info == NULL ? "" : info, "model name", ':', &n);
    if (n == 0 && info != NULL) { /* 64-bit ARM systems give numbers instead */
        size_t part_length;
        const char *maker = find_line(info, "CPU implementer", ':', &n);
        const char *part = find_line(info, "CPU part", ':', &part_length);
        (void)snprintf(arm, sizeof arm, "ARM implementer %.*s part %.*s", n < 32 ? (int)n : 31,
                       maker, part_length < 32 ? (int)part_length : 31, part);
        model = arm;
        n = part_length == 0 ? 0 : strlen(arm);
    }
    add_field(text, "cpu", model, n);
    const char *flags = find_line(info == NULL ? "" : info, "flags", ':', &n);
    if (n == 0) {
        flags = find_line(info == NULL ? "" : info, "Features", ':', &n);
    }
    const char *separator = "";
    by__text_add(text, "  \"isa\": [");
    for (size_t i = 0; i < BY_ARRAY_LENGTH(instruction_sets); i++) {
        size_t length = strlen(instruction_sets[i]);
        for (size_t at = 0; at < n;) {
            size_t word = strcspn(flags + at, " \n");
            if (word == length && memcmp(flags + at, instruction_sets[i], length) == 0) {
                by__text_format(text, "%s\"%s\"", separator, instruction_sets[i]);
                separator = ", ";
                break;
            }
            at += word + 1;
        }
    }
    by__text_add(text, "],\n");
    free(info);
}

static void add_facts(by__text *text, const char *separator, const by_environment_fact *facts,
                      size_t count)
{
    for (size_t i = 0; i < count; i++) {
        by__text_add(text, i == 0 ? separator : ", ");
        by__text_json(text, facts[i].name, strlen(facts[i].name));
        by__text_add(text, ": ");
        by__text_json(text, facts[i].value, strlen(facts[i].value));
    }
}

/* The libraries as they were loaded, not as they were when this was compiled. */
static void add_libraries(by__text *text, const by_environment_fact *more, size_t count)
{
    char xxhash[32];
    unsigned version = XXH_versionNumber();
    (void)snprintf(xxhash, sizeof xxhash, "%u.%u.%u", version / 10000, version / 100 % 100,
                   version % 100);
    const by_environment_fact loaded[] = {{"glibc", gnu_get_libc_version()},
                                          {"jansson", jansson_version_str()},
                                          {"sqlite", sqlite3_libversion()},
                                          {"cairo", cairo_version_string()},
                                          {"curl", curl_version_info(CURLVERSION_NOW)->version},
                                          {"zlib", zlibVersion()},
                                          {"xxhash", xxhash}};
    by__text_add(text, "  \"libraries\": {");
    add_facts(text, "", loaded, BY_ARRAY_LENGTH(loaded));
    add_facts(text, ", ", more, count);
    by__text_add(text, "},\n");
}

by_status by_environment_json(char **out, const by_environment_fact *libraries,
                              size_t library_count, const by_environment_fact *job,
                              size_t job_count, by_error *error)
{
    char build[33] = "";
    by__text text = {0};
    struct utsname system = {0};
    cpu_set_t usable;
    char now[24];
    char kernel[256];
    long pages = sysconf(_SC_PHYS_PAGES);
    long page = sysconf(_SC_PAGESIZE);
    (void)uname(&system);
    by__utc_now(now);
    (void)snprintf(kernel, sizeof kernel, "%s %s %s", system.sysname, system.release,
                   system.machine);
    by__text_add(&text, "{\n");
    add_field(&text, "banyan", BY_VERSION, strlen(BY_VERSION));
    (void)by_build_hash(build, NULL); /* unknown where /proc is not there */
    add_field(&text, "revision", BY__REVISION, strlen(BY__REVISION));
    add_field(&text, "build", build, strlen(build));
    add_field(&text, "time", now, strlen(now));
    add_field(&text, "host", system.nodename, strlen(system.nodename));
    add_cpu(&text);
    by__text_format(&text, "  \"cores\": %ld,\n", sysconf(_SC_NPROCESSORS_ONLN));
    by__text_format(&text, "  \"usable_cores\": %d,\n",
                    sched_getaffinity(0, sizeof usable, &usable) == 0 ? CPU_COUNT(&usable) : 0);
    by__text_format(&text, "  \"memory_bytes\": %" PRIu64 ",\n",
                    pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0);
    add_field(&text, "kernel", kernel, strlen(kernel));
    char *release = read_text("/etc/os-release");
    size_t n;
    const char *name = find_line(release == NULL ? "" : release, "PRETTY_NAME", '=', &n);
    add_field(&text, "system", name, n);
    free(release);
    add_field(&text, "compiler", COMPILER, strlen(COMPILER));
    add_libraries(&text, libraries, library_count);
    by__text_add(&text, "  \"job\": {");
    add_facts(&text, "", job, job_count);
    by__text_add(&text, "}\n}\n");
    return by__text_take(&text, out, error);
}

by_status by_build_hash(char out[33], by_error *error)
{
    return by__hash_file_hex(out, "/proc/self/exe", error);
}
