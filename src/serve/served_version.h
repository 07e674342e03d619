/* Which version of a model a path stands for. */
#ifndef BY_SERVE_SERVED_VERSION_H
#define BY_SERVE_SERVED_VERSION_H

#include "checkpoint/storage.h"
#include "serve/serve.h"

typedef struct by__served_version {
    char *path;      /* as it was given: a run, a directory, a GGUF file */
    char *directory; /* of the weights: of a run, its newest valid checkpoint; else `path` */
    bool is_run;
    char name[65];    /* of the version, a valid id */
    by__lease *lease; /* of a checkpoint, which stays while it is served; NULL: it is none */
} by__served_version;

/* Finds the weights that `path` stands for now. The name is the last part of their directory and a
 * hash: of a checkpoint's manifest, which has the checksums of all files; of other weights, of
 * config.json and of samples of the content of each file; and of `settings`, what else decides
 * answers (NULL: nothing). Retention leaves a checkpoint until the version and all copies of it
 * are freed. BY_EIO, BY_ESTATE: no valid weights are there. Reads all of a run's checkpoint, to
 * check it. */
by_status by__served_version_find(by__served_version *out, const char *path, const char *settings,
                                  by_error *error);
by_status by__served_version_copy(by__served_version *out, const by__served_version *from,
                                  by_error *error);
void by__served_version_free(by__served_version *version);

#endif
