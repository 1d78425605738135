/* exact_splits.c - products summed in logical splits, and the blocks of contributions. */
#include "autograd/rows/exact_splits.h"

static int32_t ranks_of(const struct shoal_tape *tape)
{
    return shoali_is_tensor_parallel(tape) ? tape->args.tensor_parallel.ranks : 1;
}

int32_t shoali_exact_splits_of(const struct shoal_tape *tape, const struct shoal_param *weight,
                               int32_t dim)
{
    if (weight == NULL || weight->columns.splits <= 1 || weight->tensor_dim != dim)
        return 0;
    return weight->columns.splits / ranks_of(tape);
}

/* How many splits of a part have something of it. */
static int64_t count_pieces(const struct shoali_columns *columns, int32_t part)
{
    const int64_t whole = columns->whole[part], fine = columns->fine[part];
    const int64_t units = whole / columns->unit[part];
    const bool cuts_units = fine > 0 && units > 0 && columns->splits % units == 0;
    return cuts_units ? whole / fine : units;
}

shoal_status shoali_exact_splits_check(const struct shoal_param *weight)
{
    const struct shoali_columns *columns = weight != NULL ? &weight->columns : NULL;
    for (int32_t p = 0; columns != NULL && columns->splits > 1 && p < columns->parts; p++)
        if (columns->whole[p] > 0 && columns->splits > count_pieces(columns, p))
            return shoali_param_refuse_exact_splits(weight, p);
    return SHOAL_OK;
}

struct shoali_interval shoali_exact_splits_piece(const struct shoal_tape *tape,
                                                 const struct shoali_columns *columns,
                                                 int32_t split, int32_t part)
{
    const int32_t rank = ranks_of(tape) > 1 ? tape->args.tensor_parallel.rank : 0;
    const int32_t first = columns->splits / ranks_of(tape) * rank;
    struct shoali_interval piece =
        shoali_shard_share(columns->whole[part], columns->unit[part], columns->fine[part],
                           columns->splits, first + split, NULL);
    piece.begin -= columns->first[part];
    for (int32_t p = 0; p < part; p++)
        piece.begin += columns->count[p];
    return piece;
}

struct shoali_interval shoali_columns_piece(const struct shoal_tape *tape,
                                            const struct shoali_columns *columns, int32_t index)
{
    if (columns->splits > 1)
        return shoali_exact_splits_piece(tape, columns, index, 0);
    return (struct shoali_interval){0, columns->count[0]};
}

/* ---- products -------------------------------------------------------------------------------- */

static shoal_dtype wide_of(const struct shoali_split_product *product)
{
    return shoali_wide(product->gemm.dtype_ab);
}

static bool is_one_piece(const struct shoali_split_product *product)
{
    return product->weights == 1 && product->weight[0]->columns.parts == 1;
}

static int32_t splits_of(const struct shoal_tape *tape, const struct shoali_split_product *product)
{
    return shoali_exact_splits_of(tape, product->weight[0], product->dim);
}

/* Points a product at one piece: `first` are A's columns before those of the weight. */
static void aim(const struct shoal_tape *tape, const struct shoali_split_product *product,
                int32_t weight, int32_t split, int32_t part, int64_t first,
                struct shoali_gemm_args *args)
{
    const struct shoal_param *param = product->weight[weight];
    const struct shoali_interval piece =
        shoali_exact_splits_piece(tape, &param->columns, split, part);
    args->ldb = param->shape.dim[1];
    args->k = piece.count;
    args->a = shoali_at(product->gemm.a, first + piece.begin, args->dtype_ab);
    args->b = shoali_at(param->data, piece.begin * (args->trans_b ? 1 : args->ldb), args->dtype_ab);
}

/* (+)= the split's share. Adding is of one piece alone. */
static shoal_status leaf(struct shoal_tape *tape, const struct shoali_split_product *product,
                         int32_t split, void *to, bool add)
{
    shoal_status status = SHOAL_OK;
    struct shoali_gemm_args args = {
        .c = to,
        .m = product->gemm.m,
        .n = product->gemm.n,
        .lda = product->gemm.lda,
        .ldc = product->gemm.n,
        .trans_b = product->gemm.trans_b,
        .accumulate = add,
        .dtype_ab = product->gemm.dtype_ab,
        .dtype_c = wide_of(product),
    };
    int64_t first = 0;
    SHOAL_ASSERT(!add || is_one_piece(product));
    for (int32_t w = 0; w < product->weights; w++) {
        const struct shoal_param *param = product->weight[w];
        for (int32_t p = 0; p < param->columns.parts; p++) {
            aim(tape, product, w, split, p, first, &args);
            SHOAL_TRY(status, SHOALI_RUN(tape, gemm, &args), done);
            args.accumulate = true;
        }
        first += param->shape.dim[product->dim];
    }
done:
    return status;
}

shoal_status shoali_split_add(struct shoal_tape *tape, void *left, const void *right, int64_t count,
                              shoal_dtype wide)
{
    const struct shoali_axpy_args args = {
        .x = right, .y = left, .count = count, .a = 1, .accumulate = true, .dtype = wide};
    return SHOALI_RUN(tape, axpy, &args);
}

/* The sum of splits [first, first + count). */
static shoal_status subtree(struct shoal_tape *tape, const struct shoali_split_product *product,
                            int32_t first, int32_t count, void *to)
{
    shoal_status status;
    const int32_t half = count / 2;
    const int64_t elements = product->gemm.m * product->gemm.n;
    const size_t bytes = (size_t)elements * shoal_dtype_bytes(wide_of(product));
    void *right = NULL;
    if (count == 1)
        return leaf(tape, product, first, to, false);
    SHOAL_TRY(status, subtree(tape, product, first, half, to), done);
    if (half == 1 && is_one_piece(product)) {
        SHOAL_TRY(status, leaf(tape, product, first + 1, to, true), done);
        goto done;
    }
    SHOAL_TRY(status, shoali_tape_workspace(tape, bytes, &right), done);
    SHOAL_TRY(status, subtree(tape, product, first + half, half, right), done);
    SHOAL_TRY(status, shoali_split_add(tape, to, right, elements, wide_of(product)), done);
done:
    shoali_tape_workspace_free(tape, right);
    return status;
}

shoal_status shoali_split_partial(struct shoal_tape *tape,
                                  const struct shoali_split_product *product, void *partial)
{
    return subtree(tape, product, 0, splits_of(tape, product), partial);
}

shoal_status shoali_split_finish(struct shoal_tape *tape, const struct shoali_split_end *end)
{
    const struct shoali_gemm_args args = {
        .before = end->sum,
        .c = end->c,
        .bias = end->bias,
        .residual = end->residual,
        .preact = end->preact,
        .m = end->rows,
        .n = end->columns,
        .ldb = end->columns,
        .ldc = end->columns,
        .activation = end->activation,
        .dtype_ab = end->dtype,
        .dtype_c = end->dtype,
        .dtype_bias = end->dtype,
    };
    return SHOALI_RUN(tape, gemm, &args);
}

/* Two splits of one piece: the second product takes the first one's sum and has the end, too. */
shoal_status shoali_split_gemm(struct shoal_tape *tape, const struct shoali_split_product *product)
{
    shoal_status status = SHOAL_OK;
    struct shoali_gemm_args args = product->gemm;
    const int32_t splits = splits_of(tape, product);
    const bool direct = args.dtype_c == wide_of(product);
    const size_t bytes = (size_t)(args.m * args.n) * shoal_dtype_bytes(wide_of(product));
    void *own = NULL, *sum = args.c;
    SHOAL_ASSERT(args.ldc == args.n && !args.accumulate);
    if (!direct) {
        SHOAL_TRY(status, shoali_tape_workspace(tape, bytes, &own), done);
        sum = own;
    }
    args.before = sum;
    if (splits == 2 && is_one_piece(product)) {
        SHOAL_TRY(status, leaf(tape, product, 0, sum, false), done);
        aim(tape, product, 0, 1, 0, 0, &args);
    } else {
        SHOAL_TRY(status, subtree(tape, product, 0, splits, sum), done);
        args.k = 0;
    }
    SHOAL_TRY(status, SHOALI_RUN(tape, gemm, &args), done);
done:
    shoali_tape_workspace_free(tape, own);
    return status;
}

shoal_status shoali_split_input_gradient(struct shoal_tape *tape, struct shoali_node *node,
                                         int32_t index, const struct shoali_split_product *product)
{
    if (node->in[index]->wide_grad)
        return shoali_split_partial(tape, product, product->gemm.c);
    return shoali_split_gemm(tape, product);
}

/* ---- contributions --------------------------------------------------------------------------- */

struct shoali_blocks shoali_blocks_of(const struct shoal_tape *tape,
                                      const struct shoal_param *param,
                                      const struct shoal_tensor *tensor)
{
    const int32_t declared = tape->args.tensor_parallel.sequence_splits;
    const int64_t rows = shoali_row_count(tensor);
    const struct shoali_blocks one = {1, 1, rows, rows};
    if (declared <= 1 || tensor->shape.ndim < 3 || param == NULL || param->columns.parts > 0)
        return one;
    const int64_t samples = tensor->shape.dim[0];
    const int64_t here = tensor->sequence_part ? declared / ranks_of(tape) : declared;
    const int64_t length = samples > 0 ? rows / samples : 0;
    if (tensor->shape.dim[1] % here != 0) /* no sequence, whose length is checked by the engine */
        return one;
    return (struct shoali_blocks){here, samples, length / here, length};
}

/* What some rows give to a contribution that is complete when all have: by `run` or by a
 * product. */
struct rows_gradient {
    shoali_rows_gradient *run;
    shoali_rows_product *product;
};

static shoal_status add_rows(struct shoal_tape *tape, struct shoali_node *node, int32_t param,
                             const struct rows_gradient *of, const struct shoali_range *rows,
                             void *to, bool accumulate)
{
    if (of->run != NULL)
        return of->run(tape, node, param, rows, to, accumulate);
    struct shoali_gemm_args args = of->product(tape, node, param, rows);
    args.c = to;
    args.accumulate = accumulate;
    return SHOALI_RUN(tape, gemm, &args);
}

/* Block by block, the samples of each in turn, whose sum is fp32 until it is complete. */
static shoal_status contribute(struct shoal_tape *tape, struct shoali_node *node, int32_t param,
                               const struct shoali_blocks *blocks, const struct rows_gradient *of)
{
    shoal_status status;
    void *to;
    bool accumulate;
    SHOAL_TRY(status, shoali_param_grad_begin(tape, node, param, &to, &accumulate), done);
    for (int64_t b = 0; to != NULL && b < blocks->blocks; b++) {
        for (int64_t s = 0; s < blocks->samples; s++) {
            const struct shoali_range rows = {shoali_blocks_row(blocks, b, s), blocks->rows};
            SHOAL_TRY(status, add_rows(tape, node, param, of, &rows, to, accumulate || s > 0),
                      done);
        }
        if (b + 1 < blocks->blocks)
            SHOAL_TRY(status, shoali_param_grad_next(tape, node, param), done);
    }
    SHOAL_TRY(status, shoali_param_grad_end(tape, node, param), done);
done:
    return status;
}

shoal_status shoali_contribute(struct shoal_tape *tape, struct shoali_node *node, int32_t param,
                               shoali_rows_gradient *run)
{
    const struct shoali_blocks blocks =
        shoali_blocks_of(tape, node->param[param], &node->out[0]->tensor);
    return contribute(tape, node, param, &blocks, &(struct rows_gradient){.run = run});
}

shoal_status shoali_contribute_product(struct shoal_tape *tape, struct shoali_node *node,
                                       int32_t param, shoali_rows_product *product)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_blocks blocks =
        shoali_blocks_of(tape, node->param[param], &node->out[0]->tensor);
    const int64_t count = node->param[param] != NULL ? node->param[param]->count : 0;
    bool wanted = true;
    if (blocks.samples > 1 || blocks.blocks == 0)
        return contribute(tape, node, param, &blocks, &(struct rows_gradient){.product = product});
    for (int64_t b = 0; wanted && b < blocks.blocks; b++) {
        const struct shoali_range rows = {shoali_blocks_row(&blocks, b, 0), blocks.rows};
        struct shoali_gemm_args args = product(tape, node, param, &rows);
        SHOAL_TRY(status, shoali_param_grad_product(tape, node, param, 0, count, &args, &wanted),
                  done);
        if (wanted)
            SHOAL_TRY(status, SHOALI_RUN(tape, gemm, &args), done);
    }
    SHOAL_TRY(status, shoali_param_grad_end(tape, node, param), done);
done:
    return status;
}
