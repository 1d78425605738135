/* param_grad.c - gradients of parameters: into the sink, once per use; grad_ready once per tape. */
#include "autograd/tape/tape.h"

static shoal_dtype gradient_dtype(const struct shoal_param *param)
{
    return param->dtype == SHOAL_F64 ? SHOAL_F64 : SHOAL_F32;
}

static shoal_status check_sink(const struct shoal_tape *tape, const struct shoal_param *param)
{
    const struct shoali_sink *sink = &param->sink;
    const shoal_dtype direct = gradient_dtype(param);
    const bool exact = sink->dtype == SHOAL_I64 && direct == SHOAL_F32;
    if (sink->dtype != direct && !exact)
        return SHOAL_FAIL(SHOAL_EINTERNAL, "parameter %s (%s): its gradient buffer is %s; use %s%s",
                          param->name, shoal_dtype_name(param->dtype),
                          shoal_dtype_name(sink->dtype), shoal_dtype_name(direct),
                          direct == SHOAL_F32 ? " or I64" : "");
    if (!shoali_tape_is_meta(tape) && sink->destination == NULL)
        return SHOAL_FAIL(SHOAL_EINTERNAL,
                          "parameter %s has no gradient buffer; set one before backward",
                          param->name);
    if (!shoali_tape_is_meta(tape) && exact && sink->flag == NULL)
        return SHOAL_FAIL(
            SHOAL_EINTERNAL,
            "parameter %s: its exact gradient buffer has no flag for values out of range",
            param->name);
    return SHOAL_OK;
}

/* Only what was written is added to: a run in meta mode writes nothing. */
static void contributed(const struct shoal_tape *tape, struct shoal_param *param)
{
    if (!shoali_tape_is_meta(tape))
        param->sink.accumulate = true;
}

static shoal_status fire(struct shoal_tape *tape, struct shoali_param_use *use)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_sink *sink = &use->param->sink;
    SHOAL_ASSERT(!use->ready);
    use->ready = true;
    if (!sink->accumulate) {
        SHOAL_TRY(status, check_sink(tape, use->param), done);
        SHOAL_TRY(status,
                  shoali_tape_zero(tape, sink->destination,
                                   (size_t)use->param->count * shoal_dtype_bytes(sink->dtype)),
                  done);
        contributed(tape, use->param);
    }
    for (int32_t i = tape->args.observer_count - 1; i >= 0; i--) {
        const struct shoali_observer *observer = &tape->args.observers[i];
        if (observer->grad_ready != NULL)
            SHOAL_TRY(status, observer->grad_ready(observer->user, tape, use->param), done);
    }
done:
    return status;
}

static shoal_status use_done(struct shoal_tape *tape, struct shoali_node *node, int32_t param)
{
    struct shoali_param_use *use = &tape->use[node->use[param]];
    SHOAL_ASSERT((node->params_done >> param & 1u) == 0 && use->pending > 0);
    node->params_done |= 1u << param;
    return --use->pending == 0 ? fire(tape, use) : SHOAL_OK;
}

shoal_status shoali_param_grad_begin(struct shoal_tape *tape, struct shoali_node *node,
                                     int32_t param, void **to, bool *accumulate)
{
    shoal_status status = SHOAL_OK;
    struct shoal_param *target = node->param[param];
    *to = NULL;
    *accumulate = false;
    if (!shoali_param_wants_grad(target))
        return SHOAL_OK;
    SHOAL_TRY(status, check_sink(tape, target), done);
    if (!shoali_tape_is_meta(tape))
        target->has_gradient = true;
    if (target->sink.dtype == SHOAL_I64) {
        SHOAL_TRY(status,
                  shoali_tape_workspace(tape, (size_t)target->count * sizeof(float),
                                        &tape->param_temp[param]),
                  done);
        *to = tape->param_temp[param];
        goto done;
    }
    *to = shoali_tape_is_meta(tape) ? (void *)SHOALI_META_ADDRESS : target->sink.destination;
    *accumulate = target->sink.accumulate;
    contributed(tape, target);
done:
    return status;
}

shoal_status shoali_param_grad_product(struct shoal_tape *tape, struct shoali_node *node,
                                       int32_t param, int64_t first, int64_t count,
                                       struct shoali_gemm_args *product, bool *wanted)
{
    shoal_status status = SHOAL_OK;
    struct shoal_param *target = node->param[param];
    const struct shoali_sink *sink = target != NULL ? &target->sink : NULL;
    *wanted = shoali_param_wants_grad(target);
    if (!*wanted)
        return SHOAL_OK;
    SHOAL_TRY(status, check_sink(tape, target), done);
    const bool meta = shoali_tape_is_meta(tape);
    const size_t offset = (size_t)first * shoal_dtype_bytes(sink->dtype);
    void *to = meta ? (void *)SHOALI_META_ADDRESS : (char *)sink->destination + offset;
    if (!meta)
        target->has_gradient = true;
    product->accumulate = sink->accumulate;
    if (sink->dtype == SHOAL_I64) {
        product->fixed = to;
        product->flag = meta ? (void *)SHOALI_META_ADDRESS : sink->flag;
        product->unit_log2 = sink->unit_log2;
        product->limit = sink->limit;
    } else {
        product->c = to;
    }
    if (first + count == target->count)
        contributed(tape, target);
done:
    return status;
}

/* The contribution leaves fp32 here, rounded once. */
static shoal_status convert(struct shoal_tape *tape, struct shoali_node *node, int32_t param)
{
    shoal_status status = SHOAL_OK;
    struct shoal_param *target = node->param[param];
    const struct shoali_to_fixed_args args = {
        .x = tape->param_temp[param],
        .fixed = target->sink.destination,
        .flag = target->sink.flag,
        .count = target->count,
        .unit_log2 = target->sink.unit_log2,
        .accumulate = target->sink.accumulate,
        .limit = target->sink.limit,
    };
    if (target->count > 0)
        SHOAL_TRY(status, SHOALI_LAUNCH(tape, shoali_op_to_fixed(&tape->args.exec, &args)), done);
    contributed(tape, target);
done:
    return status;
}

static shoal_status convert_last(struct shoal_tape *tape, struct shoali_node *node, int32_t param)
{
    shoal_status status;
    SHOAL_TRY(status, convert(tape, node, param), done);
    shoali_tape_workspace_free(tape, tape->param_temp[param]);
    tape->param_temp[param] = NULL;
done:
    return status;
}

shoal_status shoali_param_grad_next(struct shoal_tape *tape, struct shoali_node *node,
                                    int32_t param)
{
    return tape->param_temp[param] != NULL ? convert(tape, node, param) : SHOAL_OK;
}

shoal_status shoali_param_grad_part_end(struct shoal_tape *tape, struct shoali_node *node,
                                        int32_t param, int64_t first, int64_t count)
{
    shoal_status status = SHOAL_OK;
    const struct shoal_param *target = node->param[param];
    if (!shoali_param_wants_grad(target))
        return SHOAL_OK;
    if (tape->param_temp[param] != NULL)
        SHOAL_TRY(status, convert_last(tape, node, param), done);
    if (first + count == target->count)
        SHOAL_TRY(status, use_done(tape, node, param), done);
done:
    return status;
}

shoal_status shoali_param_grad_end(struct shoal_tape *tape, struct shoali_node *node, int32_t param)
{
    const struct shoal_param *target = node->param[param];
    return shoali_param_grad_part_end(tape, node, param, 0, target != NULL ? target->count : 0);
}

shoal_status shoali_node_finish_params(struct shoal_tape *tape, struct shoali_node *node)
{
    shoal_status status = SHOAL_OK;
    for (int32_t i = 0; i < SHOALI_NODE_MAX_PARAMS; i++)
        if (shoali_param_wants_grad(node->param[i]) && (node->params_done >> i & 1u) == 0)
            SHOAL_TRY(status, use_done(tape, node, i), done);
done:
    return status;
}

static bool is_unused(const struct shoali_param_use *use)
{
    return shoali_param_wants_grad(use->param) && use->pending == 0 && !use->ready;
}

shoal_status shoali_scope_finish_unused(struct shoal_tape *tape, const struct shoali_scope *scope)
{
    shoal_status status = SHOAL_OK;
    for (int32_t i = 0; scope->layer != NULL && i < scope->layer->param_count; i++) {
        struct shoali_param_use *use = shoali_tape_find_use(tape, scope->layer->param[i]);
        if (use != NULL && use->first_scope == scope->index && is_unused(use))
            SHOAL_TRY(status, fire(tape, use), done);
    }
done:
    return status;
}

int32_t shoali_tape_declared(struct shoal_tape *tape, struct shoal_param *param)
{
    const struct shoali_param_use *use = shoali_tape_find_use(tape, param);
    return use != NULL ? use->declared : 0;
}

shoal_status shoali_tape_finish_unused(struct shoal_tape *tape)
{
    shoal_status status = SHOAL_OK;
    const struct shoali_module *module = tape->args.module;
    /* Without layers (ops recorded by hand) every parameter of the module belongs to the tape. */
    for (int32_t i = 0; !tape->ran_layers && module != NULL && i < module->param_count; i++)
        if (shoali_tape_add_use(tape, module->param[i]) < 0)
            return SHOAL_ENOMEM;
    for (int32_t i = 0; i < tape->use_count; i++) {
        struct shoali_param_use *use = &tape->use[i];
        if (is_unused(use))
            SHOAL_TRY(status, fire(tape, use), done);
    }
done:
    return status;
}
