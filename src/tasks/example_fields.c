/* The fields by which predictions name an example. */
#include "tasks/tasks.h"

size_t by__task_name_fields(by_field out[BY__TASK_NAME_FIELDS], const by_example_name *of)
{
    size_t count = 0;
    if (of->file != NULL) {
        out[count++] = (by_field){.name = "file", .text = of->file};
    }
    if (of->sample != NULL) {
        out[count++] = (by_field){.name = "sample", .text = of->sample};
    }
    if (of->column != NULL) {
        out[count++] = (by_field){.name = of->column, .text = of->series};
    }
    if (of->row != 0) {
        out[count++] = (by_field){.name = "row", .number = (double)of->row, .is_whole = true};
    }
    return count;
}
