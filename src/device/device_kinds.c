/* The kinds of devices of this build, and what a device's name means. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/threads.h"
#include "device/device.h"

#define BY__DEVICE(name) extern const by__device_kind by__device_##name;
#include "device/kinds.inc"
#undef BY__DEVICE

static const by__device_kind *const kinds[] = {
#define BY__DEVICE(name) &by__device_##name,
#include "device/kinds.inc"
#undef BY__DEVICE
};

/* A device that a name means. */
typedef struct device_choice {
    const by__device_kind *kind;
    int ordinal;
} device_choice;

static const by__device_kind *find_kind(const char *name, size_t length)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(kinds); i++) {
        if (strlen(kinds[i]->name) == length && memcmp(kinds[i]->name, name, length) == 0) {
            return kinds[i];
        }
    }
    return NULL;
}

static by_status refuse_kind(const char *name, by_error *error)
{
    by_string built = {0};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(kinds); i++) {
        by_string_format(&built, "%s%s", i == 0 ? "" : ", ", kinds[i]->name);
    }
    by_status status = by_error_set(error, BY_EARG,
                                    "there is no device '%.40s' in this build, which has: %s "
                                    "(auto: the best of them)",
                                    name, built.failed ? "cpu" : built.data);
    by_string_free(&built);
    return status;
}

/* Reads the number in "KIND:N", which is all digits. */
static bool read_ordinal(int *out, const char *text)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value > 65535) {
        return false;
    }
    *out = (int)value;
    return true;
}

static by_status choose(device_choice *out, const char *name, by_error *error)
{
    const char *colon = strchr(name, ':');
    device_choice c = {0};
    int count;
    if (strcmp(name, "auto") == 0) {
        size_t i = BY_ARRAY_LENGTH(kinds) - 1;
        while (i > 0 && (kinds[i]->count(&count, NULL) != BY_OK || count == 0)) {
            i--;
        }
        c.kind = kinds[i]; /* the first is the host, which is there */
        *out = c;
        return BY_OK;
    }
    c.kind = find_kind(name, colon == NULL ? strlen(name) : (size_t)(colon - name));
    if (c.kind == NULL) {
        return refuse_kind(name, error);
    }
    if (colon != NULL && !read_ordinal(&c.ordinal, colon + 1)) {
        return by_error_set(error, BY_EARG,
                            "device '%.40s': a number must follow the colon, as in %s:0", name,
                            c.kind->name);
    }
    BY_TRY(c.kind->count(&count, error));
    if (c.ordinal >= count) {
        return by_error_set(error, BY_EARG,
                            "device '%.40s': this machine has %d of the kind %s, numbered from 0",
                            name, count, c.kind->name);
    }
    *out = c;
    return BY_OK;
}

by_status by_device_resolve(char out[BY_DEVICE_NAME], const char *name, by_error *error)
{
    device_choice c;
    BY_TRY(choose(&c, name, error));
    (void)snprintf(out, BY_DEVICE_NAME, c.ordinal == 0 ? "%.20s" : "%.20s:%d", c.kind->name,
                   c.ordinal);
    return BY_OK;
}

by_status by__device_check(const char *name, by_error *error)
{
    device_choice c;
    return choose(&c, name, error);
}

by_status by__device_fastest(by_dtype *out, const char *name, by_error *error)
{
    device_choice c;
    BY_TRY(choose(&c, name, error));
    return c.kind->fastest(out, error);
}

by_status by_device_open(by_device **out, const char *name, int threads, by_error *error)
{
    device_choice c;
    BY_TRY(choose(&c, name, error));
    return c.kind->open(out, c.ordinal, by__thread_count(threads), error);
}
