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
    [BY__ATTR_PACKING] = sizeof(by_packing),
};

by_attrs by__op_attrs_of(const by__op_row *row, const by_attrs *from)
{
    by_attrs attrs = {0};
    for (const by__op_attr *a = row->attrs; a != NULL && a->label != NULL; a++) {
        memcpy(by__attr_field(&attrs, a), by__attr_value(from, a), field_sizes[a->type]);
    }
    return attrs;
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
