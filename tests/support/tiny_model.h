/* A directory in Hugging Face form with random weights of a config's model. */
#ifndef TINY_MODEL_H
#define TINY_MODEL_H

#include "banyan/infer.h"

/* A resolved config of those settings; fails the test that calls it. */
by_config *tiny_config(const char *const *settings, size_t count);
void tiny_model_write(const by_config *config, const char *directory);
/* Sets element `at` of a tensor of the directory. */
void tiny_model_set(const char *directory, const char *name, size_t at, float value);

#endif
