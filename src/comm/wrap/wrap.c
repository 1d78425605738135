#include "comm/wrap/wrap.h"

shoal_status shoali_wrap_create(const struct shoali_comm_ops *wrapper,
                                const struct shoali_comm_ops *inner_ops, void *inner, void **object)
{
    struct shoali_wrap *wrap = shoali_calloc(1, sizeof(struct shoali_wrap_widest), wrapper->name);
    *object = wrap;
    if (!wrap) {
        inner_ops->abort(inner, SHOAL_ENOMEM, shoal_error_message()); /* or they wait for us */
        inner_ops->destroy(inner);
        return SHOAL_ENOMEM;
    }
    wrap->inner_ops = inner_ops;
    wrap->inner = inner;
    return SHOAL_OK;
}

bool shoali_wrap_probe(void)
{
    return true;
}

void shoali_wrap_destroy(void *object)
{
    struct shoali_wrap *wrap = object;
    wrap->inner_ops->destroy(wrap->inner);
    shoali_free(wrap);
}

int32_t shoali_wrap_rank(const void *object)
{
    const struct shoali_wrap *wrap = object;
    return wrap->inner_ops->rank(wrap->inner);
}

int32_t shoali_wrap_size(const void *object)
{
    const struct shoali_wrap *wrap = object;
    return wrap->inner_ops->size(wrap->inner);
}

shoal_status shoali_wrap_post(void *object, const struct shoali_post *post, void **request)
{
    struct shoali_wrap *wrap = object;
    return wrap->inner_ops->post(wrap->inner, post, request);
}

shoal_status shoali_wrap_test(void *object, void *request)
{
    struct shoali_wrap *wrap = object;
    return wrap->inner_ops->test(wrap->inner, request);
}

shoal_status shoali_wrap_wait(void *object, void *request)
{
    struct shoali_wrap *wrap = object;
    return wrap->inner_ops->wait(wrap->inner, request);
}

shoal_status shoali_wrap_alloc(void *object, const char *here, size_t bytes, void **memory)
{
    struct shoali_wrap *wrap = object;
    return wrap->inner_ops->alloc(wrap->inner, here, bytes, memory);
}

void shoali_wrap_free(void *object, void *memory)
{
    struct shoali_wrap *wrap = object;
    wrap->inner_ops->free(wrap->inner, memory);
}

void shoali_wrap_abort(void *object, shoal_status status, const char *sentence)
{
    struct shoali_wrap *wrap = object;
    wrap->inner_ops->abort(wrap->inner, status, sentence);
}

void shoali_wrap_set_name(void *object, const char *name)
{
    struct shoali_wrap *wrap = object;
    if (wrap->inner_ops->set_name)
        wrap->inner_ops->set_name(wrap->inner, name);
}

void shoali_wrap_say_place(void *object)
{
    struct shoali_wrap *wrap = object;
    if (wrap->inner_ops->say_place)
        wrap->inner_ops->say_place(wrap->inner);
}

void shoali_wrap_second_thread(void *object)
{
    struct shoali_wrap *wrap = object;
    wrap->inner_ops->second_thread(wrap->inner);
}

shoal_status shoali_wrap_split(const struct shoali_comm_ops *wrapper, void *object,
                               const struct shoali_split_args *args, void **child)
{
    struct shoali_wrap *wrap = object;
    void *inner = NULL;
    *child = NULL;
    shoal_status status = wrap->inner_ops->split(wrap->inner, args, &inner);
    if (status == SHOAL_OK && inner)
        status = shoali_wrap_create(wrapper, wrap->inner_ops, inner, child);
    return status;
}
