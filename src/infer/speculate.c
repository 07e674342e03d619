#include <math.h>
#include <string.h>

#include "infer/scheduler.h"

/* The number of drafts of a step maximises the tokens a second that the step is expected to yield
 * (goodput: Liu et al. 2024, "Optimizing Speculative Decoding for Serving Large Language Models
 * Using Goodput"). The chance that the first k drafts of a sequence are all right is estimated as
 * the kth power of the chance of one. */

/* A credit counts the seconds that drafts gain and lose. While it is negative, drafting does not
 * start in texts that had no drafts in the step before, because the source may have to read the
 * whole text first, which `chance` does not account for. The credit grows by SHARE of the time of
 * each step, which drafts may lose, and is limited to the time of MAX_GAIN steps of gain and
 * MAX_LOSS steps of loss. */
#define SHARE    0.02
#define MAX_GAIN 16.0
#define MAX_LOSS 512.0

/* The drafts that a plan has room for, and their expected effect. */
typedef struct draft_plan {
    int64_t rows;   /* without drafts */
    int64_t wanted; /* those of them with logits */
    bool prompts;   /* some are chunks of prompts */
    double alone;   /* seconds of the step without drafts */
    size_t texts;   /* texts that may have drafts */
} draft_plan;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Describes a sequence to the source. */
static by_draft_text text_of(const by_engine *e, const by__infer_sequence *s)
{
    return (by_draft_text){.place = s->row,
                           .id = s->id,
                           .tokens = s->tokens,
                           .count = s->count,
                           .sampling = s->sampling,
                           /* The last token of a sequence is never computed. */
                           .most =
                               (int32_t)smaller(e->options.draft_tokens, s->limit - 1 - s->count),
                           .drafts = s->tokens + s->count};
}

/* Asks the source about the decoding sequences. There are no drafts for the first token, because
 * other sequences of the same request may wait for its logits. */
static void collect_texts(by_engine *e, draft_plan *p)
{
    const by_draft_source *source = e->options.draft;
    bool may_begin = e->draft_credit >= 0.0 || e->options.draft_always;
    for (int64_t i = 0; i < e->live; i++) {
        by__infer_sequence *s = &e->slots[e->order[i]];
        bool goes_on = s->drafting;
        s->drafting = false;
        bool wanted = s->rows > 0 && s->cached + s->rows == s->count;
        p->wanted += wanted + by__infer_scored_rows(s);
        p->prompts = p->prompts || s->rows > 1;
        if (!wanted || s->rows > 1 || s->count == s->prompt) {
            continue;
        }
        by_draft_text text = text_of(e, s);
        source->observe(source->user, &text);
        if (text.most > 0 && (goes_on || may_begin)) {
            e->drafting[p->texts] = (by__infer_drafting){.slot = e->order[i]};
            e->texts[p->texts++] = text;
        }
    }
}

/* Returns the text whose next draft is most likely to be right, and the chance of that; -1 if there
 * are no more drafts. */
static int32_t likeliest(const by_engine *e, const draft_plan *p, double *chance)
{
    int32_t best = -1;
    *chance = -1.0;
    for (size_t t = 0; t < p->texts; t++) {
        const by_draft_text *text = &e->texts[t];
        int32_t taken = e->drafting[t].picked;
        double all = taken < text->most ? pow(text->chance, taken + 1) : -1.0;
        if (all > *chance) {
            *chance = all;
            best = (int32_t)t;
        }
    }
    return best;
}

/* Lists the texts of drafts in e->picks, likeliest draft first, and returns how many of the drafts
 * the step should have. */
static int64_t pick(by_engine *e, const draft_plan *p)
{
    int64_t most = smaller(e->steps.rows - p->rows, e->steps.wanted - p->wanted);
    const by__infer_step_program *alone = by__infer_steps_choose(&e->steps, p->rows, p->wanted);
    double tokens = (double)p->wanted;
    double best = tokens / p->alone;
    int64_t chosen = 0;
    int32_t longest = 0;
    for (int64_t count = 1; count <= most; count++) {
        double chance;
        int32_t text = likeliest(e, p, &chance);
        const by__infer_step_program *program =
            by__infer_steps_choose(&e->steps, p->rows + count, p->wanted + count);
        if (text < 0 || (p->prompts && program != alone && !e->options.draft_always)) {
            break; /* drafts must not make steps with prompts slower */
        }
        int32_t taken = ++e->drafting[text].picked;
        e->picks[count - 1] = text;
        longest = taken > longest ? taken : longest;
        tokens += chance;
        double rate =
            tokens / (by__infer_steps_seconds(&e->steps, program) + longest * e->draft_seconds);
        if (rate > best || e->options.draft_always) {
            best = rate;
            chosen = count;
        }
    }
    return chosen;
}

/* Keeps the texts that get drafts, limited by unused pages. Returns the largest number of drafts of
 * a text. */
static int32_t grant(by_engine *e, draft_plan *p, int64_t picks)
{
    int32_t longest = 0;
    size_t texts = 0;
    for (size_t t = 0; t < p->texts; t++) {
        e->drafting[t].picked = 0;
    }
    for (int64_t i = 0; i < picks; i++) {
        e->drafting[e->picks[i]].picked++;
    }
    for (size_t t = 0; t < p->texts; t++) {
        by__infer_drafting d = e->drafting[t];
        by__infer_sequence *s = &e->slots[d.slot];
        if (d.picked > 0) {
            d.picked = (int32_t)(by__infer_grow(e, s, s->count + d.picked) - s->count);
        }
        if (d.picked > 0) {
            s->drafting = true;
            longest = d.picked > longest ? d.picked : longest;
            e->drafting[texts] = d;
            e->texts[texts] = e->texts[t];
            e->texts[texts++].most = d.picked;
        }
    }
    p->texts = texts;
    return longest;
}

/* Credits what the last step's drafts have gained, and this step's share. */
static void settle(by_engine *e, draft_plan *p)
{
    uint64_t right = e->statistics.accepted - e->draft_settled;
    const by__infer_step_program *alone = by__infer_steps_choose(&e->steps, p->rows, p->wanted);
    const by__infer_step_program *spared = by__infer_steps_choose(&e->steps, p->wanted, p->wanted);
    p->alone = by__infer_steps_seconds(&e->steps, alone);
    e->draft_settled = e->statistics.accepted;
    e->draft_credit += (double)right * e->draft_worth + SHARE * p->alone;
    e->draft_credit = fmax(-MAX_LOSS * p->alone, fmin(e->draft_credit, MAX_GAIN * p->alone));
    e->draft_worth = by__infer_steps_seconds(&e->steps, spared) / fmax(1.0, (double)p->wanted);
}

by_status by__infer_speculate(by_engine *e, int64_t *rows, by_error *error)
{
    const by_draft_source *source = e->options.draft;
    draft_plan p = {.rows = *rows};
    if (source == NULL) {
        return BY_OK;
    }
    collect_texts(e, &p);
    settle(e, &p);
    by__infer_forget_seconds(&e->draft_seconds);
    int32_t longest = grant(e, &p, pick(e, &p));
    if (longest == 0) {
        return BY_OK;
    }
    double began = by__now();
    BY_TRY(source->propose(source->user, e->texts, p.texts, error));
    double seconds = by__now() - began;
    by__infer_learn_seconds(&e->draft_seconds, seconds / longest);
    for (size_t t = 0; t < p.texts; t++) {
        by__infer_sequence *s = &e->slots[e->drafting[t].slot];
        s->drafts = e->texts[t].most;
        s->rows += s->drafts;
        *rows += s->drafts;
        p.wanted += s->drafts;
    }
    const by__infer_step_program *program = by__infer_steps_choose(&e->steps, *rows, p.wanted);
    e->draft_credit -= seconds + by__infer_steps_seconds(&e->steps, program) - p.alone;
    return BY_OK;
}

void by__infer_speculate_end(by_engine *e, const by__infer_sequence *s)
{
    const by_draft_source *source = e->options.draft;
    if (source != NULL && s->state == BY__RUNNING && s->count > s->prompt) {
        by_draft_text text = text_of(e, s);
        text.most = 0;
        source->observe(source->user, &text);
    }
}
