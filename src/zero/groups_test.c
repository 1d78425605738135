/* A group per unit: parameters that all ranks hold, beside those that a pair of ranks holds and
 * those of one rank alone, as experts have it. Four ranks, of which each runs its own pair's and
 * its own layer, against one rank that has the layers of all and runs for each micro-batch those of
 * the rank that would have it. */
#include "zero/test_ranks.h"

enum { RANKS = 4, PAIRS = 2, KINDS = 3 };

static const struct sizes untied = {24, 37, true};

/* A layer of a pair or a rank: it runs for the one that is chosen. */
struct pick {
    struct sizes sizes; /* first: the block's configuration */
    const int32_t *of;
    int32_t self;
};
static struct member {
    struct pick pair[PAIRS], solo[RANKS];
    int32_t chosen_pair, chosen_solo;
    char name[PAIRS + RANKS][8];
} members[RANKS + 1]; /* the last: the rank that has all */

static void forward_pick(const shoal_layer *layer, shoal_tape *tape, shoal_boundary *boundary)
{
    const struct pick *pick = shoal_layer_config(layer);
    if (*pick->of == pick->self)
        forward_block(layer, tape, boundary);
}
static const shoal_layer_type picked = {
    .name = "picked", .declare = declare_block, .forward = forward_pick};

static struct member *member_of(struct seat *seat)
{
    return &members[seat->run->ranks == 1 ? RANKS : seat->rank];
}

static void describe(struct seat *seat)
{
    struct member *member = member_of(seat);
    const bool all = seat->run->ranks == 1;
    const struct sizes *sizes = seat->run->sizes ? seat->run->sizes : &small;
    int32_t count = 0, name = 0;
    member->chosen_pair = seat->rank / 2;
    member->chosen_solo = seat->rank;
    seat->layers[count++] = (shoal_layer_spec){.type = &embed, .name = "embed", .config = sizes};
    seat->layers[count++] = (shoal_layer_spec){.type = &block, .name = "a", .config = sizes};
    for (int32_t p = 0; p < PAIRS; p++) {
        member->pair[p] = (struct pick){*sizes, &member->chosen_pair, p};
        snprintf(member->name[name], sizeof member->name[name], "pair%d", (int)p);
        if (all || p == member->chosen_pair)
            seat->layers[count++] = (shoal_layer_spec){
                .type = &picked, .name = member->name[name], .config = &member->pair[p]};
        name++;
    }
    for (int32_t r = 0; r < RANKS; r++) {
        member->solo[r] = (struct pick){*sizes, &member->chosen_solo, r};
        snprintf(member->name[name], sizeof member->name[name], "solo%d", (int)r);
        if (all || r == member->chosen_solo)
            seat->layers[count++] = (shoal_layer_spec){
                .type = &picked, .name = member->name[name], .config = &member->solo[r]};
        name++;
    }
    seat->layers[count++] = (shoal_layer_spec){.type = &head, .name = "head", .config = sizes};
    seat->inputs[0] =
        (shoal_input_spec){.name = "tokens", .dtype = SHOAL_I32, .sample_shape = shoal_shape_1(T)};
    seat->inputs[1] =
        (shoal_input_spec){.name = "targets", .dtype = SHOAL_I32, .sample_shape = shoal_shape_1(T)};
    seat->model = (shoal_model){.name = "groups",
                                .layers = seat->layers,
                                .layer_count = count,
                                .inputs = seat->inputs,
                                .input_count = 2,
                                .tokens_per_sample = T};
}

/* The pair's; NULL: the rank alone. */
static shoal_group *cuts[RANKS][2];
static int32_t cut_of[RANKS][64];

static bool adjust(struct seat *seat, struct shoali_zero_args *args)
{
    args->max_norm = 0.05;
    if (seat->run->ranks == 1)
        return true;
    const struct shoali_split_args split = {
        .here = SHOAL_HERE, .color = seat->rank / 2, .key = seat->rank % 2, .expected = 2};
    NEED(shoali_comm_split(seat->group, &split, &seat->cut));
    cuts[seat->rank][0] = seat->cut;
    for (int32_t i = 0; i < seat->module.param_count; i++) {
        const char *name = seat->module.param[i]->name;
        cut_of[seat->rank][i] = strncmp(name, "pair", 4) == 0   ? 1
                                : strncmp(name, "solo", 4) == 0 ? 2
                                                                : 0;
    }
    args->cuts = cuts[seat->rank];
    args->cut_count = 2;
    args->cut_of = cut_of[seat->rank];
    return true;
}

static bool train(struct seat *seat, int32_t step)
{
    const int64_t gas = seat->run->micro_batches / seat->run->ranks;
    const int64_t each = seat->run->micro_batches / RANKS; /* of one of the four ranks */
    const double scale = seat->run->dtype == SHOAL_F16 ? 256 : 1;
    struct member *member = member_of(seat);
    struct shoali_zero_verdict verdict;
    struct shoal_tensor *loss;
    for (int64_t i = 0; i < gas; i++) {
        const int64_t micro = seat->rank * gas + i;
        member->chosen_solo = (int32_t)(micro / each);
        member->chosen_pair = member->chosen_solo / 2;
        if (!forward(seat, step, micro, true, &loss))
            return false;
        NEED(shoali_zero_micro_begin(seat->zero, i));
        NEED(shoali_zero_add_loss(seat->zero, loss->data));
        NEED(shoali_tape_backward(seat->tape, &(struct shoali_backward){
                                                  .outputs = &loss,
                                                  .output_count = 1,
                                                  .seed_value = shoali_zero_seed(seat->zero, scale),
                                              }));
        shoali_tape_end(seat->tape);
    }
    NEED(shoali_zero_reduce(seat->zero, scale, false, &verdict));
    NEED(shoali_zero_step(seat->zero, &(struct shoali_zero_now){.lr = 0.01, .t = step + 1}));
    if (seat->rank == 0)
        seat->result->verdict[step] = verdict;
    return true;
}

/* What the rank that has all found, by the parameter's name. */
static struct known {
    char name[32];
    float value[KINDS][1024];
} known[64];
static int32_t known_count;
static int64_t compared[RANKS];

static struct known *find_known(const char *name)
{
    for (int32_t i = 0; i < known_count; i++)
        if (strcmp(known[i].name, name) == 0)
            return &known[i];
    return NULL;
}

/* A state of the parameter that is not per element, whole on each rank that has a part of it. */
static bool look_at_small(struct seat *seat, struct known *is, const struct shoal_param *param,
                          int32_t kind)
{
    float value[1024];
    const int64_t begin = shoali_zero_kind_offset(seat->zero, kind, param->index);
    const int64_t count = shoali_zero_kind_offset(seat->zero, kind, param->index + 1) - begin;
    NEED(shoali_zero_read(seat->zero, kind, begin, count, value));
    if (seat->run->ranks == 1)
        memcpy(is->value[kind], value, (size_t)count * sizeof(float));
    if (memcmp(is->value[kind], value, (size_t)count * sizeof(float)) == 0)
        return true;
    fprintf(stderr, "stage %d, rank %d: %s: kind %d is another one\n", (int)seat->run->stage,
            (int)seat->rank, param->name, (int)kind);
    return false;
}

/* Elements of one parameter in one own range: kept, or compared with what was kept. */
static bool look_at(struct seat *seat, const struct shoal_param *param, int64_t begin, int64_t end)
{
    const int64_t first = begin - param->begin;
    struct known *is = find_known(param->name);
    for (int32_t k = 0; k < KINDS; k++) {
        float value[1024];
        struct shoali_zero_kind kind;
        shoali_zero_get_kind(seat->zero, k, &kind);
        if (kind.of != SHOALI_STATE_ELEMENT) {
            if (!look_at_small(seat, is, param, k))
                return false;
            continue;
        }
        NEED(shoali_zero_read(seat->zero, k, begin, end - begin, value));
        if (seat->run->ranks == 1) {
            memcpy(is->value[k] + first, value, (size_t)(end - begin) * sizeof(float));
            continue;
        }
        for (int64_t e = 0; e < end - begin; e++)
            if (memcmp(&value[e], &is->value[k][first + e], sizeof(float)) != 0) {
                fprintf(stderr, "stage %d, rank %d: %s[%lld], kind %d: %.9g instead of %.9g\n",
                        (int)seat->run->stage, (int)seat->rank, param->name, (long long)(first + e),
                        (int)k, (double)value[e], (double)is->value[k][first + e]);
                return false;
            }
    }
    compared[seat->rank] += end - begin;
    return true;
}

static bool drive(struct seat *seat)
{
    int32_t count;
    if (!open_seat(seat))
        return false;
    for (int32_t step = 0; step < seat->run->steps; step++)
        if (!train(seat, step))
            return false;
    const struct shoali_zero_range *own = shoali_zero_own_ranges(seat->zero, &count);
    for (int32_t i = 0; i < seat->module.param_count; i++) {
        const struct shoal_param *param = seat->module.param[i];
        const int64_t offset = param->begin;
        if (seat->run->ranks == 1)
            snprintf(known[known_count++].name, sizeof known[0].name, "%s", param->name);
        for (int32_t r = 0; r < count; r++) {
            const int64_t end = own[r].begin + own[r].count, stop = offset + param->count;
            const int64_t from = own[r].begin > offset ? own[r].begin : offset;
            const int64_t to = end < stop ? end : stop;
            if (from < to && !look_at(seat, param, from, to))
                return false;
        }
    }
    if (seat->rank == 0)
        seat->result->flat_count = seat->module.element_count;
    return true;
}

static void check(struct run run, int32_t copies)
{
    const int64_t layer = 24 * 24 + 24 + 24 + 5, table = 37 * 24;
    struct run one = {.ranks = 1,
                      .dtype = run.dtype,
                      .exact = run.exact,
                      .micro_batches = run.micro_batches,
                      .steps = run.steps,
                      .sizes = run.sizes,
                      .optimizer = run.optimizer,
                      .adjust = adjust,
                      .describe = describe,
                      .drive = drive};
    int64_t sum = 0;
    known_count = 0;
    go(one, &reference);
    memset(compared, 0, sizeof compared);
    run.ranks = RANKS;
    run.describe = describe;
    run.adjust = adjust;
    run.drive = drive;
    go(run, &other);
    for (int32_t r = 0; r < RANKS; r++)
        sum += compared[r];
    /* each owner's copy of what all hold, of what pairs hold, of what one rank holds */
    const int32_t pair_copies = run.stage == 0 ? 2 : 1;
    const int64_t tables = run.sizes ? 2 * table : table;
    assert_int_equal(sum, (layer + tables) * copies + PAIRS * layer * pair_copies + RANKS * layer);
    for (int32_t s = 0; s < run.steps; s++) {
        assert_memory_equal(&other.verdict[s].norm, &reference.verdict[s].norm, sizeof(double));
        assert_memory_equal(&other.verdict[s].loss, &reference.verdict[s].loss, sizeof(double));
    }
    assert_true(reference.verdict[0].norm > 0.05); /* it clips, so the norm is in every weight */
}

static const struct shoali_zero_fetch fetches[] = {{.max_live = 0},
                                                   {.max_live = INT64_MAX,
                                                    .max_reuse_distance = INT64_MAX,
                                                    .prefetch_bucket = INT64_MAX,
                                                    .granularity = 1000},
                                                   {.max_live = 2500,
                                                    .prefetch_bucket = INT64_MAX,
                                                    .param_persistence = 30,
                                                    .model_persistence = 2000}};

static void test_exact(void **state)
{
    static const shoal_dtype dtypes[] = {SHOAL_F32, SHOAL_BF16, SHOAL_F16};
    (void)state;
    for (size_t d = 0; d < 3; d++)
        for (int32_t stage = 0; stage <= 3; stage++)
            for (int32_t way = 0; way < 3; way++)
                check((struct run){.stage = stage,
                                   .dtype = dtypes[d],
                                   .exact = true,
                                   .micro_batches = 8,
                                   .steps = 2,
                                   .overlap = way > 0,
                                   .bucket = way == 1 ? 300 : 0,
                                   .all_reduce = way == 2,
                                   .fetch = fetches[way]},
                      stage == 0 ? RANKS : 1);
}

/* One micro-batch per rank, one use of each parameter and powers of two: ranks in their order are
 * micro-batches in theirs. */
static void test_fast(void **state)
{
    (void)state;
    for (int32_t stage = 0; stage <= 3; stage++)
        for (int32_t way = 0; way < 3; way++)
            check((struct run){.stage = stage,
                               .sizes = &untied,
                               .dtype = SHOAL_F32,
                               .micro_batches = RANKS,
                               .steps = 2,
                               .overlap = way > 0,
                               .bucket = way == 1 ? 300 : 0,
                               .fetch = fetches[way]},
                  stage == 0 ? RANKS : 1);
}

static void test_offload_and_zeropp(void **state)
{
    (void)state;
    struct run run = {
        .stage = 3, .dtype = SHOAL_BF16, .exact = true, .micro_batches = 8, .steps = 2};
    run.hpz = 2;
    check(run, 1);
    run.hpz = 0;
    run.mics = 2;
    run.overlap = true;
    check(run, 2); /* what all hold is cut over two; pairs are as they were */
    run.mics = 0;
    run.sub_group = 100;
    run.offload = (struct shoali_zero_offload){.optimizer = SHOALI_ZERO_CPU,
                                               .param = SHOALI_ZERO_CPU,
                                               .ratio = 0.5,
                                               .optimizer_buffers = 4};
    check(run, 1);
    run.stage = 2;
    run.offload.param = SHOALI_ZERO_DEVICE;
    check(run, 1);
}

/* Sums over whole tensors are of the ranks that hold the same tensor. */
static void test_whole_tensors(void **state)
{
    static const char *const optimizers[] = {"lamb", "adafactor"};
    (void)state;
    for (int32_t o = 0; o < 2; o++)
        for (int32_t stage = 0; stage <= 4; stage++)
            check((struct run){.stage = stage < 4 ? stage : 3,
                               .dtype = SHOAL_BF16,
                               .exact = true,
                               .micro_batches = 8,
                               .steps = 3,
                               .optimizer = optimizers[o],
                               .bucket = 300,
                               .mics = stage < 4 ? 0 : 2,
                               .fetch = fetches[stage % 3]},
                  stage == 0   ? RANKS
                  : stage == 4 ? 2
                               : 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_whole_tensors),
        cmocka_unit_test(test_fast),
        cmocka_unit_test(test_offload_and_zeropp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
