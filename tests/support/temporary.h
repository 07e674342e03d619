/* A fresh directory for one test, removed with all that is in it. */
#ifndef BY_TESTS_TEMPORARY_H
#define BY_TESTS_TEMPORARY_H

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* Freed with temporary_remove; NULL when none could be made. */
static inline char *temporary_make(void)
{
    const char *root = getenv("TMPDIR");
    char *path =
        by__path_join(root == NULL || root[0] == '\0' ? "/tmp" : root, "banyan-test-XXXXXX");
    if (path != NULL && mkdtemp(path) == NULL) {
        free(path);
        path = NULL;
    }
    return path;
}

static inline void temporary_remove(char *path)
{
    (void)by__remove_tree(path, NULL);
    free(path);
}

#endif
