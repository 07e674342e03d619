/* Weights of the tokens of a packed directory as targets: an npy file of one axis, '<f4', one
 * number for each token, finite and at least 0. Mapped, not read into memory. */
#ifndef BY_DATA_CORPUS_TOKEN_WEIGHTS_H
#define BY_DATA_CORPUS_TOKEN_WEIGHTS_H

#include "banyan/data.h"
#include "base/base.h"

/* The weights of all tokens. */
const float *by__data_token_weights_values(const by_token_weights *weights);

#endif
