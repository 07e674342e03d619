#include "infer/scheduler.h"

#include <assert.h>
#include <string.h>

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t pages_for(int64_t tokens)
{
    return (tokens + BY_PAGE_TOKENS - 1) / BY_PAGE_TOKENS;
}

static int32_t *pages_of(by_engine *e, const by__infer_sequence *s)
{
    return e->steps.page_table + s->row * e->steps.table;
}

/* Returns how many tokens must be computed before the next one can be chosen. */
static int64_t pending(const by__infer_sequence *s)
{
    return s->count - s->cached;
}

void by__infer_release(by_engine *e, by__infer_sequence *s)
{
    if (s->state == BY__RUNNING) {
        /* From the last page on, so that the prefix cache evicts the ends of texts before their
         * beginnings. */
        for (int32_t i = s->pages; i-- > 0;) {
            by__infer_pool_release(&e->pool, pages_of(e, s)[i]);
        }
        e->free_rows[e->free_row_count++] = s->row;
    }
    s->state = BY__WAITING;
    s->row = -1;
    s->pages = 0;
    s->registered = 0;
    s->cached = 0;
    s->rows = 0;
    s->drafts = 0;
}

/* Preempts the running sequence with the lowest rank after index `at` of the order. Returns false
 * if there is none. */
static bool preempt_after(by_engine *e, int64_t at)
{
    for (int64_t i = e->live; i-- > at + 1;) {
        by__infer_sequence *s = &e->slots[e->order[i]];
        if (s->state == BY__RUNNING) {
            by__infer_release(e, s);
            e->statistics.preemptions++;
            return true;
        }
    }
    return false;
}

/* Takes the sequence's next page, preferably the one that follows its last page. */
static int32_t next_page(by_engine *e, const by__infer_sequence *s)
{
    int64_t wanted = s->pages > 0 ? pages_of(e, s)[s->pages - 1] + 1
                                  : by__infer_pool_stretch(&e->pool, pages_for(s->limit));
    return by__infer_pool_allocate_at(&e->pool, wanted);
}

/* Takes a page for the sequence at index `at`, preempting sequences after it if necessary. more: it
 * is an additional page; otherwise it replaces another. */
static int32_t allocate_page(by_engine *e, int64_t at, bool more)
{
    const by__infer_sequence *s = &e->slots[e->order[at]];
    int32_t page = more ? next_page(e, s) : by__infer_pool_allocate(&e->pool);
    while (page == BY__NO_PAGE && preempt_after(e, at)) {
        page = by__infer_pool_allocate(&e->pool);
    }
    return page;
}

/* Takes pages for the tokens below `end`, and returns how many of them there is room for. If the
 * next page to be written is shared, it is replaced by a copy. */
static int64_t make_room(by_engine *e, int64_t at, int64_t end)
{
    by__infer_sequence *s = &e->slots[e->order[at]];
    int32_t *pages = pages_of(e, s);
    int64_t next = s->cached / BY_PAGE_TOKENS;
    if (next < s->pages && e->pool.pages[pages[next]].uses > 1) {
        int32_t own = allocate_page(e, at, false);
        if (own == BY__NO_PAGE) {
            return s->cached;
        }
        e->copies[e->copy_count++] = (by__infer_page_copy){own, pages[next]};
        e->statistics.copied_pages++;
        by__infer_pool_release(&e->pool, pages[next]);
        pages[next] = own;
    }
    while (s->pages < pages_for(end)) {
        int32_t page = allocate_page(e, at, true);
        if (page == BY__NO_PAGE) {
            break;
        }
        pages[s->pages++] = page;
    }
    return smaller(end, (int64_t)s->pages * BY_PAGE_TOKENS);
}

int64_t by__infer_grow(by_engine *e, by__infer_sequence *s, int64_t end)
{
    while (s->pages < pages_for(end)) {
        int32_t page = next_page(e, s);
        if (page == BY__NO_PAGE) {
            break;
        }
        pages_of(e, s)[s->pages++] = page;
    }
    return smaller(end, (int64_t)s->pages * BY_PAGE_TOKENS);
}

/* A sequence whose prompt has tokens that are to be scored. */
static bool is_scoring(const by__infer_sequence *s)
{
    return s->scores && s->scored < s->prompt - 1;
}

/* Finds the pages of the sequence's beginning in the prefix cache and lists them in e->found,
 * without using them yet. *unused receives how many of them no sequence uses. The last token, and
 * those behind which one is to be scored, are always computed, because their logits are needed. */
static int64_t find_prefix(by_engine *e, const by__infer_sequence *s, int64_t *unused)
{
    by__infer_prefix behind = {s->salt, true};
    int64_t usable = is_scoring(s) ? s->scored : s->count - 1;
    int64_t most = e->options.no_prefix_cache ? 0 : usable / BY_PAGE_TOKENS;
    int64_t count = 0;
    *unused = 0;
    for (; count < most; count++) {
        int32_t page = by__infer_prefix_find(&e->pool, behind, s->tokens + count * BY_PAGE_TOKENS);
        if (page == BY__NO_PAGE) {
            break;
        }
        e->found[count] = page;
        *unused += e->pool.pages[page].uses == 0;
        behind = by__infer_prefix_of(&e->pool, page);
    }
    return count;
}

/* Starts the waiting sequence at index `at` if there is room for all its tokens. Available are free
 * pages, those that only the prefix cache holds, and those of sequences of a lower rank; sequences
 * of a higher rank keep what they need for their tokens and, if they run long enough, one page
 * more, so that they are not soon short of pages. */
static bool admit(by_engine *e, int64_t at)
{
    by__infer_sequence *s = &e->slots[e->order[at]];
    int64_t behind = 0; /* running sequences of a lower rank */
    int64_t unused;
    int64_t found = find_prefix(e, s, &unused);
    int64_t room = by__infer_pool_available(&e->pool) - unused;
    for (int64_t i = 0; i < e->live; i++) {
        const by__infer_sequence *other = &e->slots[e->order[i]];
        if (other->state == BY__RUNNING) {
            behind += i > at;
            int64_t soon = smaller(other->limit, other->count + BY_PAGE_TOKENS);
            room += i > at ? other->pages : other->pages - pages_for(soon);
        }
    }
    if (room < pages_for(s->count) - found || (e->free_row_count == 0 && behind == 0)) {
        return false;
    }
    if (e->free_row_count == 0) {
        (void)preempt_after(e, at);
    }
    s->state = BY__RUNNING;
    s->row = e->free_rows[--e->free_row_count];
    s->prefix = (by__infer_prefix){s->salt, true};
    for (int64_t i = 0; i < found; i++) {
        pages_of(e, s)[i] = e->found[i];
        by__infer_pool_share(&e->pool, e->found[i]);
        s->prefix = by__infer_prefix_of(&e->pool, e->found[i]);
    }
    s->pages = s->registered = (int32_t)found;
    s->cached = found * BY_PAGE_TOKENS;
    e->statistics.looked_up += e->options.no_prefix_cache ? 0 : (uint64_t)s->count;
    e->statistics.found += (uint64_t)s->cached;
    return true;
}

/* Of the rows for prompts, 1 / FIRST_SHARE is reserved for the one that has waited longest. */
#define FIRST_SHARE 4

static bool reads_prompt(const by__infer_sequence *s)
{
    return s->state == BY__RUNNING && pending(s) > 1 && !s->held;
}

int64_t by__infer_scored_rows(const by__infer_sequence *s)
{
    int64_t begin = s->scored > s->cached ? s->scored : s->cached;
    int64_t rows = smaller(s->cached + s->rows, s->prompt - 1) - begin;
    return s->scores && rows > 0 ? rows : 0;
}

/* Adds up to `most` rows to a sequence that reads its prompt, and returns how many. One row of each
 * sequence may have logits; a prompt that is scored has them in nearly every row, and takes what no
 * sequence needs. */
static int64_t add_rows(by_engine *e, by__infer_sequence *s, int64_t most)
{
    int64_t rows = smaller(pending(s) - s->rows, most);
    if (is_scoring(s)) {
        int64_t silent = s->scored > s->cached ? s->scored - s->cached : 0;
        int64_t used = s->rows - silent - 1;
        used = used > 0 ? used : 0;
        rows = smaller(rows, silent + 1 + used + e->spare - s->rows);
        int64_t uses = s->rows + rows - silent - 1;
        e->spare -= (uses > 0 ? uses : 0) - used;
    }
    s->rows += rows;
    return rows;
}

/* Whether a prompt may have more rows in this step. */
static bool may_grow(const by_engine *e, const by__infer_sequence *s)
{
    bool starved = is_scoring(s) && e->spare == 0 && s->cached + s->rows > s->scored;
    return reads_prompt(s) && s->rows < pending(s) && !starved;
}

/* Divides `left` rows among the prompts of one priority, indexes [begin, end) of the order, and
 * returns how many rows remain. Shortest remaining prompt first (Schrage 1968) gives the lowest
 * mean time to the first token: a short prompt does not wait for a long one, and of equal prompts
 * the first is completed first, where equal shares would complete all of them at the end. The
 * reserved share completes a long prompt no matter how many short ones arrive. */
static int64_t share_prompts(by_engine *e, int64_t begin, int64_t end, int64_t left)
{
    int64_t first = begin;
    while (first < end && !reads_prompt(&e->slots[e->order[first]])) {
        first++;
    }
    if (first < end) {
        left -= add_rows(e, &e->slots[e->order[first]], (left + FIRST_SHARE - 1) / FIRST_SHARE);
    }
    while (left > 0) {
        by__infer_sequence *next = NULL;
        for (int64_t i = first; i < end; i++) {
            by__infer_sequence *s = &e->slots[e->order[i]];
            next = may_grow(e, s) && (next == NULL || pending(s) < pending(next)) ? s : next;
        }
        if (next == NULL) {
            break;
        }
        left -= add_rows(e, next, left);
    }
    return left;
}

/* Divides the rows of a step among the running sequences: one for each that decodes, so that no
 * prompt delays it by more than a step, and the rest for chunks of prompts, by priority. */
static void share_rows(by_engine *e)
{
    int64_t left = e->steps.rows;
    e->spare = e->steps.wanted;
    for (int64_t i = 0; i < e->live; i++) {
        by__infer_sequence *s = &e->slots[e->order[i]];
        s->rows = s->state == BY__RUNNING && pending(s) == 1 && !s->held;
        left -= s->rows;
        e->spare -= s->state == BY__RUNNING;
    }
    for (int64_t begin = 0, end; begin < e->live && left > 0; begin = end) {
        end = begin + 1;
        while (end < e->live &&
               e->slots[e->order[end]].priority == e->slots[e->order[begin]].priority) {
            end++;
        }
        left = share_prompts(e, begin, end, left);
    }
}

int64_t by__infer_plan(by_engine *e)
{
    int64_t rows = 0;
    bool full = false; /* sequences after one that must wait do not overtake it */
    e->copy_count = 0;
    for (int64_t i = 0; i < e->live; i++) {
        by__infer_sequence *s = &e->slots[e->order[i]];
        s->rows = 0;
        s->drafts = 0;
        if (s->state == BY__WAITING) {
            full = full || !admit(e, i);
        }
    }
    share_rows(e);
    for (int64_t i = 0; i < e->live; i++) {
        by__infer_sequence *s = &e->slots[e->order[i]];
        if (s->rows > 0) { /* it was not preempted for a sequence before it */
            s->rows = make_room(e, i, s->cached + s->rows) - s->cached;
            rows += s->rows;
        }
    }
    return rows;
}

void by__infer_fork(by_engine *e, by__infer_sequence *s, const by__infer_sequence *first)
{
    s->state = BY__WAITING;
    if (e->free_row_count == 0 || e->steps.carries) {
        return;
    }
    s->state = BY__RUNNING;
    s->row = e->free_rows[--e->free_row_count];
    s->pages = first->pages;
    s->registered = first->registered;
    s->prefix = first->prefix;
    s->cached = first->cached;
    s->computed = first->cached;
    memcpy(pages_of(e, s), pages_of(e, first), (size_t)s->pages * sizeof(int32_t));
    for (int32_t i = 0; i < s->pages; i++) {
        by__infer_pool_share(&e->pool, pages_of(e, s)[i]);
    }
}

void by__infer_register(by_engine *e, by__infer_sequence *s)
{
    for (; !e->options.no_prefix_cache && s->registered < s->cached / BY_PAGE_TOKENS;
         s->registered++) {
        int32_t page = by__infer_prefix_insert(&e->pool, pages_of(e, s)[s->registered], s->prefix,
                                               s->tokens + (int64_t)s->registered * BY_PAGE_TOKENS);
        s->prefix = by__infer_prefix_of(&e->pool, page);
    }
}
