#include "run_root.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runner.h"
#include "temporary.h"

char *run_root_make(void)
{
    char *root = temporary_make();
    char *path = by__path_join(root, "text.txt");
    char text[6000];
    uint64_t draw = 1;
    for (size_t i = 0; i < sizeof text; i++) {
        draw = draw * UINT64_C(6364136223846793005) + 1442695040888963407u;
        text[i] = "abcdefg hijklmnop\n"[(draw >> 40) % 18];
    }
    assert_int_equal(by__file_write(path, text, sizeof text, NULL), BY_OK);
    free(path);
    return root;
}

static void set_all(by_config *config, const char *const *settings)
{
    by_error error = {0};
    for (size_t i = 0; settings[i] != NULL; i++) {
        check_ok(by_config_set(config, settings[i], &error), &error);
    }
}

by_config *run_root_config(const char *root, const char *const *common, const char *const *settings,
                           const char *const *more)
{
    static const char *const places[] = {"run.dir=%s/runs", "data.text=[%s/text.txt]",
                                         "data.cache=%s/cache"};
    by_error error = {0};
    by_config *config;
    check_ok(by_config_default(&config, &error), &error);
    check_ok(by_config_set(config, "precision.compute=f32", &error), &error);
    set_all(config, common);
    set_all(config, settings);
    set_all(config, more);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(places); i++) {
        by_string text = {0};
        char *setting;
        const char *at = strchr(places[i], '%');
        by_string_format(&text, "%.*s%s%s", (int)(at - places[i]), places[i], root, at + 2);
        check_ok(by__string_release(&text, &setting, &error), &error);
        check_ok(by_config_set(config, setting, &error), &error);
        free(setting);
    }
    check_ok(by_config_resolve(config, &error), &error);
    return config;
}
