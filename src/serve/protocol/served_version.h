/* Finds the version of a model that a path refers to. */
#ifndef BY_SERVE_PROTOCOL_SERVED_VERSION_H
#define BY_SERVE_PROTOCOL_SERVED_VERSION_H

#include "checkpoint/storage.h"
#include "serve/base/serve.h"

typedef struct by__protocol_served_version {
    char *path; /* as given: a run, a directory, a GGUF file */
    /* directory of the weights: of a run, its newest valid checkpoint; else `path` */
    char *directory;
    bool is_run;
    char *adapter; /* directory of the adapter that is merged into the weights; NULL: none */
    char name[65]; /* name of the version, a valid id */
    /* why newer checkpoints of the run were passed over, a line each, as
     * by__protocol_served_version_find found it; NULL: there are none */
    char *skipped;
    /* keep checkpoints from being removed while they are served; NULL: not a checkpoint */
    by__checkpoint_lease *lease;
    by__checkpoint_lease *adapter_lease;
} by__protocol_served_version;

/* Finds the weights that `path` refers to now, with an adapter (NULL: none). The version's name is
 * the last part of their directory and a hash: of the manifest of a run's checkpoint, which has the
 * checksums of all files; of other weights and of the adapter, of samples of the content of each
 * file; and of `settings`, anything else that affects answers (NULL: nothing). Retention keeps a
 * checkpoint until the version and all copies of it are freed. BY_EIO, BY_ESTATE: there are no
 * valid weights. Reads all of a run's checkpoint, to verify it. */
by_status by__protocol_served_version_find(by__protocol_served_version *out, const char *path,
                                           const char *adapter, const char *settings,
                                           by_error *error);
by_status by__protocol_served_version_copy(by__protocol_served_version *out,
                                           const by__protocol_served_version *from,
                                           by_error *error);
/* Gives up the leases, and takes them again. BY_ESTATE, BY_EIO: the weights have been removed. */
void by__serve_version_release(by__protocol_served_version *version);
by_status by__serve_version_lease(by__protocol_served_version *version, by_error *error);
void by__protocol_served_version_free(by__protocol_served_version *version);

#endif
