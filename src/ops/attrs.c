/* Functions on attributes, driven by the descriptors of the rows. */
#include <math.h>
#include <string.h>

#include "ops/ops.h"

static const size_t field_sizes[] = {
    [BY__ATTR_FLAG] = sizeof(bool),          [BY__ATTR_INT] = sizeof(int64_t),
    [BY__ATTR_WORD] = sizeof(uint32_t),      [BY__ATTR_FLOAT] = sizeof(float),
    [BY__ATTR_DTYPE] = sizeof(by_dtype),     [BY__ATTR_FUNCTION] = sizeof(by_function),
    [BY__ATTR_SHAPE] = sizeof(by_shape),     [BY__ATTR_ORDER] = BY_MAX_RANK * sizeof(int),
    [BY__ATTR_AXES] = sizeof(uint32_t),      [BY__ATTR_MAP] = sizeof(const by_map_program *),
    [BY__ATTR_PACKING] = sizeof(by_packing), [BY__ATTR_WINDOW] = sizeof(by_window),
};

by_attrs by__op_attrs_of(const by__op_row *row, const by_attrs *from)
{
    by_attrs attrs = {0};
    for (const by__op_attr *a = row->attrs; a != NULL && a->label != NULL; a++) {
        memcpy(by__attr_field(&attrs, a), by__attr_value(from, a), field_sizes[a->type]);
    }
    return attrs;
}

/* Returns NULL, or what is wrong. The bound keeps sums of these numbers far from overflow. */
static const char *wrong_window(const by_window *window)
{
    const int64_t most = 1 << 30;
    for (int i = 0; i < 2; i++) {
        if (window->stride[i] < 1 || window->dilation[i] < 1) {
            return "stride and dilation must be 1 or more";
        }
        if (window->size[i] < 0 || window->before[i] < 0) {
            return "size and padding of a window must not be negative";
        }
        if (window->size[i] > most || window->stride[i] > most || window->dilation[i] > most ||
            window->before[i] > most || window->after[i] > most || window->after[i] < -most) {
            return "a window is larger than 2^30";
        }
    }
    return NULL;
}

by_status by__op_attrs_check(const by__op_row *row, const by__op_signature *s, by_error *error)
{
    for (const by__op_attr *a = row->attrs; a != NULL && a->label != NULL; a++) {
        const void *value = by__attr_value(s->attrs, a);
        if (a->type == BY__ATTR_FLOAT && !isfinite(*(const float *)value)) {
            return by__op_refuse(s, error, "an attribute is not a finite number");
        }
        if (a->type == BY__ATTR_MAP) {
            const char *wrong = by__op_map_wrong(*(const by_map_program *const *)value);
            BY_TRY(wrong == NULL ? BY_OK : by__op_refuse(s, error, wrong));
        }
        if (a->type == BY__ATTR_WINDOW) {
            const char *wrong = wrong_window(value);
            BY_TRY(wrong == NULL ? BY_OK : by__op_refuse(s, error, wrong));
        }
        if (a->type == BY__ATTR_DTYPE && by_dtype_size(*(const by_dtype *)value) == 0) {
            return by__op_refuse(s, error, "unknown dtype");
        }
        if (a->type == BY__ATTR_FUNCTION && (unsigned)*(const by_function *)value >= BY_FN_COUNT) {
            return by__op_refuse(s, error, "unknown function");
        }
    }
    return BY_OK;
}

static bool is_zero(const by__op_attr *a, const void *value)
{
    static const char zeros[sizeof(by_attrs)];
    return memcmp(value, zeros, field_sizes[a->type]) == 0;
}

/* Prints the axes of a set or of an order. */
static void print_axes(by_string *text, const by__op_attr *a, const void *value)
{
    const int *order = value;
    int highest = 0;
    for (int i = 0; i < BY_MAX_RANK && a->type == BY__ATTR_ORDER; i++) {
        highest = order[i] > highest ? order[i] : highest;
    }
    const char *separator = "";
    for (int i = 0; i < BY_MAX_RANK; i++) {
        if (a->type == BY__ATTR_ORDER && i <= highest) {
            by_string_format(text, "%s%d", separator, order[i]);
            separator = " ";
        } else if (a->type == BY__ATTR_AXES && by__mask_has(*(const uint32_t *)value, i)) {
            by_string_format(text, "%s%d", separator, i);
            separator = " ";
        }
    }
}

/* Prints what is not as usual: "3 x 3 stride 2 2 padding 1 1 to 0 0 dilation 2 2". */
static void print_window(by_string *text, const by_window *w)
{
    const char *separator = "";
    const int64_t *const pairs[] = {w->stride, w->before, w->dilation};
    const char *const names[] = {"stride", "padding", "dilation"};
    if (w->size[0] > 0) {
        by_string_format(text, "%lld x %lld", (long long)w->size[0], (long long)w->size[1]);
        separator = " ";
    }
    for (int i = 0; i < 3; i++) {
        int64_t usual = i == 1 ? 0 : 1;
        bool pads = i == 1 && (w->after[0] != w->before[0] || w->after[1] != w->before[1]);
        if (pairs[i][0] == usual && pairs[i][1] == usual && !pads) {
            continue;
        }
        by_string_format(text, "%s%s %lld %lld", separator, names[i], (long long)pairs[i][0],
                         (long long)pairs[i][1]);
        separator = " ";
        if (pads) {
            by_string_format(text, " to %lld %lld", (long long)w->after[0], (long long)w->after[1]);
        }
    }
    if (separator[0] == '\0') {
        by__string_append(text, "stride 1 1");
    }
}

static void print_attr(by_string *text, const by__op_attr *a, const void *value)
{
    if (a->type == BY__ATTR_FLAG) {
        if (*(const bool *)value) {
            by_string_format(text, " %s", a->label);
        }
        return;
    }
    by_string_format(text, a->label[0] == '\0' ? " " : " %s ", a->label);
    switch (a->type) {
    case BY__ATTR_INT:
        by_string_format(text, "%lld", (long long)*(const int64_t *)value);
        break;
    case BY__ATTR_WORD:
        by_string_format(text, "%u", *(const uint32_t *)value);
        break;
    case BY__ATTR_FLOAT:
        by_string_format(text, "%g", (double)*(const float *)value);
        break;
    case BY__ATTR_SHAPE: {
        char shape[128];
        by__string_append(text, by_shape_print(value, shape));
        break;
    }
    case BY__ATTR_ORDER:
    case BY__ATTR_AXES:
        print_axes(text, a, value);
        break;
    case BY__ATTR_DTYPE:
        by__string_append(text, by_dtype_name(*(const by_dtype *)value));
        break;
    case BY__ATTR_PACKING: {
        const by_packing *packing = value;
        by_string_format(text, "%s %s [", by_packing_kind_name(packing->kind),
                         by_dtype_name(packing->dtype));
        if (packing->stack > 0) {
            by_string_format(text, "%lld, ", (long long)packing->stack);
        }
        by_string_format(text, "%lld, %lld]", (long long)packing->n, (long long)packing->k);
        if (packing->group > 0) {
            by_string_format(text, " groups of %lld", (long long)packing->group);
        }
        break;
    }
    case BY__ATTR_WINDOW:
        print_window(text, value);
        break;
    case BY__ATTR_MAP:
        by__op_map_print(text, *(const by_map_program *const *)value);
        break;
    default:
        by__string_append(text, by_function_name(*(const by_function *)value));
    }
}

void by__op_attrs_print(by_string *text, const by__op_row *row, const by_attrs *attrs, bool work)
{
    unsigned hidden = BY__ATTR_IN_TYPE | (work ? BY__ATTR_NO_WORK : 0u);
    for (const by__op_attr *a = row->attrs; a != NULL && a->label != NULL; a++) {
        const void *value = by__attr_value(attrs, a);
        bool spared = (a->traits & BY__ATTR_SPARE) != 0 && is_zero(a, value);
        if ((a->traits & hidden) == 0 && !spared) {
            print_attr(text, a, value);
        }
    }
}
