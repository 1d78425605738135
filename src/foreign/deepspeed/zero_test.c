/* Checkpoints of DeepSpeed's ZeRO stages, made here with its layouts, read number by number.
 * Parameters that are not trained are in model states: whole (stages 1 and 2) or each rank's part
 * (stage 3), as _get_zero_frozen_param_attributes gives them; in a universal checkpoint they are
 * files without states. Then files that do not fit each other. */
#include "foreign/deepspeed/deepspeed.h"
#include "foreign/torch_write.h"

#include "base/test_cmocka.h"
#include "base/test_folder.h"
enum { PARAMS = 4, TRAINED = 2, KINDS = 3, ELEMENTS_MAX = 16, TENSORS_MAX = 16, FROZEN = TRAINED };

/* The first TRAINED are trained. On 3 ranks the last rank has one element of `f`, and none of
 * `g`. */
static const struct {
    const char *name;
    shoal_shape shape;
} params[PARAMS] = {{"a", {1, {5}}}, {"b", {2, {2, 3}}}, {"f", {1, {7}}}, {"g", {1, {2}}}};
static const char *const kinds[KINDS] = {"master", "exp_avg", "exp_avg_sq"};

static int64_t count_of(int32_t param)
{
    return shoal_shape_count(&params[param].shape);
}

static float number_of(int32_t param, int32_t kind, int64_t i)
{
    return (float)(1000 * (param + 1) + 100 * kind + i);
}

/* ---- an archive ------------------------------------------------------------------------------ */

struct archive {
    struct shoali_pickling pickle;
    struct tensor {
        float numbers[2 * ELEMENTS_MAX];
        int64_t count;
    } tensor[TENSORS_MAX];
    int32_t count;
};

static void begin(struct archive *archive)
{
    *archive = (struct archive){.count = 0};
    shoali_pickling_begin(&archive->pickle);
    shoali_pickling_dict(&archive->pickle);
}

static void put_tensor(struct archive *archive, const shoal_shape *shape, const float *numbers)
{
    struct tensor *tensor = &archive->tensor[archive->count++];
    tensor->count = shoal_shape_count(shape);
    memcpy(tensor->numbers, numbers, (size_t)tensor->count * sizeof(float));
    shoali_pickling_tensor(&archive->pickle, SHOAL_F32, shape);
}

static void put_vector(struct archive *archive, const float *numbers, int64_t count)
{
    put_tensor(archive, &(shoal_shape){1, {count}}, numbers);
}

static void finish(struct archive *archive, const char *path)
{
    struct shoali_torch_writer writer = {0};
    char whole[256];
    snprintf(whole, sizeof whole, "%s/%s", folder, path);
    shoali_pickling_end(&archive->pickle);
    ok(shoali_torch_writer_open(&writer, whole, &archive->pickle));
    for (int32_t t = 0; t < archive->count; t++) {
        const int64_t bytes = archive->tensor[t].count * (int64_t)sizeof(float);
        ok(shoali_torch_writer_begin(&writer, bytes));
        ok(shoali_torch_writer_put(&writer, archive->tensor[t].numbers, bytes));
    }
    ok(shoali_torch_writer_finish(&writer));
    shoali_torch_writer_close(&writer);
    shoali_pickling_fini(&archive->pickle);
}

/* ---- DeepSpeed's files ----------------------------------------------------------------------- */

struct layout {
    int32_t stage, ranks;
    int32_t missing; /* a frozen parameter that is not there; 0: none */
    int32_t cut;     /* a rank whose part of `f` is an element too short; -1: none */
    bool no_shapes;  /* of what is trained */
    /* wrong in the optimizer's file of the last rank */
    int32_t more_ranks, other_stage, more_groups, more_elements;
    bool no_vector;
    int32_t padding;  /* not wrong: elements behind `a` in the vectors, one less behind `b` */
    bool small_state; /* not wrong: a state of one number, which is no kind */
};

static void put_shapes(struct archive *archive, const char *key, int32_t first, int32_t end)
{
    shoali_pickling_text(&archive->pickle, key);
    shoali_pickling_dict(&archive->pickle);
    for (int32_t p = first; p < end; p++) {
        shoali_pickling_text(&archive->pickle, params[p].name);
        shoali_pickling_size(&archive->pickle, &params[p].shape);
        shoali_pickling_item(&archive->pickle);
    }
    shoali_pickling_item(&archive->pickle);
}

static int64_t part_of(const struct layout *layout, int32_t param)
{
    return (count_of(param) + layout->ranks - 1) / layout->ranks;
}

/* A rank's part, padded with zeros; the number of elements. */
static int64_t cut_part(const struct layout *layout, int32_t rank, int32_t param, int32_t kind,
                        float *out)
{
    const int64_t part = part_of(layout, param);
    for (int64_t i = 0; i < part; i++)
        out[i] = rank * part + i < count_of(param) ? number_of(param, kind, rank * part + i) : 0;
    return part;
}

static void write_model(const struct layout *layout, int32_t rank)
{
    struct archive archive;
    char path[96];
    float numbers[ELEMENTS_MAX];
    begin(&archive);
    if (!layout->no_shapes)
        put_shapes(&archive, "param_shapes", 0, TRAINED);
    put_shapes(&archive, "frozen_param_shapes", FROZEN, PARAMS);
    shoali_pickling_text(&archive.pickle, "frozen_param_fragments");
    shoali_pickling_dict(&archive.pickle);
    for (int32_t p = FROZEN; p < PARAMS; p++) {
        if (p == layout->missing)
            continue;
        shoali_pickling_text(&archive.pickle, params[p].name);
        if (layout->stage == 3) {
            const int64_t count = cut_part(layout, rank, p, 0, numbers);
            put_vector(&archive, numbers, count - (p == FROZEN && layout->cut == rank));
        } else {
            for (int64_t i = 0; i < count_of(p); i++)
                numbers[i] = number_of(p, 0, i);
            put_tensor(&archive, &params[p].shape, numbers);
        }
        shoali_pickling_item(&archive.pickle);
    }
    shoali_pickling_item(&archive.pickle);
    snprintf(path, sizeof path, "t/%s%d_mp_rank_00_model_states.pt",
             layout->stage == 3 ? "zero_pp_rank_" : "", (int)rank);
    finish(&archive, layout->stage == 3 ? path : "t/mp_rank_00_model_states.pt");
}

static int32_t padding_of(const struct layout *layout, int32_t param)
{
    return layout->padding > 0 ? layout->padding - param : 0;
}

/* The rank's vector of one kind of what is trained. */
static int64_t fill_vector(const struct layout *layout, int32_t rank, int32_t kind, float *out)
{
    float all[2 * ELEMENTS_MAX] = {0};
    int64_t count = 0;
    for (int32_t p = 0; p < TRAINED && layout->stage == 3; p++)
        count += cut_part(layout, rank, p, kind, out + count);
    if (layout->stage == 3)
        return count;
    for (int32_t p = 0; p < TRAINED; p++) {
        for (int64_t i = 0; i < count_of(p); i++)
            all[count + i] = number_of(p, kind, i);
        count += count_of(p) + padding_of(layout, p);
    }
    const int64_t part = (count + layout->ranks - 1) / layout->ranks;
    memcpy(out, all + rank * part, (size_t)part * sizeof(float));
    return part;
}

/* [[PADDING, ...]]: of one group. */
static void put_paddings(const struct layout *layout, struct shoali_pickling *pickle)
{
    shoali_pickling_text(pickle, "param_alignment_paddings");
    shoali_pickling_list(pickle);
    shoali_pickling_list(pickle);
    for (int32_t p = 0; p < TRAINED; p++) {
        shoali_pickling_int(pickle, padding_of(layout, p));
        shoali_pickling_append(pickle);
    }
    shoali_pickling_append(pickle);
    shoali_pickling_item(pickle);
}

static void put_vectors(const struct layout *layout, int32_t rank, struct archive *archive)
{
    struct shoali_pickling *pickle = &archive->pickle;
    const bool whole = layout->stage == 3;
    float numbers[2 * ELEMENTS_MAX] = {0};
    shoali_pickling_text(pickle, whole ? "fp32_flat_groups" : "single_partition_of_fp32_groups");
    shoali_pickling_list(pickle);
    int64_t count = fill_vector(layout, rank, 0, numbers);
    const bool last = rank == layout->ranks - 1;
    for (int32_t g = 0; g < (last ? 1 + layout->more_groups : 1); g++) {
        if (last && layout->no_vector)
            shoali_pickling_none(pickle);
        else
            put_vector(archive, numbers, count + (last ? layout->more_elements : 0));
        shoali_pickling_append(pickle);
    }
    shoali_pickling_item(pickle);
    shoali_pickling_text(pickle, whole ? "optimizer_state_dict" : "base_optimizer_state");
    shoali_pickling_dict(pickle);
    shoali_pickling_text(pickle, "state");
    shoali_pickling_dict(pickle);
    shoali_pickling_int(pickle, 0);
    shoali_pickling_dict(pickle);
    shoali_pickling_int_item(pickle, "step", 3);
    if (layout->small_state) {
        shoali_pickling_text(pickle, "small");
        put_vector(archive, numbers, count - 1);
        shoali_pickling_item(pickle);
    }
    for (int32_t k = 1; k < KINDS; k++) {
        count = fill_vector(layout, rank, k, numbers);
        shoali_pickling_text(pickle, kinds[k]);
        put_vector(archive, numbers, count);
        shoali_pickling_item(pickle);
    }
    shoali_pickling_item(pickle);
    shoali_pickling_item(pickle);
    shoali_pickling_item(pickle);
}

static void write_optimizer(const struct layout *layout, int32_t rank)
{
    struct archive archive;
    char path[96];
    const bool last = rank == layout->ranks - 1;
    const int32_t stage = last && layout->other_stage ? layout->other_stage : layout->stage;
    begin(&archive);
    shoali_pickling_text(&archive.pickle, "optimizer_state_dict");
    shoali_pickling_dict(&archive.pickle);
    shoali_pickling_int_item(&archive.pickle, "zero_stage", stage);
    shoali_pickling_int_item(&archive.pickle, "partition_count",
                             layout->ranks + (last ? layout->more_ranks : 0));
    if (layout->padding > 0)
        put_paddings(layout, &archive.pickle);
    put_vectors(layout, rank, &archive);
    shoali_pickling_item(&archive.pickle);
    snprintf(path, sizeof path, "t/zero_pp_rank_%d_mp_rank_00_optim_states.pt", (int)rank);
    finish(&archive, path);
}

/* Without what another layout left. */
static void begin_folder(const char *latest)
{
    void *path;
    assert_int_equal(remove_folder(NULL), 0);
    assert_int_equal(make_folder(&path), 0);
    put_in_folder(latest, "t");
    put_in_folder("/t/note", "");
}

static void write_checkpoint(const struct layout *layout)
{
    begin_folder("/latest");
    for (int32_t r = 0; r < layout->ranks; r++) {
        write_optimizer(layout, r);
        if (r == 0 || layout->stage == 3)
            write_model(layout, r);
    }
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Every element of every kind; states of what is frozen are zeros. */
static void check_numbers(void)
{
    struct shoali_deepspeed checkpoint;
    float numbers[ELEMENTS_MAX];
    ok(shoali_deepspeed_open(folder, NULL, &checkpoint));
    assert_int_equal(checkpoint.param_count, PARAMS);
    assert_int_equal(checkpoint.kind_count, KINDS);
    for (int32_t p = 0; p < PARAMS; p++)
        for (int32_t k = 0; k < KINDS; k++) {
            const int32_t param = shoali_deepspeed_find(&checkpoint, params[p].name);
            const int32_t kind = shoali_deepspeed_find_kind(&checkpoint, kinds[k]);
            assert_true(param >= 0 && kind >= 0);
            assert_int_equal(checkpoint.param[param].frozen, p >= FROZEN);
            ok(shoali_deepspeed_read(&checkpoint, param, kind, 0, count_of(p), numbers));
            for (int64_t i = 0; i < count_of(p); i++) {
                const float want = p >= FROZEN && k > 0 ? 0 : number_of(p, k, i);
                if (numbers[i] != want)
                    fail_msg("%s of %s [%d]: %g, not %g", kinds[k], params[p].name, (int)i,
                             (double)numbers[i], (double)want);
            }
        }
    shoali_deepspeed_close(&checkpoint);
}

static void test_whole(void **state)
{
    (void)state;
    for (int32_t stage = 1; stage <= 2; stage++)
        for (int32_t ranks = 1; ranks <= 3; ranks++) {
            write_checkpoint(&(struct layout){.stage = stage, .ranks = ranks, .cut = -1});
            check_numbers();
        }
}

static void test_padding(void **state)
{
    (void)state;
    for (int32_t ranks = 1; ranks <= 3; ranks++) {
        write_checkpoint(&(struct layout){.stage = 2, .ranks = ranks, .cut = -1, .padding = 3});
        check_numbers();
    }
}

static void test_parts(void **state)
{
    (void)state;
    for (int32_t ranks = 1; ranks <= 3; ranks++) {
        write_checkpoint(&(struct layout){.stage = 3, .ranks = ranks, .cut = -1});
        check_numbers();
    }
}

static void refuse(const struct layout *layout, const char *sentence)
{
    struct shoali_deepspeed checkpoint;
    write_checkpoint(layout);
    assert_int_equal(shoali_deepspeed_open(folder, NULL, &checkpoint), SHOAL_EINVAL);
    if (!strstr(shoal_error_message(), sentence))
        fail_msg("\"%s\", not \"%s\"", shoal_error_message(), sentence);
    shoali_deepspeed_close(&checkpoint);
}

static void test_damage(void **state)
{
    static const char missing[] = "the frozen parameter `f` is missing";
    static const char few[] = "its files have 6 of the 7 elements of master of `f`";
    (void)state;
    refuse(&(struct layout){.stage = 2, .ranks = 2, .missing = FROZEN, .cut = -1}, missing);
    refuse(&(struct layout){.stage = 3, .ranks = 2, .missing = FROZEN, .cut = -1}, missing);
    refuse(&(struct layout){.stage = 3, .ranks = 1, .cut = 0}, few);
    refuse(&(struct layout){.stage = 2, .ranks = 1, .cut = -1, .no_shapes = true},
           "/mp_rank_00_model_states.pt: it does not have param_shapes");
}

static void test_misfits(void **state)
{
    (void)state;
    refuse(&(struct layout){.stage = 2, .ranks = 2, .cut = -1, .more_ranks = 1},
           "it is one of 3 files, but 2 exist");
    refuse(&(struct layout){.stage = 2, .ranks = 2, .cut = -1, .other_stage = 1},
           "it is of stage 1, the file of rank 0 of stage 2");
    refuse(&(struct layout){.stage = 2, .ranks = 2, .cut = -1, .other_stage = 4},
           "its optimizer states are not of ZeRO stage 1, 2 or 3");
    refuse(&(struct layout){.stage = 1, .ranks = 2, .cut = -1, .more_groups = 1},
           "it has fp32 weights of 2 groups, but param_shapes of 1");
    refuse(&(struct layout){.stage = 2, .ranks = 2, .cut = -1, .no_vector = true},
           "its fp32 weights of group 0 are not a tensor");
    refuse(&(struct layout){.stage = 3, .ranks = 2, .cut = -1, .no_vector = true},
           "its fp32 weights of sub-group 0 are not a tensor");
    refuse(&(struct layout){.stage = 3, .ranks = 2, .cut = -1, .more_elements = 1},
           "its vectors have 7 elements, but param_shapes needs 6 of rank 1");
    refuse(&(struct layout){.stage = 3, .ranks = 2, .cut = -1, .more_elements = -1},
           "its vectors have 5 elements, but param_shapes needs 6 of rank 1");
    refuse(&(struct layout){.stage = 2, .ranks = 2, .cut = -1, .more_elements = -2},
           "its files have 5 of the 6 elements of master of `b`");
}

static void test_small_state(void **state)
{
    (void)state;
    for (int32_t stage = 1; stage <= 3; stage++) {
        write_checkpoint(
            &(struct layout){.stage = stage, .ranks = 2, .cut = -1, .small_state = true});
        check_numbers();
    }
}

/* A folder for each parameter, in which what is frozen has its weights alone. */
static void test_universal(void **state)
{
    float numbers[ELEMENTS_MAX];
    char path[96];
    (void)state;
    begin_folder("/latest_universal");
    write_model(&(struct layout){.stage = 2, .ranks = 1, .cut = -1}, 0);
    for (int32_t p = 0; p < PARAMS; p++)
        for (int32_t k = 0; k < (p >= FROZEN ? 1 : KINDS); k++) {
            struct archive archive = {.count = 0};
            for (int64_t i = 0; i < count_of(p); i++)
                numbers[i] = number_of(p, k, i);
            snprintf(path, sizeof path, "/t/zero/%s/note.txt", params[p].name);
            put_in_folder(path, "");
            begin(&archive);
            shoali_pickling_text(&archive.pickle, "param");
            put_tensor(&archive, &params[p].shape, numbers);
            shoali_pickling_item(&archive.pickle);
            snprintf(path, sizeof path, "t/zero/%s/%s.pt", params[p].name, k ? kinds[k] : "fp32");
            finish(&archive, path);
        }
    check_numbers();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_whole, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_padding, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_parts, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_damage, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_misfits, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_small_state, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_universal, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
