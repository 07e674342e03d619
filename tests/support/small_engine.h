/* Engines of models that are small: two layers, random weights. */
#ifndef BY_TESTS_SMALL_ENGINE_H
#define BY_TESTS_SMALL_ENGINE_H

#include "banyan/config.h"
#include "banyan/engine.h"

enum { VOCAB = 61, CONTEXT = 96, ROWS = 16 };

/* The config of a model of this kind; closed by the caller. */
by_config *small_engine_config(const char *kind, const char *precision);
/* The same with another setting, "section.key=value"; NULL: none. */
by_config *small_engine_config_with(const char *kind, const char *precision, const char *setting);
/* An engine that must open; closed by the caller. */
by_engine *small_engine_open(const by_config *config, const by_engine_options *options);

#endif
