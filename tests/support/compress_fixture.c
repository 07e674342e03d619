#include "compress_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runner.h"
#include "temporary.h"
#include "tiny_model.h"

void open_fixture(fixture *f, const char *const *settings, size_t count)
{
    by_error error = {0};
    f->config = tiny_config(settings, count);
    f->directory = temporary_make();
    assert_non_null(f->directory);
    tiny_model_write(f->config, f->directory);
    f->out = by__path_join(f->directory, "made");
    assert_non_null(f->out);
    check_ok(by_pretrained_open(&f->model, f->directory, false, &error), &error);
}

void close_fixture(fixture *f)
{
    by_pretrained_close(&f->model);
    by_config_close(&f->config);
    free(f->out);
    temporary_remove(f->directory);
}
