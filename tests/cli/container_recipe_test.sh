#!/usr/bin/env bash
# The steps of Containerfile are README's commands, and name what is there. `tests/bare/run container` runs them.
# Usage: container_recipe_test.sh ROOT
. "$(dirname "$0")/check.sh"
root=$1
recipe=$root/Containerfile
steps=$(grep -vE '^(#|$)' "$recipe")
unknown=$(grep -vE '^(FROM|RUN|COPY|ARG|WORKDIR|USER|ENTRYPOINT|CMD) ' <<<"$steps")
[ -z "$unknown" ] || complain "steps of another kind: $unknown"
line=$(sed -n '/^sudo apt-get install/{s/^sudo //p;q}' "$root/README.md")
[ -n "$line" ] || complain "README.md has no line with packages"
grep -qxF "RUN $line" <<<"$steps" || complain "no step is README's \"$line\""
grep -qx make "$root/README.md" || complain "README.md has no line \"make\""
# in this order
order=$(grep -oE '^(RUN apt-get install|COPY \. \.$|RUN make( deb)?$|COPY --from=build)' <<<"$steps" | paste -sd';')
[ "$order" = "RUN apt-get install;COPY . .;RUN make;RUN make deb;COPY --from=build" ] || complain "the order of the steps: $order"
# two stages of images without a host's name; no address, no secret
[ "$(grep -c '^FROM ' <<<"$steps")" = 2 ] || complain "not two stages"
! grep '^FROM ' <<<"$steps" | grep -vE '^FROM [a-z]+:[a-z0-9.-]+( AS build)?$' || complain "an image of another place"
! grep -nE '://|--mount=type=secret|PASSWORD|TOKEN' "$recipe" || complain "addresses or secrets"
# targets of make exist, the program is what the packages install, and the context leaves builds out
for target in all deb; do grep -q "^$target:" "$root/Makefile" || complain "Makefile has no $target"; done
grep -q '^ENTRYPOINT \["shoal"\]$' <<<"$steps" || complain "the container does not run shoal"
for name in build 'build-*' deps .git; do grep -qxF -- "$name" "$root/.dockerignore" || complain ".dockerignore lets $name in"; done
# the commands of the page are those of the recipe's head
for words in "podman build -t shoal ." "docker build -t shoal -f Containerfile ."; do
    grep -qF "$words" "$recipe" && grep -qF "$words" "$root/docs/INSTALL.md" || complain "not in both Containerfile and docs/INSTALL.md: $words"
done
finish
