# How bash completes a word of shoal, from the tables that scripts/completions puts before this text. COMMAND is the key of a table:
# a subcommand, a subcommand and its subject, or a subcommand and a model.
#   _shoal_names  the subcommands      _shoal_words  COMMAND: subjects or models      _shoal_flags  COMMAND: flags
#   _shoal_takes  "COMMAND FLAG": value, list or number, and the choices; flags without a value are not in it

_shoal_is_word() { # WORD LIST
    case " $2 " in *" $1 "*) return 0 ;; esac
    return 1
}
_shoal_offer() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$2"); }
_shoal_files() {
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$1")
}
# The words from the index `at` on, which is shoal's own, up to the one to complete. "--flag=value" is three words.
_shoal_complete() { # AT
    local at=$1 cur=${COMP_WORDS[COMP_CWORD]} name=${COMP_WORDS[$1 + 1]-} subject= command takes= word i
    [ "$cur" != = ] || cur=
    if [ "$COMP_CWORD" -eq $((at + 1)) ]; then
        _shoal_offer "$_shoal_names --help --version" "$cur"
        return
    fi
    command=$name
    for ((i = at + 2; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        case $word in
        =) ;;
        -*)
            takes=${_shoal_takes["$command $word"]-${_shoal_takes["$name $word"]-}}
            [ "${COMP_WORDS[i + 1]}" != = ] || [ $((i + 1)) -eq "$COMP_CWORD" ] || i=$((i + 1))
            ;;
        *)
            if [ -n "$takes" ]; then # its value; a list goes on
                [ "${takes%% *}" = list ] || takes=
            elif [ "$name" = run ]; then # the program, and its arguments
                if [ "${word##*/}" = shoal ]; then
                    _shoal_complete "$i"
                else
                    _shoal_files "$cur"
                fi
                return
            elif [ -z "$subject" ] && _shoal_is_word "$word" "${_shoal_words[$name]-}"; then
                subject=$word
                command="$name $word"
            fi
            ;;
        esac
    done
    case $takes:$cur in
    list:-*) ;; # the next flag
    number:*) return ;;
    value:* | list:*)
        _shoal_files "$cur"
        return
        ;;
    value\ *)
        _shoal_offer "${takes#* }" "$cur"
        return
        ;;
    esac
    case $cur in
    -*)
        case $name in # a model's flags are added to the subcommand's
        pretrain | plan) _shoal_offer "${_shoal_flags[$name]-} ${subject:+${_shoal_flags[$command]-}}" "$cur" ;;
        *) _shoal_offer "${_shoal_flags[$command]-}" "$cur" ;;
        esac
        ;;
    *)
        if [ -z "$subject" ] && [ -n "${_shoal_words[$name]-}" ]; then
            _shoal_offer "${_shoal_words[$name]}" "$cur"
        else
            _shoal_files "$cur"
        fi
        ;;
    esac
}
_shoal() {
    COMPREPLY=()
    _shoal_complete 0
}
complete -F _shoal shoal
