/* The bounds of a render: its steps, its depth and its memory. */
#include <stdarg.h>
#include <stdio.h>

#include "text/template/template.h"

#define MAX_DEPTH 400u

by_status(by__template_render_fail)(by__template_render *r, const char *format, ...)
{
    char message[400];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return by_error_set(r->error, BY_EARG, "%s:%u: %s", r->tpl->name, r->line, message);
}

by_status by__template_render_steps(by__template_render *r, size_t count)
{
    if (count >= r->steps) {
        return by__template_render_fail(r, "the template takes more steps than it may");
    }
    r->steps -= count;
    return BY_OK;
}

by_status by__template_render_enter(by__template_render *r)
{
    if (r->depth >= MAX_DEPTH) {
        return by__template_render_fail(r, "calls or values are nested deeper than %u", MAX_DEPTH);
    }
    r->depth++;
    return by__template_render_steps(r, 1);
}

by_status by__template_render_allocate(by__template_render *r, void **out, size_t count,
                                       size_t size)
{
    by_status status = by__template_arena_allocate(&r->arena, out, count, size, r->error);
    if (status == BY_EARG) {
        return by__template_render_fail(r, "the template needs more memory than it may have");
    }
    return status;
}
