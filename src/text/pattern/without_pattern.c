/* Regular expressions in a build without PCRE2. */
#include "base/build.h"
#include "text/pattern/pattern.h"

by_status by__pattern_open(by__pattern **out, const char *text, size_t length, by_error *error)
{
    BY_UNUSED(out);
    BY_UNUSED(text);
    BY_UNUSED(length);
    return by__build_lacks(BY_BUILD_PCRE2, "regular expressions", error);
}

void by__pattern_close(by__pattern **pattern)
{
    BY_UNUSED(pattern);
}

size_t by__pattern_groups(const by__pattern *pattern)
{
    BY_UNUSED(pattern);
    return 0;
}

by_status by__pattern_next(const by__pattern *pattern, const char *s, size_t n,
                           by__pattern_match *match, by_error *error)
{
    BY_UNUSED(pattern);
    BY_UNUSED(s);
    BY_UNUSED(n);
    match->found = false;
    return by__build_lacks(BY_BUILD_PCRE2, "regular expressions", error);
}
