/* What is told of examples while they are opened: damage that is left out, and remarks. */
#include <stdlib.h>

#include "banyan/train_events.h"
#include "base/wire/url_hide.h"
#include "tasks/examples/examples_open.h"

/* Takes damage with its path as it is shown: events keep it. */
static by_status add_shown(by__task_examples *d, const by_damage *item, by_error *error)
{
    by_damage shown = *item;
    char *path = by__strdup(item->path);
    if (path == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: damaged data");
    }
    by__url_hide(path);
    shown.path = path;
    by_status status = by__loader_damage_add(&d->damage, &shown, error);
    free(path);
    return status;
}

by_status by__task_examples_add_damage(by__task_examples *d, const by_damage *damage, size_t count,
                                       uint64_t kept, by_error *error)
{
    uint64_t before = d->damage.total;
    for (size_t i = 0; i < count; i++) {
        BY_TRY(add_shown(d, &damage[i], error));
    }
    d->base.damage = d->damage.items;
    d->base.damage_count = d->damage.count;
    d->base.damaged = d->damage.total;
    d->base.all += kept + d->damage.total - before;
    return BY_OK;
}

void by__task_examples_remark(const by_task_request *r, const char *text)
{
    const by_train_options *to = r->progress;
    if (text[0] != '\0' && to != NULL && to->event != NULL) {
        const by_train_event event = {.kind = BY_TRAIN_NOTE, .text = text};
        to->event(to->user, &event);
    }
}
