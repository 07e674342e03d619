/* What functions, filters and tests of a template read from their arguments. */
#include "text/template/template.h"

const by__template_value *by__template_argument(const by__template_arguments *a, size_t index,
                                                const char *name)
{
    if (index < a->count) {
        return &a->values[index];
    }
    for (size_t i = 0; i < a->keyword_count && name != NULL; i++) {
        if (by__template_value_is(&a->keywords[i].key, name)) {
            return &a->keywords[i].value;
        }
    }
    return NULL;
}

by_status by__template_arguments_check(by__template_render *r, const by__template_arguments *a,
                                       const char *what, size_t most, const char *const *names)
{
    if (a->count > most) {
        return by__template_render_fail(r, "%s takes at most %zu arguments, not %zu", what, most,
                                        a->count);
    }
    for (size_t i = 0; i < a->keyword_count; i++) {
        bool known = false;
        for (size_t k = 0; names != NULL && names[k] != NULL && !known; k++) {
            known = by__template_value_is(&a->keywords[i].key, names[k]);
        }
        if (!known) {
            return by__template_render_fail(r, "%s has no argument '%.60s'", what,
                                            a->keywords[i].key.as.string.data);
        }
    }
    return BY_OK;
}
