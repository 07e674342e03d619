/* Describes the policy of by_pass_precision as text, from the rows of the op table. */
#include "passes/passes.h"

/* Formats the operands in a mask as "1, 2", or "all". */
static void add_operands(by_string *text, const by__op_row *row)
{
    int count = row->max_inputs < 0 ? 32 : row->max_inputs;
    const char *separator = "";
    uint32_t all = count >= 32 ? UINT32_MAX : (1u << count) - 1;
    if ((row->keeps_f32 & all) == all) {
        by__string_append(text, "all");
        return;
    }
    for (int i = 0; i < count; i++) {
        if (by__mask_has(row->keeps_f32, i) && row->max_inputs < 0 && i > 2) {
            by__string_append(text, ", ...");
            return;
        }
        if (by__mask_has(row->keeps_f32, i)) {
            by_string_format(text, "%s%d", separator, i);
            separator = ", ";
        }
    }
}

by_status by_precision_policy(char **out, by_error *error)
{
    by_string text = {0};
    const char *separator = "";
    const by__op_row *row;
    by__string_append(&text, "| operation | operands that stay f32 |\n|---|---|\n");
    for (int op = 0; (row = by__op_row_of((by_op)op)) != NULL; op++) {
        if (row->keeps_f32 != 0) {
            by_string_format(&text, "| %s | ", by_op_name((by_op)op));
            add_operands(&text, row);
            by__string_append(&text, " |\n");
        }
    }
    by__string_append(&text, "\nNone of: ");
    for (int op = 0; (row = by__op_row_of((by_op)op)) != NULL; op++) {
        if (row->keeps_f32 == 0) {
            by_string_format(&text, "%s%s", separator, by_op_name((by_op)op));
            separator = ", ";
        }
    }
    by__string_append(&text, ".\n");
    return by__string_release(&text, out, error);
}
