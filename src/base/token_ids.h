/* The ids of tokens that begin and end a text, as the files of a model directory name them. */
#ifndef BY_BASE_TOKEN_IDS_H
#define BY_BASE_TOKEN_IDS_H

#include <jansson.h>

#include "base/base.h"

/* Checks "bos_token_id" and "eos_token_id" of an object: each an integer from 0 on, a list of them,
 * null, or not there. One beyond the vocabulary is no error: configurations of small models keep
 * the default of their family, and the model cannot produce it. `name` is the file for errors. */
by_status by__token_ids_check(const char *name, const json_t *root, by_error *error);

#endif
