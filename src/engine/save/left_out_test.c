/* Sentences about files and data that only the outer ring reads. This test links the core alone, so
 * the tables that the build writes have the core's rows. */
#include "base/test_cmocka.h"
#include "base/test_folder.h"
#include "data/indexed/indexed.h"
#include "engine/engine.h"
#include "formats/formats.h"
#include "shoal/data.h"

static const char *path_of(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_bytes(const char *name, const char *bytes, size_t count)
{
    FILE *file = fopen(path_of(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static void refused(shoal_status status, const char *sentence)
{
    assert_true(status < 0);
    if (!strstr(shoal_error_message(), sentence))
        fail_msg("no \"%s\" in: %s", sentence, shoal_error_message());
}

static void test_torch(void **state)
{
    struct shoali_tensor_file file;
    (void)state;
    write_bytes("model.pt", "PK\3\4 an archive", 15);
    refused(shoali_tensor_file_open(path_of("model.pt"), &file),
            "no known format: safetensors is supported; this build has no reader of torch, pickle "
            "and numpy files (SHOAL_WITH_FOREIGN=OFF)");
    assert_false(shoali_tensor_file_looks_known(path_of("model.pt")));
}

static void test_checkpoint(void **state)
{
    (void)state;
    write_bytes("latest", "global_step3", 12);
    assert_int_equal(mkdir(path_of("global_step3"), 0700), 0);
    write_bytes("global_step3/mp_rank_00_model_states.pt", "PK\3\4", 4);
    refused(shoal_checkpoint_peek(folder, NULL, NULL, NULL),
            "this build has no reader of other programs' checkpoints (SHOAL_WITH_FOREIGN=OFF): ");
}

static void test_text(void **state)
{
    shoal_dataset *dataset = NULL;
    (void)state;
    write_bytes("text.txt", "some text", 9);
    const char *path = path_of("text.txt");
    refused(shoal_dataset_create(&(shoal_dataset_args){.paths = &path, .path_count = 1}, &dataset),
            "this build has no reader of text (SHOAL_WITH_TOKENIZER=OFF): give data files");
}

/* Data files say the size of their vocabulary beside their tokenizer. */
static void test_tokenizer(void **state)
{
    static const char said[] =
        "{\"vocab_size\": 300, \"eod\": 7, \"tokenizer\": {\"type\": \"byte\"}}";
    shoal_index_writer *writer = NULL;
    shoal_dataset *dataset = NULL;
    (void)state;
    assert_int_equal(shoal_index_writer_create(path_of("pair"), 300, &writer), SHOAL_OK);
    assert_int_equal(shoal_index_writer_add(writer, (const int32_t[]){1, 2, 3}, 3), SHOAL_OK);
    assert_int_equal(shoal_index_writer_end_document(writer), SHOAL_OK);
    assert_int_equal(shoal_index_writer_finish(writer), SHOAL_OK);
    shoal_index_writer_destroy(writer);
    write_bytes("pair.tokens.json", said, sizeof said - 1);
    const char *path = path_of("pair");
    shoal_dataset_args args = {.paths = &path, .path_count = 1, .split = "1"};
    assert_int_equal(shoal_dataset_create(&args, &dataset), SHOAL_OK);
    assert_int_equal(shoal_dataset_vocab_size(dataset), 300);
    assert_null(shoal_dataset_tokenizer(dataset));
    shoal_dataset_destroy(dataset);
    args.tokenizer = "byte";
    refused(shoal_dataset_create(&args, &dataset),
            "this build has no tokenizer `byte` (SHOAL_WITH_TOKENIZER=OFF)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torch),
        cmocka_unit_test(test_checkpoint),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_tokenizer),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
