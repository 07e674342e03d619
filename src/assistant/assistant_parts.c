/* The parts of an assistant: what the config of each has. */
#include <stdlib.h>
#include <string.h>

#include "assistant/assistant.h"
#include "banyan/chat.h"
#include "base/json.h"
#include "infer/infer.h"

/* Conversations are that long, so base models of the dial are, too. */
#define CONTEXT 512
/* Tokens of a completion that is rewarded, where the context has room for that and a prompt. */
#define MAX_TOKENS 128

const by_assistant_part_config *by__assistant_own(const by__assistant_row *row,
                                                  const by_assistant_config *config)
{
    return (const by_assistant_part_config *)((const char *)config + row->own);
}

const by_string_list *by__assistant_data(const by__assistant_row *row,
                                         const by_assistant_config *config)
{
    return (const by_string_list *)((const char *)config + row->data);
}

static by_status set_pretrain(by__assistant_settings *out, const by_assistant_config *config,
                              const char *from, by_error *error)
{
    BY_UNUSED(from);
    BY_UNUSED(error);
    by__assistant_settings_fix_list(out, "data.text", &config->text);
    return BY_OK;
}

static by_status set_chat(by__assistant_settings *out, const by_assistant_config *config,
                          const char *from, by_error *error)
{
    BY_UNUSED(error);
    by__assistant_settings_fix(out, "model.from", from);
    by__assistant_settings_fix_list(out, "data.text", &config->conversations);
    by__assistant_settings_add(out, "data.valid_fraction", "0.1");
    by__assistant_settings_add(out, "chat.template", "chatml");
    by__assistant_settings_add(out, "chat.long", "cut");
    by__assistant_settings_add(out, "train.batch", "8");
    by__assistant_settings_add(out, "optimizer.lr", "1e-3");
    by__assistant_settings_add(out, "optimizer.min_lr", "0");
    by__assistant_settings_add(out, "optimizer.schedule", "linear");
    by__assistant_settings_add(out, "optimizer.warmup", "0.05");
    return BY_OK;
}

static by_status set_prefer(by__assistant_settings *out, const by_assistant_config *config,
                            const char *from, by_error *error)
{
    BY_UNUSED(error);
    by__assistant_settings_fix(out, "model.from", from);
    by__assistant_settings_fix_list(out, "data.text", &config->preferences);
    by__assistant_settings_add(out, "data.valid_fraction", "0.1");
    by__assistant_settings_add(out, "train.batch", "8");
    by__assistant_settings_add(out, "optimizer.lr", "5e-5");
    by__assistant_settings_add(out, "optimizer.schedule", "linear");
    by__assistant_settings_add(out, "optimizer.warmup", "0.05");
    return BY_OK;
}

/* What the tuned model reads of a question, with {prompt} in the place of it. */
static by_status add_prompt_form(by__assistant_settings *out, const by_pretrained *model,
                                 by_error *error)
{
    static const char messages[] = "[{\"role\": \"user\", \"content\": \"{prompt}\"}]";
    const by_chat_request request = {.messages = messages,
                                     .messages_length = sizeof messages - 1,
                                     .add_generation_prompt = true};
    const by_chat_source source = {.directory = by_pretrained_directory(model)};
    by_chat *chat;
    char *text = NULL;
    size_t length;
    BY_TRY(by_chat_open(&chat, &source, error));
    by_status status = by_chat_render(chat, &request, &text, &length, error);
    if (status == BY_OK) {
        by__assistant_settings_fix(out, "data.prompt_form", text);
    }
    free(text);
    by_chat_close(&chat);
    return status;
}

/* What depends on the tuned model: the form of prompts, and room for them beside completions. */
static by_status add_model_keys(by__assistant_settings *out, const char *from, by_error *error)
{
    bool formed = by__assistant_settings_given(out, "data.prompt_form");
    by_pretrained *model;
    if (formed && by__assistant_settings_given(out, "task.max_tokens")) {
        return BY_OK;
    }
    BY_TRY(by_pretrained_open(&model, from, false, error));
    int64_t half = by_pretrained_config(model)->model.context / 2;
    by__assistant_settings_add(out, "task.max_tokens", "%lld",
                               (long long)(half < MAX_TOKENS ? half : MAX_TOKENS));
    by_status status = formed ? BY_OK : add_prompt_form(out, model, error);
    by_pretrained_close(&model);
    return status;
}

/* The first record of a file of JSON lines; NULL: it is none. New reference. */
static by_status first_record(json_t **out, const char *path, by_error *error)
{
    by__map map;
    json_error_t problem;
    BY_TRY(by__map_open(&map, path, error));
    const char *text = (const char *)map.data;
    const char *end = map.size == 0 ? NULL : memchr(text, '\n', map.size);
    size_t length = end == NULL ? map.size : (size_t)(end - text);
    *out = length == 0 ? NULL : by_json_load(text, length, 0, &problem);
    by__map_close(&map);
    return BY_OK;
}

/* Prompts of data sets of problems are called questions, and worked answers to them end with ####
 * and a number (Cobbe et al. 2021). */
static by_status add_prompt_keys(by__assistant_settings *out, const by_assistant_config *config,
                                 by_error *error)
{
    json_t *first;
    BY_TRY(first_record(&first, config->prompts.items[0], error));
    const char *answer = json_string_value(json_object_get(first, "answer"));
    const char *reward = strcmp(config->reward, "auto") != 0                ? config->reward
                         : answer != NULL && strstr(answer, "####") != NULL ? "number"
                                                                            : "exact";
    by__assistant_settings_add(out, "task.reward", "%s", reward);
    if (json_object_get(first, "prompt") == NULL && json_object_get(first, "question") != NULL) {
        by__assistant_settings_add(out, "data.prompt_field", "question");
    }
    json_decref(first);
    return BY_OK;
}

static by_status set_reinforce(by__assistant_settings *out, const by_assistant_config *config,
                               const char *from, by_error *error)
{
    BY_TRY(add_prompt_keys(out, config, error));
    by__assistant_settings_fix(out, "model.from", from);
    by__assistant_settings_fix_list(out, "data.prompts", &config->prompts);
    BY_TRY(add_model_keys(out, from, error));
    by__assistant_settings_add(out, "train.batch", "64");
    by__assistant_settings_add(out, "train.micro_batch", "16");
    by__assistant_settings_add(out, "optimizer.lr", "2e-4");
    by__assistant_settings_add(out, "optimizer.schedule", "constant");
    by__assistant_settings_add(out, "optimizer.warmup", "0.05");
    return BY_OK;
}

#define OWN(part)  offsetof(by_assistant_config, part)
#define DATA(list) offsetof(by_assistant_config, list)
const by__assistant_row by__assistant_rows[BY__ASSISTANT_PARTS] = {
    {.name = "pretrain",
     .help = "a tokenizer and a base model, of the text",
     .kind = "language",
     .share = 0.7,
     .own = OWN(pretrain),
     .data = DATA(text),
     .passes = 4,
     .context = CONTEXT,
     .set = set_pretrain},
    {.name = "chat",
     .help = "the base model, tuned on conversations",
     .kind = "chat",
     .share = 0.3,
     .own = OWN(chat),
     .data = DATA(conversations),
     .passes = 4,
     .set = set_chat},
    {.name = "prefer",
     .help = "the tuned model, trained on preferences",
     .kind = "preference",
     .share = 0.15, /* on top of the others, which stay as they are when preferences are added */
     .own = OWN(prefer),
     .data = DATA(preferences),
     .passes = 2,
     .set = set_prefer},
    {.name = "reinforce",
     .help = "the tuned model, trained on rewards",
     .kind = "reinforce",
     .share = 0.3, /* on top, too */
     .own = OWN(reinforce),
     .data = DATA(prompts),
     .rolls_out = true,
     .set = set_reinforce},
};
