/* Files that a run's checkpoints have for other programs: config.json and generation_config.json,
 * which are generated, and the tokenizer's files, which are copied. */
#include "pretrain/pretrain.h"

#include "base/base.h"
#include "base/str.h"
#include "shoal/hub.h"

#include <jansson.h>
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

/* Files that are read with a tokenizer's file that is given by its name. */
static shoal_status copy_sidecars(shoal_engine *engine, const char *path)
{
    static const char *const names[] = {"merges.txt", "tokenizer_config.json",
                                        "special_tokens_map.json", "added_tokens.json"};
    shoal_status status = SHOAL_OK;
    const char *slash = strrchr(path, '/');
    struct shoali_str beside = {0};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        beside.length = 0;
        shoali_str_append(&beside, "%.*s%s", slash ? (int)(slash - path + 1) : 0, path, names[i]);
        if (beside.failed) {
            status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a path");
            goto done;
        }
        if (is_kind(beside.text, S_IFREG))
            SHOAL_TRY(status, copy_file(engine, beside.text, names[i]), done);
    }
done:
    shoali_str_fini(&beside);
    return status;
}

/* A tokenizer that is one file: under the name by which it is looked for. Of tiktoken's ranks there
 * is none. */
static const char *single_name(const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path, *name, *dot;
    for (int32_t i = 0; (name = shoal_hub_tokenizer_file(i)) != NULL; i++)
        if (strcmp(base, name) == 0)
            return name;
    dot = strrchr(base, '.');
    if (dot && strcmp(dot, ".model") == 0)
        return "tokenizer.model";
    return dot && strcmp(dot, ".json") == 0 ? "tokenizer.json" : NULL;
}

static shoal_status copy_single(shoal_engine *engine, const char *path)
{
    shoal_status status = SHOAL_OK;
    const char *name = single_name(path);
    if (!name)
        return SHOAL_OK;
    SHOAL_TRY(status, copy_file(engine, path, name), done);
    SHOAL_TRY(status, copy_sidecars(engine, path), done);
done:
    return status;
}

/* vocab.txt alone would be read as of BertWordPieceLowerCase. */
static shoal_status copy_word_pieces(const struct pretrain *run)
{
    shoal_status status;
    char text[100];
    const struct tokenizer_flags *flags = &run->options.tokenizer;
    const bool cased = flags->type && strcmp(flags->type, "BertWordPieceCase") == 0;
    snprintf(text, sizeof text, "{\"tokenizer_class\": \"BertTokenizer\", \"do_lower_case\": %s}\n",
             cased ? "false" : "true");
    SHOAL_TRY(status, copy_file(run->engine, flags->vocab_file, "vocab.txt"), done);
    SHOAL_TRY(status,
              shoal_engine_add_file(run->engine, "tokenizer_config.json", text, strlen(text)),
              done);
done:
    return status;
}

static bool has_tokenizer(const char *folder)
{
    const char *name;
    for (int32_t i = 0; folder && (name = shoal_hub_tokenizer_file(i)) != NULL; i++)
        if (shoali_has_file(folder, name))
            return true;
    return false;
}

/* Of data files, whose .tokens.json has it. `eod` is ours: `tokenizers` refuses an unknown key, and
 * config.json has the number. */
static shoal_status write_own(const struct pretrain *run)
{
    static const char *const models[] = {"BPE", "WordPiece", "Unigram", "WordLevel"};
    shoal_status status = SHOAL_OK;
    char *text = NULL;
    json_t *root = NULL;
    const shoal_tokenizer *tokenizer = shoal_dataset_tokenizer(run->dataset);
    const char *own = tokenizer ? shoal_tokenizer_json(tokenizer) : NULL, *type;
    bool whole = false;
    if (!own)
        return SHOAL_OK;
    SHOAL_TRY(status, shoali_json_read(own, strlen(own), &root, NULL), done);
    type = json_string_value(json_object_get(json_object_get(root, "model"), "type"));
    for (size_t i = 0; type && i < sizeof models / sizeof models[0]; i++)
        whole = whole || strcmp(type, models[i]) == 0;
    if (!whole && type && run->options.save && pretrain_is_first(run))
        fprintf(stderr,
                "shoal pretrain: checkpoints will have no tokenizer for transformers: the data "
                "files have that of a SentencePiece model; give it with --tokenizer-model\n");
    if (!whole)
        goto done;
    (void)json_object_del(root, "eod");
    SHOAL_TRY(status, shoali_json_write(root, JSON_COMPACT, "tokenizer.json", &text), done);
    SHOAL_TRY(status, shoal_engine_add_file(run->engine, "tokenizer.json", text, strlen(text)),
              done);
done:
    json_decref(root);
    free(text);
    return status;
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
        SHOAL_TRY(status, copy_word_pieces(run), done);
    } else if (flags->model && is_kind(flags->model, S_IFDIR)) {
        SHOAL_TRY(status, copy_folder(run->engine, flags->model), done);
    } else if (flags->model && is_kind(flags->model, S_IFREG)) {
        SHOAL_TRY(status, copy_single(run->engine, flags->model), done);
    } else if (!flags->type && has_tokenizer(source)) {
        SHOAL_TRY(status, copy_folder(run->engine, source), done);
    } else if (!flags->type) {
        SHOAL_TRY(status, write_own(run), done);
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
