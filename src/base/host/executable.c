/* Where the code of this process comes from. In a bundle the files are
 *
 *   bin/banyan             starts lib/banyan/banyan with the loader and libraries of the bundle
 *   lib/banyan/banyan      this program
 *   lib/banyan/mpi/bin/    starts the programs of Open MPI
 */
#include "base/host/executable.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/paths.h"

#define LINK "/proc/self/exe"
#define MAPS "/proc/self/maps"
#define HOME "/lib/banyan"

static by_status unreadable(const char *path, by_error *error)
{
    return by_error_set(
        error, BY_EIO, "cannot find the path of this program: %s cannot be read; is /proc mounted?",
        path);
}

static by_status copy(char **out, const char *text, by_error *error)
{
    char *path = strdup(text);
    if (path == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    *out = path;
    return BY_OK;
}

/* What the kernel executed: this program, or the loader that was started with it. */
static by_status read_link(char out[PATH_MAX], by_error *error)
{
    ssize_t length = readlink(LINK, out, PATH_MAX - 1);
    if (length < 0) {
        return unreadable(LINK, error);
    }
    out[length] = '\0';
    return BY_OK;
}

/* The kernel writes a line break in a path as "\012". */
static void decode(char *path)
{
    char *to = path;
    for (const char *from = path; *from != '\0'; to++) {
        bool coded = strncmp(from, "\\012", 4) == 0;
        *to = coded ? '\n' : *from;
        from += coded ? 4 : 1;
    }
    *to = '\0';
}

/* The file that is mapped where this function is. */
static by_status find_code(char **out, by_error *error)
{
    uintptr_t here = (uintptr_t)&find_code;
    char *line = NULL;
    size_t capacity = 0;
    by_status status = unreadable(MAPS, error);
    FILE *maps = fopen(MAPS, "re");
    for (ssize_t n; maps != NULL && (n = getline(&line, &capacity, maps)) > 0;) {
        uintptr_t first;
        uintptr_t end;
        char *path = strchr(line, '/');
        if (path != NULL && sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &first, &end) == 2 &&
            here >= first && here < end) {
            line[n - 1] = '\0';
            decode(path);
            status = copy(out, path, error);
            break;
        }
    }
    free(line);
    if (maps != NULL) {
        (void)fclose(maps);
    }
    return status;
}

/* Cuts the last part of a path; returns false if there is none. */
static bool cut(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash == NULL) {
        return false;
    }
    *slash = '\0';
    return true;
}

/* The directory lib/banyan of the bundle that the code came in; NULL: it did not come in one. */
static by_status find_bundle(char **out, const char *code, by_error *error)
{
    char *home = NULL;
    char *loader = NULL;
    *out = NULL;
    BY_TRY(copy(&home, code, error));
    size_t end = sizeof HOME - 1;
    size_t length = cut(home) ? strlen(home) : 0;
    if (length < end || strcmp(home + length - end, HOME) != 0) {
        free(home);
        return BY_OK;
    }
    by_status status = by__path_make(&loader, home, "lib/ld-linux-x86-64.so.2", error);
    if (status == BY_OK && access(loader, X_OK) == 0) {
        *out = home;
        home = NULL;
    }
    free(loader);
    free(home);
    return status;
}

by_status by_executable_path(char **out, by_error *error)
{
    char *code;
    char *home = NULL;
    BY_TRY(find_code(&code, error));
    by_status status = find_bundle(&home, code, error);
    if (status == BY_OK && home == NULL) {
        status = copy(out, code, error);
    } else if (status == BY_OK) {
        home[strlen(home) - (sizeof HOME - 1)] = '\0'; /* "": the bundle is the root */
        by_string path = {0};
        by_string_format(&path, "%s/bin/banyan", home);
        status = by__string_release(&path, out, error);
    }
    free(home);
    free(code);
    return status;
}

by_status by__executable_code(char **out, by_error *error)
{
    char link[PATH_MAX];
    char *code;
    BY_TRY(read_link(link, error));
    BY_TRY(find_code(&code, error));
    if (strcmp(code, link) == 0) {
        free(code);
        return copy(out, LINK, error);
    }
    *out = code;
    return BY_OK;
}

by_status by__executable_bundled(char **out, const char *name, by_error *error)
{
    char *code;
    char *home = NULL;
    char *path = NULL;
    BY_TRY(find_code(&code, error));
    by_status status = find_bundle(&home, code, error);
    if (status == BY_OK && home != NULL) {
        status = by__path_make(&path, home, name, error);
    }
    if (status == BY_OK) {
        *out = path;
    }
    free(home);
    free(code);
    return status;
}
