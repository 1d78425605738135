/* All that reads or writes JSON, when jansson gets no memory: each subject is done once with the
 * 1st, 2nd, ... allocation failing, alone and with all later ones, and must give an error or what
 * it gives undisturbed. Our own allocations fail in base.json_test and the tests of each folder. */
#include "base/test_folder.h"
#include "checkpoint/checkpoint_internal.h"
#include "engine/engine.h"
#include "engine/test_gpt.h"
#include "monitor/hashes.h"
#include "pretrain/pretrain.h"

#include <jansson.h>
#include <math.h>

/* ---- an allocator that fails ---- */

enum { ALL_MAX = 1000 }; /* allocations of a subject that are failed one by one */

static int64_t allocations, failing; /* failing: which one, from 0; -1 none */
static bool later_too;

static void *failing_malloc(size_t bytes)
{
    const int64_t number = allocations++;
    const bool fails = failing >= 0 && (number == failing || (later_too && number > failing));
    return fails ? NULL : malloc(bytes);
}

/* ---- subjects: append what came out ---- */

static shoal_status read_config(struct shoali_str *out)
{
    static const char text[] =
        "{\"train_batch_size\": 12, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": "
        "0.00123, \"betas\": [0.9, 0.95]}}, \"csv_monitor\": {\"enabled\": true, \"job_name\": "
        "\"a name that is longer than thirty-two bytes, \\u20ac\"}, \"hashes\": false}";
    shoal_status status;
    struct shoali_ds_config config;
    char *again = NULL;
    SHOAL_TRY(status, shoali_ds_config_init(&config, NULL, text), done);
    status = shoali_json_write(shoali_json_root(config.document), JSON_COMPACT, "it", &again);
    shoali_str_append(out, "%s", again ? again : "");
    shoali_ds_config_fini(&config);
done:
    free(again);
    return status;
}

static shoal_status model_config(struct shoali_str *out)
{
    shoal_status status;
    char *text = NULL, *again = NULL;
    shoal_model_config *config = NULL, *read = NULL;
    SHOAL_TRY(status, shoal_model_config_create("gpt2-1558m", &config), done);
    SHOAL_TRY(status, shoal_model_config_set(config, "norm-epsilon", 1.2345678901234567e-5), done);
    SHOAL_TRY(status, shoal_model_config_to_json(config, &text), done);
    SHOAL_TRY(status, shoal_model_config_from_json(text, &read), done);
    SHOAL_TRY(status, shoal_model_config_to_json(read, &again), done);
    shoali_str_append(out, "%s %s", text, again);
done:
    shoal_model_config_destroy(config);
    shoal_model_config_destroy(read);
    free(text);
    free(again);
    return status;
}

static shoal_status manifest(struct shoali_str *out)
{
    static const char *const names[] = {"transformer.wte.weight", "b"};
    static const shoal_shape shapes[] = {{.ndim = 2, .dim = {300, 40}}, {.ndim = 1, .dim = {500}}};
    static const struct shoali_checkpoint_alias aliases[] = {{"head", "b"}, {"tail", "b"}};
    static const struct shoali_checkpoint_kind kind = {.name = "model", .dtype = SHOAL_F32};
    const struct shoali_checkpoint_args args = {.dir = "dir",
                                                .names = names,
                                                .shapes = shapes,
                                                .tensor_count = 2,
                                                .aliases = aliases,
                                                .alias_count = 2,
                                                .kinds = &kind,
                                                .kind_count = 1,
                                                .engine_json = "{\"steps\": [1, 2.5]}",
                                                .client_json = "{\"a\": {\"b\": \"c\"}}",
                                                .step = 7};
    shoal_status status;
    struct shoali_arena arena;
    struct shoali_checkpoint_plan plan = {0}, read = {0};
    struct shoali_checkpoint_info info = {0};
    const char *found[2];
    char dir[sizeof folder + 8], *text = NULL;
    json_t *root = NULL;
    shoali_arena_init(&arena);
    SHOAL_TRY(status, shoali_checkpoint_plan_make(&args, &kind, &arena, &plan), done);
    SHOAL_TRY(status, shoali_manifest_format(&args, &plan, &text), done);
    put_in_folder("/m/t/manifest.json", text);
    snprintf(dir, sizeof dir, "%s/m", folder);
    SHOAL_TRY(status, shoali_manifest_read(dir, "t", &root), done);
    SHOAL_TRY(status, shoali_manifest_match(root, &args, found), done);
    SHOAL_TRY(status, shoali_manifest_plan(root, &kind, &arena, &read), done);
    SHOAL_TRY(status, shoali_manifest_info(root, &info), done);
    shoali_str_append(out, "%s %s %s %s %s %lld", text, found[0], read.file[0].name,
                      info.engine_json, info.client_json, (long long)info.step);
done:
    free(text);
    json_decref(root);
    shoali_checkpoint_info_fini(&info);
    shoali_arena_fini(&arena);
    return status;
}

static shoal_status safetensors(struct shoali_str *out)
{
    static const char text[] =
        "\274\0\0\0\0\0\0\0{\"__metadata__\":{\"format\":\"pt\"},\"a long name of a tensor, of "
        "more than 32 "
        "bytes\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},\"b\":{\"dtype\":"
        "\"BF16\",\"shape\":[],\"data_offsets\":[24,26]}}";
    shoal_status status;
    struct shoali_arena arena;
    struct shoali_safetensors_entry *entry = NULL;
    int32_t count = 0;
    shoali_arena_init(&arena);
    struct shoali_checkpoint_file head = {.name = "s", .path = "s", .bytes = sizeof text - 1 + 26};
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, sizeof text - 1, file), sizeof text - 1);
    assert_int_equal(fflush(file), 0);
    SHOAL_TRY(status, shoali_checkpoint_read_head(&head, fileno(file), &arena, &entry, &count),
              done);
    for (int32_t i = 0; i < count; i++)
        shoali_str_append(out, "%s %d %lld;", entry[i].name, (int)entry[i].dtype,
                          (long long)entry[i].end);
done:
    fclose(file);
    shoali_arena_fini(&arena);
    return status;
}

static shoal_status plan_text(struct shoali_str *out)
{
    const shoal_plan plan = {
        .world_size = 3, .traffic_count = 1, .traffic = {{.name = "all_reduce"}}};
    char *text = NULL;
    const shoal_status status = shoal_plan_to_json(&plan, &text);
    shoali_str_append(out, "%s", text ? text : "");
    free(text);
    return status;
}

/* Two runs that differ in one tensor of the second step. */
static shoal_status diff_of_runs(struct shoali_str *out)
{
    static const struct shoali_hashes_facts facts = {
        .dtype = "F32", .kernels = "k", .micro_batches = 2, .tensors = 1, .elements = 4};
    shoal_status status;
    struct shoali_hashes_verdict verdict;
    char runs[2][sizeof folder + 8], files[2][sizeof folder + 40];
    for (int r = 0; r < 2; r++) {
        struct shoali_str text = {0};
        snprintf(runs[r], sizeof runs[r], "%s/%d", folder, r);
        snprintf(files[r], sizeof files[r], "%s/%d/" SHOALI_HASHES_FILE, folder, r);
        for (int64_t step = 1; step <= 2; step++) {
            const struct shoali_hashes_step numbers = {
                .step = step, .dtype = "F32", .loss = 2.5, .grad_norm = 1, .lr = 1};
            const struct shoali_hash hash = {.hash = r && step == 2 ? 2 : 1, .norm = 1};
            shoali_hashes_append_step(&text, &numbers);
            shoali_hashes_append_tensor(&text, step, "gradient", "a tensor", 4, &hash);
            shoali_hashes_append_tensor(&text, step, "weight", "a tensor", 4, &hash);
        }
        status = shoali_hashes_write(runs[r], true, &facts, &text);
        shoali_str_fini(&text);
        if (status < 0)
            return status;
    }
    return shoali_hashes_diff(files[0], files[1], out, &verdict);
}

/* Flags put into a configuration that has none of their sections. */
static shoal_status flags(struct shoali_str *out)
{
    static const struct pretrain_command command = {
        .name = "shoal pretrain gpt", .usage = "", .model = "gpt", .trains = true};
    char file[sizeof folder + 32];
    char *argv[] = {"gpt",
                    "--num-layers=1",
                    "--hidden-size=4",
                    "--mock-data",
                    "--seq-length=4",
                    "--num-attention-heads=1",
                    "--lr=0.125",
                    "--adam-beta1=0.5",
                    "--adam-beta2=0.75",
                    "--fp16",
                    "--loss-scale=8",
                    "--lr-decay-style=cosine",
                    "--clip-grad=1",
                    "--lr-warmup-iters=3",
                    "--train-iters=10",
                    NULL,
                    NULL};
    shoal_status status;
    struct pretrain_options options = {0};
    const char *path;
    char *text = NULL;
    snprintf(file, sizeof file, "--deepspeed_config=%s/c.json", folder);
    argv[15] = file;
    FILE *made = fopen(strchr(file, '=') + 1, "w");
    assert_non_null(made);
    fputs("{\"train_batch_size\": 8}", made);
    fclose(made);
    SHOAL_TRY(status, pretrain_options_init(&options, &command, 16, argv), done);
    SHOAL_TRY(status, pretrain_config(&options, &path, &text), done);
    shoali_str_append(out, "%s", text);
done:
    free(text);
    pretrain_options_fini(&options);
    return status;
}

/* An engine's life with a checkpoint; the manifest tells what was stored. */
static shoal_status checkpoint(struct shoali_str *out)
{
    static struct gpt_run run = {.ranks = 1, .layers = 1};
    static struct gpt_seat seat;
    shoal_status status;
    char path[sizeof folder + 32], *text = NULL;
    size_t bytes;
    run.samples = run.micro_batches = 1;
    seat = (struct gpt_seat){.run = &run};
    SHOAL_TRY(status, gpt_open(&seat, NULL), done);
    SHOAL_TRY(status, shoal_engine_save_checkpoint(seat.engine, folder, "t", "{\"a\": 1}"), done);
    SHOAL_TRY(status, shoal_engine_load_checkpoint(seat.engine, folder, "t", 0, NULL), done);
    SHOAL_TRY(status, shoal_engine_fingerprint(seat.engine, &seat.fingerprint), done);
    snprintf(path, sizeof path, "%s/t/manifest.json", folder);
    SHOAL_TRY(status, shoali_read_file(path, &text, &bytes), done);
    shoali_str_append(out, "%s %llx", text, (unsigned long long)seat.fingerprint);
done:
    free(text);
    shoal_engine_destroy(seat.engine);
    shoal_model_destroy(seat.model);
    return status;
}

/* ---- each of them ---- */

static void fail_each(const char *name, shoal_status (*make)(struct shoali_str *out))
{
    struct shoali_str whole = {0};
    failing = -1;
    allocations = 0;
    if (make(&whole) < 0)
        fail_msg("%s: %s", name, shoal_error_message());
    const int64_t count = allocations;
    assert_true(count > 3 && whole.length > 10);
    /* of an engine's life only every so many: each save waits for the disk */
    const int64_t stride = count > ALL_MAX ? count / 20 : 1;
    int64_t errors = 0, trials = 0;
    for (int64_t i = 0; i < 2 * count; i += i % 2 == 0 ? 1 : 2 * stride - 1, trials++) {
        struct shoali_str text = {0};
        failing = i / 2;
        later_too = i % 2;
        allocations = 0;
        const shoal_status status = make(&text);
        failing = -1;
        errors += status < 0;
        if (status < 0 && status != SHOAL_ENOMEM)
            fail_msg("%s: allocation %lld: %s", name, (long long)i / 2, shoal_error_message());
        if (status >= 0 && strcmp(shoali_str_get(&text), whole.text) != 0)
            fail_msg("%s: allocation %lld: another text:\n%s\ninstead of\n%s", name,
                     (long long)i / 2, shoali_str_get(&text), whole.text);
        shoali_str_fini(&text);
    }
    print_message("%s: %lld allocations, %lld trials, %lld errors\n", name, (long long)count,
                  (long long)trials, (long long)errors);
    assert_true(errors > trials / 2);
    shoali_str_fini(&whole);
}

static void test_every_subject(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        shoal_status (*make)(struct shoali_str *out);
    } subjects[] = {
        {"configuration", read_config},
        {"model's options", model_config},
        {"manifest", manifest},
        {"safetensors", safetensors},
        {"plan", plan_text},
        {"diff of runs", diff_of_runs},
        {"flags", flags},
        {"checkpoint", checkpoint},
    };
    json_set_alloc_funcs(failing_malloc, free);
    for (size_t i = 0; i < sizeof subjects / sizeof subjects[0]; i++)
        fail_each(subjects[i].name, subjects[i].make);
    json_set_alloc_funcs(malloc, free);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_subject)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
