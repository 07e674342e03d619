/* The origin of weights: the run that trained them, its config and its data, as recorded next to
 * them. */
#ifndef BY_CHECKPOINT_ORIGIN_H
#define BY_CHECKPOINT_ORIGIN_H

#include <jansson.h>

#include "checkpoint/storage.h"

/* Owned strings; NULL: unknown. */
typedef struct by__checkpoint_origin {
    char *run;         /* name of the run's directory */
    char *config_hash; /* by_config_hash of its config */
    char *data_hash;   /* hash of its training data */
} by__checkpoint_origin;

/* Reads the origin of open weights: from the state.json of a checkpoint or a compressed model, the
 * run's name from the path of its checkpoints; if that records none, from the object "banyan" of
 * their config.json, which exports have and which GGUF files yield. Nothing is an error but memory:
 * weights of other programs have no origin. */
by_status by__checkpoint_origin_read(by__checkpoint_origin *out, const by_weights *weights,
                                     by_error *error);
void by__checkpoint_origin_free(by__checkpoint_origin *origin);
/* Sets the object "banyan" of a config.json to the origin; an unknown origin changes nothing. */
by_status by__checkpoint_origin_put(json_t *config, const by__checkpoint_origin *origin,
                                    by_error *error);

#endif
