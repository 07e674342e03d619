/* The ids of tokens that begin and end a text, as the files of a model directory name them. */
#ifndef BY_BASE_TOKEN_IDS_H
#define BY_BASE_TOKEN_IDS_H

#include <jansson.h>

#include "base/base.h"

/* Checks "bos_token_id" and "eos_token_id" of an object: each a token below `vocab`, a list of
 * tokens, null, or not there. `name` is the file for errors. */
by_status by__token_ids_check(const char *name, const json_t *root, int64_t vocab, by_error *error);

#endif
