/* test_pipeline - engines of several layouts, one after the other, and what everybody outside can
 * see of them: for the tests that want the bits of one rank from every pipeline.
 *
 * A cell says which layout, options and model; run() makes its ranks as threads, each of which
 * opens a mesh and an engine, evaluates, trains, reads everything, evaluates again and saves.
 * check_cells() compares cells with one rank: losses, norms, values, fingerprints, hashes and
 * files.
 */
#ifndef SHOALI_ENGINE_TEST_PIPELINE_H
#define SHOALI_ENGINE_TEST_PIPELINE_H

#include "base/test_folder.h"
#include "engine/test_gpt.h"

enum { STEPS = 3, OPTIONS = 1024, VALUES_MAX = 4096, CELLS = 24 };

/* ---- a run ----------------------------------------------------------------------------------- */

/* Zero is one stage, 1F1B, parameters. */
struct cell {
    int32_t pipeline, virtual_stages, group, data;
    const char *schedule, *partition;
    const char *options; /* members of ds_config.json */
    const char *recompute, *optimizer;
    int32_t first_layers, last_layers;
    bool untied, inference, backwards; /* backwards: pp varies fastest */
    bool no_overlap_p2p;
    double dropout;
    int64_t layers, micro_batches, samples;
    int64_t end;             /* steps */
    const char *load, *save; /* folders; NULL: no */
    const char *output;      /* folder of the hashes */
    const char *accelerator;
    const shoal_model *model;                                 /* NULL: the GPT */
    bool (*follow)(struct gpt_seat *seat, struct cell *cell); /* NULL: train and read */
    const char *sentence;                                     /* of a refusal */
};
/* What everybody outside can see. */
struct seen {
    shoal_step_info info[STEPS];
    uint64_t start, loaded, end, values;
    double loss[2]; /* of evaluations */
    shoal_memory_info first, last;
};
static struct seen seen[GPT_RANKS_MAX];
static struct gpt_seat seats[GPT_RANKS_MAX];

/* Everything that a getter gives of every parameter, in one number. */
static inline bool read_all(struct gpt_seat *seat, bool stepped, uint64_t *hash)
{
    static const char *const states[] = {"exp_avg", "exp_avg_sq"};
    float values[VALUES_MAX];
    const char *name;
    *hash = 0;
    for (int32_t p = 0; (name = shoal_engine_param_name(seat->engine, p)); p++) {
        const struct shoal_param *param = seat->engine->module.param[p];
        const size_t bytes = (size_t)shoal_param_count(param) * sizeof(float);
        EXPECT(shoal_param_count(param) <= VALUES_MAX);
        for (int32_t s = 0; s < 2; s++)
            if (shoal_engine_get_state(seat->engine, name, states[s], values) == SHOAL_OK)
                *hash = shoali_hash64_seeded(values, bytes, *hash);
        if (stepped) {
            EXPECT(shoal_engine_get_gradient(seat->engine, name, values) == SHOAL_OK);
            *hash = shoali_hash64_seeded(values, bytes, *hash);
        }
        EXPECT(shoal_engine_get_param(seat->engine, name, values) == SHOAL_OK);
        *hash = shoali_hash64_seeded(values, bytes, *hash);
    }
    return true;
}

static inline bool follow(struct gpt_seat *seat, const struct cell *cell)
{
    struct seen *is = &seen[seat->rank];
    EXPECT(shoal_engine_fingerprint(seat->engine, &is->start) == SHOAL_OK);
    if (cell->load)
        EXPECT(shoal_engine_load_checkpoint(seat->engine, cell->load, "half", 0, NULL) == SHOAL_OK);
    EXPECT(shoal_engine_fingerprint(seat->engine, &is->loaded) == SHOAL_OK);
    EXPECT(shoal_engine_eval_batch(seat->engine, gpt_next, seat, 5, &is->loss[0]) == SHOAL_OK);
    shoal_engine_get_memory_info(seat->engine, &is->first);
    bool stepped = false;
    for (int64_t s = shoal_engine_global_steps(seat->engine); s < cell->end; s++) {
        EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, &is->info[s]) == SHOAL_OK);
        stepped = true;
    }
    shoal_engine_get_memory_info(seat->engine, &is->last);
    EXPECT(read_all(seat, stepped, &is->values));
    EXPECT(shoal_engine_eval_batch(seat->engine, gpt_next, seat, 5, &is->loss[1]) == SHOAL_OK);
    EXPECT(shoal_engine_fingerprint(seat->engine, &is->end) == SHOAL_OK);
    if (cell->save)
        EXPECT(shoal_engine_save_checkpoint(seat->engine, cell->save, "half", NULL) == SHOAL_OK);
    return true;
}

static inline shoal_engine_args cell_args(const struct gpt_seat *seat, const struct cell *cell,
                                          const char *config)
{
    return (shoal_engine_args){.model = cell->model ? cell->model : seat->model,
                               .config_text = config,
                               .seed = 11,
                               .threads = 1,
                               .accelerator = cell->accelerator,
                               .output_path = cell->output,
                               .recompute_granularity = cell->recompute,
                               .inference = cell->inference,
                               .saves = 1,
                               .pipeline_schedule = cell->schedule,
                               .virtual_stages = cell->virtual_stages,
                               .micro_batch_group = cell->group,
                               .partition_method = cell->partition,
                               .first_stage_layers = cell->first_layers,
                               .last_stage_layers = cell->last_layers,
                               .no_overlap_p2p = cell->no_overlap_p2p};
}

static inline bool live(struct gpt_seat *seat)
{
    struct cell *cell = seat->run->user;
    shoal_mesh *mesh = NULL;
    char config[2 * OPTIONS];
    memset(&seen[seat->rank], 0, sizeof seen[0]);
    gpt_config_text(seat->run, config, sizeof config);
    if (!cell->model)
        EXPECT(gpt_make_model(seat->run, &seat->model) == SHOAL_OK);
    EXPECT(shoal_mesh_create(&(shoal_mesh_args){.group = seat->group,
                                                .pipeline = cell->pipeline,
                                                .order = cell->backwards ? "pp-dp" : NULL},
                             &mesh) == SHOAL_OK);
    shoal_engine_args args = cell_args(seat, cell, config);
    args.mesh = mesh;
    const shoal_status made = shoal_engine_create(&args, &seat->engine);
    bool done;
    if (cell->sentence) {
        done = made < 0 && strstr(shoal_error_message(), cell->sentence) != NULL;
        if (!done)
            fprintf(stderr, "not \"%s\" but \"%s\"\n", cell->sentence, shoal_error_message());
    } else {
        EXPECT(made == SHOAL_OK);
        EXPECT(!cell->no_overlap_p2p || !seat->engine->stages.transfers.beside);
        done = cell->follow ? cell->follow(seat, cell) : follow(seat, cell);
        if (!done && seat->group)
            shoal_comm_abort(seat->group, SHOAL_EINTERNAL);
    }
    shoal_engine_destroy(seat->engine);
    seat->engine = NULL;
    shoal_mesh_destroy(mesh);
    return done;
}

static inline int32_t ranks_of(const struct cell *cell)
{
    return cell->pipeline * cell->data;
}

static inline void run(struct cell *cell)
{
    cell->pipeline = cell->pipeline ? cell->pipeline : 1;
    cell->data = cell->data ? cell->data : 1;
    gpt_run_ranks((struct gpt_run){.ranks = ranks_of(cell),
                                   .micro_batches = cell->micro_batches ? cell->micro_batches : 4,
                                   .samples = cell->samples,
                                   .layers = cell->layers ? cell->layers : 4,
                                   .options = cell->options,
                                   .optimizer = cell->optimizer,
                                   .dropout = cell->dropout,
                                   .untied = cell->untied,
                                   .run = live,
                                   .user = cell},
                  seats);
}

/* ---- what is the same ------------------------------------------------------------------------ */

static inline char *path_of(const char *name)
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

static inline char *fresh(const char *name)
{
    char command[256];
    char *path = path_of(name);
    snprintf(command, sizeof command, "rm -rf %s", path);
    assert_int_equal(system(command), 0);
    return path;
}

static inline void assert_same_file(const char *a, const char *b)
{
    char command[512];
    snprintf(command, sizeof command, "diff -rq %s %s >&2", a, b);
    if (system(command) != 0)
        fail_msg("%s and %s differ", a, b);
}

static inline const char *name_of(const struct cell *cell)
{
    static char text[512];
    snprintf(text, sizeof text, "pp %d dp %d v %d group %d %s %s {%s}%s%s", (int)cell->pipeline,
             (int)cell->data, (int)cell->virtual_stages, (int)cell->group,
             cell->schedule ? cell->schedule : "-", cell->partition ? cell->partition : "-",
             cell->options ? cell->options : "", cell->untied ? " untied" : "",
             cell->recompute ? cell->recompute : "");
    return text;
}

static inline void assert_seen(const struct cell *cell, const struct seen *want)
{
    for (int32_t r = 0; r < ranks_of(cell); r++) {
        const struct seen *got = &seen[r];
        for (int64_t s = 0; s < cell->end; s++)
            if ((memcmp(&got->info[s].loss, &want->info[s].loss, sizeof(double)) != 0 ||
                 memcmp(&got->info[s].grad_norm, &want->info[s].grad_norm, sizeof(double)) != 0) &&
                (!cell->load || s >= 1))
                fail_msg("%s: rank %d, step %d: loss %.17g norm %.17g, not %.17g %.17g",
                         name_of(cell), (int)r, (int)s, got->info[s].loss, got->info[s].grad_norm,
                         want->info[s].loss, want->info[s].grad_norm);
        if (got->start != want->start || got->values != want->values || got->end != want->end ||
            memcmp(&got->loss[1], &want->loss[1], sizeof want->loss[1]) != 0)
            fail_msg("%s: rank %d: start %d values %d end %d evaluation %.17g not %.17g",
                     name_of(cell), (int)r, got->start == want->start, got->values == want->values,
                     got->end == want->end, got->loss[1], want->loss[1]);
    }
}

#define ZERO(stage, more) "\"zero_optimization\":{\"stage\":" #stage more "}"
#define EXACT "\"gradient_clipping\":0.5,\"reduction\":\"exact\","
#define HASHES "\"hashes\":true,"
#define BF16 "\"bf16\":{\"enabled\":true},"
#define FP16 "\"fp16\":{\"enabled\":true,\"initial_scale_power\":8},"
#define SMALL ",\"reduce_bucket_size\":1000,\"allgather_bucket_size\":1000"
#define FETCH ",\"stage3_param_persistence_threshold\":0"
#define OVERLAP ",\"overlap_comm\":true"
#define CPU(what) ",\"offload_" what "\":{\"device\":\"cpu\",\"buffer_count\":4}"

/* One rank, then each cell: the same bits, hashes and files. */
static inline void check_cells(struct cell one, const struct cell *cells, size_t count)
{
    one.end = STEPS;
    one.output = fresh("hashes");
    one.save = fresh("saved");
    run(&one);
    const struct seen want = seen[0];
    assert_true(want.info[0].grad_norm > 0.5); /* it clips, so the norm is in every weight */
    for (size_t i = 0; i < count; i++) {
        struct cell cell = one;
        cell.pipeline = cells[i].pipeline;
        cell.data = cells[i].data;
        cell.virtual_stages = cells[i].virtual_stages;
        cell.group = cells[i].group;
        cell.schedule = cells[i].schedule;
        cell.partition = cells[i].partition;
        cell.first_layers = cells[i].first_layers;
        cell.last_layers = cells[i].last_layers;
        cell.backwards = cells[i].backwards;
        cell.options = cells[i].options ? cells[i].options : one.options;
        cell.recompute = cells[i].recompute;
        cell.output = fresh("cell-hashes");
        cell.save = fresh("cell-saved");
        run(&cell);
        assert_seen(&cell, &want);
        assert_same_file(path_of("hashes"), cell.output);
        assert_same_file(path_of("saved"), cell.save);
    }
}

#endif
