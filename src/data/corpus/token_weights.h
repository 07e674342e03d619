/* Weights of the tokens of a packed directory as targets: an npy file of one axis with one number
 * for each token, '<f4', finite and at least 0, or '|u1', 0 or 1. Mapped, not read into memory. */
#ifndef BY_DATA_CORPUS_TOKEN_WEIGHTS_H
#define BY_DATA_CORPUS_TOKEN_WEIGHTS_H

#include "banyan/data.h"
#include "base/base.h"

/* The weight of a token of the data. */
float by__data_token_weight(const by_token_weights *weights, uint64_t token);

#endif
