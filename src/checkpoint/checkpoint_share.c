/* Files that are equal, byte for byte, to those of an earlier checkpoint become hard links to them:
 * nothing is written, and whichever checkpoint is removed first, the other keeps the file. A file
 * is compared with the data to be saved before it is linked, so a damaged earlier file is never
 * reused. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/checkpoint_writer.h"

by_status by__checkpoint_share_find(by_checkpoint_writer *w, by_error *error)
{
    uint64_t *steps;
    size_t count;
    BY_TRY(by__checkpoint_root_steps(&steps, &count, w->root, error));
    for (size_t i = 0; i < count && w->previous == NULL; i++) {
        if (steps[i] != w->step) {
            (void)by__checkpoint_root_read(&w->earlier, &w->previous, w->root, steps[i], false,
                                           NULL);
        }
    }
    free(steps);
    return BY_OK;
}

/* The record of a file of that size that the earlier checkpoint owns; NULL: there is none. */
static const by__checkpoint_file_record *find_earlier(const by_checkpoint_writer *w,
                                                      const char *name, uint64_t size)
{
    const by__checkpoint_file_record *r =
        w->previous == NULL ? NULL : by__checkpoint_file_list_find(&w->earlier.files, name);
    return r != NULL && r->in == NULL && r->size == size && size >= BY__SHARED_BYTES ? r : NULL;
}

static bool map_earlier(by__map *map, const by_checkpoint_writer *w, const char *name,
                        uint64_t size)
{
    char *path = find_earlier(w, name, size) == NULL ? NULL : by__path_join(w->previous, name);
    bool mapped = path != NULL && by__map_open(map, path, NULL) == BY_OK;
    free(path);
    if (mapped && map->size != size) {
        by__map_close(map);
        mapped = false;
    }
    return mapped;
}

void by__checkpoint_share_begin(const by_checkpoint_writer *w, by__checkpoint_weight_file *f)
{
    const by_string *header = &f->plan->header;
    if (!f->is_frozen || !map_earlier(&f->same, w, f->plan->name, f->plan->size)) {
        return;
    }
    if (memcmp(f->same.data, header->data, header->length) != 0) {
        by__map_close(&f->same);
        return;
    }
    f->position = header->length;
}

bool by__checkpoint_share_matches(by__checkpoint_weight_file *f, const void *data, size_t n)
{
    if (n > f->same.size - f->position || memcmp(f->same.data + f->position, data, n) != 0) {
        return false;
    }
    f->position += n;
    return true;
}

/* Links the earlier file recorded in `r`. */
static by_status link_earlier(const by_checkpoint_writer *w, const by__checkpoint_file_record *r,
                              by__checkpoint_file_list *written, bool *linked, by_error *error)
{
    char *from = by__path_join(w->previous, r->name);
    char *to = by__path_join(w->temporary, r->name);
    *linked = from != NULL && to != NULL && link(from, to) == 0;
    free(from);
    free(to);
    return *linked ? by__checkpoint_file_list_add(written, r->name, r->size, r->hash, NULL, error)
                   : BY_OK;
}

by_status by__checkpoint_share_end(by_checkpoint_writer *w, by__checkpoint_weight_file *f,
                                   bool *linked, by_error *error)
{
    const by__checkpoint_file_record *r = find_earlier(w, f->plan->name, f->plan->size);
    BY_TRY(link_earlier(w, r, &f->whole, linked, error));
    if (*linked) {
        by__map_close(&f->same);
    }
    return BY_OK;
}

by_status by__checkpoint_share_content(by_checkpoint_writer *w, const char *name, const void *data,
                                       size_t n, by__checkpoint_file_list *written, bool *linked,
                                       by_error *error)
{
    by__map map;
    *linked = false;
    if (!map_earlier(&map, w, name, n)) {
        return BY_OK;
    }
    bool equal = memcmp(map.data, data, n) == 0;
    by__map_close(&map);
    return equal ? link_earlier(w, find_earlier(w, name, n), written, linked, error) : BY_OK;
}
