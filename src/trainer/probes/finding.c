/* Which rank has the earliest finding. */
#include <stdlib.h>

#include "trainer/probes/finding.h"

by_status by__trainer_finding_share(const by_trainer *t, by__trainer_finding *mine, int32_t *rank,
                                    by_error *error)
{
    by_comm *all = t->ranks.all;
    *rank = 0;
    if (all == NULL || t->layout.ranks == 1) {
        return BY_OK;
    }
    size_t ranks = (size_t)by_comm_size(all);
    size_t me = (size_t)by_comm_rank(all);
    by__trainer_finding *list;
    size_t *counts = NULL;
    BY_TRY(by__alloc((void **)&list, ranks, sizeof *list, "findings", error));
    by_status status = by__alloc((void **)&counts, ranks, sizeof *counts, "findings", error);
    for (size_t r = 0; r < ranks && status == BY_OK; r++) {
        counts[r] = sizeof *list / sizeof(int32_t);
    }
    if (status == BY_OK) {
        list[me] = *mine;
        status = by_comm_all_gather(all, &list[me], list, counts, BY_I32,
                                    "where a value is not finite", error);
    }
    for (size_t r = 0; r < ranks && status == BY_OK; r++) {
        const by__trainer_finding *f = &list[r];
        bool same = f->leaf == mine->leaf && f->part == mine->part;
        if (r == 0 || f->leaf < mine->leaf || (f->leaf == mine->leaf && f->part < mine->part) ||
            (same && f->node < mine->node)) {
            *mine = *f;
            *rank = (int32_t)r;
        }
    }
    free(counts);
    free(list);
    return status;
}
