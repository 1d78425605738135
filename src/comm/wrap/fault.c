/* Fault points comm.post, comm.wait, comm.split, comm.alloc: the call fails as if the system had.
 */
#include "comm/wrap/wrap.h"

static shoal_status injected(const char *point)
{
    return SHOAL_FAIL(SHOAL_EIO, "fault point %s: made to fail by SHOAL_FAULT", point);
}

static shoal_status post(void *object, const struct shoali_post *post, void **request)
{
    if (shoali_fault("comm.post"))
        return injected("comm.post");
    return shoali_wrap_post(object, post, request);
}

/* The operation may be under way in the caller's buffers: only an aborted world lets go of them. */
static shoal_status wait(void *object, void *request)
{
    if (shoali_fault("comm.wait")) {
        shoal_status status = injected("comm.wait");
        shoali_wrap_abort(object, status, shoal_error_message());
    }
    return shoali_wrap_wait(object, request);
}

/* A request that was over when it was tested is not waited for. */
static shoal_status test(void *object, void *request)
{
    shoal_status status = shoali_wrap_test(object, request);
    if (status == SHOAL_OK && shoali_fault("comm.wait")) {
        status = injected("comm.wait");
        shoali_wrap_abort(object, status, shoal_error_message());
    }
    return status;
}

static shoal_status split(void *object, const struct shoali_split_args *args, void **child)
{
    if (shoali_fault("comm.split"))
        return injected("comm.split");
    return shoali_wrap_split(&shoali_comm_fault, object, args, child);
}

static shoal_status alloc(void *object, const char *here, size_t bytes, void **memory)
{
    if (shoali_fault("comm.alloc"))
        return injected("comm.alloc");
    return shoali_wrap_alloc(object, here, bytes, memory);
}

const struct shoali_comm_ops shoali_comm_fault = {
    .abi = SHOALI_COMM_ABI,
    .bytes = sizeof(struct shoali_comm_ops),
    .name = "fault",
    .probe = shoali_wrap_probe,
    .destroy = shoali_wrap_destroy,
    .rank = shoali_wrap_rank,
    .size = shoali_wrap_size,
    .post = post,
    .test = test,
    .wait = wait,
    .split = split,
    .alloc = alloc,
    .free = shoali_wrap_free,
    .abort = shoali_wrap_abort,
    .second_thread = shoali_wrap_second_thread,
    .set_name = shoali_wrap_set_name,
    .say_place = shoali_wrap_say_place,
};
