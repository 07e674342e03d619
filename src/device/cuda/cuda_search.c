/* Where the libraries of CUDA are found. */
#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "device/cuda/cuda_driver.h"

/* Folders of drivers in containers, of toolkits, and of the packages that pip installs, below what
 * an environment variable names. */
static const struct {
    const char *variable;
    const char *pattern;
} folders[] = {
    {NULL, "/usr/local/nvidia/lib64"}, /* DRIVER_FOLDERS */
    {NULL, "/usr/lib/wsl/lib"},
    {"CUDA_HOME", "/lib64"},
    {NULL, "/usr/local/cuda/lib64"},
    {NULL, "/usr/local/cuda/lib"},
    {NULL, "/usr/local/cuda-1[23]*/lib64"},
    {"VIRTUAL_ENV", "/lib/python3*/site-packages/nvidia/*/lib"},
    {"CONDA_PREFIX", "/lib"},
    {"HOME", "/.local/lib/python3*/site-packages/nvidia/*/lib"},
    {NULL, "/usr/local/lib/python3*/dist-packages/nvidia/*/lib"},
    {NULL, "/usr/local/lib/python3*/site-packages/nvidia/*/lib"},
    {NULL, "/usr/lib/python3/dist-packages/nvidia/*/lib"},
};

/* How many of the first may have the driver: every start on 'auto' looks for it. */
#define DRIVER_FOLDERS 2

static void *open_at(const char *folder, const char *name)
{
    char path[4096];
    int length = folder == NULL ? snprintf(path, sizeof path, "%s", name)
                                : snprintf(path, sizeof path, "%s/%s", folder, name);
    return length < 0 || (size_t)length >= sizeof path
               ? NULL
               : dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

/* The library in the folders that match a pattern, the last of them first: it has the newest
 * version in its name. */
static void *open_matching(const char *pattern, const char *name)
{
    glob_t found;
    void *library = NULL;
    if (glob(pattern, 0, NULL, &found) != 0) {
        return NULL;
    }
    for (size_t i = found.gl_pathc; i-- > 0 && library == NULL;) {
        library = open_at(found.gl_pathv[i], name);
    }
    globfree(&found);
    return library;
}

static void *open_in(size_t i, const char *name)
{
    char pattern[4096];
    const char *root = folders[i].variable == NULL ? "" : getenv(folders[i].variable);
    if (root == NULL || (folders[i].variable != NULL && root[0] == '\0')) {
        return NULL;
    }
    int length = snprintf(pattern, sizeof pattern, "%s%s", root, folders[i].pattern);
    if (length < 0 || (size_t)length >= sizeof pattern) {
        return NULL;
    }
    return strpbrk(pattern, "*[") == NULL ? open_at(pattern, name) : open_matching(pattern, name);
}

void *by__cuda_search(const char *const *names, bool driver)
{
    void *library = NULL;
    size_t count = driver ? DRIVER_FOLDERS : BY_ARRAY_LENGTH(folders);
    const char *only = getenv("BANYAN_CUDA_PATH");
    for (; *names != NULL && library == NULL; names++) {
        library = open_at(only, *names);
        for (size_t i = 0; i < count && library == NULL && only == NULL; i++) {
            library = open_in(i, *names);
        }
    }
    return library;
}

const char *by__cuda_resolve(void *table, void *library, const by__cuda_symbol *symbols,
                             size_t count)
{
    for (size_t i = 0; i < count; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        if (symbol == NULL) {
            return symbols[i].name;
        }
        memcpy((char *)table + symbols[i].offset, &symbol, sizeof symbol);
    }
    return NULL;
}
