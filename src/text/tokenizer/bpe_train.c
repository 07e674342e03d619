/* Trains a byte-level BPE (Sennrich et al. 2016) on word counts.
 *
 * The most frequent pair becomes a token, everywhere, until the vocabulary is full; ties go to
 * smaller ids. Counts are updated incrementally: a merge visits only the words that contain its
 * pair, and a heap gives the next pair. An entry of the heap has the count at the time of its push;
 * a stale one is pushed again with the current count when it is popped.
 *
 * The order is exactly that of Hugging Face's BpeTrainer: a merged pair keeps its count, an entry
 * knows only the words in which its pair appeared in that round, and when two different pairs make
 * the same token, they share its id. Only then can one pair be merged twice, and the later position
 * counts. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/heap.h"
#include "base/threads.h"
#include "text/tokenizer/split.h"
#include "text/tokenizer/word_counts.h"
#include "text/unicode/unicode.h"

#define COUNT_CHUNK ((size_t)1 << 20) /* bytes of text per unit of work */
#define NO_LIST     UINT32_MAX

/* Words that contain a pair, each once. */
typedef struct places {
    uint32_t *words;
    size_t count;
    size_t capacity;
} places;

typedef struct token_pair {
    uint32_t left;
    uint32_t right;
    int64_t count;
    uint32_t list;   /* index into `lists`, while the pair is being gathered in a round */
    uint32_t merged; /* merge + 1 at which it was last merged */
} token_pair;

typedef struct merge_candidate {
    uint64_t count;
    uint32_t pair;
    places where;
} merge_candidate;

typedef struct trainer {
    /* Words as symbols: word w is symbols[start[w], start[w] + length[w]). */
    uint32_t *symbols;
    size_t *start;
    uint32_t *length;
    const by__tokenizer_word *words;
    /* Pairs, and a hash table of them. */
    token_pair *pairs;
    size_t pair_count;
    size_t pair_capacity;
    by__base_table pair_table;
    /* The pairs that appeared in this round, and where. */
    uint32_t *fresh;
    places *lists;
    size_t fresh_count;
    size_t fresh_capacity;
    size_t list_capacity;
    merge_candidate *heap;
    size_t heap_count;
    size_t heap_capacity;
    /* Tokens by bytes. */
    by_tokenizer *tokenizer;
    by__base_table tokens;
} trainer;

/* ---- pairs ---- */

static uint64_t pair_hash(uint32_t left, uint32_t right)
{
    uint64_t h = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 32;
}

/* Returns the index of a pair; pair_count if it is not known. */
static size_t find_pair(const trainer *t, uint32_t left, uint32_t right)
{
    uint64_t hash = pair_hash(left, right);
    for (by__base_probe p = by__base_probe_begin(&t->pair_table, hash);
         by__base_probe_next(&t->pair_table, &p);) {
        if (t->pairs[p.number].left == left && t->pairs[p.number].right == right) {
            return p.number;
        }
    }
    return t->pair_count;
}

/* Adds `change` to the count of a pair of word w; if it is an increase, records the word. */
static by_status change_pair(trainer *t, uint32_t left, uint32_t right, int64_t change, uint32_t w,
                             by_error *error)
{
    size_t index = find_pair(t, left, right);
    if (index == t->pair_count) {
        BY_TRY(by__reserve((void **)&t->pairs, &t->pair_capacity, t->pair_count + 1,
                           sizeof *t->pairs, error));
        BY_TRY(by__base_table_add(&t->pair_table, pair_hash(left, right), index, "pairs", error));
        t->pairs[t->pair_count++] = (token_pair){left, right, 0, NO_LIST, 0};
    }
    token_pair *p = &t->pairs[index];
    p->count += change;
    if (change <= 0) {
        return BY_OK;
    }
    if (p->list == NO_LIST) {
        BY_TRY(by__reserve((void **)&t->fresh, &t->fresh_capacity, t->fresh_count + 1,
                           sizeof *t->fresh, error));
        BY_TRY(by__reserve((void **)&t->lists, &t->list_capacity, t->fresh_count + 1,
                           sizeof *t->lists, error));
        p->list = (uint32_t)t->fresh_count;
        t->fresh[t->fresh_count] = (uint32_t)index;
        t->lists[t->fresh_count] = (places){0};
        t->fresh_count++;
    }
    places *list = &t->lists[p->list];
    if (list->count > 0 && list->words[list->count - 1] == w) {
        return BY_OK; /* the changes of a word are consecutive */
    }
    BY_TRY(by__reserve((void **)&list->words, &list->capacity, list->count + 1, sizeof *list->words,
                       error));
    list->words[list->count++] = w;
    return BY_OK;
}

/* ---- the heap: highest count first, then smallest ids ---- */

static bool before(const void *user, const void *first, const void *second)
{
    const trainer *t = user;
    const merge_candidate *a = first;
    const merge_candidate *b = second;
    if (a->count != b->count) {
        return a->count > b->count;
    }
    const token_pair *x = &t->pairs[a->pair];
    const token_pair *y = &t->pairs[b->pair];
    return x->left != y->left ? x->left < y->left : x->right < y->right;
}

static by_status push(trainer *t, const merge_candidate *value, by_error *error)
{
    BY_TRY(by__reserve((void **)&t->heap, &t->heap_capacity, t->heap_count + 1, sizeof *t->heap,
                       error));
    by__heap_push(t->heap, t->heap_count++, sizeof *value, value, before, t);
    return BY_OK;
}

static merge_candidate pop(trainer *t)
{
    merge_candidate top;
    by__heap_pop(t->heap, t->heap_count--, sizeof top, &top, before, t);
    return top;
}

/* Moves the pairs of this round to the heap. */
static by_status push_fresh(trainer *t, by_error *error)
{
    by_status status = BY_OK;
    for (size_t i = 0; i < t->fresh_count; i++) {
        token_pair *p = &t->pairs[t->fresh[i]];
        p->list = NO_LIST;
        if (status == BY_OK && p->count > 0) {
            merge_candidate c = {(uint64_t)p->count, t->fresh[i], t->lists[i]};
            status = push(t, &c, error);
            if (status == BY_OK) {
                continue;
            }
        }
        free(t->lists[i].words);
    }
    t->fresh_count = 0;
    return status;
}

/* ---- tokens ---- */

/* Finds the token of these bytes, or adds it. */
static by_status intern_token(trainer *t, const char *data, size_t length, uint32_t *id,
                              by_error *error)
{
    const by_tokenizer *v = t->tokenizer;
    uint64_t hash = by__hash64(data, length);
    for (by__base_probe p = by__base_probe_begin(&t->tokens, hash);
         by__base_probe_next(&t->tokens, &p);) {
        size_t begin = v->offsets[p.number];
        if (v->offsets[p.number + 1] - begin == length &&
            memcmp(v->bytes + begin, data, length) == 0) {
            *id = p.number;
            return BY_OK;
        }
    }
    *id = v->vocab;
    BY_TRY(by__tokenizer_add_token(t->tokenizer, data, length, false, error));
    return by__base_table_add(&t->tokens, hash, *id, "tokens", error);
}

/* The token left + right, created if it does not exist. */
static by_status join_tokens(trainer *t, uint32_t left, uint32_t right, uint32_t *id,
                             by_error *error)
{
    const by_tokenizer *v = t->tokenizer;
    by_string joined = {0};
    char *data;
    by_string_add(&joined, v->bytes + v->offsets[left], v->offsets[left + 1] - v->offsets[left]);
    by_string_add(&joined, v->bytes + v->offsets[right], v->offsets[right + 1] - v->offsets[right]);
    size_t length = joined.length;
    BY_TRY(by__string_release(&joined, &data, error));
    by_status status = intern_token(t, data, length, id, error);
    free(data);
    return status;
}

/* <|endoftext|>, then the bytes in the order of their letters. */
static by_status add_alphabet(trainer *t, uint32_t byte_ids[256], by_error *error)
{
    BY_TRY(by__tokenizer_add_token(t->tokenizer, BY__END_OF_TEXT, strlen(BY__END_OF_TEXT), false,
                                   error));
    BY_TRY(by__tokenizer_add_end_of_text(t->tokenizer, 0, error));
    for (uint32_t letter = 0; letter < 0x200; letter++) {
        int byte = by__text_letter_byte(letter);
        if (byte >= 0) {
            char c = (char)(uint8_t)byte;
            BY_TRY(intern_token(t, &c, 1, &byte_ids[byte], error));
        }
    }
    return BY_OK;
}

/* ---- learning ---- */

static by_status load_words(trainer *t, const by__tokenizer_word_counts *counts,
                            const uint32_t byte_ids[256], by_error *error)
{
    t->words = counts->words;
    BY_TRY(by__alloc((void **)&t->symbols, counts->used, sizeof *t->symbols, "words", error));
    BY_TRY(by__alloc((void **)&t->start, counts->count, sizeof *t->start, "words", error));
    BY_TRY(by__alloc((void **)&t->length, counts->count, sizeof *t->length, "words", error));
    for (size_t i = 0; i < counts->used; i++) {
        t->symbols[i] = byte_ids[(uint8_t)counts->bytes[i]];
    }
    for (size_t w = 0; w < counts->count; w++) {
        if (counts->words[w].length > UINT32_MAX || counts->words[w].count > INT64_MAX) {
            return by_error_set(error, BY_EARG, "a run of %zu bytes without a border is too long",
                                counts->words[w].length);
        }
        t->start[w] = counts->words[w].start;
        t->length[w] = (uint32_t)counts->words[w].length;
        const uint32_t *s = t->symbols + t->start[w];
        for (uint32_t i = 0; i + 1 < t->length[w]; i++) {
            BY_TRY(change_pair(t, s[i], s[i + 1], (int64_t)counts->words[w].count, (uint32_t)w,
                               error));
        }
    }
    return push_fresh(t, error);
}

/* Merges the pair in one word and updates the counts around it. */
static by_status merge_word(trainer *t, uint32_t w, uint32_t left, uint32_t right, uint32_t id,
                            by_error *error)
{
    uint32_t *s = t->symbols + t->start[w];
    uint32_t n = t->length[w];
    uint32_t used = 0;
    int64_t count = (int64_t)t->words[w].count;
    for (uint32_t i = 0; i < n; i++) {
        if (s[i] != left || i + 1 >= n || s[i + 1] != right) {
            s[used++] = s[i];
            continue;
        }
        if (used > 0) {
            BY_TRY(change_pair(t, s[used - 1], left, -count, w, error));
            BY_TRY(change_pair(t, s[used - 1], id, count, w, error));
        }
        if (i + 2 < n) {
            BY_TRY(change_pair(t, right, s[i + 2], -count, w, error));
            BY_TRY(change_pair(t, id, s[i + 2], count, w, error));
        }
        s[used++] = id;
        i++;
    }
    t->length[w] = used;
    return BY_OK;
}

/* Takes the best pair and merges it everywhere. *done: there is none. */
static by_status merge_next(trainer *t, uint64_t min_frequency, bool *done, by_error *error)
{
    merge_candidate top = pop(t);
    token_pair *p = &t->pairs[top.pair];
    uint64_t count = p->count > 0 ? (uint64_t)p->count : 0;
    if (top.count != count) {
        top.count = count;
        by_status status = push(t, &top, error);
        if (status != BY_OK) {
            free(top.where.words);
        }
        return status;
    }
    by_status status = BY_OK;
    *done = count < 1 || count < min_frequency;
    if (!*done) {
        uint32_t id;
        uint32_t left = p->left;
        uint32_t right = p->right;
        status = join_tokens(t, left, right, &id, error);
        if (status == BY_OK) {
            status = by__tokenizer_add_merge(t->tokenizer, left, right, id, error);
        }
        p->merged = (uint32_t)t->tokenizer->merge_count;
        for (size_t i = 0; i < top.where.count && status == BY_OK; i++) {
            status = merge_word(t, top.where.words[i], left, right, id, error);
        }
        by_status pushed = push_fresh(t, status == BY_OK ? error : NULL);
        status = status == BY_OK ? pushed : status;
    }
    free(top.where.words);
    return status;
}

/* Keeps the last of the merges of one pair. */
static void drop_repeated(trainer *t)
{
    by_tokenizer *v = t->tokenizer;
    size_t kept = 0;
    for (size_t i = 0; i < v->merge_count; i++) {
        by__tokenizer_merge m = v->merges[i];
        if (t->pairs[find_pair(t, m.left, m.right)].merged == i + 1) {
            v->merges[kept++] = m;
        }
    }
    v->merge_count = kept;
}

static by_status learn(trainer *t, const by__tokenizer_word_counts *counts,
                       const by_bpe_options *options, by_error *error)
{
    uint32_t byte_ids[256];
    BY_TRY(by__tokenizer_new(&t->tokenizer, false, error));
    BY_TRY(add_alphabet(t, byte_ids, error));
    BY_TRY(load_words(t, counts, byte_ids, error));
    bool done = false;
    for (size_t step = 0; !done && t->tokenizer->vocab < options->vocab && t->heap_count > 0;
         step++) {
        BY_TRY(merge_next(t, options->min_frequency, &done, error));
        double share = 0.5 + 0.5 * (double)t->tokenizer->vocab / (double)options->vocab;
        if (options->progress != NULL && step % 256 == 0 &&
            !options->progress(options->user, share)) {
            return by_error_set(error, BY_ESTOPPED, "stopped while learning a vocabulary");
        }
    }
    if (t->tokenizer->merge_count > 0) {
        drop_repeated(t);
    }
    return by__tokenizer_finish(t->tokenizer, "learned vocabulary", error);
}

by_status by__tokenizer_bpe_learn(by_tokenizer **out, const by__tokenizer_word_counts *counts,
                                  const by_bpe_options *options, by_error *error)
{
    trainer t = {0};
    if (options->vocab < 257 || options->vocab > BY__MAX_TOKENS) {
        return by_error_set(error, BY_EARG,
                            "a byte-level vocabulary of %zu is not from 257 (256 bytes and "
                            "<|endoftext|>) to %zu",
                            options->vocab, BY__MAX_TOKENS);
    }
    by_status status = learn(&t, counts, options, error);
    for (size_t i = 0; i < t.heap_count; i++) {
        free(t.heap[i].where.words);
    }
    for (size_t i = 0; i < t.fresh_count; i++) {
        free(t.lists[i].words);
    }
    free(t.heap);
    free(t.lists);
    free(t.fresh);
    by__base_table_free(&t.pair_table);
    free(t.pairs);
    free(t.length);
    free(t.start);
    free(t.symbols);
    by__base_table_free(&t.tokens);
    if (status != BY_OK) {
        by_tokenizer_close(&t.tokenizer);
        return status;
    }
    *out = t.tokenizer;
    return BY_OK;
}

/* ---- texts in memory ---- */

typedef struct counting {
    const by_bpe_options *options;
    const by_text *texts;
    size_t count;
    pthread_mutex_t lock; /* protects the following members */
    size_t text;
    size_t offset;
    uint64_t done;
    uint64_t total;
    bool stopped;
    by__tokenizer_word_counts *tables; /* one per thread */
} counting;

/* The next chunk of the texts; returns false if there is none. */
static bool next_chunk(counting *c, by_text *chunk)
{
    bool found = false;
    (void)pthread_mutex_lock(&c->lock);
    while (!c->stopped && c->text < c->count && c->offset >= c->texts[c->text].length) {
        c->text++;
        c->offset = 0;
    }
    if (!c->stopped && c->text < c->count) {
        const by_text *text = &c->texts[c->text];
        size_t left = text->length - c->offset;
        chunk->data = text->data + c->offset;
        chunk->length = left;
        if (left > COUNT_CHUNK) {
            chunk->length =
                by__tokenizer_split_chunk((const uint8_t *)chunk->data, left, COUNT_CHUNK);
        }
        c->offset += chunk->length;
        c->done += chunk->length;
        found = true;
        if (c->options->progress != NULL &&
            !c->options->progress(c->options->user, 0.5 * (double)c->done / (double)c->total)) {
            c->stopped = true;
            found = false;
        }
    }
    (void)pthread_mutex_unlock(&c->lock);
    return found;
}

static by_status count_words(void *context, size_t i, by_error *error)
{
    counting *c = context;
    by_text chunk;
    while (next_chunk(c, &chunk)) {
        BY_TRY(by__tokenizer_word_counts_add(&c->tables[i], chunk.data, chunk.length, error));
    }
    return BY_OK;
}

by_status by_tokenizer_train_bpe(by_tokenizer **out, const by_bpe_options *options,
                                 const by_text *texts, size_t count, by_error *error)
{
    counting c = {
        .options = options, .texts = texts, .count = count, .lock = PTHREAD_MUTEX_INITIALIZER};
    size_t threads = options->threads > 0 ? options->threads : (size_t)by__thread_count(-1);
    for (size_t i = 0; i < count; i++) {
        c.total += texts[i].length;
    }
    BY_TRY(by__alloc((void **)&c.tables, threads, sizeof *c.tables, "word tables", error));
    by_status status = by__threads_run(threads, count_words, &c, error);
    if (status == BY_OK && c.stopped) {
        status = by_error_set(error, BY_ESTOPPED, "stopped while counting words");
    }
    for (size_t i = 1; i < threads && status == BY_OK; i++) {
        status = by__tokenizer_word_counts_merge(&c.tables[0], &c.tables[i], error);
    }
    if (status == BY_OK) {
        status = by__tokenizer_bpe_learn(out, &c.tables[0], options, error);
    }
    for (size_t i = 0; i < threads; i++) {
        by__tokenizer_word_counts_free(&c.tables[i]);
    }
    free(c.tables);
    return status;
}
