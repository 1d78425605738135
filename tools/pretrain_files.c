/* Files that the checkpoints of a run have for other programs: config.json and generation_config.json,
 * which are written anew, and those of the tokenizer, which are copied. */
#include "pretrain.h"

#include "base/str.h"
#include "shoal/hub.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* PATH as NAME. */
static shoal_status copy_file(shoal_engine *engine, const char *path, const char *name)
{
    shoal_status status;
    char *data = NULL;
    size_t bytes = 0;
    SHOAL_TRY(status, shoali_read_file(path, &data, &bytes), done);
    SHOAL_TRY(status, shoal_engine_add_file(engine, name, data, bytes), done);
done:
    free(data);
    return status;
}

static bool is_kind(const char *path, mode_t kind)
{
    struct stat info;
    return stat(path, &info) == 0 && (info.st_mode & S_IFMT) == kind;
}

/* All files of a tokenizer that a folder has. */
static shoal_status copy_folder(shoal_engine *engine, const char *folder)
{
    shoal_status status = SHOAL_OK;
    const char *name;
    struct shoali_str path = {0};
    for (int32_t i = 0; (name = shoal_hub_tokenizer_file(i)) != NULL; i++) {
        path.length = 0;
        shoali_str_append(&path, "%s/%s", folder, name);
        if (path.failed) {
            status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a path");
            goto done;
        }
        if (is_kind(path.text, S_IFREG))
            SHOAL_TRY(status, copy_file(engine, path.text, name), done);
    }
done:
    shoali_str_fini(&path);
    return status;
}

/* A tokenizer that is one file: under the name by which it is looked for. Of tiktoken's ranks there
 * is none. */
static shoal_status copy_single(shoal_engine *engine, const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path, *name, *dot;
    for (int32_t i = 0; (name = shoal_hub_tokenizer_file(i)) != NULL; i++)
        if (strcmp(base, name) == 0)
            return copy_file(engine, path, name);
    dot = strrchr(base, '.');
    if (dot && strcmp(dot, ".model") == 0)
        return copy_file(engine, path, "tokenizer.model");
    if (dot && strcmp(dot, ".json") == 0)
        return copy_file(engine, path, "tokenizer.json");
    return SHOAL_OK;
}

/* `source`: the folder that the model came from; NULL none. */
static shoal_status copy_tokenizer(const struct pretrain *run, const char *source)
{
    shoal_status status = SHOAL_OK;
    const struct tokenizer_flags *flags = &run->options.tokenizer;
    if (flags->vocab_file && flags->merge_file) {
        SHOAL_TRY(status, copy_file(run->engine, flags->vocab_file, "vocab.json"), done);
        SHOAL_TRY(status, copy_file(run->engine, flags->merge_file, "merges.txt"), done);
    } else if (flags->vocab_file) {
        SHOAL_TRY(status, copy_file(run->engine, flags->vocab_file, "vocab.txt"), done);
    } else if (flags->model && is_kind(flags->model, S_IFDIR)) {
        SHOAL_TRY(status, copy_folder(run->engine, flags->model), done);
    } else if (flags->model && is_kind(flags->model, S_IFREG)) {
        SHOAL_TRY(status, copy_single(run->engine, flags->model), done);
    } else if (source && !flags->type) {
        SHOAL_TRY(status, copy_folder(run->engine, source), done);
    }
done:
    return status;
}

/* A model that transformers does not have has no config.json, and is told so once. */
static shoal_status write_config(const struct pretrain *run, const char *source)
{
    shoal_status status;
    char *config = NULL, *generation = NULL;
    const shoal_hub_write_args args = {.config = shoal_model_get_config(run->model),
                                       .dtype = shoal_engine_dtype(run->engine),
                                       .tokenizer = shoal_dataset_tokenizer(run->dataset),
                                       .source = source};
    status = shoal_hub_write_config(&args, &config);
    if (status == SHOAL_EUNSUPPORTED) {
        fprintf(stderr, "shoal pretrain: checkpoints will have no config.json: %s\n",
                shoal_error_message());
        status = SHOAL_OK;
        goto done;
    }
    SHOAL_TRY(status, status, done);
    SHOAL_TRY(status, shoal_engine_add_file(run->engine, "config.json", config, strlen(config)),
              done);
    SHOAL_TRY(status, shoal_hub_write_generation(&args, &generation), done);
    SHOAL_TRY(status,
              shoal_engine_add_file(run->engine, "generation_config.json", generation,
                                    strlen(generation)),
              done);
done:
    free(config);
    free(generation);
    return status;
}

shoal_status pretrain_add_files(struct pretrain *run)
{
    shoal_status status = SHOAL_OK;
    char *found = NULL;
    const char *source = run->options.hub.folder;
    if (run->found) {
        SHOAL_TRY(status, shoal_checkpoint_find(run->options.load, run->options.load_tag, &found),
                  done);
        source = shoal_hub_is_folder(found) ? found : NULL;
    }
    SHOAL_TRY(status, write_config(run, source), done);
    SHOAL_TRY(status, copy_tokenizer(run, source), done);
done:
    free(found);
    return status;
}
