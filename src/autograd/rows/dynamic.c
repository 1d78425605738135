/* dynamic.c - rows picked by index or by mask: outputs of data-dependent size.
 *
 * Both gather with the embedding kernels, x being the table; the gradient of a row that is picked
 * twice is added in row order. select_rows turns the mask into indices on the host, once, when it
 * is recorded; a replay uses the recorded ones.
 *
 * Which rows an output holds is data, not coordinates: its block is the default of rows.h, a range
 * with an equal part of the bound for each sample. Dropout behind it depends on how samples are
 * cut into micro-batches, as the rows themselves do.
 */
#include "autograd/rows/rows.h"

enum { X, PICK };     /* inputs: PICK is the indices, or the mask */
enum { RESULT, IDS }; /* outputs: IDS of select_rows */

struct rows_attr {
    int64_t picked, columns, rows; /* set by infer */
    int32_t *host_ids;             /* select_rows: [picked], in the tape's arena */
};

static shoal_status check_inputs(const struct shoali_node *node)
{
    shoal_status status;
    char x_text[128], pick_text[128];
    SHOAL_TRY(status, shoali_row_need_float(node, X), done);
    SHOAL_TRY(status, shoali_row_need_i32(node, PICK), done);
    const struct shoal_tensor *x = &node->in[X]->tensor, *pick = &node->in[PICK]->tensor;
    if (x->shape.ndim != 2 || pick->shape.ndim != 1)
        status = SHOAL_FAIL(SHOAL_EINVAL, "%s: x %s must be [R, C] and the second input %s [n]",
                            node->row->name, shoali_shape_format(&x->shape, x_text),
                            shoali_shape_format(&pick->shape, pick_text));
done:
    return status;
}

/* ---- the shared kernels ---- */

static shoal_status gather(struct shoal_tape *tape, struct shoali_node *node, const int32_t *ids)
{
    shoal_status status;
    const struct rows_attr *attr = shoali_node_attr(node);
    int64_t *bad_id;
    SHOAL_TRY(status, shoali_tape_bad_id(tape, &bad_id), done);
    const struct shoali_embedding_args args = {
        .ids = ids,
        .table = node->in[X]->tensor.data,
        .out = node->out[RESULT]->tensor.data,
        .bad_id = bad_id,
        .rows = attr->picked,
        .columns = attr->columns,
        .table_rows = attr->rows,
        .period = 1,
        .dtype = node->in[X]->tensor.dtype,
    };
    SHOAL_TRY(status, SHOALI_RUN(tape, embedding, &args), done);
done:
    return status;
}

static shoal_status scatter(struct shoal_tape *tape, const struct shoali_node *node,
                            const int32_t *ids, void *to, bool accumulate)
{
    const struct rows_attr *attr = shoali_node_attr(node);
    const shoal_dtype dtype = node->in[X]->tensor.dtype;
    const struct shoali_embedding_backward_args args = {
        .ids = ids,
        .dout = shoali_node_grad(tape, node, RESULT),
        .dtable = to,
        .rows = attr->picked,
        .columns = attr->columns,
        .table_rows = attr->rows,
        .period = 1,
        .accumulate_table = accumulate,
        .dtype = dtype,
    };
    return SHOALI_RUN(tape, embedding_backward, &args);
}

/* The kernel adds in fp32 (fp64); 16-bit gradients are rounded once after. */
static shoal_status scatter_backward(struct shoal_tape *tape, struct shoali_node *node,
                                     const int32_t *ids)
{
    shoal_status status;
    const struct rows_attr *attr = shoali_node_attr(node);
    const struct shoal_tensor *x = &node->in[X]->tensor;
    const shoal_dtype wide = shoali_wide(x->dtype);
    const bool direct = wide == x->dtype;
    void *to, *sums = NULL;
    bool accumulate;
    SHOAL_TRY(status, shoali_grad_begin(tape, node, X, direct, &to, &accumulate), done);
    if (to == NULL)
        goto done;
    if (direct) {
        SHOAL_TRY(status, scatter(tape, node, ids, to, accumulate), done);
    } else {
        SHOAL_TRY(status,
                  shoali_tape_workspace(tape, (size_t)x->bound * shoal_dtype_bytes(wide), &sums),
                  done);
        SHOAL_TRY(status, scatter(tape, node, ids, sums, false), done);
        const struct shoali_convert_args narrow = {.x = sums,
                                                   .y = to,
                                                   .count = attr->rows * attr->columns,
                                                   .dtype = wide,
                                                   .dtype_out = x->dtype};
        SHOAL_TRY(status, SHOALI_RUN(tape, convert, &narrow), done);
    }
    SHOAL_TRY(status, shoali_grad_end(tape, node, X), done);
done:
    shoali_tape_workspace_free(tape, sums);
    return status;
}

/* ---- gather_rows ---- */

static shoal_status gather_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    struct rows_attr *attr = shoali_node_attr(node);
    SHOAL_TRY(status, check_inputs(node), done);
    const struct shoal_tensor *x = &node->in[X]->tensor;
    const struct shoali_tape_tensor *ids = node->in[PICK];
    attr->rows = x->shape.dim[0];
    attr->columns = x->shape.dim[1];
    attr->picked = ids->tensor.shape.dim[0];
    if (!ids->ids_known) {
        tape->ids_unchecked = true;
    } else if (attr->picked > 0 && (ids->id_min < 0 || ids->id_max >= attr->rows)) {
        status =
            SHOAL_FAIL(SHOAL_EINVAL, "gather_rows: indices go from %d to %d but x has %lld rows",
                       (int)ids->id_min, (int)ids->id_max, (long long)attr->rows);
        goto done;
    }
    const shoal_shape shape = shoal_shape_2(attr->picked, attr->columns);
    SHOAL_TRY(
        status,
        shoali_node_output(tape, node, RESULT, x->dtype, &shape, ids->tensor.bound * attr->columns),
        done);
done:
    return status;
}

static shoal_status gather_forward(struct shoal_tape *tape, struct shoali_node *node)
{
    return gather(tape, node, node->in[PICK]->tensor.data);
}

static shoal_status gather_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    return scatter_backward(tape, node, node->in[PICK]->tensor.data);
}

static const struct shoali_op_row gather_row = {
    SHOALI_ROW_HEAD,
    .name = "gather_rows",
    .infer = gather_infer,
    .forward = gather_forward,
    .backward_input = gather_backward,
    .cost = shoali_cost_move,
    .saves_inputs = 1u << PICK,
};

shoal_tensor *shoal_gather_rows(shoal_tape *tape, shoal_tensor *x, shoal_tensor *rows)
{
    const struct rows_attr attr = {0};
    return shoali_tape_record(tape, &(struct shoali_record_args){.row = &gather_row,
                                                                 .inputs = {x, rows},
                                                                 .attr = &attr,
                                                                 .attr_bytes = sizeof attr});
}

shoal_tensor *shoal_generation_rows(shoal_tape *tape, shoal_tensor *x)
{
    if (x == NULL)
        return NULL;
    const int64_t columns = shoali_last_dim(&x->shape);
    const shoal_shape flat = shoal_shape_2(shoali_row_count(x), columns);
    return shoal_gather_rows(tape, shoal_reshape(tape, x, flat), shoal_tape_input(tape, 1));
}

/* ---- select_rows ---- */

/* Reads the mask: one host synchronisation. */
static shoal_status find_selected(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status = SHOAL_OK;
    struct rows_attr *attr = shoali_node_attr(node);
    attr->host_ids = shoali_arena_alloc(&tape->arena, (size_t)attr->rows * sizeof(int32_t));
    if (attr->host_ids == NULL)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, shoal_tensor_read(&node->in[PICK]->tensor, 0, attr->rows, attr->host_ids),
              done);
    attr->picked = 0;
    for (int64_t r = 0; r < attr->rows; r++)
        if (attr->host_ids[r] != 0)
            attr->host_ids[attr->picked++] = (int32_t)r;
done:
    return status;
}

static shoal_status select_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    struct rows_attr *attr = shoali_node_attr(node);
    SHOAL_TRY(status, check_inputs(node), done);
    const struct shoal_tensor *x = &node->in[X]->tensor, *mask = &node->in[PICK]->tensor;
    attr->rows = x->shape.dim[0];
    attr->columns = x->shape.dim[1];
    attr->picked = attr->rows; /* the bound is what meta mode sees */
    if (mask->shape.dim[0] != attr->rows) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "select_rows: x has %lld rows but the mask %lld",
                            (long long)attr->rows, (long long)mask->shape.dim[0]);
        goto done;
    }
    if (!shoali_tape_is_meta(tape))
        SHOAL_TRY(status, find_selected(tape, node), done);
    const shoal_shape shape = shoal_shape_2(attr->picked, attr->columns);
    const shoal_shape ids = shoal_shape_1(attr->picked);
    SHOAL_TRY(status, shoali_node_output(tape, node, RESULT, x->dtype, &shape, x->bound), done);
    SHOAL_TRY(status, shoali_node_output(tape, node, IDS, SHOAL_I32, &ids, mask->bound), done);
done:
    return status;
}

static shoal_status select_forward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status = SHOAL_OK;
    const struct rows_attr *attr = shoali_node_attr(node);
    int32_t *ids = node->out[IDS]->tensor.data;
    if (attr->picked > 0)
        SHOAL_TRY(status,
                  SHOALI_LAUNCH(tape, shoali_upload(tape->args.exec.stream, ids, attr->host_ids,
                                                    (size_t)attr->picked * sizeof(int32_t))),
                  done);
    SHOAL_TRY(status, gather(tape, node, ids), done);
done:
    return status;
}

static shoal_status select_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    return scatter_backward(tape, node, node->out[IDS]->tensor.data);
}

static const struct shoali_op_row select_row = {
    SHOALI_ROW_HEAD,
    .name = "select_rows",
    .infer = select_infer,
    .forward = select_forward,
    .backward_input = select_backward,
    .cost = shoali_cost_move,
    .saves_outputs = 1u << IDS,
    .flags = SHOALI_ROW_HOST_SYNC,
};

shoal_tensor *shoal_select_rows(shoal_tape *tape, shoal_tensor *x, shoal_tensor *mask)
{
    const struct rows_attr attr = {0};
    return shoali_tape_record(tape, &(struct shoali_record_args){.row = &select_row,
                                                                 .inputs = {x, mask},
                                                                 .attr = &attr,
                                                                 .attr_bytes = sizeof attr});
}
