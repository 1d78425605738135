#!/usr/bin/env bash
# The checks of the tree find what they are for, and the tree's includes respect the layers.
# Usage: scripts_test.sh ROOT
. "$(dirname "$0")/check.sh"
root=$1
expect 0 "$root/scripts/check-layers"

mkdir -p "$folder"/{src/base,src/comm/shm,src/comm/thread,src/optimizer,src/engine/{config,save,step},src/hub,src/new,include/shoal,tools/plan,tools/flags,examples}
put() { printf '%s\n' "$2" >"$folder/$1"; }
put src/optimizer/good.c '#include "base/x.h"'
put src/comm/shm/good.c '#include "comm/bootstrap/x.h"'
put src/engine/step/good.c '#include "engine/save/x.h"'
put tools/good.c '#include "base/x.h"'
put tools/plan/good.c '#include "flags/x.h"'
put src/hub/good.c '#include "shoal/tokenizer.h"'
put include/shoal/hub.h '#include "shoal/tokenizer.h"'
expect 0 "$root/scripts/check-layers" "$folder"
put src/base/a.c '#include "comm/comm.h"'
put src/optimizer/a.c '#include "autograd/autograd.h"'
put src/comm/shm/a.c '#  include "comm/thread/x.h"'
put src/engine/config/a.c '#include "engine/step/x.h"'
put src/engine/a.c '#include "transformer/x.h"'
put src/engine/b.c '#include "tokenizer/x.h"'
put src/engine/c.c '#include <shoal/hub.h>'
put include/shoal/engine.h '#include "shoal/hub.h"'
put src/new/a.c '#include "base/x.h"'
put include/shoal/a.h '#include "base/x.h"'
put tools/a.c '#include "engine/x.h"'
put tools/flags/a.c '#include "plan/x.h"'
put examples/a.c '#include "base/x.h"'
expect 1 "$root/scripts/check-layers" "$folder"
says "src/base/a.c:1: " "upward" "src/optimizer/a.c:1: " "sideways" "src/comm/shm/a.c:1: " \
    "src/engine/a.c:1: " "src/engine/b.c:1: " "src/engine/c.c:1: " "include/shoal/engine.h:1: " "the outer ring" "src/new/a.c:1: " "no level" "include/shoal/a.h:1: " "tools/a.c:1: " \
    "examples/a.c:1: " "src/engine/config comes before src/engine/step" "tools/flags comes before tools/plan" "13 wrong includes"

rm -f "$folder"/{src/*/[abc].c,include/shoal/{engine,hub}.h,src/comm/shm/a.c,src/engine/config/a.c,include/shoal/a.h,tools/{,flags/}a.c,examples/a.c}
put src/base/a.c 'json_t *root = json_loads(text, 0, NULL);'
expect 1 "$root/scripts/check-layers" "$folder"
says "src/base/a.c:1:" "base/json.h"

rm -rf "$folder"/{src,include,tools,examples}
mkdir -p "$folder"/{src/base,include/shoal}
put src/base/base.h '/* base - good */'
put src/base/base.c 'int x;'
put include/shoal/a.h '/* a.h - good */
#define SHOAL_API
/* Does it. */
SHOAL_API int shoal_good(void);
SHOAL_API int shoal_same_group(void);'
put README.md 'See [base](src/base/base.h) and `src/base/base.c`, [web](https://example.org).'
expect 0 "$root/scripts/check-docs" "$folder"
put README.md 'See [gone](src/gone.h) and `src/base/gone.c`.'
mkdir "$folder/src/silent"
put src/silent/a.c 'int y;'
put src/base/mute.h 'extern int y;'
put include/shoal/a.h '/* a.h - bad */
#define SHOAL_API

SHOAL_API int shoal_undocumented(void);
SHOAL_API size_t shoal_not_alone(void);

SHOAL_CHECKED static inline int shoal_undocumented_too(void);'
expect 1 "$root/scripts/check-docs" "$folder"
says "src/gone.h" "src/base/gone.c" "src/silent" "src/base/mute.h" "shoal_undocumented" "shoal_undocumented_too" \
    "does not compile alone as C11" "does not compile alone as C++17"


put CMakeLists.txt 'project(shoal VERSION 1.3.0 LANGUAGES C)'
put CHANGELOG.md '## [1.2.0] - 2030-01-01'
expect 1 "$root/scripts/check-docs" "$folder"
says "CHANGELOG.md begins with 1.2.0, CMakeLists.txt builds 1.3.0"
rm "$folder/CMakeLists.txt" "$folder/CHANGELOG.md"

# ---- the API reference: each declaration once, with the comment it stands under ----
put README.md ''
put include/shoal/shoal.h '/* shoal.h - all
 *
 *   a.h    first
 */
#include "shoal/a.h"'
put include/shoal/a.h '/* a.h - some calls
 *
 * Of *words*, and shoal_made ones:
 *
 *   as      they
 *     stand
 */
#ifdef __cplusplus
extern "C" {
#endif
#define SHOAL_API
#define SHOAL_CHECKED
/* ---- calls ---- */

/* Makes it; *made is the caller'"'"'s. */
SHOAL_API int shoal_make(int with, const char *many, const struct arguments *that_make, long lines,
                         void **made);
SHOAL_API int shoal_unmake(void *made); /* NULL
                                           is fine */
typedef struct shoal_thing {
    int size; /* of it
                 all */
} shoal_thing;

/* As the other. */
SHOAL_CHECKED static inline int shoal_call(int of);

SHOAL_CHECKED static inline int shoal_call(int of)
{
    return of;
}
#ifdef __cplusplus
}
#endif'
expect 0 "$root/scripts/api-docs" "$folder"
says '| [a.h](#ah) | some calls |' '## a.h

Some calls

Of *words*, and `shoal_made` ones:

```
  as      they
    stand
```' '**Calls**' '### `shoal_make`, `shoal_unmake`, `shoal_thing`

```c
int shoal_make(int with, const char *many, const struct arguments *that_make, long lines,
    void **made);
int shoal_unmake(void *made); /* NULL is fine */
typedef struct shoal_thing {
    int size; /* of it
                 all */
} shoal_thing;
```

Makes it; \*made is the caller'"'"'s.' '### `shoal_call`

```c
int shoal_call(int of);
```

As the other.'
[ "$(grep -c shoal_call <<<"$output")" = 2 ] || complain "the definition is listed, too: $output"
mkdir "$folder/docs" "$folder/scripts" && put scripts/api-docs '' && printf '%s\n' "$output" >"$folder/docs/API.md"
put CMakeLists.txt ''
put src/silent/a.h '/* silent - not any more */'
put src/base/mute.h '/* says something */'
sed -i 's/struct arguments/void/' "$folder/include/shoal/a.h"
expect 1 "$root/scripts/check-docs" "$folder"
says "docs/API.md is not what the headers say" "check-docs: 1 problem"
"$root/scripts/api-docs" "$folder" >"$folder/docs/API.md"
expect 0 "$root/scripts/check-docs" "$folder"
rm -r "$folder/docs" "$folder/scripts" "$folder/CMakeLists.txt"

# The checks read what git tracks or would track, and all files where there is no .git
tree() { # FOLDER
    mkdir -p "$1"/{src/base,include/shoal,notes,build/CMakeFiles} && cp -r "$root/scripts" "$root/.clang-format" "$1"
    echo '/* base - good */' >"$1/src/base/base.h"
    printf '#include "base/base.h"\nint x;\n' >"$1/src/base/base.c"
    printf '/* a.h - good */\nextern int a;\n' >"$1/include/shoal/a.h"
    echo 'See [gone](gone.md).' | tee "$1/notes/own.md" >"$1/build/own.md"
    printf 'int  y ;\n' | tee "$1/notes/own.c" >"$1/build/CMakeFiles/id.c"
}
tree "$folder/plain"
expect 1 "$folder/plain/scripts/check-docs"
says "notes/own.md: link to gone.md" "check-docs: 1 problem"
if ! command -v git >/dev/null 2>&1; then
    echo "skipped: git is not installed, so no clone is checked"
else
    tree "$folder/cloned"
    printf '%s\n' build notes >"$folder/cloned/.gitignore"
    git -C "$folder/cloned" init -q
    expect 0 "$folder/cloned/scripts/check-docs"
    expect 0 "$folder/cloned/scripts/check-layers"
    echo 'See [gone](gone.md).' >"$folder/cloned/new.md"
    expect 1 "$folder/cloned/scripts/check-docs"
    says "new.md: link to gone.md" "check-docs: 1 problem"
fi
if command -v "${CLANG_FORMAT:-clang-format}" >/dev/null 2>&1; then
    expect 1 "$folder/plain/scripts/check-format"
    [ "$(grep -c '\.[ch]$' <<<"$output")" = 1 ] || complain "not notes/own.c alone: $output"
    says "notes/own.c"
fi
if [ -d "$folder/cloned" ] && command -v "${CLANG_FORMAT:-clang-format}" >/dev/null 2>&1; then
    expect 0 "$folder/cloned/scripts/check-format"
    printf 'int  y ;\n' >"$folder/cloned/src/base/new.c"
    expect 1 "$folder/cloned/scripts/check-format"
    says "src/base/new.c"
fi
# The tape reaches a row through another object of its folder.
built="$folder/built/src/autograd/o.dir"
mkdir -p "$built"/{tape,rows}
object() { cc -xc -c -o "$built/$1.c.o" - <<<"$2"; }
expect 2 "$root/scripts/check-tape" "$folder/built"
object tape/record 'void shoali_other(void); void shoali_record(void) { shoali_other(); }'
object other 'void shoali_other(void) {}'
object rows/row 'void shoali_record(void); void shoali_row(void) { shoali_record(); }'
expect 0 "$root/scripts/check-tape" "$folder/built"
object other 'void shoali_row(void); void shoali_other(void) { shoali_row(); }'
expect 1 "$root/scripts/check-tape" "$folder/built"
says "tape/record.c.o -> other.c.o: needs shoali_row of rows/row.c.o"
# Every code block of a recipe is compiled by a test, or the build says which one is not.
blocks="$root/tests/extending/extract"
put recipe.md '<!-- a.inc -->
```c
int a; \
```
text
```sh
not code
```'
expect 0 "$blocks" "$folder/recipe.md" "$folder/out" a.inc
[ "$(cat "$folder/out/a.inc")" = 'int a; \' ] || complain "extract wrote $(cat "$folder/out/a.inc")"
expect 1 "$blocks" "$folder/recipe.md" "$folder/out" a.inc b.inc
says "recipe.md:8: there is no code block b.inc"
expect 1 "$blocks" "$folder/recipe.md" "$folder/out"
says "recipe.md:2: no test compiles the block a.inc"
put recipe.md '```c
int a;
```'
expect 1 "$blocks" "$folder/recipe.md" "$folder/out"
says "recipe.md:1: the code block has no comment with a file name above it"
put file.c 'one
two;'
put block.inc 'between'
expect 0 "$root/tests/extending/graft" "$folder/file.c" "$folder/copy/file.c" '^two' "$folder/block.inc"
[ "$(tr '\n' ' ' <"$folder/copy/file.c")" = 'one between two; ' ] || complain "graft wrote $(cat "$folder/copy/file.c")"
expect 1 "$root/tests/extending/graft" "$folder/file.c" "$folder/copy/file.c" '^three' "$folder/block.inc"
says "file.c has no line like ^three"

# An external symbol without a user in another object is found; a user in a test is none.
objects=$folder/built/src/a/CMakeFiles/shoali_a.dir
mkdir -p "$objects" "$folder/built/tools"
compile() { printf '%s\n' "$2" | "${CC:-cc}" -x c -c - -o "$1"; }
compile "$objects/empty.c.o" 'typedef int nothing;'
for i in $(seq 300); do cp "$objects/empty.c.o" "$objects/empty$i.c.o"; done
compile "$objects/one.c.o" 'int shoali_used(void) { return 1; } int shoali_tested(void) { return 2; } int other(void) { return 3; }'
compile "$objects/two.c.o" 'int shoali_used(void); int shoali_pool_shuffle(void) { return shoali_used(); }'
compile "$objects/one_test.c.o" 'int shoali_tested(void); int main(void) { return shoali_tested(); }'
expect 1 "$root/scripts/check-unused" "$folder/built"
[ "$(grep shoali <<<"$output")" = "one.c.o: shoali_tested" ] || complain "not shoali_tested alone: $output"
compile "$objects/one.c.o" 'int shoali_used(void) { return 1; }'
expect 0 "$root/scripts/check-unused" "$folder/built"
expect 2 "$root/scripts/check-unused" "$folder/nowhere"
says "build first"

# The same seed makes the same mistakes, each rule some of them; another seed makes others.
expect 0 "$root/scripts/mutate" --seed 5 --mutants 60 --list io
says "seed 5, 60 mistakes in io" ", comparison: " ", sign: " ", off by one: " ", dropped statement: " ", ignored error: "
[ "$(grep -c '^src/io/.*\.c:[0-9]*: [0-9]*, ' <<<"$output")" = 60 ] || complain "not 60 mistakes: $output"
first=$output
expect 0 "$root/scripts/mutate" --seed 5 --mutants 60 --list io
[ "$output" = "$first" ] || complain "seed 5 makes other mistakes the second time"
expect 0 "$root/scripts/mutate" --seed 6 --mutants 60 --list io
[ "$(tail -n +2 <<<"$output")" != "$(tail -n +2 <<<"$first")" ] || complain "seed 6 makes the mistakes of seed 5"
expect 2 "$root/scripts/mutate" --list nowhere
says "there is no folder src/nowhere"
expect 2 "$root/scripts/mutate" --list
says "usage: scripts/mutate"
finish
