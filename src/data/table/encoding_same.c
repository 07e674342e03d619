/* Whether two encodings are the same. */
#include <string.h>

#include "data/table/encoding.h"

/* Whether all values of a category are some of another one's. */
static bool has_all(const by__table_encoded *all, const by__table_encoded *some)
{
    for (size_t i = 0; i < some->count; i++) {
        if (by__same_value((const char *const *)all->values, all->count, &all->aliases,
                           some->values[i]) < 0) {
            return false;
        }
    }
    return true;
}

static bool same_feature(const by__table_encoded *a, const by__table_encoded *b)
{
    if (strcmp(a->name, b->name) != 0 || a->is_category != b->is_category) {
        return false;
    }
    return a->is_category ? has_all(a, b) && has_all(b, a)
                          : a->mean == b->mean && a->deviation == b->deviation;
}

bool by__table_encoding_same(const by_encoding *a, const by_encoding *b)
{
    bool same = a->number_count == b->number_count && a->category_count == b->category_count &&
                a->target_count == b->target_count && (a->text == NULL) == (b->text == NULL) &&
                (a->text == NULL || strcmp(a->text, b->text) == 0) &&
                (a->pair == NULL) == (b->pair == NULL) &&
                (a->pair == NULL || strcmp(a->pair, b->pair) == 0);
    for (size_t i = 0; same && i < a->number_count; i++) {
        same = same_feature(&a->numbers[i], &b->numbers[i]);
    }
    for (size_t i = 0; same && i < a->category_count; i++) {
        same = same_feature(&a->categories[i], &b->categories[i]);
    }
    for (size_t i = 0; same && i < a->target_count; i++) {
        same = same_feature(&a->targets[i], &b->targets[i]);
    }
    return same;
}
