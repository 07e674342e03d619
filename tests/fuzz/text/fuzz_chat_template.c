/* A chat template from anywhere, with a conversation behind the first NUL if there is one: it
 * renders or it is refused, within its bounds. */
#include <stdlib.h>
#include <string.h>

#include "banyan/chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char standard[] =
        "[{\"role\":\"system\",\"content\":\" s "
        "\"},{\"role\":\"user\",\"content\":\"h\xc3\xa9llo\"},"
        "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"name\":\"f\","
        "\"arguments\":{\"a\":1.5}}}]},{\"role\":\"user\",\"content\":[{\"type\":\"text\","
        "\"text\":\"x\"}]}]";
    static const char tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]";
    const char *text = (const char *)data;
    const char *end = size > 0 ? memchr(text, '\0', size) : NULL;
    size_t length = end != NULL ? (size_t)(end - text) : size;
    by_chat_request request = {.messages = standard,
                               .messages_length = sizeof standard - 1,
                               .tools = tools,
                               .tools_length = sizeof tools - 1,
                               .add_generation_prompt = true,
                               .now = 1,
                               .limits = {.steps = 20000, .memory = 4 << 20, .output = 1 << 20}};
    by_error error;
    by_chat *chat;
    char *out;
    size_t out_length;
    if (end != NULL) {
        request.messages = end + 1;
        request.messages_length = size - length - 1;
    }
    if (by_chat_parse(&chat, text, length, "f", &error) != BY_OK) {
        return 0;
    }
    if (by_chat_render(chat, &request, &out, &out_length, &error) == BY_OK) {
        if (out_length > request.limits.output || strlen(out) > out_length) {
            abort();
        }
        free(out);
    } else if (strstr(error.message, ":") == NULL) {
        abort(); /* an error says where */
    }
    by_chat_close(&chat);
    return 0;
}
