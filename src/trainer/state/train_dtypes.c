/* The formats of weights and of computing that the section precision asks for. */
#include <string.h>

#include "trainer/state/train.h"

by_dtype by__trainer_compute_dtype(const by_config *config)
{
    by_dtype dtype = BY_F32;
    (void)by_precision_parse(&dtype, config->precision.compute,
                             NULL); /* the names are in the schema */
    return dtype;
}

by_dtype by__trainer_weights_dtype(const by_config *config)
{
    return strcmp(config->precision.weights, "bf16") == 0 ? BY_BF16 : BY_F32;
}

by_dtype by__trainer_copies_dtype(const by_config *config)
{
    return by__trainer_weights_dtype(config) == BY_F32 ? by__trainer_compute_dtype(config) : BY_F32;
}

bool by__trainer_rounds_stochastically(const by_config *config)
{
    return by__trainer_weights_dtype(config) != BY_F32 &&
           strcmp(config->precision.rounding, "stochastic") == 0;
}
