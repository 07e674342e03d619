/* Prompts of reinforcement learning, each with the answer that a reward compares with: read from
 * JSON lines, JSON lists, Parquet files or lines of text, in the tokens of the model. */
#ifndef BY_TASKS_PROMPTS_H
#define BY_TASKS_PROMPTS_H

#include "banyan/tokenizer.h"
#include "base/base.h"

/* Where in a line a prompt and its answer are. */
typedef struct by__task_prompt_fields {
    const char *prompt; /* member of a JSON line */
    const char *answer; /* the same; a line without it has the answer "" */
    bool needs_answer;  /* but it must have one, */
    bool needs_number;  /* that by__task_prompt_number reads */
    const char *form;   /* what the model reads: a text in which {prompt} stands for it */
} by__task_prompt_fields;

/* A prompt; what it points to belongs to the list. */
typedef struct by__task_prompt {
    by_text line;   /* as the file has it, without its line feeds */
    bool is_object; /* it is a JSON object, else the prompt itself */
    by_text answer; /* a text as it is, any other value as JSON; followed by a NUL */
    const int32_t *ids;
    size_t count;
} by__task_prompt;

typedef struct by__task_prompts {
    struct by__task_prompt_place *places;
    size_t count;
    size_t capacity;
    by_string text; /* lines and answers */
    int32_t *ids;
    size_t id_count;
    size_t id_capacity;
    size_t most;       /* tokens that a prompt may have */
    uint64_t left_out; /* prompts with more */
} by__task_prompts;

/* The number after the last mark "####" of a text that ends with a NUL, without thousands'
 * separators and signs of currency; of a text without a mark, all of it, unless it needs one. */
bool by__task_prompt_number(by_text text, bool needs_mark, double *out);

/* Adds the prompts of a file to a list, {.most = N} at first: of a name that ends in .jsonl or
 * .ndjson one object in each line, of .json those of a list or of lines, else a prompt in each
 * line. Blank lines do not count; prompts of more than `most` tokens are left out. BY_EFORMAT names
 * the line that has no prompt, or lacks an answer that it needs. */
by_status by__task_prompts_add(by__task_prompts *list, const char *name, const char *text,
                               size_t length, const by__task_prompt_fields *fields,
                               const by_tokenizer *tokenizer, by_error *error);
/* Reads such a file, or a Parquet file, whose columns of texts are the members of its rows. */
by_status by__task_prompts_read(by__task_prompts *list, const char *path,
                                const by__task_prompt_fields *fields, const by_tokenizer *tokenizer,
                                by_error *error);
by__task_prompt by__task_prompts_at(const by__task_prompts *list, size_t index);
void by__task_prompts_free(by__task_prompts *list);

#endif
