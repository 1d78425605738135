/* Parameters in blocks: an engine on a mesh whose axes cut them is, to everybody outside, the
 * engine that has them whole. Its ranks compute the same: each layer gathers what it computes with,
 * and takes its block of the gradient. Initial values, steps, hashes, getters and the files of a
 * checkpoint are the same bits, and a checkpoint goes from any cut to any other. */
#include "base/test_folder.h"
#include "engine/test_blocks.h"
#include "engine/test_gpt.h"

enum { ROWS = 7, COLUMNS = 24, STEPS = 4, HALF = 2, VALUES_MAX = 4096, OPTIONS = 1024 };

/* ---- the model ------------------------------------------------------------------------------- */

/* What a layer's declarations and forward pass need. */
struct cutting {
    shoal_axes axis[2];
    int64_t middle;     /* of a dim that axis[1] cuts */
    shoal_group *group; /* NULL: nothing is cut */
};

static shoal_tensor *whole_of(const shoal_layer *layer, shoal_tape *tape, int32_t index)
{
    const struct cutting *cutting = shoal_layer_config(layer);
    shoal_param *param = shoal_layer_param(layer, index);
    const struct gather_attr attr = {cutting->group, param->shard};
    shoal_tensor *x = shoal_param_tensor(tape, param);
    if (!attr.shard)
        return x;
    return shoali_tape_record(
        tape, &(struct shoali_record_args){
                  .row = &gather_row, .inputs = {x}, .attr = &attr, .attr_bytes = sizeof attr});
}

static shoal_status declare_first(const void *config, shoal_declaration *to)
{
    shoal_status status = SHOAL_OK;
    const struct cutting *by = config;
    const shoal_param_spec specs[] = {
        /* 2 x 2 blocks, 7 rows among 2 or 4 */
        {.name = "weight",
         .shape = shoal_shape_2(ROWS, COLUMNS),
         .init = SHOAL_INIT_NORMAL,
         .init_b = 0.5,
         .split = {{.axis = by->axis[0]}, {.axis = by->axis[1], .dim = 1}}},
        /* q, k and v in units of heads; 2 units each among 4 leave ranks without any */
        {.name = "qkv",
         .shape = shoal_shape_2(ROWS, COLUMNS),
         .init = SHOAL_INIT_UNIFORM,
         .init_a = -1,
         .init_b = 1,
         .split = {{.axis = by->axis[1],
                    .dim = 1,
                    .part_count = 3,
                    .part = {12, 6, 6},
                    .unit = {6, 3, 3}},
                   {.axis = by->axis[0]}}},
        {.name = "bias", .shape = shoal_shape_1(COLUMNS), .init = SHOAL_INIT_NORMAL, .init_b = 1},
        {.name = "ones",
         .shape = shoal_shape_2(ROWS, COLUMNS),
         .init = SHOAL_INIT_ONES,
         .split = {{.axis = by->axis[0], .dim = 1, .part_count = 1, .part = {24}, .unit = {8}}}},
        {.name = "frozen",
         .shape = shoal_shape_1(COLUMNS),
         .init = SHOAL_INIT_NORMAL,
         .init_b = 1,
         .tags = SHOAL_PARAM_FROZEN,
         .split = {{.axis = by->axis[0]}}},
    };
    for (size_t i = 0; i < sizeof specs / sizeof specs[0] && status == SHOAL_OK; i++)
        status = shoal_declare_param(to, &specs[i]);
    return status;
}

static void forward_first(const shoal_layer *layer, shoal_tape *tape, shoal_boundary *boundary)
{
    shoal_tensor *x = shoal_mul(tape, shoal_tape_input(tape, 0), whole_of(layer, tape, 0));
    x = shoal_tanh(tape, shoal_add(tape, x, whole_of(layer, tape, 3)));
    x = shoal_add(tape, shoal_mul(tape, x, whole_of(layer, tape, 1)), whole_of(layer, tape, 2));
    x = shoal_mul(tape, x, whole_of(layer, tape, 4));
    shoal_boundary_set(tape, boundary, &x, 1);
}

static shoal_status declare_last(const void *config, shoal_declaration *to)
{
    shoal_status status;
    const struct cutting *by = config;
    SHOAL_TRY(status,
              shoal_declare_param(to, &(shoal_param_spec){.name = "tied",
                                                          .shape = shoal_shape_2(ROWS, COLUMNS),
                                                          .tied_to = "first.weight"}),
              done);
    SHOAL_TRY(status,
              shoal_declare_param(to, &(shoal_param_spec){.name = "one",
                                                          .shape = shoal_shape_1(1),
                                                          .init = SHOAL_INIT_ONES,
                                                          .split = {{.axis = by->axis[0]}}}),
              done);
    SHOAL_TRY(
        status,
        shoal_declare_param(to, &(shoal_param_spec){.name = "middle",
                                                    .shape = shoal_shape_3(2, by->middle, 3),
                                                    .init = SHOAL_INIT_NORMAL,
                                                    .init_b = 1,
                                                    .split = {{.axis = by->axis[1], .dim = 1}}}),
        done);
done:
    return status;
}

static void forward_last(const shoal_layer *layer, shoal_tape *tape, shoal_boundary *boundary)
{
    shoal_tensor *x =
        shoal_mul(tape, shoal_boundary_get(tape, boundary, 0), whole_of(layer, tape, 0));
    x = shoal_mean(tape, shoal_square(tape, x), SHOAL_ALL_DIMS);
    shoal_tensor *more =
        shoal_mean(tape, shoal_square(tape, whole_of(layer, tape, 2)), SHOAL_ALL_DIMS);
    shoal_tensor *one =
        shoal_sum(tape, shoal_square(tape, whole_of(layer, tape, 1)), SHOAL_ALL_DIMS);
    x = shoal_add(tape, shoal_add(tape, x, more), one);
    shoal_boundary_set(tape, boundary, &x, 1);
}

static const shoal_layer_type first_type = {
    .name = "first", .declare = declare_first, .forward = forward_first};
static const shoal_layer_type last_type = {
    .name = "last", .declare = declare_last, .forward = forward_last};
static const shoal_input_spec inputs[] = {
    {.name = "x", .dtype = SHOAL_F32, .sample_shape = {2, {ROWS, COLUMNS}}}};

/* ---- a run ----------------------------------------------------------------------------------- */

struct sizes {
    int32_t tensor, pipeline, data, expert;
};
struct task {
    struct sizes mesh;
    const char *options;
    const char *load, *save; /* folders; NULL: no */
    const char *output;      /* folder of the hashes */
    int64_t end;             /* steps */
    int64_t middle;
};
/* What everybody outside can see. */
struct seen {
    shoal_step_info info[STEPS];
    uint64_t start, loaded, end, values;
    int64_t parameters;
};
static struct seen seen[GPT_RANKS_MAX];

static shoal_status next_batch(void *user, int64_t step, int64_t micro, shoal_batch *batch)
{
    float *x = user;
    uint64_t state = gpt_mix((uint64_t)step * 1000 + (uint64_t)micro + 5);
    for (int32_t i = 0; i < ROWS * COLUMNS; i++) {
        state = gpt_mix(state + 0x9E3779B97F4A7C15u);
        x[i] = (float)(int64_t)(state >> 40) * 0x1p-23f - 1.0f;
    }
    batch->data[0] = x;
    return SHOAL_OK;
}

/* Everything that a getter gives of every parameter, in one number; a set of what was got changes
 * nothing. */
static bool read_all(struct gpt_seat *seat, bool stepped, uint64_t *hash)
{
    static const char *const states[] = {"exp_avg", "exp_avg_sq"};
    float values[VALUES_MAX];
    const char *name;
    *hash = 0;
    for (int32_t p = 0; (name = shoal_engine_param_name(seat->engine, p)); p++) {
        const struct shoal_param *param = seat->engine->module.param[p];
        const size_t bytes = (size_t)shoal_param_count(param) * sizeof(float);
        for (int32_t s = 0; s < 2; s++) {
            EXPECT(shoal_engine_get_state(seat->engine, name, states[s], values) == SHOAL_OK);
            *hash = shoali_hash64_seeded(values, bytes, *hash);
        }
        if (stepped && !(param->tags & SHOAL_PARAM_FROZEN)) {
            EXPECT(shoal_engine_get_gradient(seat->engine, name, values) == SHOAL_OK);
            *hash = shoali_hash64_seeded(values, bytes, *hash);
        }
        EXPECT(shoal_engine_get_param(seat->engine, name, values) == SHOAL_OK);
        *hash = shoali_hash64_seeded(values, bytes, *hash);
        EXPECT(shoal_engine_set_param(seat->engine, name, values) == SHOAL_OK);
    }
    return true;
}

static bool follow(struct gpt_seat *seat, struct seen *is)
{
    const struct task *task = seat->run->user;
    float x[ROWS * COLUMNS];
    EXPECT(shoal_engine_fingerprint(seat->engine, &is->start) == SHOAL_OK);
    is->parameters = shoal_engine_param_count(seat->engine);
    if (task->load)
        EXPECT(shoal_engine_load_checkpoint(seat->engine, task->load, "half", 0, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_fingerprint(seat->engine, &is->loaded) == SHOAL_OK);
    bool stepped = false;
    for (int64_t s = shoal_engine_global_steps(seat->engine); s < task->end; s++) {
        EXPECT(shoal_engine_train_batch(seat->engine, next_batch, x, &is->info[s]) == SHOAL_OK);
        EXPECT(is->info[s].grad_norm > 0.05); /* it clips, so the norm is in every weight */
        stepped = true;
    }
    EXPECT(read_all(seat, stepped, &is->values));
    EXPECT(shoal_engine_fingerprint(seat->engine, &is->end) == SHOAL_OK);
    if (task->save)
        EXPECT(shoal_engine_save_checkpoint(seat->engine, task->save, "half", NULL) == SHOAL_OK);
    return true;
}

static bool live(struct gpt_seat *seat)
{
    const struct task *task = seat->run->user;
    const struct sizes *size = &task->mesh;
    const bool experts = size->expert > 1;
    struct cutting by = {
        {SHOAL_AXIS_TP, experts ? SHOAL_AXIS_EP : SHOAL_AXIS_PP}, task->middle, seat->group};
    const shoal_layer_spec layers[] = {{&first_type, "first", &by}, {&last_type, "last", &by}};
    const shoal_model model = {
        .name = "blocks", .layers = layers, .layer_count = 2, .inputs = inputs, .input_count = 1};
    struct seen *is = &seen[seat->rank];
    shoal_mesh *mesh = NULL;
    char config[2 * OPTIONS];
    memset(is, 0, sizeof *is);
    snprintf(
        config, sizeof config,
        "{\"train_batch_size\":%d,\"train_micro_batch_size_per_gpu\":1,\"hashes\":%s,"
        "\"steps_per_print\":1000000,\"optimizer\":{\"type\":\"AdamW\",\"params\":{\"lr\":0.01,"
        "\"weight_decay\":0.1},\"no_decay\":[\"1-D\"]},\"gradient_clipping\":0.05,%s}",
        (int)seat->run->micro_batches, task->output ? "true" : "false", task->options);
    EXPECT(shoal_mesh_create(&(shoal_mesh_args){.group = seat->group,
                                                .tensor = size->tensor,
                                                .pipeline = size->pipeline,
                                                .expert = size->expert},
                             &mesh) == SHOAL_OK);
    EXPECT(
        shoali_engine_make(&(shoal_engine_args){.model = &model,
                                                .config_text = config,
                                                .mesh = mesh,
                                                .seed = 11,
                                                .threads = 1,
                                                .accelerator = "cpu",
                                                .output_path = task->output,
                                                .saves = 1},
                           &(struct shoali_engine_making){.admitted = SHOAL_AXIS_TP | by.axis[1]},
                           &seat->engine) == SHOAL_OK);
    const bool done = follow(seat, is);
    if (!done && seat->group)
        shoal_comm_abort(seat->group, SHOAL_EINTERNAL);
    shoal_engine_destroy(seat->engine);
    seat->engine = NULL;
    shoal_mesh_destroy(mesh);
    return done;
}

static struct gpt_seat seats[GPT_RANKS_MAX];

static int32_t ranks_of(const struct sizes *mesh)
{
    return mesh->tensor * mesh->pipeline * mesh->data;
}

static void run(const struct task *task)
{
    gpt_run_ranks((struct gpt_run){.ranks = ranks_of(&task->mesh),
                                   .micro_batches = 4,
                                   .run = live,
                                   .user = (void *)(uintptr_t)task},
                  seats);
}

/* ---- what is the same ------------------------------------------------------------------------ */

static char *path_of(const char *name)
{
    static struct {
        char name[16], path[128];
    } known[16];
    int at = 0;
    while (known[at].name[0] && strcmp(known[at].name, name) != 0)
        at++;
    snprintf(known[at].name, sizeof known[at].name, "%s", name);
    snprintf(known[at].path, sizeof known[at].path, "%s/%s", folder, name);
    return known[at].path;
}

static void assert_same_file(const char *a, const char *b)
{
    char command[512];
    snprintf(command, sizeof command, "diff -rq %s %s >&2", a, b);
    if (system(command) != 0)
        fail_msg("%s and %s differ", a, b);
}

/* Fast runs say how many ranks their sums are over, though here there are no such sums. */
static void forget_tensor_ranks(const char *path)
{
    char command[512];
    snprintf(command, sizeof command, "sed -i 's/,\"tensor_ranks\":[0-9]*//' %s/*", path);
    assert_int_equal(system(command), 0);
}

static void assert_seen(const struct task *task, const struct seen *want)
{
    const struct sizes *mesh = &task->mesh;
    for (int32_t r = 0; r < ranks_of(mesh); r++) {
        const struct seen *got = &seen[r];
        for (int64_t s = 0; s < task->end; s++)
            if (memcmp(&got->info[s].loss, &want->info[s].loss, sizeof(double)) != 0 ||
                memcmp(&got->info[s].grad_norm, &want->info[s].grad_norm, sizeof(double)) != 0)
                if (!task->load || s >= HALF)
                    fail_msg("{%s}, %d x %d x %d, step %d: loss %.17g norm %.17g, not %.17g %.17g",
                             task->options, (int)mesh->tensor, (int)mesh->pipeline, (int)mesh->data,
                             (int)s, got->info[s].loss, got->info[s].grad_norm, want->info[s].loss,
                             want->info[s].grad_norm);
        assert_int_equal(got->start, want->start);
        assert_int_equal(got->values, want->values);
        assert_int_equal(got->end, want->end);
        assert_int_equal(got->parameters, want->parameters);
    }
}

/* A fresh folder below the test's. */
static char *fresh(const char *name)
{
    char command[256];
    char *path = path_of(name);
    snprintf(command, sizeof command, "rm -rf %s", path);
    assert_int_equal(system(command), 0);
    return path;
}

#define ZERO(stage, more) "\"zero_optimization\":{\"stage\":" #stage more "}"
#define EXACT "\"reduction\":\"exact\",\"exact_splits\":{\"tensor\":4},"
#define BF16 "\"bf16\":{\"enabled\":true},"
#define FP16 "\"fp16\":{\"enabled\":true,\"initial_scale_power\":8},"
#define SMALL ",\"reduce_bucket_size\":100,\"allgather_bucket_size\":100"
#define FETCH ",\"stage3_param_persistence_threshold\":0"
#define CPU(what) ",\"offload_" what "\":{\"device\":\"cpu\",\"buffer_count\":4}"

static const struct sizes cuts[] = {
    {.tensor = 2, .pipeline = 2, .data = 1}, {.tensor = 4, .pipeline = 1, .data = 1},
    {.tensor = 1, .pipeline = 4, .data = 1}, {.tensor = 1, .pipeline = 2, .data = 1},
    {.tensor = 2, .pipeline = 4, .data = 1}, {.tensor = 2, .pipeline = 1, .data = 2},
    {.tensor = 2, .pipeline = 2, .data = 2}};
enum { CUTS = sizeof cuts / sizeof cuts[0] };

/* Trains uncut on `data` ranks, then cut on as many: the same bits, hashes and files. */
static void check_options(const char *options, int32_t data, int64_t middle)
{
    struct task task = {
        .mesh = {1, 1, data, 1}, .options = options, .end = STEPS, .middle = middle};
    task.output = fresh("hashes");
    task.save = fresh("saved");
    run(&task);
    const struct seen whole = seen[0];
    for (int32_t c = 0; c < CUTS; c++) {
        struct task cut = task;
        cut.mesh = cuts[c];
        if (cut.mesh.data != data)
            continue;
        cut.output = fresh("cut-hashes");
        cut.save = fresh("cut-saved");
        run(&cut);
        assert_seen(&cut, &whole);
        forget_tensor_ranks(cut.output);
        assert_same_file(path_of("hashes"), cut.output);
        assert_same_file(path_of("saved"), cut.save);
    }
}

static void test_fast(void **state)
{
    static const char *const options[] = {ZERO(0, ""), BF16 ZERO(1, SMALL),
                                          ZERO(2, SMALL ",\"overlap_comm\":false"),
                                          ZERO(3, FETCH SMALL), FP16 ZERO(3, "")};
    (void)state;
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        for (int32_t data = 1; data <= 2; data++)
            check_options(options[i], data, 5);
}

static void test_offload(void **state)
{
    (void)state;
    check_options(BF16 ZERO(2, CPU("optimizer") ",\"sub_group_size\":50"), 2, 5);
    check_options(ZERO(3, FETCH CPU("optimizer") CPU("param") ",\"sub_group_size\":50"), 1, 5);
    check_options(ZERO(3, FETCH CPU("optimizer") CPU("param")), 2, 5);
    check_options(ZERO(3, FETCH ",\"mics_shard_size\":1"), 2, 5);
}

/* In exact mode one run on one rank is the reference of all stages, cuts and data ranks. */
static void test_exact(void **state)
{
    static const char *const options[] = {EXACT ZERO(0, ""), EXACT ZERO(1, SMALL),
                                          EXACT ZERO(2, ""), EXACT ZERO(3, FETCH SMALL)};
    (void)state;
    struct task task = {.mesh = {1, 1, 1, 1}, .options = options[0], .end = STEPS, .middle = 5};
    task.output = fresh("hashes");
    task.save = fresh("saved");
    run(&task);
    const struct seen whole = seen[0];
    for (int32_t c = 0; c < CUTS; c++)
        for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
            struct task cut = task;
            cut.mesh = cuts[c];
            cut.options = options[i];
            cut.output = fresh("cut-hashes");
            cut.save = fresh("cut-saved");
            run(&cut);
            assert_seen(&cut, &whole);
            assert_same_file(path_of("hashes"), cut.output);
            assert_same_file(path_of("saved"), cut.save);
        }
}

/* From every cut to every other, and on. */
static void test_any_cut_loads(void **state)
{
    static const struct sizes all[] = {{1, 1, 1, 1}, {2, 2, 1, 1}, {4, 1, 1, 1},
                                       {1, 4, 1, 1}, {1, 1, 2, 1}, {2, 2, 2, 1}};
    static const char *const options[] = {EXACT BF16 ZERO(0, ""), EXACT BF16 ZERO(3, FETCH)};
    enum { ALL = sizeof all / sizeof all[0] };
    (void)state;
    struct task task = {.mesh = all[0], .options = options[0], .end = STEPS, .middle = 5};
    run(&task);
    const struct seen whole = seen[0];
    for (size_t from = 0; from < ALL; from++) {
        task = (struct task){
            .mesh = all[from], .options = options[from % 2], .end = HALF, .middle = 5};
        task.save = fresh("half");
        run(&task);
        for (size_t to = 0; to < ALL; to++) {
            task.mesh = all[to];
            task.options = options[(from + to / 2) % 2];
            task.load = path_of("half");
            task.save = NULL;
            task.end = STEPS;
            run(&task);
            assert_seen(&task, &whole);
        }
    }
}

/* Experts: 2 x 2 blocks of the expert generator beside parameters that tp alone cuts, or nothing.
 * What a step would sum over experts their layers exchange, so there are no steps here. */
static void test_experts(void **state)
{
    static const struct sizes meshes[] = {{2, 1, 2, 2}, {1, 1, 2, 2}, {2, 1, 4, 2}};
    static const char *const options[] = {ZERO(0, ""), ZERO(1, SMALL), ZERO(2, ""), ZERO(3, FETCH)};
    (void)state;
    struct task task = {.mesh = {1, 1, 1, 1}, .options = options[0], .end = HALF, .middle = 4};
    task.save = fresh("half");
    run(&task);
    const struct task load = {.mesh = task.mesh,
                              .options = options[0],
                              .load = path_of("half"),
                              .save = fresh("again"),
                              .end = HALF,
                              .middle = 4};
    run(&load);
    const struct seen whole = seen[0];
    for (size_t m = 0; m < sizeof meshes / sizeof meshes[0]; m++)
        for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
            task = load;
            task.mesh = meshes[m];
            task.options = options[i];
            task.save = fresh("cut-again");
            run(&task);
            assert_seen(&task, &whole);
            assert_same_file(path_of("again"), task.save);
        }
}

/* ---- what is refused ------------------------------------------------------------------------- */

static bool refused(struct gpt_seat *seat)
{
    struct cutting by = {{SHOAL_AXIS_TP, SHOAL_AXIS_EP}, 4, NULL};
    const shoal_layer_spec layers[] = {{&first_type, "first", &by}, {&last_type, "last", &by}};
    const shoal_model model = {
        .name = "blocks", .layers = layers, .layer_count = 2, .inputs = inputs, .input_count = 1};
    const struct task *task = seat->run->user;
    char config[OPTIONS];
    snprintf(config, sizeof config,
             "{\"train_batch_size\":4,\"optimizer\":{\"type\":\"%s\",\"params\":{\"lr\":0.01}}}",
             task->options);
    shoal_mesh *mesh = NULL;
    EXPECT(shoal_mesh_create(&(shoal_mesh_args){.group = seat->group,
                                                .tensor = task->mesh.tensor,
                                                .expert = task->mesh.expert},
                             &mesh) == SHOAL_OK);
    const shoal_engine_args args = {
        .model = &model, .config_text = config, .mesh = mesh, .threads = 1, .accelerator = "cpu"};
    const struct shoali_engine_making making = {.admitted = task->save ? SHOAL_AXIS_TP : 0};
    EXPECT(shoali_engine_make(&args, &making, &seat->engine) == SHOAL_EUNSUPPORTED);
    seat->engine = NULL;
    if (!strstr(shoal_error_message(), task->load))
        fprintf(stderr, "%s\n", shoal_error_message());
    EXPECT(strstr(shoal_error_message(), task->load) != NULL);
    shoal_mesh_destroy(mesh);
    return true;
}

static void refuse(struct sizes mesh, const char *optimizer, bool admitted, const char *sentence)
{
    const struct task task = {
        .mesh = mesh, .options = optimizer, .load = sentence, .save = admitted ? "" : NULL};
    gpt_run_ranks((struct gpt_run){.ranks = ranks_of(&mesh),
                                   .run = refused,
                                   .user = (void *)(uintptr_t)&task},
                  seats);
}

static void test_refused(void **state)
{
    (void)state;
    refuse((struct sizes){1, 1, 2, 2}, "AdamW", false,
           "parameter first.weight is split along an axis of 2 ranks");
    refuse((struct sizes){2, 1, 1, 1}, "Lamb", true, "this rank holds a shard of `first.weight`");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fast),    cmocka_unit_test(test_exact),
        cmocka_unit_test(test_offload), cmocka_unit_test(test_any_cut_loads),
        cmocka_unit_test(test_experts), cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
