/* The keys of assistant.yaml. */
#include <stdlib.h>
#include <string.h>

#include "assistant/assistant.h"
#include "config/schema.h"

static const by__config_section sections[] = {
    {"", "Keys at the top of the file.", 0},
    {"pretrain", "The base model.", 0},
    {"chat", "The model that is tuned on conversations.", 0},
    {"prefer", "The model that is trained on preferences.", 0},
    {"reinforce", "The model that is trained on rewards.", 0},
};

/* clang-format off: one row a key */
#define OWN(member) BY__OWN(by_assistant_config, member)
#define PART(name)                                                                                 \
    {                                                                                              \
        #name,                                                                                     \
        "config",                                                                                  \
        BY__KEY_TEXT,                                                                              \
        OWN(name.config),                                                                          \
        "\"\"",                                                                                    \
        .help = "file with keys of the part's config that are to be other than chosen"},           \
    {                                                                                              \
#name, "minutes", BY__KEY_REAL, OWN(name.minutes), "-1", 0, 1e6, BY__ABOVE_MIN,            \
            .derived = "its share of minutes", .help = "minutes that it takes"                     \
    }
static const by__config_key keys[] = {
    {"", "text", BY__KEY_TEXTS, OWN(text), "[]",
     .help = "files or directories of text that the base model learns"},
    {"", "conversations", BY__KEY_TEXTS, OWN(conversations), "[]",
     .help = "files of conversations that the assistant learns (docs/chat_tuning.md)"},
    {"", "preferences", BY__KEY_TEXTS, OWN(preferences), "[]",
     .help = "files of preferences to learn (docs/preferences.md); empty: no such part"},
    {"", "prompts", BY__KEY_TEXTS, OWN(prompts), "[]",
     .help = "files of prompts to learn from rewards (docs/reinforcement.md); empty: no such part"},
    {"", "reward", BY__KEY_TEXT, OWN(reward), "auto",
     .choices = "auto|exact|number|regex|length|command", /* auto, and those of task.reward */
     .help = "what rewards an answer to them, task.reward; auto: number if the first answer has "
             "####, as GSM8K's have, else exact"},
    {"", "suites", BY__KEY_TEXTS, OWN(suites), "[]",
     .help = "files of suites that each model is measured with (docs/evaluation.md)"},
    {"", "questions", BY__KEY_TEXTS, OWN(questions), "[]",
     .help = "what the assistant is asked for the report; empty: questions that were held out"},
    {"", "minutes", BY__KEY_REAL, OWN(minutes), "10", 0, 1e6, BY__ABOVE_MIN,
     .help =
         "minutes of training: 70 % pretrain, 30 % chat, and on top 15 % prefer, 30 % reinforce"},
    {"", "watts", BY__KEY_REAL, OWN(watts), "0", 0, 1e9,
     .help = "watts that the machine draws while it computes, for the report, where no counter "
             "tells; 0: unknown"},
    PART(pretrain),
    PART(chat),
    PART(prefer),
    PART(reinforce),
};
/* clang-format on */
static const by__config_section_list section_list = {sections, BY_ARRAY_LENGTH(sections)};
static const by__config_key_list key_list = BY__KEY_LIST(keys);
static const by__config_schema schema = {
    .sections = &section_list, .keys = &key_list, .size = sizeof(by_assistant_config)};

/* A base model and conversations are what makes an assistant. */
static by_status check(const by_assistant_config *config, const char *path, by_error *error)
{
    const struct {
        const char *key;
        const char *example;
        const by_string_list *list;
    } needed[] = {{"text", "[input.txt]", &config->text},
                  {"conversations", "[talks.jsonl]", &config->conversations}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(needed); i++) {
        if (needed[i].list->count == 0) {
            return by_error_set(error, BY_ECONFIG, "%s: %s is missing: name files, such as %s: %s",
                                path, needed[i].key, needed[i].key, needed[i].example);
        }
    }
    return BY_OK;
}

by_status by_assistant_config_open(by_assistant_config **out, const char *path, by_error *error)
{
    by_config *config = NULL;
    *out = NULL;
    BY_TRY(by__config_open(&config, &schema, path, NULL, 0, false, error));
    by_assistant_config *own = ((by__config *)config)->own;
    own->config = config;
    by_status status = check(own, path, error);
    if (status != BY_OK) {
        by_config_close(&config);
        return status;
    }
    *out = own;
    return BY_OK;
}

void by_assistant_config_close(by_assistant_config **config)
{
    if (*config != NULL) {
        by_config *whole = (*config)->config;
        *config = NULL;
        by_config_close(&whole);
    }
}

/* ---- a new file ---- */

static void add_list(by_string *out, const char *key, const by_string_list *list)
{
    if (list->count == 0) {
        return;
    }
    by_string_format(out, "%s: [", key);
    for (size_t i = 0; i < list->count; i++) {
        by__string_append(out, i > 0 ? ", " : "");
        by_string_json(out, list->items[i], strlen(list->items[i]));
    }
    by__string_append(out, "]\n");
}

by_status by_assistant_create(const char *directory, const by_assistant_config *config,
                              by_error *error)
{
    by_string out = {0};
    char *path = by__path_join(directory, "assistant.yaml");
    if (path == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a path");
    }
    by_status status = BY_OK;
    if (by__path_exists(path)) {
        status = by_error_set(error, BY_ESTATE,
                              "%s is there already: edit it, and name only the directory", path);
    }
    by__string_append(&out, "# An assistant and how it is made: banyan assistant DIR "
                            "(docs/assistant.md).\n");
    add_list(&out, "text", &config->text);
    add_list(&out, "conversations", &config->conversations);
    add_list(&out, "preferences", &config->preferences);
    add_list(&out, "prompts", &config->prompts);
    add_list(&out, "suites", &config->suites);
    by_string_format(&out, "minutes: %g\n", config->minutes);
    status = status == BY_OK ? check(config, path, error) : status;
    status = status == BY_OK ? by_string_check(&out, error) : status;
    status = status == BY_OK ? by__make_dirs(directory, error) : status;
    if (status == BY_OK) {
        status = by__file_write(path, out.data, out.length, error);
    }
    by_string_free(&out);
    free(path);
    return status;
}
