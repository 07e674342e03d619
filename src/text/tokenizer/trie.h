/* A set of byte strings with values, as a double array (Aoe 1989): a step from a node by a byte is
 * one look-up. Finds all keys that a text begins with. */
#ifndef BY_TEXT_TOKENIZER_TRIE_H
#define BY_TEXT_TOKENIZER_TRIE_H

#include "base/base.h"

#define BY__TRIE_NONE UINT32_MAX

typedef struct by__tokenizer_trie_key {
    const uint8_t *data;
    size_t length;
    uint32_t value;
} by__tokenizer_trie_key;

typedef struct by__tokenizer_trie_node {
    uint32_t base;   /* the child by byte b is at base + b, if its parent is this node */
    uint32_t parent; /* BY__TRIE_NONE: free, or the root, which is node 0 */
    uint32_t value;  /* BY__TRIE_NONE: no key ends here */
} by__tokenizer_trie_node;

typedef struct by__tokenizer_trie {
    by__tokenizer_trie_node *nodes;
    size_t count; /* 0: not made */
    size_t capacity;
} by__tokenizer_trie;

/* Makes a trie of keys, which are sorted in place; of equal ones, the first counts. */
by_status by__tokenizer_trie_make(by__tokenizer_trie *trie, by__tokenizer_trie_key *keys,
                                  size_t count, by_error *error);
void by__tokenizer_trie_free(by__tokenizer_trie *trie);

/* Moves to the child by a byte; false if there is none. */
static inline bool by__trie_step(const by__tokenizer_trie *trie, uint32_t *node, uint8_t byte)
{
    uint32_t next = trie->nodes[*node].base + byte; /* within the nodes, whatever the byte */
    if (trie->nodes[next].parent != *node) {
        return false;
    }
    *node = next;
    return true;
}

#endif
