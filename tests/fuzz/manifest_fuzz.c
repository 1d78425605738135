/* manifest.json: the first byte says whether the hash at its end is made right, or the input is
 * taken as it is; then all that a load asks of a manifest. */
#include "fuzz.h"

#include "checkpoint/checkpoint_internal.h"

#include <jansson.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[32] = "/tmp/shoal-fuzz-XXXXXX", tag[40], name[64];

static void clean(void)
{
    (void)unlink(name);
    (void)rmdir(tag);
    (void)rmdir(folder);
}

/* With t/manifest.json, a link to the file without a name. */
static void make_folder(const char *file)
{
    if (*name)
        return;
    FUZZ_CHECK(mkdtemp(folder) && atexit(clean) == 0);
    snprintf(tag, sizeof tag, "%s/t", folder);
    FUZZ_CHECK(mkdir(tag, 0700) == 0);
    snprintf(name, sizeof name, "%s/manifest.json", tag);
    FUZZ_CHECK(symlink(file, name) == 0);
}

static void ask(const json_t *manifest)
{
    static const char *const names[] = {"a", "b"};
    static const shoal_shape shapes[] = {{.ndim = 2, .dim = {2, 3}}, {.ndim = 1, .dim = {4}}};
    static const struct shoali_checkpoint_alias aliases[] = {{.name = "c", .primary = "a"}};
    const struct shoali_checkpoint_args args = {.dir = "dir",
                                                .names = names,
                                                .shapes = shapes,
                                                .tensor_count = 2,
                                                .aliases = aliases,
                                                .alias_count = 1};
    const struct shoali_checkpoint_kind kind = {.name = "model", .dtype = SHOAL_F32};
    struct shoali_checkpoint_plan plan = {0};
    struct shoali_checkpoint_info info = {0};
    struct shoali_arena arena;
    const char *found[2] = {NULL, NULL};
    shoali_arena_init(&arena);
    (void)shoali_manifest_step(manifest);
    if (shoali_manifest_match(manifest, &args, found) == SHOAL_OK)
        FUZZ_CHECK(found[0] && found[1]);
    if (shoali_manifest_plan(manifest, &kind, &arena, &plan) == SHOAL_OK)
        for (int32_t f = 0; f < plan.file_count; f++)
            FUZZ_CHECK(plan.file[f].name && plan.file[f].bytes > 0 && plan.file[f].chunk);
    if (shoali_manifest_info(manifest, &info) == SHOAL_OK)
        FUZZ_CHECK(info.engine_json && info.kind_count <= SHOALI_CHECKPOINT_KINDS);
    shoali_checkpoint_info_fini(&info);
    shoali_arena_fini(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct shoali_str text = {0};
    json_t *manifest = NULL;
    if (size < 1)
        return 0;
    shoali_str_append_bytes(&text, (const char *)data + 1, size - 1);
    if (data[0] & 1)
        shoali_str_append(&text, ",\"hash\":\"%016llx\"}\n",
                          (unsigned long long)shoali_hash64(text.text, text.length));
    make_folder(fuzz_file((const uint8_t *)shoali_str_get(&text), text.length));
    if (shoali_manifest_read(folder, "t", &manifest) == SHOAL_OK)
        ask(manifest);
    else
        FUZZ_CHECK(!manifest);
    json_decref(manifest);
    shoali_str_fini(&text);
    return 0;
}
