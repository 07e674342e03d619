/* Operators on values. */
#include <math.h>
#include <string.h>

#include "text/template/template.h"

static by_status repeat(by__template_render *r, const by__template_value *v, int64_t times,
                        by__template_value *out)
{
    size_t total;
    size_t count = times > 0 ? (size_t)times : 0;
    size_t length = v->kind == BY__STRING ? v->as.string.length : v->as.list->count;
    if (!by__size_mul(length, count, &total)) {
        return by__template_render_fail(r, "a repetition is too long");
    }
    if (v->kind == BY__LIST) {
        BY_TRY(by__template_value_list(r, total, v->as.list->tuple, out));
        for (size_t i = 0; i < total; i++) {
            out->as.list->items[i] = v->as.list->items[i % length];
        }
        return by__template_render_steps(r, total);
    }
    char *data;
    BY_TRY(by__template_render_allocate(r, (void **)&data, total + 1, 1));
    for (size_t i = 0; i < count && length > 0; i++) {
        memcpy(data + i * length, v->as.string.data, length);
    }
    *out = by__template_value_string(data, total);
    return by__template_render_steps(r, total / 64 + (length > 0 ? count / 16 : 0));
}

static by_status concatenate(by__template_render *r, const by__template_value *a,
                             const by__template_value *b, by__template_value *out)
{
    if (a->kind == BY__LIST) {
        const by__template_list *x = a->as.list;
        const by__template_list *y = b->as.list;
        BY_TRY(by__template_value_list(r, x->count + y->count, x->tuple, out));
        for (size_t i = 0; i < x->count + y->count; i++) {
            out->as.list->items[i] = i < x->count ? x->items[i] : y->items[i - x->count];
        }
        return by__template_render_steps(r, x->count + y->count);
    }
    char *data;
    size_t n = a->as.string.length;
    size_t m = b->as.string.length;
    BY_TRY(by__template_render_allocate(r, (void **)&data, n + m + 1, 1));
    memcpy(data, a->as.string.data, n);
    memcpy(data + n, b->as.string.data, m);
    *out = by__template_value_string(data, n + m);
    return by__template_render_steps(r, (n + m) / 64);
}

/* base to the power of exponent >= 0; returns false on overflow. */
static bool integer_power(int64_t base, int64_t exponent, int64_t *out)
{
    int64_t result = 1;
    while (exponent > 0) {
        if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) {
            return false;
        }
        exponent >>= 1;
        if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) {
            return false;
        }
    }
    *out = result;
    return true;
}

static by_status operate_integers(by__template_render *r, by__template_operator op, int64_t a,
                                  int64_t b, by__template_value *out)
{
    int64_t result = 0;
    bool fits = true;
    bool divides = op == BY__OP_DIVIDE || op == BY__OP_FLOOR || op == BY__OP_MODULO;
    if (divides && b == 0) {
        return by__template_render_fail(r, "division by zero");
    }
    switch (op) {
    case BY__OP_ADD:
        fits = !__builtin_add_overflow(a, b, &result);
        break;
    case BY__OP_SUBTRACT:
        fits = !__builtin_sub_overflow(a, b, &result);
        break;
    case BY__OP_MULTIPLY:
        fits = !__builtin_mul_overflow(a, b, &result);
        break;
    case BY__OP_POWER:
        fits = b >= 0 && integer_power(a, b, &result);
        break;
    case BY__OP_DIVIDE:
        *out = (by__template_value){.kind = BY__REAL, .as.real = (double)a / (double)b};
        return BY_OK;
    default: /* rounding down, as in Python */
        fits = b != 0 && !(a == INT64_MIN && b == -1);
        if (fits) {
            int64_t rest = a % b;
            bool below = rest != 0 && (rest < 0) != (b < 0);
            result = op == BY__OP_MODULO ? rest + (below ? b : 0) : a / b - (below ? 1 : 0);
        }
        break;
    }
    *out = by__template_value_integer(result);
    return fits ? BY_OK : by__template_render_fail(r, "an integer is too large");
}

static by_status operate_reals(by__template_render *r, by__template_operator op, double a, double b,
                               by__template_value *out)
{
    bool divides = op == BY__OP_DIVIDE || op == BY__OP_FLOOR || op == BY__OP_MODULO;
    if (divides && b == 0.0) {
        return by__template_render_fail(r, "division by zero");
    }
    double result = op == BY__OP_ADD        ? a + b
                    : op == BY__OP_SUBTRACT ? a - b
                    : op == BY__OP_MULTIPLY ? a * b
                    : op == BY__OP_DIVIDE   ? a / b
                    : op == BY__OP_FLOOR    ? floor(a / b)
                    : op == BY__OP_MODULO   ? a - b * floor(a / b)
                                            : pow(a, b);
    *out = (by__template_value){.kind = BY__REAL, .as.real = result};
    return BY_OK;
}

by_status by__template_value_operate(by__template_render *r, by__template_operator op,
                                     const by__template_value *a, const by__template_value *b,
                                     by__template_value *out)
{
    if (op == BY__OP_JOIN) {
        by__template_value x;
        by__template_value y;
        BY_TRY(by__template_value_text(r, a, &x));
        BY_TRY(by__template_value_text(r, b, &y));
        return concatenate(r, &x, &y, out);
    }
    if (by__template_value_is_number(a) && by__template_value_is_number(b)) {
        return by__template_value_is_real(a) || by__template_value_is_real(b)
                   ? operate_reals(r, op, by__template_value_real(a), by__template_value_real(b),
                                   out)
                   : operate_integers(r, op, by__template_value_whole(a),
                                      by__template_value_whole(b), out);
    }
    bool series = a->kind == BY__STRING || a->kind == BY__LIST;
    if (op == BY__OP_ADD && series && a->kind == b->kind) {
        return concatenate(r, a, b, out);
    }
    if (op == BY__OP_MULTIPLY && series && (b->kind == BY__INTEGER || b->kind == BY__BOOL)) {
        return repeat(r, a, by__template_value_whole(b), out);
    }
    if (op == BY__OP_MULTIPLY && (b->kind == BY__STRING || b->kind == BY__LIST) &&
        (a->kind == BY__INTEGER || a->kind == BY__BOOL)) {
        return repeat(r, b, by__template_value_whole(a), out);
    }
    const by__template_value *undefined = a->kind == BY__UNDEFINED   ? a
                                          : b->kind == BY__UNDEFINED ? b
                                                                     : NULL;
    if (undefined != NULL) {
        return by__template_render_fail(r, "'%.*s' is undefined", (int)undefined->as.string.length,
                                        undefined->as.string.data);
    }
    static const char *const signs[] = {
        [BY__OP_ADD] = "+",    [BY__OP_SUBTRACT] = "-", [BY__OP_MULTIPLY] = "*",
        [BY__OP_DIVIDE] = "/", [BY__OP_FLOOR] = "//",   [BY__OP_MODULO] = "%",
        [BY__OP_POWER] = "**"};
    return by__template_render_fail(r, "'%s' of %s and %s is not supported", signs[op],
                                    by__template_value_word(a), by__template_value_word(b));
}
