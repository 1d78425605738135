#include "inspect/inspect.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static shoal_status describe(const struct shoali_inspect *inspect, const char *path, json_t **out)
{
    shoal_status status;
    struct stat info;
    struct shoali_str index = {0};
    const char *slash = strrchr(path, '/');
    if (stat(path, &info) == 0)
        return S_ISDIR(info.st_mode)
                   ? shoali_inspect_folder(inspect, path, out)
                   : shoali_inspect_file(inspect, path, slash ? slash + 1 : path, out);
    status = SHOAL_FAIL(shoali_path_status(errno), "%s: %s", path, strerror(errno));
    /* data files are named without their endings */
    shoali_str_append(&index, "%s.idx", path);
    if (!index.failed && stat(shoali_str_get(&index), &info) == 0)
        status = shoali_inspect_indexed(path, slash ? slash + 1 : path, out);
    shoali_str_fini(&index);
    return status;
}

/* Tensors of all files of a description. */
static size_t count_tensors(const json_t *description)
{
    size_t i, count = json_array_size(json_object_get(description, "tensors"));
    const json_t *file;
    json_array_foreach(json_object_get(description, "files"), i, file)
    {
        count += count_tensors(file);
    }
    return count;
}

shoal_status shoal_inspect(const char *path, const char *tensors, unsigned flags, char **text)
{
    shoal_status status;
    json_t *description = NULL;
    struct shoali_str lines = {0};
    const struct shoali_inspect inspect = {.pattern = tensors,
                                           .statistics = (flags & SHOAL_INSPECT_STATISTICS) != 0};
    *text = NULL;
    if (!path || !*path) {
        status = SHOAL_FAIL(SHOAL_EINVAL, "no file is named: give the path of a file or folder");
        goto done;
    }
    SHOAL_TRY(status, describe(&inspect, path, &description), done);
    if (tensors && count_tensors(description) == 0) {
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "%s: no tensor has a name that matches `%s`: leave --tensor out to see "
                            "all names",
                            path, tensors);
        goto done;
    }
    if (flags & SHOAL_INSPECT_JSON) {
        char *json = NULL;
        SHOAL_TRY(status, shoali_json_write(description, JSON_COMPACT, "contents of a file", &json),
                  done);
        shoali_str_append(&lines, "%s\n", json);
        free(json);
    } else {
        SHOAL_TRY(status, shoali_inspect_print(description, &lines), done);
    }
    if (lines.failed) {
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the contents of %s", path);
        goto done;
    }
    *text = lines.text;
    lines.text = NULL;
done:
    shoali_str_fini(&lines);
    json_decref(description);
    return status;
}
