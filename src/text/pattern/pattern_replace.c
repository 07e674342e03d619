/* re.sub. */
#include "text/pattern/pattern.h"

/* Appends a replacement. */
static by_status add_replacement(const by__pattern *p, const by__pattern_match *match,
                                 const char *s, const char *text, by_string *out, by_error *error)
{
    for (const char *c = text; *c != '\0'; c++) {
        if (*c != '\\') {
            by_string_add(out, c, 1);
            continue;
        }
        c++;
        bool named = c[0] == 'g' && c[1] == '<' && c[2] >= '0' && c[2] <= '9' && c[3] == '>';
        char digit = named ? c[2] : *c;
        if (digit >= '0' && digit <= '9') {
            size_t group = (size_t)(digit - '0');
            if (group > by__pattern_groups(p)) {
                return by_error_set(error, BY_EARG, "a replacement has group %zu, the pattern %zu",
                                    group, by__pattern_groups(p));
            }
            if (match->groups[group].end != SIZE_MAX) {
                by_string_add(out, s + match->groups[group].begin,
                              match->groups[group].end - match->groups[group].begin);
            }
            c += named ? 3 : 0;
        } else if (*c == 'n' || *c == 't' || *c == '\\') {
            by_string_add(out, *c == 'n' ? "\n" : *c == 't' ? "\t" : "\\", 1);
        } else {
            return by_error_set(error, BY_EARG, "a replacement has an unknown escape");
        }
    }
    return BY_OK;
}

by_status by__pattern_replace(const by__pattern *pattern, const char *s, size_t n,
                              const char *replacement, by_string *out, by_error *error)
{
    by__pattern_match match = {0};
    size_t copied = 0;
    for (;;) {
        BY_TRY(by__pattern_next(pattern, s, n, &match, error));
        if (!match.found) {
            break;
        }
        by_string_add(out, s + copied, match.groups[0].begin - copied);
        BY_TRY(add_replacement(pattern, &match, s, replacement, out, error));
        copied = match.groups[0].end;
    }
    by_string_add(out, s + copied, n - copied);
    return by_string_check(out, error);
}
