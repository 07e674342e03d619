/* Drafts by a small model with its own programs, keys and values, and a fixed run of pages for each
 * place. It first computes the requested texts up to their ends, all together, and then drafts
 * token by token. */
#include <stdlib.h>
#include <string.h>

#include "infer/scheduler.h"

/* Minimum number of rows of a step; more than one for each text serve texts that are new to it. */
#define ROWS 64
/* The estimated chance that a draft is right: its value before any draft was made, and the weights
 * of one draft in the running means, of a text and of all texts (with the latter a new text
 * begins). Without new drafts a mean drifts back to CHANCE, by RETURN of the weight of one draft,
 * so that drafts are tried again from time to time. Drafts that are never right then cost at most 1
 * / 40 of the time, in one text and over many. */
#define CHANCE      0.7
#define TEXT_WEIGHT 0.1
#define WEIGHT      0.05
#define RETURN      0.05

/* What is known about a sequence. */
typedef struct drafted_sequence {
    uint64_t id;
    int64_t cached; /* tokens whose keys and values are in its pages */
    double chance;
    int64_t at; /* position of the first draft made */
    int32_t drafted;
    int32_t drafts[BY_DRAFT_TOKENS];
} drafted_sequence;

typedef struct draft_model {
    const by_config *config;
    const by_weights *weights;
    by_draft_model_options options;
    by__infer_forward forward;
    by__infer_step_programs steps;
    drafted_sequence *places;
    int64_t context;
    int64_t vocab; /* of the draft model */
    double chance; /* of a correct draft, over all texts */
    size_t *ends;  /* [sequences]: texts whose logits a run computes */
    void *scratch; /* for by_sample */
} draft_model;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void release(draft_model *m)
{
    if (m->forward.device != NULL) {
        (void)by_device_finish(m->forward.device, NULL);
    }
    by__infer_steps_close(&m->steps);
    by__infer_forward_close(&m->forward);
    free(m->places);
    free(m->ends);
    free(m->scratch);
    m->steps = (by__infer_step_programs){0};
    m->forward = (by__infer_forward){0};
    m->places = NULL;
    m->ends = NULL;
    m->scratch = NULL;
}

static by_status compile(draft_model *m, int64_t sequences, by_error *error)
{
    by__infer_forward_options options;
    int64_t sizes[BY__STEP_SIZES];
    int count = 0;
    int64_t rows = sequences > ROWS ? sequences : ROWS;
    int64_t table = (m->context + BY_PAGE_TOKENS - 1) / BY_PAGE_TOKENS;
    if (table > INT32_MAX / BY_PAGE_TOKENS / sequences) {
        return by_error_set(error, BY_EARG, "drafts for %lld sequences of %lld tokens",
                            (long long)sequences, (long long)m->context);
    }
    for (int64_t size = 1; size < rows && count + 1 < BY__STEP_SIZES; size *= 2) {
        sizes[count++] = size;
    }
    sizes[count++] = rows;
    BY_TRY(by__infer_forward_options_read(&options, m->config, m->weights, m->options.precision,
                                          m->options.threads, error));
    options.device = m->options.device;
    BY_TRY(by__infer_forward_open(&m->forward, &options, error));
    BY_TRY(by__infer_steps_compile(&m->steps, &m->forward, sizes, count, sequences, sequences,
                                   table, table * sequences, error));
    if (m->steps.carries) {
        return by_error_set(
            error, BY_EARG,
            "the draft model has attention.kind linear, whose sums do not return to "
            "an earlier token when a draft is wrong; take another model");
    }
    return by__infer_forward_plan(&m->forward, m->weights, error);
}

static by_status allocate(draft_model *m, int64_t sequences, by_error *error)
{
    BY_TRY(by__alloc((void **)&m->places, (size_t)sequences, sizeof *m->places, "drafts", error));
    BY_TRY(by__alloc((void **)&m->ends, (size_t)sequences, sizeof *m->ends, "drafts", error));
    BY_TRY(by__alloc_aligned(&m->scratch, by_sample_scratch_bytes(m->vocab), "drafts", error));
    BY_TRY(by__infer_forward_start(&m->forward, m->weights, error));
    BY_TRY(by__infer_steps_allocate(&m->steps, error));
    for (int64_t i = 0; i < sequences * m->steps.table; i++) {
        m->steps.page_table[i] = (int32_t)i;
    }
    return BY_OK;
}

static by_status start(void *user, int64_t sequences, int64_t context, int64_t vocab,
                       uint64_t *bytes, by_error *error)
{
    draft_model *m = user;
    bool longer = by_model_is_rotary(&m->config->model);
    release(m);
    m->context = longer ? context : smaller(context, m->config->model.context);
    BY_TRY(compile(m, sequences, error));
    if (m->steps.vocab < vocab) {
        return by_error_set(
            error, BY_EARG,
            "the draft model has %lld tokens, the model %lld: both must have the same vocabulary",
            (long long)m->steps.vocab, (long long)vocab);
    }
    m->vocab = vocab;
    m->chance = CHANCE;
    *bytes = by__store_bytes(m->forward.store, BY__COPY) +
             by__store_bytes(m->forward.store, BY__CACHE) +
             by__exec_set_arena_bytes(&m->forward.programs) +
             by__exec_set_workspace_bytes(&m->forward.programs) + by__infer_steps_bytes(&m->steps) +
             (uint64_t)sequences * (sizeof(drafted_sequence) + sizeof(size_t)) +
             by_sample_scratch_bytes(vocab);
    return allocate(m, sequences, error);
}

/* Moves the means towards `chance` by the share `part` of one draft's weight. */
static void learn(draft_model *m, drafted_sequence *p, double chance, double part)
{
    p->chance += part * TEXT_WEIGHT * (chance - p->chance);
    m->chance += part * WEIGHT * (chance - m->chance);
}

/* Compares the last drafts with the actual tokens. */
static void judge(draft_model *m, drafted_sequence *p, const by_draft_text *text)
{
    int32_t right = 0;
    while (right < p->drafted && p->at + right < text->count) {
        bool is = p->drafts[right] == text->tokens[p->at + right];
        learn(m, p, is ? 1.0 : 0.0, 1.0);
        if (!is) {
            break;
        }
        right++;
    }
    if (p->drafted > 0) {
        p->cached = smaller(p->cached, p->at + right);
    } else {
        learn(m, p, CHANCE, RETURN);
    }
    p->drafted = 0;
}

static void update_place(void *user, by_draft_text *text)
{
    draft_model *m = user;
    drafted_sequence *p = &m->places[text->place];
    if (p->id != text->id) {
        *p = (drafted_sequence){.id = text->id, .chance = m->chance};
    } else {
        judge(m, p, text);
    }
    int64_t room = m->context - text->count;
    text->most = room < text->most ? (int32_t)(room < 0 ? 0 : room) : text->most;
    text->chance = p->chance;
}

/* Adds a row to the inputs of the next run. */
static void add_row(draft_model *m, int64_t *rows, int32_t token, int64_t position, int32_t at)
{
    m->steps.tokens[*rows] = token;
    m->steps.positions[*rows] = (int32_t)position;
    m->steps.row_sessions[*rows] = at;
    *rows += 1;
}

/* Runs the rows and drafts the next token of each text in m->ends from the logits of its last row.
 * Uses the random number of the position, so that equal logits draw the token that the main model
 * will draw. */
static by_status draft_next(draft_model *m, by_draft_text *texts, int64_t rows, int64_t ends,
                            by_error *error)
{
    by__infer_step_program *program = by__infer_steps_choose(&m->steps, rows, ends);
    BY_TRY(by__infer_steps_run(&m->steps, program, rows, ends, error));
    for (int64_t i = 0; i < ends; i++) {
        by_draft_text *text = &texts[m->ends[i]];
        drafted_sequence *p = &m->places[text->place];
        const float *logits = m->steps.logits + i * m->steps.vocab;
        int32_t token = 0; /* a wrong draft only costs time */
        by_error ignored;
        (void)by_sample(&token, &text->sampling, logits, m->vocab,
                        (uint64_t)(text->count + p->drafted), m->scratch, &ignored);
        text->drafts[p->drafted] = token;
        p->drafts[p->drafted++] = token;
    }
    return BY_OK;
}

/* Computes the texts up to their ends, which yields the first draft of each. */
static by_status follow(draft_model *m, by_draft_text *texts, size_t count, by_error *error)
{
    size_t done = 0; /* texts completed, in order */
    while (done < count) {
        int64_t rows = 0;
        int64_t ends = 0;
        while (done < count && rows < m->steps.rows) {
            const by_draft_text *text = &texts[done];
            drafted_sequence *p = &m->places[text->place];
            while (p->cached < text->count && rows < m->steps.rows) {
                add_row(m, &rows, text->tokens[p->cached], p->cached, text->place);
                p->cached++;
            }
            if (p->cached == text->count) {
                m->steps.wanted_rows[ends] = (int32_t)(rows - 1);
                m->ends[ends++] = done++;
            }
        }
        BY_TRY(draft_next(m, texts, rows, ends, error));
    }
    return BY_OK;
}

static by_status propose(void *user, by_draft_text *texts, size_t count, by_error *error)
{
    draft_model *m = user;
    int32_t longest = 0;
    for (size_t t = 0; t < count; t++) {
        drafted_sequence *p = &m->places[texts[t].place];
        p->at = texts[t].count;
        p->cached = smaller(p->cached, texts[t].count - 1); /* compute the last token again, for its
                                                               logits */
        longest = texts[t].most > longest ? texts[t].most : longest;
    }
    BY_TRY(follow(m, texts, count, error));
    for (int32_t k = 1; k < longest; k++) {
        int64_t rows = 0;
        for (size_t t = 0; t < count; t++) {
            const by_draft_text *text = &texts[t];
            if (text->most > k) {
                m->steps.wanted_rows[rows] = (int32_t)rows;
                m->ends[rows] = t;
                add_row(m, &rows, text->drafts[k - 1], text->count + k - 1, text->place);
                m->places[text->place].cached++;
            }
        }
        BY_TRY(draft_next(m, texts, rows, rows, error));
    }
    return BY_OK;
}

static void close_model(void *user)
{
    release(user);
    free(user);
}

by_status by_draft_model(by_draft_source *out, const by_config *config, const by_weights *weights,
                         const by_draft_model_options *options, by_error *error)
{
    draft_model *m;
    if (strcmp(by_model_reads(&config->model), "tokens") != 0) {
        return by_error_set(error, BY_EARG,
                            "model.kind %s reads no text, so it cannot draft tokens",
                            config->model.kind);
    }
    BY_TRY(by__alloc((void **)&m, 1, sizeof *m, "drafts", error));
    m->config = config;
    m->weights = weights;
    m->options = options == NULL ? m->options : *options;
    *out = (by_draft_source){.user = m,
                             .start = start,
                             .observe = update_place,
                             .propose = propose,
                             .close = close_model};
    return BY_OK;
}
