#include "serve/base/sandbox_paths.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

void by__serve_sandbox_paths_add(by__serve_sandbox_paths *paths, const char *path, bool writes)
{
    if (path == NULL || path[0] == '\0') {
        return;
    }
    char *copy = paths->count < BY__SANDBOX_PATHS ? by__strdup(path) : NULL;
    if (copy == NULL) {
        paths->failed = true;
        return;
    }
    paths->items[paths->count++] = (by__serve_landlock_path){.path = copy, .writes = writes};
}

static void add_directory(by__serve_sandbox_paths *paths, const char *file, bool writes)
{
    char *copy = by__strdup(file);
    if (copy == NULL) {
        paths->failed = true;
        return;
    }
    char *slash = strrchr(copy, '/');
    if (slash != NULL) {
        slash[slash == copy ? 1 : 0] = '\0';
    }
    by__serve_sandbox_paths_add(paths, slash == NULL ? "." : copy, writes);
    free(copy);
}

void by__serve_sandbox_paths_add_file(by__serve_sandbox_paths *paths, const char *file, bool writes)
{
    char *target = file == NULL || file[0] == '\0' ? NULL : realpath(file, NULL);
    if (file != NULL && file[0] != '\0') {
        add_directory(paths, file, writes);
    }
    if (target != NULL) {
        add_directory(paths, target, writes);
    }
    free(target);
}

void by__serve_sandbox_paths_add_system(by__serve_sandbox_paths *paths, bool network)
{
    static const char *const all[] = {"/dev/null", "/dev/urandom", "/proc", "/sys/devices/system"};
    /* /etc as a whole: what is in it is replaced when the network changes. */
    static const char *const lookup[] = {"/etc",
                                         "/usr",
                                         "/lib",
                                         "/lib64",
                                         "/run/systemd/resolve",
                                         "/run/resolvconf",
                                         "/run/NetworkManager",
                                         "/run/connman",
                                         "/mnt/wsl",
                                         "/nix/store",
                                         "/var/lib/ca-certificates",
                                         "/var/cache/nscd"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(all); i++) {
        by__serve_sandbox_paths_add(paths, all[i], false);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(lookup) && network; i++) {
        by__serve_sandbox_paths_add(paths, lookup[i], false);
    }
    if (network) {
        by__serve_sandbox_paths_add_file(paths, getenv("SSL_CERT_FILE"), false);
        by__serve_sandbox_paths_add(paths, getenv("SSL_CERT_DIR"), false);
        by__serve_sandbox_paths_add_file(paths, getenv("HOSTALIASES"), false);
    }
}

void by__serve_sandbox_paths_free(by__serve_sandbox_paths *paths)
{
    for (size_t i = 0; i < paths->count; i++) {
        free((void *)(uintptr_t)paths->items[i].path);
    }
    paths->count = 0;
}

by_status by__serve_sandbox_paths_prepare(by__serve_sandbox *sandbox,
                                          by__serve_sandbox_paths *paths, int *version,
                                          by_error *error)
{
    sandbox->paths = paths->items;
    sandbox->path_count = paths->count;
    by_status status = paths->failed ? by_error_set(error, BY_EMEMORY, "out of memory: a sandbox")
                                     : by__serve_sandbox_prepare(sandbox, version, error);
    sandbox->paths = NULL;
    sandbox->path_count = 0;
    by__serve_sandbox_paths_free(paths);
    return status;
}
