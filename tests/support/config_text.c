#include "config_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"

by_status config_parse(by_config **out, const char *text, by_error *error)
{
    return by_config_parse(out, "train.yaml", text, strlen(text), NULL, 0, error);
}

by_config *config_good(const char *text)
{
    by_config *config;
    by_error error = {0};
    if (config_parse(&config, text, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    return config;
}

char *config_printed(const by_config *config)
{
    char *text;
    by_error error = {0};
    if (by_config_print(config, &text, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    return text;
}

void config_refused(const char *text, const char *message)
{
    by_config *config = NULL;
    by_error error = {0};
    assert_int_equal(config_parse(&config, text, &error), BY_ECONFIG);
    assert_string_equal(error.message, message);
    assert_int_equal(error.status, BY_ECONFIG);
    assert_null(config);
}

void config_refused_among(const char *text, const char *begin, const char *end)
{
    by_config *config = NULL;
    by_error error = {0};
    assert_int_equal(config_parse(&config, text, &error), BY_ECONFIG);
    size_t length = strlen(error.message);
    assert_true(length > strlen(begin) + strlen(end));
    assert_memory_equal(error.message, begin, strlen(begin));
    assert_string_equal(error.message + length - strlen(end), end);
}
