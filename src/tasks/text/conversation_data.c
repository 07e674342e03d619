#include "tasks/text/conversation_data.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/data.h"
#include "base/json.h"
#include "base/paths.h"
#include "tasks/tasks.h"
#include "text/template/chat_builtin.h"

/* clang-format off: one row a key */
static const by__config_key keys[] = {
    {"chat", "template", BY__KEY_TEXT, BY__OWN(by__task_chat_keys, template_file), "\"\"",
     .help = "chat template: a file, or chatml, llama3, zephyr, plain, or none, which joins the "
             "texts; its special tokens <|NAME|> that the tokenizer lacks are added to it and to "
             "the model; empty: that of the model"},
    {"chat", "form", BY__KEY_TEXT, BY__OWN(by__task_chat_keys, form), "auto",
     .choices = "auto|messages|sharegpt|alpaca|prompt|columns",
     .help = "form of the records: messages (OpenAI), sharegpt (conversations of from and value), "
             "alpaca (instruction, input, output or response), prompt (and completion), columns "
             "(question and answer); auto: by the fields of each record"},
    {"chat", "question", BY__KEY_TEXT, BY__OWN(by__task_chat_keys, question), "\"\"",
     .help = "field of the question of form columns; empty: question"},
    {"chat", "answer", BY__KEY_TEXT, BY__OWN(by__task_chat_keys, answer), "\"\"",
     .help = "field of its answer; empty: answer"},
    {"chat", "system", BY__KEY_TEXT, BY__OWN(by__task_chat_keys, system), "\"\"",
     .help = "system message of conversations without one; empty: none"},
    {"chat", "variables", BY__KEY_TEXT, BY__OWN(by__task_chat_keys, variables), "\"\"",
     .help = "further variables of the template, a JSON object: '{\"enable_thinking\": false}'; "
             "empty: none"},
    {"chat", "learn", BY__KEY_TEXT, BY__OWN(by__task_chat_keys, learn), "assistant",
     .choices = "assistant|last_turn|all",
     .help = "what is learned: all answers, the last one, or all tokens; a message with \"train\": "
             "false (or \"weight\": 0) never is"},
    {"chat", "long", BY__KEY_TEXT, BY__OWN(by__task_chat_keys, longer), "skip",
     .choices = "skip|cut|error",
     .help = "what becomes of a conversation longer than model.context: it is left out and "
             "counted; cut behind the last answer that fits; or an error"},
};
static const by__config_key data_keys[] = {
    {"data", "packing", BY__KEY_TEXT, BY__OWN(by__task_chat_keys, packing), "best_fit",
     .choices = "best_fit|padded", .later = true,
     .help = "best_fit: whole conversations are combined to fill samples as well as possible "
             "(best-fit decreasing), and attention stays within a conversation; padded: one "
             "conversation a sample"},
};
static const by__config_key pair_keys[] = {
    {"chat", "question", BY__KEY_TEXT, BY__OWN(by__task_chat_keys, question), "\"\"",
     .help = "field of the prompt of a preference; empty: prompt, or question; without it the "
             "answers are whole conversations"},
};
static const by__config_key compared_keys[] = {
    {"chat", "learn", BY__KEY_TEXT, BY__OWN(by__task_chat_keys, learn), "assistant",
     .choices = "assistant|last_turn",
     .help = "what is compared: all answers behind the prompt, or the last one"},
};
/* clang-format on */
const by__config_key_list by__task_chat_key_list = BY__KEY_LIST(keys);
const by__config_key_list by__task_chat_data_keys = BY__KEY_LIST(data_keys);
/* Parts of the first list. */
const by__config_key_list by__task_chat_template_keys = {keys, 1};
const by__config_key_list by__task_chat_system_keys = {keys + 4, 2};
const by__config_key_list by__task_chat_long_keys = {keys + 7, 1};
const by__config_key_list by__task_pair_prompt_keys = BY__KEY_LIST(pair_keys);
const by__config_key_list by__task_pair_learn_keys = BY__KEY_LIST(compared_keys);

/* The values of the keys. */
static const by__task_chat_keys *keys_of(const by_config *config)
{
    return by__config_kind_own(config->task.own,
                               by__config_kind_named(config->task.own, config->task.kind));
}

by_token_packing by__task_chat_packing(const by_config *config)
{
    const by__task_chat_keys *k = keys_of(config);
    return strcmp(k->packing, "padded") == 0 ? BY_TOKENS_PADDED : BY_TOKENS_BEST_FIT;
}

static bool is_object(const char *text)
{
    json_t *json = by__json_read(text, 0, NULL);
    bool object = json_is_object(json);
    json_decref(json);
    return object;
}

by_status by__task_chat_check(const by_config *config, const by__task_chat_keys *k, by_error *error)
{
    bool pairs = by__task_has_pairs(config);
    bool named = !pairs && (k->question[0] != '\0' || k->answer[0] != '\0');
    if (named && strcmp(k->form, "auto") != 0 && strcmp(k->form, "columns") != 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: chat.%s names a field of form columns; chat.form is %s: leave one "
                            "out",
                            by__config_where(config, "chat.question", "chat.answer"),
                            k->question[0] != '\0' ? "question" : "answer", k->form);
    }
    if (k->variables[0] != '\0' && !is_object(k->variables)) {
        return by_error_set(error, BY_ECONFIG, "%s: chat.variables is not a JSON object: %.200s",
                            by__config_where(config, "chat.variables", "task.kind"), k->variables);
    }
    return BY_OK;
}

by_status by__task_chat_adapters(const by_config *config, int64_t known_tokens, by_error *error)
{
    return known_tokens == 0 || config->lora.rank == 0
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "%s: the chat template adds special tokens to the model, whose "
                              "embeddings adapters do not train: train all weights (lora.rank 0), "
                              "or choose a template without them (chat.template: plain)",
                              by__config_where(config, "lora.rank", "chat.template"));
}

static by_conversation_form form_of(const by_config *config, const by__task_chat_keys *k)
{
    by_conversation_form form =
        by__task_has_pairs(config) ? BY_CONVERSATION_PREFERENCE : BY_CONVERSATION_AUTO;
    while (k->form != NULL && form + 1 < BY_CONVERSATION_FORMS &&
           strcmp(by_conversation_form_name(form), k->form) != 0) {
        form++;
    }
    return form;
}

/* The context of the model to train, which may start from other weights; 0: unknown. */
static by_status find_context(size_t *out, const by_config *config, bool resolved, by_error *error)
{
    by_config *own;
    int64_t context = config->model.context;
    if (!resolved && config->model.from[0] != '\0') {
        BY_TRY(by_config_copy(&own, config, error));
        by_status status = by_config_inherit_model(own, error);
        context = own->model.context;
        by_config_close(&own);
        BY_TRY(status);
    }
    *out = context > 0 ? (size_t)context : 0;
    return BY_OK;
}

by_status by__task_chat_pack_open(by__task_chat_pack *out, const by_config *config,
                                  const char *model, bool resolved, bool own, by_error *error)
{
    size_t context;
    BY_TRY(find_context(&context, config, resolved, error));
    const by__task_chat_keys *k = keys_of(config);
    const char *learn = k->learn == NULL ? "assistant" : k->learn;
    by__task_chat_pack p = {0};
    BY_TRY(by_chat_for_tuning(&p.chat, &p.tokenizer, model, own ? NULL : k->template_file, error));
    p.pack.options = (by_conversation_options){
        .form = form_of(config, k),
        .question = k->question,
        .answer = k->answer,
        .system = k->system,
        .variables = k->variables[0] == '\0' ? NULL : k->variables,
        .learn = strcmp(learn, "all") == 0         ? BY_LEARN_ALL
                 : strcmp(learn, "last_turn") == 0 ? BY_LEARN_LAST_TURN
                                                   : BY_LEARN_ASSISTANT,
        /* The last token is rated, too: there is none that it only predicts. */
        .context = context > 1 && by__task_rates_texts(config) ? context - 1 : context,
        .longer = strcmp(k->longer, "cut") == 0     ? BY_LONG_CUT
                  : strcmp(k->longer, "error") == 0 ? BY_LONG_ERROR
                                                    : BY_LONG_SKIP};
    p.pack.chat = p.chat;
    *out = p;
    return BY_OK;
}

void by__task_chat_pack_close(by__task_chat_pack *pack)
{
    by_chat_close(&pack->chat);
    by_tokenizer_close(&pack->tokenizer);
}

void by__task_chat_pack_use(const by__task_chat_pack *pack, by_pack_options *options)
{
    options->chat = &pack->pack;
    options->tokenizer = pack->tokenizer;
    options->field = NULL;
    options->dedup = BY_PACK_DEDUP_NONE;
}

/* Checks that the template of the config, if it names one, is that of packed conversations. */
static by_status check_template(const char *data, const by_chat *packed, const by_config *config,
                                const char *model, by_error *error)
{
    const char *file = keys_of(config)->template_file;
    by_chat *chat;
    by_tokenizer *tokenizer;
    if (file[0] == '\0') {
        return BY_OK;
    }
    BY_TRY(by_chat_for_tuning(&chat, &tokenizer, model, file, error));
    bool same = strcmp(by_chat_text(chat), by_chat_text(packed)) == 0;
    by_chat_close(&chat);
    by_tokenizer_close(&tokenizer);
    return same ? BY_OK
                : by_error_set(error, BY_ECONFIG,
                               "%s: chat.template %.200s is not the template that %s was packed "
                               "with: leave it out, or pack with --chat-template %.200s",
                               by__config_where(config, "chat.template", "task.kind"), file, data,
                               file);
}

by_status by__task_chat_fits(const char *data, const by_config *config, const char *model,
                             bool *same, int64_t *known, by_error *error)
{
    by_dataset *set;
    by_tokenizer *base = NULL;
    by_tokenizer *extended = NULL;
    by_chat *chat = NULL;
    char *template_file = NULL;
    BY_TRY(by_dataset_open(&set, data, NULL, error));
    by_status status = by__path_make(&template_file, data, BY__TEMPLATE_FILE, error);
    if (status == BY_OK) {
        status = by_tokenizer_open(&base, model, error);
    }
    if (status == BY_OK) {
        status = by_chat_for_tuning(&chat, &extended, model, template_file, error);
    }
    if (status == BY_OK) {
        status = check_template(data, chat, config, model, error);
    }
    if (status == BY_OK) {
        const char *hash = by_dataset_tokenizer_hash(set);
        bool plain = strcmp(hash, by_tokenizer_hash(base)) == 0;
        *same = plain || strcmp(hash, by_tokenizer_hash(extended)) == 0;
        *known = *same && !plain ? (int64_t)by_tokenizer_vocab(base) : 0;
    }
    free(template_file);
    by_chat_close(&chat);
    by_tokenizer_close(&extended);
    by_tokenizer_close(&base);
    by_dataset_close(&set);
    return status;
}

const char *by__task_chat_template(const by_config *config)
{
    return keys_of(config)->template_file;
}

by_status by__task_chat_unchanged(const char *named, const char *kept, const char *checkpoint,
                                  by_error *error)
{
    by_chat *now = NULL;
    by_chat *then;
    /* A run has its template in its checkpoints, and needs the file no more. */
    if (!by__path_exists(named) && by__template_chat_builtin(named) == NULL) {
        return BY_OK;
    }
    BY_TRY(by_chat_open(&then, &(by_chat_source){.file = kept}, error));
    by_status status = by_chat_open(&now, &(by_chat_source){.file = named}, error);
    if (status == BY_OK && strcmp(by_chat_text(now), by_chat_text(then)) != 0) {
        status = by_error_set(error, BY_ECONFIG,
                              "chat.template: %.200s has changed: it is not the template that %s "
                              "was trained with, %s/" BY__TEMPLATE_FILE ": restore it, go on with "
                              "the run's own (--set chat.template=), or start a new run with "
                              "model.from=%s",
                              named, checkpoint, checkpoint, checkpoint);
    }
    by_chat_close(&now);
    by_chat_close(&then);
    return status;
}

static by_status check_lengths(const by_dataset *set, const char *path, int64_t context,
                               by_error *error)
{
    uint64_t most = (uint64_t)context + 1;
    uint64_t tokens = by_dataset_tokens(set);
    uint64_t longest = 0;
    uint64_t count = 0;
    for (uint64_t at = 0; at < tokens;) {
        uint64_t begin;
        uint64_t end;
        BY_TRY(by_dataset_document_at(set, at, NULL, &begin, &end, error));
        count += end - begin > most;
        longest = end - begin > longest ? end - begin : longest;
        at = end;
    }
    return count == 0
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "%s: %" PRIu64 " samples are longer than model.context %" PRId64
                              ", the longest of %" PRIu64
                              " tokens: pack them with --context %" PRId64
                              ", or raise model.context",
                              path, count, context, longest, context);
}

by_status by__task_chat_lengths(by_dataset *const *sets, const by__task_data_paths *paths,
                                const by_config *config, by_error *error)
{
    int64_t context = config->model.context;
    for (size_t i = 0; i < paths->train_count && context > 0; i++) {
        BY_TRY(check_lengths(sets[i], paths->train[i], context, error));
    }
    return BY_OK;
}
