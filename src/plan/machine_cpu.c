/* Builds the key that distinguishes machines (and builds) that share a cache. The CPU's name alone
 * is not enough: on a virtual machine it is often just "AMD EPYC". The build counts too, since a
 * sanitizer makes kernels twenty times slower. */
#include <inttypes.h>
#include <string.h>

#include "plan/plan.h"

#if defined(__clang__)
#define COMPILER "clang"
#if __has_feature(address_sanitizer)
#define SANITIZER " asan"
#elif __has_feature(thread_sanitizer)
#define SANITIZER " tsan"
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define SANITIZER " asan"
#elif defined(__SANITIZE_THREAD__)
#define SANITIZER " tsan"
#endif
#ifndef COMPILER
#define COMPILER "gcc"
#endif
#ifndef SANITIZER
#define SANITIZER ""
#endif
#ifdef __OPTIMIZE__
#define BUILD COMPILER " optimized" SANITIZER
#else
#define BUILD COMPILER " unoptimized" SANITIZER
#endif

/* Returns the value if the line is "KEY : VALUE", else NULL. Cuts off the end of the line. */
static char *value_of(char *line, const char *key)
{
    size_t length = strlen(key);
    if (strncmp(line, key, length) != 0) {
        return NULL;
    }
    char *value = line + length + strspn(line + length, " \t");
    if (*value != ':') {
        return NULL; /* a longer key, such as "model name" for "model" */
    }
    value += 1 + strspn(value + 1, " \t");
    value[strcspn(value, "\n")] = '\0';
    return value;
}

/* Lines of /proc/cpuinfo that describe a core, on x86-64 and on aarch64, which has numbers instead
 * of names. */
static const struct {
    const char *key;
    const char *shown;
} facts[] = {{"cpu family", "family"},    {"model", "model"},
             {"stepping", "stepping"},    {"CPU implementer", "implementer"},
             {"CPU variant", "variant"},  {"CPU part", "part"},
             {"CPU revision", "revision"}};

void by__plan_machine_identify(by_machine *out, const char *path)
{
    char line[16384]; /* the line of flags has thousands of characters */
    by_string key = {0};
    uint64_t flags = 0;
    char name[sizeof out->cpu] = "";
    FILE *file = fopen(path, "re");
    /* The lines of the first processor end at an empty line; aarch64 lists cores one by one. */
    while (file != NULL && fgets(line, sizeof line, file) != NULL && line[0] != '\n') {
        const char *value = value_of(line, "model name");
        if (value != NULL) {
            (void)snprintf(name, sizeof name, "%.127s", value);
            continue;
        }
        if ((value = value_of(line, "flags")) != NULL ||
            (value = value_of(line, "Features")) != NULL) {
            flags = by__hash64(value, strlen(value));
            continue;
        }
        for (size_t i = 0; i < BY_ARRAY_LENGTH(facts); i++) {
            if ((value = value_of(line, facts[i].key)) != NULL) {
                by_string_format(&key, "%s%s %.15s", key.length == 0 ? "" : " ", facts[i].shown,
                                 value);
                break;
            }
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    (void)snprintf(out->key, sizeof out->key, "%.96s flags %016" PRIx64 " %s",
                   key.length > 0 ? key.data : "unknown", flags, BUILD);
    if (name[0] != '\0') {
        (void)snprintf(out->cpu, sizeof out->cpu, "%s", name);
    } else {
        (void)snprintf(out->cpu, sizeof out->cpu, "%.127s", key.length > 0 ? key.data : "unknown");
    }
    by_string_free(&key);
}
