/* How much memory this process can still get from the host: the kernel's estimate and, in a
 * container or a batch job, what the limits of its control groups leave. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* Reads the first number after `key`, which starts a line ("": the first number of the text). */
static bool find_number(const char *text, const char *key, uint64_t *out)
{
    size_t length = strlen(key);
    for (const char *line = text; line != NULL && *line != '\0';) {
        if (strncmp(line, key, length) == 0) {
            char *end;
            const char *digits = line + length + strspn(line + length, " \t:");
            uint64_t value = strtoull(digits, &end, 10);
            if (end != digits) {
                *out = value;
                return true;
            }
        }
        line = strchr(line, '\n');
        line = line == NULL ? NULL : line + 1;
    }
    return false;
}

/* Reads a file of /proc or /sys, whose size is reported as 0. Returns false if it does not
 * exist. */
static bool read_text(char *text, size_t capacity, const char *root, const char *path)
{
    char name[4096];
    if (snprintf(name, sizeof name, "%s%s", root, path) >= (int)sizeof name) {
        return false;
    }
    FILE *file = fopen(name, "re");
    if (file == NULL) {
        return false;
    }
    text[fread(text, 1, capacity - 1, file)] = '\0';
    (void)fclose(file);
    return true;
}

/* The file names of one version of control groups. */
typedef struct group_files {
    const char *mount;
    const char *limit;
    const char *usage;
    const char *inactive; /* page cache in memory.stat, which the kernel reclaims under pressure */
    const char *active;
} group_files;

static const group_files version_1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                      "memory.usage_in_bytes", "total_inactive_file",
                                      "total_active_file"};
static const group_files version_2 = {"/sys/fs/cgroup", "memory.max", "memory.current",
                                      "inactive_file", "active_file"};

static bool read_group_file(char *text, size_t capacity, const char *root, const group_files *files,
                            const char *group, const char *name)
{
    char path[4096];
    return snprintf(path, sizeof path, "%s%s/%s", files->mount, group, name) < (int)sizeof path &&
           read_text(text, capacity, root, path);
}

/* Lowers both figures to what the limit of one group leaves. */
static void apply_group(by__host_memory *memory, const char *root, const group_files *files,
                        const char *group)
{
    char text[8192];
    uint64_t limit;
    uint64_t usage;
    uint64_t inactive = 0;
    uint64_t active = 0;
    /* An unlimited group says "max" in version 2 and a number near 2^63 in version 1. */
    if (!read_group_file(text, sizeof text, root, files, group, files->limit) ||
        !find_number(text, "", &limit) || limit >= (uint64_t)1 << 60 ||
        !read_group_file(text, sizeof text, root, files, group, files->usage) ||
        !find_number(text, "", &usage)) {
        return;
    }
    if (read_group_file(text, sizeof text, root, files, group, "memory.stat")) {
        (void)find_number(text, files->inactive, &inactive);
        (void)find_number(text, files->active, &active);
    }
    uint64_t cache = inactive + active;
    uint64_t held = usage > cache ? usage - cache : 0;
    uint64_t left = limit > held ? limit - held : 0;
    memory->total = memory->total == 0 || limit < memory->total ? limit : memory->total;
    memory->available = left < memory->available ? left : memory->available;
}

/* Applies the group named by a line of /proc/self/cgroup ("0::/a/b", "4:cpu,memory:/a/b") and all
 * its ancestors. In a container the path may be the host's, while the mount is the container's own
 * group. */
static void apply_line(by__host_memory *memory, const char *root, char *line)
{
    char *controllers = strchr(line, ':');
    char *group = controllers == NULL ? NULL : strchr(controllers + 1, ':');
    if (group == NULL) {
        return;
    }
    *group++ = '\0';
    controllers++;
    bool is_version_2 = controllers[0] == '\0';
    if (!is_version_2 && strstr(controllers, "memory") == NULL) {
        return;
    }
    const group_files *files = is_version_2 ? &version_2 : &version_1;
    for (char *slash; (slash = strrchr(group, '/')) != NULL; *slash = '\0') {
        apply_group(memory, root, files, group);
    }
    apply_group(memory, root, files, "");
}

void by__memory_available_under(by__host_memory *out, const char *root)
{
    char text[8192];
    uint64_t kib;
    by__host_memory memory = {.available = UINT64_MAX};
    if (read_text(text, sizeof text, root, "/proc/meminfo")) {
        memory.total = find_number(text, "MemTotal", &kib) ? kib * 1024u : 0;
        memory.available = find_number(text, "MemAvailable", &kib) ? kib * 1024u : UINT64_MAX;
    }
    if (read_text(text, sizeof text, root, "/proc/self/cgroup")) {
        for (char *line = text; line != NULL && *line != '\0';) {
            char *end = strchr(line, '\n');
            if (end != NULL) {
                *end = '\0';
            }
            apply_line(&memory, root, line);
            line = end == NULL ? NULL : end + 1;
        }
    }
    *out = memory;
}

void by__memory_available(by__host_memory *out)
{
    by__memory_available_under(out, "");
}
