/* Tables of a report. */
#include <stdarg.h>
#include <stdlib.h>

#include "assistant/assistant.h"

void by__assistant_table_add(by__assistant_table *table, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    char *cell = by__strdup(text);
    if (cell == NULL || by__reserve((void **)&table->cells, &table->capacity, table->count + 1,
                                    sizeof *table->cells, NULL) != BY_OK) {
        free(cell);
        table->failed = true;
        return;
    }
    table->cells[table->count++] = cell;
}

void by__assistant_table_free(by__assistant_table *table)
{
    for (size_t i = 0; i < table->count; i++) {
        free(table->cells[i]);
    }
    free(table->cells);
    *table = (by__assistant_table){0};
}
