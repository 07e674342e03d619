/* What reaches the supervisor's port, and the variable that names it to a rank: refused, or read
 * into a message that is written and read back the same. */
#include <stdlib.h>
#include <string.h>

#include "launch/supervisor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_message(const char *text, size_t size)
{
    char line[BY__MESSAGE_LINE];
    char again[BY__MESSAGE_LINE];
    by__launch_message m;
    by__launch_message back;
    if (!by__launch_message_parse(&m, text, size)) {
        return;
    }
    size_t length = by__launch_message_format(line, &m);
    if (length == 0 || line[length - 1] != '\n' ||
        !by__launch_message_parse(&back, line, length - 1) ||
        by__launch_message_format(again, &back) != length || memcmp(line, again, length) != 0) {
        abort();
    }
}

static void check_contact(const char *text)
{
    char out[1024];
    by__launch_contact contact;
    by__launch_contact back;
    if (by__launch_contact_parse(&contact, text) &&
        (by__launch_contact_format(out, sizeof out, &contact) >= sizeof out ||
         !by__launch_contact_parse(&back, out) || back.port != contact.port ||
         back.address_count != contact.address_count)) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (text == NULL) {
        return 0;
    }
    memcpy(text, data, size);
    text[size] = '\0';
    check_message(text, size);
    check_contact(text);
    free(text);
    return 0;
}
