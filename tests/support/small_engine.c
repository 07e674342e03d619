#include "small_engine.h"

#include <stdio.h>

#include "base/base.h"
#include "runner.h"

by_config *small_engine_config_with(const char *kind, const char *precision, const char *setting)
{
    static const char *const common[] = {"model.layers=2",  "model.heads=4",      "model.width=32",
                                         "model.vocab=61",  "model.init_std=0.3", "train.threads=1",
                                         "model.context=96"};
    by_error error = {0};
    by_config *config;
    char text[64];
    check_ok(by_config_default(&config, &error), &error);
    (void)snprintf(text, sizeof text, "model.kind=%s", kind);
    check_ok(by_config_set(config, text, &error), &error);
    (void)snprintf(text, sizeof text, "precision.compute=%s", precision);
    check_ok(by_config_set(config, text, &error), &error);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(common); i++) {
        check_ok(by_config_set(config, common[i], &error), &error);
    }
    if (setting != NULL) {
        check_ok(by_config_set(config, setting, &error), &error);
    }
    check_ok(by_config_resolve(config, &error), &error);
    return config;
}

by_config *small_engine_config(const char *kind, const char *precision)
{
    return small_engine_config_with(kind, precision, NULL);
}

by_engine *small_engine_open(const by_config *config, const by_engine_options *options)
{
    by_error error = {0};
    by_engine *engine;
    check_ok(by_engine_open(&engine, config, NULL, options, &error), &error);
    return engine;
}
