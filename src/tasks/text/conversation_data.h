/* Conversations as the data of a task: the keys of the section chat, and packing as they say. */
#ifndef BY_TASKS_CONVERSATION_DATA_H
#define BY_TASKS_CONVERSATION_DATA_H

#include "banyan/data.h"
#include "banyan/pack.h"
#include "config/kind.h"
#include "tasks/text/language.h"

#define BY__TEMPLATE_FILE "chat_template.jinja"

/* Of preferences, form, answer and packing are NULL, and of rewards learn, too. Structs of other
 * tasks begin with it. */
typedef struct by__task_chat_keys {
    char *template_file;
    char *form;
    char *question;
    char *answer;
    char *system;
    char *variables;
    char *learn;
    char *longer;
    char *packing;
} by__task_chat_keys;

/* The keys, and those of the section data that conversations have otherwise than other text. */
extern const by__config_key_list by__task_chat_key_list;
extern const by__config_key_list by__task_chat_data_keys;
/* The keys of preferences in the section chat, in this order: some of those of conversations, and
 * their own. */
extern const by__config_key_list by__task_chat_template_keys;
extern const by__config_key_list by__task_pair_prompt_keys;
extern const by__config_key_list by__task_chat_system_keys;
extern const by__config_key_list by__task_pair_learn_keys;
extern const by__config_key_list by__task_chat_long_keys;

/* How it puts them into samples. */
by_token_packing by__task_chat_packing(const by_config *config);
/* BY_ECONFIG if a key contradicts another. */
by_status by__task_chat_check(const by_config *config, const by__task_chat_keys *keys,
                              by_error *error);

/* BY_ECONFIG if adapters would have to learn tokens that the model does not know. */
by_status by__task_chat_adapters(const by_config *config, int64_t known_tokens, by_error *error);

/* What packs the conversations of a config. */
typedef struct by__task_chat_pack {
    by_chat *chat;
    by_tokenizer *tokenizer;
    by_pack_chat pack;
} by__task_chat_pack;

/* Opens template and tokenizer: of `model`, as by_chat_for_tuning takes it, with the template of
 * the config if it names one and `own` is false, as it is unless `model` was trained with this
 * config. resolved: the config has the sizes of the model already. Closed with
 * by__task_chat_pack_close. */
by_status by__task_chat_pack_open(by__task_chat_pack *out, const by_config *config,
                                  const char *model, bool resolved, bool own, by_error *error);
void by__task_chat_pack_close(by__task_chat_pack *pack);
/* Sets the options of packing, which borrow it, and drops what is for other text. */
void by__task_chat_pack_use(const by__task_chat_pack *pack, by_pack_options *options);
/* Checks that packed conversations have the tokens of the tokenizer in `model`, and behind them at
 * most the special tokens that their template adds. *known: tokens of that tokenizer if there are
 * more, else 0. *same is false for another tokenizer. BY_ECONFIG if the config names another
 * template than the data were packed with. */
by_status by__task_chat_fits(const char *data, const by_config *config, const char *model,
                             bool *same, int64_t *known, by_error *error);
/* The template that a config names: a file or a built-in one; "": that of the model. */
const char *by__task_chat_template(const by_config *config);
/* BY_ECONFIG if this template is there and is not that of the file `kept`, with which the run of a
 * checkpoint renders its conversations. */
by_status by__task_chat_unchanged(const char *named, const char *kept, const char *checkpoint,
                                  by_error *error);
/* BY_ECONFIG if packed conversations of the training data are longer than a sample: they would be
 * learned in parts. Only their lengths say for which context a directory was packed. */
by_status by__task_chat_lengths(by_dataset *const *sets, const by__task_data_paths *paths,
                                const by_config *config, by_error *error);

#endif
