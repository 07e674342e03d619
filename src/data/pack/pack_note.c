/* Lines of a pack for options.note. */
#include <stdarg.h>
#include <stdio.h>

#include "data/pack/pack.h"

void by__data_pack_note(const by__data_pack *pack, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    if (pack->options.note != NULL) {
        va_start(arguments, format);
        (void)vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        pack->options.note(pack->options.user, text);
    }
}
