/* What a path that does not exist was probably meant to be. */
#include <dirent.h>
#include <string.h>

#include "banyan/path_hint.h"
#include "base/base.h"

/* Files of a directory that are looked at: a hint is not worth more. */
#define MOST_NAMES 4096

/* Bytes of a name without its ending. */
static size_t stem_of(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot == NULL || dot == name ? strlen(name) : (size_t)(dot - name);
}

/* How unlike a name is: 0 for the same without its ending, then by characters; 64: not near. */
static size_t unlike(const char *name, const char *other)
{
    size_t stem = stem_of(name);
    if (strcmp(name, other) == 0) { /* a link that leads nowhere */
        return 64;
    }
    if (stem > 0 && stem == stem_of(other) && strncmp(name, other, stem) == 0) {
        return 0;
    }
    return by_nearest_name(name, &other, 1) == NULL ? 64 : by__edit_distance(name, other);
}

/* Finds the name in a directory that is nearest. */
static bool find_near(char out[256], const char *directory, const char *name)
{
    size_t least = 64;
    DIR *folder = opendir(directory);
    for (int i = 0; folder != NULL && i < MOST_NAMES; i++) {
        const struct dirent *entry = readdir(folder);
        if (entry == NULL) {
            break;
        }
        size_t distance = entry->d_name[0] == '.' ? 64 : unlike(name, entry->d_name);
        /* Of equal ones the first by name: the order of a directory is chance. */
        if (distance < least ||
            (distance == least && least < 64 && strcmp(entry->d_name, out) < 0)) {
            (void)snprintf(out, 256, "%s", entry->d_name);
            least = distance;
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return least < 64;
}

const char *by_path_hint(char buffer[BY_PATH_HINT], const char *path)
{
    char parent[BY_PATH_HINT - 300];
    char near[256];
    size_t length = strlen(path);
    buffer[0] = '\0';
    while (length > 1 && path[length - 1] == '/') {
        length--;
    }
    size_t begin = length;
    while (begin > 0 && path[begin - 1] != '/') {
        begin--;
    }
    size_t n = length - begin;
    if (n == 0 || n > 63 || begin + 1 >= sizeof parent) {
        return buffer;
    }
    char name[64];
    memcpy(name, path + begin, n);
    name[n] = '\0';
    memcpy(parent, begin == 0 ? "." : path, begin == 0 ? 1 : begin);
    parent[begin == 0 ? 1 : begin] = '\0';
    if (find_near(near, parent, name)) {
        (void)snprintf(buffer, BY_PATH_HINT, "; did you mean '%s%s'?", begin == 0 ? "" : parent,
                       near);
    }
    return buffer;
}
