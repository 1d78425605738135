/* embedding.c - rows of a parameter table by id, with learned positions. */
#include "autograd/rows/rows.h"

enum { TABLE, POSITIONS };

struct embedding_attr {
    int64_t rows, columns, period; /* set by infer */
    int64_t first_row, whole_rows; /* where tp divides the table; else 0 */
    int64_t first_position;        /* row of positions for index 0 */
};

static shoal_status check_table(const struct shoali_node *node, int32_t index, shoal_dtype dtype)
{
    const struct shoal_param *table = node->param[index];
    char text[128];
    if (table == NULL || table->shape.ndim != 2)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "embedding: parameter %d (%s) has shape %s; a table [rows, "
                          "columns] is needed",
                          (int)index, table != NULL ? table->name : "NULL",
                          table != NULL ? shoali_shape_format(&table->shape, text) : "none");
    return shoali_row_need_param(node, index, dtype, &table->shape);
}

static shoal_status check_ids(struct shoal_tape *tape, const struct shoali_node *node)
{
    const struct shoali_tape_tensor *ids = node->in[0];
    const struct shoal_param *table = node->param[TABLE];
    const int64_t rows = shoal_param_shape(table)->dim[0];
    const bool outside = ids->id_min < 0 || ids->id_max >= rows;
    if (!ids->ids_known)
        tape->ids_unchecked = true;
    else if (outside && shoali_count(&ids->tensor) > 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "embedding: ids go from %d to %d but table %s has %lld rows; check the "
                          "tokens against the vocabulary size",
                          (int)ids->id_min, (int)ids->id_max, table->name, (long long)rows);
    return SHOAL_OK;
}

static shoal_status embedding_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    struct embedding_attr *attr = shoali_node_attr(node);
    const shoal_dtype dtype = tape->args.dtype;
    SHOAL_TRY(status, shoali_row_need_i32(node, 0), done);
    SHOAL_TRY(status, check_table(node, TABLE, dtype), done);
    SHOAL_TRY(status, check_ids(tape, node), done);
    const struct shoal_tensor *ids = &node->in[0]->tensor;
    const struct shoal_param *positions = node->param[POSITIONS];
    shoal_shape shape = ids->shape;
    attr->rows = shoali_count(ids);
    attr->columns = node->param[TABLE]->shape.dim[1];
    attr->period = shoali_last_dim(&ids->shape);
    if (positions != NULL)
        SHOAL_TRY(status, check_table(node, POSITIONS, dtype), done);
    const int64_t period = tape->generation != NULL ? 0 : attr->period;
    if (positions != NULL && (positions->shape.dim[1] != attr->columns ||
                              positions->shape.dim[0] - attr->first_position < period)) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "embedding: positions %s has %lld rows of %lld elements; a sequence of "
                            "%lld needs that many rows of %lld elements",
                            positions->name, (long long)positions->shape.dim[0],
                            (long long)positions->shape.dim[1], (long long)attr->period,
                            (long long)attr->columns);
        goto done;
    }
    if (shape.ndim == SHOAL_MAX_DIMS) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "embedding: ids have %d dims; at most %d",
                            (int)shape.ndim, SHOAL_MAX_DIMS - 1);
        goto done;
    }
    shape.dim[shape.ndim++] = attr->columns;
    SHOAL_TRY(status, shoali_node_output(tape, node, 0, dtype, &shape, ids->bound * attr->columns),
              done);
    shoali_block_leading(node, ids->shape.ndim);
done:
    return status;
}

static shoal_status fail_position(const struct shoali_kv_segment *segment,
                                  const struct shoal_param *positions)
{
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "embedding: position %lld is beyond the %lld rows of %s; a longer text needs "
                      "a model with more positions",
                      (long long)(segment->position + segment->rows - 1),
                      (long long)positions->shape.dim[0], positions->name);
}

/* Each sequence of a generation is at a position of its own. */
static shoal_status embed_segments(struct shoal_tape *tape, const struct shoali_node *node,
                                   const struct shoali_embedding_args *whole)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_generation *generation = tape->generation;
    const int64_t first = whole->first_position;
    const int64_t rows = node->param[POSITIONS]->shape.dim[0] - first;
    for (int32_t i = 0; i < generation->segment_count; i++) {
        const struct shoali_kv_segment *segment = &generation->segments[i];
        struct shoali_embedding_args args = *whole;
        if (segment->position + segment->rows > rows)
            return fail_position(segment, node->param[POSITIONS]);
        args.ids = shoali_at(whole->ids, segment->first_row, SHOAL_I32);
        args.out = shoali_at(whole->out, segment->first_row * whole->columns, whole->dtype);
        args.rows = segment->rows;
        args.period = rows;
        args.first_position = first + segment->position;
        SHOAL_TRY(status, SHOALI_RUN(tape, embedding, &args), done);
    }
done:
    return status;
}

static shoal_status embedding_forward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct embedding_attr *attr = shoali_node_attr(node);
    const struct shoal_param *positions = node->param[POSITIONS];
    int64_t *bad_id;
    SHOAL_TRY(status, shoali_tape_bad_id(tape, &bad_id), done);
    const struct shoali_embedding_args args = {
        .ids = node->in[0]->tensor.data,
        .table = node->param[TABLE]->data,
        .positions = positions != NULL ? positions->data : NULL,
        .out = node->out[0]->tensor.data,
        .bad_id = bad_id,
        .rows = attr->rows,
        .columns = attr->columns,
        .table_rows = node->param[TABLE]->shape.dim[0],
        .period = attr->period,
        .first_position = positions != NULL ? attr->first_position : 0,
        .dtype = node->out[0]->tensor.dtype,
        .first_row = attr->first_row,
        .whole_rows = attr->whole_rows,
    };
    if (tape->generation != NULL && positions != NULL)
        SHOAL_TRY(status, embed_segments(tape, node, &args), done);
    else
        SHOAL_TRY(status, SHOALI_RUN(tape, embedding, &args), done);
done:
    return status;
}

static shoal_status embedding_backward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct embedding_attr *attr = shoali_node_attr(node);
    const struct shoal_param *table = node->param[TABLE], *positions = node->param[POSITIONS];
    void *dtable, *dpositions;
    bool accumulate_table, accumulate_positions;
    SHOAL_TRY(status, shoali_param_grad_begin(tape, node, TABLE, &dtable, &accumulate_table), done);
    SHOAL_TRY(status,
              shoali_param_grad_begin(tape, node, POSITIONS, &dpositions, &accumulate_positions),
              done);
    const struct shoali_embedding_backward_args args = {
        .ids = node->in[0]->tensor.data,
        .dout = shoali_node_grad(tape, node, 0),
        .dtable = dtable,
        .dpositions = dpositions,
        .rows = attr->rows,
        .columns = attr->columns,
        .table_rows = table->shape.dim[0],
        .position_rows = positions != NULL ? positions->shape.dim[0] : 0,
        .period = attr->period,
        .first_position = positions != NULL ? attr->first_position : 0,
        .accumulate_table = accumulate_table,
        .accumulate_positions = accumulate_positions,
        .dtype = node->out[0]->tensor.dtype,
        .first_row = attr->first_row,
    };
    SHOAL_TRY(status, SHOALI_RUN(tape, embedding_backward, &args), done);
    SHOAL_TRY(status, shoali_param_grad_end(tape, node, TABLE), done);
    SHOAL_TRY(status, shoali_param_grad_end(tape, node, POSITIONS), done);
done:
    return status;
}

static void embedding_cost(const struct shoal_tape *tape, const struct shoali_node *node,
                           int64_t *flops_forward, int64_t *flops_backward, int64_t *bytes)
{
    (void)tape;
    const struct embedding_attr *attr = shoali_node_attr(node);
    const bool adds = node->param[POSITIONS] != NULL;
    *flops_forward = adds ? attr->rows * attr->columns : 0;
    *flops_backward = attr->rows * attr->columns * (adds ? 2 : 1);
    /* only the rows that are looked up travel */
    *bytes = (int64_t)node->in[0]->bytes + (int64_t)node->out[0]->bytes * (adds ? 3 : 2);
}

static const struct shoali_op_row embedding_row = {
    SHOALI_ROW_HEAD,
    .name = "embedding",
    .infer = embedding_infer,
    .forward = embedding_forward,
    .backward_weight = embedding_backward,
    .cost = embedding_cost,
    .saves_inputs = 1u,
};

/* ---- positions behind a table that tp divides ---- */

struct positions_attr {
    int64_t first_position;         /* row for index 0 */
    int64_t columns, period, first; /* set by infer; first: of a part of the sequence */
};

static shoal_status positions_infer(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    struct positions_attr *attr = shoali_node_attr(node);
    const struct shoal_tensor *x = &node->in[0]->tensor;
    const struct shoali_tensor_parallel *tp = &tape->args.tensor_parallel;
    const struct shoal_param *positions = node->param[0];
    SHOAL_TRY(status, check_table(node, 0, x->dtype), done);
    attr->columns = shoali_last_dim(&x->shape);
    attr->period = x->shape.dim[x->shape.ndim - 2];
    attr->first = attr->first_position + (x->sequence_part ? tp->rank * attr->period : 0);
    const int64_t length = attr->period * (x->sequence_part ? tp->ranks : 1);
    if (positions->shape.dim[1] != attr->columns ||
        (tape->generation == NULL && positions->shape.dim[0] - attr->first_position < length)) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "embedding: positions %s has %lld rows of %lld elements; a sequence of "
                            "%lld needs that many rows of %lld elements",
                            positions->name, (long long)positions->shape.dim[0],
                            (long long)positions->shape.dim[1], (long long)length,
                            (long long)attr->columns);
        goto done;
    }
    SHOAL_TRY(status, shoali_row_output_like_first(tape, node), done);
done:
    return status;
}

/* Rows of x and of y from `row` on get those of the table from `position` on, in turn. */
static shoal_status add_positions(struct shoal_tape *tape, const struct shoali_node *node,
                                  int64_t row, int64_t rows, int64_t position, int64_t period)
{
    const struct positions_attr *attr = shoali_node_attr(node);
    const struct shoal_tensor *x = &node->in[0]->tensor;
    const int64_t columns = attr->columns;
    const struct shoali_binary_args args = {
        .a = shoali_at(x->data, row * columns, x->dtype),
        .b = shoali_at(node->param[0]->data, position * columns, x->dtype),
        .y = shoali_at(node->out[0]->tensor.data, row * columns, x->dtype),
        .count = rows * columns,
        .b_count = period * columns,
        .kind = SHOALI_ADD,
        .dtype = x->dtype,
    };
    return SHOALI_RUN(tape, binary, &args);
}

static shoal_status positions_forward(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status = SHOAL_OK;
    const struct positions_attr *attr = shoali_node_attr(node);
    const struct shoali_generation *generation = tape->generation;
    const struct shoal_param *positions = node->param[0];
    if (generation == NULL)
        return add_positions(tape, node, 0, shoali_row_count(&node->in[0]->tensor), attr->first,
                             attr->period);
    for (int32_t i = 0; i < generation->segment_count; i++) {
        const struct shoali_kv_segment *segment = &generation->segments[i];
        if (attr->first_position + segment->position + segment->rows > positions->shape.dim[0])
            return fail_position(segment, positions);
        SHOAL_TRY(status,
                  add_positions(tape, node, segment->first_row, segment->rows,
                                attr->first_position + segment->position, segment->rows),
                  done);
    }
done:
    return status;
}

static shoal_status positions_pass(struct shoal_tape *tape, struct shoali_node *node)
{
    return shoali_grad_pass(tape, node, 0);
}

static shoal_status positions_gradient(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status;
    const struct positions_attr *attr = shoali_node_attr(node);
    const struct shoal_tensor *x = &node->in[0]->tensor;
    const struct shoal_param *positions = node->param[0];
    const shoal_dtype wide = shoali_wide(x->dtype);
    void *to;
    bool accumulate;
    SHOAL_TRY(status, shoali_param_grad_begin(tape, node, 0, &to, &accumulate), done);
    const struct shoali_reduce_args args = {
        .x = shoali_node_grad(tape, node, 0),
        .y = shoali_at(to, attr->first * attr->columns, wide),
        .outer = 1,
        .reduced = attr->period > 0 ? shoali_row_count(x) / attr->period : 0,
        .inner = attr->period * attr->columns,
        .factor = 1,
        .accumulate = true,
        .row_order = true,
        .dtype = x->dtype,
        .dtype_out = wide,
    };
    if (to != NULL && !accumulate) /* rows of positions that no token has */
        SHOAL_TRY(status,
                  shoali_tape_zero(tape, to, (size_t)positions->count * shoal_dtype_bytes(wide)),
                  done);
    if (to != NULL)
        SHOAL_TRY(status, SHOALI_RUN(tape, reduce, &args), done);
    SHOAL_TRY(status, shoali_param_grad_end(tape, node, 0), done);
done:
    return status;
}

static const struct shoali_op_row positions_row = {
    SHOALI_ROW_HEAD,
    .name = "positions",
    .infer = positions_infer,
    .forward = positions_forward,
    .backward_input = positions_pass,
    .backward_weight = positions_gradient,
    .cost = shoali_cost_elementwise,
    .flags = SHOALI_ROW_HELPER | SHOALI_ROW_SEQUENCE,
};

/* ---- the op ---- */

static shoal_tensor *record_embedding(shoal_tape *tape, shoal_tensor *ids, shoal_param *table,
                                      shoal_param *positions, const struct embedding_attr *attr)
{
    return shoali_tape_record(
        tape, &(struct shoali_record_args){.row = &embedding_row,
                                           .inputs = {ids},
                                           .params = {[TABLE] = table, [POSITIONS] = positions},
                                           .attr = attr,
                                           .attr_bytes = sizeof *attr});
}

/* A rank without the row adds nothing to the sum, and positions come behind it: the bits are those
 * of one rank. */
static shoal_tensor *record_vocabulary(shoal_tape *tape, shoal_tensor *ids, shoal_param *table,
                                       shoal_param *positions, int64_t first_position)
{
    const struct embedding_attr attr = {.first_row = table->columns.first[0],
                                        .whole_rows = table->columns.whole[0]};
    shoal_tensor *x = record_embedding(tape, ids, table, NULL, &attr);
    x = shoali_tensor_leave(tape, x, &(struct shoali_leave_args){0});
    if (positions == NULL || x == NULL || x->shape.ndim < 2)
        return x;
    shoal_tensor *y = shoali_tape_record(
        tape, &(struct shoali_record_args){
                  .row = &positions_row,
                  .inputs = {x},
                  .params = {positions},
                  .attr = &(struct positions_attr){.first_position = first_position},
                  .attr_bytes = sizeof(struct positions_attr)});
    shoali_tensor_done(tape, x, NULL);
    return y;
}

shoal_tensor *shoal_embedding(shoal_tape *tape, shoal_tensor *ids, shoal_param *table,
                              shoal_param *positions)
{
    return shoal_embedding_from(tape, ids, table, positions, 0);
}

shoal_tensor *shoal_embedding_from(shoal_tape *tape, shoal_tensor *ids, shoal_param *table,
                                   shoal_param *positions, int64_t first_position)
{
    const struct embedding_attr attr = {.first_position = first_position};
    const enum shoali_tensor_rule rule = shoali_tensor_rule(tape, table, 0);
    if (rule == SHOALI_TENSOR_WHOLE) {
        shoal_tensor *all = record_embedding(tape, ids, table, positions, &attr);
        shoal_tensor *mine = shoali_tensor_take_sequence(tape, all);
        shoali_tensor_done(tape, all, mine);
        return mine;
    }
    if (rule == SHOALI_TENSOR_ROW || table->columns.parts != 1)
        return shoali_tape_poison(
            tape,
            SHOAL_FAIL(SHOAL_EUNSUPPORTED,
                       "embedding: tp must divide the rows of table %s, its first dim, as one "
                       "part",
                       table->name));
    if (shoali_tensor_check_shares(tape, table) < 0)
        return shoali_tape_poison(tape, SHOAL_EINVAL);
    return record_vocabulary(tape, ids, table, positions, first_position);
}
