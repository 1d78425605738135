/* Requests: posting, advancing step by step, waiting, and verdicts that go from one world to the
 * other. */
#include "comm/hierarchical/hierarchical.h"

#include "base/waiting.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    SETTLE_NS = 300000000, /* of another host's verdict, in which what is complete completes */
    POLLS = 200,
    NAP_NS = 50000,
    /* Percent. A step near that waits for the leader, who waits for others, outlasts the leader's
     * deadline and SETTLE_NS, even where the timeout is a second. */
    NEAR_PATIENCE = 75,
    LEADERS_PATIENCE = 25,
    TEXT_BYTES = 1024
};

/* ---- verdicts ------------------------------------------------------------------------------- */

/* The verdict of the host or of all, told to the other of the two; the last error is its sentence.
 * SHOAL_OK: there is none. */
static shoal_status spread(const struct shoali_hier_world *world)
{
    char sentence[TEXT_BYTES];
    shoal_status status = world->inner->verdict(world->near);
    if (status < 0) {
        snprintf(sentence, sizeof sentence, "%s", shoal_error_message());
        world->outer->relay(world->all, status, sentence);
        return SHOAL_FAIL(status, "%s", sentence);
    }
    status = world->outer->verdict(world->all);
    if (status < 0) {
        snprintf(sentence, sizeof sentence, "%s", shoal_error_message());
        world->inner->relay(world->near, status, sentence);
        return SHOAL_FAIL(status, "%s", sentence);
    }
    return SHOAL_OK;
}

shoal_status shoali_hier_poll(void *user)
{
    struct shoali_hier_world *world = user;
    const shoal_status status = world->outer->verdict(world->all);
    if (status == SHOAL_OK)
        return SHOAL_OK;
    const int64_t now_ns = shoali_now_ns();
    int64_t none = 0;
    if (atomic_compare_exchange_strong(&world->seen_ns, &none, now_ns))
        return SHOAL_OK;
    return now_ns - none < SETTLE_NS ? SHOAL_OK : status;
}

/* Gives the operation up; the error that is set stays, or becomes that of the world's verdict. */
static shoal_status fail(struct shoali_hier_group *group, struct shoali_hier_op *op,
                         shoal_status status)
{
    char sentence[TEXT_BYTES];
    snprintf(sentence, sizeof sentence, "%s", shoal_error_message());
    const shoal_status verdict = spread(group->world);
    if (op->request && verdict < 0) {
        (void)!op->ops->wait(op->object, op->request); /* it is over: both worlds are aborted */
        op->request = NULL;
    }
    shoali_queue_remove(&group->queue, op->index);
    return verdict < 0 ? spread(group->world) : SHOAL_FAIL(status, "%s", sentence);
}

/* ---- steps ---------------------------------------------------------------------------------- */

static void *object_of(const struct shoali_hier_group *group, enum shoali_hier_where where)
{
    if (where == SHOALI_HIER_NEAR)
        return group->near;
    return where == SHOALI_HIER_LEADERS ? group->leaders : group->all;
}

static shoal_status begin_step(struct shoali_hier_group *group, struct shoali_hier_op *op,
                               enum shoali_hier_where where, struct shoali_post *post)
{
    struct shoali_hier_world *world = group->world;
    const bool near = where == SHOALI_HIER_NEAR;
    post->call = &op->call;
    post->agree = op->post.agree;
    if (op->step > 0)
        post->patience = near ? NEAR_PATIENCE : LEADERS_PATIENCE;
    op->ops = near ? world->inner : world->outer;
    op->object = object_of(group, where);
    atomic_fetch_add_explicit(&world->between[op->post.kind],
                              shoali_hier_crossing(group, where, post), memory_order_relaxed);
    return op->ops->post(op->object, post, &op->request);
}

/* SHOAL_IN_PROGRESS when it needs others. */
static shoal_status advance(void *backend, int32_t index)
{
    struct shoali_hier_group *group = backend;
    struct shoali_hier_op *op = &group->op[index];
    while (op->error == SHOAL_OK) {
        if (op->request) {
            const shoal_status status = op->ops->test(op->object, op->request);
            if (status == SHOAL_IN_PROGRESS)
                return status;
            op->request = NULL;
            if (status < 0)
                return op->error = status;
        }
        struct shoali_post post = {
            .kind = SHOALI_BARRIER, .here = op->post.here, .dtype = SHOAL_U8};
        const enum shoali_hier_where where = shoali_hier_next(group, op, &post);
        if (where == SHOALI_HIER_OVER)
            return SHOAL_OK;
        if (where != SHOALI_HIER_SKIP) {
            const shoal_status status = begin_step(group, op, where, &post);
            if (status < 0)
                return op->error = status;
        }
        op->step++;
    }
    return op->error;
}

/* SHOAL_OK: done, and the operation is free. */
static shoal_status look(struct shoali_hier_group *group, struct shoali_hier_op *op)
{
    struct shoali_queue *queue = &group->queue;
    shoal_status status = SHOAL_OK;
    if (!shoali_queue_is_done(queue, op->index))
        status = shoali_queue_advance(queue, advance, group);
    if (shoali_queue_take_done(queue, op->index))
        return SHOAL_OK;
    if (status < 0 && queue->failed != op->index && spread(group->world) == SHOAL_OK)
        status = SHOAL_OK; /* another request's own fault, which its waiter receives */
    if (status == SHOAL_OK && (status = shoali_hier_poll(group->world)) == SHOAL_OK)
        return SHOAL_IN_PROGRESS;
    return fail(group, op, status);
}

shoal_status shoali_hier_test(void *backend, void *request)
{
    return look(backend, request);
}

/* Nothing else of this group needs this rank: the group below may wait in its own way, which costs
 * least. */
static bool is_alone(const struct shoali_hier_group *group, const struct shoali_hier_op *op)
{
    return group->queue.count == 1 && op->request;
}

shoal_status shoali_hier_wait(void *backend, void *request)
{
    struct shoali_hier_group *group = backend;
    struct shoali_hier_op *op = request;
    struct shoali_waiting waiting = {0};
    for (int32_t looks = 0;; looks += looks < 2 * POLLS) {
        shoal_status status = look(group, op);
        if (status != SHOAL_IN_PROGRESS)
            return status;
        if (!is_alone(group, op) && shoali_waiting_due(&waiting, op->call.here))
            SHOALI_WARN("comm", "waiting for %.0f s for ranks of other hosts in %s at %s",
                        shoali_waiting_seconds(&waiting),
                        shoali_collective_name((enum shoali_collective)op->call.kind),
                        op->call.here);
        if (is_alone(group, op)) {
            void *step = op->request;
            op->request = NULL;
            status = op->ops->wait(op->object, step);
            if (status < 0)
                return fail(group, op, status);
        } else if (looks >= 2 * POLLS) {
            nanosleep(&(struct timespec){0, NAP_NS}, NULL);
        } else if (looks >= POLLS) {
            sched_yield();
        }
    }
}

shoal_status shoali_hier_post(void *backend, const struct shoali_post *post, void **out)
{
    struct shoali_hier_group *group = backend;
    shoal_status status = SHOAL_OK;
    int32_t index;
    *out = NULL;
    SHOAL_TRY(status, spread(group->world), done);
    SHOAL_TRY(status, shoali_queue_add(&group->queue, post, &index), done);
    struct shoali_hier_op *op = &group->op[index];
    *op = (struct shoali_hier_op){.index = index, .post = *post};
    shoali_post_describe(post, &op->call);
    op->post.here = op->call.here;
    status = look(group, op);
    if (status == SHOAL_IN_PROGRESS) {
        *out = op;
        status = SHOAL_OK;
    }
done:
    return status;
}

shoal_status shoali_hier_run(struct shoali_hier_group *group, const struct shoali_post *post)
{
    void *request = NULL;
    const shoal_status status = shoali_hier_post(group, post, &request);
    return status == SHOAL_OK && request ? shoali_hier_wait(group, request) : status;
}

shoal_status shoali_hier_run_on(const struct shoali_comm_ops *ops, void *object,
                                const struct shoali_post *post)
{
    void *request = NULL;
    const shoal_status status = ops->post(object, post, &request);
    return status == SHOAL_OK && request ? ops->wait(object, request) : status;
}

void shoali_hier_abort(void *backend, shoal_status status, const char *sentence)
{
    const struct shoali_hier_group *group = backend;
    char text[TEXT_BYTES]; /* it may be the last error's own text */
    snprintf(text, sizeof text, "%s", sentence);
    group->world->inner->abort(group->world->near, status, text);
    group->world->outer->abort(group->world->all, status, text);
}
