#include "data/pack_chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "banyan/checkpoint.h"

/* The setting whose name is `text`; -1: none is. */
static int find(const char *text, const char *(*name)(int))
{
    for (int i = 0; name(i) != NULL; i++) {
        if (strcmp(name(i), text) == 0) {
            return i;
        }
    }
    return -1;
}

static const char *form_name(int i)
{
    return by_conversation_form_name((by_conversation_form)i);
}

static const char *learn_name(int i)
{
    return by_conversation_learn_name((by_conversation_learn)i);
}

static const char *long_name(int i)
{
    return by_conversation_long_name((by_conversation_long)i);
}

/* Opens the template and the tokenizer of a run's newest checkpoint, or of what else has one. */
static by_status open_model(cli_chat_pack *c, const char *model, by_error *error)
{
    char path[4096];
    char *found = NULL;
    (void)snprintf(path, sizeof path, "%s/checkpoints", model);
    by_status status =
        access(path, F_OK) == 0 ? by_checkpoint_latest(path, &found, NULL, error) : BY_OK;
    if (status == BY_OK) {
        status = by_chat_for_tuning(&c->opened, &c->tokenizer, found != NULL ? found : model,
                                    c->template_file, error);
    }
    free(found);
    return status;
}

const char *cli_chat_pack_misuse(const cli_chat_pack *c, const char *tokenizer)
{
    bool trained = strcmp(tokenizer, "bpe") == 0 || strcmp(tokenizer, "char") == 0;
    if (c->wanted) {
        return trained ? "--chat needs the tokenizer of the model to tune: --tokenizer DIR, the "
                         "directory of a model or of a run"
                       : NULL;
    }
    return c->template_file != NULL ? "--chat-template is for conversations: add --chat"
           : c->form != NULL        ? "--form is for conversations: add --chat"
           : c->question != NULL    ? "--question is for conversations: add --chat"
           : c->answer != NULL      ? "--answer is for conversations: add --chat"
           : c->system != NULL      ? "--system is for conversations: add --chat"
           : c->learn != NULL       ? "--learn is for conversations: add --chat"
           : c->longer != NULL      ? "--long is for conversations: add --chat"
           : c->context != 0        ? "--context is for conversations: add --chat"
                                    : NULL;
}

int cli_chat_pack_open(cli_chat_pack *c, by_pack_options *options)
{
    by_error error = {0};
    int form = find(c->form != NULL ? c->form : "auto", form_name);
    int learn = find(c->learn != NULL ? c->learn : "assistant", learn_name);
    int longer = find(c->longer != NULL ? c->longer : "skip", long_name);
    if (form < 0) {
        return cli_misuse(
            &cli_pack, "--form is auto, messages, sharegpt, alpaca, prompt, columns or preference");
    }
    if (learn < 0 || longer < 0) {
        return cli_misuse(&cli_pack, "%s",
                          learn < 0 ? "--learn is assistant, last_turn or all"
                                    : "--long is skip, cut or error");
    }
    c->chat.options = (by_conversation_options){.form = (by_conversation_form)form,
                                                .question = c->question,
                                                .answer = c->answer,
                                                .system = c->system,
                                                .learn = (by_conversation_learn)learn,
                                                .context = (size_t)c->context,
                                                .longer = (by_conversation_long)longer};
    if (open_model(c, options->tokenizer_kind, &error) != BY_OK) {
        return cli_fail(&cli_pack, &error);
    }
    c->chat.chat = c->opened;
    options->chat = &c->chat;
    options->tokenizer = c->tokenizer;
    return -1;
}

void cli_chat_pack_close(cli_chat_pack *c)
{
    by_chat_close(&c->opened);
    by_tokenizer_close(&c->tokenizer);
}
