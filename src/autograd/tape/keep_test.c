/* Groups of layers recomputed as one, and the places where kept inputs wait: the bits of keeping
 * everything, the memory of the plan. */
#include "autograd/test_model.h"

/* What the observer asks for: layers [1, end) in chunks. */
struct plan {
    int32_t chunk, end;
    int32_t replays, open; /* seen by replay_begin and replay_end */
};

static shoal_status flag_layers(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    const struct plan *plan = user;
    (void)tape;
    scope->recompute =
        scope->layer != NULL && scope->layer->index >= 1 && scope->layer->index < plan->end;
    return SHOAL_OK;
}
static int32_t chunk_of(void *user, const struct shoal_layer *layer)
{
    const struct plan *plan = user;
    const int32_t left = plan->end - layer->index;
    return layer->index < 1 ? 1 : plan->chunk < left ? plan->chunk : left;
}
static shoal_status begin_replay(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    struct plan *plan = user;
    (void)tape;
    plan->open++;
    plan->replays++;
    return plan->open == 1 && scope->layer != NULL ? SHOAL_OK : SHOAL_EINTERNAL;
}
static shoal_status end_replay(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    struct plan *plan = user;
    (void)tape;
    (void)scope;
    plan->open--;
    return SHOAL_OK;
}

static struct shoali_observer observer_of(struct plan *plan)
{
    return (struct shoali_observer){.user = plan,
                                    .forward_begin = flag_layers,
                                    .group = chunk_of,
                                    .replay_begin = begin_replay,
                                    .replay_end = end_replay};
}

struct memory {
    size_t slot, kept;
};

static struct shoali_slot *kept_slot(struct model *model, int32_t where, size_t bytes)
{
    struct shoali_slot *slot;
    if (where == SHOALI_KEEP_HOST)
        rig_ok(shoali_slot_create_pinned(model->rig->device, bytes, &slot));
    else
        rig_ok(shoali_slot_create(model->rig->device, bytes, &slot));
    return slot;
}

/* Forward and backward, twice; with `memory` NULL in meta mode. */
static struct memory run(struct model *model, struct plan *plan, int32_t where,
                         const struct memory *memory, float *loss)
{
    const bool meta = memory == NULL;
    struct shoali_slot *slot, *kept;
    struct shoal_tape *tape;
    const struct shoali_observer observer = observer_of(plan);
    if (meta) {
        rig_ok(shoali_slot_create(NULL, 0, &slot));
        rig_ok(shoali_slot_create(NULL, 0, &kept));
    } else {
        rig_ok(shoali_slot_create(model->rig->device, memory->slot, &slot));
        kept = kept_slot(model, where, memory->kept);
    }
    struct shoali_tape_args args = {.exec = model->rig->exec,
                                    .module = &model->module,
                                    .slot = slot,
                                    .keep = {.slot = kept},
                                    .dtype = model->module.dtype,
                                    .seed = 1234,
                                    .observers = &observer,
                                    .observer_count = plan->end > 0};
    args.keep.where = where == SHOALI_KEEP_HOST    ? SHOALI_KEEP_HOST
                      : where == SHOALI_KEEP_BLOCK ? SHOALI_KEEP_BLOCK
                                                   : SHOALI_KEEP_SLOT;
    if (meta)
        args.exec = (struct shoali_exec){0};
    rig_ok(shoali_tape_create(&args, &tape));
    for (int32_t turn = 0; turn < 2; turn++) {
        (void)model_forward(model, tape, 0, MODEL_BATCH); /* begun, and given up */
        shoal_tensor *result = model_forward(model, tape, 2, MODEL_BATCH);
        if (!meta) {
            model_spoil_gradients(model);
            rig_ok(shoal_tensor_read(result, 0, 1, loss));
        }
        model_backward(tape, result);
        assert_int_equal(shoali_slot_used_bytes(kept), 0);
        assert_int_equal(plan->open, 0);
    }
    if (!meta)
        model_read_gradients(model);
    const struct memory used = {shoali_slot_peak_bytes(slot), shoali_slot_peak_bytes(kept)};
    assert_int_equal(shoali_slot_growth_count(slot), 0);
    assert_int_equal(shoali_slot_growth_count(kept), 0);
    shoali_tape_destroy(tape);
    shoali_slot_destroy(kept);
    shoali_slot_destroy(slot);
    return used;
}

static void check_dtype(shoal_dtype dtype)
{
    struct rig rig;
    struct model model;
    rig_open(&rig, NULL);
    model_open(&model, &rig, dtype);
    const size_t bytes = (size_t)model.module.element_count * sizeof(float);
    float *expected = malloc(bytes), loss, first_loss;
    struct plan none = {0};
    const struct memory plain = run(&model, &none, SHOALI_KEEP_SLOT, NULL, NULL);
    run(&model, &none, SHOALI_KEEP_SLOT, &plain, &first_loss);
    memcpy(expected, model.gradients, bytes);
    for (int32_t chunk = 1; chunk <= 4; chunk++)
        for (int32_t where = SHOALI_KEEP_SLOT; where <= SHOALI_KEEP_HOST; where++) {
            struct plan plan = {.chunk = chunk, .end = MODEL_LAYERS};
            const struct memory planned = run(&model, &plan, where, NULL, NULL);
            plan.replays = 0;
            const struct memory used = run(&model, &plan, where, &planned, &loss);
            assert_memory_equal(&loss, &first_loss, sizeof loss);
            assert_memory_equal(model.gradients, expected, bytes);
            assert_int_equal(used.slot, planned.slot);
            assert_int_equal(used.kept, planned.kept);
            assert_true((used.kept > 0) == (where != SHOALI_KEEP_SLOT));
            assert_true(used.slot < plain.slot || chunk > 2);
            /* layers 1 to 4, but a chunk of one layer is no group */
            const int32_t grouped = chunk == 1 ? 0 : chunk == 3 ? 3 : 4;
            assert_int_equal(plan.replays, 2 * grouped);
        }
    free(expected);
    model_close(&model);
    rig_close(&rig);
}

static void test_same_bits_planned_memory(void **state)
{
    (void)state;
    check_dtype(SHOAL_F32);
    check_dtype(SHOAL_BF16);
}

/* Each allocation fails once: a status, no leak, and the next recording is fine. */
static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    struct rig rig;
    struct model model;
    struct shoali_slot *slot, *kept;
    struct shoal_tape *tape;
    struct plan plan = {.chunk = 2, .end = MODEL_LAYERS};
    const struct shoali_observer observer = observer_of(&plan);
    rig_open(&rig, NULL);
    model_open(&model, &rig, SHOAL_F32);
    static const char *const points[] = {"device_alloc", "host_alloc"};
    for (int32_t p = 0, nth = 0; p < 2;) {
        char spec[32];
        shoal_boundary boundary = {0};
        shoal_status status;
        rig_ok(shoali_slot_create(rig.device, 0, &slot));
        rig_ok(shoali_slot_create_pinned(rig.device, 0, &kept));
        rig_ok(shoali_tape_create(
            &(struct shoali_tape_args){.exec = rig.exec,
                                       .module = &model.module,
                                       .slot = slot,
                                       .keep = {.where = SHOALI_KEEP_HOST, .slot = kept},
                                       .dtype = SHOAL_F32,
                                       .observers = &observer,
                                       .observer_count = 1},
            &tape));
        snprintf(spec, sizeof spec, "%s:%d", points[p], (int)nth);
        assert_true(shoali_fault_arm(spec));
        SHOAL_TRY(status,
                  shoali_tape_begin(
                      tape, &(struct shoali_tape_begin){.training = true, .needs_grad = true}),
                  done);
        model_add_batch(tape, 0, MODEL_BATCH);
        SHOAL_TRY(status,
                  shoali_tape_forward_layers(tape, &model.module, 0, MODEL_LAYERS, &boundary),
                  done);
        SHOAL_TRY(status,
                  shoali_tape_backward(tape, &(struct shoali_backward){.outputs = boundary.tensor,
                                                                       .output_count = 1,
                                                                       .seed_value = 1}),
                  done);
    done:
        assert_true(shoali_fault_arm(NULL));
        shoali_tape_destroy(tape);
        shoali_slot_destroy(kept);
        shoali_slot_destroy(slot);
        if (status < 0) {
            nth++;
            continue;
        }
        assert_true(nth > 0); /* and now there were fewer */
        p++;
        nth = 0;
    }
    model_close(&model);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits_planned_memory),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
