# Sourced by the tests of this folder: runs commands and compares what they did.
failures=0
output=
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT

complain() {
    echo "FAILED: $1"
    failures=$((failures + 1))
}
# expect CODE COMMAND...: runs it, keeps its output (both streams) in $output
expect() {
    local wanted=$1 code=0
    shift
    output=$("$@" 2>&1 </dev/null) || code=$?
    [ "$code" -eq "$wanted" ] || complain "$* ended with $code, not $wanted: $output"
}
# says TEXT...: each stands in the last output
says() {
    local text
    for text in "$@"; do
        case $output in
        *"$text"*) ;;
        *) complain "\"$text\" is missing in: $output" ;;
        esac
    done
}
finish() {
    [ "$failures" -eq 0 ] || exit 1
    echo "all passed"
}
