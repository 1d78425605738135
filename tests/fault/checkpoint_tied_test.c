/* Tied weights are stored once, and 16-bit weights must be what their masters round to. */
#include "base/test_folder.h"
#include "engine/test_gpt.h"

#include <jansson.h>
#include <unistd.h>

enum { STEPS = 3, ELEMENT = 37 }; /* the element that is changed */
static struct gpt_seat reference[GPT_RANKS_MAX], seats[GPT_RANKS_MAX];

static bool train_and_save(struct gpt_seat *seat)
{
    EXPECT(gpt_train(seat));
    EXPECT(shoal_engine_save_checkpoint(seat->engine, folder, "tag", NULL) == SHOAL_OK);
    return true;
}

/* run->user: part of the error's sentence; NULL: it must load, and be what was saved. */
static bool load(struct gpt_seat *seat)
{
    const char *text = seat->run->user;
    EXPECT(gpt_open(seat, NULL) == SHOAL_OK);
    const shoal_status status = shoal_engine_load_checkpoint(seat->engine, folder, NULL, 0, NULL);
    EXPECT(status == (text ? SHOAL_ECORRUPT : SHOAL_OK));
    if (text) {
        EXPECT(strstr(shoal_error_message(), text));
        return true;
    }
    EXPECT(shoal_engine_fingerprint(seat->engine, &seat->fingerprint) == SHOAL_OK);
    EXPECT(seat->fingerprint == reference[0].fingerprint);
    return true;
}

/* ---- another hand at the files --------------------------------------------------------------- */

static char *read_all(const char *name, size_t *bytes)
{
    char path[256], *data = NULL;
    snprintf(path, sizeof path, "%s/tag/%s", folder, name);
    assert_int_equal(shoali_read_file(path, &data, bytes), SHOAL_OK);
    return data;
}

static void write_all(const char *name, const char *data, size_t bytes)
{
    char path[256];
    snprintf(path, sizeof path, "%s/tag/%s", folder, name);
    assert_int_equal(shoali_write_file_atomic(path, data, bytes), SHOAL_OK);
}

static json_t *read_manifest(void)
{
    size_t bytes;
    char *text = read_all("manifest.json", &bytes);
    json_t *root = json_loadb(text, bytes, 0, NULL);
    assert_non_null(root);
    free(text);
    return root;
}

/* Flips a bit of a kind's first file and makes all hashes right again. */
static void change(const char *kind, size_t item, int bit)
{
    char name[64], hex[24];
    size_t bytes, index;
    json_t *row;
    snprintf(name, sizeof name, "%s-00001-of-00001.safetensors", kind);
    char *data = read_all(name, &bytes);
    uint64_t head;
    memcpy(&head, data, sizeof head);
    data[8 + head + ELEMENT * item + (size_t)bit / 8] ^= (char)(1 << bit % 8);
    write_all(name, data, bytes);
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)shoali_hash64(data, bytes));
    free(data);
    json_t *root = read_manifest();
    json_array_foreach(json_object_get(root, "kinds"), index, row)
    {
        json_t *chunks =
            json_object_get(json_array_get(json_object_get(row, "files"), 0), "chunks");
        if (strcmp(json_string_value(json_object_get(row, "name")), kind) == 0)
            json_array_set_new(chunks, 0, json_string(hex));
    }
    json_object_del(root, "hash");
    char *body = json_dumps(root, JSON_COMPACT);
    struct shoali_str text = {0};
    const size_t hashed = strlen(body) - 1;
    shoali_str_append_bytes(&text, body, hashed);
    shoali_str_append(&text, ",\"hash\":\"%016llx\"}\n",
                      (unsigned long long)shoali_hash64(body, hashed));
    write_all("manifest.json", text.text, text.length);
    shoali_str_fini(&text);
    free(body);
    json_decref(root);
}

/* ---- tied ------------------------------------------------------------------------------------ */

static bool read_by_alias(struct gpt_seat *seat)
{
    float table[GPT_VOCAB * 32], head[GPT_VOCAB * 32];
    EXPECT(load(seat));
    EXPECT(shoal_engine_get_param(seat->engine, "transformer.wte.weight", table) == SHOAL_OK);
    EXPECT(shoal_engine_get_param(seat->engine, "lm_head.weight", head) == SHOAL_OK);
    EXPECT(memcmp(table, head, sizeof table) == 0);
    return true;
}

static void test_tied(void **state)
{
    (void)state;
    size_t bytes;
    gpt_run_ranks((struct gpt_run){.ranks = 2, .steps = STEPS, .run = train_and_save}, reference);
    json_t *root = read_manifest();
    const json_t *aliases = json_object_get(root, "aliases");
    assert_int_equal(json_object_size(aliases), 1);
    assert_string_equal(json_string_value(json_object_get(aliases, "lm_head.weight")),
                        "transformer.wte.weight");
    json_decref(root);
    char *data = read_all("model-00001-of-00001.safetensors", &bytes);
    assert_non_null(strstr(data + 8, "\"transformer.wte.weight\""));
    assert_null(strstr(data + 8, "lm_head"));
    free(data);
    data = read_all("model.safetensors.index.json", &bytes);
    assert_non_null(
        strstr(data, "\"transformer.wte.weight\": \"model-00001-of-00001.safetensors\""));
    free(data);
    for (int32_t n = 1; n <= 3; n++)
        gpt_run_ranks((struct gpt_run){.ranks = n, .run = read_by_alias}, seats);
}

static void test_untied(void **state)
{
    (void)state;
    const struct gpt_run run = {.steps = STEPS, .untied = true, .run = train_and_save};
    gpt_run_ranks(run, reference);
    json_t *root = read_manifest();
    assert_int_equal(json_object_size(json_object_get(root, "aliases")), 0);
    json_decref(root);
}

/* ---- rounded --------------------------------------------------------------------------------- */

static const char *const precisions[] = {"\"bf16\":{\"enabled\":true}",
                                         "\"fp16\":{\"enabled\":true,\"loss_scale\":64}"};

static void load_at(const char *precision, int32_t ranks, int stage, const char *sentence)
{
    char options[128];
    snprintf(options, sizeof options, "%s,\"zero_optimization\":{\"stage\":%d}", precision, stage);
    gpt_run_ranks((struct gpt_run){.ranks = ranks,
                                   .options = options,
                                   .run = load,
                                   .accelerator = stage == 2 ? "sim" : NULL,
                                   .user = (void *)(uintptr_t)sentence},
                  seats);
}

static void test_rounded(void **state)
{
    (void)state;
    char sentence[128];
    snprintf(sentence, sizeof sentence, "`transformer.wte.weight`, element %d: 0x", ELEMENT);
    for (int p = 0; p < 2; p++) {
        gpt_run_ranks(
            (struct gpt_run){
                .ranks = 2, .options = precisions[p], .steps = STEPS, .run = train_and_save},
            reference);
        for (int stage = 0; stage < 4; stage++)
            load_at(precisions[p], stage % 3 + 1, stage, NULL);
        change("model", 2, 0); /* one unit in the last place */
        for (int stage = 0; stage < 4; stage++)
            load_at(precisions[p], stage % 3 + 1, stage, sentence);
        load_at(precisions[1 - p], 1, 0, sentence); /* the file's type counts, not the run's */
        change("model", 2, 0);
        load_at(precisions[p], 2, 1, NULL);
        change("master", 4, 26); /* the exponent */
        load_at(precisions[p], 2, 3, sentence);
        change("master", 4, 26);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_tied, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_untied, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_rounded, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
