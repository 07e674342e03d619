/* Finds the version of a model that a path refers to. */
#ifndef BY_SERVE_SERVED_VERSION_H
#define BY_SERVE_SERVED_VERSION_H

#include "checkpoint/storage.h"
#include "serve/serve.h"

typedef struct by__served_version {
    char *path; /* as given: a run, a directory, a GGUF file */
    /* directory of the weights: of a run, its newest valid checkpoint; else `path` */
    char *directory;
    bool is_run;
    char name[65]; /* name of the version, a valid id */
    /* keeps the checkpoint from being removed while it is served; NULL: not a checkpoint */
    by__lease *lease;
} by__served_version;

/* Finds the weights that `path` refers to now. The version's name is the last part of their
 * directory and a hash: of a checkpoint's manifest, which has the checksums of all files; of other
 * weights, of config.json and of samples of the content of each file; and of `settings`, anything
 * else that affects answers (NULL: nothing). Retention keeps a checkpoint until the version and all
 * copies of it are freed. BY_EIO, BY_ESTATE: there are no valid weights. Reads all of a run's
 * checkpoint, to verify it. */
by_status by__served_version_find(by__served_version *out, const char *path, const char *settings,
                                  by_error *error);
by_status by__served_version_copy(by__served_version *out, const by__served_version *from,
                                  by_error *error);
void by__served_version_free(by__served_version *version);

#endif
