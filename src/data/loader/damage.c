#include "data/loader/damage.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* Copies a text; the two newest copies are reused, so that a file with many damaged parts has its
 * name stored once. */
static by_status keep_text(by__loader_damage *d, const char *text, const char **out,
                           by_error *error)
{
    for (size_t i = d->text_count; i > 0 && i + 2 > d->text_count; i--) {
        if (strcmp(d->texts[i - 1], text) == 0) {
            *out = d->texts[i - 1];
            return BY_OK;
        }
    }
    BY_TRY(by__reserve((void **)&d->texts, &d->text_capacity, d->text_count + 1, sizeof *d->texts,
                       error));
    char *copy = by__strdup(text);
    if (copy == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: damaged data");
    }
    d->texts[d->text_count++] = copy;
    *out = copy;
    return BY_OK;
}

by_status by__loader_damage_add(by__loader_damage *d, const by_damage *item, by_error *error)
{
    by_damage copy = *item;
    by_damage *last = d->count == 0 ? NULL : &d->items[d->count - 1];
    if (last != NULL && last->begin + last->count == item->begin &&
        strcmp(last->path, item->path) == 0 && strcmp(last->reason, item->reason) == 0) {
        last->count += item->count;
        d->total += item->count;
        return BY_OK;
    }
    BY_TRY(keep_text(d, item->path, &copy.path, error));
    BY_TRY(keep_text(d, item->reason, &copy.reason, error));
    BY_TRY(by__reserve((void **)&d->items, &d->capacity, d->count + 1, sizeof *d->items, error));
    d->items[d->count++] = copy;
    d->total += item->count;
    return BY_OK;
}

void by__loader_damage_free(by__loader_damage *d)
{
    for (size_t i = 0; i < d->text_count; i++) {
        free(d->texts[i]);
    }
    free(d->texts);
    free(d->items);
    *d = (by__loader_damage){0};
}

bool by__loader_damage_touches(const by__loader_damage *d, uint64_t begin, uint64_t end)
{
    size_t low = 0;
    size_t high = d->count; /* the first item that ends after `begin` */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (d->items[middle].begin + d->items[middle].count <= begin) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < d->count && d->items[low].begin < end;
}

double by__loader_damage_allowed(double budget, uint64_t all)
{
    double share = budget * (double)all;
    return budget >= 1.0 || budget <= 0.0 ? budget : share < 1.0 ? 1.0 : share;
}
