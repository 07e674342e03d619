/* Other values for the weights of an engine, while it is open: those of a model in training, which
 * the engine samples from between steps. */
#include "infer/scheduler.h"

static by_status write_weight(by_engine *e, by__store_handle handle, const by_tensor_view *view,
                              by_error *error)
{
    by__store *store = e->forward.store;
    const by__store_tensor *entry = by__store_entry(store, handle);
    bool fits = view->dtype == BY_F32 && view->data != NULL && view->rank == entry->shape.rank;
    for (int i = 0; i < view->rank && fits; i++) {
        fits = view->shape[i] == entry->shape.dim[i];
    }
    if (!fits) {
        return by_error_set(error, BY_EARG,
                            "weight %s: an f32 tensor of the shape of the engine's is needed",
                            entry->name);
    }
    return by__store_write(store, e->forward.weights, handle, view->data, BY_F32,
                           by_shape_count(&entry->shape), e->forward.options.threads, error);
}

by_status by_engine_set_weights(by_engine *engine, by_weight_reader *read, void *user,
                                by_error *error)
{
    by__store *store = engine->forward.store;
    if (by_engine_busy(engine)) {
        return by_error_set(error, BY_ESTATE,
                            "the engine has sequences, which began with other weights: run it "
                            "until it is idle");
    }
    for (size_t i = 0; i < by__store_count(store); i++) {
        by_shape shape = by__store_shape(store, engine->forward.weights, (by__store_handle)i);
        by_tensor_view view = {0};
        if (shape.rank < 0) { /* keys and values */
            continue;
        }
        const char *name = by__store_entry(store, (by__store_handle)i)->name;
        BY_TRY(read(user, name, &view, error));
        BY_TRY(write_weight(engine, (by__store_handle)i, &view, error));
    }
    by__infer_pool_forget(&engine->pool);
    return BY_OK;
}
