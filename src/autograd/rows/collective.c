/* collective.c - ops that talk to the other ranks of a group, in forward and in backward. */
#include "autograd/rows/rows.h"

#include <string.h>

/* ---- all_reduce_sum ---- */

static shoal_status all_reduce_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_row_need_float(node, 0), done);
    SHOAL_TRY(status, shoali_row_output_like_first(tape, node), done);
done:
    return status;
}

static shoal_status sum_over_group(struct shoal_tape *tape, struct shoali_node *node,
                                   const void *in, void *out)
{
    shoal_group *const *group = shoali_node_attr(node);
    const struct shoal_tensor *x = &node->in[0]->tensor;
    const struct shoali_post post = {
        .kind = SHOALI_ALL_REDUCE,
        .here = SHOALI_HERE,
        .in = in,
        .out = out,
        .count = shoali_count(x),
        .dtype = x->dtype,
        .op = SHOAL_SUM,
    };
    return shoali_node_post(tape, node, *group, &post);
}

static shoal_status all_reduce_forward(struct shoal_tape *tape, struct shoali_node *node)
{
    return sum_over_group(tape, node, node->in[0]->tensor.data, node->out[0]->tensor.data);
}

static shoal_status all_reduce_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    void *to;
    bool accumulate;
    SHOAL_TRY(status, shoali_grad_begin(tape, node, 0, false, &to, &accumulate), done);
    if (to != NULL)
        SHOAL_TRY(status, sum_over_group(tape, node, shoali_node_grad(tape, node, 0), to), done);
done:
    return status;
}

static shoal_status gradient_has_come(struct shoal_tape *tape, struct shoali_node *node)
{
    return shoali_grad_end(tape, node, 0);
}

static const struct shoali_op_row all_reduce_row = {
    SHOALI_ROW_HEAD,
    .name = "all_reduce_sum",
    .infer = all_reduce_infer,
    .forward_post = all_reduce_forward,
    .backward_post = all_reduce_backward,
    .backward_finish = gradient_has_come,
    .cost = shoali_cost_elementwise,
    .flags = SHOALI_ROW_COLLECTIVE,
};

shoal_tensor *shoal_all_reduce_sum(shoal_tape *tape, shoal_tensor *x, shoal_group *group)
{
    return shoali_tape_record(tape, &(struct shoali_record_args){.row = &all_reduce_row,
                                                                 .inputs = {x},
                                                                 .attr = &group,
                                                                 .attr_bytes = sizeof group});
}

/* ---- all_to_all_rows ----
 * Rows arrive by their data: their block is the default of rows.h, a range with an equal part of
 * the bound for each sample of this rank. */

struct exchange_attr {
    shoal_group *group;
    int32_t ranks;
    int64_t *send_rows, *recv_rows, *send_elements, *recv_elements; /* [ranks], in the arena */
    int64_t bound_rows;
};

/* Tells every rank how many rows it gets; fills what the exchanges need. */
static shoal_status agree_on_counts(struct shoal_tape *tape, struct exchange_attr *attr,
                                    int64_t columns, int64_t *received)
{
    shoal_status status = SHOAL_OK;
    *received = attr->bound_rows;
    if (shoali_tape_is_meta(tape))
        return SHOAL_OK;
    SHOAL_TRY(status,
              shoal_all_to_all(attr->group, attr->send_rows, attr->recv_rows, 1, SHOAL_I64, NULL),
              done);
    *received = 0;
    for (int32_t r = 0; r < attr->ranks; r++) {
        attr->send_elements[r] = attr->send_rows[r] * columns;
        attr->recv_elements[r] = attr->recv_rows[r] * columns;
        *received += attr->recv_rows[r];
    }
done:
    return status;
}

static shoal_status exchange_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    struct exchange_attr *attr = shoali_node_attr(node);
    int64_t sent = 0, received;
    char text[128];
    SHOAL_TRY(status, shoali_row_need_float(node, 0), done);
    const struct shoal_tensor *x = &node->in[0]->tensor;
    for (int32_t r = 0; r < attr->ranks; r++)
        sent += attr->send_rows[r];
    /* In meta mode the counts of a data-dependent x are not known. */
    const bool counts_fit =
        x->shape.ndim == 2 && (sent == x->shape.dim[0] || shoali_tape_is_meta(tape));
    if (!counts_fit) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "all_to_all_rows: x is %s but send_counts add up to %lld rows; x must "
                            "be [R, C] with R their sum",
                            shoali_shape_format(&x->shape, text), (long long)sent);
        goto done;
    }
    SHOAL_TRY(status, agree_on_counts(tape, attr, x->shape.dim[1], &received), done);
    if (received > attr->bound_rows) {
        status = SHOAL_FAIL(
            SHOAL_EINVAL, "all_to_all_rows: rank %d receives %lld rows, more than bound_rows %lld",
            (int)shoal_comm_rank(attr->group), (long long)received, (long long)attr->bound_rows);
        goto done;
    }
    const shoal_shape shape = shoal_shape_2(received, x->shape.dim[1]);
    SHOAL_TRY(
        status,
        shoali_node_output(tape, node, 0, x->dtype, &shape, attr->bound_rows * x->shape.dim[1]),
        done);
done:
    return status;
}

static shoal_status exchange(struct shoal_tape *tape, struct shoali_node *node, const void *in,
                             const int64_t *send, void *out, const int64_t *recv)
{
    const struct exchange_attr *attr = shoali_node_attr(node);
    const struct shoali_post post = {
        .kind = SHOALI_ALL_TO_ALL_V,
        .here = SHOALI_HERE,
        .in = in,
        .out = out,
        .dtype = node->in[0]->tensor.dtype,
        .send_counts = send,
        .recv_counts = recv,
    };
    return shoali_node_post(tape, node, attr->group, &post);
}

static shoal_status exchange_forward(struct shoal_tape *tape, struct shoali_node *node)
{
    const struct exchange_attr *attr = shoali_node_attr(node);
    return exchange(tape, node, node->in[0]->tensor.data, attr->send_elements,
                    node->out[0]->tensor.data, attr->recv_elements);
}

static shoal_status exchange_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct exchange_attr *attr = shoali_node_attr(node);
    void *to;
    bool accumulate;
    SHOAL_TRY(status, shoali_grad_begin(tape, node, 0, false, &to, &accumulate), done);
    if (to != NULL)
        SHOAL_TRY(status,
                  exchange(tape, node, shoali_node_grad(tape, node, 0), attr->recv_elements, to,
                           attr->send_elements),
                  done);
done:
    return status;
}

static const struct shoali_op_row exchange_row = {
    SHOALI_ROW_HEAD,
    .name = "all_to_all_rows",
    .infer = exchange_infer,
    .forward_post = exchange_forward,
    .backward_post = exchange_backward,
    .backward_finish = gradient_has_come,
    .cost = shoali_cost_move,
    .flags = SHOALI_ROW_COLLECTIVE | SHOALI_ROW_HOST_SYNC,
};

shoal_tensor *shoal_all_to_all_rows(shoal_tape *tape, shoal_tensor *x, shoal_group *group,
                                    const int64_t *send_counts, int64_t bound_rows)
{
    if (tape->status < 0)
        return NULL;
    const int32_t ranks = shoal_comm_size(group);
    const size_t bytes = (size_t)ranks * sizeof(int64_t);
    int64_t *lists = shoali_arena_alloc(&tape->arena, 4 * bytes);
    if (lists == NULL)
        return shoali_tape_poison(tape, SHOAL_ENOMEM);
    memcpy(lists, send_counts, bytes);
    const struct exchange_attr attr = {
        .group = group,
        .ranks = ranks,
        .send_rows = lists,
        .recv_rows = lists + ranks,
        .send_elements = lists + 2 * ranks,
        .recv_elements = lists + 3 * ranks,
        .bound_rows = bound_rows,
    };
    return shoali_tape_record(
        tape, &(struct shoali_record_args){
                  .row = &exchange_row, .inputs = {x}, .attr = &attr, .attr_bytes = sizeof attr});
}
