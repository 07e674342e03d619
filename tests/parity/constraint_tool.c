/* Writes texts of a random model under constraints, for check_constraints.py.
 *
 *   constraint_tool schema|regex COUNT   forms from stdin, one a line; COUNT texts of each to
 *                                        stdout, one a line as JSON strings
 *   constraint_tool time schema|regex    milliseconds of CPU to open each form
 *
 * The vocabulary is the 256 bytes and all parts of the form of 2 to 6 bytes, so that most tokens
 * cross what a form tells apart. Logits are random; those of what closes something are higher, so
 * that texts end. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "banyan/constraint.h"
#include "banyan/infer.h"
#include "base/base.h"

#define MOST_TOKENS 4000
#define MOST_LINE   ((size_t)1 << 20)

typedef struct vocabulary {
    const char *form;
    size_t length;
    char single[256];
} vocabulary;

#define SHORTEST 2
#define LONGEST  6

static by_status part_of_form(void *user, uint32_t id, const char **data, size_t *length,
                              by_error *error)
{
    vocabulary *v = user;
    size_t part = id < 256 ? 0 : id - 256;
    size_t begin = part / (LONGEST - SHORTEST + 1);
    (void)error;
    *data = id < 256 ? &v->single[id] : v->form + begin;
    *length = id < 256 ? 1 : SHORTEST + part % (LONGEST - SHORTEST + 1);
    if (id >= 256 && begin + *length > v->length) {
        *length = 0;
    }
    return BY_OK;
}

static by_status open_form(by_constraint **out, const char *kind, const char *form, by_error *error)
{
    return strcmp(kind, "schema") == 0
               ? by_constraint_open_schema(out, form, strlen(form), NULL, error)
               : by_constraint_open_regex(out, form, strlen(form), NULL, error);
}

static void random_logits(float *logits, uint32_t vocab, const vocabulary *v, uint64_t seed,
                          uint32_t step)
{
    uint32_t key[2];
    by__philox_key(key, seed, step);
    for (uint32_t id = 0; id < vocab; id++) {
        uint32_t bits[4];
        uint32_t counter[4] = {id, 0, 0, 0};
        by__philox(bits, key, counter);
        char first = id < 256 ? (char)id : v->form[(id - 256) / (LONGEST - SHORTEST + 1)];
        bool closes = step > 10 && strchr("\"}]", first) != NULL && first != '\0';
        logits[id] = 4.0f * by__unit_float(bits[0]) + (closes ? 3.0f + 0.01f * (float)step : 0.0f);
    }
    logits[vocab] = 2.0f; /* the end */
}

/* One text; false when the state ends in an error. */
static bool write_text(by_constraint_state *s, const vocabulary *v, uint32_t vocab, float *logits,
                       void *scratch, uint64_t seed, by_error *error)
{
    by_string text = {0};
    const int32_t end = (int32_t)vocab;
    const by_sampling sampling = {.temperature = 1.0, .top_p = 1.0, .seed = seed};
    by_constraint_state_reset(s);
    for (uint32_t step = 0; step < MOST_TOKENS && !by_constraint_state_is_complete(s); step++) {
        int32_t token;
        const char *data;
        size_t length;
        random_logits(logits, vocab, v, seed, step);
        if (by_constraint_state_mask(s, logits, vocab + 1, &end, 1, error) != BY_OK ||
            by_sample(&token, &sampling, logits, vocab + 1, step, scratch, error) != BY_OK) {
            by_string_free(&text);
            return false;
        }
        if (token == end) {
            break;
        }
        if (by_constraint_state_accept(s, (uint32_t)token, error) != BY_OK) {
            by_string_free(&text);
            return false;
        }
        (void)part_of_form((void *)(uintptr_t)v, (uint32_t)token, &data, &length, NULL);
        by_string_add(&text, data, length);
    }
    by_string line = {0};
    by_string_json(&line, text.data == NULL ? "" : text.data, text.length);
    (void)puts(line.data);
    by_string_free(&line);
    by_string_free(&text);
    return true;
}

static bool write_texts(const by_constraint *constraint, vocabulary *v, int count, by_error *error)
{
    uint32_t vocab = 256 + (uint32_t)v->length * (LONGEST - SHORTEST + 1);
    float *logits = malloc((vocab + 1) * sizeof *logits);
    void *scratch = malloc(by_sample_scratch_bytes(vocab + 1));
    by_token_list *list = NULL;
    by_constraint_state *s = NULL;
    bool ok = logits != NULL && scratch != NULL &&
              by_token_list_open(&list, part_of_form, v, vocab, error) == BY_OK &&
              by_constraint_state_open(&s, constraint, list, error) == BY_OK;
    for (int i = 0; i < count && ok; i++) {
        ok = write_text(s, v, vocab, logits, scratch, (uint64_t)i, error);
    }
    by_constraint_state_close(&s);
    by_token_list_close(&list);
    free(scratch);
    free(logits);
    return ok;
}

int main(int argc, char **argv)
{
    by_error error = {0};
    vocabulary v = {0};
    bool timed = argc == 3 && strcmp(argv[1], "time") == 0;
    char *line = malloc(MOST_LINE);
    if (argc != 3 || line == NULL) {
        (void)fprintf(stderr, "usage: constraint_tool schema|regex COUNT\n");
        return 2;
    }
    for (int byte = 0; byte < 256; byte++) {
        v.single[byte] = (char)byte;
    }
    int status = 0;
    while (status == 0 && fgets(line, (int)MOST_LINE, stdin) != NULL) {
        by_constraint *constraint = NULL;
        line[strcspn(line, "\n")] = '\0';
        v.form = line;
        v.length = strlen(line);
        clock_t begin = clock();
        by_status opened = open_form(&constraint, argv[timed ? 2 : 1], line, &error);
        if (timed) {
            (void)printf("%8.2f ms  %9zu bytes  %.60s: %s\n",
                         1e3 * (double)(clock() - begin) / CLOCKS_PER_SEC,
                         opened == BY_OK ? by_constraint_bytes(constraint) : 0, line,
                         opened == BY_OK ? "ok" : error.message);
        } else if (opened != BY_OK || !write_texts(constraint, &v, atoi(argv[2]), &error)) {
            (void)fprintf(stderr, "%s: %s\n", line, error.message);
            status = 1;
        }
        by_constraint_close(&constraint);
    }
    free(line);
    return status;
}
