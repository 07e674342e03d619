/* Samples of preferences: a chosen and a rejected conversation each (banyan/data.h). */
#ifndef BY_DATA_PAIR_SOURCE_H
#define BY_DATA_PAIR_SOURCE_H

#include "banyan/data.h"

/* Opens the source of by_token_source_open with options->pairs. */
by_status by__data_pair_source_open(by_source **out, const by_dataset *dataset,
                                    const by_token_options *options, by_error *error);
/* Bytes of its index. */
uint64_t by__data_pair_source_bytes(const by_dataset *dataset);

#endif
