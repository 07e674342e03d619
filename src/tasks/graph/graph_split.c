#include "tasks/graph/graph_split.h"

#include <stdlib.h>

#include "data/loader/row_list.h"

void by__task_graph_split_free(by__task_graph_split *split)
{
    by__nodes_split_free(&split->lists);
    free(split->listed);
    *split = (by__task_graph_split){.listed = NULL};
}

static by_status read_list(uint64_t **ids, uint64_t *count, const char *path, uint64_t all,
                           by_error *error)
{
    return path[0] == '\0' ? BY_OK : by__loader_row_list_read(ids, count, path, all, error);
}

by_status by__task_graph_split_read(by__nodes_split *s, const char *train, const char *valid,
                                    const char *test, uint64_t all, const char *what,
                                    by_error *error)
{
    const char *const names[] = {valid, test};
    BY_TRY(read_list(&s->train, &s->train_count, train, all, error));
    BY_TRY(read_list(&s->valid, &s->valid_count, valid, all, error));
    BY_TRY(read_list(&s->test, &s->test_count, test, all, error));
    for (int i = 0; i < 2 && s->train != NULL; i++) {
        const uint64_t *held = i == 0 ? s->valid : s->test;
        uint64_t count = i == 0 ? s->valid_count : s->test_count;
        bool found = false;
        uint64_t id = 0;
        if (held != NULL) {
            BY_TRY(by__loader_row_list_common(&found, &id, s->train, s->train_count, held, count,
                                              all, error));
        }
        if (found) {
            return by_error_set(error, BY_ECONFIG, "%s %llu is in %s and in %s", what,
                                (unsigned long long)id, train, names[i]);
        }
    }
    return BY_OK;
}

by_status by__task_graph_choose(uint64_t **ids, uint64_t *count, const by_task_request *request,
                                uint64_t all, const char *what, const char *name, by_error *error)
{
    const uint64_t *chosen = request->chosen;
    *count = chosen != NULL ? request->chosen_count : all;
    BY_TRY(by__alloc((void **)ids, (size_t)*count + 1, sizeof **ids, what, error));
    for (uint64_t i = 0; i < *count; i++) {
        (*ids)[i] = chosen != NULL ? chosen[i] : i;
        if ((*ids)[i] >= all) {
            return by_error_set(error, BY_EARG, "%s has no %s %llu; there are %llu, from 0", name,
                                what, (unsigned long long)(*ids)[i], (unsigned long long)all);
        }
    }
    return BY_OK;
}

const uint64_t *by__task_graph_split_held_out(const by__task_graph_split *s, uint64_t *count)
{
    *count = s->listed != NULL ? s->listed_count
             : s->test         ? s->lists.test_count
                               : s->lists.valid_count;
    return s->listed != NULL ? s->listed : s->test ? s->lists.test : s->lists.valid;
}
