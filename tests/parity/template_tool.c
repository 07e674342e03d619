/* Renders chat templates for scripts that compare them with Jinja.
 *
 *   template_tool <REQUESTS >ANSWERS
 *
 * A request is five little-endian u32 lengths and the texts: template, messages, tools ("" for
 * none), variables, and "1" where an answer is to begin. An answer is a u32 (0: text, 1: error
 * message), a u32 length and the bytes. */
#include <stdlib.h>
#include <string.h>

#include "banyan/chat.h"
#include "base/base.h"

static bool read_text(char **out, uint32_t length)
{
    *out = malloc((size_t)length + 1);
    if (*out == NULL || fread(*out, 1, length, stdin) != length) {
        return false;
    }
    (*out)[length] = '\0';
    return true;
}

static void answer(uint32_t kind, const char *text, size_t length)
{
    uint32_t head[2] = {kind, (uint32_t)length};
    (void)fwrite(head, sizeof head, 1, stdout);
    (void)fwrite(text, 1, length, stdout);
}

int main(void)
{
    uint32_t lengths[5];
    while (fread(lengths, sizeof lengths, 1, stdin) == 1) {
        char *texts[5];
        char *out;
        size_t length;
        by_chat *chat = NULL;
        by_error error = {0};
        for (size_t i = 0; i < 5; i++) {
            if (!read_text(&texts[i], lengths[i])) {
                return 1;
            }
        }
        by_chat_request request = {.messages = texts[1],
                                   .messages_length = lengths[1],
                                   .tools = lengths[2] > 0 ? texts[2] : NULL,
                                   .tools_length = lengths[2],
                                   .variables = texts[3],
                                   .variables_length = lengths[3],
                                   .add_generation_prompt = texts[4][0] == '1',
                                   .now = 1700000000};
        by_status status = by_chat_parse(&chat, texts[0], lengths[0], "template", &error);
        if (status == BY_OK) {
            status = by_chat_render(chat, &request, &out, &length, &error);
        }
        if (status == BY_OK) {
            answer(0, out, length);
            free(out);
        } else {
            answer(1, error.message, strlen(error.message));
        }
        by_chat_close(&chat);
        for (size_t i = 0; i < 5; i++) {
            free(texts[i]);
        }
    }
    return 0;
}
