/* The filter regex_replace, which lm-evaluation-harness adds to Jinja's. */
#include "text/pattern/pattern.h"
#include "text/template/template.h"

by_status by__template_filter_regex_replace(by__template_render *r,
                                            const by__template_value *subject,
                                            const by__template_arguments *arguments,
                                            by__template_value *out)
{
    static const char *const names[] = {"pattern", "value", NULL};
    const by__template_value *pattern = by__template_argument(arguments, 0, "pattern");
    const by__template_value *value = by__template_argument(arguments, 1, "value");
    by__template_value text;
    by_string changed = {0};
    by__pattern *compiled = NULL;
    by_error why = {0};
    if (!r->tpl->plain) {
        return by__template_render_fail(r, "filter 'regex_replace' is not known");
    }
    BY_TRY(by__template_arguments_check(r, arguments, "regex_replace", 2, names));
    if (pattern == NULL || pattern->kind != BY__STRING ||
        (value != NULL && value->kind != BY__STRING)) {
        return by__template_render_fail(r, "regex_replace needs a pattern and a text");
    }
    by__template_value with = by__template_value_string("", 0);
    if (value != NULL) { /* a copy ends with a NUL */
        BY_TRY(by__template_value_copy_string(r, value->as.string.data, value->as.string.length,
                                              &with));
    }
    BY_TRY(by__template_value_text(r, subject, &text));
    BY_TRY(by__template_render_steps(r, text.as.string.length + pattern->as.string.length));
    by_status status =
        by__pattern_open(&compiled, pattern->as.string.data, pattern->as.string.length, &why);
    if (status == BY_OK) {
        status = by__pattern_replace(compiled, text.as.string.data, text.as.string.length,
                                     with.as.string.data, &changed, &why);
    }
    by__pattern_close(&compiled);
    if (status != BY_OK) {
        by_string_free(&changed);
        return by__template_render_fail(r, "regex_replace: %s", why.message);
    }
    by_string_add(&changed, "", 0);
    return by__template_value_move_text(r, &changed, out);
}
