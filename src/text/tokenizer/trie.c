#include "text/tokenizer/trie.h"

#include <stdlib.h>
#include <string.h>

#define NONE  BY__TRIE_NONE
#define TRIES 32u /* free nodes that are tried for a node of several children */

/* Free nodes are a list in the order of their places, by `base` (next) and `value` (previous). */
typedef struct builder {
    by__tokenizer_trie *trie;
    const by__tokenizer_trie_key *keys;
    uint32_t first;
    uint32_t last;
} builder;

/* A node whose children are still to be made: those of keys [begin, end), equal up to `depth`. */
typedef struct unexpanded {
    uint32_t node;
    size_t begin;
    size_t end;
    size_t depth;
} unexpanded;

static int compare_keys(const void *a, const void *b)
{
    const by__tokenizer_trie_key *x = a;
    const by__tokenizer_trie_key *y = b;
    size_t n = x->length < y->length ? x->length : y->length;
    int order = n > 0 ? memcmp(x->data, y->data, n) : 0;
    return order != 0               ? order
           : x->length != y->length ? (x->length < y->length ? -1 : 1)
                                    : (x->value > y->value) - (x->value < y->value);
}

/* Makes free nodes up to `count`. */
static by_status grow(builder *b, size_t count, by_error *error)
{
    by__tokenizer_trie *t = b->trie;
    if (count >= NONE / 2) {
        return by_error_set(error, BY_EFORMAT, "a vocabulary is too large to be searched");
    }
    BY_TRY(by__reserve((void **)&t->nodes, &t->capacity, count, sizeof *t->nodes, error));
    for (; t->count < count; t->count++) {
        uint32_t at = (uint32_t)t->count;
        t->nodes[at] = (by__tokenizer_trie_node){NONE, NONE, b->last};
        if (b->last == NONE) {
            b->first = at;
        } else {
            t->nodes[b->last].base = at;
        }
        b->last = at;
    }
    return BY_OK;
}

static void take(builder *b, uint32_t at, uint32_t parent)
{
    by__tokenizer_trie_node *nodes = b->trie->nodes;
    uint32_t next = nodes[at].base;
    uint32_t previous = nodes[at].value;
    if (previous == NONE) {
        b->first = next;
    } else {
        nodes[previous].base = next;
    }
    if (next == NONE) {
        b->last = previous;
    } else {
        nodes[next].value = previous;
    }
    nodes[at] = (by__tokenizer_trie_node){0, parent, NONE};
}

static bool fits(const builder *b, size_t base, const uint8_t *bytes, size_t count)
{
    const by__tokenizer_trie *t = b->trie;
    for (size_t i = 0; i < count; i++) {
        size_t at = base + bytes[i];
        if (at == 0 || (at < t->count && t->nodes[at].parent != NONE)) {
            return false;
        }
    }
    return true;
}

/* Finds a place for children, whose bytes ascend. */
static by_status place(builder *b, const uint8_t *bytes, size_t count, size_t *base,
                       by_error *error)
{
    uint32_t at = b->first;
    *base = b->trie->count;
    for (unsigned i = 0; at != NONE && i < TRIES; i++, at = b->trie->nodes[at].base) {
        if (at >= bytes[0] && fits(b, at - bytes[0], bytes, count)) {
            *base = at - bytes[0];
            break;
        }
    }
    return grow(b, *base + 256, error);
}

/* Makes the children of a node, and adds them to the stack. */
static by_status expand(builder *b, const unexpanded *p, unexpanded **stack, size_t *used,
                        size_t *capacity, by_error *error)
{
    uint8_t bytes[256];
    size_t starts[257];
    size_t count = 0;
    size_t base;
    size_t begin = p->begin;
    for (; begin < p->end && b->keys[begin].length == p->depth; begin++) {
        by__tokenizer_trie_node *node = &b->trie->nodes[p->node];
        node->value = node->value == NONE ? b->keys[begin].value : node->value;
    }
    for (size_t i = begin; i < p->end; i++) {
        uint8_t byte = b->keys[i].data[p->depth];
        if (count == 0 || bytes[count - 1] != byte) {
            bytes[count] = byte;
            starts[count++] = i;
        }
    }
    if (count == 0) {
        return BY_OK;
    }
    starts[count] = p->end;
    BY_TRY(place(b, bytes, count, &base, error));
    BY_TRY(by__reserve((void **)stack, capacity, *used + count, sizeof **stack, error));
    b->trie->nodes[p->node].base = (uint32_t)base;
    for (size_t i = 0; i < count; i++) {
        uint32_t child = (uint32_t)base + bytes[i];
        take(b, child, p->node);
        (*stack)[(*used)++] = (unexpanded){child, starts[i], starts[i + 1], p->depth + 1};
    }
    return BY_OK;
}

by_status by__tokenizer_trie_make(by__tokenizer_trie *trie, by__tokenizer_trie_key *keys,
                                  size_t count, by_error *error)
{
    builder b = {trie, keys, NONE, NONE};
    unexpanded *stack = NULL;
    size_t used = 0;
    size_t capacity = 0;
    if (count > 0) {
        qsort(keys, count, sizeof *keys, compare_keys);
    }
    BY_TRY(grow(&b, 512, error));
    take(&b, 0, NONE);
    by_status status = by__reserve((void **)&stack, &capacity, 1, sizeof *stack, error);
    if (status == BY_OK) {
        stack[used++] = (unexpanded){0, 0, count, 0};
    }
    while (status == BY_OK && used > 0) {
        unexpanded p = stack[--used];
        status = expand(&b, &p, &stack, &used, &capacity, error);
    }
    free(stack);
    for (size_t i = 1; i < trie->count; i++) {
        if (trie->nodes[i].parent == NONE) {
            trie->nodes[i] = (by__tokenizer_trie_node){0, NONE, NONE};
        }
    }
    return status;
}

void by__tokenizer_trie_free(by__tokenizer_trie *trie)
{
    free(trie->nodes);
    *trie = (by__tokenizer_trie){0};
}
