/* `banyan pack --chat`. */
#ifndef CLI_DATA_PACK_CHAT_H
#define CLI_DATA_PACK_CHAT_H

#include "banyan/pack.h"
#include "base/cli.h"

typedef struct cli_chat_pack {
    bool wanted;
    const char *template_file;
    const char *form;
    const char *question;
    const char *answer;
    const char *system;
    const char *learn;
    int64_t context;
    const char *longer;
    by_pack_chat chat; /* what these say, once it is opened */
    by_chat *opened;
    by_tokenizer *tokenizer;
} cli_chat_pack;

/* The flags of a cli_chat_pack `c`. */
#define CLI_CHAT_PACK_FLAGS(c)                                                                     \
    {"chat", CLI_SWITCH, &(c).wanted, NULL,                                                        \
     "pack conversations, with a mask of what is learned (docs/chat_tuning.md)"},                  \
        {"chat-template", CLI_STRING, &(c).template_file, "FILE|NAME",                             \
         "chat template: a file, chatml, llama3, zephyr, plain or none (default: that of the "     \
         "tokenizer's directory)"},                                                                \
        {"form", CLI_STRING, &(c).form, "FORM",                                                    \
         "form of the records: auto, messages, sharegpt, alpaca, prompt, columns, or preference "  \
         "(default auto)"},                                                                        \
        {"question", CLI_STRING, &(c).question, "NAME",                                            \
         "field with the question of a record (default question)"},                                \
        {"answer", CLI_STRING, &(c).answer, "NAME", "field with its answer (default answer)"},     \
        {"system", CLI_STRING, &(c).system, "TEXT",                                                \
         "system message of conversations without one"},                                           \
        {"learn", CLI_STRING, &(c).learn, "WHAT",                                                  \
         "what is learned: assistant, last_turn or all (default assistant)"},                      \
        {"context", CLI_INTEGER_FROM(0), &(c).context, "N",                                        \
         "tokens of a sample in training; longer conversations do as --long says (default: any "   \
         "length)"},                                                                               \
    {                                                                                              \
        "long", CLI_STRING, &(c).longer, "WHAT",                                                   \
            "skip them, cut them behind an answer, or fail with error (default skip)"              \
    }

/* What is wrong with the flags beside --tokenizer KIND; NULL: nothing. */
const char *cli_chat_pack_misuse(const cli_chat_pack *c, const char *tokenizer);
/* Opens what the flags name and sets options->chat and options->tokenizer. Returns an exit code, or
 * -1 to go on. */
int cli_chat_pack_open(cli_chat_pack *c, by_pack_options *options);
void cli_chat_pack_close(cli_chat_pack *c);

#endif
